"""A metric or parser that raises or hangs costs its sample, never the run; and that is counted."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hpcbench.scorer.isolate import LONGEST, Guard, TookTooLong
from tests.unit.evaluation.scene import HERE, asked, reported, strange, with_metrics

ANSWERS = [str(number) for number in range(5)]


def test_a_metric_that_raises_loses_that_sample_alone_and_says_why(tmp_path: Path) -> None:
    table = reported(asked(tmp_path, ANSWERS, strange("Raises", "Mean")))
    entry = table["metrics"]["raises"]
    assert (entry["n"], entry["faults"], entry["value"]) == (3, 2, 1.0)
    assert table["faults"] == [
        {"metric": "raises", "message": "KeyError: 'two'", "count": 1, "sample": "s2"},
        {
            "metric": "raises",
            "message": "ValueError: the metric gave nan",
            "count": 1,
            "sample": "s3",
        },
    ]
    assert table["metrics"]["mean"]["n"] == 5, "other metrics score all samples"


@pytest.mark.long
def test_a_metric_that_hangs_is_ended_and_counted_never_replaced(tmp_path: Path) -> None:
    table = reported(asked(tmp_path, ANSWERS, strange("Hangs"), score_timeout=0.2))
    assert table["metrics"]["hangs"]["n"] == 4
    assert [one["message"] for one in table["faults"]] == ["took longer than 0.2 s"]


def test_a_fault_has_no_value_in_the_scores(tmp_path: Path) -> None:
    import polars

    here = asked(tmp_path, ANSWERS, strange("Raises"))
    reported(here)
    frame = polars.read_parquet(here.scores_file("rt"))
    assert frame["raises"].to_list() == [1, 1, None, None, 1]
    assert frame["raises.fault"].to_list()[1:3] == [None, "KeyError: 'two'"]


def test_a_parser_that_raises_leaves_an_invalid_answer_with_the_reason(tmp_path: Path) -> None:
    here = asked(tmp_path, ["0", "x"], ())
    table = reported(with_metrics(here, strange("Mean"), parser=f"{HERE}.ParserThatRaises"))
    assert table["invalid"] == 1
    assert "an x" in table["invalid_reasons"][0]["reason"]


def test_every_sample_lost_is_no_score(tmp_path: Path) -> None:
    table = reported(asked(tmp_path, ["2", "2"], strange("Raises")))
    assert table["metrics"]["raises"] is None
    assert table["faults"][0]["count"] == 2


# --- the guard ----------------------------------------------------------------------------------------


def forever() -> None:
    while True:
        time.sleep(0.01)


def test_a_call_is_ended_soon_after_its_limit() -> None:
    with Guard(0.1) as guard:
        assert guard.call(forever) == (None, "took longer than 0.1 s")
        assert guard.call(int, "7") == (7, None), "the next one has a limit of its own"


def test_a_call_over_its_limit_is_ended_once() -> None:
    """Where the alarm rings after the call and before it says that it is over, what comes next goes on."""
    guard = Guard(0.1)
    guard._since = time.monotonic() - 1
    with pytest.raises(TookTooLong):
        guard._look(signal.SIGALRM, None)
    guard._look(signal.SIGALRM, None)


def test_many_quick_calls_are_not_one_long_one() -> None:
    with Guard(1.0) as guard:
        faults = [guard.call(time.sleep, 0.06)[1] for _ in range(20)]
    assert set(faults) == {None}


def test_an_earlier_alarm_still_rings_afterwards() -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rang.append(number))
    timer = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with Guard(0.1) as guard:
            guard.call(forever)
        assert signal.getsignal(signal.SIGALRM) is not before
        deadline = time.monotonic() + 5
        while not rang and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rang == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_outside_the_main_thread_faults_are_kept_apart_without_a_limit() -> None:
    found: list[Any] = []

    def work() -> None:
        with Guard(0.01) as guard:
            found.append(guard.call(int, "seven"))
            found.append(guard.call(time.sleep, 0.05))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0][1].startswith("ValueError")
    assert found[1] == (None, None)


def test_who_interrupts_is_heard() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with Guard(1) as guard, pytest.raises(KeyboardInterrupt):
        guard.call(interrupted)


def test_a_long_message_is_cut_to_one_line() -> None:
    def wordy() -> None:
        raise ValueError("many\nwords " * 1000)

    with Guard(1) as guard:
        _, fault = guard.call(wordy)
    assert fault is not None
    assert "\n" not in fault
    assert len(fault) == LONGEST + 2
