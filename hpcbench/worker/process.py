"""Claim → load → drive → record → next: what a worker does with its time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.data.datasets import Ranges, check_answers, check_places, open_dataset, samples, total
from hpcbench.data.staging import stage, staging_folder
from hpcbench.environments.orphans import reap, reap_folders
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.experiment.claim_store import ClaimStore
from hpcbench.experiment.claims import (
    Claim,
    Fenced,
    Owner,
    states_of,
    suspects,
)
from hpcbench.experiment.control import control_request, control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.paired_scheduler import PairedScheduler
from hpcbench.experiment.scheduler import Candidate, ShardScheduler
from hpcbench.experiment.submission import rounds
from hpcbench.inference import (
    Adaptive,
    EngineGone,
    Health,
    LoadFailed,
    constant,
    drive,
    poisson,
    warm_up,
)
from hpcbench.inference.cache_busting import as_new
from hpcbench.installed import this_python
from hpcbench.monitor import (
    Alarm,
    LoggedMemory,
    Monitor,
    Summary,
    check_allocation,
    machine,
    memory_figures,
)
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.documents import Model, seconds
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.schema.records import Request, Response, Sample, Times
from hpcbench.worker.engine import EngineProcess, Loaded, explained, last_lines, scratch
from hpcbench.worker.event_log import WorkerEvents
from hpcbench.worker.gpu_release import wait_for_memory
from hpcbench.worker.interim import look_if_due
from hpcbench.worker.pilot import Pilot
from hpcbench.wrapper.descriptors import allow_many

ENGINES_DOING = ("out_of_memory", "memory_near_limit", "disk_nearly_full", "engine_gone")
"""Alarms that come with the engine's last lines: they may tell why."""

TAIL_LINES = 10

PROGRESS_SECONDS = 5.0
"""Progress events are no truth, only news: rare enough for a shared file system."""

ACKNOWLEDGE_SECONDS = 0.25
"""Answers wait at most this long for their fsync."""

ENGINE_DEATHS = 2
"""A model whose engine died so often under one worker, for no sample's fault, is given up by that worker."""

POISONOUS = 5
"""So many samples may end an engine before the engine is thought to be at fault, not they."""

LOAD_FAILURES = 3
"""A worker that failed so often in a row to load anything is on a bad node: it claims no more."""

WISH_SECONDS = 5.0
"""How often a worker looks at what people want of the experiment."""


def main(argv: Sequence[str]) -> None:
    """Run one worker: `hpcbench.worker EXPERIMENT GROUP ROUND PLACE/WORKERS`."""
    allow_many()
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    current = rounds(experiment)[int(argv[2])]
    place, _, workers = argv[3].partition("/")
    told = replace(Owner.here(), round=current.number)
    group = current.group(argv[1])
    worker = Worker(experiment, group, told, int(place), int(workers))
    code = asyncio.run(worker.run())
    if not code and not worker.stop.is_set():
        _go_on(experiment, current.number, forgotten=worker.owner != told)
    if code:
        sys.exit(code)


