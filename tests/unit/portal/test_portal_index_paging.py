"""Walking a list page by page: every row once and in order, under any filter, also while rows change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpcbench.portal.index import (
    BadCursor,
    ExperimentQuery,
    ExperimentSort,
    RunTaskQuery,
    RunTaskSort,
)
from hpcbench.portal.index.paging import RowPosition, cursor, position_of
from hpcbench.portal.index.sql_index import Index
from hpcbench.portal.index.text_keys import clean
from hpcbench.portal.models.experiments import ExperimentRow, RunTaskRow
from tests.campaign import examples
from tests.unit.portal.rows import entry, run_task, score

FEW = settings(
    max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture]
)

VALUES = st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 0.1, 0.3, 1e-300, 1e300, 1 / 3]))
WORDS = st.sampled_from(["", "a", "A", "ä", "zz", "0", "😀", "nightly", "a\tb", "'", "%"])


@st.composite
def experiments(draw: st.DrawFn) -> list[ExperimentRow]:
    """Rows with few different values, so that many are alike."""
    count = draw(st.integers(0, 12))
    return [
        entry(
            f"e{number:02d}",
            plan=draw(WORDS),
            state=draw(st.sampled_from(["done", "running", "lost"])),
            owner=draw(WORDS),
            created=draw(st.sampled_from([0.0, 1.5, 2.0])),
            samples=draw(st.sampled_from([0, 4])),
            answered=draw(st.sampled_from([0, 1, 4])),
            rate=draw(VALUES),
            verdict=draw(st.sampled_from([None, "GO", "NO-GO"])),
            gpu_hours=draw(VALUES),
            score=score(value) if (value := draw(VALUES)) is not None else None,
        ).row
        for number in range(count)
    ]


@st.composite
def run_tasks(draw: st.DrawFn) -> list[RunTaskRow]:
    """Likewise."""
    names = draw(
        st.lists(st.tuples(st.sampled_from(["e1", "e2"]), WORDS), unique=True, max_size=14)
    )
    return [
        run_task(
            name, experiment, model=draw(WORDS), dataset=draw(WORDS), prompt=draw(WORDS),
            state=draw(st.sampled_from(["done", "failed"])), samples=draw(st.sampled_from([0, 3])),
            answered=draw(st.sampled_from([0, 3])), invalid=draw(st.sampled_from([0, 2])), rate=draw(VALUES),
            coverage=draw(VALUES), latency_p50=draw(VALUES), latency_p95=draw(VALUES),
            tokens_per_second=draw(VALUES), peak_memory_gb=draw(VALUES),
            scores=(score(value),) if (value := draw(VALUES)) is not None else (),
        )
        for experiment, name in names
    ]  # fmt: skip


EXPERIMENT_QUERIES = st.builds(
    ExperimentQuery,
    states=st.sampled_from([(), ("done",), ("done", "lost")]),
    text=st.sampled_from(["", "a", "NIGHT", "e0", "%"]),
    plans=st.sampled_from([(), ("a",), ("A", "ä")]),
    sort=st.sampled_from(get_args(ExperimentSort)),
    order=st.sampled_from(["asc", "desc"]),
    limit=st.integers(1, 5),
)
RUN_TASK_QUERIES = st.builds(
    RunTaskQuery,
    experiment=st.sampled_from([None, "e1", "e2"]),
    states=st.sampled_from([(), ("done",)]),
    text=st.sampled_from(["", "a", "e1"]),
    models=st.sampled_from([(), ("a", "zz")]),
    sort=st.sampled_from(get_args(RunTaskSort)),
    order=st.sampled_from(["asc", "desc"]),
    limit=st.integers(1, 5),
)


def fill(index: Index, rows: Sequence[ExperimentRow], tasks: Sequence[RunTaskRow] = ()) -> None:
    """Exactly these."""
    index.remove(index.stamps())
    index.put([replace(entry(row.id, ()), row=row) for row in rows])
    for experiment in sorted({one.experiment for one in tasks}):
        index.put([entry(experiment, [one for one in tasks if one.experiment == experiment])])


def walk(ask: Callable[[str | None], Any]) -> Iterator[Any]:
    """All pages."""
    after = None
    while True:
        page = ask(after)
        yield page
        after = page.next
        if after is None:
            return


def in_order(
    rows: Sequence[Any], value: Callable[[Any], Any], key: Callable[[Any], Any], order: str
) -> list[Any]:
    """As a list has to be sorted, by Python."""
    down = order == "desc"
    valued = sorted(
        (row for row in rows if value(row) is not None), key=lambda row: (value(row), key(row))
    )
    empty = sorted((row for row in rows if value(row) is None), key=key)
    return [*(valued[::-1] if down else valued), *(empty[::-1] if down else empty)]


def experiment_value(row: ExperimentRow, sort: str) -> Any:
    if sort == "score":
        return row.score.value if row.score else None
    if sort == "progress":
        return row.answered / row.samples if row.samples else None
    return getattr(row, sort)


def run_task_value(row: RunTaskRow, sort: str) -> Any:
    if sort == "score":
        return row.scores[0].value if row.scores else None
    if sort == "progress":
        return row.answered / row.samples if row.samples else None
    return getattr(row, sort)


@pytest.mark.long
@FEW
@given(rows=experiments(), query=EXPERIMENT_QUERIES)
@example(
    rows=[entry("e00", plan="ä").row, entry("e01", plan="a").row],
    query=ExperimentQuery(plans=("ä",)),
)
def test_every_experiment_comes_once_and_in_order(
    index: Index, rows: list[ExperimentRow], query: ExperimentQuery
) -> None:
    fill(index, rows)
    said = [(row, f"{row.id}\n{row.plan}\n{row.owner}\nm\nd".casefold()) for row in rows]
    wanted = [
        row.id
        for row, words in said
        if (not query.states or row.state in query.states)
        and (not query.plans or row.plan in query.plans)
        and all(word in words for word in query.text.casefold().split())
    ]
    known = {row.id: row for row in rows}
    expected = in_order(
        [known[one] for one in wanted],
        lambda row: experiment_value(row, query.sort),
        lambda row: row.id,
        query.order,
    )
    pages = list(walk(lambda after: index.experiments(replace(query, after=after))))
    assert [row.id for page in pages for row in page.items] == [row.id for row in expected]
    assert {page.total for page in pages} == {len(expected)}
    assert all(len(page.items) == query.limit for page in pages[:-1])


@FEW
@given(rows=run_tasks(), query=RUN_TASK_QUERIES)
def test_every_run_task_comes_once_and_in_order(
    index: Index, rows: list[RunTaskRow], query: RunTaskQuery
) -> None:
    fill(index, (), rows)
    wanted = [
        row
        for row in rows
        if query.experiment in (None, row.experiment)
        and (not query.states or row.state in query.states)
        and (not query.models or row.model in query.models)
        and all(
            word
            in "\n".join(
                (row.name, row.experiment, row.model, row.dataset, row.prompt, row.ml_task)
            ).casefold()
            for word in query.text.split()
        )
    ]
    expected = in_order(
        wanted,
        lambda row: run_task_value(row, query.sort),
        lambda row: (row.experiment, row.name),
        query.order,
    )
    if query.sort in ("name", "experiment"):  # these are what ties are broken by
        keys = {
            "name": lambda row: (row.name, row.experiment),
            "experiment": lambda row: (row.experiment, row.name),
        }
        expected = sorted(wanted, key=keys[query.sort], reverse=query.order == "desc")
    pages = list(walk(lambda after: index.run_tasks(replace(query, after=after))))
    assert [row for page in pages for row in page.items] == expected


def _moved(row: ExperimentRow, turn: int) -> ExperimentRow:
    """The row with other values in every column."""
    numbers = {"updated": 9.0 + turn, "rate": 5.0 + turn, "gpu_hours": 1.0, "created": 1.0 * turn}
    counts = {"samples": 7 + turn, "failures": turn, "answered": turn, "run_tasks": turn}
    texts = {"plan": f"p{turn}", "state": "done", "owner": "x", "verdict": "GO"}
    return row.model_copy(update={**numbers, **counts, **texts, "score": None})


@pytest.mark.long
@FEW
@given(
    rows=experiments(),
    query=st.builds(ExperimentQuery, sort=st.sampled_from(get_args(ExperimentSort)),
                    order=st.sampled_from(["asc", "desc"]), limit=st.integers(1, 3)),
    gone=st.sets(st.integers(0, 11)),
    moved=st.sets(st.integers(0, 11)),
)  # fmt: skip
def test_while_rows_come_go_and_change_none_that_stays_is_lost(
    index: Index, rows: list[ExperimentRow], query: ExperimentQuery, gone: set[int], moved: set[int]
) -> None:
    fill(index, rows)
    found: list[str] = []
    for turn, page in enumerate(walk(lambda after: index.experiments(replace(query, after=after)))):
        found += [row.id for row in page.items]
        some = [
            rows[number] for number in sorted(moved) if number < len(rows) and number not in gone
        ]
        if turn < 5:  # what always moves ahead would be met for ever
            index.put([replace(entry(row.id, ()), row=_moved(row, turn)) for row in some])
        index.remove(rows[number].id for number in gone if number < len(rows))
        index.put([entry(f"new{turn}")] if turn < 3 else [])
    stays = {row.id for number, row in enumerate(rows) if number not in gone | moved}
    assert stays <= set(found)
    assert all(found.count(one) == 1 for one in stays)


@given(
    st.one_of(
        st.none(), st.text(max_size=30), st.floats(allow_nan=False, allow_infinity=False, width=32)
    ),
    st.lists(st.text(max_size=20), min_size=2, max_size=2),
    st.text(max_size=20),
)
def test_a_cursor_says_what_it_was_made_of(value: Any, key: list[str], of: str) -> None:
    value = clean(value) if isinstance(value, str) else value
    place = RowPosition(value, tuple(map(clean, key)))
    kind = str if isinstance(value, str) else float
    assert position_of(cursor(place, of), of, 2, kind) == place
    with pytest.raises(BadCursor):
        position_of(cursor(place, of), of + "x", 2, kind)


@given(st.text(max_size=200))
def test_any_text_as_a_cursor_is_refused_in_order(text: str) -> None:
    with pytest.raises(BadCursor):
        position_of(text, "a list", 1, float)
