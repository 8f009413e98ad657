"""A FAKE Slurm: programs for PATH that answer from files, count their calls, and lie on command.

It has no scheduler. `Fake.jobs` is what its squeue knows, `Fake.runs` what its sacct knows: they may differ.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpcbench.slurm.jobs import FIELD, QUEUE_FIELDS, RECORD, RUN_FIELDS

SHIM = """#!/bin/sh
# A fake of {name}: logs its arguments, waits, prints what it was given.
printf '%s\\n' "$*" >> {folder}/{name}.calls
date +%s.%N >> {folder}/{name}.started
[ -f {folder}/{name}.wait ] && sleep "$(cat {folder}/{name}.wait)"
while [ -f {folder}/{name}.held ]; do sleep 0.05; done
date +%s.%N >> {folder}/{name}.done
if [ -f {folder}/{name}.fails ]; then
    left=$(cat {folder}/{name}.fails)
    if [ "$left" -gt 0 ]; then
        echo $((left - 1)) > {folder}/{name}.fails
        cat {folder}/{name}.error >&2
        exit 1
    fi
fi
cat {folder}/{name}.answer 2>/dev/null
exit 0
"""

PROGRAMS = ("squeue", "sacct", "scontrol", "scancel", "sbatch")


@dataclass
class Fake:
    """The fake, set by a test."""

    folder: Path
    jobs: list[dict[str, str]] = field(default_factory=list)
    runs: list[dict[str, str]] = field(default_factory=list)

    def job(self, job_id: str, name: str = "ours", state: str = "RUNNING", **fields: str) -> None:
        """Add a job to what squeue knows."""
        self.jobs.append({"JobArrayID": job_id, "Name": name, "State": state, **fields})
        self.says("squeue", _records(self.jobs))

    def forget(self) -> None:
        """Purge slurmctld's memory."""
        self.jobs.clear()
        self.says("squeue", "")

    def run(self, job_id: str, name: str = "ours", state: str = "COMPLETED", **fields: str) -> None:
        """Add a run to what sacct knows."""
        self.runs.append({"JobID": job_id, "JobName": name, "State": state, **fields})
        lines = [FIELD.join(run.get(one, "") for one in RUN_FIELDS) for run in self.runs]
        self.says("sacct", "".join(line + "\n" for line in lines))

    def says(self, program: str, text: str) -> None:
        """Output of a program."""
        (self.folder / f"{program}.answer").write_text(text)

    def fails(self, program: str, error: str, times: int = 1_000_000) -> None:
        """Let a program fail so many times."""
        (self.folder / f"{program}.error").write_text(error + "\n")
        (self.folder / f"{program}.fails").write_text(f"{times}\n")

    def works(self, program: str) -> None:
        """End that."""
        (self.folder / f"{program}.fails").unlink()

    def waits(self, program: str, seconds: float) -> None:
        """Let a program take its time."""
        (self.folder / f"{program}.wait").write_text(str(seconds))

    def holds(self, program: str) -> None:
        """Let a program answer no sooner than it is let go."""
        (self.folder / f"{program}.held").touch()

    def lets_go(self, program: str) -> None:
        """End that."""
        (self.folder / f"{program}.held").unlink()

    def lacks(self, program: str) -> None:
        """Have no such program."""
        (self.folder / program).unlink()

    def calls(self, program: str) -> list[str]:
        """Arguments of each call so far."""
        path = self.folder / f"{program}.calls"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def spans(self, program: str) -> list[tuple[float, float]]:
        """Begin and end of each call."""
        started, done = (
            [float(line) for line in (self.folder / f"{program}.{what}").read_text().split()]
            for what in ("started", "done")
        )
        return list(zip(started, done, strict=True))


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Make a fake and put it, and the few programs it needs itself, alone on PATH."""
    folder.mkdir(exist_ok=True)
    for name in PROGRAMS:
        shim = folder / name
        shim.write_text(SHIM.format(name=name, folder=folder))
        shim.chmod(0o755)
    for name in ("cat", "date", "sleep"):
        target = next(
            Path(one) / name for one in ("/bin", "/usr/bin") if (Path(one) / name).exists()
        )
        if not (folder / name).exists():
            (folder / name).symlink_to(target)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SLURM_CONF", os.fspath(folder / "slurm.conf"))
    return Fake(folder)


def _records(jobs: list[dict[str, str]]) -> str:
    usual = {
        "RestartCnt": "0",
        "exit_code": "0",
        "Partition": "gpu",
        "PriorityLong": "100",
        "TimeLimit": "30:00",
    }
    rows = [FIELD.join((usual | job).get(one, "N/A") for one in QUEUE_FIELDS) for job in jobs]
    return "".join(f"{row}{RECORD}\n" for row in rows)
