"""Several workers in one job: each is a process with its own engine, GPUs, CPUs and claims.

They do not know each other: shards are claimed as between jobs. This process only starts them, passes
Slurm's signals on, and starts one again that a signal killed; the new one continues its shard.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from types import FrameType

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.job_runs import living_run
from hpcbench.experiment.layout import Experiment
from hpcbench.installed import this_python
from hpcbench.monitor.devices import parts
from hpcbench.schema.plan import Group
from hpcbench.wrapper.process_tree import die_with_parent

RESTARTS = 2
"""Times that a job starts a worker again which a signal killed."""

POLL_SECONDS = 0.2

PASSED_ON = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)
"""Signals after which workers end in order."""

CPUS = Path("/sys/devices/system/cpu")


class Replicas:
    """The workers of one job.

    Args:
        experiment: the experiment.
        group: the workers' group.
        argv: arguments of `hpcbench.worker` without the worker's number.
    """

    def __init__(self, experiment: Experiment, group: Group, argv: Sequence[str]) -> None:
        self._experiment, self._group, self._argv = experiment, group, argv
        dealt = parts(group.replicas, group.gpus, sharing=group.sharing)
        cores = in_cores(sorted(os.sched_getaffinity(0)))
        self._variables = [variables for variables, _ in dealt]
        self._cpus = deal_cpus(cores, [near for _, near in dealt])
        self._working: dict[int, subprocess.Popen[bytes]] = {}
        self._starts = [0] * group.replicas
        self._ends = False

    def run(self) -> int:
        """Run all workers to their ends; returns the highest of their exit codes."""
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)
        for replica in range(self._group.replicas):
            self._start(replica)
        worst = 0
        while self._working:
            time.sleep(POLL_SECONDS)
            for replica, process in list(self._working.items()):
                code = process.poll()
                if code is None:
                    continue
                del self._working[replica]
                if code < 0:
                    code = self._killed(replica, process.pid, -code)
                worst = max(worst, code)
        return worst

    def _start(self, replica: int) -> None:
        self._starts[replica] += 1
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cpus[replica])  # a child inherits it
        try:
            self._working[replica] = subprocess.Popen(
                [*this_python(), "-m", "hpcbench.worker", *self._argv, str(replica)],
                env={**os.environ, **self._variables[replica]},
                preexec_fn=die_with_parent(),
            )
        finally:
            os.sched_setaffinity(0, mine)
        if self._ends:  # the signal came between the two lines above
            self._working[replica].terminate()

    def _killed(self, replica: int, pid: int, number: int) -> int:
        """Record a killed worker's end, and start it again if it may be; returns an exit code."""
        again = self._starts[replica] <= RESTARTS and not self._ends
        name = signal.Signals(number).name
        if self._ends and number in PASSED_ON:
            return 0  # it had not started its work
        what = f"{name} ended this worker" + (", and its job starts it again" if again else "")
        seat = replace(Owner.here(), replica=replica, pid=pid)
        if path := living_run(self._experiment, self._group.id, seat):
            with EventLog(path) as log:
                log.write("failed", sync=True, message=what)
        if again:
            self._start(replica)
            return 0
        return EnvironmentFault.exit_code

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._ends = True
        for process in self._working.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


def in_cores(cpus: Sequence[int], folder: Path = CPUS) -> list[int]:
    """CPUs with those of one core beside each other, so that two workers do not share a core."""

    def core(cpu: int) -> tuple[int, int]:
        try:
            text = (folder / f"cpu{cpu}/topology/thread_siblings_list").read_text()
            return int(text.replace("-", ",").split(",")[0]), cpu
        except (OSError, ValueError):
            return cpu, cpu

    return sorted(cpus, key=core)


def deal_cpus(cpus: Sequence[int], near: Sequence[Set[int]]) -> list[set[int]]:
    """The same number of CPUs for each worker, first those near its GPUs.

    Args:
        cpus: the job's CPUs, in the order in which they are dealt out.
        near: for each worker the CPUs near its GPUs; empty: not known.

    Returns:
        Each worker's CPUs; all of them for each where there are fewer than workers.
    """
    size = len(cpus) // len(near)
    if not size:
        return [set(cpus) for _ in near]
    dealt = [set[int]() for _ in near]
    left = list(cpus)
    for wanted in (near, [set(cpus)] * len(near)):
        for own, allowed in zip(dealt, wanted, strict=True):
            own.update([cpu for cpu in left if cpu in allowed][: size - len(own)])
            left = [cpu for cpu in left if cpu not in own]
    return dealt
