"""The files of evaluation: `metrics.json` and `performance.json`, one type for the writer and all readers.

    metrics_of, performance_of    the whole file, or one line on why it cannot be read
    scores, speeds                its sound parts, for readers that must accept damage

This version's rules for coverage, and for whether a run task has a value, apply to files of every earlier
version of hpcbench. Missing fields stay unset and unknown fields are kept: `to_json` returns the data that
was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.counts import Counts
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.as_written import LARGEST, json_object
from hpcbench.files.json_places import Changed, Places, locate, read

METRICS_VERSION = 2
"""Version of `metrics.json`: 2 since it has invalid answers, faults and groups."""

PERFORMANCE_VERSION = 3
"""Version of `performance.json`: 3 since TPOT counts an answer's final token in both time and count, or in
neither."""

Number = int | float
"""A number as written: 1 and 1.0 are not the same bytes."""


class Part(BaseModel):
    """A part of `metrics.json` or `performance.json`."""

    # Models are built when a file is first read: most commands read no file.
    model_config = ConfigDict(
        frozen=True, extra="allow", allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return self.model_dump(mode="json", exclude_unset=True)


# --- metrics.json ---------------------------------------------------------------------------------------


def standing(calibration: str) -> str:
    """The word beside a value of a judge in this state; reports also have the corrected one."""
    return {"calibrated": "naive"}.get(calibration, calibration)


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
    """A judge's verdicts joined, see `judging/summary.py`; values from 0 to 1."""

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


# --- performance.json -----------------------------------------------------------------------------------


class Figure(Part):
    """A figure of speed with its interval, see docs/measuring.md."""

    value: Number | None = None
    """None: too little data."""
    low: Number | None = None
    high: Number | None = None
    needs: int | None = None
    """For a percentile without a value: the number of requests it would need."""
    bound: Number | None = None
    """MLPerf's bound for a percentile."""


class Latency(Part):
    """A latency, or gaps between chunks or tokens, ms."""

    n: int = 0
    """Values."""
    answers: int | None = None
    """For gaps: the number of answers they come from."""
    mean: Figure = Figure.model_construct()
    p50: Figure = Figure.model_construct()
    p90: Figure = Figure.model_construct()
    p95: Figure = Figure.model_construct()
    p99: Figure = Figure.model_construct()
    quantiles: tuple[Number, ...] = ()
    """The shape of the distribution."""
    min: Number | None = None
    max: Number | None = None

    def figure(self, name: str) -> Figure:
        """A percentile, or the mean, by its name."""
        found = getattr(self, name)
        assert isinstance(found, Figure)
        return found


class Attainment(Figure):
    """Good answers ÷ requests."""

    slo: Mapping[str, Any] = {}
    """Limits that a good answer keeps."""
    good: int = 0


class Window(Part):
    """The steady window in which rates are measured."""

    seconds: Number = 0
    answers: int = 0
    in_flight: Number | None = None
    """Requests in flight, on average."""
    pieces: int = 0


class Client(Part):
    """Lag of the client itself, ms."""

    client_bound: bool = False
    """Whether the client, not the engine, was the bottleneck."""
    lag_p50_ms: Number | None = None
    lag_p99_ms: Number | None = None
    lag_max_ms: Number | None = None


class Memory(Part):
    """Memory, bytes: the known figures of `monitor.MemoryFigures`."""

    gpus: int | None = None
    gpu_peak: Number | None = None
    gpu_peak_source: str | None = None
    torch_allocated: Number | None = None
    torch_reserved: Number | None = None
    kv_peak: Number | None = None
    kv_reserved: Number | None = None
    weights: Number | None = None
    non_torch: Number | None = None
    activation: Number | None = None
    graphs: Number | None = None
    effective: Number | None = None
    host_peak: Number | None = None
    host_held_peak: Number | None = None
    host_source: str | None = None

    def figure(self, name: str) -> Number | None:
        """A number of bytes by its name."""
        found = getattr(self, name)
        assert found is None or isinstance(found, (int, float))
        return found

    def source(self, name: str) -> str | None:
        """How a figure was measured: `gpu_peak_source`, `host_source`."""
        found = getattr(self, name)
        assert found is None or isinstance(found, str)
        return found


