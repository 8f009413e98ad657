"""A further node of an engine: `python -m hpcbench.worker.rank EXPERIMENT OWNER RANK`, in a job step.

It reads its order, one line of JSON, from standard input, runs the wrapper with the engine's process of
this rank, and reports on standard output, a line of JSON each: `here`, `started`, `beat`, `failed`, and
`event` for those of its monitor, whose phases the first node names. It ends when its input ends or falls
silent, and no part of the engine is left then. Asked why another rank failed, it ends its engine and reports
the error in its log. See `worker/ranks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.data.staging import stage, staging_folder
from hpcbench.environments.orphans import reap, reap_folders, scratch
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.event_log import Kind
from hpcbench.experiment.layout import Experiment
from hpcbench.inference.client import LoadFailed
from hpcbench.monitor.devices import check_allocation, machine
from hpcbench.schema.decoding import decoded
from hpcbench.schema.plan import Group
from hpcbench.worker.engine import EngineProcess, Loaded
from hpcbench.worker.job_watch import JobWatch
from hpcbench.worker.ranks import BEAT_SECONDS, SILENT_BEATS
from hpcbench.worker.rendezvous import own_address

LOOK_SECONDS = 0.5
"""Interval of looks at the engine's state."""


def main(argv: Sequence[str]) -> None:
    """Run one rank."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    order = json.loads(sys.stdin.readline() or "{}")
    job, step = (os.environ.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    _say("here", step=f"{job}.{step}" if job and step else None)
    threading.Thread(target=_beat, daemon=True).start()
    if order:
        asyncio.run(_Rank(experiment, argv[1], int(argv[2]), order).run())


class _Rank:
    def __init__(
        self, experiment: Experiment, owner: str, rank: int, order: Mapping[str, Any]
    ) -> None:
        self._experiment, self._rank, self._order = experiment, rank, order
        self._group = decoded(Group, order["group"])
        self._log = experiment.worker_log(self._group.id, owner, rank)
        self._readings = experiment.worker_monitor(self._group.id, owner, rank)
        self._watch: JobWatch | None = None
        self._loaded: Loaded | None = None
        self._engine: EngineProcess | None = None
        self._why: asyncio.Task[None] | None = None
        self._left = asyncio.Event()
        """Set: the worker on the first node is gone, or wants no engine any more."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._left.set)
        # Slurm warns every process of a job of its time limit: the first node decides what follows.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        listening = asyncio.ensure_future(self._listen())
        working = asyncio.ensure_future(self._work())
        leaving = asyncio.ensure_future(self._left.wait())
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (working, listening, leaving):
            task.cancel()
        await asyncio.gather(working, listening, leaving, return_exceptions=True)

    async def _listen(self) -> None:
        """Set `_left` when the beats end; act on what the first node says."""
        loop, heard = asyncio.get_running_loop(), asyncio.Event()

        def read() -> None:
            rest = b""
            with contextlib.suppress(OSError):
                while block := os.read(0, 4096):
                    loop.call_soon_threadsafe(heard.set)
                    *lines, rest = (rest + block).split(b"\n")
                    for line in filter(None, lines):
                        loop.call_soon_threadsafe(self._take, json.loads(line))
            with contextlib.suppress(RuntimeError):  # the loop has ended, too
                loop.call_soon_threadsafe(self._left.set)

        threading.Thread(target=read, daemon=True).start()
        missed = 0
        while missed < SILENT_BEATS:
            try:
                await asyncio.wait_for(heard.wait(), BEAT_SECONDS)
                heard.clear()
                missed = 0
            except asyncio.TimeoutError:  # noqa: UP041 (Python 3.10)
                missed += 1  # counted, not timed: a job that was suspended has missed nothing
        self._left.set()

    def _take(self, what: Mapping[str, Any]) -> None:
        """Act on a message of the first node."""
        if "mark" in what:
            self._mark(what["mark"])
        if "why" in what and self._engine is not None:
            self._why = asyncio.ensure_future(_give_up(self._engine, what["why"]))

    def _mark(self, phase: str) -> None:
        """Start a phase of the monitor; that of a run task is reported at the end."""
        if self._watch is not None and self._loaded is not None:
            self._watch.mark(phase)
            if phase in self._group.run_tasks:
                self._watch.of(phase, self._loaded)

    async def _work(self) -> None:
        try:
            await self._serve()
        except LoadFailed as error:
            _say(
                "failed", kind=error.kind, message=error.message, cause=error.cause,
                remedy=error.remedy, tail=error.tail,
            )  # fmt: skip
        except (HpcbenchError, OSError) as error:
            _say("failed", kind="no_wrapper", message=str(error), cause="unknown")
        await self._left.wait()  # the first node ends all ranks at once

    async def _serve(self) -> None:
        """Run the engine until it fails."""
        order, site = self._order, self._experiment.resolved.site
        reap()
        reap_folders(scratch(site.scratch))
        body = dict(order["body"])
        lacking = await asyncio.to_thread(check_allocation, body["gpus"], order["gpu_memory_gb"])
        if lacking:
            raise LoadFailed("allocation", lacking, cause="allocation")
        source = await asyncio.to_thread(_near, order["source"], site.staging)
        body["model_path"] = source
        place = {
            **order["place"], "number": self._rank,
            "own_address": own_address(site.slurm.interface, order["place"]["address"]),
        }  # fmt: skip
        engine = EngineProcess(self._experiment, self._group, Owner.here(), _nothing, log=self._log)
        folders: dict[str, str | Path] = {"experiment": self._experiment.path}
        folders["scratch"] = scratch(site.scratch)
        watch = self._watch = JobWatch(folders, self._readings, self._log, _Reported())
        async with watch.running(), engine:
            await engine.follow(order["environment"], {**body, "rank": place})
            self._engine = engine
            try:
                while True:
                    now = await engine.client.status()
                    if now["state"] == "failed":
                        # At once, before its end here: the other ranks will have errors of their own by then.
                        return _say("failed", **now["error"])
                    if now["state"] == "ready" and self._loaded is None:
                        self._loaded = Loaded(0.0, now["pid"], {}, engine.logged_memory(), "")
                        watch.engine(engine, self._loaded, serves=False)
                        _say("started", machine=await asyncio.to_thread(machine, body["gpus"]))
                    await asyncio.sleep(LOOK_SECONDS)
            finally:
                self._engine = None
                watch.engine(engine, None)


