"""Claim → load → drive → record → next: the main loop of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.agents.loop import ToolTimes
from hpcbench.agents.tools import Toolbox
from hpcbench.data.datasets import check_places
from hpcbench.environments.orphans import held_folder, reap, reap_folders, scratch
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.claim_store import ClaimStore
from hpcbench.experiment.claims import (
    Claim,
    Fenced,
    Owner,
    seat_of,
    states_of,
    suspects,
)
from hpcbench.experiment.control import control_request, control_state
from hpcbench.experiment.last_word import NO_ROOM
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.paired_scheduler import PairedScheduler
from hpcbench.experiment.scheduler import Candidate, ShardScheduler
from hpcbench.experiment.submission import rounds
from hpcbench.inference.adaptive import Adaptive
from hpcbench.inference.client import EngineGone
from hpcbench.inference.load_driver import drive, warm_up
from hpcbench.installed import this_python
from hpcbench.judging.rated_answers import JudgedAnswers, waits_for
from hpcbench.schema.load import Route
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.schema.records import Request, Response, Times
from hpcbench.schema.shared_types import seconds
from hpcbench.worker.budget_share import BudgetShare
from hpcbench.worker.engine import EngineProcess
from hpcbench.worker.engines_beside import EnginesBeside
from hpcbench.worker.event_log import WorkerEvents
from hpcbench.worker.interim import look_if_due
from hpcbench.worker.job_watch import JobWatch
from hpcbench.worker.node_copies import NodeCopies
from hpcbench.worker.own_module import ModuleFailed, OwnModule
from hpcbench.worker.pilot import Pilot
from hpcbench.worker.replicas import Replicas
from hpcbench.worker.requests import RequestBuilder
from hpcbench.worker.serving import Serving
from hpcbench.worker.trajectories import Served, Trajectories, started_tools, with_trajectory
from hpcbench.wrapper.descriptors import allow_many

PROGRESS_SECONDS = 5.0
"""Interval of progress events: they are only informative, and rare enough for a shared file system."""

ACKNOWLEDGE_SECONDS = 0.25
"""Longest wait of an answer for its fsync."""

POISONOUS = 5
"""Number of samples that may end an engine before the engine, not they, is blamed."""

WAIT_SECONDS = 10.0
"""Time until a worker looks again whether the answers that a judge rates are there."""

WISH_SECONDS = 5.0
"""Interval at which a worker reads the users' requests for the experiment."""


def main(argv: Sequence[str]) -> None:
    """Run one worker: `hpcbench.worker EXPERIMENT GROUP ROUND JOB/JOBS [REPLICA]`.

    Without REPLICA, a job of a group with several workers starts all of them.
    """
    allow_many()
    experiment = Experiment(Path(argv[0]))
    current = rounds(experiment)[int(argv[2])]
    group = current.group(argv[1])
    if group.replicas > 1 and len(argv) == 4:
        sys.exit(Replicas(experiment, group, argv).run())
    experiment.use_packages()
    job, _, jobs = argv[3].partition("/")
    replica = int(argv[4]) if len(argv) > 4 else 0
    owner = replace(Owner.here(), round=current.number, replica=replica)
    place, workers = int(job) * group.replicas + replica, int(jobs) * group.replicas
    worker = Worker(experiment, group, owner, place, workers)
    code = asyncio.run(worker.run())
    if not code and not worker.stop.is_set():
        _go_on(experiment, current.number, forgotten=worker.owner != owner)
    if code:
        sys.exit(code)


def _go_on(experiment: Experiment, number: int, *, forgotten: bool) -> None:
    """Do the due work after a worker that found none left, if no job waits to do it; `forgotten`: slurmctld
    has lost its state since, and the job that finalises may be lost with it."""
    now = rounds(experiment)[number]
    site = experiment.resolved.site.slurm
    if experiment.resolved.executor != "slurm" or not site.submit_from_jobs:
        return
    if forgotten or now.several or now.deferred or now.rides(site.cpu_partition):
        command = [*this_python(), "-m", "hpcbench.finalise", str(experiment.path), "--worker"]
        subprocess.run(command, check=False)


