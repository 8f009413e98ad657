"""Requests of a batch that fails, and waiting ones. The GPU is a fake: it fails as torch documents it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from aiohttp import web

from hpcbench.engines.chat import ApiError
from hpcbench.engines.hf_batch import Event, HandOver, Job, Piece, Row
from hpcbench.engines.hf_model import HfModel
from hpcbench.engines.hf_server import application
from hpcbench.engines.hf_worker import Worker
from hpcbench.inference.client import Client
from tests.engine.test_hf_batching import DEMO, alone, load, request
from tests.unit.inference.talking import request as asked

pytestmark = pytest.mark.engine


class Pretended:
    """The tiny model on a pretended GPU that holds `room` requests and cannot stand the word CRASH.

    It fails after the third token of a batch, as one does whose memory ends while the answers grow.
    """

    def __init__(self, model: HfModel, room: int) -> None:
        self._model, self.room = model, room

    def prepare(self, job: Job) -> Row:
        if "BROKEN" in str(job.ask.messages):
            raise KeyError("a bug")
        return self._model.prepare(job)

    def generate(self, rows: Sequence[Row], hand_over: HandOver) -> None:
        steps = 0
        crash = any("CRASH" in str(row.job.ask.messages) for row in rows)

        def failing(events: list[tuple[Job, Event]]) -> None:
            nonlocal steps
            hand_over(events)
            steps += 1
            if steps == 3 and len(rows) > self.room:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            if steps == 3 and crash:
                raise RuntimeError("something else")

        self._model.generate(rows, failing)

    def recover(self) -> None:
        self._model.recover()

    def figures(self) -> Mapping[str, int]:
        return self._model.figures()


@pytest.fixture(scope="module")
def model() -> HfModel:
    return load(DEMO / "model")


@pytest.fixture(scope="module")
def pages() -> list[bytes]:
    return [path.read_bytes() for path in sorted((DEMO / "data/images").rglob("*.png"))[:4]]


def heard(job: Job) -> list[Event]:
    """A list that will hold what is said to a job."""
    events: list[Event] = []
    job.say = events.append
    return events


async def answered(worker: Worker, jobs: Sequence[Job]) -> list[list[Event]]:
    """Put all in line at once; what was said to each, once each has its answer."""
    said = [heard(job) for job in jobs]
    for job in jobs:
        worker.submit(job)
    while not all(events and _last(events[-1]) for events in said):
        await asyncio.sleep(0.01)
    return said


def _last(event: Event) -> bool:
    return isinstance(event, ApiError) or bool(event.reason)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def text(events: Sequence[Event]) -> str:
    pieces = [event for event in events if isinstance(event, Piece)]
    assert [piece.tokens for piece in pieces] == list(range(1, len(pieces) + 1))  # none said twice
    return "".join(piece.text for piece in pieces)


async def test_a_batch_without_memory_is_generated_one_by_one_and_goes_on_where_it_was(
    model: HfModel, pages: list[bytes]
) -> None:
    def jobs() -> list[Job]:
        form = {"type": "json_object"}
        last = request(pages[3], response_format=form, max_tokens=20)
        return [
            request(pages[0]),
            request(pages[1], temperature=4.0, seed=1),
            request(pages[2]),
            last,
        ]

    worker = Worker(Pretended(model, room=2), 4, 0.01)
    first = await answered(worker, jobs())
    second = await answered(worker, jobs())
    worker.close()
    wanted = [alone(model, job)[1] for job in jobs()]
    assert [text(events) for events in first] == wanted
    assert [text(events) for events in second] == wanted
    assert dict(worker.batches) == {4: 1, 1: 4, 2: 2}  # then batches that fit
    assert (worker.line.running, worker.line.waiting) == (0, 0)


async def test_a_request_too_large_for_the_memory_gets_503_and_the_engine_lives_on(
    model: HfModel, pages: list[bytes]
) -> None:
    gpu = Pretended(model, room=0)
    worker = Worker(gpu, 4, 0.01)
    [failed] = await answered(worker, [request(pages[0])])
    gpu.room = 4
    [after] = await answered(worker, [request(pages[0])])
    worker.close()
    error, after = [failed[-1], after[-1]]
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (503, "out_of_memory")
    assert "Tried to allocate 2.00 GiB" in error.message
    assert isinstance(after, Piece)


async def test_what_is_wrong_with_one_request_harms_no_other(
    model: HfModel, pages: list[bytes]
) -> None:
    worker = Worker(Pretended(model, room=9), 4, 0.01)
    jobs = [request(page) for page in pages[:2]]
    jobs.insert(1, request(pages[2], text="CRASH", ignore_eos=True))
    jobs.insert(1, request(pages[2], text="BROKEN"))
    said = await answered(worker, jobs)
    worker.close()
    good, broken, crashed, also_good = said
    assert text(good) == alone(model, request(pages[0]))[1]
    assert text(also_good) == alone(model, request(pages[1]))[1]
    for events, message in (
        (broken, "KeyError: 'a bug'"),
        (crashed, "RuntimeError: something else"),
    ):
        error = events[-1]
        assert isinstance(error, ApiError)
        assert (error.status, error.code, error.message) == (500, "generation_failed", message)


async def test_a_request_that_was_given_up_in_line_is_never_generated(
    model: HfModel, pages: list[bytes]
) -> None:
    worker = Worker(model, 1, 0.0)
    gone = request(pages[0])
    said = heard(gone)
    gone.cancelled = True
    worker.submit(gone)
    await answered(worker, [request(pages[1], max_tokens=2)])
    worker.close()
    assert said == []
    assert sum(worker.batches.values()) == 1


async def test_a_client_that_leaves_amidst_a_batch_is_not_counted_as_running(
    model: HfModel, pages: list[bytes]
) -> None:
    worker = Worker(model, 2, 5.0)
    left, stays = (request(page, max_tokens=40, ignore_eos=True) for page in pages[:2])
    running = []

    def say(event: Event) -> None:
        left.cancelled = True
        running.append(worker.line.running)

    events = heard(stays)
    keep, stays.say = stays.say, lambda event: (say(event), keep(event))[1]
    for job in (left, stays):
        worker.submit(job)
    while not (events and _last(events[-1])):
        await asyncio.sleep(0.01)
    worker.close()
    assert dict(worker.batches) == {2: 1}
    assert len(running) == 40
    assert set(running[2:20]) == {1}


LOST = """
import asyncio
from hpcbench.engines.hf_server import application
from hpcbench.engines.hf_worker import Worker
from hpcbench.inference.client import Client
from tests.engine.test_hf_batching import DEMO, load, request

