"""The two threads behind the Hugging Face engine: one prepares requests, one generates batches of them.

Preparing a page takes tens of milliseconds and needs no model, so it runs while the previous batch is
generated. Their events go to the event loop, once per step for all rows of a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Protocol

from hpcbench.engines.chat import ApiError
from hpcbench.engines.hf_batch import Event, HandOver, Job, Piece, Row
from hpcbench.engines.hf_model import out_of_memory
from hpcbench.engines.hf_queue import Line


class Model(Protocol):
    """The part of `HfModel` that the threads use."""

    def prepare(self, job: Job) -> Row: ...
    def generate(self, rows: Sequence[Row], hand_over: HandOver) -> None: ...
    def recover(self) -> None: ...
    def figures(self) -> Mapping[str, int]: ...


class Worker:
    """Owns the model and its threads; created and used on the event loop."""

    def __init__(self, model: Model, max_batch: int, wait_seconds: float) -> None:
        self.model = model
        self.line: Line[Row] = Line(max_batch, wait_seconds)
        self.batches: Counter[int] = Counter()
        """Calls of `generate` by number of requests."""
        self.prompt_tokens = self.completion_tokens = 0
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._prepare, name="prepare", daemon=True),
            threading.Thread(target=self._generate, name="generate", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue a request; its answer comes through `job.say`, on the event loop."""
        self.line.announce()
        self._inbox.put(job)

    def close(self, seconds: float = 5) -> None:
        """End both threads; a step of the model that takes longer ends with the process."""
        self._inbox.put(None)
        self.line.close()
        for thread in self._threads:
            thread.join(seconds)

    def _prepare(self) -> None:
        while (job := self._inbox.get()) is not None:
            row = None
            try:
                row = None if job.cancelled else self.model.prepare(job)
            except ApiError as error:
                self._post([(job, error)])
            except Exception as error:  # noqa: BLE001 - one request must not end the engine
                traceback.print_exc()
                self._post([(job, _api_error(error))])
            if row is None:
                self.line.drop()
            else:
                self.line.put(row)

    def _generate(self) -> None:
        while rows := self.line.take():
            self.prompt_tokens += sum(row.tokens for row in rows)
            error = self._attempt(rows)
            if error is None:
                continue
            if out_of_memory(error) and len(rows) > 1:
                self.line.max_batch = len(rows) // 2
                fewer = f"at most {self.line.max_batch} requests from now on"
                print(f"hpcbench: no memory for this batch: {fewer}", flush=True)  # noqa: T201
            for row in rows:  # alone a row may fit, and its fault harms no other row
                if not row.over and (error := self._attempt([row])) is not None:
                    row.over = True
                    self._hand_over([(row.job, _api_error(error))])

    def _attempt(self, rows: Sequence[Row]) -> Exception | None:
        """Generate; returns the error, without the frames that hold tensors."""
        self.batches[len(rows)] += 1
        try:
            self.model.generate(rows, self._hand_over)
        except Exception as error:  # noqa: BLE001 - reported to the clients
            traceback.print_exc()
            failure = error.with_traceback(None)
            failure.__context__ = failure.__cause__ = None
        else:
            return None
        try:
            self.model.recover()
        except RuntimeError:
            traceback.print_exc()
            os._exit(
                1
            )  # this process can generate nothing any more; its parent sees why in the log
        return failure

    def _hand_over(self, events: list[tuple[Job, Event]]) -> None:
        for _, event in events:
            if isinstance(event, Piece):
                self.completion_tokens += 1
        self._post(events)

    def _post(self, events: list[tuple[Job, Event]]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: no client listens
            self._loop.call_soon_threadsafe(_say, events)


def _say(events: list[tuple[Job, Event]]) -> None:
    for job, event in events:
        job.say(event)


def _api_error(error: Exception) -> ApiError:
    if out_of_memory(error):
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return ApiError(503, f"out of memory, even alone in a batch: {first}", "out_of_memory")
    return ApiError(500, f"{type(error).__name__}: {error}", "generation_failed")
