"""The local executor: the same rounds as under Slurm, driven by one process on this machine.

`python -m hpcbench.launch.local EXPERIMENT ROUND` starts the round's workers through submitit's local
executor, waits for them, then runs evaluation and finalise. It is started in a session of its own, so that
it outlives the shell; `hpcbench cancel` ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from hpcbench.experiment.layout import Experiment
from hpcbench.launch.element import Element
from hpcbench.launch.submit import rounds

POLL_SECONDS = 0.2

YEAR_MINUTES = 60 * 24 * 365
"""submitit ends local jobs after a time; ours end by themselves."""


def main(argv: Sequence[str]) -> None:
    """Run one round to its end."""
    experiment, number = Experiment(Path(argv[0])), int(argv[1])
    supervisor = _Supervisor(experiment)
    signal.signal(signal.SIGTERM, supervisor.end)
    current = rounds(experiment)[number]
    groups = {group.id: group for group in experiment.work.groups}
    for group_id, count in current.workers.items():
        supervisor.run_group(group_id, count, groups[group_id].gpus)
    for module in ("hpcbench.evaluation", "hpcbench.finalise"):
        supervisor.run([Element(module, str(experiment.path))])


class _Supervisor:
    """Starts elements as processes and waits for them."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.jobs: list[Any] = []

    def run_group(self, group_id: str, count: int, gpus: int) -> None:
        """Run a group's workers; each gets GPUs of its own, in turn, as Slurm would give them."""
        path = str(self.experiment.path)
        shares = [range(index * gpus, (index + 1) * gpus) for index in range(count)]
        self.run(
            [
                Element("hpcbench.worker", path, group_id, gpus=",".join(map(str, share)))
                for share in shares
            ]
        )

    def run(self, elements: Sequence[Element]) -> None:
        """Run elements at once and wait for all of them."""
        import submitit

        executor = submitit.AutoExecutor(self.experiment.jobs_dir, cluster="local")
        executor.update_parameters(timeout_min=YEAR_MINUTES, stderr_to_stdout=True)
        self.jobs = [executor.submit(element) for element in elements]
        while not all(job.done() for job in self.jobs):
            time.sleep(POLL_SECONDS)

    def end(self, number: int, frame: FrameType | None) -> None:
        """Hand SIGTERM on; workers drain."""
        for job in self.jobs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job.job_id), signal.SIGTERM)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
