"""The single entry point to the results of all other kits.

run = read_run(Path("outputs/Qwen2-VL-2B"), "lmms-eval", Keys(["id=doc.questionId"]))
for task in run.tasks: for sample in task.samples(): …
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from hpcbench.errors import Problem, UserError
from hpcbench.interchange import harness, vlmevalkit
from hpcbench.interchange.kit_results import Keys, Kit, KitRun


def read_run(place: Path, kit: Kit, keys: Keys, tasks: Sequence[str] = ()) -> KitRun:
    """Read a kit's results.

    Args:
        place: a folder that holds the results of one run, or one file of them.
        kit: the kit that wrote them.
        keys: keys of records for the fields of a sample.
        tasks: only these tasks; empty: all.

    Raises:
        UserError: there are none, or several runs; a file is incomplete or not the kit's.
    """
    if not place.exists():
        raise UserError(Problem("no such file or folder", str(place), remedy="check the path"))
    reader = vlmevalkit.read if kit == "vlmevalkit" else harness.read
    run = reader(place, kit, keys)
    if not tasks:
        return run
    known = {task.name: task for task in run.tasks}
    for name in tasks:
        if name not in known:
            raise UserError(
                Problem(f"no task '{name}' (there are: {', '.join(known)})", str(place))
            )
    chosen = tuple(known[name] for name in dict.fromkeys(tasks))
    return dataclasses.replace(run, tasks=chosen)
