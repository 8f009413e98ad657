"""Claims of the page for cluster administrators, counted on the cluster: docs/for-admins.md."""

from __future__ import annotations

import pwd
import re
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.drill import Drill, Run, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

SLURMS = ("squeue", "sacct", "sacctmgr", "scontrol", "sinfo", "sbatch", "scancel", "srun")


class Calls:
    """Calls of Slurm's commands by a user's processes: on the login node, and in jobs."""

    def __init__(self, drill: Drill) -> None:
        self.log = drill.folder / "calls"
        folder = drill.folder / "counted"
        folder.mkdir()
        for name in SLURMS:
            real = shutil.which(name, path=drill.environ["PATH"])
            path = folder / name
            path.write_text(
                "#!/bin/bash\n"
                f'echo "${{SLURM_ARRAY_JOB_ID:-${{SLURM_JOB_ID:-login}}}} {name} $*" >> {self.log}\n'
                f'exec {real} "$@"\n'
            )
            path.chmod(0o755)
        self.log.touch()
        for path in (folder, self.log):
            shutil.chown(path, "hpcuser")
        drill.environ["PATH"] = f"{folder}:{drill.environ['PATH']}"
        self.seen = 0

    def new(self) -> Counter[str]:
        """Calls since the last look on the login node, by command."""
        lines = self.log.read_text().splitlines()
        new, self.seen = lines[self.seen :], len(lines)
        return Counter(line.split()[1] for line in new if line.startswith("login "))

    def of_job(self, job: str) -> list[str]:
        """Calls of a job, or of all tasks of an array."""
        return [line for line in self.log.read_text().splitlines() if line.startswith(f"{job} ")]


def processes(drill: Drill) -> Iterator[tuple[Path, bool]]:
    """Her processes, and whether each is in a job."""
    mine = f"HPCBENCH_HOME={drill.home}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mine in words:
                yield entry, any(word.startswith(b"SLURM_JOB_ID=") for word in words)


def listening(process: Path) -> list[str]:
    """TCP addresses on which a process listens."""
    sockets = set()
    for descriptor in (process / "fd").iterdir():
        found = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
        sockets |= {found[1]} if found else set()
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in (process / "net" / name).read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in sockets]


def test_slurm_is_asked_as_rarely_as_the_page_says(drill: Drill) -> None:
    calls = Calls(drill)
    drill.run("init", "--force")
    assert calls.new() == {"sacctmgr": 2, "scontrol": 2, "sinfo": 1}
    plan = drill.plan(shard_size=4)
    drill.run("submit", plan, "--registry", drill.folder / "registry", "--dry-run")
    assert calls.new() == {}
    drill.run("submit", plan, "--registry", drill.folder / "registry", "--estimate")
    assert set(calls.new()) == {"sbatch"}
    assert drill.slurm("squeue", "--noheader", "--me", "--name=drill") == ""

    drill.script(answer_ms=[1500, 1500])
    run = drill.submit(plan)
    until(lambda: run.answered() > 2 and len(run.workers_at()) == 2, "both at work")
    calls.new()
    for _ in range(4):
        run.status()
        run.screen()
    assert calls.new()["squeue"] <= 1
    groups = {str(job.id).partition("_")[0] for job in run.workers_at()}
    assert [call for group in groups for call in calls.of_job(group)] == []
    drill.script(answer_ms=[1, 3])
    run.wait()


def test_nothing_runs_listens_or_needs_root_beyond_what_the_page_says(drill: Drill) -> None:
    drill.script(answer_ms=[1500, 1500])
    plan = drill.plan(shard_size=4, stages=["inference", "evaluation", "reporting"])
    run = drill.submit(plan)
    until(lambda: run.answered() > 2 and len(run.workers_at()) == 2, "both at work")
    user = pwd.getpwnam("hpcuser").pw_uid
    found = list(processes(drill))
    assert found
    for process, in_job in found:
        if not process.exists():
            continue
        assert in_job, (process / "cmdline").read_bytes()
        status = (process / "status").read_text()
        assert set(re.findall(r"^Uid:\s+(.*)$", status, re.MULTILINE)[0].split()) == {str(user)}
        assert re.findall(r"^CapEff:\s+(\w+)$", status, re.MULTILINE) == ["0000000000000000"]
        assert listening(process) == []
    files_while_working(run)
    drill.script(answer_ms=[1, 3])
    run.wait()
    until(lambda: not list(processes(drill)), "the last process to end")
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o750
    folder = run.path / "shards" / "numbers"
    assert [path.name for path in folder.iterdir()] == ["folded.jsonl"]


def files_while_working(run: Run) -> None:
    """Two files for each shard and attempt, four for each worker, four small ones for each job."""
    attempts = Counter(
        path.name.split(".")[0] + path.name.split(".")[1]
        for path in run.path.glob("shards/numbers/*")
    )
    assert attempts and max(attempts.values()) <= 2
    workers = Counter(
        path.name.partition(".")[2].split("-")[0] for path in run.path.glob("workers/*")
    )
    assert len(run.workers_at()) == 2
    assert sum(workers.values()) <= 4 * 2, [path.name for path in run.path.glob("workers/*")]
    jobs = [path.name for path in run.path.glob("jobs/*")]
    assert len(jobs) <= 4 * 3 + 2, jobs
