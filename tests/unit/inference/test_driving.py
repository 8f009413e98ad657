"""Many requests at once: how many, when, and what becomes of them when something ends."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hpcbench.inference.adaptive import Adaptive
from hpcbench.inference.arrivals import constant, poisson
from hpcbench.inference.client import EngineGone
from hpcbench.inference.client_health import Health, watched
from hpcbench.inference.load_driver import AHEAD, drive, warm_up
from hpcbench.schema.records import Request, Response
from tests.mock_openai import Script
from tests.unit.inference.talking import request, talking


async def test_drive_takes_no_more_than_it_can_ask() -> None:
    taken: list[str] = []

    def endless() -> Iterator[Request]:
        for number in itertools.count():
            taken.append(f"s{number}")
            yield request(taken[-1])

    async with talking(Script(gap=0.01)) as (client, server):
        stop = asyncio.Event()
        seen: list[Response] = []
        async for response in drive(client, endless(), 4, stop):
            seen.append(response)
            assert len(taken) - len(seen) <= 8 + AHEAD + 2  # asked and answered; ahead
            if len(seen) == 20:
                stop.set()
        assert server.most_active == 4
        assert len(server.seen) == len(seen) <= 28
        assert {response.outcome for response in seen} == {"ok"}
        assert {response.sample_id for response in seen} <= set(taken)


async def test_a_slow_reader_holds_drive_up() -> None:
    async with talking() as (client, server):
        driving = drive(client, (request(f"s{n}") for n in range(100)), 2, asyncio.Event())
        assert (await anext(driving)).outcome == "ok"
        await asyncio.sleep(0.1)
        assert len(server.seen) <= 1 + 2 + 2  # yielded, waiting, held by their slots
        assert len([response async for response in driving]) == 99


async def test_drive_takes_requests_from_an_async_source_that_may_wait() -> None:
    async def source() -> AsyncIterator[Request]:
        for number in range(3):
            yield request(f"s{number}")
        await asyncio.Event().wait()

    async with talking() as (client, _):
        stop = asyncio.Event()
        ids = set()
        async for response in drive(client, source(), 8, stop):
            ids.add(response.sample_id)
            if len(ids) == 3:
                stop.set()
        assert ids == {"s0", "s1", "s2"}


async def test_drive_ends_at_once_when_it_is_stopped_before_it_begins() -> None:
    async with talking() as (client, server):
        stop = asyncio.Event()
        stop.set()
        assert [r async for r in drive(client, [request()], 2, stop)] == []
        assert [r async for r in drive(client, [], 2, asyncio.Event())] == []
        assert server.seen == []


async def test_a_lost_engine_ends_drive_after_what_was_answered() -> None:
    plan = ["ok", "ok", "ok", "hang", "no_model"]
    async with talking(Script(plan=plan)) as (client, server):
        requests = [request(f"s{number}") for number in range(50)]
        driving = drive(client, requests, 2, asyncio.Event())
        seen = [(await anext(driving)).sample_id for _ in range(3)]
        with pytest.raises(EngineGone) as gone:
            await anext(driving)
        # which of two that are sent at once the server gets first is chance; the sums are not
        assert len(gone.value.in_flight) == 2
        assert {*seen, *gone.value.in_flight} == {"s0", "s1", "s2", "s3", "s4"}
        assert len(server.seen) == 5


async def test_a_mistake_in_the_source_comes_out_of_drive() -> None:
    def broken() -> Iterator[Request]:
        yield request("s0")
        raise KeyError("field")

    async with talking() as (client, _):
        with pytest.raises(KeyError, match="field"):
            _ = [r async for r in drive(client, broken(), 1, asyncio.Event())]


async def test_drive_can_be_left_early() -> None:
    async with talking(Script(gap=0.01)) as (client, server):
        driving = drive(client, [request(f"s{n}") for n in range(9)], 3, asyncio.Event())
        await anext(driving)
        await driving.aclose()
        while server.active:
            await asyncio.sleep(0.01)


async def test_what_is_in_flight_when_drive_is_stopped_is_answered() -> None:
    async with talking(Script(first=0.1)) as (client, server):
        stop = asyncio.Event()
        driving = drive(client, (request(f"s{n}") for n in range(99)), 3, stop)

        async def stop_when_all_are_asked() -> None:
            while server.active < 3:
                await asyncio.sleep(0.005)
            stop.set()

        stopping = asyncio.ensure_future(stop_when_all_are_asked())
        outcomes = [response.outcome async for response in driving]
        await stopping
        assert outcomes == ["ok"] * 3
        assert (len(server.seen), server.left) == (3, 0)


async def test_requests_are_prepared_in_other_threads_and_one_after_the_other() -> None:
    here = threading.get_ident()
    inside = threading.Lock()

    def source() -> Iterator[Request]:
        for number in range(20):
            assert threading.get_ident() != here
            assert inside.acquire(blocking=False)
            time.sleep(0.001)
            inside.release()
            yield request(f"s{number}")

    async with talking() as (client, _):
        assert len([r async for r in drive(client, source(), 4, asyncio.Event())]) == 20


async def test_the_next_image_is_read_while_the_last_answer_is_awaited(tmp_path: Path) -> None:
    pages = [tmp_path / f"{number}.png" for number in range(3)]
    for page in pages:
        page.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2**20))
    async with talking(Script(first=0.25)) as (client, _):
        requests = [request(page.name, page) for page in pages]
        responses = [r async for r in drive(client, requests, 1, asyncio.Event())]
    for before, after in itertools.pairwise(responses):
        # its slot became free when the one before was answered; its body was ready by then
        assert before.times.done <= after.times.start < after.times.send
    # On a busy machine one of them may come late: the quicker of two counts, with half of an answer's time.
    waits = [one.times.send - one.times.start for one in responses[1:]]
    assert min(waits) < 0.125e9


async def test_an_answer_that_is_being_counted_does_not_hold_the_engine_up() -> None:
    counting = threading.Semaphore(0)

    def count(text: str) -> int:
        counting.acquire(timeout=10)
        return len(text)

    async with talking(recount=count) as (client, server):
        driving = drive(client, [request(f"s{n}") for n in range(2)], 1, asyncio.Event())
        first = asyncio.ensure_future(anext(driving))
        while len(server.seen) < 2:  # the second is asked though the first is not counted
            await asyncio.sleep(0.005)
        counting.release(2)
        assert (await first).recount == len("".join(Script().pieces))
        assert [response.outcome async for response in driving] == ["ok"]


async def test_answers_that_are_being_counted_survive_the_loss_of_the_engine() -> None:
    def slowly(text: str) -> int:
        time.sleep(0.2)
        return 1

    async with talking(Script(plan=["ok", "no_model"]), recount=slowly) as (client, _):
        driving = drive(client, [request("s0"), request("s1")], 1, asyncio.Event())
        assert (await anext(driving)).outcome == "ok"
        with pytest.raises(EngineGone) as gone:
            await anext(driving)
        assert gone.value.in_flight == ("s1",)


def test_arrivals_have_the_rate_that_was_asked_for() -> None:
    assert list(itertools.islice(constant(4), 5)) == [0, 0.25, 0.5, 0.75, 1]
    offsets = list(itertools.islice(poisson(50, seed=3), 20_000))
    assert offsets == list(itertools.islice(poisson(50, seed=3), 20_000))
    assert offsets != list(itertools.islice(poisson(50, seed=4), 20_000))
    gaps = [after - before for before, after in itertools.pairwise([0.0, *offsets])]
    # an exponential's deviation is its mean; 20,000 of them know it to 1 %
    assert statistics.fmean(gaps) == pytest.approx(1 / 50, rel=0.04)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.06)
    assert min(gaps) > 0


async def test_a_rate_sends_whatever_is_outstanding() -> None:
    async with talking(Script(first=0.3)) as (client, server):
        requests = (request(f"s{n}") for n in range(10))
        driving = drive(client, requests, 64, asyncio.Event(), arrivals=constant(100))
        responses = [response async for response in driving]
        assert server.most_active == 10  # all were sent before the first was answered
        times = sorted((r.times for r in responses), key=lambda times: times.send)
        scheduled = [times.scheduled or 0 for times in times]
        gaps = [after - before for before, after in itertools.pairwise(scheduled)]
        assert all(gap == pytest.approx(1e7, abs=1) for gap in gaps)
        assert all(times.send >= (times.scheduled or 0) for times in times)


async def test_a_rate_that_cannot_be_kept_is_seen_in_the_times() -> None:
    async with talking(Script(first=0.1)) as (client, server):
        requests = (request(f"s{n}") for n in range(6))
        driving = drive(client, requests, 2, asyncio.Event(), arrivals=constant(1000))
        responses = [response async for response in driving]
        assert server.most_active == 2
        late = [r.times.send - (r.times.scheduled or 0) for r in responses]
        assert max(late) > 0.15e9  # the last two waited for two rounds of answers
        assert all(r.times.start >= (r.times.scheduled or 0) for r in responses)


async def test_a_finite_schedule_ends_the_run() -> None:
    async with talking() as (client, server):
        endless = (request(f"s{n}") for n in itertools.count())
        driving = drive(client, endless, 9, asyncio.Event(), arrivals=[0, 0, 0.01])
        assert len([response async for response in driving]) == len(server.seen) == 3


async def test_the_limit_that_adapts_is_the_number_in_flight() -> None:
    class Growing(Adaptive):
        def completed(self, now: float) -> None:
            self.limit = 5

    async with talking(Script(first=0.05)) as (client, server):
        adaptive = Growing(first=1)
        driving = drive(client, (request(f"s{n}") for n in range(30)), adaptive, asyncio.Event())
        responses = [response async for response in driving]
        assert (len(responses), server.most_active) == (30, 5)


async def test_a_limit_is_learnt_in_runs_shorter_than_a_window() -> None:
    async with talking(Script(first=0.03)) as (client, server):
        adaptive = Adaptive(first=2)
        for _ in range(4):
            requests = [request(f"s{n}") for n in range(12)]
            driving = drive(client, requests, adaptive, asyncio.Event())
            assert len([response async for response in driving]) == 12
            await asyncio.sleep(0.15)  # a pause that is no engine's
        assert adaptive.limit > 2
        assert server.most_active > 2


async def test_a_request_starts_when_a_higher_limit_made_room_for_it() -> None:
    class Growing(Adaptive):
        def completed(self, now: float) -> None:
            self.limit = 5

    async with talking(Script(first=0.3)) as (client, _):
        requests = [request(f"s{n}") for n in range(4)]
        driving = drive(client, requests, Growing(first=1), asyncio.Event())
        first, *others = [response async for response in driving]
    for one in others:
        assert first.times.done <= one.times.start <= one.times.send < first.times.done + 0.2e9


async def test_the_engines_own_queue_is_read_from_its_metrics() -> None:
    async with talking() as (client, server):
        assert await client.waiting() is None
        server.metrics = (
            "# HELP vllm:num_requests_waiting x\n"
            'vllm:num_requests_waiting{engine="0",model_name="m"} 3.0\n'
            'vllm:num_requests_waiting{engine="1",model_name="m"} 4.0\n'
            'vllm:num_requests_waiting_by_reason{reason="x"} 9.0\n'
        )
        assert await client.waiting() == 7


async def test_a_warm_up_asks_each_item_once_and_gives_nothing_back() -> None:
    async with talking(Script(plan=["ok", "status:400"])) as (client, server):
        assert await warm_up(client, [request(f"s{n}") for n in range(5)], 2) == 4
        assert len(server.seen) == 5


async def test_the_clients_own_health_is_watched() -> None:
    health = Health()
    async with talking(Script(first=0.3)) as (client, _):
        while health.ticks < 2:  # a busy machine takes longer
            driving = drive(client, [request()], 1, asyncio.Event(), health=health)
            _ = [response async for response in driving]
    assert health.seconds > 0.3
    assert 0 < health.lag_ms(0.5) <= health.lag_ms(0.99) <= health.longest_ms + 0.02
    assert set(health.to_json()) >= {"lag_p50_ms", "lag_p99_ms", "lag_max_ms", "cpu_share"}


async def test_a_loop_that_is_held_up_is_seen() -> None:
    health = Health()
    async with talking(Script(first=0.05)) as (client, _):
        driving = drive(client, [request()], 1, asyncio.Event(), health=health)
        asked = asyncio.ensure_future(anext(driving))
        while not asked.done():
            time.sleep(0.03)  # as a careless caller might
            await asyncio.sleep(0)
        await driving.aclose()
    assert health.longest_ms > 10


OPEN = Path("/proc/self/fd")


async def test_the_lag_is_sampled_without_a_thread_and_leaves_no_file_open() -> None:
    health, files = Health(), len(list(OPEN.iterdir()))
    threads = threading.active_count()
    with watched(health):
        assert threading.active_count() == threads
        while health.ticks < 20:
            await asyncio.sleep(0.01)
    assert len(list(OPEN.iterdir())) == files
    assert health.seconds > 0.1  # 20 samples, 0.04 s apart on average
    assert 0 <= health.lag_ms(0.5) <= health.longest_ms + 0.02


def test_a_run_is_bound_by_the_client_when_the_lag_is_long_and_matters() -> None:
    health = Health()
    for lag in [0.1] * 97 + [3.0] * 3:
        health.add(lag)
    assert health.lag_ms(0.5) == pytest.approx(0.1)
    assert health.lag_ms(0.99) == pytest.approx(3.0)
    assert health.client_bound(median_ttft_ms=100)  # 3 ms of 100: comparisons would be of clients
    assert not health.client_bound(median_ttft_ms=1000)  # 0.3 % of what is measured
    quick = Health()
    quick.add(0.9)
    assert not quick.client_bound(median_ttft_ms=1)  # as precise as time stamps are meant to be
