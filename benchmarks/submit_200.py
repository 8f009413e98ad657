"""Submitting a plan of 200 run tasks beside a raw `sbatch --array=0-199`, on the one-machine cluster.

Needs the cluster (`make cluster-up`); as root, for it runs as the cluster's ordinary user. All jobs are held
and cancelled: only submission is timed. The raw array is the floor; what hpcbench does besides is start
Python, read 200 run tasks, look the hashes up, plan, write the manifest, and submit evaluation and finalise
too. One run beforehand fills the caches (hashes, packages) and is not counted.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.cluster.lab import Lab
from tests.user import User

RUNS = 5
TASKS = 200


def main() -> None:
    """Time both in turn and print the table."""
    lab = Lab.current()
    lab.up()
    python = lab.home / "hpcbench" / "bin" / "python"
    if not python.exists():
        sys.exit("no hpcbench on the cluster: run `make test` once, it installs the wheel there")
    user, plan = _scene(lab, python)
    raw: list[float] = []
    ours: list[float] = []
    for run in range(RUNS + 1):
        times = _raw(lab), _ours(user, plan)
        lab.cancel_all()
        if run:
            raw.append(times[0])
            ours.append(times[1])
    shutil.rmtree(user.folder, ignore_errors=True)
    best_raw, best_ours = sorted(raw)[RUNS // 2], sorted(ours)[RUNS // 2]
    print(f"raw sbatch --array=0-{TASKS - 1:<12}{best_raw * 1e3:>9.0f} ms   1.00")
    print(
        f"hpcbench submit, {TASKS} run tasks  {best_ours * 1e3:>9.0f} ms{best_ours / best_raw:>7.2f}"
    )


def _raw(lab: Lab) -> float:
    command = ["sbatch", f"--array=0-{TASKS - 1}", "--hold", "--mem=100M", "-o", "/dev/null"]
    begun = time.perf_counter()
    done = lab.run_as_user([*command, "--wrap", "true"])
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - begun


def _ours(user: User, plan: Path) -> float:
    begun = time.perf_counter()
    user.submit(plan)
    return time.perf_counter() - begun


def _scene(lab: Lab, python: Path) -> tuple[User, Path]:
    user = User(lab, python, lab.new_directory("submit200"))
    user.write(
        "../config/hpcbench/sites/default.yaml",
        {
            "schema_version": 1,
            "name": "default",
            "executor": "slurm",
            "slurm": {"options": {"hold": True}},
        },
    )
    user.write_model("tiny-vlm")
    tasks = [
        {"name": f"vqa-{number}", "ml_task": "vqa", "model": "tiny-vlm", "dataset": "demo_vqa",
         "prompt": "demo_vqa", "limit": 8}
        for number in range(TASKS)
    ]  # fmt: skip
    return user, user.plan("many", tasks, parallelism=TASKS)


if __name__ == "__main__":
    main()
