"""The client against a scripted server: what it makes of answers, failures, time and too much work."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench import inference
from hpcbench.errors import RunFailed
from hpcbench.inference import Client, EngineGone, EventParser, drive, prepare
from hpcbench.schema.records import Message, Request, Response
from tests.mock_openai import Script, Server, image_hashes

TEXT = "".join(Script().pieces)


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "_PAUSE", 0.001)


@contextlib.asynccontextmanager
async def talking(script: Script | None = None) -> AsyncIterator[tuple[Client, Server]]:
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        path = f"{folder}/s"
        async with Server(path, script) as server, Client(path, "key", "tiny") as client:
            yield client, server


def request(name: str = "s1", *images: Path, timeout: float = 30, **generation: Any) -> Request:
    messages = (Message("system", "Be short."), Message("user", "What is ünder?", images))
    return Request(name, messages, {"max_tokens": 9, "seed": None, **generation}, timeout)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))


def answer(script: Script, *images: Path, timeout: float = 30) -> tuple[Response, Server]:
    async def one() -> tuple[Response, Server]:
        async with talking(script) as (client, server):
            return await client.ask(request("s1", *images, timeout=timeout)), server

    return run(one())


def test_an_answer_comes_with_text_usage_and_times() -> None:
    response, server = answer(Script())
    assert (response.outcome, response.text, response.tries) == ("ok", TEXT, 1)
    assert response.usage == {"prompt_tokens": 7, "completion_tokens": 4}
    assert (response.finish_reason, response.error) == ("stop", None)
    times = response.times
    assert len(times.chunks) == len(Script().pieces)
    assert times.headers is not None
    ordered = [times.start, times.send, times.headers, *times.chunks, times.done]
    assert ordered == sorted(ordered)
    body = json.loads(server.seen[0]["raw"])
    assert body["messages"][0] == {"role": "system", "content": "Be short."}
    assert body["messages"][1] == {"role": "user", "content": "What is ünder?"}
    assert (body["model"], body["max_tokens"]) == ("tiny", 9)
    assert "seed" not in body
    assert server.seen[0]["headers"]["X-API-Key"] == "key"
    assert Response.from_json(json.loads(json.dumps(response.to_json()))) == response


def test_each_text_is_stamped_after_the_server_sent_it() -> None:
    response, server = answer(Script(first=0.05, gap=0.02))
    sent = [moment for _, moment in server.events][1 : 1 + len(Script().pieces)]
    chunks = response.times.chunks
    assert all(left <= came for left, came in zip(sent, chunks, strict=True))
    # each arrived before the next was sent: times are not those of a whole buffer
    assert all(came < after for came, after in zip(chunks, sent[1:], strict=False))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("block", "decorate"), [(1, True), (3, False), (7, True), (0, True)])
def test_a_stream_may_be_cut_anywhere(newline: str, block: int, decorate: bool) -> None:
    response, _ = answer(Script(newline=newline, block=block, decorate=decorate))
    assert (response.outcome, response.text) == ("ok", TEXT)
    assert len(response.times.chunks) == len(Script().pieces)


@pytest.mark.parametrize(
    ("act", "outcome", "text", "reason"),
    [
        ("length", "truncated", TEXT, "length"),
        ("content_filter", "refused", TEXT, "content_filter"),
        ("no_usage", "ok", TEXT, "stop"),
    ],
)
def test_the_finish_reason_decides(act: str, outcome: str, text: str, reason: str) -> None:
    response, server = answer(Script(plan=[act]))
    assert (response.outcome, response.text, response.finish_reason) == (outcome, text, reason)
    assert (response.usage is None) == (act == "no_usage")
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "act",
    ["status:500", "status:502", "status:503", "status:429", "status:408"]
    + ["cut", "unfinished", "error_event", "drop", "abort"],
)
def test_what_may_pass_is_tried_again_three_times_in_all(act: str) -> None:
    twice, server = answer(Script(plan=[act, act]))
    assert (twice.outcome, twice.text, twice.tries, twice.error) == ("ok", TEXT, 3, None)
    assert len(server.seen) == 3
    always, server = answer(Script(plan=[act] * 9))
    assert (always.outcome, always.text, always.usage, always.tries) == ("failed", None, None, 3)
    assert always.error
    assert "\n" not in always.error
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "invalid"), (413, "invalid"), (422, "invalid"), (404, "failed"), (405, "failed")],
)
def test_what_will_not_pass_is_not_tried_again(status: int, outcome: str) -> None:
    response, server = answer(Script(plan=[f"status:{status}"]))
    assert (response.outcome, response.tries, len(server.seen)) == (outcome, 1, 1)
    assert response.error is not None
    assert f"scripted {status}" in response.error


def test_the_deadline_counts_over_all_tries() -> None:
    hung, server = answer(Script(plan=["hang"]), timeout=0.2)
    assert (hung.outcome, hung.tries) == ("failed", 1)
    assert hung.error == "no answer before the deadline"
    slow, _ = answer(Script(gap=5), timeout=0.3)
    assert (slow.outcome, slow.text) == ("failed", None)
    late, server = answer(Script(), timeout=-1)
    assert (late.outcome, late.tries, len(server.seen)) == ("failed", 0, 0)
    assert late.error == "no time was left to ask"
    tried, server = answer(Script(plan=["status:500", "hang"]), timeout=0.4)
    assert (tried.outcome, tried.tries, len(server.seen)) == ("failed", 2, 2)


def test_a_missing_engine_is_nobodys_answer() -> None:
    with pytest.raises(EngineGone, match="no model is ready"):
        answer(Script(plan=["no_model"]))
    with pytest.raises(EngineGone, match="does not answer on /nowhere"):
        run(ask_at("/nowhere"))
    with pytest.raises(RunFailed, match="refuses our key"):
        answer(Script(plan=["status:401"]))


async def ask_at(path: str) -> None:
    async with Client(path, "key", "tiny") as client:
        await client.ask(request())


def test_images_arrive_byte_for_byte_in_their_order(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    files[0].write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    files[1].write_bytes(b"\xff\xd8\xff" + b"\0" * 1_500_000)  # above aiohttp's limit for bytes
    response, server = answer(Script(), *files)
    hashes = tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    assert response.image_sha256 == hashes
    assert tuple(image_hashes(server.seen[0]["raw"])) == hashes
    content = json.loads(server.seen[0]["raw"])["messages"][1]["content"]
    assert [part["type"] for part in content] == ["image_url", "image_url", "text"]


@pytest.mark.parametrize(
    ("magic", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"II*\0", "image/tiff"),
        (b"MM\0*", "image/tiff"),
        (b"GIF89a", "image/gif"),
        (b"BM\0\0", "image/bmp"),
        (b"%PDF", "application/octet-stream"),
    ],
)
def test_the_kind_of_image_is_read_from_its_first_bytes(
    tmp_path: Path, magic: bytes, mime: str
) -> None:
    file = tmp_path / "page.xyz"
    file.write_bytes(magic)
    body, _ = prepare("tiny", request("s1", file))
    url = json.loads(body)["messages"][1]["content"][0]["image_url"]["url"]
    assert url.startswith(f"data:{mime};base64,")


def test_an_image_that_cannot_be_read_is_invalid_without_a_request(tmp_path: Path) -> None:
    empty = tmp_path / "empty.png"
    empty.touch()
    for path, why in (
        (tmp_path / "no.png", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (empty, "the image is empty"),
    ):
        response, server = answer(Script(), path)
        assert response.outcome == "invalid"
        assert response.error == f"image {path} cannot be read: {why}"
        assert (response.tries, server.seen, response.image_sha256) == (0, [], ())


def test_drive_takes_no_more_than_it_can_ask() -> None:
    taken: list[str] = []

    def endless() -> Iterator[Request]:
        for number in itertools.count():
            taken.append(f"s{number}")
            yield request(taken[-1])

    async def journey() -> None:
        async with talking(Script(gap=0.01)) as (client, server):
            stop = asyncio.Event()
            seen: list[Response] = []
            async for response in drive(client, endless(), 4, stop):
                seen.append(response)
                assert len(taken) - len(seen) <= 8  # four being asked, four waiting
                if len(seen) == 20:
                    stop.set()
            assert server.most_active == 4
            assert len(taken) == len(server.seen) == len(seen) <= 28
            assert {response.outcome for response in seen} == {"ok"}
            assert {response.sample_id for response in seen} == set(taken)

    run(journey())


def test_a_slow_reader_holds_drive_up() -> None:
    async def journey() -> None:
        async with talking() as (client, server):
            driving = drive(client, (request(f"s{n}") for n in range(100)), 2, asyncio.Event())
            assert (await anext(driving)).outcome == "ok"
            await asyncio.sleep(0.3)
            assert len(server.seen) <= 1 + 2 + 2  # yielded, waiting, held by their slots
            assert len([response async for response in driving]) == 99

    run(journey())


def test_drive_takes_requests_from_an_async_source_that_may_wait() -> None:
    async def source(stop: asyncio.Event) -> AsyncIterator[Request]:
        for number in range(3):
            yield request(f"s{number}")
        stop.set()
        await asyncio.Event().wait()

    async def journey() -> None:
        async with talking() as (client, _):
            stop = asyncio.Event()
            ids = [r.sample_id async for r in drive(client, source(stop), 8, stop)]
            assert sorted(ids) == ["s0", "s1", "s2"]

    run(journey())


def test_drive_ends_at_once_when_it_is_told_before_it_begins() -> None:
    async def journey() -> None:
        async with talking() as (client, server):
            stop = asyncio.Event()
            stop.set()
            assert [r async for r in drive(client, [request()], 2, stop)] == []
            assert [r async for r in drive(client, [], 2, asyncio.Event())] == []
            assert server.seen == []

    run(journey())


def test_a_lost_engine_ends_drive_after_what_was_answered() -> None:
    async def journey() -> None:
        plan = ["ok", "ok", "ok", "hang", "no_model"]
        async with talking(Script(plan=plan)) as (client, server):
            requests = [request(f"s{number}") for number in range(50)]
            driving = drive(client, requests, 2, asyncio.Event())
            seen = [(await anext(driving)).sample_id for _ in range(3)]
            with pytest.raises(EngineGone) as gone:
                await anext(driving)
            # which of the first five the server got first is chance; the sums are not
            assert len(gone.value.in_flight) == 2
            assert {*seen, *gone.value.in_flight} == {"s0", "s1", "s2", "s3", "s4"}
            assert len(server.seen) == 5

    run(journey())


def test_a_mistake_in_the_source_comes_out_of_drive() -> None:
    def broken() -> Iterator[Request]:
        yield request("s0")
        raise KeyError("field")

    async def journey() -> None:
        async with talking() as (client, _):
            with pytest.raises(KeyError, match="field"):
                _ = [r async for r in drive(client, broken(), 1, asyncio.Event())]

    run(journey())


def test_drive_can_be_left_early() -> None:
    async def journey() -> None:
        async with talking(Script(gap=0.01)) as (client, server):
            driving = drive(client, [request(f"s{n}") for n in range(9)], 3, asyncio.Event())
            await anext(driving)
            await driving.aclose()
            while server.active:
                await asyncio.sleep(0.01)

    run(journey())


def test_events_follow_the_standard() -> None:
    stream = (
        b": hi\ndata: a\ndata:b\n\ndata\n\nevent: x\ndata:  c\r\n\r\ndata: \xc3\xa9\r\rdata: lost"
    )
    whole = list(EventParser().feed(stream + b"\n"))
    assert whole == ["a\nb", " c", "é"]
    for size in range(1, 9):
        parser = EventParser()
        blocks = (stream[begin : begin + size] for begin in range(0, len(stream), size))
        assert [event for block in blocks for event in parser.feed(block)] == whole
