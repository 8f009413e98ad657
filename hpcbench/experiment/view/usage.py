"""What an experiment took of the cluster, as `usage.json` holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json

Cause = Literal["starting", "loading", "failed_loads", "idle", "lost", "after_last_answer"]
"""Why allocated time was not used.

`starting` until the worker's first word · `loading` models · `failed_loads` of models that did not become
ready · `idle` no shard to work on, or between two · `lost` answers thrown away or asked again after a kill ·
`after_last_answer` until the job was over.
"""

CAUSES: tuple[Cause, ...] = get_args(Cause)

Unit = Literal["GPU", "CPU"]
"""What hours are of: CPUs where a job has no GPU."""


class Hours(BaseModel):
    """Hours of GPUs, or of CPUs where there are none."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    run_task: str = ""
    """Run task; empty in sums over several."""
    model: str = ""
    """Model; empty in sums over several."""
    unit: Unit = "GPU"
    """What the hours are of."""
    allocated: float = 0.0
    """What jobs held."""
    used: float = 0.0
    """Of these, with requests under way whose answers count."""
    starting: float = 0.0
    loading: float = 0.0
    failed_loads: float = 0.0
    idle: float = 0.0
    lost: float = 0.0
    after_last_answer: float = 0.0

    @property
    def wasted(self) -> float:
        """Allocated and not used."""
        return float(sum(getattr(self, cause) for cause in CAUSES))

    def plus(self, other: Hours) -> Hours:
        """The sum, called like this one."""
        names = ("allocated", "used", *CAUSES)
        return self.model_copy(
            update={name: getattr(self, name) + getattr(other, name) for name in names}
        )


class Waited(BaseModel):
    """How long jobs waited from their submission to their start, seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    first: float
    """Until the first one started."""
    median: float
    longest: float


class Usage(BaseModel):
    """What an experiment took."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    experiment: str = ""
    """Its id."""
    month: str = ""
    """Month in which its first job started, `2026-11`; empty if none did."""
    source: Literal["slurm", "workers"] = "workers"
    """Who said how long jobs held what they held: Slurm's accounting, or the workers themselves, who do not
    know of the time before their first word and after their last."""
    jobs: int = 0
    """Allocations, each run of a requeued job one."""
    hours: tuple[Hours, ...]
    """Of each run task."""
    waited: Waited | None = None
    """Wait in Slurm's queue; None: not known, or there is none. It is no waste: nothing is allocated."""
    energy_wh: float | None = None
    """What nodes drew for its jobs by Slurm's count, watt-hours; else what its GPUs drew; None: not known."""
    energy_source: Literal["slurm", "gpus"] | None = None
    gpu_utilisation: Mapping[str, float] = {}
    """Run task → mean utilisation of GPUs while it was asked, percent, where it was measured."""
    complete: bool = True
    """Whether every job had ended when this was counted: the one that reports may be one of them."""


def written_usage(experiment: Experiment) -> Usage | None:
    """What an experiment took, as it was written down at its end; None where that cannot be read."""
    try:
        return Usage.model_validate(read_json(experiment.usage_file))
    except (OSError, ValueError, RecursionError):
        return None
