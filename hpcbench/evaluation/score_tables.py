"""Tables over scores: one value with its interval for each metric and group of samples.

    table(scored)                             each run task as a whole
    table(scored, by=["doc_type"])            each run task by a column of the dataset's metadata
    table(scored, by=["model", "language"])   each model, over all its run tasks, by language
    table(scored, by=["field"])               by field of the object, of metrics that score fields
    pivot(rows, "doc_type", "model")          compared groups side by side

Run tasks stay separate unless `run_task` or `model` is a grouping column. Scores in one row have one
signature: a row never mixes two metrics, or two options of one metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.evaluation import pooling
from hpcbench.evaluation.scoring import Policy
from hpcbench.experiment.counts import Counts
from hpcbench.experiment.view.scores import META, ScoresFiles, fields_of, reading, rows_of, scan
from hpcbench.metrics.base import OF_BOUNDS, limits, outside
from hpcbench.number_format import many
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import ANSWERED
from hpcbench.scorer.one import is_corpus, takes_measurement, takes_reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

OF_RUN_TASKS = ("run_task", "model", "dataset", "split", "prompt", "ml_task")
"""Columns by which run tasks can be grouped."""

OF_SAMPLES = (
    "document", "outcome", "reason", "form", "mistake", "images", "truncated", "invalid", "exit",
    "agent_turns", "agent_calls",
)  # fmt: skip
"""Columns of every sample by which tables can be grouped, beside its metadata."""

FIELD = "field"
"""Groups by field of the object."""

POLICIES = ("exclude", "zero")

NOTHING_SCORED = "no sample was scored"
"""Method of the interval of a row without a value."""

_ARRAYS = (
    "ok", "answered", "invalid", "lost", "counted_exclude", "counted_zero", "beyond", "#document", "#weight",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunFigure:
    """A resource metric of a whole run task."""

    metric: Any
    """The metric."""
    unit: str
    """Unit of the value."""
    value: float | None = None
    """None: it was not measured."""
    low: float | None = None
    """Lower end of its interval; None where undefined."""
    high: float | None = None
    """Upper end."""
    n: int = 0
    """Answers that it was measured over."""
    documents: int = 0
    """Documents of these answers."""
    method: str = ""
    """Method of the interval, why there is none, or why there is no value."""
    signature: str = ""
    """The metric, with what its value means."""


@dataclass(frozen=True)
class Scored:
    """Scores of a run task."""

    run_task: ResolvedRunTask
    """The run task."""
    metrics: Mapping[str, Any]
    """Metrics that have columns."""
    place: ScoresFiles
    """Place of the files."""
    seed: int = 0
    """Seed of the random swaps of a comparison."""
    reading: str = ""
    """Parser and version that the answers were read by; empty: version 1."""
    signatures: Mapping[str, str] = field(default_factory=dict)
    """Metric → the signature it was scored by, where that may differ from its present signature."""
    skipped: int = 0
    """Unusable samples, in addition to the samples of the run task."""
    of_run: Mapping[str, Any] = field(default_factory=dict)
    """Resource metrics of the whole run task, which have no columns."""
    figures: Mapping[str, RunFigure] = field(default_factory=dict)
    """Their values, as `resources.with_figures` computes them."""

    def signature(self, metric: str) -> str:
        """The metric with its options and version at the time of scoring."""
        found: str = self.signatures.get(metric) or self.metrics[metric].signature
        return found

    @property
    def policy(self) -> Policy:
        """How samples without a value count."""
        return Policy(self.run_task.task.on_failed, self.run_task.task.on_invalid)


@dataclass(frozen=True, slots=True)
class Row:
    """One metric over one group of samples."""

    by: Mapping[str, str | None]
    """The group's common values by column; None: the samples lack the value."""
    metric: str
    """Name of the metric."""
    asked: int
    """Samples, or fields of samples, of the group."""
    answered: int
    """Asked samples with an answer."""
    ok: int
    """Asked samples with a readable answer."""
    skipped: int
    """Unusable samples in addition to these; given for whole run tasks."""
    invalid: int
    """Samples whose answer has no value; 0 for a metric that judges how answers were read."""
    faults: int
    """Samples lost because the metric raised an exception or took too long."""
    n: int
    """Samples scored."""
    documents: int
    """Documents of these samples."""
    value: float | None
    """None when no sample is scored: samples that only a policy counts as the worst give no value alone."""
    low: float | None
    """Lower end of the interval; None where undefined."""
    high: float | None
    """Upper end of the interval; None where undefined."""
    method: str
    """The method of the interval, or the reason why there is none."""
    average: str
    """`micro`: over all samples; `macro`: the mean of the groups' values."""
    weight: str | None
    """Column that samples are weighted by."""
    signature: str
    """Metric with all its options."""
    higher_is_better: bool
    value_if: Mapping[str, float | None] | None = None
    """Where there are invalid answers: the value under each policy, `exclude` and `zero`."""
    unit: str = ""
    """Unit of a resource metric; empty: a metric of answers."""
    without: int = 0
    """Answers for which a resource metric has no value."""
    refused: str = ""
    """Why the metric's number is no value: it is outside the metric's bounds. Empty: it is one."""

    @property
    def coverage(self) -> float:
        """ok ÷ (asked + skipped)."""
        return Counts(self.asked, self.answered, self.answered - self.ok, self.skipped).coverage

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        whole = {**asdict(self), "by": dict(self.by), "coverage": self.coverage}
        for name in ("unit", "without", "refused"):
            if not whole[name]:
                del whole[name]
        return whole