class _Reported:
    """Sends the monitor's events to the first node."""

    def write(self, kind: Kind, /, *, sync: bool = False, **details: Any) -> None:
        _say("event", event=kind, details=details)


async def _give_up(engine: EngineProcess, why: str) -> None:
    """End an engine whose other rank failed: the wrapper tells its own error, if it has one."""
    with contextlib.suppress(HpcbenchError, OSError):  # it has failed by itself
        await engine.client.fail("left", f"ended after {why}", "unknown")


async def _nothing() -> None:
    """After the engine's end: the step ends, too."""


def _near(source: str, staging: str | None) -> str:
    """The model's folder on this node's own disk if the site wants that and it has room."""
    if staging is None or not source:
        return source
    try:
        return str(stage(Path(source), staging_folder(staging)))
    except EnvironmentFault:
        return source


_speaking = threading.Lock()


def _say(word: str, **more: Any) -> None:
    line = json.dumps({"said": word, **more}).encode() + b"\n"
    with _speaking, contextlib.suppress(OSError):
        os.write(1, line)


def _beat() -> None:
    """Beats of a thread: an event loop that reads a slow disk is no dead node."""
    ended = threading.Event()
    while not ended.wait(BEAT_SECONDS):
        _say("beat")


if __name__ == "__main__":
    main(sys.argv[1:])
