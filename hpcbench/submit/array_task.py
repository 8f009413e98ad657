"""The callable that submitit carries to the node: a module's name and strings, nothing else.

The pickle holds only a path and a group (`python -m hpcbench.worker EXPERIMENT GROUP`), so it stays tiny
and does not depend on the structure of the code. Before the callable calls the module, it loads the
experiment's secrets and checks that the environment is the one that submitted, except for an upgrade of
hpcbench.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from hpcbench import garbage
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import OTHERS_WRITE
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.job_runs import begin_run
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.seal import check_seal
from hpcbench.submit import fingerprint, secrets_file

EXIT_ENVIRONMENT = EnvironmentFault.exit_code
"""Exit code of a job whose environment differs from the one that submitted."""


class ArrayTask:
    """Calls `MODULE.main(ARGUMENTS)`; under the local executor with its own GPUs."""

    def __init__(self, module: str, *arguments: str, gpus: str | None = None) -> None:
        self.module, self.arguments, self.gpus = module, arguments, gpus
        self.umask: int | None = None
        """The process's umask; None: as it is inherited."""

    def __call__(self) -> None:
        garbage.skip_last_collection()
        if self.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus
        if (
            own := getattr(self, "umask", None)
        ) is not None:  # no attribute in pickles of version 0.1
            os.umask(own)
        experiment = Experiment(Path(self.arguments[0]))
        begin(experiment, self._name)
        try:
            with garbage.loading():
                module = importlib.import_module(self.module)
            module.main(list(self.arguments))
        finally:
            os.umask(os.umask(0o077) | OTHERS_WRITE)  # submitit writes a pickle of the result

    @property
    def _name(self) -> str:
        """Group of a worker, or name of another process."""
        is_worker = self.module == "hpcbench.worker" and len(self.arguments) > 1
        return self.arguments[1] if is_worker else self.module.rpartition(".")[2]


def begin(experiment: Experiment, name: str) -> None:
    """Make this process ready to work for an experiment, or end it.

    Args:
        experiment: the experiment.
        name: group of a worker, or name of another process: part of the name of its events file.

    Raises:
        SystemExit: with code 3: secrets cannot be read safely, or the environment differs from the one that
            submitted. This process's events contain the cause, and `status` shows it.
    """
    try:
        check_seal(experiment)
        secrets_file.load(experiment)
        changes = fingerprint.stops_jobs(experiment)
    except EnvironmentFault as fault:
        _give_up(experiment, name, str(fault))
    if changes:
        _give_up(
            experiment,
            name,
            f"the environment changed since submit: {'; '.join(changes)} (`hpcbench resume` continues with "
            "the packages that are installed now; `submit --snapshot-env` runs jobs from a copy)",
        )
    if experiment.manifest.snapshot:
        # Child processes of the copy must not find the original environment again.
        os.environ.pop("PYTHONPATH", None)
        os.environ["PYTHONNOUSERSITE"] = "1"


def _give_up(experiment: Experiment, name: str, message: str) -> None:
    _, log = begin_run(experiment, name, Owner.here())
    with log:
        log.write("failed", sync=True, message=message)
    print(message, file=sys.stderr)  # noqa: T201 - the job's log
    raise SystemExit(EXIT_ENVIRONMENT)
