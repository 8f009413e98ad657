"""Claim → load → drive → record → next: what a worker does with its time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.data.datasets import Ranges, open_dataset, samples, total
from hpcbench.data.staging import stage, staging_folder
from hpcbench.environments.orphans import reap
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.experiment.claims import (
    Claim,
    Fenced,
    Owner,
    ShardState,
    claim,
    shard_states,
)
from hpcbench.experiment.layout import Experiment
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
from hpcbench.inference.fresh import as_new
from hpcbench.monitor import (
    Alarm,
    LoggedMemory,
    Monitor,
    Summary,
    check_allocation,
    memory_figures,
)
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.documents import Model, seconds
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.schema.records import Request, Sample
from hpcbench.worker.engine import EngineProcess, Loaded, explained, scratch
from hpcbench.worker.news import News

PROGRESS_SECONDS = 5.0
"""Progress events are no truth, only news: rare enough for a shared file system."""

ACKNOWLEDGE_SECONDS = 0.25
"""Answers wait at most this long for their fsync."""

ENGINE_DEATHS = 2
"""A model whose engine died so often under one worker is given up by that worker."""


def main(argv: Sequence[str]) -> None:
    """Run one worker: `hpcbench.worker EXPERIMENT GROUP`."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    group = next(group for group in experiment.work.groups if group.id == argv[1])
    code = asyncio.run(Worker(experiment, group, Owner.here()).run())
    if code:
        sys.exit(code)


class Worker:
    """One worker of one group."""

    def __init__(self, experiment: Experiment, group: Group, owner: Owner) -> None:
        self.experiment, self.group, self.owner = experiment, group, owner
        self.started = time.monotonic()
        self.stop = asyncio.Event()
        self.news = News(experiment, group, owner)
        self.given_up: set[str] = set()
        self.deaths: dict[str, int] = {}
        self.longest_shard = 0.0
        self.done: set[str] = set()
        self.datasets: dict[str, DatasetIterator] = {}
        self.staged: dict[str, str] = {}
        self.chance = random.Random(owner.id)
        self.loaded: Loaded | None = None
        self.warm = False
        """Whether the engine has answered anything since it was loaded."""
        self.seen: dict[str, _Seen] = {}
        """Run task → how well its requests could be timed here."""
        self.best: dict[str, Adaptive] = {}
        """Model → what was learnt of the concurrency that serves it best."""
        self.monitor: Monitor

    async def run(self) -> int:
        """Work until nothing is left; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, signal.Signals(number).name)
        try:
            self.news.open()
            if reaped := reap():
                self.news.write("orphans_reaped", names=reaped)
            async with (
                self._monitored(),
                EngineProcess(self.experiment, self.group, self.owner) as wrapper,
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
        self.news.write("alarm", sync=True, kind=alarm.kind, message=alarm.message)

    async def _work(self, wrapper: EngineProcess) -> None:
        while not self.stop.is_set():
            state = self._choose(wrapper.model)
            if state is None:
                return
            run_task = self.experiment.resolved.run_task(state.shard.run_task)
            near = await self._near(run_task.model.source)
            model = run_task.model.model_copy(update={"source": near})
            if not await self._load(wrapper, model):
                continue
            taken = claim(self.experiment, state, self.owner)
            if taken is not None:
                begun = time.monotonic()
                await self._shard(wrapper, run_task, taken)
                self.longest_shard = max(self.longest_shard, time.monotonic() - begun)

    def _choose(self, loaded: str | None) -> ShardState | None:
        """The next shard to try: our own from before a requeue, of the loaded model, else any."""
        left = seconds(self.group.resources.time_limit) - (time.monotonic() - self.started)
        if self.longest_shard and left < 1.5 * self.longest_shard:
            self.news.write("time_limit_near", seconds_left=round(left))
            return None
        resolved = self.experiment.resolved
        known = shard_states(self.experiment, self.group.run_tasks, skip=self.done)
        self.done.update(state.shard.id for state in known if state.state == "done")
        states = [
            state
            for state in known
            if (state.claimable or self._mine(state))
            and resolved.run_task(state.shard.run_task).model.name not in self.given_up
        ]
        if not states:
            return None

        def preference(state: ShardState) -> tuple[bool, bool]:
            model = resolved.run_task(state.shard.run_task).model.name
            return (not self._mine(state), loaded is not None and model != loaded)

        best = min(map(preference, states))
        likely = [state for state in states if preference(state) == best]
        # Nearly in order, but workers that start together do not all reach for the same shard.
        return self.chance.choice(likely[: 2 * self.group.workers])

    def _mine(self, state: ShardState) -> bool:
        """Whether an earlier run of this very array task left it behind."""
        owner = state.owner
        return (
            state.state == "claimed"
            and owner is not None
            and owner["job"] == self.owner.job
            and owner["restart"] < self.owner.restart
        )

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
            self.given_up.add(model.name)
            self.news.write(
                "model_failed",
                sync=True,
                model=model.name,
                message=explained(error, wrapper.log),
                log=str(wrapper.log),
            )
            return False
        self._watch(wrapper, self.loaded)
        self.news.write(
            "model_ready",
            sync=True,
            model=model.name,
            seconds=round(self.loaded.seconds, 1),
            versions=dict(self.loaded.versions),
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

    async def _shard(self, wrapper: EngineProcess, run_task: ResolvedRunTask, taken: Claim) -> None:
        """Ask every sample of the shard that has no answer yet."""
        try:
            await self._ask(wrapper, run_task, taken)
        except Fenced as fenced:
            taken.abandon()
            self.news.write("fenced", message=str(fenced))
        except EngineGone as gone:
            taken.end("drained", reason=str(gone))
            self._engine_died(wrapper, run_task.model, gone)
        except OSError:
            taken.abandon()
            raise
        except HpcbenchError as error:
            taken.end("failed", reason=str(error))
            self.news.write("shard_failed", sync=True, shard=taken.shard.id, message=str(error))
        else:
            whole = len(taken.answered) == taken.shard.stop - taken.shard.start
            taken.end("done" if whole else "drained")

    async def _ask(self, wrapper: EngineProcess, run_task: ResolvedRunTask, taken: Claim) -> None:
        last_sync = last_news = time.monotonic()
        if run_task.name not in self.datasets:
            cache = self.experiment.cache_dir
            near = await self._near(run_task.dataset.source)
            dataset = run_task.dataset.model_copy(update={"source": near})
            self.datasets[run_task.name] = open_dataset(dataset, cache)
        chosen = self.experiment.chosen(run_task.name)
        asking = _Asking(run_task, self.datasets[run_task.name], chosen)
        await self._warm_up(wrapper, asking)
        self.monitor.mark(run_task.name)
        assert self.loaded is not None
        seen = self.seen.setdefault(run_task.name, _Seen(self.loaded.memory))
        responses = drive(
            wrapper.client,
            asking.left(taken),
            self._concurrency(run_task),
            self.stop,
            arrivals=asking.arrivals(self.experiment.resolved.plan.seed),
            health=seen.health,
        )
        async with contextlib.aclosing(responses) as stream:
            async for response in stream:
                taken.record(response)
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

    async def _warm_up(self, wrapper: EngineProcess, asking: _Asking) -> None:
        """Ask what is not counted: once after each load, and before each point of a sweep."""
        count = asking.run_task.task.warm_up
        if count and not (self.warm and asking.run_task.sweep is None) and not self.stop.is_set():
            self.monitor.mark("warm-up")
            concurrency = asking.run_task.task.concurrency
            at_once = min(count, concurrency) if isinstance(concurrency, int) else count
            await warm_up(wrapper.client, asking.others(count), at_once)
        self.warm = True

    def _concurrency(self, run_task: ResolvedRunTask) -> int | Adaptive:
        wanted = run_task.task.concurrency
        if wanted == "auto":
            return self.best.setdefault(run_task.model.name, Adaptive())
        return wanted

    def _engine_died(self, wrapper: EngineProcess, model: Model, gone: EngineGone) -> None:
        wrapper.model = None
        self.deaths[model.name] = self.deaths.get(model.name, 0) + 1
        self.news.write("engine_died", sync=True, model=model.name, message=str(gone))
        if self.deaths[model.name] >= ENGINE_DEATHS:
            self.given_up.add(model.name)
            self.news.write(
                "model_failed",
                sync=True,
                model=model.name,
                message=f"the engine died {ENGINE_DEATHS} times: {gone}",
                log=str(wrapper.log),
            )

    def _drain(self, name: str) -> None:
        if not self.stop.is_set():
            self.stop.set()
            self.news.write("draining", signal=name)


@dataclass
class _Seen:
    """How well a run task's requests could be timed, and what its engine said of memory."""

    memory: LoggedMemory
    health: Health = field(default_factory=Health)
    first_tokens: list[float] = field(default_factory=list)
    """Milliseconds to each first token."""