class Load(Part):
    """The load that a run task was under."""

    concurrency: int | str | None = None
    """Requests at once; `auto` in files of earlier versions."""
    rate: Number | None = None
    """Requests a second; None: a fixed number at once."""
    arrival: str | None = None
    warm_up: int = 0
    protocol: str = "http"
    """Protocol of the requests between worker and wrapper."""
    sweep: str | None = None
    """The plan's run task whose sweep has this point."""
    chosen: Mapping[str, int] | None = None
    """Worker → requests at once that `concurrency: auto` chose there."""
    route: str = "proxied"
    """How requests reached the engine, `direct` or `proxied`; `direct and proxied` where workers differ.
    Files of earlier versions have none: all requests were proxied."""

    @property
    def at_once(self) -> int | str | None:
        """Requests in flight: a number, or `4 to 8` where workers differ."""
        chosen = sorted({*(self.chosen or {}).values()})
        if len(chosen) > 1:
            return f"{chosen[0]} to {chosen[-1]}"
        return chosen[0] if chosen else self.concurrency


class Machine(Part):
    """A kind of machine whose workers asked a run task's samples."""

    gpus: tuple[str, ...] | None = None
    driver: str | None = None
    cuda: str | None = None
    cpu: str | None = None
    nodes: tuple[str, ...] = ()
    workers: int = 0
    nodes_each: int = 1
    """Nodes of one engine; `gpus` are those of all of them."""
    engines_each: int = 1
    """Engines of one job: they share its node; `gpus` are those of one of them."""
    engines_per_gpu: int = 1
    """Engines that share a GPU."""


class Tokens(Part):
    """Requests for tokens of OAuth2 by the workers of a run task's model."""

    granted: Mapping[str, int] = {}
    """Kind (`full_auth`, `refresh_token`, `cache`) → tokens got."""
    failed: Mapping[str, int] = {}
    """Kind → requests for a token that failed."""
    seconds: Mapping[str, Number] = {}
    """Kind → seconds that these requests took."""
    longest: Number = 0
    """Seconds of the longest one."""
    fallbacks: int = 0
    """Full authentications in place of a refresh token that no longer worked."""
    rejected: int = 0
    """Tokens that the endpoint answered with 401."""
    waits: int = 0
    """Requests that waited for a token."""
    wait_seconds: Number = 0
    """Seconds that they waited, summed."""


class Limits(Part):
    """Effects of the rate limits of a run task's gateway."""

    refused: int = 0
    """Requests that it refused for now, 429."""
    waits: int = 0
    """Requests that waited before they were sent."""
    wait_seconds: Number = 0
    """Seconds in which requests waited, summed over the workers."""


class Plans(Part):
    """Plans of agents."""

    samples: int = 0
    """Samples with a plan."""
    steps: int = 0
    """Steps of their last plans."""
    done: int = 0
    """Those done."""


class Switch(Part):
    """How often a tool or agent followed another one."""

    source: str
    """A tool, `agent NAME`, or `start`."""
    target: str
    """A tool, `agent NAME`, or the exit."""
    count: int


class Bin(Part):
    """A bar of a distribution."""

    low: int
    """Smallest value."""
    high: int
    """One more than the largest value."""
    samples: int


