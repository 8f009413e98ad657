"""The tables that reports and trackers get, and that `report.json` holds: version 2, plain data.

Typed dictionaries: plugins index them like the JSON they are, and the published JSON Schema
(`registries/schemas/report.json`) is made from them. Figures are numbers here; formats write them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict


class Entry(TypedDict):
    """One metric over a whole run task."""

    value: float
    low: float | None
    """Lower end of the interval; null where undefined."""
    high: float | None
    """Upper end of the interval; null where undefined."""
    level: float | None
    """Level of the interval, 0.95."""
    n: int
    """Samples scored."""
    clusters: int
    """Documents they belong to."""
    method: str
    """How the interval was found, or why there is none."""
    average: str
    """`micro`: over all samples; `macro`: the mean of the groups' values."""
    signature: str
    """The metric with all its options."""
    higher_is_better: bool
    invalid: int
    """Samples whose answer has no value."""
    faults: int
    """Samples that the metric failed on."""
    value_if: dict[str, float | None] | None
    """Where answers are invalid: the value if they are excluded, and if they count as the worst."""


class RunTaskTable(TypedDict):
    """A run task in `metrics.json`, see docs/scores.md."""

    ml_task: str
    model: str
    dataset: str
    split: str | None
    prompt: str
    on_failed: str
    on_invalid: str
    asked: int
    """This and the next four: see `experiment/counts.py`."""
    responded: int
    ok: int
    unreadable: int
    failed: int
    answered: int
    """The same as `responded`."""
    documents: int
    """Documents with an answer."""
    invalid: int
    """The same as `unreadable`."""
    invalid_reasons: list[dict[str, Any]]
    skipped: NotRequired[int]
    """Samples among those asked about that cannot be used."""
    wrong: NotRequired[int]
    """Samples below the best value of the first metric, unreadable, or failed."""
    mistakes: NotRequired[dict[str, int]]
    """Kind of mistake → number of wrong samples with it."""
    unusable: NotRequired[int]
    """All such samples of the dataset, asked about or not."""
    coverage: float
    """ok ÷ (asked + skipped)."""
    outcomes: dict[str, int]
    errors: list[dict[str, Any]]
    metrics: dict[str, Entry | None]
    """Metric → its value; null where no sample is scored."""
    faults: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    """Levels of groups, each with its rows."""


class Metrics(TypedDict):
    """Contents of `metrics.json`."""

    version: int
    run_tasks: dict[str, RunTaskTable]
    repeats: NotRequired[dict[str, Any]]
    """Repeats of run tasks joined, see docs/scores.md."""
    judges: NotRequired[dict[str, Any]]
    """Verdicts of judges joined, see docs/judging.md."""


class Cell(TypedDict):
    """One run task in a matrix."""

    run_task: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    documents: int
    coverage: float
    leads: bool
    """Whether no model in its column has a better value; chance is not considered, see `leaders`."""
    calibration: NotRequired[str]
    """State of a judge's verdicts: `calibrated` or `uncalibrated`; their values lead no column."""


class MatrixColumn(TypedDict):
    """Subject of a column of a matrix."""

    dataset: str
    split: str | None


class MatrixRow(TypedDict):
    """Subject of a row of a matrix, with a cell for each column."""

    model: str
    variant: str
    """Its difference from other rows of the model: its prompt, or the run task's name; else empty."""
    cells: list[Cell | None]


class Matrix(TypedDict):
    """One metric: models down, datasets across."""

    ml_task: str
    metric: str
    unit: str
    """Unit of a resource metric; else empty."""
    higher_is_better: bool
    primary: bool
    """Whether it is the first metric of its run tasks: what models are ranked by."""
    columns: list[MatrixColumn]
    rows: list[MatrixRow]


class Rival(TypedDict):
    """A run task compared with the leader, sample by sample."""

    run_task: str
    model: str
    value: float
    difference: float | None
    """Leader minus rival over the samples that both have scored; null where they were not compared."""
    low: float | None
    high: float | None
    p: float | None
    """After Holm's correction over all comparisons of this report."""
    p_method: str
    """Method of the p-value; empty where the two were not compared."""
    verdict: Literal["behind", "ahead", "cannot be told apart", "not compared"]
    why: str
    """Why it was not compared; else empty."""


