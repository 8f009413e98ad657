"""The plan of one experiment as a user writes it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpcbench.schema.definition import Definition, FlatName, Name
from hpcbench.schema.load import Load
from hpcbench.schema.outputs import Database, Notification, Tracker, Upload
from hpcbench.schema.run_task import Matrix, RunTaskEntry
from hpcbench.schema.shared_types import LastJob, Part
from hpcbench.schema.spending import BudgetCaps

Stage = Literal["inference", "evaluation", "reporting"]
"""A stage after preparation."""


class Evaluation(Part):
    """How the evaluation stage runs."""

    image: str | None = None
    """Image in which metrics score the answers: the name of an `images/` definition, or a reference as a
    model's `image`. An ML task's or a metric's own `image` replaces it. Without it: the host."""


class ExperimentPlan(Definition):
    """The plan of one experiment, for `hpcbench submit`."""

    name: FlatName
    """Its name; part of the experiment's id."""
    run_tasks: tuple[RunTaskEntry, ...] = ()
    """Run tasks by name, or written out."""
    matrix: tuple[Matrix, ...] = ()
    """Run tasks as models × datasets × prompts."""
    only: tuple[FlatName, ...] = ()
    """Only these run tasks. Without it: all run tasks above."""
    limit: int | None = Field(default=None, gt=0)
    """Maximum samples of every run task; if a run task has its own `limit`, the smaller one counts."""
    load: Load | None = None
    """A sweep over loads for every run task; it replaces their own."""
    parallelism: int = Field(default=1, gt=0, le=10_000)
    """Maximum jobs at the same time. Each has one worker, or as many as `replicas_per_node` of its model.
    Without it: 1, or under `executor: local` as many as this machine's GPUs allow."""
    workers: Literal["enough", "all"] = "enough"
    """`enough`: fewer workers than `parallelism` where loading the model would take more than half of each
    worker's time, see docs/what-to-set.md. `all`: as many workers as `parallelism` says."""
    shard_size: int | None = Field(default=None, gt=0)
    """Samples in a shard. Without it: the number that takes `shard_minutes`, estimated from earlier
    experiments."""
    shard_minutes: float = Field(default=5, gt=0, le=1440)
    """Target duration of a shard, the unit of work that a worker takes, minutes."""
    max_job_minutes: int | None = Field(default=None, ge=5)
    """Maximum time limit of a job, minutes, whatever the run tasks say: Slurm can fit many short jobs into
    gaps of the queue where a long job would wait. Without it: the run tasks' time limits."""
    pilot: int = Field(default=20, ge=0)
    """Number of samples that a worker asks first in each run task; their answers count. If none of these
    answers is readable, the run task fails at once. 0: no pilot."""
    last_job: LastJob = Field(default_factory=LastJob)
    """Resources of the job that evaluates and reports, for plans with very many or long answers."""
    max_gpu_hours: float | None = Field(default=None, gt=0)
    """Maximum GPU-hours of all its jobs together; hpcbench submits no job that could exceed it."""
    max_requests: int | None = Field(default=None, gt=0)
    """Maximum number of requests of all its workers together, warm-up and retries included; then the run ends
    in order, see docs/what-to-set.md."""
    max_tokens: int | None = Field(default=None, gt=0)
    """The same for tokens of prompts and answers, as the engine counts them."""
    max_cost: float | None = Field(default=None, gt=0)
    """The same for money, by the `prices` of its models and in their currency."""
    executor: Literal["slurm", "local"] | None = None
    """Where jobs run. Without it: the site profile's."""
    site: Name | None = None
    """Site profile. Without it: the user's own, which `hpcbench init` writes."""
    seed: int = 0
    """Seed of all random choices of hpcbench (samples, swaps of compared runs, orders of samples)."""
    max_resubmits: int = Field(default=2, ge=0, le=20)
    """How many times hpcbench submits lost work again before the experiment ends as incomplete."""
    min_coverage: float = Field(default=0.9, ge=0, le=1)
    """Minimum share of ok samples for each run task: ok ÷ (asked + skipped). Below it the run task and the
    experiment end as `incomplete`, with exit code 1; the experiment cannot be a baseline, and trends leave it
    out."""
    stages: tuple[Stage, ...] = Field(
        default=("inference", "evaluation", "reporting"), min_length=1
    )
    """Stages after preparation, from inference on."""
    evaluation: Evaluation = Field(default_factory=Evaluation)
    """How the evaluation stage runs."""
    reports: tuple[Name, ...] = ("markdown", "html")
    """Report definitions to write."""
    baseline: str | None = None
    """Experiment to compare this one with: its id, or the name of a baseline; the report names it."""
    gate: Name | None = None
    """Gate definition that judges the experiment against `baseline` when it ends. Without it: only `hpcbench
    gate` does."""
    notifications: tuple[Notification, ...] = ()
    """Notifications of how the experiment ended. A notification that fails does not fail the experiment."""
    trackers: tuple[Tracker, ...] = ()
    """Trackers that get the scores. A tracker that fails does not fail the experiment."""
    upload: tuple[Upload, ...] = ()
    """Destinations of the results. An upload that fails does not fail the experiment; `hpcbench upload` tries
    it again."""
    database: Database | None = None
    """Database that gets the results. Without it: the site profile's. A database that fails does not fail the
    experiment; a later command sends the rest."""

    @property
    def budget(self) -> BudgetCaps:
        """The amount that its workers may spend together."""
        return BudgetCaps(self.max_requests, self.max_tokens, self.max_cost)
