"""How long `hpcbench --help` and `status` take beside `python -c pass`.

    python benchmarks/cli_startup.py [EXPERIMENT]

`status` is of EXPERIMENT; without it, of one run task in one shard, made for the measurement. Prints medians
of whole processes, the ratio to the bare interpreter, and processor time, which a busy machine changes less.
The commands run in turn, so that a machine whose speed drifts is fair to all. Byte code is compiled first, as
after an installation.
"""

from __future__ import annotations

import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.unit.small import resolved, run_task, submitted  # noqa: E402

RUNS = 15


def seconds(argv: list[str]) -> tuple[float, float]:
    """Wall time and processor time of one process."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    wall, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Time the commands in turn and print the table."""
    compileall.compile_dir(ROOT / "hpcbench", quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HPCBENCH_HOME": folder, "XDG_CONFIG_HOME": f"{folder}/config"}
        small = submitted(Path(folder), resolved(run_task("a"), executor="local"), 4).path
        measure(str(Path(sys.argv[1]).resolve()) if sys.argv[1:] else str(small))


def measure(experiment: str) -> None:
    """Print the table of medians."""
    hpcbench = str(Path(sys.executable).with_name("hpcbench"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "hpcbench --help": [hpcbench, "--help"],
        "hpcbench submit --help": [hpcbench, "submit", "--help"],
        "hpcbench list": [hpcbench, "list"],
        "hpcbench status": [hpcbench, "status", experiment],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, argv in commands.items():
            times[name].append(seconds(argv))
    medians = {
        name: [statistics.median(column) for column in zip(*values, strict=True)]
        for name, values in times.items()
    }
    floor, floor_used = medians["python -c pass"]
    print(f"{'command':<26}{'median ms':>10}{'ratio':>8}{'CPU ms':>10}{'ratio':>8}")
    for name, (wall, used) in medians.items():
        ratios = wall / floor, used / floor_used
        print(f"{name:<26}{wall * 1e3:>10.1f}{ratios[0]:>8.2f}{used * 1e3:>10.1f}{ratios[1]:>8.2f}")


if __name__ == "__main__":
    main()
