"""Pages of a run task's samples: filtered, sorted, counted by facets; and the neighbours of a sample."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from hpcbench.experiment.view.scores import META, wrong
from hpcbench.portal.faults import PortalFault, bad_request
from hpcbench.portal.json_safe import sound
from hpcbench.portal.models.experiments import Facet
from hpcbench.portal.models.samples import SamplePage, SampleRow
from hpcbench.portal.sample_table import BEGINNING, TIMES, SampleTable

Order = Literal["asc", "desc"]

BINS = 10
"""Bins of the facet of scores, besides the bins of the best and the worst value."""

MOST_COUNTS = 50
"""Most values of a facet."""

MOST_LEVELS = 12
"""Most facets of metadata."""


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """Filter of samples; all its conditions must hold."""

    text: str = ""
    """A text in the id, the answer or a reference, in any case."""
    outcome: str = ""
    """Outcome of the request."""
    reason: str = ""
    """Reason why the answer cannot be parsed."""
    mistake: str = ""
    """Kind of mistake, of wrong samples only."""
    metric: str = ""
    """The metric of `low` and `high`; empty: the leading metric."""
    low: float | None = None
    """Least value."""
    high: float | None = None
    """Greatest value."""
    latency_over: float | None = None
    """Only answers that took longer, seconds."""
    where: tuple[tuple[str, str], ...] = ()
    """Metadata and their values; an empty value: samples without this entry."""
    wrong: bool = False
    """Below the best value of the leading metric, unreadable, or failed."""
    flagged: bool = False
    """Marked by the user."""

    @property
    def wrong_only(self) -> bool:
        """Whether it selects wrong samples only: a right answer has no mistake."""
        return self.wrong or bool(self.mistake)

    @property
    def all(self) -> bool:
        """Whether it selects all samples."""
        plain = {field.name: field.default for field in fields(self) if field.name != "metric"}
        return all(getattr(self, name) == value for name, value in plain.items())


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """Order of samples; samples without a value are last in both orders, and ties go by ascending place."""

    by: str = "place"
    """A column of the table; metadata and metrics by their names."""
    order: Order = "asc"
    """Ascending or descending."""

    @property
    def down(self) -> bool:
        """Whether the order is descending."""
        return self.order == "desc"


def page_of(
    table: SampleTable,
    chosen: SampleFilter,
    ordered: SampleOrder,
    after: str | None,
    limit: int,
    skip: int = 0,
) -> SamplePage:
    """A page of samples.

    Args:
        table: the run task's samples.
        chosen: filter of the samples.
        ordered: order of the samples.
        after: `SamplePage.next` of the page before, for the same filter and order; None: the first page.
        limit: most rows.
        skip: rows of the whole list before the page, where `after` is None: a list can be entered anywhere.

    Raises:
        PortalFault: there is no such column or metric, or `after` comes from no page.
        NotYet: a part of it is being computed.
    """
    found = OrderedSamples(table, chosen, ordered)
    try:
        begin = skip if after is None else found.behind(_read_cursor(after))
    except TypeError:  # a text among numbers
        raise _bad_cursor() from None
    places = found.places(begin, begin + limit)
    more = begin + len(places) < found.total
    return SamplePage(
        items=tuple(rows_of(table, places)),
        next=_cursor(found.key(places[-1])) if more and places else None,
        first=begin,
        total=found.total,
        of=table.rows,
        live=table.live,
        version=table.version,
        metrics=table.metrics,
    )


def named(table: SampleTable, text: str, limit: int) -> tuple[SampleRow, ...]:
    """Samples whose id contains a text, in any case: the exact id first, then prefixes; short ids first.

    Raises:
        NotYet: ids are being read.
    """
    import polars

    name, wanted = polars.col("sample"), polars.escape_regex(text)
    found = (
        table.frame(["sample"])
        .filter(name.str.contains(f"(?i){wanted}"))
        .sort(
            ~name.str.contains(rf"(?i)\A{wanted}\z"), ~name.str.contains(rf"(?i)\A{wanted}"),
            name.str.len_chars(), "place",
        )
    )  # fmt: skip
    return tuple(rows_of(table, found["place"].head(limit).to_list()))


def rows_of(table: SampleTable, places: Sequence[int]) -> Iterator[SampleRow]:
    """Rows of the list, in the order of `places`."""
    names = ("sample", "document", "outcome", "reason", "answer", *TIMES, *table.metrics)
    rows = table.rows_at(places, names)
    flagged = table.cache.flags.of(table.experiment.id, table.name)
    for place, row in zip(places, rows, strict=True):
        answer = _beginning(row["answer"])
        yield row_of(table, place, row, answer, flagged=row["sample"] in flagged)


def row_of(
    table: SampleTable,
    place: int,
    row: Mapping[str, Any],
    answer: str | None,
    *,
    flagged: bool,
) -> SampleRow:
    """A sample as a row of a list.

    Args:
        table: the run task's samples.
        place: place of the sample.
        row: its known values, by column.
        answer: the part of its answer to show.
        flagged: whether the user has flagged it.
    """
    return SampleRow(
        place=place,
        sample=sound(row["sample"]),
        document=sound(row["document"] or ""),
        outcome=sound(row["outcome"]),
        reason=sound(row["reason"]),
        mistake=row.get("mistake"),
        scores={name: sound(row.get(name)) for name in table.metrics},
        answer=sound(answer),
        latency=sound(row["latency"]),
        output_tokens=row["output_tokens"],
        flagged=flagged,
    )


def _beginning(text: str | None) -> str | None:
    if text is None or len(text) <= BEGINNING:
        return text
    return f"{text[:BEGINNING]} …"


# --- order and choice -------------------------------------------------------------------------------------


class OrderedSamples:
    """Places of the chosen samples, in order.

    Raises:
        PortalFault: there is no such column or metric.
        NotYet: a part of it is being computed.
    """

    def __init__(self, table: SampleTable, chosen: SampleFilter, ordered: SampleOrder) -> None:
        self._table, self._column = table, column_of(table, ordered.by)
        self._down = ordered.down
        self._values = (
            None if self._column == "place" else table.frame([self._column])[self._column]
        )
        self._all = chosen.all and self._column == "place" and not self._down
        self._found = None if self._all else self._kept(chosen)
        self.total: int = table.rows if self._found is None else len(self._found)

    def places(self, begin: int, end: int) -> list[int]:
        """The places from index `begin` to `end`."""
        if self._found is None:
            return list(range(begin, min(end, self._table.rows)))
        some: list[int] = self._found[begin:end].tolist()
        return some

    def around(self, place: int) -> tuple[int, int | None, int | None]:
        """Number of samples before a place, and its neighbours; an unchosen place counts by its sort key."""
        at = self.behind(self.key(place), before=True)
        there = self.places(at, at + 1) == [place]
        before = self.places(at - 1, at) if at else []
        after = self.places(at + there, at + there + 1)
        return at, (before[0] if before else None), (after[0] if after else None)

    def key(self, place: int) -> tuple[Any, int]:
        """Sort key of a sample."""
        return (None if self._values is None else self._values[place]), place

    def behind(self, key: tuple[Any, int], *, before: bool = False) -> int:
        """Number of samples up to a key, or only before the key."""
        low, high = 0, self.total
        wanted = self._rank(*key)
        while low < high:
            middle = (low + high) // 2
            place = self.places(middle, middle + 1)[0]
            rank = self._rank(*self.key(place))
            if rank < wanted or (rank == wanted and not before):
                low = middle + 1
            else:
                high = middle
        return low

    def _rank(self, value: Any, place: int) -> tuple[Any, ...]:
        """Rank in the list's order: samples without a value last, then by value, then by place."""
        if self._values is None:
            return (-place if self._down else place,)
        if value is None:
            return (1, place)
        return (0, _Reversed(value) if self._down else value, place)

    def _kept(self, chosen: SampleFilter) -> Any:
        table, column = self._table, self._column
        flagged = frozenset(_flagged(table)) if chosen.flagged else None
        needed = [column, *_columns(table, chosen)]

        def make() -> Any:
            import polars

            holding = table.containing(chosen.text) if chosen.text else None
            frame = table.frame(needed)
            found = frame.filter(*_conditions(table, chosen, holding, flagged, frame))
            if column != "place":
                found = found.sort(
                    [polars.col(column), polars.col("place")],
                    descending=[self._down, False],
                    nulls_last=True,
                )
            elif self._down:
                found = found.reverse()
            return found["place"].to_numpy()

        key = (*table.key, table.live, chosen, column, self._down)
        return table.cache.places.of(key, (table.stamp, flagged), make)


