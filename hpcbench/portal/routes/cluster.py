"""The route of the cluster's page."""

from __future__ import annotations

from hpcbench.portal.cluster_watch import Watch
from hpcbench.portal.context import Here, once
from hpcbench.portal.models.cluster import Cluster
from hpcbench.portal.routes import new_router

router = new_router("cluster")


@router.get("/cluster", operation_id="getCluster")
def get_cluster(portal: Here) -> Cluster:
    """The last known state of the cluster; after 30 s the portal queries Slurm in the background."""
    return _watch(portal).word()


_watch = once(lambda portal: Watch(portal))
