"""The samples of a shard as trajectories of an agent, each turn on the disk before the next one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench.agents.loop import End, Loop, ToolTimes
from hpcbench.agents.tools import Toolbox
from hpcbench.agents.trajectory import Trajectory
from hpcbench.data_uri import mime
from hpcbench.environments.orphans import held_folder
from hpcbench.experiment.claims import Claim
from hpcbench.inference.client import Client, EngineGone
from hpcbench.inference.load_driver import Budget
from hpcbench.inference.request_body import read_image
from hpcbench.schema.agent import Agent
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, Request, Response, Sample, Times


class Trajectories:
    """Answers samples by an agent.

    Args:
        run_task: the run task, with an agent.
        client: the client of the loaded model.
        tools: runs the agent's tools.
        times: how long tools take; kept for the whole worker.
        near: folder on this node for images.
        budget: limits the requests; None: there is no budget.
    """

    def __init__(
        self,
        run_task: ResolvedRunTask,
        client: Client,
        tools: Toolbox,
        times: ToolTimes,
        near: str,
        *,
        budget: Budget | None = None,
    ) -> None:
        agent = run_task.agent
        assert agent is not None
        self._agent: Agent = agent
        self._client, self._budget = client, budget
        self._near = near
        generation = run_task.task.generation
        self._loop = Loop(
            agent,
            tools,
            times,
            as_text=run_task.calls_as_text,
            context=run_task.model.context_length,
            answer_tokens=generation.max_tokens or 0,
            request_seconds=run_task.task.request_timeout,
        )
        self._asking: set[str] = set()
        """Samples with a request in flight."""
        self.turns = self.calls = 0
        """Turns and calls of finished trajectories."""

    async def answers(
        self,
        samples: Iterable[tuple[Sample, Request]],
        taken: Claim,
        at_once: int,
        stop: asyncio.Event,
    ) -> AsyncGenerator[Response, None]:
        """The answer to each sample whose trajectory ends before `stop` is set.

        Raises:
            EngineGone: the engine ended; its `in_flight` names the samples that waited for it.
        """
        known = await asyncio.to_thread(taken.turns)
        commits = _Commits(taken)
        source, found = iter(samples), asyncio.Queue[Response]()
        running: set[asyncio.Task[None]] = set()
        spent = asyncio.Event()

        async def work(sample: Sample, request: Request) -> None:
            lines = known.pop(sample.id, ())
            trajectory = Trajectory.of(sample.id, lines)
            response = await self._one(sample, request, trajectory, commits, stop, spent)
            if response is not None:
                found.put_nowait(response)

        ended = False
        try:
            while running or not ended:
                while not (ended or stop.is_set() or spent.is_set()) and len(running) < at_once:
                    one = await asyncio.to_thread(next, source, None)
                    if one is None:
                        ended = True
                        break
                    running.add(asyncio.create_task(work(*one)))
                ended = ended or stop.is_set() or spent.is_set()
                if running:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    while not found.empty():
                        yield found.get_nowait()
                    for task in done:
                        task.result()
        except EngineGone as gone:
            gone.in_flight = tuple(self._asking)
            raise
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await commits.close()

    async def _one(
        self,
        sample: Sample,
        request: Request,
        trajectory: Trajectory,
        commits: _Commits,
        stop: asyncio.Event,
        spent: asyncio.Event,
    ) -> Response | None:
        """Go on with a trajectory; None if it did not end."""
        begin = time.monotonic_ns()
        with held_folder(self._near) as folder:
            try:
                files = await asyncio.to_thread(_Files, folder, sample, trajectory)
            except OSError as error:
                path = f" {error.filename}" if error.filename else ""
                why = f"image{path} cannot be read: {error.strerror or error}"
                end: End | None = End("request_failed", None, why, "invalid")
            else:
                prompt = _first_images(request.messages, self._agent.show)
                ask = _Ask(self, request, spent)
                either = _Either(stop, spent)
                try:
                    end = await self._loop.run(
                        prompt, trajectory, files, ask, commits.write, either
                    )
                except _Unpaid:
                    return None
        if end is None:
            return None
        self.turns += len(trajectory.turns)
        self.calls += trajectory.calls.total()
        return _response(request, trajectory, end, begin)

    async def ask(self, request: Request, spent: asyncio.Event) -> Response:
        """Send one request of a trajectory.

        Raises:
            _Unpaid: the budget is used up.
            EngineGone: the engine ended.
        """
        client, budget = self._client, self._budget
        if budget is not None and not await budget.reserve(request):
            spent.set()
            raise _Unpaid
        response: Response | None = None
        self._asking.add(request.sample_id)
        try:
            await client.admitted()
            prepared = await client.prepare(request)
            response = await client.send(prepared, time.monotonic_ns())
        finally:
            if budget is not None:
                budget.spend(request, response)
        # Not in `finally`: when the engine is gone, this sample was in flight.
        self._asking.discard(request.sample_id)
        return response


class _Unpaid(Exception):
    """The budget is used up."""


class _Either(asyncio.Event):
    """Set if one of two events is."""

    def __init__(self, first: asyncio.Event, second: asyncio.Event) -> None:
        super().__init__()
        self._both = first, second

    def is_set(self) -> bool:
        return any(one.is_set() for one in self._both)


class _Ask:
    """Sends the requests of one trajectory."""

    def __init__(self, work: Trajectories, request: Request, spent: asyncio.Event) -> None:
        self._work, self._request, self._spent = work, request, spent

    async def __call__(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], seconds: float
    ) -> Response:
        request = replace(
            self._request, messages=tuple(messages), tools=tuple(tools), timeout=seconds, basis=""
        )
        return await self._work.ask(request, self._spent)


class _Files:
    """The images of a trajectory as files in a folder of its own.

    Raises:
        OSError: an image of the sample cannot be read.
    """

    def __init__(self, folder: Path, sample: Sample, trajectory: Trajectory) -> None:
        self._folder, self._trajectory = folder, trajectory
        self._pages = [
            image if isinstance(image, Path) else self._write(f"page{n}", read_image(image))
            for n, image in enumerate(sample.images, 1)
        ]
        self._made: list[Path] = []

    def pages(self) -> Sequence[Path]:
        """The sample's images."""
        return self._pages

    def made(self, place: int) -> Path:
        """An image that a tool made."""
        while len(self._made) <= place:
            number = len(self._made)
            self._made.append(self._write(f"made{number + 1}", self._trajectory.images[number]))
        return self._made[place]

    def _write(self, name: str, data: bytes) -> Path:
        file = self._folder / f"{name}.{mime(data).rpartition('/')[2]}"
        file.write_bytes(data)
        return file


