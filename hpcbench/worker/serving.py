"""The engine of one worker: loads models one after the other, and gives up hopeless ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hpcbench.inference.client import EngineGone, LoadFailed
from hpcbench.monitor.devices import check_allocation, machine
from hpcbench.schema.model import Model
from hpcbench.worker.engine import TAKEN, EngineProcess, Loaded, explained
from hpcbench.worker.event_log import WorkerEvents
from hpcbench.worker.job_watch import JobWatch
from hpcbench.worker.limit_watch import LimitWatch
from hpcbench.worker.ranks import NOT_JOINED, RankFailure
from hpcbench.worker.token_watch import TokenWatch

ENGINE_DEATHS = 2
"""Deaths of an engine without a guilty sample after which its worker gives up the model."""

LOAD_FAILURES = 3
"""Failed loads in a row after which a worker takes its node for bad: it claims no more work."""


class Serving:
    """The engine, with any model.

    Args:
        wrapper: the wrapper's process.
        events: the worker's log.
        watch: is informed of each engine.
        node: name of this node.
        stop: set when the worker ends.
        given_up: models that are not tried any more; filled here.
        drain: ends the worker.
    """

    def __init__(
        self,
        wrapper: EngineProcess,
        events: WorkerEvents,
        watch: JobWatch,
        node: str,
        stop: asyncio.Event,
        given_up: set[str],
        drain: Callable[[str], None],
    ) -> None:
        self.wrapper, self._events, self._watch, self._node = wrapper, events, watch, node
        self._stop, self._given_up, self._drain = stop, given_up, drain
        self._tokens, self._limits = TokenWatch(events), LimitWatch(events)
        self._deaths: dict[str, int] = {}
        self._failed_loads = 0
        self.loaded: Loaded | None = None
        self.warm = False
        """Whether the engine has answered a request since the load."""

    async def load(self, model: Model) -> bool:
        """Load the model; False if it cannot be loaded, which is logged once and ends its shards here."""
        wrapper = self.wrapper
        if wrapper.model == model.name:
            return True
        self._watch.mark(f"loading {model.name}")
        self._watch.engine(wrapper, None)
        await self._tokens.end()
        self._limits.end()
        try:
            loaded = await self._load(model)
        except (LoadFailed, EngineGone) as error:
            await self._tokens.end(await asyncio.to_thread(wrapper.logged))
            if isinstance(error, LoadFailed) and error.node and error.kind in NOT_JOINED:
                # No fault of the model: a later job loads it on other nodes.
                self._given_up.add(model.name)
                self._bad_node(error.node, error.message)
                return False
            cause = (error.cause if isinstance(error, LoadFailed) else None) or "unknown"
            self._give_up(model, explained(error, wrapper.log), cause)
            self._failed_loads += 1
            if self._failed_loads >= LOAD_FAILURES:
                what = f"{self._failed_loads} loads in a row failed on {self._node}"
                self._bad_node(self._node, what)
            return False
        if loaded is None:
            return False
        self.loaded, self.warm, self._failed_loads = loaded, False, 0
        self._watch.engine(wrapper, loaded)
        self._limits.follow(model.name, wrapper.client.limits)
        return True

    async def _load(self, model: Model) -> Loaded | None:
        """Load the model, again after each machine that was taken away: the machines' cost ends that."""
        while True:
            try:
                return await load_engine(
                    self.wrapper, model, model.gpus, self._events, self._tokens, self._stop
                )
            except (LoadFailed, EngineGone) as error:
                if self._stop.is_set() or not await self.wrapper.taken():
                    raise
                self._events.write(
                    "engine_died", sync=True, model=model.name, message=str(error), cause=TAKEN
                )

    async def end(self) -> None:
        """Log what is left to log of the last engine, before it ends."""
        await self._tokens.end()
        self._limits.end()

    async def died(self, model: Model, gone: EngineGone) -> bool:
        """Handle an engine's own end: the next load starts another, unless the model is given up.

        Returns:
            Whether model or samples may be the cause; False: its machines were taken away, or its job ends.
        """
        blamed = await self.wrapper.blamed()
        # Slurm ends the steps on other nodes with their job, while this worker drains.
        if self._stop.is_set() and blamed is not None and blamed.kind == "no_step":
            self.wrapper.model = None
            return False
        message, cause = await log_death(self.wrapper, model.name, gone, blamed, self._events)
        self.wrapper.model = None
        if cause == TAKEN:
            return False
        self._deaths[model.name] = self._deaths.get(model.name, 0) + 1
        if self._deaths[model.name] >= ENGINE_DEATHS:
            self._give_up(model, f"the engine died {ENGINE_DEATHS} times: {message}", cause)
        return True

    def ended_by_sample(self, model: Model) -> None:
        """Handle an engine that one sample ended twice: its first death is not the model's fault."""
        self.wrapper.model = None
        self._deaths[model.name] = max(0, self._deaths.get(model.name, 0) - 1)

    def _give_up(self, model: Model, message: str, cause: str | None) -> None:
        self._given_up.add(model.name)
        log = str(self.wrapper.log)
        self._events.write(
            "model_failed", sync=True, model=model.name, message=message, log=log, cause=cause
        )

    def _bad_node(self, node: str, message: str) -> None:
        """Leave the work to jobs that avoid this node."""
        self._events.write("bad_node", sync=True, node=node, message=message)
        self._drain("bad node")


