"""The route of the cluster's page."""

from __future__ import annotations

from hpcbench.portal.cluster_watch import Watch
from hpcbench.portal.context import Here
from hpcbench.portal.models.cluster import Cluster
from hpcbench.portal.routes import room

router = room("cluster")


@router.get("/cluster", operation_id="getCluster")
def get_cluster(portal: Here) -> Cluster:
    """The last word on the cluster; where it is older than 30 s, Slurm is asked again beside."""
    found = portal.extra.get("cluster")
    if not isinstance(found, Watch):
        found = portal.extra.setdefault("cluster", Watch(portal))
        assert isinstance(found, Watch)
    return found.word()
