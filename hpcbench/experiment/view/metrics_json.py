"""The content of `metrics.json`: one type for the writer and all readers.

    metrics_of           the whole file, or one line on why it cannot be read
    scores, scores_of    its sound parts, for readers that must accept damage

This version's rules for coverage, and for whether a run task has a value, apply to files of every earlier
version of hpcbench.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from pydantic import model_validator

from hpcbench.experiment.counts import Counts
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.json_tables import Number, Part, one_table, sound_tables, whole_file
from hpcbench.files.json_places import Places

METRICS_VERSION = 2
"""Version of `metrics.json`: 2 since it has invalid answers, faults and groups."""


def standing(calibration: str) -> str:
    """The word beside a value of a judge in this state; reports also have the corrected one."""
    return {"calibrated": "naive"}.get(calibration, calibration)


def variants(rows: Sequence[tuple[Hashable, str, str]]) -> list[str]:
    """Label of each run task among those of one model and dataset: empty, the prompt, or its name.

    Args:
        rows: of each run task its model and dataset, its prompt, and its name.
    """
    prompts: dict[Hashable, list[str]] = {}
    for place, prompt, _ in rows:
        prompts.setdefault(place, []).append(prompt)
    return [
        "" if len(prompts[place]) == 1 else prompt if prompts[place].count(prompt) == 1 else name
        for place, prompt, name in rows
    ]


class MetricValue(Part):
    """A metric over a whole run task."""

    value: Number
    low: Number | None = None
    """Lower end of its interval; None where undefined."""
    high: Number | None = None
    """Upper end of its interval; None where undefined."""
    level: Number | None = None
    """Confidence level of the interval, 0.95."""
    n: int = 0
    """Samples scored."""
    clusters: int = 0
    """Documents of these samples."""
    method: str = ""
    """Method of the interval, or why there is none."""
    average: str = ""
    """`micro`: over all samples; `macro`: the mean of the groups' values."""
    signature: str = ""
    """The metric with all its options."""
    reading: str = ""
    """Parser and its version; empty: version 1."""
    higher_is_better: bool = True
    """Whether a higher value is better."""
    invalid: int = 0
    """Samples whose answer has no value."""
    faults: int = 0
    """Samples that the metric failed on."""
    calibration: str = ""
    """State of a judge's verdicts: `calibrated` by human labels, or `uncalibrated`; empty: no judge."""
    value_if: Mapping[str, Number | None] | None = None
    """With invalid answers: the value if they are excluded, and if they get the worst score."""


class Lost(Part):
    """Samples without an answer, with one common cause."""

    outcome: str = ""
    """How their requests ended."""
    message: str = ""
    """Why."""
    count: int = 1
    """How many."""
    sample: str | None = None
    """One of them."""

    @property
    def cause(self) -> str:
        """Outcome and reason, in one text."""
        return f"{self.outcome}: {self.message}"


class Unread(Part):
    """Answers without a value, with one common cause."""

    reason: str
    count: int = 1
    """How many."""
    sample: str | None = None
    """Sample of one of them."""


class Fault(Part):
    """Samples that a metric failed on, with one common cause."""

    metric: str
    message: str
    count: int = 1
    """How many."""
    sample: str | None = None
    """One of them."""


class GroupRow(Part):
    """A metric over one group of samples."""

    by: Mapping[str, str | None]
    """Field → the samples' common value; None: the samples lack the field."""
    metric: str
    asked: int = 0
    """Samples, or fields of samples, of the group."""
    answered: int = 0
    """Asked samples with an answer."""
    coverage: Number = 0
    value: Number | None = None
    """None if no sample is scored."""
    low: Number | None = None
    high: Number | None = None
    n: int = 0
    """Samples scored."""
    documents: int = 0
    """Documents of these samples."""
    method: str = ""
    average: str = ""
    invalid: int = 0
    faults: int = 0
    value_if: Mapping[str, Number | None] | None = None


class Level(Part):
    """A run task by groups of its samples."""

    by: tuple[str, ...]
    """Fields that define the groups."""
    groups: int
    """Number of groups."""
    rows: tuple[GroupRow, ...] = ()
    """Empty for a level with too many groups."""


