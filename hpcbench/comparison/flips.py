"""Samples that a candidate won or lost against a baseline: the samples to look at first.

changes_of(pairs, metric)    every sample that counts in both, by its change
flips(result, one)           won and lost samples, with both answers
moves(result, one)           how many samples moved from one end to another
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hpcbench.comparison.pairing import Counting, SamplePairs
from hpcbench.comparison.results import CandidateResult, MetricDifference
from hpcbench.experiment.view.scores import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

CUT = 300
"""Characters of an answer or reference that are shown."""

ENDS = ("right", "partly right", "wrong", "unreadable", "no answer")
"""How a sample can end: with the best value of a metric, between, with the worst; without a value."""

_COLUMNS = ("sample", "document", "outcome", "reason", "answer", "references")


Change = Literal["won", "lost", "both_right", "both_partly", "both_wrong"]
"""Ties have the best score (right), the worst (wrong), or an equal one between (partly)."""

TIES: tuple[Change, ...] = ("both_right", "both_partly", "both_wrong")

CHANGES: tuple[Change, ...] = ("won", "lost", *TIES)


@dataclass(frozen=True, slots=True)
class SampleChanges:
    """How the samples of a pair of run tasks changed by one metric."""

    samples: SamplePairs
    """The pair."""
    metric: str
    """The metric."""
    values: tuple[NDArray[Any], NDArray[Any]]
    """Values of the baseline and of the candidate."""
    places: Mapping[Change, NDArray[Any]]
    """Change → numbers of samples, the greatest change first."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its arrays take."""
        arrays = [*self.samples.rows, *self.values, *self.places.values()]
        return sum(one.nbytes for one in arrays)

    @property
    def counts(self) -> dict[Change, int]:
        """Change → samples."""
        return {change: len(places) for change, places in self.places.items()}

    def chosen(self, change: Change | None) -> NDArray[Any]:
        """Samples of one change; None: all won or lost samples, the greatest change first."""
        import numpy

        if change is not None:
            return self.places[change]
        both = numpy.concatenate([self.places["lost"], self.places["won"]])
        gains = numpy.abs(self.values[1][both] - self.values[0][both])
        found: NDArray[Any] = both[numpy.argsort(-gains, kind="stable")]
        return found


