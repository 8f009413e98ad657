"""The samples of a shard as trajectories of an agent, each turn on the disk before the next one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcbench.agents.loop import End, Loop, Talk, ToolTimes
from hpcbench.agents.own_tools import needing
from hpcbench.agents.tools import Toolbox
from hpcbench.agents.trajectory import Trajectory
from hpcbench.data_uri import mime
from hpcbench.experiment.claims import Claim
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.turns import Turns, shard_turns
from hpcbench.inference.client import Client, EngineGone, Limited, Tries
from hpcbench.inference.load_driver import MOST_REFUSALS, Budget
from hpcbench.inference.request_body import Prepared, read_image, unreadable
from hpcbench.plugins import Environment
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.agent import OF_THE_LOOP, Agent
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, Request, Response, Sample, Times
from hpcbench.worker.event_log import WorkerEvents


async def started_tools(
    experiment: Experiment, run_task: ResolvedRunTask, folder: Path, events: WorkerEvents
) -> Toolbox:
    """The tools of a run task's agent, started, and equal to those of the submission.

    Args:
        experiment: the experiment.
        run_task: the run task.
        folder: folder on this node with the images of trajectories; tools in images see only this one.
        events: the worker's log.

    Raises:
        EnvironmentFault: a tool cannot be started, or another one was submitted.
    """
    # Imported late: few workers have agents.
    from hpcbench.agents.tool_host import PreparedEnvironment, ToolEnvironment
    from hpcbench.agents.toolboxes import toolbox_of

    assert run_task.agent is not None
    container = experiment.resolved.site.container
    submitted = experiment.manifest.tools[run_task.name]
    prepared = {
        ToolEnvironment(image, tuple(packages)): PreparedEnvironment(
            Environment(**experiment.manifest.environments[key]),
            container,
            (f"{folder}:{folder}:ro",),
        )
        for image, packages, key in submitted["rooms"]
    }

    def say(line: str) -> None:
        events.write("tool_note", run_task=run_task.name, message=line)

    return await toolbox_of(
        needing(run_task.agent),
        prepared,
        container,
        locked=submitted["locked"],
        beside=OF_THE_LOOP,
        near=experiment.resolved.site.scratch,
        say=say,
    )


@dataclass(frozen=True, slots=True)
class Served:
    """A model of an agent, ready for requests."""

    run_task: ResolvedRunTask
    """The agent's run task, with this model."""
    client: Client
    """The client of its engine."""
    budget: Budget | None = None
    """Limits the requests; None: there is no budget."""

    @property
    def talk(self) -> Talk:
        """How the loop talks to it."""
        return Talk(
            as_text=self.run_task.calls_as_text,
            context=self.run_task.model.context_length,
            answer_tokens=self.run_task.task.generation.max_tokens or 0,
        )


class Trajectories:
    """Answers samples by an agent.

    Args:
        served: run task whose model the agent uses → that model; empty name: its own.
        tools: runs the agent's tools.
        times: how long tools take; kept for the whole worker.
        folder: folder on this node for images, as `started_tools` got it.
    """

    def __init__(
        self, served: Mapping[str, Served], tools: Toolbox, times: ToolTimes, folder: Path
    ) -> None:
        run_task = served[""].run_task
        agent = run_task.agent
        assert agent is not None
        self._agent: Agent = agent
        self._served, self._folder = served, folder
        self._generation = {
            name: TaskPrompt(one.run_task).generation for name, one in served.items() if name
        }
        """Run task whose model is used → the settings of a request."""
        self._loop = Loop(
            agent,
            tools,
            times,
            {name: one.talk for name, one in served.items()},
            request_seconds=run_task.task.request_timeout,
        )
        self._asking: set[str] = set()
        """Samples with a request in flight."""
        self.progress = {"turns": 0, "calls": 0, "working": 0}
        """Turns that are on the disk, the calls in them, and samples in work."""

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
        known = await asyncio.to_thread(_turns, taken)
        source, running = iter(samples), set[asyncio.Task[Response | None]]()
        work = _Work(_Commits(taken, self.progress), stop)
        try:
            ended = False
            while running or not ended:
                ended = ended or work.is_set()
                while not ended and len(running) < at_once:
                    one = await asyncio.to_thread(next, source, None)
                    ended = one is None or work.is_set()
                    if one is not None:
                        sample, request = one
                        following = self._follow(sample, request, known, work)
                        running.add(asyncio.create_task(following))
                self.progress["working"] = len(running)
                if running:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in sorted(done, key=lambda task: task.exception() is not None):
                        if (response := task.result()) is not None:
                            yield response
        except EngineGone as gone:
            gone.in_flight = tuple(self._asking)
            # Calls go on without an engine: one that must not be repeated would be lost if it were cut off.
            work.gone.set()
            if running:
                await asyncio.wait(running)
            raise
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await work.commits.close()

    async def _follow(
        self, sample: Sample, request: Request, known: Turns, work: _Work
    ) -> Response | None:
        """Go on with a trajectory; None if it did not end."""
        begin = time.monotonic_ns()
        trajectory = Trajectory.of(
            sample.id, await asyncio.to_thread(known.of, sample.id, sys.maxsize)
        )
        files = _Files(self._folder, sample, trajectory, copied=self._agent.has_images)
        try:
            await asyncio.to_thread(files.write_pages)
        except OSError as error:
            bad = End("request_failed", None, unreadable(error), "invalid")
            return _response(request, trajectory, bad, begin)
        trajectory.most_seconds = self._agent.limits.seconds_for(sample.metadata)
        prompt = _first_images(request.messages, self._agent.show)
        ask = _Ask(self, request, work)
        try:
            end = await self._loop.run(prompt, trajectory, files, ask, work.commits.write, work)
        except _Ended:
            return None
        finally:
            await files.remove()
        return None if end is None else _response(request, trajectory, end, begin)

    async def ask(self, request: Request, work: _Work, model_of: str) -> Response:
        """Send one request of a trajectory to the model of a run task; empty: to the agent's own.

        Raises:
            _Ended: no request is sent any more.
            EngineGone: the engine ended.
        """
        served = self._served[model_of]
        client, budget = served.client, served.budget
        if model_of:
            request = replace(request, generation=self._generation[model_of])
        if budget is not None and not await budget.reserve(request):
            work.unpaid = True
            raise _Ended
        response: Response | None = None
        try:
            response = await self._sent(client, await client.prepare(request), work)
        except EngineGone as gone:
            if client is not self._served[""].client:
                gone.model = served.run_task.model.name
            raise
        finally:
            if budget is not None and (response or request.sample_id in self._asking):
                budget.spend(request, response)
            elif budget is not None:
                budget.release(request)
        if response is None:
            raise _Ended
        # Not in `finally`: when the engine is gone, this sample was in flight.
        self._asking.discard(request.sample_id)
        return response

    async def _sent(self, client: Client, prepared: Prepared, work: _Work) -> Response | None:
        """The response, as soon as the gateway's rate limits allow it; None: the work ended before that."""
        sample, tries = prepared.request.sample_id, Tries()
        for refusals in itertools.count():
            if not await work.before_its_end(client.admitted()):
                break
            self._asking.add(sample)
            try:
                return await client.send(
                    prepared,
                    time.monotonic_ns(),
                    heeds_limits=refusals < MOST_REFUSALS,
                    tries=tries,
                )
            except Limited as limited:
                tries = limited.tries
                self._asking.discard(sample)
        return None


