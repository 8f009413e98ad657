"""Engines of the models that an agent uses beside its own: in the same job, each on GPUs of its own.

All engines of a job are one unit. They are loaded one after the other, the worker's own first. When one of
them dies, all end: only then is the memory of every GPU known to be free for the next loads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from hpcbench.errors import RunFailed
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.inference.client import Client, EngineGone, LoadFailed
from hpcbench.monitor.devices import handles
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.worker.engine import EngineProcess, explained
from hpcbench.worker.event_log import WorkerEvents
from hpcbench.worker.limit_watch import LimitWatch
from hpcbench.worker.node_copies import NodeCopies
from hpcbench.worker.serving import ENGINE_DEATHS, load_engine, log_death
from hpcbench.worker.token_watch import TokenWatch


class EnginesBeside:
    """The engines beside a worker's own.

    Args:
        experiment: the experiment.
        group: the worker's group.
        owner: the worker.
        events: the worker's log.
        near: knows copies of weights on this node.
        stop: set when the worker ends.
    """

    def __init__(
        self,
        experiment: Experiment,
        group: Group,
        owner: Owner,
        events: WorkerEvents,
        near: NodeCopies,
        stop: asyncio.Event,
    ) -> None:
        self._experiment, self._group, self._owner = experiment, group, owner
        self._events, self._near, self._stop = events, near, stop
        self._engines: dict[str, EngineProcess] = {}
        """Model → its engine, which is loaded."""
        self._watches: dict[str, tuple[TokenWatch, LimitWatch]] = {}
        """Model → what is logged of its token server and its gateway's rate limits."""
        self._deaths = Counter[str]()
        self._given_up: dict[str, str] = {}
        """Model → why it is not tried any more."""

    async def of(
        self, run_task: ResolvedRunTask, own: Client
    ) -> dict[str, tuple[ResolvedRunTask, Client]] | None:
        """Run task whose model an agent uses → the agent's run task with that model, and a client of its
        engine; None: the worker is stopped.

        Args:
            run_task: the agent's.
            own: client of the worker's own engine.

        Raises:
            RunFailed: a model cannot be loaded.
        """
        resolved = self._experiment.resolved
        wanted = resolved.engines_beside(run_task)
        for name in [name for name in self._engines if name not in wanted]:
            await self._end(name)
        place = self._group.gpus - resolved.gpus_beside(run_task)
        for name, one in wanted.items():
            if name not in self._engines and not await self._load(one, place):
                return None
            place += one.model.gpus
        clients = {name: engine.client_for(wanted[name]) for name, engine in self._engines.items()}
        clients[run_task.model.name] = own
        return {
            name: (one, clients[one.model.name]) for name, one in resolved.beside(run_task).items()
        }

    async def died(self, gone: EngineGone) -> None:
        """Handle the end of the engine of `gone.model`: all end, and the next `of` loads them again."""
        name, engine = gone.model, self._engines.get(gone.model)
        blamed = await engine.blamed() if engine is not None else None
        message, _ = await log_death(engine, name, gone, blamed, self._events)
        self._deaths[name] += 1
        if self._deaths[name] >= ENGINE_DEATHS:
            self._given_up[name] = (
                f"the engine of model '{name}' died {ENGINE_DEATHS} times: {message}"
            )
        await self.end()

    async def ended_by_sample(self, gone: EngineGone) -> None:
        """Handle an engine that one sample ended twice: its first death is not the model's fault."""
        self._deaths[gone.model] -= 1
        self._given_up.pop(gone.model, None)
        await self.end()

    async def end(self) -> None:
        """End all."""
        for name in [*self._engines]:
            await self._end(name)

    async def _load(self, one: ResolvedRunTask, place: int) -> bool:
        """Load a model on the GPUs from a place on; False: the worker is stopped."""
        name, gpus = one.model.name, one.model.gpus
        if name in self._given_up:
            raise RunFailed(self._given_up[name])
        source = await self._near.source(one.model.source)
        model = one.model.model_copy(update={"source": source})
        engine = EngineProcess(
            self._experiment,
            replace(self._group, gpus=gpus, image=model.image, environment=one.environment),
            self._owner,
            _nothing,
            run_tasks=[one],
            devices=handles()[place : place + gpus] if gpus else None,
        )
        self._engines[name] = await engine.__aenter__()
        tokens, limits = self._watches.setdefault(
            name, (TokenWatch(self._events), LimitWatch(self._events))
        )
        all_gpus = self._group.gpus if gpus else 0
        try:
            if await load_engine(engine, model, all_gpus, self._events, tokens, self._stop) is None:
                await self._end(name)
                return False
            limits.follow(name, engine.client.limits)
            await engine.client.take(one.task.route if one.task.protocol == "http" else "proxied")
        except (LoadFailed, EngineGone) as error:
            await tokens.end(await asyncio.to_thread(engine.logged))
            why = self._given_up[name] = (
                f"model '{name}' of an agent: {explained(error, engine.log)}"
            )
            await self._end(name)
            raise RunFailed(why) from error
        return True

    async def _end(self, name: str) -> None:
        engine = self._engines.pop(name, None)
        if engine is not None:
            tokens, limits = self._watches[name]
            await tokens.end()
            limits.end()
            await engine.__aexit__(None, None, None)


async def _nothing() -> None:
    """The memory of GPUs is waited for before the worker's own engine is loaded again."""
