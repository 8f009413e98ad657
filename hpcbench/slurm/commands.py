"""Running Slurm's commands: one environment for all of them, one kind of error, patience on request.

The user's own variables (`SQUEUE_FORMAT`, `SQUEUE_STATES`, `SLURM_CLUSTERS` and the like) and those of an
outer job would change the answers, so none of them is passed on. Times are epoch seconds.
"""

from __future__ import annotations

import os
import re
import time

from hpcbench.errors import EnvironmentFault
from hpcbench.subprocesses import last_line, run

TIMEOUT = 60
"""Seconds to wait for an answer; slurmctld under load can be slow."""

PAUSES = (1, 2, 4, 8, 15, 30)
"""Seconds between the tries of a patient question: about a minute, the time of a restart of slurmctld."""

_PREFIXES = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")

_SILENT = re.compile(
    r"unable to contact slurm|socket timed out|transport endpoint|connection refused"
    r"|connection reset|connect failure|zero bytes were transmitted|unexpected message received"
    r"|error sending message|communication connection|gave no answer|no route to host"
    r"|slurm backup controller in standby",
    re.IGNORECASE,
)


class SlurmFault(EnvironmentFault):
    """A failed Slurm command; `message` is its last line with content."""

    def __init__(self, command: str, said: str) -> None:
        self.said = said.strip()
        """Its whole output."""
        super().__init__(named(command, _telling_line(said)))


def named(command: str, said: str) -> str:
    """A command's message, with the command's name before it once: most commands add it themselves."""
    return f"{command}: {re.sub(rf'^(?:{re.escape(command)}: *)+', '', said)}"


def silent(message: str) -> bool:
    """Whether an error means that slurmctld or slurmdbd was not reached: another try may help."""
    return _SILENT.search(message) is not None


def ask(*command: str, patient: bool = False) -> str:
    """Run one of Slurm's commands and return its output.

    Args:
        command: program and arguments; no shell is involved.
        patient: try again, for about a minute, while Slurm cannot be reached.

    Raises:
        EnvironmentFault: the command is missing or does not answer; a `SlurmFault` where it fails.
    """
    for pause in PAUSES if patient else ():
        try:
            return _run(command)
        except EnvironmentFault as fault:
            if not silent(fault.message):
                raise
        time.sleep(pause)
    return _run(command)


def _run(command: tuple[str, ...]) -> str:
    try:
        ended = run(command, TIMEOUT, env=_environment())
    except FileNotFoundError:
        raise EnvironmentFault(
            f"no `{command[0]}` on PATH", remedy="run on a login node, or use `executor: local`"
        ) from None
    if ended.late:
        raise EnvironmentFault(f"{command[0]} gave no answer in {TIMEOUT} s")
    if ended.failed:
        raise SlurmFault(command[0], ended.messages or ended.text)
    return ended.text


def _environment() -> dict[str, str]:
    own = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(_PREFIXES)
    }
    # Epoch seconds have no time zone; 0 lists a pending array's tasks in full.
    return own | {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


def _telling_line(text: str) -> str:
    """The last line with content: scontrol often ends in `slurm_suspend error: No error`."""
    telling = [line for line in text.splitlines() if not line.rstrip().endswith("No error")]
    return last_line("\n".join(telling).strip() or text)