class Measured(Part):
    """Facts in `metrics.json` about a resource metric beside its value."""

    unit: str = ""
    """Unit of the value."""
    basis: str = "times"
    """The common ground that a comparison needs, see `hpcbench.metrics.resources.Basis`."""
    higher_is_better: bool = False
    why: str = ""
    """Why there is no value; empty: there is one."""
    without: int = 0
    """Answers that the value leaves out."""
    reason: str = ""
    """Most frequent reason for that."""


class Scores(Part):
    """A run task in `metrics.json`, see docs/scores.md."""

    asked: int
    answered: int
    """The same as `responded`."""
    responded: int = 0
    """For this and the next five fields, see `experiment/counts.py`."""
    ok: int = 0
    unreadable: int = 0
    failed: int = 0
    skipped: int = 0
    coverage: Number = 0
    invalid: int | None = None
    """The same as `unreadable`."""
    unusable: int = 0
    """All unusable samples of the dataset, in the run task's part or not."""
    documents: int = 0
    """Documents with an answer."""
    ml_task: str = ""
    model: str = ""
    dataset: str = ""
    split: str | None = None
    prompt: str = ""
    on_failed: str = ""
    """Treatment of samples without an answer: `exclude` or `zero`."""
    on_invalid: str = ""
    """Treatment of answers without a value."""
    outcomes: Mapping[str, int] = {}
    """Outcome → number of requests."""
    errors: tuple[Lost, ...] = ()
    """Samples without an answer, by cause, the most frequent first."""
    invalid_reasons: tuple[Unread, ...] = ()
    """Answers without a value, by cause, the most frequent first."""
    wrong: int | None = None
    """Samples below the best value of the first metric, unreadable, or failed; None: written before mistakes
    had names, as `mistakes`."""
    mistakes: Mapping[str, int] | None = None
    """Kind of mistake → number of wrong samples with it, the most telling kind first."""
    metrics: Mapping[str, MetricValue | None] = {}
    """Metric → its value; None where no sample is scored."""
    measured: Mapping[str, Measured] = {}
    """Resource metrics among them: values of times, tokens, memory, energy and cost."""
    faults: tuple[Fault, ...] = ()
    """Samples that metrics failed on, by cause, the most frequent first."""
    groups: tuple[Level, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _by_one_rule(cls, table: Any) -> Any:
        """Convert older tables: these count unreadable answers in the coverage and value empty ones at 0."""
        if not isinstance(table, Mapping):
            return table
        try:
            counts = _counts_of(table)
            entries = table.get("metrics") or {}
            merged = {**table, **counts.to_json()}
            measured = table.get("measured") or {}
            scores = [one for name, one in entries.items() if name not in measured]
            valued = not scores or any(one is not None for one in scores)
            return merged if counts.ok and valued else _without_values(merged)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"counts of samples are missing or damaged: {error!r}") from None

    @property
    def counts(self) -> Counts:
        """Counts of its samples."""
        unasked = self.outcomes.get("missing", 0)
        return Counts(self.asked, self.responded, self.unreadable, self.skipped, unasked)

    @property
    def unnamed(self) -> int:
        """Wrong samples with an answer to which no rule of a mistake applies."""
        return max(0, (self.wrong or 0) - self.failed - sum((self.mistakes or {}).values()))

    @property
    def is_scored(self) -> bool:
        """Whether any sample was scored; without metrics of answers: whether any is ok."""
        scores = [one for name, one in self.metrics.items() if name not in self.measured]
        return self.ok > 0 and (not scores or any(one is not None for one in scores))

    @property
    def values(self) -> dict[str, MetricValue]:
        """Metrics that have a value, in the file's order."""
        return {name: one for name, one in self.metrics.items() if one is not None}


class Chance(Part):
    """A chance with its interval by document."""

    value: Number
    low: Number | None = None
    high: Number | None = None
    method: str = ""
    """Method of the interval, or why there is none."""


class Passes(Part):
    """Successes among k attempts at each sample."""

    k: int
    pass_at: Chance
    """pass@k: at least one of k attempts succeeds."""
    pass_all: Chance
    """pass^k: all of k attempts succeed."""
    n: int = 0
    """Samples with at least k attempts."""
    clusters: int = 0
    """Documents of these samples."""


class Repeated(Part):
    """Repeats of a run task joined."""

    run_tasks: tuple[str, ...] = ()
    """The repeats."""
    metrics: Mapping[str, tuple[Passes, ...]] = {}
    """Metric whose values are 0 or 1 → its figures for each k."""