def table(
    scored: Sequence[Scored],
    by: Sequence[str] = (),
    weight: str | None = None,
    *,
    macro: bool = False,
) -> list[Row]:
    """Values of groups of samples.

    Args:
        scored: run tasks with their scores.
        by: grouping columns: `OF_RUN_TASKS`, `OF_SAMPLES`, `field`, or metadata by its name.
        weight: metadata whose numbers are the samples' weights.
        macro: one row with the mean of the groups' values, instead of one row per group.

    Raises:
        UserError: no sample has such a column, or a weight is no number of 0 or more; a percentile is to be
            weighed, or averaged over groups.
    """
    names = list(dict.fromkeys(name for one in scored for name in one.metrics))
    keys = list(dict.fromkeys(by))
    outer = [] if {"run_task", "model"} & set(keys) else ["run_task"]
    rows: list[Row] = []
    for name in names:
        if macro or weight:
            _check_percentile(scored, name, "--macro" if macro else "--weight")
        for signature, some in _alike(scored, name).items():
            samples = _Samples.read(some, name, signature, [*outer, *keys], weight)
            if samples is not None:
                rows += samples.macro_rows(outer, keys) if macro and keys else samples.rows()
    if [*outer, *keys] == ["run_task"] and not (macro or weight):
        rows += [
            _figure_row(one, name)
            for name in dict.fromkeys(name for one in scored for name in one.figures)
            for one in scored
            if name in one.figures
        ]
    return rows


def _check_percentile(scored: Sequence[Scored], name: str, option: str) -> None:
    """Refuse to weigh a percentile, or to average percentiles of groups."""
    metric = next((one.metrics[name] for one in scored if name in one.metrics), None)
    if metric is not None and metric.aggregation == "quantile":
        what = f"'{name}' is a percentile, to which {option} does not apply"
        raise UserError(what, remedy=f"leave out {option}, or the metric, with --metrics")


def _figure_row(one: Scored, name: str) -> Row:
    """The row of a resource metric of a whole run task."""
    found = one.figures[name]
    outcomes = rows_of(one.place.scores, ["outcome"])["outcome"]
    answered = int(outcomes.is_in(list(ANSWERED)).sum())
    return Row(
        by={"run_task": one.run_task.name},
        metric=name,
        asked=len(outcomes),
        answered=answered,
        ok=answered,
        skipped=one.skipped,
        invalid=0,
        faults=0,
        n=found.n,
        documents=found.documents,
        value=found.value,
        low=found.low,
        high=found.high,
        method=found.method,
        average="run",
        weight=None,
        signature=found.signature,
        higher_is_better=found.metric.higher_is_better,
        unit=found.unit,
    )


def pivot(
    rows: Sequence[Row], index: str, columns: str
) -> tuple[list[str], list[tuple[str, str, dict[str, Row]]]]:
    """Rows side by side.

    Args:
        rows: of one table.
        index: the column of `by` that gives the lines.
        columns: another column of `by`, which gives the columns.

    Returns:
        The columns, and lines of metric, `index` and the rows by column.
    """
    heads: dict[str, None] = {}
    lines: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        head, line = label(row.by.get(columns)), label(row.by.get(index))
        heads.setdefault(head)
        lines.setdefault((row.metric, line), {})[head] = row
    return [*heads], [(metric, line, cells) for (metric, line), cells in lines.items()]


def label(value: str | None) -> str:
    """The printed name of a group."""
    return "–" if value is None else value


