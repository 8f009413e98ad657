"""Claims of the page for cluster administrators, counted on the cluster: docs/for-admins.md."""

from __future__ import annotations

import contextlib
import pwd
import re
import shutil
import stat
import time
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
        self.log.touch()
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
        for path in (folder, self.log):
            shutil.chown(path, "hpcuser")
        drill.environ["PATH"] = f"{folder}:{drill.environ['PATH']}"
        self.seen = 0

    def new(self) -> list[str]:
        """Calls on the login node since the last look that ask Slurm: command and arguments."""
        lines = self.log.read_text().splitlines()
        new, self.seen = lines[self.seen :], len(lines)
        calls = [line.removeprefix("login ") for line in new if line.startswith("login ")]
        return [call for call in calls if not call.endswith(" --version")]

    def of_job(self, job: str) -> list[str]:
        """Calls of a job, or of all tasks of an array."""
        return [line for line in self.log.read_text().splitlines() if line.startswith(f"{job} ")]


def test_slurm_is_asked_as_rarely_as_the_page_says(drill: Drill) -> None:
    calls = Calls(drill)
    drill.run("init", "--force")
    asked = Counter(call.partition(" ")[0] for call in calls.new() if " --test-only" not in call)
    assert asked["sinfo"] == 1
    assert asked <= Counter({"sacctmgr": 2, "scontrol": 2, "sinfo": 1})
    plan = drill.plan(shard_size=4)
    drill.run("submit", plan, "--registry", drill.folder / "registry", "--dry-run")
    assert calls.new() == []
    drill.run("submit", plan, "--registry", drill.folder / "registry", "--estimate")
    assert all(call.startswith("sbatch --test-only") for call in calls.new())
    assert drill.known() == []

    drill.script(answer_ms=[1500, 1500])
    run = drill.submit(plan)
    until(lambda: run.answered() > 2 and len(run.workers_at()) == 2, "both at work")
    calls.new()
    begin = time.monotonic()
    for _ in range(3):
        run.status()
        run.screen()
    asked_for = [call for call in calls.new() if call.startswith("squeue")]
    mine = [call for call in asked_for if "--states=PENDING" not in call]
    assert len(mine) <= 1 + (time.monotonic() - begin) // 30
    assert len(asked_for) - len(mine) <= 1
    arrays = {str(job.id).partition("_")[0] for job in run.workers_at()}
    assert arrays
    assert [call for array in arrays for call in calls.of_job(array)] == []
    drill.script(answer_ms=[1, 3])
    run.wait()


def test_nothing_runs_listens_or_needs_root_beyond_what_the_page_says(drill: Drill) -> None:
    drill.script(answer_ms=[1500, 1500])
    run = drill.submit(drill.plan(shard_size=4))
    until(lambda: run.answered() > 2 and len(run.workers_at()) == 2, "both at work")
    user = str(pwd.getpwnam("hpcuser").pw_uid)
    seen = 0
    for process, in_job in processes(drill):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = (process / "status").read_text()
            command = (process / "cmdline").read_bytes()
            addresses = listening(process)
            assert in_job, command
            assert set(re.findall(r"^Uid:\s+(.*)$", status, re.MULTILINE)[0].split()) == {user}
            assert re.findall(r"^CapEff:\s+(\w+)$", status, re.MULTILINE) == ["0" * 16]
            assert addresses == [], command
            seen += 1
    assert seen >= 6, "two workers, each with a wrapper and an engine"
    files_while_working(run)
    drill.script(answer_ms=[1, 3])
    run.wait()
    until(lambda: not list(processes(drill)), "the last process to end")
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o750
    folder = run.path / "shards" / "numbers"
    assert [path.name for path in folder.iterdir()] == ["folded.jsonl"]


def processes(drill: Drill) -> Iterator[tuple[Path, bool]]:
    """Her processes with all that they started, and whether each is in a job."""
    mine = f"HPCBENCH_HOME={drill.home}".encode()
    parents, found = dict[str, str](), dict[str, bool]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[entry.name] = (entry / "stat").read_text().rpartition(") ")[2].split()[1]
                words = (entry / "environ").read_bytes().split(b"\0")
                if mine in words:
                    found[entry.name] = any(word.startswith(b"SLURM_JOB_ID=") for word in words)
    for name in parents:
        above: str | None = name
        while above is not None and above not in found:
            above = parents.get(above)
        if above is not None:
            yield Path("/proc", name), found[above]


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


def files_while_working(run: Run) -> None:
    """Two files for each shard and attempt, four for each worker, one for the last job, four for each job."""
    attempts = Counter(
        path.name.rsplit(".", 2)[0] for path in run.path.glob("shards/numbers/*.jsonl")
    )
    assert attempts
    assert max(attempts.values()) <= 2
    workers = [path.name for path in run.path.glob("workers/*")]
    assert len(workers) <= 4 * 2 + 1, workers
    jobs = [path.name for path in run.path.glob("jobs/*")]
    assert len(jobs) <= 4 * 3 + 1, jobs  # two tasks of the array, the last job, and seal.json
