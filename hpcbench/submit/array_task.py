"""The callable that submitit carries to the node: a module's name and strings, nothing else.

What crosses is a path and a group (`python -m hpcbench.worker EXPERIMENT GROUP` in other words), so the
pickle stays tiny and does not depend on the code's shape. Before it calls anything it takes up the secrets
of the experiment, and looks whether this is still the environment that submitted.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.runs import begin_run
from hpcbench.submit import fingerprint, secrets_file

EXIT_ENVIRONMENT = EnvironmentFault.exit_code
"""Exit code of a job that found another environment than the one that submitted."""


class ArrayTask:
    """Calls `MODULE.main(ARGUMENTS)`; under the local executor with GPUs of its own."""

    def __init__(self, module: str, *arguments: str, gpus: str | None = None) -> None:
        self.module, self.arguments, self.gpus = module, arguments, gpus

    def __call__(self) -> None:
        if self.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus
        experiment = Experiment(Path(self.arguments[0]))
        begin(experiment, self._name)
        importlib.import_module(self.module).main(list(self.arguments))

    @property
    def _name(self) -> str:
        """Group of a worker; what else it is."""
        is_worker = self.module == "hpcbench.worker" and len(self.arguments) > 1
        return self.arguments[1] if is_worker else self.module.rpartition(".")[2]


def begin(experiment: Experiment, name: str) -> None:
    """Make this process ready to work for an experiment, or end it.

    Args:
        experiment: the experiment.
        name: group of a worker, or what else the process is: part of the name of its events file.

    Raises:
        SystemExit: with code 3: secrets cannot be read safely, or the environment is another one than that
            which submitted. The cause stands in the events of this process, where `status` finds it.
    """
    try:
        secrets_file.load(experiment)
        changes = fingerprint.changes_since_submit(experiment)
    except EnvironmentFault as fault:
        _give_up(experiment, name, str(fault))
    if changes:
        _give_up(
            experiment,
            name,
            f"the environment changed since submit: {'; '.join(changes)} (`hpcbench resume` goes on with "
            "what is installed now; `submit --snapshot-env` runs jobs from a copy)",
        )
    if fingerprint.interpreter(experiment) != (sys.executable,):
        # What this process starts must not find the original again.
        os.environ.pop("PYTHONPATH", None)
        os.environ["PYTHONNOUSERSITE"] = "1"


def _give_up(experiment: Experiment, name: str, message: str) -> None:
    _, log = begin_run(experiment, name, Owner.here())
    with log:
        log.write("failed", sync=True, message=message)
    print(message, file=sys.stderr)  # noqa: T201 - the job's log
    raise SystemExit(EXIT_ENVIRONMENT)