class Leader(TypedDict):
    """The best of run tasks that asked the same, and whether its lead is more than chance."""

    ml_task: str
    dataset: str
    split: str | None
    metric: str
    higher_is_better: bool
    run_task: str
    model: str
    value: float
    low: float | None
    high: float | None
    coverage: float
    rivals: list[Rival]
    """The others, best first."""


class WorstSample(TypedDict):
    """A sample that the first metric likes least."""

    sample: str
    document: str
    place: int
    """Its place among the samples that were asked, from 0."""
    metric: str
    score: float
    outcome: str
    prompt: str | None
    """Prompt of the request; null where the dataset cannot be read any more."""
    images: list[str]
    """Names of its images."""
    answer: str | None
    """The answer, unchanged; null without one."""
    reference: str
    """The reference; of several, the nearest to the answer."""
    others: int
    """Further acceptable answers."""
    diff: list[tuple[Literal["same", "lost", "added"], str]]
    """From the reference to the answer by words: what is in both, only in the reference, only in the answer;
    empty where there is no answer."""
    cut: bool
    """Whether texts were too long and are cut."""


class Distribution(TypedDict):
    """How the scores of a run task's samples are distributed."""

    metric: str
    """The first of the run task."""
    low: float
    """Where the first bin begins."""
    high: float
    """Where the last bin ends; it takes its upper end, all take their lower one."""
    counts: list[int]
    """Samples in each of equal bins."""


class Difference(TypedDict):
    """One value of the configuration that is not the baseline's."""

    path: str
    baseline: Any
    experiment: Any


class Baseline(TypedDict):
    """How the configuration differs from the baseline's."""

    id: str
    differences: list[Difference] | None
    """Null: the baseline cannot be read any more."""
    why: str
    """Why not; else empty."""


class Provenance(TypedDict):
    """Settings that the figures depend on."""

    facts: list[tuple[str, str]]
    reproduce: str
    """One command that runs the same again."""


class Check(TypedDict):
    """One check of the gate."""

    run_task: str
    what: str
    kind: str
    level: str
    baseline: float | None
    candidate: float | None
    difference: float | None
    low: float | None
    high: float | None
    margin: float | None
    verdict: str
    why: str


class GateVerdict(TypedDict):
    """Contents of `report/verdict.json`, see docs/gate.md."""

    version: int
    baseline: str
    candidate: str
    policy: str
    verdict: Literal["GO", "NO-GO", "INCONCLUSIVE"]
    reasons: list[str]
    checks: list[Check]


class ArmsRow(TypedDict):
    """One metric or figure of two arms."""

    what: str
    """Metric, or figure of speed."""
    unit: str
    """Unit of the arms' values; empty for a metric."""
    higher_is_better: bool
    decides: bool
    """Whether the looks were for this one."""
    a: float
    b: float
    change: float | None
    """b - a of a metric, b ÷ a of a figure; null where a is 0."""
    low: float | None
    """Lower end of the change's interval; null where undefined."""
    high: float | None
    """Upper end of the change's interval; null where undefined."""
    verdict: str
    """Verdict on b: better, worse, equivalent, inconclusive; empty where it is not judged."""


class TwoArms(TypedDict):
    """Result of the last look at the arms of a run task, see docs/comparing.md."""

    run_task: str
    done: int
    """Pairs of blocks that were done in both arms."""
    of: int
    """Pairs of blocks there were to be."""
    samples: int
    """Samples of an arm."""
    stopped: str | None
    """Why it was stopped early; null where it was not."""
    level: float
    """Level of the intervals, over all looks together."""
    quality: list[ArmsRow]
    answers: list[ArmsRow]
    """The coverage, and the mean number of tokens of an answer's prompt and text."""
    speed: list[ArmsRow]
    same_nodes: bool
    """Whether the arms ran on the same nodes: else the ratios of speed are not fair."""


class Arms(TypedDict):
    """The two arms of an experiment of `hpcbench ab`."""

    a: list[str]
    """Plan of arm a, if the arms are two plans, and its settings; none: the plan as it is."""
    b: list[str]
    """The same of arm b."""
    run_tasks: list[TwoArms]
    """The checked rows."""


