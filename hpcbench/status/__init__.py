"""The progress of an experiment, from its files and one query of Slurm: the data of `hpcbench status`.

A worker's own log decides its progress; Slurm (or /proc under the local executor) decides its liveness.
"""

from hpcbench.status.experiment_status import (
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