class Judged(Part):
    """A judge's verdicts joined, see `judging/verdict_summary.py`; values from 0 to 1."""

    of: str
    """Run task whose answers it rates."""
    against: str | None = None
    """For pairs: the run task whose answers are the others."""
    run_tasks: tuple[str, ...] = ()
    """Its repeats, a vote each."""
    model: str = ""
    """Model that judges."""
    rated_model: str = ""
    """Model of `of`."""
    rubric: str = ""
    """Prompt of the judge."""
    rubric_version: str = ""
    metric: str = ""
    """Metric of its verdicts."""
    kind: str = ""
    """`binary`, `graded` or `pairwise`."""
    pages: bool = True
    """Whether it saw the samples' images."""
    samples: int = 0
    """Samples of the run task that it rates."""
    judged: int = 0
    """Those with a readable verdict."""
    without_answer: int = 0
    """Those without an answer to rate."""
    verdicts: int = 0
    """Readable verdicts, of all votes."""
    unreadable: int = 0
    """Verdicts that could not be read; no value counts them."""
    unanimous: Number | None = None
    """Share of samples with several verdicts whose verdicts are equal."""
    own_family: bool = False
    """Whether judge and rated model are of one family."""
    state: str = ""
    """`calibrated` or `uncalibrated`."""
    why: str = ""
    """Why it is not calibrated."""
    labels: Mapping[str, int] = {}
    """Human labels: `given`, `used`, `other_answers`, `unknown`."""
    naive: Chance | None = None
    """Mean verdict."""
    powered: Chance | None = None
    """Prediction-powered value."""
    corrected: Chance | None = None
    """Value by sensitivity and specificity, of binary verdicts."""
    sensitivity: Chance | None = None
    specificity: Chance | None = None
    bias: Chance | None = None
    """Mean verdict minus mean label, of the labelled samples."""
    order: Chance | None = None
    """For pairs: share of votes for the answer that is shown first."""
    longer: Chance | None = None
    """For pairs: share of votes for the longer answer."""
    length: Chance | None = None
    """By how much more than people the judge likes long answers."""
    family: Chance | None = None
    """Bias on answers of the judge's own family minus that on others, over run tasks of one rubric."""
    findings: tuple[str, ...] = ()
    """Sentences that a reader must know before using the value."""


class Metrics(Part):
    """The content of `metrics.json`."""

    version: int = METRICS_VERSION
    run_tasks: Mapping[str, Scores]
    repeats: Mapping[str, Repeated] = {}
    """Run task without the mark of its repeats → its repeats joined; absent without repeats."""
    judges: Mapping[str, Judged] = {}
    """Judge without the mark of its repeats → its verdicts; absent without judges."""


def _counts_of(table: Mapping[str, Any]) -> Counts:
    return Counts(
        asked=int(table["asked"]),
        responded=int(table["answered"]),
        unreadable=int(table.get("invalid") or 0),
        skipped=int(table.get("skipped") or 0),
    )


def _without_values(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a run task without a scored sample: no metric and no group has a value."""
    none = {"value": None, "low": None, "high": None, "n": 0, "value_if": None}
    levels = [dict(level) for level in table.get("groups") or ()]
    return {
        **table,
        "metrics": dict.fromkeys(table.get("metrics") or ()),
        "groups": [
            {**level, "rows": [{**dict(row), **none} for row in level["rows"]]} for level in levels
        ],
    }


def metrics_of(experiment: Experiment) -> Metrics:
    """The content of `metrics.json`.

    Raises:
        EnvironmentFault: the file is missing, damaged, or of another version of hpcbench.
    """
    return whole_file(Metrics, experiment, experiment.metrics_file, METRICS_VERSION)


def scores_of(experiment: Experiment, run_task: str, places: Places | None = None) -> Scores | None:
    """Scores of one run task; None: there are none, or they are damaged. Others are not checked.

    Args:
        experiment: the experiment.
        run_task: name of the run task.
        places: `table_places` of its metrics file; None: the file is parsed whole.
    """
    return one_table(Scores, experiment.metrics_file, METRICS_VERSION, run_task, places)


def scores(experiment: Experiment) -> Mapping[str, Scores]:
    """Run task → its scores; missing or damaged scores are left out."""
    return sound_tables(Scores, experiment.metrics_file, METRICS_VERSION)