class _Commits:
    """Turns of all trajectories of a shard: many wait for one fsync."""

    def __init__(self, taken: Claim) -> None:
        self._taken = taken
        self._waiting: list[asyncio.Future[None]] = []
        self._syncing: asyncio.Task[None] | None = None

    async def write(self, line: Mapping[str, Any]) -> float:
        """Write a line; returns when it is on the disk, with the seconds that this took."""
        begin = time.monotonic()
        self._taken.write_turn(line)
        durable = asyncio.get_running_loop().create_future()
        self._waiting.append(durable)
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())
        await durable
        return time.monotonic() - begin

    async def _sync(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._taken.acknowledge_turns)
            except Exception as error:  # noqa: BLE001 - each writer raises it
                for one in waiting:
                    if not one.done():
                        one.set_exception(error)
            else:
                for one in waiting:
                    if not one.done():
                        one.set_result(None)
        self._syncing = None

    async def close(self) -> None:
        """Wait until nothing is being written."""
        if self._syncing is not None:
            with contextlib.suppress(Exception):
                await self._syncing


def _first_images(messages: Sequence[Message], show: int | None) -> tuple[Message, ...]:
    """A prompt whose last message shows at most so many images."""
    if show is None:
        return tuple(messages)
    *others, last = messages
    return (*others, replace(last, images=last.images[:show]))


def _response(request: Request, trajectory: Trajectory, end: End, begin: int) -> Response:
    """The sample's response; `tries` is 0, so that no figure of speed counts the whole as one request."""
    turns = trajectory.turns
    usage = {
        kind: trajectory.tokens(kind)
        for kind in ("prompt_tokens", "completion_tokens")
        if any(kind in turn.usage for turn in turns)
    }
    last = turns[-1] if turns else None
    now = time.monotonic_ns()
    return Response(
        sample_id=request.sample_id,
        outcome=end.outcome,
        text=end.text,
        finish_reason=last.finish_reason if last is not None else None,
        usage=usage or None,
        times=Times(begin, begin, None, (), now),
        tries=0,
        image_sha256=turns[0].image_sha256 if turns else (),
        error=end.why or None,
        prompt=request.prompt,
        reasoning=last.reasoning if last is not None and end.exit == "answered" else None,
        trajectory=trajectory.figures(end.exit, end.why),
    )