def changes_of(samples: SamplePairs, metric: str, counting: Counting = "zero") -> SampleChanges:
    """Changes of the samples that count in both; samples with the same change keep their order.

    Args:
        samples: a pair of run tasks.
        metric: a metric that both have.
        counting: how answers without a value count.
    """
    import numpy

    found = samples.metric(metric, counting, comparable=False)
    gains = found.gains
    one, other = found.values
    worst, best = _bounds(found.kind)
    none = numpy.zeros(len(one), dtype=bool)
    right, wrong = (one == end if end is not None else none for end in (best, worst))
    tied = gains == 0
    chosen = (gains > 0, gains < 0, tied & right, tied & ~right & ~wrong, tied & wrong)
    places: dict[Change, NDArray[Any]] = {}
    for change, some in zip(CHANGES, map(numpy.flatnonzero, chosen), strict=True):
        order = numpy.argsort(-numpy.abs(gains[some]), kind="stable")
        places[change] = some[order].astype("uint32")
    return SampleChanges(samples, metric, (one.astype("float64"), other.astype("float64")), places)


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample whose value differs between the two runs."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Name of the metric's definition."""
    change: Literal["won", "lost"]
    """Whether the candidate is better (won) or worse (lost)."""
    sample: str
    """The sample."""
    document: str
    """The document it belongs to."""
    scores: tuple[float, float]
    """Its value in the baseline and in the candidate."""
    answers: tuple[str, str]
    """Both answers, shortened; where there is no answer, the outcome of the request in brackets."""
    references: tuple[str, ...]
    """Acceptable answers, shortened."""
    rows: tuple[int, int]
    """The sample's rows in the scores files of both, from 0."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        # Not by `asdict`, which copies every text.
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: list(one) if isinstance(one, tuple) else one for name, one in fields}


def flips(
    result: CandidateResult,
    compared: MetricDifference,
    counting: Counting = "zero",
    most: int | None = None,
) -> list[Flip]:
    """Samples whose value by a metric differs, lost ones first, the greatest change first.

    Args:
        result: a candidate that was compared with the baseline.
        compared: one metric of the candidate.
        counting: as in the comparison.
        most: at most so many lost and so many won; None: all.
    """
    samples = result.samples[compared.baseline, compared.candidate]
    changes = changes_of(samples, compared.metric, counting)
    return list(_flips(compared, changes, most))


def moves(
    result: CandidateResult, compared: MetricDifference, counting: Counting = "zero"
) -> list[tuple[str, str, int]]:
    """How samples moved from one end to another: end in the baseline, end in the candidate, count.

    Ends are those of `ENDS`, in this order; samples that do not count in both are left out.
    """
    import numpy

    samples = result.samples[compared.baseline, compared.candidate]
    found = samples.metric(compared.metric, counting)
    codes = [
        _ends(found.kind, frame, values)
        for frame, values in zip(found.frames, found.values, strict=True)
    ]
    counts = numpy.bincount(
        (codes[0] * len(ENDS) + codes[1])[~found.lost], minlength=len(ENDS) ** 2
    )
    return [
        (ENDS[number // len(ENDS)], ENDS[number % len(ENDS)], int(count))
        for number, count in enumerate(counts)
        if count
    ]


def _bounds(kind: Any) -> tuple[float | None, float | None]:
    """The worst and the best value of a metric; None: there is no limit."""
    low, high = kind.bounds
    return (low, high) if kind.higher_is_better else (high, low)


def _ends(kind: Any, frame: Any, values: NDArray[Any]) -> NDArray[Any]:
    """The number of each sample's end."""
    import numpy

    worst, best = _bounds(kind)
    answered, invalid = (frame[name].to_numpy() for name in ("answered", "invalid"))
    conditions = [~answered, invalid, values == best]
    choices = ["no answer", "unreadable", "right"]
    if worst is not None:
        conditions.append(values == worst)
        choices.append("wrong")
    numbers = [ENDS.index(name) for name in choices]
    chosen: NDArray[Any] = numpy.select(conditions, numbers, ENDS.index("partly right"))
    return chosen


def _flips(compared: MetricDifference, changes: SampleChanges, most: int | None) -> Iterator[Flip]:
    import numpy

    samples, lost = changes.samples, changes.places["lost"][:most]
    places = numpy.concatenate([lost, changes.places["won"][:most]])
    rows = [side[places] for side in samples.rows]
    tables = [
        rows_of(scored.place.scores, _COLUMNS)[some].to_dicts() if len(some) else []
        for scored, some in zip((samples.baseline, samples.candidate), rows, strict=True)
    ]
    for number, (one, other) in enumerate(zip(*tables, strict=True)):
        place = places[number]
        yield Flip(
            baseline=compared.baseline,
            candidate=compared.candidate,
            metric=compared.metric,
            change="lost" if number < len(lost) else "won",
            sample=one["sample"],
            document=one["document"],
            scores=(float(changes.values[0][place]), float(changes.values[1][place])),
            answers=(answer_of(one), answer_of(other)),
            references=tuple(shortened(text or "") for text in one["references"] or ()),
            rows=(int(rows[0][number]), int(rows[1][number])),
        )


def answer_of(row: dict[str, Any]) -> str:
    """An answer for people: shortened; or why there is no answer, or that it was unreadable."""
    if row["answer"] is None:
        return f"({row['outcome']})"
    unread = f" ({row['reason']})" if row["reason"] else ""
    return shortened(row["answer"]) + unread


def shortened(text: str, most: int = CUT) -> str:
    """A text of at most so many characters, with a mark where it was cut."""
    return text if len(text) <= most else f"{text[:most]} …"