async def load_engine(
    engine: EngineProcess,
    model: Model,
    gpus: int,
    events: WorkerEvents,
    tokens: TokenWatch,
    stop: asyncio.Event,
) -> Loaded | None:
    """Load a model, and log that it is loading and that it is ready; None: `stop` was set before.

    Args:
        engine: its engine.
        model: the model, from the nearest copy.
        gpus: GPUs that this allocation must have.
        events: the worker's log.
        tokens: follows the engine from its start.
        stop: set when the worker ends.

    Raises:
        LoadFailed: it did not become ready, or the allocation does not suffice.
        EngineGone: the wrapper is gone.
    """

    async def fitting() -> Loaded:
        if not engine.elsewhere:
            lacking = await asyncio.to_thread(check_allocation, gpus, model.gpu_memory_gb)
            if lacking:
                raise LoadFailed("allocation", lacking, cause="allocation")
        return await engine.load(
            model,
            lambda line: events.write("loading", message=line),
            lambda: tokens.follow(model, engine.gauges()),
        )

    events.write("model_loading", sync=True, model=model.name)
    loading = await unless_stopped(stop, fitting())
    if loading is None:
        return None
    loaded = loading.result()
    events.write(
        "model_ready",
        sync=True,
        model=model.name,
        seconds=round(loaded.seconds, 1),
        source=None if engine.elsewhere else model.source,
        versions=dict(loaded.versions),
        hardware=None if engine.elsewhere else await _hardware(engine, model),
        **({"nodes": nodes} if len(nodes := engine.nodes) > 1 else {}),
        **({"uncounted": loaded.uncounted} if loaded.uncounted else {}),
    )
    return loaded


async def _hardware(engine: EngineProcess, model: Model) -> dict[str, Any]:
    """The machine's description; of an engine on several nodes, with the GPUs of all."""
    own = await asyncio.to_thread(machine, model.gpus)
    if (replicas := engine.group.replicas) > 1:
        own["engines_each"] = replicas
    if (sharing := engine.group.sharing) > 1:
        own["engines_per_gpu"] = sharing
    if not (others := engine.other_machines):
        return own
    gpus = [gpu for one in (own, *others) for gpu in one["gpus"]]
    return {**own, "gpus": sorted(gpus), "nodes_each": 1 + len(others)}


async def log_death(
    engine: EngineProcess | None,
    model: str,
    gone: EngineGone,
    blamed: RankFailure | None,
    events: WorkerEvents,
) -> tuple[str, str]:
    """Log an engine's own end; returns its message and its cause. None: the engine was ended meanwhile."""
    cause = "unknown" if engine is None else await engine.cause(blamed)
    message = str(blamed or gone)
    events.write("engine_died", sync=True, model=model, message=message, cause=cause)
    return message, cause


Result = TypeVar("Result")


async def unless_stopped(
    stop: asyncio.Event, work: Coroutine[Any, Any, Result]
) -> asyncio.Future[Result] | None:
    """Do some work to its end; None if `stop` is set before: then the work is cancelled."""
    doing = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if doing.done():
        return doing
    doing.cancel()
    await asyncio.wait({doing})
    return None