def _alike(scored: Sequence[Scored], metric: str) -> dict[str, list[Scored]]:
    """Run tasks with a metric, grouped by signature."""
    found: dict[str, list[Scored]] = {}
    for one in scored:
        if metric in one.metrics:
            found.setdefault(one.signature(metric), []).append(one)
    return found


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of some run tasks with their values of one metric."""

    name: str
    metric: Any
    groups: Any
    """Frame of row numbers, `#`, and the grouping columns."""
    arrays: Mapping[str, NDArray[Any]]
    """For each row: ok, answered, invalid, lost, whether it counts under each policy, document, weight."""
    addends: pooling.Addends
    keys: Sequence[str]
    on_invalid: str
    weight: str | None
    skipped: int
    """Samples that could not be used, where these rows are of whole run tasks that stay separate."""
    lacking: str = ""
    """Most frequent reason why a resource metric has no value of an answer."""

    @classmethod
    def read(
        cls,
        scored: Sequence[Scored],
        name: str,
        signature: str,
        keys: Sequence[str],
        weight: str | None,
    ) -> _Samples | None:
        """Read the required columns of the files; None where the metric has no values."""
        import polars

        metric = scored[0].metrics[name]
        frames = [read_parts(one, name, keys, weight) for one in scored]
        frame = polars.concat(frames, how="vertical_relaxed").with_row_index("#")
        if not frame.height:
            return None
        addends = addends_of(metric, frame)
        documents = polars.concat_str(
            [polars.col("#dataset"), polars.col("document")], separator="\n"
        )
        frame = frame.with_columns(
            (documents.rank("dense") - 1).cast(polars.Int64).alias("#document"),
            polars.col("fault").is_not_null().alias("lost"),
        )
        policy = scored[0].policy.on_invalid
        arrays = {key: frame[key].to_numpy() for key in _ARRAYS if key in frame.columns}
        groups = frame.select(["#", *keys])
        whole = keys == ["run_task"] and len(scored) == 1
        skipped = scored[0].skipped if whole else 0
        lacking = reason_of(frame["fault"]) if takes_measurement(metric) else ""
        return cls(name, metric, groups, arrays, addends, keys, policy, weight, skipped, lacking)

    def rows(self) -> list[Row]:
        """One row per group."""
        return [
            self._row(group, self._estimate(numbers), numbers) for group, numbers in self._groups()
        ]

    def macro_rows(self, outer: Sequence[str], inner: Sequence[str]) -> list[Row]:
        """The mean over groups by `inner`, for each group by `outer`."""
        import numpy

        found: dict[tuple[str | None, ...], list[NDArray[Any]]] = {}
        for group, numbers in self._groups():
            found.setdefault(tuple(group[key] for key in outer), []).append(numbers)
        rows = []
        for values, groups in found.items():
            kept = [self._counted(numbers) for numbers in groups]
            weighed = [self.addends.of(one).times(self._weights(one)) for one in kept]
            entry = pooling.macro(self.metric, weighed, [self._clusters(one) for one in kept])
            by = dict(zip(outer, values, strict=True))
            labels = {**by, "macro": " × ".join(inner)}
            rows.append(self._row(labels, entry, numpy.concatenate(groups)))
        return rows

    def _groups(self) -> Iterator[tuple[dict[str, str | None], NDArray[Any]]]:
        """Groups in order, each with the numbers of its rows."""
        import polars

        if not self.keys:
            yield {}, self.groups["#"].to_numpy()
            return
        found = self.groups.group_by(self.keys, maintain_order=True).agg(polars.col("#"))
        orders = {
            key: _order(found[key].unique(maintain_order=True).to_list(), key in OF_RUN_TASKS)
            for key in self.keys
        }
        groups = sorted(
            found.iter_rows(),
            key=lambda row: [orders[key][row[k]] for k, key in enumerate(self.keys)],
        )
        for row in groups:
            values = dict(zip(self.keys, row[:-1], strict=True))
            yield values, polars.Series(row[-1]).to_numpy()

    def _estimate(self, numbers: NDArray[Any]) -> dict[str, Any] | None:
        kept = self._counted(numbers)
        return pooling.estimate(
            self.metric, self.addends.of(kept), self._clusters(kept), self._weights(kept)
        )

    def _counted(self, numbers: NDArray[Any], policy: str | None = None) -> NDArray[Any]:
        """The numbers of the rows that count."""
        counted = self.arrays[f"counted_{policy or self.on_invalid}"]
        kept: NDArray[Any] = numbers[counted[numbers]]
        return kept

    def _clusters(self, numbers: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self.arrays["#document"][numbers]
        return found

    def _weights(self, numbers: NDArray[Any]) -> NDArray[Any] | None:
        if self.weight is None:
            return None
        found: NDArray[Any] = self.arrays["#weight"][numbers]
        return found

    def _row(
        self, by: Mapping[str, str | None], entry: Mapping[str, Any] | None, numbers: NDArray[Any]
    ) -> Row:
        ok, invalid, answered, lost = (
            int(self.arrays[name][numbers].sum()) for name in ("ok", "invalid", "answered", "lost")
        )
        entry, refused = entry or {}, _beyond(int(self.arrays["beyond"][numbers].sum()))
        if (value := entry.get("value")) is not None and (wrong := outside(self.metric, value)):
            refused = f"its value {value:g} is {wrong}"
            entry = {"method": refused}
        unit: str = getattr(self.metric, "unit", "")
        without, lost = (lost, 0) if unit else (0, lost)
        nothing = self.lacking or NOTHING_SCORED
        value_if = None
        if invalid and entry.get("average") != "macro":
            value_if = {policy: self._value(self._counted(numbers, policy)) for policy in POLICIES}
        return Row(
            by=by,
            metric=self.name,
            asked=len(numbers),
            answered=answered,
            ok=ok,
            skipped=self.skipped,
            invalid=invalid,
            faults=lost,
            n=entry.get("n", 0),
            documents=entry.get("clusters", 0),
            value=entry.get("value"),
            low=entry.get("low"),
            high=entry.get("high"),
            method=entry.get("method", refused or nothing),
            average=entry.get("average", "micro"),
            weight=self.weight,
            signature=self.metric.signature,
            higher_is_better=self.metric.higher_is_better,
            value_if=value_if,
            unit=unit,
            without=without,
            refused=refused,
        )

    def _value(self, numbers: NDArray[Any]) -> float | None:
        weights = self._weights(numbers)
        if weights is not None and not weights.any():
            return None
        value = pooling.value(self.metric, self.addends.of(numbers).times(weights))
        return None if value is None or outside(self.metric, value) else value


def reason_of(faults: Any) -> str:
    """The most frequent of the reasons in a column; empty: there is none."""
    found = faults.drop_nulls().value_counts(sort=True, name="#")
    return str(found[0, 0]) if found.height else ""


def _beyond(count: int) -> str:
    """Why a metric has no value, where it gave samples values outside its bounds; empty: it gave none."""
    return f"{many(count, 'value')} of samples outside the metric's bounds" if count else ""


def read_parts(
    one: Scored,
    metric: str,
    keys: Sequence[str] = (),
    weight: str | None = None,
    *,
    only: Sequence[str] | None = None,
) -> Any:
    """Rows of one run task for one metric.

    Args:
        one: the run task.
        metric: one of its metrics.
        keys: grouping columns.
        weight: metadata whose numbers are weights.
        only: read only these columns of the frame: of a small file each takes as long as a hundred samples
            do; None: all.

    Returns:
        A frame: sample, document, value, its parts of the metric (numerator and denominator, or counts as
            JSON), whether it counts under each policy, fault, whether its value is `beyond` the metric's
            bounds; and the requested columns. Where the metric has scored no sample of the run task, no
            sample counts: samples that policies count as zero give no value alone. Nor does any sample count
            where one is beyond the bounds: the others alone would be a choice.

    Raises:
        UserError: no sample has such a column, or a weight is no number of 0 or more.
    """
    import polars

    rows = scan(one.place.scores)
    there = rows.collect_schema().names()
    col, lit = polars.col, polars.lit
    answered = col("outcome").is_in(list(ANSWERED))
    ok = answered & ~col("invalid")
    measures = takes_measurement(one.metrics[metric])
    any_answer = measures or takes_reading(one.metrics[metric])
    invalid = lit(value=False) if any_answer else col("invalid")
    whole = lit(one.policy.on_failed == "zero")
    usable = polars.when(answered).then(~invalid).otherwise(whole)
    zero = polars.when(answered).then(statement=True).otherwise(whole)
    if measures:  # no policy makes a time of an answer that took none
        usable = zero = col(metric).is_not_null()
    lost = col(f"{metric}.fault").is_not_null()
    low, high = limits(one.metrics[metric])
    beyond = (col(metric) < low) | (col(metric) > high)  # in files of earlier versions of hpcbench
    beyond = beyond.fill_null(value=False) | _says_outside(col(f"{metric}.fault"))
    scored = (ok & ~lost).any() & ~beyond.any()
    named = {
        "sample": col("sample"),
        "document": col("document"),
        "value": col(metric),
        "#dataset": lit(one.run_task.dataset.name),
        "answered": answered,
        "ok": ok,
        "invalid": invalid,
        "fault": col(f"{metric}.fault"),
        "beyond": beyond,
        "counted_exclude": usable & ~lost & scored,
        "counted_zero": zero & ~lost & scored,
        **{key: _key(one, key, there) for key in keys if key not in (FIELD, "document")},
    }
    if weight is not None:
        named["#weight"] = _meta(one, weight, there).cast(polars.Float64, strict=False)
    parts = ("counts",) if is_corpus(one.metrics[metric]) else ("numerator", "denominator")
    if FIELD not in keys:
        named |= {part: col(f"{metric}.{part}") for part in parts}
    columns = [one.alias(name) for name, one in named.items() if only is None or name in only]
    with reading(one.place.scores):
        frame = rows.select(columns).collect()
    if FIELD in keys:
        fields = fields_of(one.place).filter(col("metric") == metric)
        frame = frame.join(
            fields.select("sample", "field", "numerator", "denominator"), on="sample", how="inner"
        )
    if weight is not None:
        _check_weights(frame["#weight"], weight)
    return frame


def _says_outside(fault: Any) -> Any:
    return fault.str.ends_with(OF_BOUNDS).fill_null(value=False)


def addends_of(metric: Any, frame: Any) -> pooling.Addends:
    """The parts of the metric in a frame of `read_parts`."""
    if is_corpus(metric):
        return pooling.of_counts(frame["counts"].fill_null("{}"), frame.height)
    numbers = (frame[part].fill_null(0.0).to_numpy() for part in ("numerator", "denominator"))
    return pooling.of_parts(*numbers)


def scored_any(one: Scored, metric: str) -> bool:
    """Whether a metric has scored any sample of a run task."""
    return bool(read_parts(one, metric, only=["counted_zero"])["counted_zero"].any())


def refused(one: Scored, metric: str) -> str:
    """Why a metric has no value of a run task, where samples are outside its bounds; empty: none is."""
    return _beyond(int(read_parts(one, metric, only=["beyond"])["beyond"].sum()))


def _key(one: Scored, key: str, there: Sequence[str]) -> Any:
    """The expression that gives a group's column, as text."""
    import polars

    run_task = one.run_task
    of_run_task = {
        "run_task": run_task.name,
        "model": run_task.model.name,
        "dataset": run_task.dataset.name,
        "split": run_task.dataset.split,
        "ml_task": run_task.ml_task.name,
    }
    if key in of_run_task:
        return polars.lit(of_run_task[key], dtype=polars.String)
    if key == "prompt":
        own = polars.when(polars.col("prompt") != "").then(polars.col("prompt"))
        return own.fill_null(run_task.prompt.name)
    if key in OF_SAMPLES:
        return polars.col(key).cast(polars.String)
    return _meta(one, key, there)


