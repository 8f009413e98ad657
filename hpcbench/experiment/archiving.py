"""Folding many files into few when no process writes to them any more: files of shards and of ended workers.

A running experiment has two files for every attempt at a shard and three or four for every worker. Clusters
limit the number of files. In the end one file a run task, one file for the workers, and their logs remain.
"""

from __future__ import annotations

from typing import Any

from hpcbench.experiment.claims import ends_of, shard_states
from hpcbench.experiment.event_log import LAST_WORDS
from hpcbench.experiment.layout import Experiment, attempts_in, monitors_of
from hpcbench.files.archive import fold_files

_EVENTS = ".events.jsonl"
_MONITOR = ".monitor.jsonl"
_FOLDED = (_EVENTS, ".responses.jsonl", ".turns.jsonl", _MONITOR)


def loose(experiment: Experiment) -> int:
    """How many files of attempts and workers are not folded yet."""
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    folders = [*map(experiment.shards, names), experiment.workers()]
    return sum(name.endswith(_FOLDED) for folder in folders for name in folder.loose)


def fold(experiment: Experiment, run_task: str) -> bool:
    """Fold all files of the attempts at a run task's shards into one file.

    A kill loses nothing, and concurrent readers notice nothing. While a worker holds a shard, no file of the
    run task is folded.

    Returns:
        Whether all files are folded now.

    Raises:
        OSError: the disk is full or gone; every file is where it was.
    """
    states = shard_states(experiment, [run_task])
    folder = states[0].folder if states else None
    if folder is None or not folder.loose:
        return True
    if any(state.state == "claimed" for state in states):
        return False
    # Only files that existed when the states were read: a worker that claims a shard now is not disturbed.
    # Attempts in order: for a worker whose shard was taken over, the later attempt must not vanish first.
    names = [
        f"{index:05d}.{attempt}.{kind}.jsonl"
        for index, attempts in sorted(attempts_in(folder.loose).items())
        for attempt in attempts
        for kind in ("turns", "responses", "events")
    ]
    return fold_files(folder.path, [name for name in names if name in folder.loose], _ends)


def fold_workers(experiment: Experiment, *, all_ended: bool = False) -> bool:
    """Fold events and readings of workers that have written their last event into one file.

    Their logs stay unchanged: people and other tools read them.

    Args:
        experiment: the experiment.
        all_ended: no worker lives, including workers that never wrote a last event.

    Returns:
        Whether all files that should be folded are.

    Raises:
        OSError: the disk is full or gone; every file is where it was.
    """
    folder = experiment.workers()
    names: list[str] = []
    for events in sorted(name for name in folder.loose if name.endswith(_EVENTS)):
        _, last = ends_of(folder.read(events))
        if all_ended or (last is not None and last["event"] in LAST_WORDS):
            names += monitors_of(events.removesuffix(_EVENTS), folder.loose)
            names.append(events)
    return fold_files(folder.path, names) if names else True


def _ends(name: str, data: bytes) -> Any:
    """The events of an attempt that `shard_states` needs, so that the attempt need not be read again."""
    if not name.endswith(_EVENTS):
        return None
    first, last = ends_of(data)
    return [first, last] if first is not None and last is not None else None
