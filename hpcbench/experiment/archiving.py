"""Making few files of many once nobody writes to them any more: shards, and workers that have ended.

While it runs, an experiment has two files for every attempt at a shard and three or four for every worker.
File systems of clusters count files. In the end there is one file a run task, one for the workers, and their
logs.
"""

from __future__ import annotations

from typing import Any

from hpcbench.experiment.claims import ends_of, shard_states
from hpcbench.experiment.layout import Experiment, attempts_in
from hpcbench.experiment.log import LAST_WORDS
from hpcbench.files.archive import fold_files

_EVENTS = ".events.jsonl"


def fold(experiment: Experiment, run_task: str) -> bool:
    """Make one file of all that attempts at a run task's shards wrote.

    Nothing is lost if it is killed, and whoever reads meanwhile notices nothing. Where somebody holds a
    shard, the whole run task is left alone.

    Returns:
        Whether all is folded now.

    Raises:
        OSError: the disk is full or gone; everything is where it was.
    """
    states = shard_states(experiment, [run_task])
    folder = states[0].folder if states else None
    if folder is None or not folder.loose:
        return True
    if any(state.state == "claimed" for state in states):
        return False
    # Only what was there when the states were read: who claims a shard now goes on undisturbed. Attempts in
    # order: a worker whose shard was taken over must not find the later attempt gone first.
    names = [
        f"{index:05d}.{attempt}.{kind}.jsonl"
        for index, attempts in sorted(attempts_in(folder.loose).items())
        for attempt in attempts
        for kind in ("responses", "events")
    ]
    return fold_files(folder.path, [name for name in names if name in folder.loose], _ends)


def fold_workers(experiment: Experiment, *, all_ended: bool = False) -> bool:
    """Make one file of the events and readings of workers that have said their last word.

    Their logs stay as they are: people and tools other than ours look into them.

    Args:
        experiment: the experiment.
        all_ended: whether it is known that no worker lives, also of those that never said a last word.

    Returns:
        Whether all that should be is folded now.

    Raises:
        OSError: the disk is full or gone; everything is where it was.
    """
    folder = experiment.workers()
    names: list[str] = []
    for events in sorted(name for name in folder.loose if name.endswith(_EVENTS)):
        _, last = ends_of(folder.read(events))
        if all_ended or (last is not None and last["event"] in LAST_WORDS):
            monitor = events.removesuffix(_EVENTS) + ".monitor.jsonl"
            names += [name for name in (monitor, events) if name in folder.loose]
    return fold_files(folder.path, names) if names else True


def _ends(name: str, data: bytes) -> Any:
    """What `shard_states` wants to know of an attempt, so that it need not be read again."""
    if not name.endswith(_EVENTS):
        return None
    first, last = ends_of(data)
    return [first, last] if first is not None and last is not None else None
