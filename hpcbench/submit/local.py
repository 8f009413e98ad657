"""The local executor: the same rounds as under Slurm, driven by one process on this machine.

`python -m hpcbench.submit.local EXPERIMENT ROUND` starts the round's workers through submitit's local
executor, waits for them, then finalises. It is started in its own session, so that it outlives the shell;
`hpcbench cancel` ends it.

Each worker gets its own GPUs of this machine, or of CUDA_VISIBLE_DEVICES if that is set. All groups share
these GPUs, and no more workers run at once than the plan's `parallelism`; other workers wait until one ends.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hpcbench import environments, garbage
from hpcbench.experiment.access import owner_writes
from hpcbench.experiment.last_word import NO_ROOM, finaliser_found_no_room
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.seal import check_seal
from hpcbench.experiment.submission import rounds
from hpcbench.monitor.devices import check_allocation, handles
from hpcbench.schema.plan import Group
from hpcbench.submit.array_task import ArrayTask

POLL_SECONDS = 0.2

YEAR_MINUTES = 60 * 24 * 365
"""submitit ends local jobs after a timeout; these jobs end by themselves."""


def main(argv: Sequence[str]) -> None:
    """Run one round to its end."""
    experiment, number = Experiment(Path(argv[0])), int(argv[1])
    check_seal(experiment)
    current = rounds(experiment)[number]
    groups = current.groups
    needed = {group.id: _gpus_here(experiment, group) for group in groups}
    pool: list[str] = []
    if any(needed.values()):
        # By default CUDA counts the fastest GPU first; other tools count by PCI address.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        pool = handles()
    for group in groups:
        if lacking := check_allocation(needed[group.id]):
            sys.exit(
                f"group {group.id} cannot run on this machine: {lacking} (check `gpus` of its model)"
            )
    supervisor = Supervisor(experiment.jobs_dir, pool, experiment.resolved.plan.parallelism)
    signal.signal(signal.SIGTERM, supervisor.end)
    last = ArrayTask("hpcbench.finalise", str(experiment.path), "--supervised")
    try:
        supervisor.run(*(_part(experiment, number, group, needed[group.id]) for group in groups))
        supervisor.run(Part("finalise", [last]))
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        sys.exit(finaliser_found_no_room(experiment, error))


def _part(experiment: Experiment, number: int, group: Group, gpus: int) -> Part:
    """The workers of a group in this round."""
    worker = ("hpcbench.worker", str(experiment.path), group.id, str(number))
    elements = [ArrayTask(*worker, f"{one}/{group.workers}") for one in range(group.workers)]
    return Part(group.id, elements, gpus, group.after)


def _gpus_here(experiment: Experiment, group: Group) -> int:
    """GPUs of this machine that a job of the group takes."""
    environment = experiment.manifest.environments[group.environment]
    return 0 if environment["kind"] in environments.ELSEWHERE else group.job_gpus


@dataclass
class Part:
    """Equal elements."""

    id: str
    waiting: list[ArrayTask]
    """Elements that are not started yet."""
    gpus: int = 0
    """GPUs of each element."""
    after: Sequence[str] = ()
    """Parts that must have ended before this one starts."""


class Supervisor:
    """Starts elements as processes, within the limits of `most` and the GPUs, and waits for them.

    Args:
        jobs_dir: folder of submitit's files.
        gpus: entries of CUDA_VISIBLE_DEVICES to assign, one for each GPU.
        most: maximum number of elements at once.
    """

    def __init__(self, jobs_dir: Path, gpus: Sequence[str] = (), most: int = 1) -> None:
        self._jobs_dir = jobs_dir
        self._free = deque(gpus)
        self._most = most
        self._jobs: dict[Any, tuple[Part, list[str]]] = {}

    def run(self, *parts: Part) -> None:
        """Run all elements, earlier parts first where the limits allow it, and wait for them."""
        import submitit

        # As in Slurm's jobs; see `job_start`. AutoExecutor would read the metadata of all installed packages.
        python = f"{shlex.quote(sys.executable)} -u -m hpcbench.submit.job_start"
        executor = submitit.LocalExecutor(self._jobs_dir, python=python)
        executor.update_parameters(timeout_min=YEAR_MINUTES, stderr_to_stdout=True)
        while any(part.waiting for part in parts) or self._jobs:
            for job in [job for job in self._jobs if job.done()]:
                self._free.extend(self._jobs.pop(job)[1])
            unfinished = {part.id for part in parts if part.waiting}
            unfinished |= {part.id for part, _ in self._jobs.values()}
            for part in parts:
                while self._may_start(part, unfinished):
                    element = part.waiting.pop(0)
                    share = [self._free.popleft() for _ in range(part.gpus)]
                    element.gpus = ",".join(share)
                    element.umask = os.umask(0o077)
                    os.umask(element.umask)
                    with owner_writes():
                        self._jobs[executor.submit(element)] = (part, share)
            time.sleep(POLL_SECONDS)

    def _may_start(self, part: Part, unfinished: Set[str]) -> bool:
        room = len(self._jobs) < self._most and len(self._free) >= part.gpus
        return bool(part.waiting) and room and unfinished.isdisjoint(part.after)

    def end(self, number: int, frame: FrameType | None) -> None:
        """Pass SIGTERM on to the workers, which then drain."""
        for job in list(self._jobs):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job.job_id), signal.SIGTERM)
        sys.exit(1)


if __name__ == "__main__":
    garbage.skip_last_collection()
    main(sys.argv[1:])
