"""The further nodes of an engine, seen from the worker on its first node.

    gathering ── each says `here`, then `started` ──► together ── end ──► gone
        └────────────── the first failure ──────────────┴──► broken: all are ended, one cause is named

Each further node has one job step, `srun … python -m hpcbench.worker.rank`, which runs the same wrapper in
the same image as the first node. The step's standard input and output are the only channel: no port of ours,
no file that another node must see in time. Its end, on either side, ends the rank; so does silence, which is
all that a node without power or network leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcbench.experiment.event_log import Kind
from hpcbench.experiment.layout import Experiment
from hpcbench.installed import this_python
from hpcbench.schema.plan import Group
from hpcbench.schema.site import Site
from hpcbench.slurm.gpu_request import gpu_options
from hpcbench.slurm.nodes import expand_nodes
from hpcbench.subprocesses import printed
from hpcbench.worker.event_log import EventSink
from hpcbench.wrapper.exit_causes import LEFT

BEAT_SECONDS = 1.0
"""Interval of the beats in either direction."""

SILENT_BEATS = 10
"""Missed beats in a row after which the other side is given up."""

JOIN_SECONDS = 180.0
"""Longest wait for a step on a node to answer: Slurm may start it late, and Python comes from a busy disk."""

REPORT_SECONDS = 3.0
"""Wait for the other ranks' reports after the first failure: who reports first is seldom who failed first."""

WHY_SECONDS = 3.0
"""Then, without an explanation, the wait for errors in the logs of ranks that still live."""

END_SECONDS = 12.0
"""Longest wait for a rank to end its engine in order; then its step is killed."""

CANCEL_SECONDS = 3.0
"""Longest wait for Slurm to kill a step, and for the step to be gone."""

LAST_WORDS_SECONDS = 1.0
"""Longest wait for what an ended step wrote before its end."""

FORWARDED: frozenset[Kind] = frozenset({"alarm", "monitor", "monitor_note"})
"""Events of a rank's monitor that become events of the worker, with `rank` and `node`."""

CONSEQUENCES = frozenset({"unknown", "cuda_error", "stalled", "timeout", "network"})
"""Causes that a rank also reports when another one left it."""


NOT_JOINED = frozenset({"no_step", "silent", "no_wrapper"})
"""Kinds of failures of a node rather than of an engine."""


@dataclass(frozen=True, slots=True)
class RankFailure:
    """The failure of one rank."""

    rank: int
    node: str
    kind: str
    """As in `EngineFailed`; also `no_step` and `silent`: its node could not be reached."""
    message: str
    cause: str = "unknown"
    """A key of the wrapper's causes."""
    signal: str | None = None
    """Signal that ended the engine there."""
    log: str = ""
    tail: tuple[str, ...] = ()
    remedy: str | None = None

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.node}: {self.message}"

    @property
    def is_its_own(self) -> bool:
        """Whether it explains itself, not by the end of another rank."""
        return (
            self.kind in (*NOT_JOINED, "stopped", "engine_error")
            or self.signal is not None
            or self.cause not in CONSEQUENCES
        )

    @property
    def follows(self) -> bool:
        """Whether the end of another rank explains its words."""
        known = self.cause in CONSEQUENCES and self.cause != "unknown"
        return known or self.kind == "left" or LEFT.search(self.message) is not None


def guilty(failures: Sequence[RankFailure]) -> RankFailure:
    """The failure that explains the others: the first with a cause of its own, else with own words.

    A further rank's own words count before those of the first one, which computes with what the others send.
    They lose only their connection when the first one ends.

    Args:
        failures: at least one, in the order in which they were reported.
    """
    said = [one for one in failures if not one.follows]
    own = [one for one in failures if one.is_its_own]
    return [*own, *(one for one in said if one.rank), *said, *failures][0]


def nodes_of_job(environ: Mapping[str, str] | None = None) -> list[str]:
    """Nodes of this job in Slurm's order; the first one runs the batch script."""
    environ = os.environ if environ is None else environ
    return expand_nodes(environ.get("SLURM_JOB_NODELIST", ""))