def _go_on(experiment: Experiment, number: int, *, forgotten: bool) -> None:
    """Do what is due when a worker ends that found nothing left, where no job waits to do it; `forgotten`:
    slurmctld has lost its state since, and the job that finalises may be lost with it."""
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
        owner: who it is.
        place: its place among the workers of the group, from 0.
        workers: how many those are.
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
        """Set: take nothing more, answer what is in flight, end."""
        self.halt = asyncio.Event()
        """Set: the same for the shard at hand."""
        self.at: str | None = None
        """Run task of the shard at hand."""
        self.wishes = control_state(experiment)
        self.news = WorkerEvents(experiment, group, owner)
        self.place, self.workers = place, workers
        self.board: ShardScheduler
        self.deaths: dict[str, int] = {}
        self.suspected: dict[str, set[str]] = {}
        """Run task → samples that an engine was at when it died, but for those that did not end one alone."""
        self.poisonous = self.failed_loads = 0
        self.datasets: dict[str, DatasetIterator] = {}
        """Document → the dataset it is of."""
        self.staged: dict[str, str] = {}
        self.loaded: Loaded | None = None
        self.warm = False
        """Whether the engine has answered anything since it was loaded."""
        self.pilots: dict[str, Pilot] = {}
        """Run task → what its first samples tell."""
        self.seen: dict[str, _Seen] = {}
        """Run task → how well its requests could be timed here."""
        self.best: dict[str, Adaptive] = {}
        """Model → what was learnt of the concurrency that serves it best."""
        self.chosen: dict[str, int] = {}
        """Run task → requests at once that `concurrency: auto` has last come to here."""
        self.monitor: Monitor

    def _board(self) -> ShardScheduler:
        work, resolved = self.experiment.work, self.experiment.resolved
        own = {cut.run_task: cut for cut in work.cuts}
        tasks = {name: resolved.run_task(name) for name in self.group.run_tasks}
        pairs = [arms for arms in resolved.pairs.values() if set(arms) <= set(tasks)]
        board: Callable[..., ShardScheduler] = ShardScheduler
        if pairs:
            board = partial(PairedScheduler, pairs=pairs, seed=resolved.plan.seed)
        return board(
            [own[name] for name in tasks],
            {name: task.model.name for name, task in tasks.items()},
            ClaimStore(self.experiment, self.group.id, self.owner),
            self.owner,
            priorities={name: task.task.priority for name, task in tasks.items()},
            load_seconds=work.load_seconds,
            place=self.place / self.workers,
            workers=self.workers,
            rests=lambda run_task: self.wishes.rests(run_task),
            chance=random.Random(self.owner.id),
        )

    async def run(self) -> int:
        """Work until nothing is left; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, signal.Signals(number).name)
        try:
            self.owner = self.news.open()
            self.board = self._board()
            near = scratch(self.experiment.resolved.site.scratch)
            if reaped := [*reap(), *reap_folders(near)]:
                self.news.write("orphans_reaped", names=reaped)
            async with (
                self._monitored(),
                EngineProcess(self.experiment, self.group, self.owner, self._unloaded) as wrapper,
            ):
                await self._work(wrapper)
                self._watch(wrapper, None)
            return self.news.close("stopped" if self.stop.is_set() else "finished")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return self.news.disk_full(error)
        except HpcbenchError as error:
            return self.news.close("failed", message=str(error), exit_code=error.exit_code)

    @contextlib.asynccontextmanager
    async def _monitored(self) -> AsyncIterator[None]:
        """Have this job watched from before the first engine to after the last."""
        loop = asyncio.get_running_loop()

        def tell(alarm: Alarm) -> None:
            loop.call_soon_threadsafe(self._alarm, alarm)

        near = scratch(self.experiment.resolved.site.scratch)
        self.monitor = Monitor(
            os.getpid(),
            folders={"experiment": self.experiment.path, "scratch": near},
            file=self.experiment.worker_monitor(self.group.id, self.owner.id),
            on_alarm=tell,
        )
        await asyncio.to_thread(self.monitor.start)
        try:
            yield
        finally:
            self._tell_measured(await asyncio.to_thread(self.monitor.stop))

    def _tell_measured(self, summary: Summary) -> None:
        """Of each run task, how well the client kept up and what serving took."""
        for note in summary.notes:
            self.news.write("monitor_note", message=note)
        phases = {phase.name: phase for phase in summary.phases}
        for name, seen in self.seen.items():
            median = statistics.median(seen.first_tokens or [0.0])
            told: dict[str, Any] = {
                "client_bound": seen.health.client_bound(median),
                **seen.health.to_json(),
            }
            self.news.write("client_health", run_task=name, **told)
            if name in phases:
                figures = asdict(memory_figures(phases[name], seen.memory))
                known = {key: value for key, value in figures.items() if value is not None}
                self.news.write("monitor", run_task=name, memory=known)

    def _alarm(self, alarm: Alarm) -> None:
        log = self.experiment.worker_log(self.group.id, self.owner.id)
        said = {"tail": last_lines(log)[-TAIL_LINES:]} if alarm.kind in ENGINES_DOING else {}
        self.news.write("alarm", sync=True, kind=alarm.kind, message=alarm.message, **said)

    async def _work(self, wrapper: EngineProcess) -> None:
        watching = asyncio.ensure_future(self._watch_wishes())
        try:
            while not self.stop.is_set():
                found = self.board.next(wrapper.model, self._seconds_left())
                if found is None:
                    return
                await self._take(wrapper, found)
        finally:
            watching.cancel()

    def _seconds_left(self) -> float:
        """Until this job's time is up. What is thought too long for a fresh worker is tried all the same: no
        later worker will have more time, and what it answers until it is told to end is not asked again."""
        if self.loaded is None:
            return float("inf")
        limit = seconds(self.group.resources.time_limit)
        return limit - (time.monotonic() - self.started)

    async def _take(self, wrapper: EngineProcess, found: Candidate) -> None:
        """Load the model of a shard, claim it, do it."""
        run_task = self.experiment.resolved.run_task(found.shard.run_task)
        if not await self._load(wrapper, await self._model(run_task)):
            return
        await self._look_at_wishes()
        if self.wishes.rests(run_task.name):
            return
        taken = self.board.claim(found)
        if taken is None:
            return
        begun, self.at, self.halt = time.monotonic(), run_task.name, asyncio.Event()
        self.news.write("shard_claimed", shard=taken.shard.id, attempt=taken.attempt)
        await self._shard(wrapper, run_task, taken)
        self.at = None
        self.board.took(found.shard.seconds, time.monotonic() - begun)
        if run_task.pair is not None and await look_if_due(
            self.experiment, run_task.pair, self.stop
        ):
            self.wishes = control_state(self.experiment)

    async def _model(self, run_task: ResolvedRunTask) -> Model:
        """A run task's model, as near as it can be had and in this group's shape."""
        near = await self._near(run_task.model.source)
        return run_task.model.model_copy(update={"source": near, "gpus": self.group.gpus})

    async def _watch_wishes(self) -> None:
        """Do as people want, while it runs."""
        while True:
            await asyncio.sleep(WISH_SECONDS)
            await self._look_at_wishes()
            if self.wishes.cancelled or self.wishes.paused:
                self._drain("cancel" if self.wishes.cancelled else "pause")
            elif self.at is not None and self.wishes.rests(self.at):
                self.halt.set()

    async def _look_at_wishes(self) -> None:
        with contextlib.suppress(OSError):  # a file system that hangs is met elsewhere too
            self.wishes = await asyncio.to_thread(control_state, self.experiment)

    async def _near(self, source: str) -> str:
        """A copy on this node of a dataset or model, where the site wants one and there is room."""
        wanted = self.experiment.resolved.site.staging
        if wanted is None or not source:
            return source
        if source not in self.staged:
            begun = time.monotonic()
            self.staged[source] = source
            try:
                folder = staging_folder(wanted)
                copied = await asyncio.to_thread(stage, Path(source), folder)
            except EnvironmentFault as fault:
                self.news.write("staging_skipped", source=source, message=str(fault))
            else:
                self.staged[source] = str(copied)
                taken = round(time.monotonic() - begun, 1)
                self.news.write("staged", source=source, path=str(copied), seconds=taken)
        return self.staged[source]

    async def _load(self, wrapper: EngineProcess, model: Model) -> bool:
        """Have the model loaded; False if it cannot be, which is told once and ends its shards here."""
        if wrapper.model == model.name:
            return True
        self.news.write("model_loading", sync=True, model=model.name)
        self.monitor.mark(f"loading {model.name}")
        self._watch(wrapper, None)
        loading = asyncio.ensure_future(self._fitting(wrapper, model))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            await asyncio.wait({loading})
            return False
        try:
            self.loaded, self.warm = loading.result(), False
        except (LoadFailed, EngineGone) as error:
            self.board.given_up.add(model.name)
            self.news.write(
                "model_failed",
                sync=True,
                model=model.name,
                message=explained(error, wrapper.log),
                log=str(wrapper.log),
                cause=(error.cause if isinstance(error, LoadFailed) else None) or "unknown",
            )
            self._load_failed()
            return False
        self.failed_loads = 0
        self._watch(wrapper, self.loaded)
        self.news.write(
            "model_ready",
            sync=True,
            model=model.name,
            seconds=round(self.loaded.seconds, 1),
            source=None if wrapper.elsewhere else model.source,
            versions=dict(self.loaded.versions),
            hardware=None if wrapper.elsewhere else await asyncio.to_thread(machine, model.gpus),
            **({"uncounted": self.loaded.uncounted} if self.loaded.uncounted else {}),
        )
        return True

    async def _fitting(self, wrapper: EngineProcess, model: Model) -> Loaded:
        """Load a model for which there is room here."""
        if not wrapper.elsewhere:
            lacking = await asyncio.to_thread(check_allocation, model.gpus, model.gpu_memory_gb)
            if lacking:
                raise LoadFailed("allocation", lacking, cause="allocation")
        return await wrapper.load(model, lambda line: self.news.write("loading", message=line))

    def _watch(self, wrapper: EngineProcess, loaded: Loaded | None) -> None:
        """Have the monitor look at this engine; None: at none."""
        seen_from_here = loaded is not None and not wrapper.elsewhere
        self.monitor.watch_engine(loaded.pid if loaded and seen_from_here else None)
        self.monitor.ask_engine(wrapper.gauges() if loaded else None)

    async def _unloaded(self) -> None:
        """An engine has ended."""
        await wait_for_memory(self.monitor, self.news)

    def _load_failed(self) -> None:
        """After several in a row it is this node, not the models: leave the work to others."""
        self.failed_loads += 1
        if self.failed_loads >= LOAD_FAILURES:
            what = f"{self.failed_loads} loads in a row failed on {self.owner.node}"
            self.news.write("bad_node", sync=True, node=self.owner.node, message=what)
            self._drain("bad node")

    async def _shard(self, wrapper: EngineProcess, run_task: ResolvedRunTask, taken: Claim) -> None:
        """Ask every sample of the shard that has no answer yet."""
        try:
            await self._answer(wrapper, run_task, taken)
        except Fenced as fenced:
            taken.abandon()
            self.news.write("fenced", message=str(fenced))
            if _is_replaced(self.experiment, taken, self.owner):
                self._drain("replaced by a later run of this job")
        except EngineGone as gone:
            taken.end("failed", reason=str(gone), in_flight=list(gone.in_flight))
        except OSError:
            taken.abandon()
            raise
        except HpcbenchError as error:
            taken.end("failed", reason=str(error))
            self.news.write("shard_failed", sync=True, shard=taken.shard.id, message=str(error))
        else:
            whole = len(taken.answered) == taken.shard.stop - taken.shard.start
            last = taken.end("done" if whole else "drained")
            if whole:
                self._tell_done(taken, last)
                self.board.done(taken.shard)

    def _tell_done(self, done: Claim, last: Mapping[str, Any]) -> None:
        """Say in our own log what the shard's says: a look at 10,000 shards then opens 200 files."""
        self.news.write(
            "shard_done",
            shard=done.shard.id,
            attempt=done.attempt,
            began=done.began,
            ended=last["time"],
            answered=last["answered"],
        )

    def _pilot(self, run_task: ResolvedRunTask) -> Pilot:
        """The pilot of a run task, of as many samples as are wanted now."""
        name, wanted = run_task.name, self.wishes.pilot
        if wanted is None:
            wanted = self.experiment.resolved.plan.pilot
        cuts = self.experiment.work.cuts
        size = min(wanted, *(cut.samples for cut in cuts if cut.run_task == name))
        known = self.pilots.get(name)
        if known is None or known.size != size:
            known = self.pilots[name] = Pilot(run_task, size)
        return known

    async def _judge(self, run_task: ResolvedRunTask, taken: Claim, response: Response) -> None:
        """End a run task, for all workers, whose pilot failed."""
        pilot = self.pilots.get(run_task.name)
        why = pilot.judge(response) if pilot is not None else None
        if why is None:
            return
        del self.pilots[run_task.name]  # if people resume it meanwhile, it has a pilot again
        await asyncio.to_thread(taken.acknowledge)
        self.halt.set()
        await self._look_at_wishes()
        if run_task.name not in self.wishes.failed_tasks:
            ends: Sequence[str] = (run_task.name,)
            if run_task.pair is not None:  # one arm alone compares with nothing
                ends = self.experiment.resolved.pairs[run_task.pair]
                why = f"arm {run_task.arm} ends both: {why}"
            told = f"{why}; {_go_on_with(self.experiment.id)}"
            control_request(self.experiment, "fail", ends, secret.mask(told))
            await self._look_at_wishes()

    async def _answer(
        self, wrapper: EngineProcess, run_task: ResolvedRunTask, taken: Claim
    ) -> None:
        """Ask every sample that has no answer yet; when the engine dies, load it again and go on.

        Raises:
            EngineGone: the model is given up: its engine dies for no sample's fault, or does not load.
        """
        suspected = self.suspected.setdefault(run_task.name, set())
        own = suspects(self.experiment, taken.shard)
        while True:
            suspected.update(own)
            try:
                await self._alone(wrapper, run_task, taken, own)
                await self._ask(wrapper, run_task, taken)
                return
            except EngineGone as gone:
                taken.acknowledge()
                own = list(gone.in_flight)
                await self._engine_died(wrapper, run_task.model, gone)
                if run_task.model.name in self.board.given_up:
                    raise
                if not await self._load(wrapper, await self._model(run_task)):
                    if self.stop.is_set():
                        return
                    raise

    async def _alone(
        self,
        wrapper: EngineProcess,
        run_task: ResolvedRunTask,
        taken: Claim,
        suspected: Sequence[str],
    ) -> None:
        """Ask alone, one after the other, what an engine was at when it died.

        Who ends the engine alone, after it has answered something else, is found guilty: it gets an answer
        that says so, and the others go on. That takes one load for each of the guilty, where halving the
        suspects would take several.

        Raises:
            EngineGone: the engine cannot be had again, dies of anything, or of too many samples.
        """
        for sample_id in suspected:
            if sample_id in taken.answered or self.halt.is_set() or self.stop.is_set():
                continue
            try:
                await self._ask(wrapper, run_task, taken, only=sample_id)
                self.suspected[run_task.name].discard(sample_id)
            except EngineGone as gone:
                if not self.warm or self.poisonous >= POISONOUS:
                    raise
                self.poisonous += 1
                self.deaths[run_task.model.name] = max(0, self._deaths(run_task.model) - 1)
                asking = await self._asking(run_task)
                poisonous = _poisonous(next(asking.left(taken, sample_id)), gone)
                taken.record(poisonous)
                taken.acknowledge()
                await self._judge(run_task, taken, poisonous)
                message = (
                    f"sample {sample_id} ended the engine twice, the second time alone: {gone}"
                )
                self.news.write("poisonous", sync=True, run_task=run_task.name, message=message)
                wrapper.model = None
                if not await self._load(wrapper, await self._model(run_task)):
                    if self.stop.is_set():
                        return
                    raise

    async def _ask(
        self,
        wrapper: EngineProcess,
        run_task: ResolvedRunTask,
        taken: Claim,
        only: str | None = None,
    ) -> None:
        """Ask what is left of a shard, or one sample of it."""
        last_sync = last_news = time.monotonic()
        asking = await self._asking(run_task)
        asking.check(taken)
        await self._warm_up(wrapper, asking, at_least=1 if only else 0)
        self.monitor.mark(run_task.name)
        assert self.loaded is not None
        seen = self.seen.setdefault(run_task.name, _Seen(self.loaded.memory))
        concurrency = 1 if only else self._concurrency(run_task)
        if not only:
            self._tell_chosen(run_task, concurrency)
        responses = drive(
            wrapper.client,
            asking.left(taken, only),
            concurrency,
            self.halt,
            arrivals=None if only else asking.arrivals(self.experiment.resolved.plan.seed),
            health=seen.health,
        )
        async with contextlib.aclosing(responses) as stream:
            async for response in stream:
                taken.record(response)
                await self._judge(run_task, taken, response)
                self.warm = True
                if response.times.chunks:
                    seen.first_tokens.append((response.times.chunks[0] - response.times.send) / 1e6)
                now = time.monotonic()
                if now - last_sync >= ACKNOWLEDGE_SECONDS:
                    await asyncio.to_thread(taken.acknowledge)
                    last_sync = now
                if now - last_news >= PROGRESS_SECONDS:
                    self.news.write("progress", shard=taken.shard.id, answered=len(taken.answered))
                    last_news = now
        taken.acknowledge()
        if not only:
            self._tell_chosen(run_task, concurrency)

    async def _asking(self, run_task: ResolvedRunTask) -> RequestBuilder:
        name, dataset = run_task.name, await self._dataset(run_task)
        chosen, count = self.experiment.chosen(name), self.experiment.dataset_samples(name)
        check_places(dataset, run_task.dataset.name, count, chosen)
        pilot = self._pilot(run_task)
        pilot.begin()
        return RequestBuilder(run_task, dataset, chosen, pilot.takes)

    async def _dataset(self, run_task: ResolvedRunTask) -> DatasetIterator:
        """A run task's dataset, opened once for all that ask of it."""
        document = run_task.dataset.model_dump_json()
        if document not in self.datasets:
            near = await self._near(run_task.dataset.source)
            dataset = run_task.dataset.model_copy(update={"source": near})
            self.datasets[document] = open_dataset(
                dataset, self.experiment.cache_dir, Path(run_task.dataset.source)
            )
        return self.datasets[document]

    async def _warm_up(
        self, wrapper: EngineProcess, asking: RequestBuilder, at_least: int = 0
    ) -> None:
        """Ask what is not counted: once after each load, and before each point of a sweep."""
        count = max(at_least, asking.run_task.task.warm_up)
        if count and not (self.warm and asking.run_task.sweep is None) and not self.stop.is_set():
            self.monitor.mark("warm-up")
            at_once = min(count, asking.run_task.in_flight or count)
            avoided = self.suspected.get(asking.run_task.name, ())
            await warm_up(wrapper.client, asking.others(count, avoided), at_once)
            self.warm = True

    def _concurrency(self, run_task: ResolvedRunTask) -> int | Adaptive:
        """Requests in flight; of an endpoint elsewhere `auto` is only the most that are tried."""
        most = run_task.in_flight
        if most is None:
            return self.best.setdefault(run_task.model.name, Adaptive())
        if most > 1 and run_task.task.concurrency == "auto" and not run_task.model.source:
            return self.best.setdefault(run_task.model.name, Adaptive(most))
        return most

    def _tell_chosen(self, run_task: ResolvedRunTask, concurrency: int | Adaptive) -> None:
        """Say what `concurrency: auto` has come to, whenever it is another number than before."""
        if run_task.task.concurrency != "auto":
            return
        at_once = concurrency.limit if isinstance(concurrency, Adaptive) else concurrency
        if self.chosen.get(run_task.name) != at_once:
            self.chosen[run_task.name] = at_once
            self.news.write("concurrency", sync=True, run_task=run_task.name, at_once=at_once)

    def _deaths(self, model: Model) -> int:
        return self.deaths.get(model.name, 0)

    async def _engine_died(self, wrapper: EngineProcess, model: Model, gone: EngineGone) -> None:
        cause = await wrapper.cause()
        wrapper.model = None
        self.deaths[model.name] = self._deaths(model) + 1
        self.news.write("engine_died", sync=True, model=model.name, message=str(gone), cause=cause)
        if self.deaths[model.name] >= ENGINE_DEATHS:
            self.board.given_up.add(model.name)
            self.news.write(
                "model_failed",
                sync=True,
                model=model.name,
                message=f"the engine died {ENGINE_DEATHS} times: {gone}",
                log=str(wrapper.log),
                cause=cause,
            )

    def _drain(self, name: str) -> None:
        if not self.stop.is_set():
            self.stop.set()
            self.halt.set()
            self.news.write("draining", signal=name)