class Trajectories(Part):
    """Agents' work on the samples of a run task, see docs/measuring.md."""

    samples: int = 0
    """Samples whose work has ended."""
    answered: int = 0
    """Those with an answer."""
    measured: int = 0
    """Those of them that this experiment asked for."""
    exits: Mapping[str, int] = {}
    """How the work ended → samples."""
    calls: Mapping[str, int] = {}
    """Tool → calls."""
    failed: Mapping[str, int] = {}
    """Why a call gave no result → calls."""
    wasted: int = 0
    """Calls without a result, or that repeat an earlier one."""
    by_calls: Mapping[str, int] = {}
    """Number of calls → samples with so many."""
    calls_each: Latency | None = None
    """Calls of a sample."""
    turns_each: Latency | None = None
    """Turns of a sample."""
    prompt_tokens: int = 0
    """Tokens of all requests' prompts."""
    completion_tokens: int = 0
    tokens_each: Latency | None = None
    """Tokens of a sample's answers in all turns."""
    by_tokens: tuple[Bin, ...] = ()
    """Samples by these tokens."""
    prompt_tokens_each: Latency | None = None
    think_s: Latency | None = None
    """Time of a sample's requests, s."""
    tool_s: Latency | None = None
    """Time of a sample's tools, s."""
    sync_s: Latency | None = None
    """Time that a sample's work waited for the disk, s."""
    ttft_ms: Latency | None = None
    """Time to first token of each turn, ms."""
    plans: Plans | None = None
    """None: no agent made one."""
    flows: tuple[Switch, ...] = ()
    """The most frequent first."""
    window: Window = Window.model_construct()
    """The steady window in which samples are counted."""
    samples_per_s: Figure | None = None
    """Samples with an answer per second of one engine."""
    notes: tuple[str, ...] = ()


class Speed(Part):
    """A run task in `performance.json`, see docs/measuring.md."""

    load: Load = Load.model_construct()
    requests: int | None = None
    """Requests that were to be sent."""
    answered: int | None = None
    tries: int | None = None
    """How often these requests were sent, retries included."""
    ttft_ms: Latency | None = None
    tpot_ms: Latency | None = None
    e2e_ms: Latency | None = None
    ttft_due_ms: Latency | None = None
    e2e_due_ms: Latency | None = None
    queue_ms: Latency | None = None
    prepare_ms: Latency | None = None
    chunk_gap_ms: Latency | None = None
    itl_ms: Latency | None = None
    tokens_per_chunk: Number | None = None
    """Mean tokens of a chunk after the first; None: the engine does not count them by chunk."""
    window: Window = Window.model_construct()
    answers_per_s: Figure | None = None
    tokens_per_s: Figure | None = None
    good_per_s: Figure | None = None
    whole: Mapping[str, Number | None] = {}
    """Rates and seconds over the whole run task, not only the window."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tokens_each: Mapping[str, tuple[Number, ...] | None] = {}
    recount: Mapping[str, Number] | None = None
    """Comparison of the engine's count of tokens with the tokenizer's."""
    attainment: Attainment | None = None
    client: Client | None = None
    memory: Memory | None = None
    valid: bool = True
    """False: the client was too slow, so the figures measure the client as much as the engine."""
    notes: tuple[str, ...] = ()
    hardware: tuple[Machine, ...] | None = None
    """None: a worker does not report it."""
    tokens: Tokens | None = None
    """None: the model asks no token server."""
    limits: Limits | None = None
    """None: no gateway limited the rate."""
    trajectories: Trajectories | None = None
    """None: no agent worked on the samples; else no figure of requests has a value."""

    def latency(self, name: str) -> Latency | None:
        """A latency by its key, `ttft_ms`."""
        found = getattr(self, name, None)
        return found if isinstance(found, Latency) else None

    def rate(self, name: str) -> Figure | None:
        """A rate by its key, `tokens_per_s`."""
        found = getattr(self, name, None)
        return found if isinstance(found, Figure) else None


class Sweep(Part):
    """One run task under rising load."""

    points: tuple[str, ...]
    """Run tasks, in the plan's order."""
    knee: str | None = None
    """The point with the best ratio of throughput to latency, among points with fixed requests at once."""
    rate_knee: str | None = None
    """The same among points with fixed requests a second."""
    best: str | None = None
    """The valid point with the most good answers a second."""


class Performance(Part):
    """The content of `performance.json`."""

    version: int = PERFORMANCE_VERSION
    run_tasks: Mapping[str, Speed]
    sweeps: Mapping[str, Sweep]


# --- reading --------------------------------------------------------------------------------------------

PartT = TypeVar("PartT", bound=Part)


def metrics_of(experiment: Experiment) -> Metrics:
    """The content of `metrics.json`.

    Raises:
        EnvironmentFault: the file is missing, damaged, or of another version of hpcbench.
    """
    return _whole(Metrics, experiment, experiment.metrics_file, METRICS_VERSION)


