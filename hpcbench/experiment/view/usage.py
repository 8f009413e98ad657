"""Resources that an experiment took of the cluster, as written in `usage.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json
from hpcbench.schema.spending import Amount, BudgetCaps, in_words

Cause = Literal["starting", "loading", "failed_loads", "idle", "lost", "after_last_answer"]
"""Why allocated time was not used.

`starting` until the worker's first event · `loading` models · `failed_loads` of models that did not become
ready · `idle` without a shard, or between two · `lost` answers thrown away or asked again after a kill ·
`after_last_answer` until the job was over.
"""

CAUSES: tuple[Cause, ...] = get_args(Cause)

Unit = Literal["GPU", "CPU"]
"""Device of the hours: CPUs where a job has no GPU."""


class Hours(BaseModel):
    """Hours of GPUs, or of CPUs where a job has no GPU."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", protected_namespaces=(), defer_build=True
    )

    run_task: str = ""
    """Run task; empty in sums over several."""
    model: str = ""
    """Model; empty in sums over several."""
    unit: Unit = "GPU"
    """Device of the hours."""
    allocated: float = 0.0
    """Hours that jobs held."""
    used: float = 0.0
    """Allocated hours with requests in flight whose answers count."""
    starting: float = 0.0
    loading: float = 0.0
    failed_loads: float = 0.0
    idle: float = 0.0
    lost: float = 0.0
    after_last_answer: float = 0.0

    @property
    def wasted(self) -> float:
        """Allocated hours that were not used."""
        return float(sum(getattr(self, cause) for cause in CAUSES))

    def plus(self, other: Hours) -> Hours:
        """The sum, with the names of this one."""
        names = ("allocated", "used", *CAUSES)
        return self.model_copy(
            update={name: getattr(self, name) + getattr(other, name) for name in names}
        )


class Waited(BaseModel):
    """Wait of jobs from submission to start, seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    first: float
    """Until the first job started."""
    median: float
    longest: float


class Spent(BaseModel):
    """Requests of an experiment's workers, sent and answered or not, and what they took."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    requests: int
    tokens: int
    """Tokens of prompts and answers, as far as the engine counts them."""
    cost: float | None = None
    """Money by the models' prices; None: no model has prices, or they are in several currencies."""
    currency: str | None = None

    @property
    def in_words(self) -> str:
        """`1,204 requests, 98,000 tokens, 2.31 USD`."""
        amount = Amount(self.requests, self.tokens, self.cost or 0.0)
        return in_words(amount, BudgetCaps(), self.currency or "")


class Usage(BaseModel):
    """Resources that an experiment took."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    version: Literal[1] = 1
    experiment: str = ""
    """The experiment's id."""
    month: str = ""
    """Month in which its first job started, `2026-11`; empty if no job started."""
    source: Literal["slurm", "workers"] = "workers"
    """Source of the jobs' durations: Slurm's accounting, or the workers themselves, which do not know the
    time before their first event and after their last."""
    jobs: int = 0
    """Allocations; each run of a requeued job counts as one."""
    hours: tuple[Hours, ...]
    """Hours of each run task."""
    waited: Waited | None = None
    """Wait in Slurm's queue; None: unknown, or no queue. It is no waste: nothing is allocated."""
    energy_wh: float | None = None
    """Energy of the nodes for its jobs by Slurm's count, watt-hours; else of its GPUs; None: unknown."""
    energy_source: Literal["slurm", "gpus"] | None = None
    gpu_utilisation: Mapping[str, float] = {}
    """Run task → mean utilisation of GPUs while its samples were asked, percent, where measured."""
    spent: Spent | None = None
    """Requests and what they took; None: no worker says so."""
    complete: bool = True
    """Whether every job had ended at the time of counting: the reporting job may itself be one of them."""


def read_usage(experiment: Experiment) -> Usage:
    """Resources that an experiment took, as written at its end.

    Raises:
        OSError: the file is not written yet, or cannot be read.
        ValueError: the file is damaged.
    """
    try:
        return Usage.model_validate(read_json(experiment.usage_file))
    except RecursionError as error:
        raise ValueError(str(error)) from None


def written_usage(experiment: Experiment) -> Usage | None:
    """Resources that an experiment took, as written at its end; None: the file cannot be read."""
    try:
        return read_usage(experiment)
    except (OSError, ValueError):
        return None
