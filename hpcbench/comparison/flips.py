"""Samples that a candidate won or lost against a baseline: what to look at first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hpcbench.comparison.compare import (
    CandidateResult,
    Compared,
    Counting,
    SamplePairs,
    column,
)
from hpcbench.evaluation.scores import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

CUT = 300
"""Characters of an answer or reference that are told."""

ENDS = ("right", "partly right", "wrong", "unreadable", "no answer")
"""How a sample can end: with the best value of a metric, between, with the least; without a value."""

_COLUMNS = ("sample", "document", "outcome", "reason", "answer", "references")


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample that the two runs did differently."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Name of the metric's document."""
    change: Literal["won", "lost"]
    """Whether the candidate did better, or worse."""
    sample: str
    """The sample."""
    document: str
    """The document it belongs to."""
    scores: tuple[float, float]
    """Its value in the baseline and in the candidate."""
    answers: tuple[str, str]
    """What either answered, shortened; how the request ended where there is no answer, in brackets."""
    references: tuple[str, ...]
    """Acceptable answers, shortened."""
    rows: tuple[int, int]
    """Rows of it in the scores files of either, from 0."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        # Not by `asdict`, which copies every text.
        told = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: list(one) if isinstance(one, tuple) else one for name, one in told}


def flips(
    held: CandidateResult, compared: Compared, counting: Counting = "zero", most: int | None = None
) -> list[Flip]:
    """Samples whose value by a metric is not the same, lost ones first, the greatest change first.

    Args:
        held: a candidate as it was held against the baseline.
        compared: one metric of it.
        counting: as it was compared.
        most: at most so many lost and so many won; None: all.
    """
    import numpy

    sides = held.sides[compared.baseline, compared.candidate]
    found = column(sides, compared.metric, counting)
    gains = found.values[1] - found.values[0]
    gains = numpy.where(found.both & numpy.isfinite(gains), gains, 0.0)
    if not found.kind.higher_is_better:
        gains = -gains
    lost = _ordered(numpy.flatnonzero(gains < 0), gains, most)
    won = _ordered(numpy.flatnonzero(gains > 0), gains, most)
    places = numpy.concatenate([lost, won])
    return list(_told(compared, sides, found.values, places, len(lost)))


def moves(
    held: CandidateResult, compared: Compared, counting: Counting = "zero"
) -> list[tuple[str, str, int]]:
    """How samples moved from one end to another: end in the baseline, in the candidate, how many.

    Ends are those of `ENDS`, in this order; what does not count in either is in none.
    """
    import numpy

    found = column(held.sides[compared.baseline, compared.candidate], compared.metric, counting)
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


def _ends(kind: Any, frame: Any, values: NDArray[Any]) -> NDArray[Any]:
    """Of each sample the number of its end."""
    import numpy

    best, least = kind.bounds[1], kind.bounds[0]
    if not kind.higher_is_better:
        best, least = least, best
    answered, invalid = (frame[name].to_numpy() for name in ("answered", "invalid"))
    conditions = [~answered, invalid, values == best]
    choices = ["no answer", "unreadable", "right"]
    if least is not None:
        conditions.append(values == least)
        choices.append("wrong")
    numbers = [ENDS.index(name) for name in choices]
    chosen: NDArray[Any] = numpy.select(conditions, numbers, ENDS.index("partly right"))
    return chosen


def _ordered(places: NDArray[Any], gains: NDArray[Any], most: int | None) -> NDArray[Any]:
    """Greatest change first; of the same change as they come."""
    import numpy

    order = numpy.argsort(-numpy.abs(gains[places]), kind="stable")
    found: NDArray[Any] = places[order][:most]
    return found


def _told(
    compared: Compared,
    sides: SamplePairs,
    values: tuple[NDArray[Any], NDArray[Any]],
    places: NDArray[Any],
    lost: int,
) -> Iterator[Flip]:
    rows = [side[places] for side in sides.rows]
    tables = [
        rows_of(scored.place.scores, _COLUMNS)[some].to_dicts() if len(some) else []
        for scored, some in zip((sides.first, sides.second), rows, strict=True)
    ]
    for number, (one, other) in enumerate(zip(*tables, strict=True)):
        place = places[number]
        yield Flip(
            baseline=compared.baseline,
            candidate=compared.candidate,
            metric=compared.metric,
            change="lost" if number < lost else "won",
            sample=one["sample"],
            document=one["document"],
            scores=(float(values[0][place]), float(values[1][place])),
            answers=(answer_of(one), answer_of(other)),
            references=tuple(shortened(text or "") for text in one["references"] or ()),
            rows=(int(rows[0][number]), int(rows[1][number])),
        )


def answer_of(row: dict[str, Any], most: int = CUT) -> str:
    """An answer for people: shortened; why there is none; that it could not be read."""
    if row["answer"] is None:
        return f"({row['outcome']})"
    unread = f" ({row['reason']})" if row["reason"] else ""
    return shortened(row["answer"], most) + unread


def shortened(text: str, most: int = CUT) -> str:
    """A text of at most so many characters, and a sign that it goes on."""
    return text if len(text) <= most else f"{text[:most]} …"