def performance_of(experiment: Experiment) -> Performance:
    """The content of `performance.json`.

    Raises:
        EnvironmentFault: as `metrics_of`.
    """
    return _whole(Performance, experiment, experiment.performance_file, PERFORMANCE_VERSION)


def scores_of(experiment: Experiment, run_task: str, places: Places | None = None) -> Scores | None:
    """Scores of one run task; None: there are none, or they are damaged. Others are not checked.

    Args:
        experiment: the experiment.
        run_task: name of the run task.
        places: `table_places` of its metrics file; None: the file is parsed whole.
    """
    return _one(Scores, experiment.metrics_file, METRICS_VERSION, run_task, places)


def speed_of(experiment: Experiment, run_task: str, places: Places | None = None) -> Speed | None:
    """Speed of one run task; None: there is none, or it is damaged. Others are not checked.

    Args:
        experiment: the experiment.
        run_task: name of the run task.
        places: `table_places` of its performance file; None: the file is parsed whole.
    """
    return _one(Speed, experiment.performance_file, PERFORMANCE_VERSION, run_task, places)


def table_places(path: Path) -> Places | None:
    """Where the tables of run tasks are in a metrics or performance file; None: it cannot be read."""
    try:
        return locate(path, "run_tasks", most=LARGEST)
    except (OSError, ValueError):
        return None


def scores(experiment: Experiment) -> Mapping[str, Scores]:
    """Run task → its scores; missing or damaged scores are left out."""
    return _sound(Scores, experiment.metrics_file, METRICS_VERSION)


def speeds(experiment: Experiment) -> Mapping[str, Speed]:
    """Run task → its speed; missing or damaged tables are left out."""
    return _sound(Speed, experiment.performance_file, PERFORMANCE_VERSION)


def sound(kind: type[PartT], table: object) -> PartT | None:
    """A part of a file; None: the table is no such part, or damaged."""
    try:
        return kind.model_validate(table)
    except ValidationError:
        return None


def _one(
    kind: type[PartT], path: Path, version: int, run_task: str, places: Places | None
) -> PartT | None:
    table = None
    if places is None:
        table = _tables(path, version).get(run_task)
    elif (place := places.part(run_task)) is not None:
        versions = [places.whole[name] for name in ("version",) if name in places.whole]
        try:
            table, *written = read(path, places, [place, *versions])
        except Changed:
            return _one(kind, path, version, run_task, None)
        except (OSError, ValueError):
            return None
        if written not in ([], [version]):
            return None
    return sound(kind, table) if table is not None else None


def _sound(kind: type[PartT], path: Path, version: int) -> Mapping[str, PartT]:
    read = {name: sound(kind, one) for name, one in _tables(path, version).items()}
    return {name: one for name, one in read.items() if one is not None}


def _tables(path: Path, version: int) -> Mapping[str, object]:
    """Run task → its table, as it was written; no tables where the file cannot be read."""
    try:
        found = json_object(path)
    except (OSError, ValueError):
        return {}
    tables = found.get("run_tasks") if found.get("version", version) == version else None
    return tables if isinstance(tables, dict) else {}


def _whole(kind: type[PartT], experiment: Experiment, path: Path, version: int) -> PartT:
    try:
        found = json_object(path)
        if found.get("version", version) != version:
            what = f"has version {found['version']}, and this hpcbench reads version {version}"
            raise _unreadable(experiment, path, what)
        return kind.model_validate(found)
    except FileNotFoundError:
        raise _unreadable(experiment, path, "does not exist") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _unreadable(experiment, path, f"is damaged: {place}: {first['msg']}") from None
    except ValueError as error:
        raise _unreadable(experiment, path, f"is damaged: {error}") from None


def _unreadable(experiment: Experiment, path: Path, what: str) -> EnvironmentFault:
    remedy = f"`hpcbench score {experiment.id}` writes it again, from the answers"
    return EnvironmentFault(f"{path} {what}", remedy=remedy)
