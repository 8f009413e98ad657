"""One engine on several nodes: its first rank by our own wrapper, the others by `worker/ranks.py`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpcbench.environments.orphans import scratch
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment
from hpcbench.inference.client import Client, EngineGone, LoadFailed
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Group
from hpcbench.worker.event_log import EventSink
from hpcbench.worker.ranks import RankFailure, Ranks, guilty, nodes_of_job
from hpcbench.worker.rendezvous import address_of, held_port, own_address

LOOK_SECONDS = 1.0
"""Interval of looks at the first rank while the engine serves."""

PORT_TRIES = 3
"""Ports that are tried where a foreign program takes one between its choice and the engine's bind."""

KNOWN_SECONDS = 10.0
"""Longest wait for the reason of a broken engine."""


class EngineNodes:
    """The nodes of one loaded engine, which end together.

    Args:
        experiment: the experiment.
        group: the worker's group.
        owner: the worker's id.
        client: the client of the wrapper on this node, the first.
        log: the log of this node's engine.
        events: receives events of the other nodes; None: they are not logged.
    """

    def __init__(
        self,
        experiment: Experiment,
        group: Group,
        owner: str,
        client: Client,
        log: Path,
        events: EventSink | None = None,
    ) -> None:
        self._events = events
        self._experiment, self._group, self._owner = experiment, group, owner
        self._client, self._log = client, log
        self._site = experiment.resolved.site
        self.nodes: list[str] = []
        """All nodes, this one first."""
        self._ranks: Ranks | None = None
        self._held = contextlib.ExitStack()
        self._watching: asyncio.Task[RankFailure] | None = None

    async def load(
        self,
        body: Mapping[str, Any],
        model: Model,
        environment: str,
        timeout: float,
        *,
        on_progress: Callable[[str], None],
    ) -> dict[str, Any]:
        """Start the engine on all nodes; returns what the first rank's wrapper says of it once all are ready.

        Raises:
            LoadFailed: names the rank and the node that failed; no part of the engine is left on any node.
            EnvironmentFault: this node has no address or no free port.
        """
        self.nodes = nodes_of_job()
        if len(self.nodes) != self._group.nodes:
            what = f"the job has {len(self.nodes)} nodes, but the model needs {self._group.nodes}"
            raise LoadFailed("allocation", what, cause="allocation")
        other = await asyncio.to_thread(address_of, self.nodes[1])
        address = own_address(self._site.slurm.interface, other)
        until, failure = time.monotonic() + timeout, None
        for _ in range(PORT_TRIES):
            failure = None
            try:
                port = self._held.enter_context(held_port(address, scratch(self._site.scratch)))
                place = {
                    "nodes": len(self.nodes), "address": address, "port": port,
                    "interface": self._site.slurm.interface,
                }  # fmt: skip
                order = {
                    "body": dict(body), "place": place, "environment": environment,
                    "gpu_memory_gb": model.gpu_memory_gb, "source": self._source(model),
                }  # fmt: skip
                first = {**body, "rank": {**place, "number": 0, "own_address": address}}
                return await self._try(
                    order, first, max(1.0, until - time.monotonic()), on_progress
                )
            except _Broken as broken:
                failure = broken.failure
            finally:
                if self._watching is None:
                    await self.end()
            if failure.cause != "socket":
                break
            on_progress(f"{failure}: another port is tried")
        assert failure is not None
        raise _load_failed(failure)

    def _source(self, model: Model) -> str:
        """The model's own folder: each node finds its nearest copy."""
        for run_task in self._experiment.resolved.run_tasks:
            if run_task.model.name == model.name:
                return run_task.model.source
        return model.source

    async def _try(
        self,
        order: Mapping[str, Any],
        first: Mapping[str, Any],
        timeout: float,
        on_progress: Callable[[str], None],
    ) -> dict[str, Any]:
        ranks = self._ranks = Ranks(
            self._experiment, self._group, self._owner, self.nodes, self._events
        )
        await ranks.start(order)
        loading = asyncio.ensure_future(self._client.load(first, timeout, on_progress=on_progress))
        breaking = asyncio.ensure_future(ranks.failed())
        try:
            await asyncio.wait({loading, breaking}, return_when=asyncio.FIRST_COMPLETED)
            if not breaking.done():
                error = loading.exception()
                if error is None:
                    while not ranks.together and not breaking.done():
                        await asyncio.wait({breaking}, timeout=0.1)
                elif isinstance(error, (LoadFailed, EngineGone)):
                    ranks.report(self._of_first(error))
                else:
                    raise error
            if breaking.done() or ranks.failures:
                failure = await breaking
                if not loading.done():
                    await self._fail_first(failure)
                raise _Broken(failure)
            self._watching = asyncio.ensure_future(self._watch(ranks))
            return loading.result()
        finally:
            for task in (loading, breaking):
                task.cancel()
            await asyncio.gather(loading, breaking, return_exceptions=True)
            if self._watching is None:
                with contextlib.suppress(
                    HpcbenchError, OSError
                ):  # the wrapper's end ends it as well
                    await self._client.unload()

    async def _watch(self, ranks: Ranks) -> RankFailure:
        """Wait until any rank of a ready engine fails, and end all; returns the one to blame."""
        breaking = asyncio.ensure_future(ranks.failed())
        try:
            while not breaking.done():
                await asyncio.wait({breaking}, timeout=LOOK_SECONDS)
                if not breaking.done() and (failed := await self._first_failed()) is not None:
                    ranks.report(failed)
                    await breaking
            failure = breaking.result()
            await asyncio.gather(self._fail_first(failure), ranks.end())
            return failure
        finally:
            breaking.cancel()

    async def _first_failed(self) -> RankFailure | None:
        try:
            now = await self._client.status()
        except EngineGone as gone:
            return self._of_first(gone)
        except HpcbenchError:
            return None
        error = now.get("error")
        if now["state"] != "failed" or not error:
            return None
        return RankFailure(
            0, self.nodes[0], error["kind"], error["message"], error["cause"], error["signal"],
            str(self._log), tuple(error["tail"]), error["remedy"],
        )  # fmt: skip

    def _of_first(self, error: LoadFailed | EngineGone) -> RankFailure:
        """The failure of the first rank, as its wrapper tells it."""
        node = self.nodes[0]
        if not isinstance(error, LoadFailed):
            return RankFailure(0, node, "no_wrapper", str(error), log=str(self._log))
        return RankFailure(
            0, node, error.kind, error.message, error.cause or "unknown", error.signal,
            error.log or str(self._log), error.tail, error.remedy,
        )  # fmt: skip

    async def _fail_first(self, failure: RankFailure) -> None:
        with contextlib.suppress(HpcbenchError, OSError):  # gone: there is nothing to end
            await self._client.fail(failure.kind, str(failure), failure.cause)

    def mark(self, phase: str) -> None:
        """Start a phase in the monitors of the other nodes."""
        if self._ranks is not None:
            self._ranks.mark(phase)

    @property
    def machines(self) -> list[Mapping[str, Any]]:
        """Descriptions of the other nodes."""
        return self._ranks.machines if self._ranks is not None else []

    async def broken(self) -> RankFailure | None:
        """The rank to blame for the engine's end; None: nothing is known of an end."""
        if self._watching is None:
            return guilty(self._ranks.failures) if self._ranks and self._ranks.failures else None
        await asyncio.wait({self._watching}, timeout=KNOWN_SECONDS + 20)
        return self._watching.result() if self._watching.done() else None

    async def end(self) -> None:
        """End the ranks on the other nodes; the wrapper ends that of this node."""
        if self._watching is not None and not self._watching.done():
            self._watching.cancel()
            await asyncio.wait({self._watching})
        self._watching = None
        if self._ranks is not None:
            await self._ranks.end()
        self._held.close()


class _Broken(Exception):
    """A try failed; all of it is being ended."""

    def __init__(self, failure: RankFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def _load_failed(failure: RankFailure) -> LoadFailed:
    return LoadFailed(
        failure.kind, str(failure), failure.log, failure.tail,
        cause=failure.cause, remedy=failure.remedy, signal=failure.signal, node=failure.node,
    )  # fmt: skip