def _meta(one: Scored, name: str, there: Sequence[str]) -> Any:
    import polars

    column = name if name.startswith(META) else META + name
    if column not in there:
        known = [column.removeprefix(META) for column in there if column.startswith(META)]
        choices = [*known, *OF_RUN_TASKS, *OF_SAMPLES, FIELD]
        message = unknown("column to group by", name, choices)
        raise UserError(Problem(f"run task '{one.run_task.name}': {message}"))
    return polars.col(column)


def _check_weights(weights: Any, name: str) -> None:
    lacking = int(weights.is_null().sum())
    if lacking or (weights.len() and (weights.min() < 0 or weights.is_nan().any())):
        what = f"{lacking} samples have none" if lacking else "some values are not 0 or more"
        raise UserError(Problem(f"'{name}' cannot be the samples' weight: {what}"))


def _order(
    values: Sequence[str | None], as_they_come: bool = False
) -> dict[str | None, tuple[bool, float, str]]:
    """Sort keys of groups: run tasks in the plan's order, else numbers if all are numbers, else texts.

    Groups without a value come last.
    """
    if as_they_come:
        return {value: (value is None, number, "") for number, value in enumerate(values)}
    numbers: dict[str, float] = {}
    for value in values:
        try:
            numbers[value or ""] = float(value) if value is not None else 0.0
        except ValueError:
            numbers = dict.fromkeys((one or "" for one in values), 0.0)
            break
    return {value: (value is None, numbers[value or ""], value or "") for value in values}