class Worker:
    """One worker of one group.

    Args:
        experiment: the experiment.
        group: its group.
        owner: the worker's identity.
        place: its place among the workers of the group, from 0.
        workers: number of these workers.
    """

    def __init__(
        self,
        experiment: Experiment,
        group: Group,
        owner: Owner,
        place: int = 0,
        workers: int = 1,
    ) -> None:
        self.experiment, self.group, self.owner = experiment, group, owner
        self.started = time.monotonic()
        self.stop = asyncio.Event()
        """Set: take no more work, answer the requests in flight, end."""
        self.halt = asyncio.Event()
        """Set: the same for the current shard."""
        self.at: str | None = None
        """Run task of the current shard."""
        self.control = control_state(experiment)
        self.events = WorkerEvents(experiment, group, owner)
        self.place, self.workers = place, workers
        self.scheduler: ShardScheduler
        self.suspected: dict[str, set[str]] = {}
        """Run task → samples in flight when an engine died, except samples that did not end it alone."""
        self.poisonous = 0
        self.near = NodeCopies(experiment, self.events)
        self.pilots: dict[str, Pilot] = {}
        """Run task → its pilot."""
        self.best: dict[str, Adaptive] = {}
        """Model → the search for its best concurrency."""
        self.chosen: dict[str, int] = {}
        """Run task → last number of requests at once under `concurrency: auto`."""
        self.routes: dict[str, Route] = {}
        """Run task → the route of its last requests."""
        self.by_modules = set[str]()
        """Run tasks of which a module of the user's own has answered samples here."""
        self.toolboxes: dict[str, tuple[Toolbox, ToolTimes, Path]] = {}
        """Run task → the tools of its agent, how long they take, and a folder for images."""
        self.held = contextlib.ExitStack()
        """Folders for images."""
        self.agents_work: dict[str, Mapping[str, int]] = {}
        """Shard → turns and calls of its agent, and samples in work."""
        self.judging: dict[str, JudgedAnswers] = {}
        """Judge → the answers that it rates, which are complete."""
        self.waits_until: dict[str, float] = {}
        """Judge whose answers are not complete → when to look again, seconds of the monotonic clock."""
        self.budget_share: BudgetShare
        """The part of the budget that this worker may still spend."""
        self.watch: JobWatch
        self.serving: Serving
        self.beside = EnginesBeside(experiment, group, owner, self.events, self.near, self.stop)
        """Engines of the further models of agents."""

    def _scheduler(self) -> ShardScheduler:
        work, resolved = self.experiment.work, self.experiment.resolved
        own = {cut.run_task: cut for cut in work.cuts}
        tasks = {name: resolved.run_task(name) for name in self.group.run_tasks}
        pairs = [arms for arms in resolved.pairs.values() if set(arms) <= set(tasks)]
        made: Callable[..., ShardScheduler] = ShardScheduler
        if pairs:
            made = partial(PairedScheduler, pairs=pairs, seed=resolved.plan.seed)
        return made(
            [own[name] for name in tasks],
            {name: task.model.name for name, task in tasks.items()},
            ClaimStore(self.experiment, self.group.id, self.owner),
            self.owner,
            priorities={name: task.task.priority for name, task in tasks.items()},
            load_seconds=work.load_seconds,
            place=self.place / self.workers,
            workers=self.workers,
            rests=lambda run_task: (
                self.control.rests(run_task)
                or self.budget_share.rests(tasks[run_task])
                or self._waits(tasks[run_task])
            ),
            chance=random.Random(self.owner.id),
        )

    def _waits(self, run_task: ResolvedRunTask) -> bool:
        """Whether answers that a judge rates are not there yet; the next round tries again."""
        if run_task.task.judge is None or run_task.name in self.judging:
            return False
        now = time.monotonic()
        if now < self.waits_until.get(run_task.name, 0.0):
            return True
        if waits_for(self.experiment, run_task, self.control):
            self.waits_until[run_task.name] = now + WAIT_SECONDS
            return True
        self.judging[run_task.name] = JudgedAnswers(self.experiment, run_task)
        return False

    async def run(self) -> int:
        """Work until no work is left; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, signal.Signals(number).name)
        try:
            self.owner = self.events.open()
            self.budget_share = BudgetShare(
                self.experiment, self.owner.id, self.workers, self.events
            )
            self.scheduler = self._scheduler()
            near = scratch(self.experiment.resolved.site.scratch)
            if reaped := [*reap(), *reap_folders(near)]:
                self.events.write("orphans_reaped", names=reaped)
            self.watch = watch = self._job_watch(near)
            async with (
                watch.running(),
                EngineProcess(
                    self.experiment, self.group, self.owner, watch.unloaded, events=self.events
                ) as wrapper,
            ):
                self.serving = Serving(
                    wrapper, self.events, watch, self.owner.node, self.stop,
                    self.scheduler.given_up, self._drain,
                )  # fmt: skip
                try:
                    await self._work()
                finally:
                    with contextlib.suppress(OSError):  # then its last event `budget` counts
                        self.budget_share.close()
                    for tools, *_ in self.toolboxes.values():
                        await tools.close()
                    self.held.close()
                    await self.beside.end()
                    await self.serving.end()
                watch.engine(wrapper, None)
            return self.events.close("stopped" if self.stop.is_set() else "finished")
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return self.events.disk_full(error)
        except HpcbenchError as error:
            return self.events.close("failed", message=str(error), exit_code=error.exit_code)

    def _job_watch(self, near: str | Path) -> JobWatch:
        here, place = self.experiment, (self.group.id, self.owner.id)
        folders: dict[str, str | Path] = {"experiment": here.path, "scratch": near}
        return JobWatch(
            folders,
            here.worker_monitor(*place),
            here.worker_log(*place),
            self.events,
            alone=self.group.replicas == 1,
        )

    async def _work(self) -> None:
        watching = asyncio.ensure_future(self._watch_wishes())
        try:
            while not self.stop.is_set():
                found = self.scheduler.next(self.serving.wrapper.model, self._seconds_left())
                if found is None:
                    return
                await self._take(found)
        finally:
            watching.cancel()

    def _seconds_left(self) -> float:
        """Seconds until this job's time limit. A shard too long for a new worker is tried anyway: no later
        worker has more time, and answers up to the limit are not requested again."""
        if self.serving.loaded is None:
            return float("inf")
        limit = seconds(self.group.resources.time_limit)
        return limit - (time.monotonic() - self.started)

    async def _take(self, found: Candidate) -> None:
        """Load the model of a shard, claim the shard, process it."""
        run_task = self.experiment.resolved.run_task(found.shard.run_task)
        if not await self._load(run_task):
            return
        await self._look_at_wishes()
        if self.control.rests(run_task.name):
            return
        taken = self.scheduler.claim(found)
        if taken is None:
            return
        started, self.at, self.halt = time.monotonic(), run_task.name, asyncio.Event()
        self.events.write("shard_claimed", shard=taken.shard.id, attempt=taken.attempt)
        await self._shard(run_task, taken)
        self.at = None
        self.scheduler.took(found.shard.seconds, time.monotonic() - started)
        if run_task.pair is not None and await look_if_due(
            self.experiment, run_task.pair, self.stop
        ):
            self.control = control_state(self.experiment)

    async def _load(self, run_task: ResolvedRunTask) -> bool:
        """Load a run task's model; False if it cannot be loaded, or the worker is stopped."""
        model = await self._model(run_task)
        if self.serving.wrapper.model != model.name:
            await self.beside.end()  # all engines of a job are one unit
        return await self.serving.load(model)

    async def _model(self, run_task: ResolvedRunTask) -> Model:
        """A run task's model, from the nearest copy and in this group's shape."""
        near = await self.near.source(run_task.model.source)
        gpus = self.group.gpus - self.experiment.resolved.gpus_beside(run_task)
        return run_task.model.model_copy(update={"source": near, "gpus": gpus})

    async def _watch_wishes(self) -> None:
        """Follow the users' requests, and log what is spent, while the worker runs."""
        while True:
            await asyncio.sleep(WISH_SECONDS)
            with contextlib.suppress(OSError):  # a disk that is full is detected elsewhere, too
                self.budget_share.tell()
            await self._look_at_wishes()
            if self.control.cancelled or self.control.paused:
                self._drain("cancel" if self.control.cancelled else "pause")
            elif self.at is not None and self.control.rests(self.at):
                self.halt.set()

    async def _look_at_wishes(self) -> None:
        with contextlib.suppress(OSError):  # a file system that hangs is detected elsewhere, too
            self.control = await asyncio.to_thread(control_state, self.experiment)

    async def _shard(self, run_task: ResolvedRunTask, taken: Claim) -> None:
        """Send every sample of the shard that has no answer yet."""
        try:
            await self._answer(run_task, taken)
        except Fenced as fenced:
            taken.abandon()
            self.events.write("fenced", message=str(fenced))
            if _is_replaced(self.experiment, taken, self.owner):
                self._drain("replaced by a later run of this job")
        except EngineGone as gone:
            taken.end("failed", reason=str(gone), in_flight=list(gone.in_flight))
        except OSError:
            taken.abandon()
            raise
        except HpcbenchError as error:
            cause = {"cause": error.cause} if isinstance(error, ModuleFailed) else {}
            taken.end("failed", reason=str(error), **cause)
            self.events.write(
                "shard_failed", sync=True, shard=taken.shard.id, message=str(error), **cause
            )
        else:
            whole = len(taken.answered) == taken.shard.stop - taken.shard.start
            paid = not self.budget_share.rests(run_task)
            why = {} if whole or paid else {"reason": "the budget is used up"}
            last = taken.end("done" if whole else "drained", **why)
            if whole:
                self._tell_done(taken, last)
                self.scheduler.done(taken.shard)

    def _tell_done(self, done: Claim, last: Mapping[str, Any]) -> None:
        """Copy the shard's last event to our own log: status of 10,000 shards then opens 200 files."""
        self.events.write(
            "shard_done",
            shard=done.shard.id,
            attempt=done.attempt,
            began=done.began,
            ended=last["time"],
            answered=last["answered"],
            **dict[str, Any](self.agents_work.pop(done.shard.id, {})),
        )

    def _pilot(self, run_task: ResolvedRunTask) -> Pilot:
        """The pilot of a run task, with the current number of samples."""
        name, wanted = run_task.name, self.control.pilot
        if wanted is None:
            wanted = self.experiment.resolved.plan.pilot
        cuts = self.experiment.work.cuts
        size = min(wanted, *(cut.samples for cut in cuts if cut.run_task == name))
        known = self.pilots.get(name)
        if known is None or known.size != size:
            known = self.pilots[name] = Pilot(run_task, size)
        return known

    async def _judge(self, run_task: ResolvedRunTask, taken: Claim, response: Response) -> None:
        """End a run task, for all workers, if its pilot failed."""
        pilot = self.pilots.get(run_task.name)
        why = pilot.judge(response) if pilot is not None else None
        if why is None:
            return
        del self.pilots[run_task.name]  # if a user resumes it meanwhile, it has a pilot again
        await asyncio.to_thread(taken.acknowledge)
        await self._fail(run_task, why, _go_on_with(self.experiment.id))

    async def _fail(self, run_task: ResolvedRunTask, why: str, remedy: str) -> None:
        """End a run task for all workers."""
        self.halt.set()
        await self._look_at_wishes()
        if run_task.name not in self.control.failed_tasks:
            ends: Sequence[str] = (run_task.name,)
            if run_task.pair is not None:  # one arm alone has no comparison
                ends = self.experiment.resolved.pairs[run_task.pair]
                why = f"arm {run_task.arm} failed, so both arms end: {why}"
            control_request(self.experiment, "fail", ends, secret.mask(f"{why}; {remedy}"))
            await self._look_at_wishes()

    async def _answer(self, run_task: ResolvedRunTask, taken: Claim) -> None:
        """Send every sample without an answer; when the engine dies, load it again and continue.

        Raises:
            EngineGone: the model is given up: its engine dies without a guilty sample, or does not load.
        """
        suspected = self.suspected.setdefault(run_task.name, set())
        own = suspects(self.experiment, taken.shard)
        while True:
            suspected.update(own)
            try:
                if run_task.ml_task.module is not None:
                    await self._by_module(run_task, taken)
                else:
                    await self._alone(run_task, taken, own)
                    await self._ask(run_task, taken)
                return
            except EngineGone as gone:
                taken.acknowledge()
                own = list(gone.in_flight) if await self._died(run_task, gone) else []
                if run_task.model.name in self.scheduler.given_up:
                    raise
                if not await self._load(run_task):
                    if self.stop.is_set():
                        return
                    raise

    async def _died(self, run_task: ResolvedRunTask, gone: EngineGone) -> bool:
        """Handle an engine's own end: the next load starts all engines of this job again.

        Returns:
            Whether a sample may be the cause.
        """
        if gone.model:
            await self.beside.died(gone)
            self.serving.wrapper.model = None
            return True
        return await self.serving.died(run_task.model, gone)

    async def _alone(
        self,
        run_task: ResolvedRunTask,
        taken: Claim,
        suspected: Sequence[str],
    ) -> None:
        """Send alone, one after the other, the samples that were in flight when an engine died.

        A sample that alone ends the engine, after the engine has answered another, is guilty: its answer says
        so, and the others continue. That takes one load per guilty sample, where halving the suspects would
        take several.

        Raises:
            EngineGone: the engine does not load again, dies before an answer, or dies of too many samples.
        """
        for sample_id in suspected:
            if sample_id in taken.answered or self.halt.is_set() or self.stop.is_set():
                continue
            try:
                await self._ask(run_task, taken, only=sample_id)
                self.suspected[run_task.name].discard(sample_id)
            except EngineGone as gone:
                if not self.serving.warm or self.poisonous >= POISONOUS:
                    raise
                if await self.serving.wrapper.taken():
                    raise
                self.poisonous += 1
                self.serving.ended_by_sample(run_task.model)
                await self.beside.ended_by_sample(gone)
                asking = await self._asking(run_task)
                poisonous = _poisonous(next(asking.left(taken, sample_id)), gone)
                if run_task.agent is not None:
                    poisonous = with_trajectory(poisonous, taken)
                taken.record(poisonous)
                taken.acknowledge()
                await self._judge(run_task, taken, poisonous)
                message = (
                    f"sample {sample_id} ended the engine twice, the second time alone: {gone}"
                )
                self.events.write("poisonous", sync=True, run_task=run_task.name, message=message)
                if not await self._load(run_task):
                    if self.stop.is_set():
                        return
                    raise

    async def _ask(
        self,
        run_task: ResolvedRunTask,
        taken: Claim,
        only: str | None = None,
    ) -> None:
        """Send the remaining samples of a shard, or one sample of it."""
        last_sync = last_news = time.monotonic()
        asking = await self._asking(run_task)
        asking.check(taken)
        for response in () if only else asking.nothing_to_judge(taken):
            taken.record(response)
        await self._take_route(run_task)
        await self._warm_up(asking, at_least=1 if only else 0)
        self.watch.mark(run_task.name)
        assert self.serving.loaded is not None
        seen = self.watch.of(run_task.name, self.serving.loaded)
        concurrency = 1 if only else self._concurrency(run_task)
        if not only:
            self._tell_chosen(run_task, concurrency)
        progress: Mapping[str, int] = {}
        if run_task.agent is not None:
            trajectories = await self._trajectories(run_task)
            if trajectories is None:
                return
            samples = asking.left_samples(taken, only)
            responses = trajectories.answers(samples, taken, _limit(concurrency), self.halt)
            progress = self.agents_work[taken.shard.id] = trajectories.progress
        else:
            responses = drive(
                self.serving.wrapper.client_for(run_task),
                asking.left(taken, only),
                concurrency,
                self.halt,
                arrivals=None if only else asking.arrivals(self.experiment.resolved.plan.seed),
                health=seen.health,
                budget=self.budget_share.of(run_task),
            )
        async with contextlib.aclosing(responses) as stream:
            async for response in stream:
                taken.record(response)
                await self._judge(run_task, taken, response)
                self.serving.warm = True
                if response.times.chunks:
                    seen.first_tokens.append((response.times.chunks[0] - response.times.send) / 1e6)
                now = time.monotonic()
                if now - last_sync >= ACKNOWLEDGE_SECONDS:
                    await asyncio.to_thread(taken.acknowledge)
                    last_sync = now
                if now - last_news >= PROGRESS_SECONDS:
                    answered = len(taken.answered)
                    self.events.write(
                        "progress",
                        shard=taken.shard.id,
                        answered=answered,
                        **dict[str, Any](progress),
                    )
                    last_news = now
        taken.acknowledge()
        if not only:
            self._tell_chosen(run_task, concurrency)

    async def _trajectories(self, run_task: ResolvedRunTask) -> Trajectories | None:
        """An agent for the rest of a shard; None: the worker is stopped.

        Raises:
            EnvironmentFault: a tool cannot be started.
            RunFailed: a further model cannot be loaded.
        """
        agent, name = run_task.agent, run_task.name
        assert agent is not None
        client = self.serving.wrapper.client_for(run_task)
        others = await self.beside.of(run_task, client)
        if others is None:
            return None
        if name not in self.toolboxes:
            times = ToolTimes(agent.limits.tool_seconds)
            folder = self.held.enter_context(
                held_folder(scratch(self.experiment.resolved.site.scratch))
            )
            tools = await started_tools(self.experiment, run_task, folder, self.events)
            self.toolboxes[name] = tools, times, folder
        tools, times, folder = self.toolboxes[name]
        served = {
            name: Served(one, client, self.budget_share.of(one))
            for name, (one, client) in {"": (run_task, client), **others}.items()
        }
        return Trajectories(served, tools, times, folder)

    async def _by_module(self, run_task: ResolvedRunTask, taken: Claim) -> None:
        """Let the ML task's own module answer the rest of a shard.

        Raises:
            ModuleFailed: it gave no answers. If it never gave any here, the run task ends for all workers.
            EngineGone: the model is not loaded any more.
        """
        asking = await self._asking(run_task)
        asking.check(taken)
        self.watch.mark(run_task.name)
        concurrency = self._concurrency(run_task)
        self._tell_chosen(run_task, concurrency)
        at_once = _limit(concurrency)
        data = Path(await self.near.source(run_task.dataset.source))
        mode = self.experiment.resolved.mode
        own = OwnModule(run_task, self.serving.wrapper, data, mode)
        try:
            answers = await own.answers(asking.left_samples(taken), at_once, self.halt)
        except ModuleFailed as failure:
            if run_task.name not in self.by_modules:
                await self._fail(run_task, str(failure), _after_module(self.experiment.id))
            raise
        for response in answers:
            self.by_modules.add(run_task.name)
            taken.record(response)
            await self._judge(run_task, taken, response)
        await asyncio.to_thread(taken.acknowledge)

    async def _asking(self, run_task: ResolvedRunTask) -> RequestBuilder:
        name, dataset = run_task.name, await self.near.dataset(run_task.dataset)
        chosen, count = self.experiment.chosen(name), self.experiment.dataset_samples(name)
        check_places(dataset, run_task.dataset.name, count, chosen)
        pilot = self._pilot(run_task)
        pilot.begin()
        # Engines of another shape may answer otherwise.
        as_planned = self.group.gpus == run_task.model.gpus
        basis = self.experiment.answer_basis(name) if as_planned else ""
        judged = self.judging.get(name)
        return RequestBuilder(run_task, dataset, chosen, pilot.takes, basis, judged)

    async def _warm_up(self, asking: RequestBuilder, at_least: int = 0) -> None:
        """Send uncounted requests: once after each load, and before each point of a sweep."""
        count = max(at_least, asking.run_task.task.warm_up)
        if (
            count
            and not (self.serving.warm and asking.run_task.sweep is None)
            and not self.stop.is_set()
        ):
            self.watch.mark("warm-up")
            at_once = min(count, asking.run_task.in_flight or count)
            avoided = self.suspected.get(asking.run_task.name, ())
            await warm_up(
                self.serving.wrapper.client_for(asking.run_task),
                asking.others(count, avoided),
                at_once,
                self.budget_share.of(asking.run_task),
                self.halt,
            )
            self.serving.warm = not self.halt.is_set()

    def _concurrency(self, run_task: ResolvedRunTask) -> int | Adaptive:
        """Requests in flight; for an endpoint elsewhere `auto` is only the upper limit of the search."""
        most = run_task.in_flight
        if most is None:
            return self.best.setdefault(run_task.model.name, Adaptive())
        if most > 1 and run_task.task.concurrency == "auto" and not run_task.model.source:
            return self.best.setdefault(run_task.model.name, Adaptive(most))
        return most

    async def _take_route(self, run_task: ResolvedRunTask) -> None:
        """Send requests by the run task's route; logged whenever it changes."""
        task, name = run_task.task, run_task.name
        wanted: Route = task.route if task.protocol == "http" else "proxied"
        route = await self.serving.wrapper.client.take(wanted)
        if self.routes.get(name) != route:
            self.routes[name] = route
            self.events.write("route", run_task=name, route=route)

    def _tell_chosen(self, run_task: ResolvedRunTask, concurrency: int | Adaptive) -> None:
        """Log the number of `concurrency: auto` whenever it changes."""
        if run_task.task.concurrency != "auto":
            return
        at_once = _limit(concurrency)
        if self.chosen.get(run_task.name) != at_once:
            self.chosen[run_task.name] = at_once
            self.events.write("concurrency", sync=True, run_task=run_task.name, at_once=at_once)

    def _drain(self, name: str) -> None:
        if not self.stop.is_set():
            self.stop.set()
            self.halt.set()
            self.events.write("draining", signal=name)


