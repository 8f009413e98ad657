"""Live messages: numbers, resuming, readers that come late or never."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from hpcbench.portal import broadcast as hubs
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.models.live import ClusterNews, News, Reset


def news(seq: int, time: float) -> News:
    return ClusterNews(seq=seq, time=time)


def test_messages_come_in_order_and_are_numbered_without_gaps() -> None:
    hub = Hub()
    start = hub.seq
    for _ in range(3):
        hub.publish(news)
    found = hub.since(start)
    assert [one.seq for one in found.news] == [start + 1, start + 2, start + 3]
    assert found.seq == hub.seq == start + 3


def test_a_reader_resumes_behind_its_last_message() -> None:
    hub = Hub()
    for _ in range(5):
        hub.publish(news)
    assert [one.seq for one in hub.since(hub.seq - 2).news] == [hub.seq - 1, hub.seq]
    assert hub.since(hub.seq).news == ()


def test_a_reader_that_was_away_for_too_long_is_asked_to_fetch_everything() -> None:
    hub = Hub(ring=4)
    start = hub.seq
    for _ in range(4):
        hub.publish(news)
    assert len(hub.since(start).news) == 4, "all four are still there"
    hub.publish(news)
    (only,) = hub.since(start).news
    assert isinstance(only, Reset)
    assert only.seq == hub.seq, "and goes on from now"
    assert len(hub.since(start + 1).news) == 4


@pytest.mark.parametrize("after", [0, 10**16])
def test_a_number_of_another_start_is_not_believed(after: int) -> None:
    hub = Hub()
    hub.publish(news)
    (only,) = hub.since(after).news
    assert isinstance(only, Reset)


def test_numbers_grow_from_one_start_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs.time, "time", lambda: 1_000_000.0)
    before = Hub()
    for _ in range(500):
        before.publish(news)
    monkeypatch.setattr(hubs.time, "time", lambda: 1_000_001.0)
    after = Hub()
    assert after.seq > before.seq
    (only,) = after.since(before.seq).news
    assert isinstance(only, Reset)


async def test_subscribers_get_what_other_threads_publish() -> None:
    hub = Hub()
    many = 200

    async def read(started: asyncio.Event) -> list[int]:
        found = []
        with hub.reading():
            place = hub.seq
            while len(found) <= many:
                polled = await hub.wait(place, 60.0)
                found += [one.seq for one in polled.news]
                place = polled.seq
                started.set()
        return found

    events = [asyncio.Event() for _ in range(3)]
    readers = [asyncio.ensure_future(read(event)) for event in events]
    while hub._readers < 3:
        await asyncio.sleep(0)
    hub.publish(news)
    for event in events:
        await event.wait()
    threads = [
        threading.Thread(target=lambda: [hub.publish(news) for _ in range(many // 4)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    found = await asyncio.gather(*readers)
    assert all(one == list(range(one[0], one[0] + many + 1)) for one in found)
    assert not hub.watched, "all have gone"


def test_the_end_ends_all_readers() -> None:
    hub = Hub()

    async def read() -> list[News]:
        found, place = list[News](), hub.seq
        with hub.reading():
            while not hub.closed:
                polled = await hub.wait(place, 60.0)
                found += polled.news
                place = polled.seq
        return found

    async def both() -> list[News]:
        reader = asyncio.ensure_future(read())
        while not hub.watched:
            await asyncio.sleep(0)
        hub.publish(news)
        await asyncio.sleep(0)
        hub.close()
        return await asyncio.wait_for(reader, 20)

    assert len(asyncio.run(both())) <= 1
    assert hub.closed


def test_a_wait_without_news_ends_and_leaves_nothing_behind() -> None:
    hub = Hub()
    found = asyncio.run(hub.wait(hub.seq, 0.01))
    assert found.news == ()
    assert not hub._waiting


def test_it_is_watched_while_a_client_reads_or_has_just_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    clock: Callable[[], float] = lambda: now  # noqa: E731 - reads the variable
    monkeypatch.setattr(hubs.time, "monotonic", clock)
    hub = Hub()
    assert not hub.watched
    with hub.reading():
        assert hub.watched
    assert not hub.watched
    hub.polled()
    assert hub.watched
    now += hubs.POLL_COUNTS_SECONDS + 1
    assert not hub.watched