class Ranks:
    """The further ranks of one load.

    Args:
        experiment: the experiment.
        group: the worker's group.
        owner: the worker's id, part of the names of the ranks' logs.
        nodes: names of all nodes; the first one is this one.
        events: receives the events of the other nodes' monitors; None: they are not logged.
    """

    def __init__(
        self,
        experiment: Experiment,
        group: Group,
        owner: str,
        nodes: Sequence[str],
        events: EventSink | None = None,
    ) -> None:
        self._experiment, self._group, self._owner = experiment, group, owner
        self._steps = [
            _Step(number, node, self._log(number), events)
            for number, node in enumerate(nodes)
            if number
        ]
        self.failures: list[RankFailure] = []
        """Failures so far, in the order of the reports."""
        self._broken = asyncio.Event()

    def _log(self, rank: int) -> Path:
        return self._experiment.worker_log(self._group.id, self._owner, rank)

    async def start(self, order: Mapping[str, Any]) -> None:
        """Start a step on each node and give it its order; `failed` reports steps that do not come up."""
        site = self._experiment.resolved.site
        for step in self._steps:
            argv = step_command(site, self._group, step.node)
            argv += [*this_python(), "-u", "-m", "hpcbench.worker.rank", str(self._experiment.path)]
            argv += [self._owner, str(step.rank)]
            await step.start(argv, {"group": asdict(self._group), **order}, self._report)

    def _report(self, failure: RankFailure) -> None:
        self.failures.append(failure)
        self._broken.set()

    def report(self, failure: RankFailure) -> None:
        """Add the failure of the first rank."""
        if not any(one.rank == failure.rank for one in self.failures):
            self._report(failure)

    @property
    def together(self) -> bool:
        """Whether the engine's process runs on every node."""
        return all(step.started for step in self._steps)

    @property
    def machines(self) -> list[Mapping[str, Any]]:
        """Descriptions of the nodes, as `monitor.devices.machine` gives them."""
        return [step.machine for step in self._steps]

    async def failed(self) -> RankFailure:
        """Wait for the first failure and for reports that may explain it; the guilty one."""
        await self._broken.wait()
        if not await self._explained(REPORT_SECONDS):
            for step in self._steps:
                step.say({"why": str(self.failures[0])})
            await self._explained(WHY_SECONDS)
        return guilty(self.failures)

    async def _explained(self, seconds: float) -> bool:
        """Wait so long for a failure that explains itself, or for the reports of all ranks."""
        until = time.monotonic() + seconds
        while not any(one.is_its_own for one in self.failures):
            if len(self.failures) > len(self._steps):
                return True
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.1)
        return True

    def mark(self, phase: str) -> None:
        """Start a phase in the monitors of all ranks."""
        for step in self._steps:
            step.say({"mark": phase})

    async def end(self) -> None:
        """End all ranks; returns when no step of them is left."""
        await asyncio.gather(*(step.end() for step in self._steps))


