"""How long `hpcbench --help` takes beside `python -c pass`, and `status` of a finished experiment.

Prints medians of whole processes and the ratio to the bare interpreter, run in turn so that a machine whose
speed drifts is fair to both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 15


def seconds(argv: list[str]) -> float:
    """Wall time of one process."""
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Time the commands in turn and print the table."""
    hpcbench = str(Path(sys.executable).with_name("hpcbench"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "hpcbench --help": [hpcbench, "--help"],
        "hpcbench submit --help": [hpcbench, "submit", "--help"],
        "hpcbench list": [hpcbench, "list"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, argv in commands.items():
            times[name].append(seconds(argv))
    floor = statistics.median(times["python -c pass"])
    print(f"{'command':<26}{'median ms':>10}{'ratio':>8}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:<26}{median * 1e3:>10.1f}{median / floor:>8.2f}")


if __name__ == "__main__":
    main()
