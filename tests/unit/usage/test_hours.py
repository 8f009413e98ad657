"""Allocated time is used or wasted, each second of it once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.experiment.view.usage import CAUSES, Hours
from hpcbench.usage.hours import Run, Span, cut, hours, waited

TASKS = {"a": "m", "b": "m", "c": "n"}
TIMES = st.integers(-50, 400).map(float)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Anything a worker might say, also of times outside its allocation and over each other."""
    begin, end = draw(TIMES), draw(TIMES | st.just(float("inf")))
    what = draw(st.sampled_from(["used", "lost", "loading", "failed_loads"]))
    task = draw(st.sampled_from(list(TASKS))) if what in ("used", "lost") else ""
    return Span(begin, end, what, task, TASKS.get(task, draw(st.sampled_from(["m", "n", ""]))))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    begin = draw(st.integers(0, 100).map(float))
    return Run(
        run_tasks=TASKS,
        begin=begin,
        end=begin + draw(st.integers(0, 300)),
        gpus=draw(st.integers(0, 4)),
        cpus=draw(st.integers(1, 8)),
        started=draw(st.none() | TIMES),
        spans=draw(st.lists(spans(), max_size=8)),
    )


@given(runs())
def test_an_allocation_is_cut_without_gap_or_overlap(run: Run) -> None:
    parts = list(cut(run))
    edges = [run.begin, *(part.end for part in parts)]
    assert [part.begin for part in parts] == edges[:-1]
    assert edges[-1] == run.end or not parts
    assert bool(parts) == (run.end > run.begin)


@given(st.lists(runs(), max_size=5))
def test_allocated_is_used_plus_wasted_in_every_row_and_in_all(known: list[Run]) -> None:
    rows = hours(known)
    for row in rows:
        assert row.allocated == pytest.approx(row.used + row.wasted)
    for unit in ("GPU", "CPU"):
        held = sum(
            (run.end - run.begin) * (run.gpus or run.cpus) / 3600
            for run in known
            if bool(run.gpus) == (unit == "GPU")
        )
        assert sum(row.allocated for row in rows if row.unit == unit) == pytest.approx(held)


@given(st.lists(runs(), max_size=5))
def test_nothing_is_used_beyond_what_workers_say(known: list[Run]) -> None:
    said = sum(
        max(0.0, min(span.end, run.end) - max(span.begin, run.begin)) * (run.gpus or run.cpus)
        for run in known
        for span in run.spans
        if span.what == "used"
    )
    assert sum(row.used for row in hours(known)) <= said / 3600 + 1e-9


def one(*spans: Span, end: float = 3600, started: float | None = 0, gpus: int = 1) -> Hours:
    """Hours of a job of one run task, from second 0 on."""
    (row,) = hours([Run({"a": "m"}, 0, end, gpus, 4, started, spans=spans)])
    return row


def wasted(row: Hours) -> dict[str, float]:
    return {cause: round(getattr(row, cause) * 3600) for cause in CAUSES if getattr(row, cause)}


def test_each_cause_of_waste_has_its_name() -> None:
    row = one(
        Span(100, 300, "failed_loads", "", "m"),
        Span(400, 1000, "loading", "", "m"),
        Span(1000, 2000, "used", "a", "m"),
        Span(2500, 2600, "lost", "a", "m"),
        Span(2600, 3000, "used", "a", "m"),
        started=60,
    )
    assert round(row.used * 3600) == 1400
    assert wasted(row) == {
        "starting": 60,
        "failed_loads": 200,
        "loading": 600,
        "idle": 40 + 100 + 500,
        "lost": 100,
        "after_last_answer": 600,
    }


def test_a_job_whose_worker_never_spoke_was_all_start_and_one_without_work_all_idle() -> None:
    assert wasted(one(started=None)) == {"starting": 3600}
    assert wasted(one()) == {"idle": 3600}


def test_hours_are_of_gpus_and_without_gpus_of_cpus() -> None:
    assert (one(gpus=2).unit, one(gpus=2).allocated) == ("GPU", 2)
    assert (one(gpus=0).unit, one(gpus=0).allocated) == ("CPU", 4)


def test_loads_and_idle_time_are_shared_out_by_what_was_used() -> None:
    run = Run(
        TASKS, 0, 1000, 1, 1, 0,
        spans=[
            Span(0, 200, "loading", "", "m"),
            Span(200, 500, "used", "a", "m"),
            Span(500, 600, "used", "b", "m"),
            Span(600, 700, "loading", "", "n"),
            Span(700, 800, "used", "c", "n"),
        ],
    )  # fmt: skip
    rows = {row.run_task: row for row in hours([run])}
    loading = {name: round(row.loading * 3600) for name, row in rows.items()}
    assert loading == {"a": 150, "b": 50, "c": 100}
    after = {name: round(row.after_last_answer * 3600) for name, row in rows.items()}
    assert after == {"a": 120, "b": 40, "c": 40}
    assert rows["c"].model == "n"


def test_the_wait_in_the_queue_is_reported_and_is_no_waste() -> None:
    known = [Run(TASKS, begin, begin + 10, 1, 1, begin, submitted=100) for begin in (130, 150, 400)]
    reported = waited(known)
    assert reported is not None
    assert (reported.first, reported.median, reported.longest) == (30, 50, 300)
    assert waited([Run(TASKS, 0, 10, 1, 1)]) is None