class _Asking:
    """A run task's questions."""

    def __init__(self, run_task: ResolvedRunTask, dataset: DatasetIterator, chosen: Ranges) -> None:
        self.run_task, self._dataset, self._chosen = run_task, dataset, chosen
        self._prompt = TaskPrompt(run_task)
        settings = run_task.task.generation.model_dump(mode="json")
        extra = settings.pop("extra")
        said = {key: value for key, value in settings.items() if value not in (None, [])}
        self._generation = said | extra | self._prompt.generation

    def left(self, taken: Claim) -> Iterator[Request]:
        """What is still to be asked of a shard, in the dataset's order."""
        for sample in samples(self._dataset, self._chosen, taken.shard.start, taken.shard.stop):
            if sample.id not in taken.answered:
                yield self._request(sample)

    def others(self, count: int) -> Iterator[Request]:
        """As many that are not counted: of samples nobody asks about, else of those, made new to caches.

        They lie apart from each other, so that they are as different as the dataset is.
        """
        whole = self._dataset.count()
        spare = _between(self._chosen, whole)
        places = spare or self._chosen
        number = total(places)
        for turn in range(min(count, number)):
            at = turn * number // min(count, number)
            for sample in samples(self._dataset, places, at, at + 1):
                request = self._request(sample)
                yield request if spare else as_new(request)

    def arrivals(self, seed: int) -> Iterator[float] | None:
        """When requests are due, where they are sent at a rate."""
        task = self.run_task.task
        if task.rate is None:
            return None
        return constant(task.rate) if task.arrival == "constant" else poisson(task.rate, seed)

    def _request(self, sample: Sample) -> Request:
        messages, name = self._prompt.build(sample), self._prompt.name(sample)
        timeout = self.run_task.task.request_timeout
        return Request(sample.id, messages, self._generation, timeout, name)


def _between(ranges: Ranges, stop: int) -> list[tuple[int, int]]:
    """What is left of 0 to `stop` without these ranges."""
    edges = [0, *(edge for one in ranges for edge in one), stop]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
