"""A metric over all experiments: of this home from files, of all other homes from the database."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.metrics.resources import unit_of
from hpcbench.portal.context import Portal, is_here
from hpcbench.portal.faults import bad_request
from hpcbench.portal.json_safe import sound
from hpcbench.portal.models.values import MetricValue
from hpcbench.portal.regressions import History

Place = tuple[float, str, str]
"""Creation time, experiment and run task: the list's order, descending."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a list goes on."""

    place: Place
    """The last row of the page before."""
    with_others: bool
    """Whether that page had values of the database: all pages of a list have, or none has."""

    def __str__(self) -> str:
        return json.dumps([*self.place, self.with_others])


def read_cursor(text: str | None) -> Cursor | None:
    """The cursor of a request; None: the first page.

    Raises:
        PortalFault: the text comes from no page.
    """
    if text is None:
        return None
    try:
        created, experiment, run_task, with_others = json.loads(text)
        return Cursor((float(created), str(experiment), str(run_task)), bool(with_others))
    except (ValueError, TypeError, RecursionError):
        raise bad_request("`after` is no cursor of this list", "start without `after`") from None


def own_values(
    portal: Portal,
    history: History,
    metric: str,
    words: Sequence[str],
    after: Place | None,
    limit: int,
) -> list[MetricValue]:
    """A page of a metric's values in this home's ended experiments, from the history's files."""
    import polars

    col = polars.col
    whole = history.table()
    if whole is None:
        return []
    keys = ["created", "experiment", "run_task"]
    found = whole.filter(
        col("name") == metric, col("kind") == "quality", col("state") == "done",
        col("value").is_not_null(), col("created").is_not_null(),
    )  # fmt: skip
    text = polars.concat_str(
        ["plan", "experiment", "model", "dataset"], separator=" ", ignore_nulls=True
    )
    for word in words:
        found = found.filter(text.str.to_lowercase().str.contains(word.lower(), literal=True))
    if after is not None:
        created, experiment, run_task = after
        found = found.filter(
            (col("created") < created)
            | (col("created") == created)
            & (
                (col("experiment") < experiment)
                | (col("experiment") == experiment) & (col("run_task") < run_task)
            )
        )
    folder = portal.home / "experiments"
    rows = found.sort(keys, descending=True).head(limit)
    return [
        _own(row, here=is_here(folder, row["experiment"])) for row in rows.iter_rows(named=True)
    ]


def _own(row: dict[str, Any], *, here: bool) -> MetricValue:
    texts = ("experiment", "run_task", "plan", "model", "dataset", "signature")
    numbers = ("created", "value", "low", "high", "n")
    return MetricValue(
        **{name: sound(row[name] or "") for name in texts},
        **{name: sound(row[name]) for name in numbers},
        owner="",
        unit=unit_of(row["signature"] or ""),
        higher_is_better=row["higher_is_better"] is not False,
        here=here,
    )


def page_of(
    own: Sequence[MetricValue], others: Sequence[MetricValue] | None, limit: int
) -> tuple[tuple[MetricValue, ...], str | None]:
    """Both lists as one page, and its cursor.

    Args:
        own: values of this home; an experiment here is not shown a second time.
        others: values from the database; None: it was not asked.
        limit: most rows; more in either list means that there is a next page.
    """
    mine = {(one.experiment, one.run_task) for one in own}
    new = [one for one in others or () if (one.experiment, one.run_task) not in mine]
    merged = list(_merged(own, new))
    shown = tuple(merged[:limit])
    more = len(merged) > limit
    return shown, str(Cursor(_place(shown[-1]), others is not None)) if more else None


def _merged(*lists: Sequence[MetricValue]) -> Iterator[MetricValue]:
    return heapq.merge(*lists, key=_place, reverse=True)


def _place(one: MetricValue) -> Place:
    return one.created, one.experiment, one.run_task


def marked(items: Sequence[MetricValue], known: set[str]) -> tuple[MetricValue, ...]:
    """Values with a mark where the database lacks an experiment of this home, or a part of it."""
    return tuple(
        one.model_copy(update={"only_files": True})
        if not one.owner and one.experiment not in known
        else one
        for one in items
    )
