"""Claim → load → drive → record → next: what a worker does with its time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.data.datasets import Ranges, open_dataset, samples
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
from hpcbench.inference import EngineGone, LoadFailed, drive
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.documents import Model, seconds
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.schema.records import Request
from hpcbench.worker.engine import EngineProcess, explained
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

    async def run(self) -> int:
        """Work until nothing is left; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, signal.Signals(number).name)
        try:
            self.news.open()
            if reaped := reap():
                self.news.write("orphans_reaped", names=reaped)
            async with EngineProcess(self.experiment, self.group, self.owner) as wrapper:
                await self._work(wrapper)
            return self.news.close("stopped" if self.stop.is_set() else "finished")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return self.news.disk_full(error)
        except HpcbenchError as error:
            return self.news.close("failed", message=str(error), exit_code=error.exit_code)

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
        if wanted is None:
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
        loading = asyncio.ensure_future(wrapper.load(model))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            await asyncio.wait({loading})
            return False
        try:
            seconds_taken = loading.result()
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
        self.news.write("model_ready", sync=True, model=model.name, seconds=round(seconds_taken, 1))
        return True

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
        requests = _requests(run_task, self.datasets[run_task.name], chosen, taken)
        responses = drive(wrapper.client, requests, run_task.task.concurrency, self.stop)
        async with contextlib.aclosing(responses) as stream:
            async for response in stream:
                taken.record(response)
                now = time.monotonic()
                if now - last_sync >= ACKNOWLEDGE_SECONDS:
                    await asyncio.to_thread(taken.acknowledge)
                    last_sync = now
                if now - last_news >= PROGRESS_SECONDS:
                    self.news.write("progress", shard=taken.shard.id, answered=len(taken.answered))
                    last_news = now
        taken.acknowledge()

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


def _requests(
    run_task: ResolvedRunTask, dataset: DatasetIterator, chosen: Ranges, taken: Claim
) -> Iterator[Request]:
    """What is still to be asked, in the dataset's order."""
    task = run_task.task
    prompt = TaskPrompt(run_task)
    settings = task.generation.model_dump(mode="json")
    extra = settings.pop("extra")
    generation = {key: value for key, value in settings.items() if value not in (None, [])} | extra
    generation |= prompt.generation
    for sample in samples(dataset, chosen, taken.shard.start, taken.shard.stop):
        if sample.id not in taken.answered:
            messages, name = prompt.build(sample), prompt.name(sample)
            yield Request(sample.id, messages, generation, task.request_timeout, name)
