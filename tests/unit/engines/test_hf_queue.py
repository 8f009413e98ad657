"""When a batch starts, and who is in it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from hpcbench.engines.hf_queue import AHEAD, Line, choose


@dataclass(eq=False)
class One:
    """A prepared request."""

    name: str
    tokens: int = 100
    kind: str = "image"
    cancelled: bool = False
    over: bool = False

    def __repr__(self) -> str:
        return self.name


NEVER = 1000.0
"""Seconds: a test that waited so long would be ended by its time limit."""


def add(line: Line[One], *ones: One) -> None:
    for _ in ones:
        line.announce()
    for one in ones:
        line.put(one)


def names(batch: list[One]) -> str:
    return "".join(one.name for one in batch)


def taken(line: Line[One]) -> tuple[threading.Thread, list[str]]:
    """A thread that takes the next batch, and where its names will be."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(names(line.take())), daemon=True)
    thread.start()
    return thread, found


def test_one_request_at_a_time_waits_for_no_other() -> None:
    line: Line[One] = Line(8, NEVER)
    for name in "abc":
        add(line, One(name))
        [one] = line.take()
        assert one.name == name
        one.over = True


def test_a_full_batch_starts_at_once() -> None:
    line: Line[One] = Line(2, NEVER)
    add(line, One("a"), One("b"), One("c"))
    assert names(line.take()) == "ab"
    assert (line.running, line.waiting) == (2, 1)


def test_requests_being_prepared_are_waited_for() -> None:
    line: Line[One] = Line(8, 0.0)
    line.announce()
    line.announce()
    line.put(One("a"))
    thread, found = taken(line)
    thread.join(0.1)
    assert found == []
    line.put(One("b"))
    thread.join(10)
    assert found == ["ab"]


def test_one_that_cannot_be_prepared_is_not_waited_for() -> None:
    line: Line[One] = Line(8, 0.0)
    line.announce()
    line.announce()
    line.put(One("a"))
    thread, found = taken(line)
    line.drop()
    thread.join(10)
    assert found == ["a"]


def test_clients_of_the_last_batch_are_waited_for_as_long_as_said() -> None:
    now = [0.0]
    line: Line[One] = Line(8, 5.0, clock=lambda: now[0])
    add(line, One("a"), One("b"))
    first, second = line.take()
    first.over = True
    add(line, One("c"))  # the other client may send another, too
    second.over = True
    assert line._patience() == 5.0
    now[0] = 5.0
    assert names(line.take()) == "c"


def test_both_clients_of_the_last_batch_share_the_next() -> None:
    line: Line[One] = Line(8, NEVER)
    add(line, One("a"), One("b"))
    first, second = line.take()
    first.over = True
    add(line, One("c"))
    second.over = True
    thread, found = taken(line)
    add(line, One("d"))
    thread.join(10)
    assert found == ["cd"]


def test_who_has_left_is_not_running_any_more() -> None:
    line: Line[One] = Line(3, NEVER)
    add(line, One("a"), One("b"), One("c"))
    first, second, third = line.take()
    first.cancelled = True
    assert line.running == 2
    first.over = second.over = True
    assert line.running == 1
    third.over = True
    assert line.running == 0


def test_the_first_in_line_goes_with_those_most_like_it() -> None:
    ready = [One("a", 100), One("b", 190), One("c", 95), One("d", 100), One("e", 201), One("f", 49)]
    assert names(choose(ready, 3)) == "adc"
    assert names(choose(ready, 9)) == "adcb"  # more than half of a row would be padding


def test_requests_of_another_kind_wait_for_their_own_batch() -> None:
    ready = [One("a"), One("b", kind="text"), One("c")]
    assert names(choose(ready, 8)) == "ac"


def test_those_without_a_client_are_left_out() -> None:
    line: Line[One] = Line(8, 0.0)
    gone = One("b")
    add(line, One("a"), gone)
    gone.cancelled = True
    assert names(line.take()) == "a"


def test_preparing_goes_on_when_no_client_waits_for_what_was_prepared_ahead() -> None:
    line: Line[One] = Line(1, 0.0)
    gone = [One(str(n)) for n in range(AHEAD + 1)]
    add(line, *gone[:AHEAD])
    line.announce()
    blocked = threading.Thread(target=line.put, args=[gone[-1]], daemon=True)
    blocked.start()
    for one in gone:
        one.cancelled = True
    thread, found = taken(line)
    blocked.join(10)
    assert not blocked.is_alive()  # the thread that prepares has the next one to do
    add(line, One("x"))
    thread.join(10)
    assert found == ["x"]


def test_only_so_much_is_prepared_ahead() -> None:
    line: Line[One] = Line(1, 0.0)
    add(line, *(One(name) for name in "abcdef"[:AHEAD]))
    line.announce()
    thread = threading.Thread(target=line.put, args=(One("z"),), daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    line.take()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("waiting", [False, True])
def test_a_closed_line_ends_all_that_wait_at_it(waiting: bool) -> None:
    line: Line[One] = Line(1, NEVER)
    thread, found = taken(line) if waiting else (threading.Thread(), [])
    line.close()
    if waiting:
        thread.join(10)
        assert found == [""]
    assert line.take() == []