def _limit(concurrency: int | Adaptive) -> int:
    """Most requests at once now."""
    return concurrency.limit if isinstance(concurrency, Adaptive) else concurrency


def _go_on_with(experiment: str) -> str:
    return (
        f"correct the cause, then `hpcbench resume {experiment}`; "
        f"`hpcbench resume {experiment} --pilot 0` asks all remaining samples without a pilot"
    )


def _after_module(experiment: str) -> str:
    return (
        f"`hpcbench logs {experiment} --engine` shows its output; correct it, then "
        f"`hpcbench resume {experiment}`"
    )


def _poisonous(request: Request, gone: EngineGone) -> Response:
    """The answer to a request that ends engines."""
    now = time.monotonic_ns()
    return Response(
        sample_id=request.sample_id,
        outcome="failed",
        text=None,
        finish_reason=None,
        usage=None,
        times=Times(start=now, send=now, headers=None, chunks=(), done=now),
        tries=0,  # as if never sent: its times are not the engine's speed
        image_sha256=(),
        error=f"ended the engine twice, the second time alone: {gone}",
        prompt=request.prompt,
    )


def _is_replaced(experiment: Experiment, taken: Claim, owner: Owner) -> bool:
    """Whether a later run of this job works on the shard: Slurm took this run for dead."""
    (state,) = states_of(experiment, [taken.shard])
    newer = state.owner
    return newer is not None and seat_of(newer) == owner.seat and newer["restart"] > owner.restart
