"""Pages of a comparison's samples: won, lost or tied, filtered by mistakes and metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcbench.comparison.flips import TIES, Change, SampleChanges, shortened
from hpcbench.experiment.counts import OUTCOMES
from hpcbench.experiment.view.scores import META
from hpcbench.portal.comparison import ComparisonRequest
from hpcbench.portal.context import Portal
from hpcbench.portal.json_safe import sound
from hpcbench.portal.models import comparisons
from hpcbench.portal.models.experiments import Facet
from hpcbench.portal.sample_table import ScoresTable, rows_of_file, sample_cache_of
from hpcbench.portal.samples import MOST_LEVELS, counted, metadata_column, mistake_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

CUT = 300
"""Longest answer in a list, characters."""

REFERENCES = 20
"""Most acceptable answers in a list."""

_TEXTS = ("sample", "document", "outcome", "reason", "answer", "references")


@dataclass(frozen=True, slots=True)
class FlipFilter:
    """Filter of samples; all its conditions must hold."""

    change: Change | None = None
    """Change from the baseline to the candidate; None: won and lost."""
    mistake: str = ""
    """Kind of mistake in the worse answer of won and lost samples, in the candidate's of the others."""
    where: tuple[tuple[str, str], ...] = ()
    """Metadata and their values; an empty value: samples without this entry."""


def flip_page(
    portal: Portal,
    asked: ComparisonRequest,
    changes: SampleChanges,
    chosen: FlipFilter,
    after: int,
    limit: int,
) -> comparisons.FlipPage:
    """A page of samples, the greatest change first; the first page has the facets.

    Args:
        portal: the portal.
        asked: the comparison of a pair of run tasks.
        changes: its changes of all samples.
        chosen: filter of the samples.
        after: number of samples before the page.
        limit: most rows of the page.

    Raises:
        PortalFault: the scores have no such column.
    """
    tables = _tables(portal, asked, changes)
    places = _places(tables, changes, chosen)
    items = tuple(flip_rows(changes, places[after : after + limit]))
    end = after + len(items)
    return comparisons.FlipPage(
        baseline=changes.samples.names[0],
        candidate=changes.samples.names[1],
        metric=changes.metric,
        items=items,
        next=str(end) if end < len(places) else None,
        total=len(places),
        counts={str(name): count for name, count in changes.counts.items()},
        facets=() if after else _facets(tables, changes, places),
    )


def flip_places(
    portal: Portal, asked: ComparisonRequest, changes: SampleChanges, chosen: FlipFilter
) -> NDArray[Any]:
    """Numbers of the chosen samples, the greatest change first.

    Raises:
        PortalFault: the scores have no such column.
    """
    return _places(_tables(portal, asked, changes), changes, chosen)


_Tables = tuple[ScoresTable, ScoresTable]


def _tables(portal: Portal, asked: ComparisonRequest, changes: SampleChanges) -> _Tables:
    """The scores of baseline and candidate."""
    one, other = (
        ScoresTable(sample_cache_of(portal), run.experiment, name)
        for run, name in zip(asked.runs, changes.samples.names, strict=True)
    )
    return one, other


def _places(tables: _Tables, changes: SampleChanges, chosen: FlipFilter) -> NDArray[Any]:
    import polars

    places = changes.chosen(chosen.change)
    wanted = [(metadata_column(tables[0], name), value) for name, value in chosen.where]
    if chosen.mistake:
        (column,) = {mistake_column(table) for table in tables}
        wanted.append((column, chosen.mistake))
    if not wanted:
        return places
    labels = _labels(tables, changes, places, [*dict(wanted)])
    holds = [polars.col(column).fill_null("") == value for column, value in wanted]
    kept: NDArray[Any] = places[labels.select(polars.all_horizontal(holds)).to_series().to_numpy()]
    return kept


def _facets(tables: _Tables, changes: SampleChanges, places: NDArray[Any]) -> tuple[Facet, ...]:
    """How many samples have each mistake and value of metadata."""
    names = ["mistake"] if all(table.has_mistakes for table in tables) else []
    names += [META + name for name in tables[0].metadata[:MOST_LEVELS]]
    labels = _labels(tables, changes, places, names)
    found = (counted(name.removeprefix(META), labels[name]) for name in names)
    return tuple(one for one in found if one.counts)


def _labels(tables: _Tables, changes: SampleChanges, places: NDArray[Any], names: list[str]) -> Any:
    """Columns of some samples: metadata of the baseline, mistakes of the worse answer."""
    import numpy
    import polars

    rows = [side[places] for side in changes.samples.rows]
    frame = tables[0].frame(names)[rows[0]]
    if "mistake" in names:
        theirs = tables[1].frame(["mistake"])["mistake"][rows[1]]
        won = polars.Series(numpy.isin(places, changes.places["won"]))
        column = frame.get_column_index("mistake")
        frame.replace_column(column, frame["mistake"].zip_with(won, theirs))
    return frame


def flip_rows(changes: SampleChanges, places: NDArray[Any]) -> Iterator[comparisons.FlipRow]:
    """Rows of a list of samples, in the order of `places`."""
    import numpy

    samples = changes.samples
    rows = [side[places].tolist() for side in samples.rows]
    # References are the same in both runs, and reading them takes most of the time.
    frames = [
        rows_of_file(scored.place.scores, None, own, names)
        for scored, own, names in zip(
            (samples.baseline, samples.candidate), rows, (_TEXTS, _TEXTS[:-1]), strict=True
        )
    ]
    up = samples.baseline.metrics[changes.metric].higher_is_better
    tied: dict[int, Change] = {
        at: one for one in TIES for at in places[numpy.isin(places, changes.places[one])].tolist()
    }
    for number, place in enumerate(places.tolist()):
        one, other = frames[0][number], frames[1][number]
        values = float(changes.values[0][place]), float(changes.values[1][place])
        gain = values[1] - values[0] if up else values[0] - values[1]
        change: Change = "won" if gain > 0 else "lost"
        references = (one["references"] or ())[:REFERENCES]
        yield comparisons.FlipRow(
            sample=sound(one["sample"]),
            document=sound(one["document"] or ""),
            change=tied.get(place, change),
            scores=values,
            answers=(_said(one), _said(other)),
            notes=(_noted(one), _noted(other)),
            references=tuple(sound(shortened(text or "", CUT)) for text in references),
            places=(rows[0][number], rows[1][number]),
        )


def _said(row: Mapping[str, Any]) -> str | None:
    return None if row["answer"] is None else sound(shortened(row["answer"], CUT))


def _noted(row: Mapping[str, Any]) -> str:
    outcome, reason = row["outcome"], row["reason"]
    return str(sound(OUTCOMES.get(outcome, outcome) if row["answer"] is None else reason or ""))