def _turns(taken: Claim) -> Turns:
    """The turns of a shard so far. Lines are read when they are wanted: with images, all have gigabytes."""
    return shard_turns(taken.experiment, taken.shard.run_task, taken.shard.index)


def with_trajectory(poisonous: Response, taken: Claim) -> Response:
    """The response to a sample that ended the engine, with the turns before that."""
    lines = _turns(taken).of(poisonous.sample_id, sys.maxsize)
    trajectory = Trajectory.of(poisonous.sample_id, lines)
    figures = trajectory.figures("engine_gone", poisonous.error or "")
    return replace(poisonous, trajectory=figures)


class _Ended(Exception):
    """No request is sent any more."""


class _Work:
    """The work on one shard. It ends, as an event is set, when it is stopped, the budget is used up or the
    engine is gone."""

    def __init__(self, commits: _Commits, stop: asyncio.Event) -> None:
        self.commits, self._stop = commits, stop
        self.unpaid = False
        self.gone = asyncio.Event()

    def is_set(self) -> bool:
        """Whether no further request is sent."""
        return self.unpaid or self._cut

    @property
    def _cut(self) -> bool:
        return self.gone.is_set() or self._stop.is_set()

    async def before_its_end(self, awaited: Coroutine[Any, Any, object]) -> bool:
        """Wait until a paid request may be sent; False: it is stopped, or the engine is gone, before that."""
        awaiting = (awaited, self._stop.wait(), self.gone.wait())
        waiting = [asyncio.ensure_future(one) for one in awaiting]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return not self._cut
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


class _Ask:
    """Sends the requests of one trajectory."""

    def __init__(self, trajectories: Trajectories, request: Request, work: _Work) -> None:
        self._trajectories, self._request, self._work = trajectories, request, work

    async def __call__(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        seconds: float,
        model_of: str = "",
    ) -> Response:
        request = replace(
            self._request, messages=tuple(messages), tools=tuple(tools), timeout=seconds, basis=""
        )
        return await self._trajectories.ask(request, self._work, model_of)


class _Files:
    """The images of a trajectory as files. Its own folder is made when an image must be written.

    `copied`: images of the dataset are copied there. Tools in images then see them, and nothing beside them:
    a dataset's folder has the right answers.
    """

    def __init__(
        self, folder: Path, sample: Sample, trajectory: Trajectory, *, copied: bool
    ) -> None:
        self._folder, self._copied = folder / f"{id(self):x}", copied
        self._sample, self._trajectory = sample, trajectory
        self._pages: list[Path] = []
        self._made: list[Path] = []

    def write_pages(self) -> None:
        """Write images of the sample that are no files.

        Raises:
            OSError: an image cannot be read.
        """
        self._pages = [
            image
            if isinstance(image, Path) and not self._copied
            else self._write(f"page{n}", read_image(image))
            for n, image in enumerate(self._sample.images, 1)
        ]

    def pages(self) -> Sequence[Path]:
        """The sample's images."""
        return self._pages

    def made(self, place: int) -> Path:
        """An image that a tool made."""
        while len(self._made) <= place:
            number = len(self._made)
            self._made.append(self._write(f"made{number + 1}", self._trajectory.images[number]))
        return self._made[place]

    async def remove(self) -> None:
        """Remove what was written."""
        if self._made or any(page.parent == self._folder for page in self._pages):
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _write(self, name: str, data: bytes) -> Path:
        self._folder.mkdir(exist_ok=True)
        file = self._folder / f"{name}.{mime(data).rpartition('/')[2]}"
        file.write_bytes(data)
        return file


class _Commits:
    """Turns of all trajectories of a shard: many wait for one fsync."""

    def __init__(self, taken: Claim, progress: dict[str, int]) -> None:
        self._taken, self._progress = taken, progress
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
        if "reply" in line:
            self._progress["turns"] += 1
            self._progress["calls"] += len(line["results"])
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
