"""The local executor: the same rounds as under Slurm, driven by one process on this machine.

`python -m hpcbench.launch.local EXPERIMENT ROUND` starts the round's workers through submitit's local
executor, waits for them, then finalises. It is started in a session of its own, so that
it outlives the shell; `hpcbench cancel` ends it.

Workers get GPUs of their own out of this machine's, or out of those in CUDA_VISIBLE_DEVICES where that is
set. Where a group wants more workers than there are GPUs for, the others wait until one ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from hpcbench import environments
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.launch.element import Element
from hpcbench.monitor import check_allocation, handles
from hpcbench.schema.plan import Group

POLL_SECONDS = 0.2

YEAR_MINUTES = 60 * 24 * 365
"""submitit ends local jobs after a time; ours end by themselves."""


def main(argv: Sequence[str]) -> None:
    """Run one round to its end."""
    experiment, number = Experiment(Path(argv[0])), int(argv[1])
    current = rounds(experiment)[number]
    groups = current.groups
    needed = {group.id: _gpus_here(experiment, group) for group in groups}
    pool: list[str] = []
    if any(needed.values()):
        # CUDA by itself counts the fastest GPU first, everybody else by PCI address.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        pool = handles()
    for group in groups:
        if lacking := check_allocation(needed[group.id]):
            sys.exit(
                f"group {group.id} cannot run on this machine: {lacking} (`gpus` of its model)"
            )
    supervisor = Supervisor(experiment.jobs_dir, pool)
    signal.signal(signal.SIGTERM, supervisor.end)
    for group in groups:
        worker = ("hpcbench.worker", str(experiment.path), group.id, str(number))
        elements = [Element(*worker, f"{one}/{group.workers}") for one in range(group.workers)]
        supervisor.run(elements, needed[group.id])
    supervisor.run([Element("hpcbench.finalise", str(experiment.path), "--supervised")])


def _gpus_here(experiment: Experiment, group: Group) -> int:
    """GPUs of this machine that a worker of the group takes."""
    stored: Mapping[str, Any] = experiment.manifest["environments"]  # type: ignore[assignment]
    return 0 if stored[group.environment]["kind"] in environments.ELSEWHERE else group.gpus


class Supervisor:
    """Starts elements as processes, as many at a time as there are GPUs for, and waits for them.

    Args:
        jobs_dir: folder of submitit's files.
        gpus: entries of CUDA_VISIBLE_DEVICES to give away, one for each GPU.
    """

    def __init__(self, jobs_dir: Path, gpus: Sequence[str] = ()) -> None:
        self._jobs_dir = jobs_dir
        self._free = deque(gpus)
        self._jobs: dict[Any, list[str]] = {}

    def run(self, elements: Sequence[Element], gpus: int = 0) -> None:
        """Run elements, each with so many GPUs for itself, and wait for all of them."""
        import submitit

        executor = submitit.AutoExecutor(self._jobs_dir, cluster="local")
        executor.update_parameters(timeout_min=YEAR_MINUTES, stderr_to_stdout=True)
        waiting = deque(elements)
        while waiting or self._jobs:
            for job in [job for job in self._jobs if job.done()]:
                self._free.extend(self._jobs.pop(job))
            while waiting and len(self._free) >= gpus:
                element, share = waiting.popleft(), [self._free.popleft() for _ in range(gpus)]
                element.gpus = ",".join(share)
                self._jobs[executor.submit(element)] = share
            time.sleep(POLL_SECONDS)

    def end(self, number: int, frame: FrameType | None) -> None:
        """Hand SIGTERM on; workers drain."""
        for job in list(self._jobs):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job.job_id), signal.SIGTERM)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