class PublishedCondition(TypedDict):
    """A condition of a published score and of the run beside it."""

    what: str
    published: str | None
    """As its source states it; null where the source does not."""
    here: str


class PublishedScore(TypedDict):
    """A published score of a run task's model on its dataset, beside the run task's own."""

    run_task: str
    model: str
    dataset: str
    metric: str
    higher_is_better: bool
    of: float
    """The best value of the scale that all values of this row have."""
    published: float
    source: str
    samples: int | None
    """Samples of the published score; null where its source does not say it."""
    value: float | None
    """The value here; null where no sample is scored."""
    low: float | None
    high: float | None
    n: int
    difference: float | None
    """The value here, less the published one."""
    noise: float | None
    """How large a difference is that chance explains, at 95 %; null where that is unknown."""
    verdict: Literal["more than noise", "within noise", "undecided"]
    why: str
    """Why it is undecided; empty: it is not."""
    conditions: list[PublishedCondition]


class Tables(TypedDict):
    """A report as data."""

    version: Literal[2]
    """2 since the tables hold figures instead of formatted rows."""
    id: str
    """The experiment."""
    path: str
    """Its directory."""
    state: str
    """`done`, `incomplete`, `failed` or `cancelled`: how it ended, or would if it ended now."""
    reason: str
    """Why it is incomplete or failed; empty: it is neither."""
    plan: dict[str, Any]
    """The plan, as `resolved.json` has it."""
    asked: int
    """Samples asked, over all run tasks; so are the next four."""
    responded: int
    ok: int
    unreadable: int
    failed: int
    answered: int
    """The same as `responded`."""
    left: int
    """Samples in shards that did not come to their end."""
    reused: dict[str, dict[str, int]]
    """Run task → earlier experiment → answers taken over from it; speed leaves them out."""
    reused_times: bool
    """Whether speed includes them all the same."""
    summary: list[str]
    """The results, in sentences."""
    verdict: GateVerdict | None
    """The gate's; null where none ran."""
    arms: Arms | None
    """Null where the experiment has no arms."""
    leaders: list[Leader]
    """The leader of each ML task, dataset and metric that at least two run tasks share."""
    matrix: list[Matrix]
    published: list[PublishedScore]
    """Published scores of the models on these datasets, beside those of this experiment."""
    metrics: Metrics
    performance: dict[str, Any]
    """Contents of `performance.json`, see docs/measuring.md."""
    worst: dict[str, list[WorstSample]]
    """Run task → samples to look at first."""
    distribution: dict[str, Distribution]
    """Run task → how its samples' scores are distributed; those of one metric have the same bins."""
    usage: dict[str, Any] | None
    """Contents of `usage.json`; null where there is none."""
    per_document: dict[str, dict[str, float | None]]
    """Run task → GPU-seconds a document, and what 1,000 documents cost where the site has a price."""
    currency: str
    baseline: Baseline | None
    """Null where the plan names no baseline and no gate ran."""
    provenance: Provenance
    manifest: dict[str, Any]
    """Contents of `manifest.json`."""


@cache
def json_schema() -> Mapping[str, Any]:
    """JSON Schema of `report.json`, as `registries/schemas/report.json` publishes it."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Tables).json_schema()
    docs = _docs()
    for name, part in [("Tables", schema), *schema.pop("$defs", {}).items()]:
        part.pop("title", None)
        for key, one in part.get("properties", {}).items():
            one.pop("title", None)
            if text := docs.get((name, key)):
                one["description"] = text
        if part is not schema:
            schema.setdefault("$defs", {})[name] = part
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hpcbench report, version 2",
        **schema,
    }


def _docs() -> dict[tuple[str, str], str]:
    """(class, key) → the text below it."""
    import hpcbench.reporting.report_tables as here
    from hpcbench.schema.describe import docs_below

    return {
        (node.name, name): " ".join(text.split())
        for node in ast.parse(inspect.getsource(here)).body
        if isinstance(node, ast.ClassDef)
        for name, text in docs_below(node).items()
    }
