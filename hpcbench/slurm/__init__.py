"""Questions and commands to Slurm: one question for all jobs and all readers, pure parsers, 22.05 and newer.

`snapshot` this user's jobs now · `job_ends` the ends of jobs that are gone · `why_pending` why a job waits ·
`set_throttle`, `exclude_nodes` … change a job · `partitions`, `nodes_by_partition` … the cluster.
"""

from hpcbench.slurm.accounting import (
    LOST,
    JobEnd,
    accounting,
    job_ends,
    judge,
)
from hpcbench.slurm.cluster import (
    Nodes,
    available,
    max_array_size,
    nodes_by_partition,
    on_cluster,
    parse_sinfo,
    partitions,
    version,
)
from hpcbench.slurm.jobs import (
    LIVE,
    Job,
    clock,
    parse_key_values,
    parse_queue,
    parse_runs,
    parse_squeue,
    task_numbers,
)
from hpcbench.slurm.pending_reason import unlaunched, why_pending
from hpcbench.slurm.queue import Snapshot, queue, snapshot
from hpcbench.slurm.scontrol import (
    Refusal,
    cancel,
    cancel_waiting,
    classify_refusal,
    depend_on,
    exclude_nodes,
    release_hold,
    set_throttle,
)

__all__ = [
    "LIVE",
    "LOST",
    "Job",
    "JobEnd",
    "Nodes",
    "Refusal",
    "Snapshot",
    "accounting",
    "available",
    "cancel",
    "cancel_waiting",
    "classify_refusal",
    "clock",
    "depend_on",
    "exclude_nodes",
    "job_ends",
    "judge",
    "max_array_size",
    "nodes_by_partition",
    "on_cluster",
    "parse_key_values",
    "parse_queue",
    "parse_runs",
    "parse_sinfo",
    "parse_squeue",
    "partitions",
    "queue",
    "release_hold",
    "set_throttle",
    "snapshot",
    "task_numbers",
    "unlaunched",
    "version",
    "why_pending",
]