class _Reversed:
    """A value with the reverse order."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other._value < self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self._value == other._value)

    __hash__ = None  # type: ignore[assignment]


def column_of(table: SampleTable, name: str) -> str:
    """The column of a name: a metric's column takes precedence over that of metadata.

    Raises:
        PortalFault: there is no such column.
    """
    if name in table.names:
        return name
    if META + name in table.names:
        return META + name
    known = ", ".join(one.removeprefix(META) for one in table.names)
    raise bad_request(f"no column '{name[:100]}'", f"known columns: {known}"[:500])


def _columns(table: SampleTable, chosen: SampleFilter) -> list[str]:
    """Columns that a filter needs."""
    found = []
    if chosen.outcome or chosen.wrong_only:
        found.append("outcome")
    if chosen.reason:
        found.append("reason")
    if chosen.mistake:
        found.append(mistake_column(table))
    if chosen.wrong_only:
        found += ["invalid", *table.metrics[:1]]
    if chosen.low is not None or chosen.high is not None:
        found.append(metric_of(table, chosen.metric))
    if chosen.latency_over is not None:
        found.append("latency")
    if chosen.flagged:
        found.append("sample")
    return [*found, *(metadata_column(table, name) for name, _ in chosen.where)]


def metric_of(table: SampleTable, name: str) -> str:
    """The metric with a name; without a name, the leading metric.

    Raises:
        PortalFault: there is no such metric.
    """
    if name in table.metrics or (not name and table.metrics):
        return name or table.metrics[0]
    what = f"no metric '{name[:100]}'" if name else "there are no scores yet"
    raise bad_request(what, f"known metrics: {', '.join(table.metrics) or 'none'}")


def metadata_column(table: SampleTable, name: str) -> str:
    """The column of a name of metadata.

    Raises:
        PortalFault: there is no such column.
    """
    if name in table.metadata:
        return META + name
    known = ", ".join(table.metadata) or "none"
    remedy = f"known columns: {known}; `hpcbench score EXPERIMENT --by NAME` adds one"
    raise bad_request(f"no metadata column '{name[:100]}'", remedy[:500])


def mistake_column(table: SampleTable) -> str:
    """The column of mistakes.

    Raises:
        PortalFault: the scores were made before mistakes were named.
    """
    if table.has_mistakes:
        return "mistake"
    what = "the scores of this run task name no mistakes"
    raise bad_request(what, f"run `hpcbench score {table.experiment.id}`")


def _conditions(
    table: SampleTable,
    chosen: SampleFilter,
    holding: Any,
    flagged: frozenset[str] | None,
    frame: Any,
) -> list[Any]:
    """Conditions of a filter, as expressions over the columns of the table."""
    import polars

    col = polars.col
    holds = []
    if chosen.outcome:
        holds.append(col("outcome") == chosen.outcome)
    if chosen.reason:
        holds.append(col("reason") == chosen.reason)
    if chosen.mistake:
        holds.append(col("mistake") == chosen.mistake)
    if chosen.low is not None or chosen.high is not None:
        value = col(metric_of(table, chosen.metric))
        holds += [value >= chosen.low] if chosen.low is not None else []
        holds += [value <= chosen.high] if chosen.high is not None else []
    if chosen.latency_over is not None:
        holds.append(col("latency") > chosen.latency_over)
    for name, wanted in chosen.where:
        meta = col(metadata_column(table, name))
        holds.append(meta == wanted if wanted else meta.is_null() | (meta == ""))
    if chosen.wrong_only:
        holds.append(_wrong(table, frame))
    if flagged is not None:
        holds.append(col("sample").is_in(list(flagged)))
    if holding is not None:
        holds.append(col("place").is_in(polars.Series(holding, dtype=polars.UInt32).implode()))
    return [one.fill_null(value=False) for one in holds]


def _wrong(table: SampleTable, frame: Any) -> Any:
    """Wrong samples by the leading metric, as an expression; see `wrong`."""
    if not table.metrics:
        return wrong()
    name = table.metrics[0]
    kind = table.kinds[name]
    if kind.measures:
        return wrong()
    return wrong(frame[name], kind.best, higher_is_better=kind.higher_is_better)


def _flagged(table: SampleTable) -> Mapping[str, str]:
    return table.cache.flags.of(table.experiment.id, table.name)


# --- facets -----------------------------------------------------------------------------------------------


def facets_of(table: SampleTable, chosen: SampleFilter) -> tuple[Facet, ...]:
    """How many of the chosen samples have each outcome, reason, mistake, score and value of metadata.

    Raises:
        PortalFault, NotYet: as `page_of`.
    """
    metric = metric_of(table, chosen.metric) if table.metrics else None
    metas = [META + name for name in table.metadata[:MOST_LEVELS]]
    mistakes = ["mistake", "invalid", *table.metrics[:1]] if table.has_mistakes else []
    names = ["outcome", "reason", *mistakes, *([metric] if metric else []), *metas]
    places = OrderedSamples(table, chosen, SampleOrder())
    frame = table.frame(names)
    if places.total < table.rows:
        frame = frame[places.places(0, places.total)]
    found = [counted("outcome", frame["outcome"]), counted("reason", frame["reason"])]
    if mistakes:
        wrong = frame.filter(_wrong(table, frame))
        found.append(counted("mistake", wrong["mistake"]))
    if metric is not None:
        found.append(_binned(frame[metric], table.kinds[metric].best))
    found += [counted(name.removeprefix(META), frame[name]) for name in metas]
    return tuple(one for one in found if one.counts)


def counted(field: str, column: Any) -> Facet:
    """Number of samples with each value, without samples that have none."""
    counts = column.drop_nulls().value_counts(name="count")
    if counts.height > MOST_COUNTS:
        counts = counts.sort(["count", column.name], descending=[True, False]).head(MOST_COUNTS)
    # A query of polars takes longer than this sort of a few rows.
    rows = sorted(counts.iter_rows(), key=lambda row: (-row[1], row[0]))
    return Facet(field=field, counts=tuple((str(value), int(count)) for value, count in rows))


def _binned(column: Any, best: float | None) -> Facet:
    """Bins of a metric's values, lowest first: `LOW..HIGH`, the least and the greatest value in each.

    A filter from LOW to HIGH, both included, thus selects exactly the samples of the bin. The best value and
    the least value each have a bin of their own.
    """
    import numpy

    values = column.drop_nulls().to_numpy()
    values = numpy.sort(values[numpy.isfinite(values)])
    if not len(values):
        return Facet(field="score", counts=())
    edges = numpy.linspace(values[0], values[-1], BINS + 1)[1:-1]
    codes = 2 * numpy.searchsorted(edges, values, side="right") + 1
    codes[values == values[0]] = 0
    codes[values == values[-1]] = 2 * BINS + 2
    if best is not None:
        codes[values == best] = 2 * BINS + 2 if best >= values[-1] else 0
    starts = numpy.flatnonzero(numpy.diff(codes, prepend=-1))
    ends = [*starts[1:].tolist(), len(values)]
    counts = [
        (f"{float(values[start])!r}..{float(values[end - 1])!r}", end - start)
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    return Facet(field="score", counts=tuple(counts))


# --- where a page continues ---------------------------------------------------------------------------------


def _cursor(key: tuple[Any, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[Any, int]:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        value, place = json.loads(data)
    except (ValueError, binascii.Error, TypeError, RecursionError):
        raise _bad_cursor() from None
    if type(place) is not int or not isinstance(value, (str, float, int, type(None))):
        raise _bad_cursor()
    return value, place


def _bad_cursor() -> PortalFault:
    return bad_request("`after` is no cursor of this list", "start without `after`")