def _go_on_with(experiment: str) -> str:
    return (
        f"mend it, then `hpcbench resume {experiment}`; "
        f"`hpcbench resume {experiment} --pilot 0` asks all the rest whatever happens"
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
        tries=0,  # as of one that was never sent: its times say nothing of the engine's speed
        image_sha256=(),
        error=f"ended the engine twice, the second time alone: {gone}",
        prompt=request.prompt,
    )


def _is_replaced(experiment: Experiment, taken: Claim, owner: Owner) -> bool:
    """Whether a later run of this very job works on: Slurm took this one for dead."""
    (state,) = states_of(experiment, [taken.shard])
    newer = state.owner
    return newer is not None and newer["job"] == owner.job and newer["restart"] > owner.restart


@dataclass
class _Seen:
    """How well a run task's requests could be timed, and what its engine said of memory."""

    memory: LoggedMemory
    health: Health = field(default_factory=Health)
    first_tokens: list[float] = field(default_factory=list)
    """Milliseconds to each first token."""


class RequestBuilder:
    """A run task's questions."""

    def __init__(
        self,
        run_task: ResolvedRunTask,
        dataset: DatasetIterator,
        chosen: Ranges,
        on_take: Callable[[Sample], None] = lambda sample: None,
    ) -> None:
        self.run_task, self._dataset, self._chosen = run_task, dataset, chosen
        self._on_take = on_take
        """Is given each sample that is going to be asked and counts."""
        self._prompt = TaskPrompt(run_task)

    def check(self, taken: Claim) -> None:
        """See that what was answered of a shard stands in it.

        Raises:
            UserError: it does not.
        """
        if taken.answered:
            places = self._chosen, taken.shard.start, taken.shard.stop
            here = {sample.id for sample in samples(self._dataset, *places, images=False)}
            check_answers(taken.answered, here, self.run_task.dataset.name)

    def left(self, taken: Claim, only: str | None = None) -> Iterator[Request]:
        """What is still to be asked of a shard, in the dataset's order; `only`: one sample of it."""
        for sample in samples(self._dataset, self._chosen, taken.shard.start, taken.shard.stop):
            if sample.id not in taken.answered and only in (None, sample.id):
                self._on_take(sample)
                yield self._request(sample)

    def others(self, count: int, avoided: Collection[str] = ()) -> Iterator[Request]:
        """As many that are not counted: of samples nobody asks about, the rest of those, made new to caches.

        Of the `avoided` there is none: an engine may not survive them.
        """
        given = 0
        for sample in self._apart(_between(self._chosen, self._dataset.count()), count, avoided):
            try:
                request = self._request(sample)
            except UserError:  # nobody has looked whether one can be made for it
                continue
            given += 1
            yield request
        for sample in self._apart(self._chosen, count - given, avoided):
            yield as_new(self._request(sample))

    def _apart(self, places: Ranges, count: int, avoided: Collection[str]) -> Iterator[Sample]:
        """As many samples that lie apart from each other, so that they are as different as the dataset is."""
        number = total(places)
        for turn in range(min(count, number)):
            at = turn * number // min(count, number)
            for place in range(at, min(at + 1 + len(avoided), number)):
                (sample,) = samples(self._dataset, places, place, place + 1)
                if sample.id not in avoided:
                    yield sample
                    break

    def arrivals(self, seed: int) -> Iterator[float] | None:
        """When requests are due, where they are sent at a rate."""
        task = self.run_task.task
        if task.rate is None:
            return None
        return constant(task.rate) if task.arrival == "constant" else poisson(task.rate, seed)

    def _request(self, sample: Sample) -> Request:
        messages, name = self._prompt.build(sample), self._prompt.name(sample)
        timeout = self.run_task.task.request_timeout
        return Request(sample.id, messages, self._prompt.generation, timeout, name)


def _between(ranges: Ranges, stop: int) -> list[tuple[int, int]]:
    """What is left of 0 to `stop` without these ranges."""
    edges = [0, *(edge for one in ranges for edge in one), stop]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
