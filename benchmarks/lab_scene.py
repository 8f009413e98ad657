"""Parts that benchmarks on the one-machine cluster share: this checkout's hpcbench, a user, and her jobs.

Needs the cluster (`make cluster-up`) with hpcbench's dependencies in it (`make test` installs them), and
root, for it runs as the cluster's ordinary user. Nothing here touches jobs of anybody else.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.lab import Lab
from tests.slurm.drill import Drill

ROOT = Path(__file__).parent.parent


@contextlib.contextmanager
def drill(name: str) -> Iterator[Drill]:
    """A user with the scripted engine, whose jobs and files go in the end."""
    lab = Lab.current()
    lab.up()
    python = checkout(lab)
    folder = lab.new_directory(name)
    cache = lab.user_home / "shared-cache"
    cache.mkdir(exist_ok=True)
    shutil.chown(cache, "hpcuser", "hpcuser")
    made = Drill(lab, python, folder, cache)
    try:
        yield made
    finally:
        made.log_out()
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


def checkout(lab: Lab) -> Path:
    """Python of an environment with this checkout's wheel, over what `make test` installed there."""
    theirs, own = lab.home / "hpcbench", lab.home / "benchmarks"
    if not (theirs / "bin" / "python").exists():
        sys.exit("no hpcbench on the cluster: run `make test` once, it installs the wheel there")
    python = own / "bin" / "python"
    if not python.exists():
        _run("/usr/bin/python3", "-m", "venv", own)
    (packages,) = own.glob("lib/python3.*/site-packages")
    (dependencies,) = theirs.glob("lib/python3.*/site-packages")
    # By links and without their hpcbench: who tests at the same time installs another one over it.
    for entry in dependencies.iterdir():
        link = packages / entry.name
        if not entry.name.startswith(("hpcbench", "~")) and not link.exists():
            link.symlink_to(entry)
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
        (wheel,) = Path(folder).glob("hpcbench_vlm-*.whl")
        _run(python, "-m", "pip", "uninstall", "-q", "-y", "hpcbench")  # the name of before
        _run(python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel)
    return python


def sbatch(lab: Lab, *words: str | Path, cwd: Path | None = None) -> str:
    """Submit a job as the user; its id."""
    done = lab.run_as_user(["sbatch", "--parsable", *words], cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().partition(";")[0]


def wait_for_job(lab: Lab, job: str, timeout: float = 300) -> None:
    """Wait until a job, or all of an array, has left the queue; asked every 50 ms."""
    deadline = time.monotonic() + timeout
    while lab.run_as_user(["squeue", "-h", "-j", job, "-t", "PD,R,CG,CF,S"]).stdout.strip():
        assert time.monotonic() < deadline, f"job {job} has not ended in {timeout} s"
        time.sleep(0.05)


def _run(*words: str | Path) -> None:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
