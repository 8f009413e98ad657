"""How far an experiment is, from its files and one look at Slurm: what `hpcbench status` shows.

A worker's own log is the truth for progress, Slurm (or /proc under the local executor) for liveness.
"""

from hpcbench.status.models import (
    ENDED,
    Brief,
    Eta,
    ExperimentStatus,
    Failure,
    GpuUse,
    RunTaskStatus,
    ShardCounts,
    ShardStatus,
    State,
    Wait,
    WorkerStatus,
)
from hpcbench.status.observer import (
    Observer,
    briefs,
    due,
    status,
)

__all__ = [
    "ENDED",
    "Brief",
    "Eta",
    "ExperimentStatus",
    "Failure",
    "GpuUse",
    "Observer",
    "RunTaskStatus",
    "ShardCounts",
    "ShardStatus",
    "State",
    "Wait",
    "WorkerStatus",
    "briefs",
    "due",
    "status",
]