class _Step:
    """One further node: its step, and what it reports."""

    def __init__(self, rank: int, node: str, log: Path, events: EventSink | None) -> None:
        self.rank, self.node, self.log, self._events = rank, node, log, events
        self.here = self.started = self._silent = self._failed = False
        self._id: str | None = None
        """Slurm's id of the step, once it has said it."""
        self.machine: Mapping[str, Any] = {"gpus": []}
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._errors = bytearray()
        self._ending = False

    async def start(self, argv: Sequence[str], order: Mapping[str, Any], report: Any) -> None:
        self._tell = report
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, start_new_session=True, limit=2**22,
            )  # fmt: skip
        except OSError as error:
            return self._fail("no_step", f"{argv[0]} cannot be started: {error.strerror or error}")
        self.say(order)
        self._tasks = [
            asyncio.ensure_future(self._hear()),
            asyncio.ensure_future(self._beat()),
            asyncio.ensure_future(self._keep_errors()),
        ]

    def say(self, what: Mapping[str, Any]) -> None:
        """Tell the rank something: its order, or the start of a phase."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended: reported by its end
                self._process.stdin.write(json.dumps(what).encode() + b"\n")

    async def _beat(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError):
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                self._process.stdin.write(b"\n")
                await self._process.stdin.drain()

    async def _keep_errors(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while block := await self._process.stderr.read(2**12):
            self._errors = (self._errors + block)[-(2**14) :]

    async def _hear(self) -> None:
        """Read its reports until it ends or falls silent."""
        assert self._process is not None and self._process.stdout is not None
        since, missed = time.monotonic(), 0
        while True:
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), BEAT_SECONDS)
            except asyncio.TimeoutError:  # noqa: UP041 (Python 3.10)
                if self._ending:
                    continue
                # Counted, not timed: while this process itself is stopped, nothing is missed.
                missed += 1
                if self.here and missed >= SILENT_BEATS:
                    what = f"its node was silent for {missed * BEAT_SECONDS:.0f} s"
                    self._silent = True
                    return self._fail("silent", what)
                if not self.here and time.monotonic() - since > JOIN_SECONDS:
                    what = f"did not join within {JOIN_SECONDS:.0f} s{self._said()}"
                    return self._fail("no_step", what)
                continue
            missed = 0
            if not line:
                break
            self._take(line)
        if not self._ending:
            code = await self._process.wait()
            await asyncio.sleep(0.1)  # its last error may still be on its way
            what = "step ended" if self.here else "step did not start"
            self._fail("no_step", f"its job {what}, exit code {code}{self._said()}")

    def _take(self, line: bytes) -> None:
        """Act on a report."""
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if not isinstance(said, dict):
                return
            if said.get("said") == "here":
                self.here, self._id = True, said.get("step")
            if said.get("said") == "started":
                self.started, self.machine = True, said["machine"]
            if said.get("said") == "failed":
                fields = {key: said.get(key) for key in ("cause", "signal", "remedy")}
                self._fail(
                    str(said.get("kind")), str(said.get("message")),
                    tail=tuple(said.get("tail") or ()), **fields,
                )  # fmt: skip
            if said.get("said") == "event" and said.get("event") in FORWARDED and self._events:
                details = {"rank": self.rank, "node": self.node, **said["details"]}
                if "message" in details:
                    details["message"] = f"{self.node}: {details['message']}"
                with contextlib.suppress(OSError):  # a full disk is detected elsewhere, too
                    self._events.write(said["event"], sync=True, **details)

    def _fail(self, kind: str, message: str, **more: Any) -> None:
        if not self._ending and not self._failed:
            self._failed = True
            more["cause"] = more.get("cause") or "unknown"
            self._tell(RankFailure(self.rank, self.node, kind, message, log=str(self.log), **more))

    def _said(self) -> str:
        lines = bytes(self._errors).decode(errors="replace").strip().splitlines()
        return f": {lines[-1][-300:]}" if lines else ""

    async def end(self) -> None:
        """Close its input, which ends the rank; kill the step if it does not end, at once if it is silent."""
        self._ending, process = True, self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 1.0 if self._silent else END_SECONDS)
        except asyncio.TimeoutError:  # noqa: UP041 (Python 3.10)
            if self._id is not None:  # srun's own end would leave the processes of a stopped step
                words = ["scancel", "--signal=KILL", self._id]
                await asyncio.to_thread(printed, words, CANCEL_SECONDS)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), CANCEL_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        finally:
            # Its last words: the memory that its engine took.
            await asyncio.wait(self._tasks[:1], timeout=LAST_WORDS_SECONDS)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def step_command(site: Site, group: Group, node: str) -> list[str]:
    """srun for one task on one node of this job, with all that the job holds there."""
    options = {
        "nodes": 1, "ntasks": 1, "nodelist": node, "cpus-per-task": group.resources.cpus,
        "overlap": True, "unbuffered": True, "job-name": "hpcbench-rank",
        # Its beats keep it going; a step that waits for input of all tasks would never end.
        "input": "0", "kill-on-bad-exit": "1",
        **gpu_options(site.slurm, group.resources, group.gpus),
    }  # fmt: skip
    words = ((key.replace("_", "-"), value) for key, value in options.items())
    return ["srun", *(f"--{key}" if value is True else f"--{key}={value}" for key, value in words)]