class Lost:  # a GPU whose context is gone, as after a device-side assert
    def __init__(self): self.prepare = load(DEMO / "model").prepare
    def generate(self, rows, hand_over): raise RuntimeError("CUDA error: device-side assert triggered")
    def recover(self): raise RuntimeError("CUDA error: device-side assert triggered")

async def main():
    Worker(Lost(), 1, 0.0).submit(request(text="?"))
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_gpu_that_is_gone_ends_the_process_with_the_reason_in_its_log() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "device-side assert triggered" in done.stderr


async def test_the_queue_of_our_own_engine_is_read_by_the_names_it_really_writes(
    tmp_path: Path,
) -> None:
    class Busy:
        """A model whose preparation has no end."""

        prepared = threading.Event()

        def prepare(self, job: object) -> None:
            self.prepared.wait(20)

        def figures(self) -> dict[str, int]:
            return {}

    model = Busy()
    app = application(cast(Any, model), "tiny", 8, 0.01)
    server = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await server.setup()
    await web.UnixSite(server, str(tmp_path / "s")).start()
    async with Client(str(tmp_path / "s"), "key", "tiny") as client:
        assert await client.waiting() == 0
        asking = [asyncio.ensure_future(client.ask(asked(f"s{n}"))) for n in range(3)]
        while await client.waiting() != 3:
            await asyncio.sleep(0.01)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    model.prepared.set()
    await server.cleanup()
