"""Speed in columns: bit for bit the figures that come of looking at one response after the other."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench import speed
from hpcbench.evaluation.performance import measure_performance
from hpcbench.experiment.claims import pieces_of
from hpcbench.schema.load import Slo
from hpcbench.schema.records import Outcome, Response, Times
from tests.campaign import examples
from tests.unit import plain_speed
from tests.unit.small import experiment, record, write_attempt
from tests.unit.timing import MS, answered, closed_loop, failed, in_columns, measured, open_loop

OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    ["ok", "ok", "ok", "truncated", "failed", "refused", "invalid"]
)
COUNTS = st.none() | st.integers(0, 40)


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """Whatever a worker may write: retries, none at all, no stream, late counts, no counts."""
    started = draw(st.integers(0, 4_000 * MS))
    steps = st.integers(0, 300 * MS)
    start = started + draw(steps)
    send = start + draw(steps)
    chunks = [send + draw(steps)]
    chunks += [chunks[-1] + step for step in draw(st.lists(steps, max_size=5))]
    chunks = chunks if draw(st.integers(0, 9)) else []
    counted = draw(st.booleans())
    tokens = sorted(draw(st.lists(st.integers(0, 30), min_size=len(chunks), max_size=len(chunks))))
    if not draw(st.integers(0, 9)):
        tokens = [*tokens, 31]
    empty = sorted(send + step for step in draw(st.lists(st.integers(0, 2_000 * MS), max_size=2)))
    usage = {"prompt_tokens": draw(COUNTS), "completion_tokens": draw(COUNTS)}
    known = {name: count for name, count in usage.items() if count is not None}
    return Response(
        "s",
        draw(OUTCOMES),
        "text",
        "stop",
        known or draw(st.none() | st.just({})),
        Times(
            start=start,
            send=send,
            headers=draw(st.none() | st.just(send)),
            chunks=tuple(chunks),
            done=(chunks or [send])[-1] + draw(st.sampled_from([0, 0, MS])),
            scheduled=draw(st.none() | st.just(started)),
            empty=tuple(empty),
            tokens=tuple(tokens) if counted else (),
        ),
        draw(st.sampled_from([1, 1, 1, 1, 0, 2, 3])),
        (),
        recount=draw(COUNTS),
    )


def tidy(one: Response) -> Response:
    """The same with every count, so that rates and gaps of tokens are known."""
    times = dataclasses.replace(one.times, tokens=tuple(range(1, len(one.times.chunks) + 1)))
    usage = {"prompt_tokens": 7, "completion_tokens": len(times.chunks) + 1}
    return dataclasses.replace(one, times=times, usage=usage)


def check(pieces: list[list[Response]], slo: Slo | None = None) -> None:
    found = measured(pieces, slo)
    for name, expected in plain_speed.measure(pieces, slo).items():
        assert found[name] == expected, name
    for piece in pieces:
        if any(one.tries for one in piece):
            window = dataclasses.asdict(speed.steady_window(in_columns(*piece)))
            assert window == plain_speed.window_of(piece)


LIMITS = st.none() | st.floats(1, 900)
SLOS = st.none() | st.builds(Slo, ttft_ms=LIMITS, tpot_ms=LIMITS, e2e_ms=LIMITS)


@pytest.mark.long
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(responses(), max_size=14), max_size=3), SLOS, st.booleans())
def test_any_responses_have_the_figures_of_looking_at_each(
    pieces: list[list[Response]], slo: Slo | None, whole: bool
) -> None:
    check([list(map(tidy, piece)) for piece in pieces] if whole else pieces, slo)


@settings(max_examples=examples(100), deadline=None)
@given(responses())
def test_a_latency_is_the_same_of_a_response_and_of_a_column(one: Response) -> None:
    several = in_columns(one, one)
    for name, latency in speed.LATENCIES.items():
        expected = plain_speed.LATENCIES[name](one)
        assert latency(one) == expected
        assert latency.among(several).tolist() == ([] if expected is None else [expected] * 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_long_run_has_every_percentile_interval_and_bound_of_looking_at_each(seed: int) -> None:
    closed = closed_loop(900, 7, lambda chance, n: chance.uniform(20, 300), seed)
    due = [11.0 * n for n in range(700)]
    opened = open_loop(due, [9.0 + (n * 7919) % 23 for n in range(700)], room=2)
    counted = [answered(n, n, n + 40, n + 90, counted=True, tokens=9 + n % 5) for n in range(500)]
    lost = [failed(n, n, n + 3) for n in range(0, 900, 40)]
    check([[*closed, *lost], opened, counted], Slo(e2e_ms=150, tpot_ms=30))
    check([counted, counted[:100]], Slo(ttft_ms=60))


# --- from the disk ------------------------------------------------------------------------------------


def lines_of(*records: Any) -> bytes:
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in records)


def as_lists(piece: speed.Timed) -> dict[str, list[int]]:
    return {name: field.tolist() for name, field in piece._asdict().items()}


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(responses(), max_size=12), st.integers(1, 4), st.sampled_from(["t", "\ud83d", "\0é\r"])
)
def test_lines_read_at_once_are_those_read_one_by_one(
    piece: list[Response], pages: int, text: str
) -> None:
    written = [{**one.to_json(), "text": text} for one in piece]
    found = speed.read(lines_of(*written[n::pages]) for n in range(pages))
    expected = in_columns(*(one for n in range(pages) for one in piece[n::pages]))
    assert as_lists(found) == as_lists(expected)


DAMAGED = [
    b"\n",
    b"null\n",
    b'["ok"]\n',
    b"\0\0\0\n",
    b'{"outcome":"ok"\n',
    b'{"outcome":"ok"}\n',
    b"\xff\xfe\n",
    b'{"a":"\r\n',
    lines_of({**answered(1, 2, 3, 4).to_json(), "times": None}),
    lines_of({**answered(1, 2, 3, 4).to_json(), "times": {"send": 4}}),
    lines_of({**answered(1, 2, 3, 4).to_json(), "usage": 7}),
    lines_of({**answered(1, 2, 3, 4).to_json(), "tries": 2**70}),
    lines_of({**answered(1, 2, 3, 4).to_json(), "tries": "one"}),
]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_costs_its_own_response_and_no_other(line: bytes) -> None:
    before, after = answered(1, 10, 12, 19), answered(2, 20, 24, 30, scheduled=18)
    page = lines_of(before.to_json()) + line + lines_of(after.to_json())
    found = speed.read([lines_of(before.to_json()), page])
    assert as_lists(found) == as_lists(in_columns(before, before, after))


def test_every_answer_of_every_attempt_counts_but_for_a_torn_line(tmp_path: Path) -> None:
    """Attempts that were abandoned, a sample answered twice, a shard without a worker, a line cut off."""
    here = experiment(tmp_path, [record(n) for n in range(40)], shard_size=10)
    piece = closed_loop(30, 3, lambda chance, n: chance.uniform(5, 90))
    write_attempt(here, 0, 1, [*piece[:6], failed(6, 900, 901)])
    write_attempt(here, 0, 2, [*piece[5:10]])
    write_attempt(here, 1, 1, [])
    write_attempt(here, 2, 1, [dataclasses.replace(one, tries=2) for one in piece[10:]])
    with here.shard_responses("rt", 2, 1).open("ab") as file:
        file.write(lines_of(piece[0].to_json())[:-9])
    (run_task,) = here.resolved.run_tasks
    found = measure_performance(here, run_task)
    assert (found["requests"], found["answered"], found["tries"]) == (32, 31, 52)
    for name, expected in plain_speed.measure(list(pieces_of(here, "rt"))).items():
        assert found[name] == expected, name
