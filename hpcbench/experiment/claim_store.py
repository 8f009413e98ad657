"""Claims as files: `Board`'s view of an experiment's directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hpcbench.experiment.claims import (
    REUSED,
    Claim,
    Owner,
    ShardState,
    claim,
    is_reused_whole,
    states_of,
)
from hpcbench.experiment.event_log import LAST_WORDS
from hpcbench.experiment.layout import Experiment, attempts_in
from hpcbench.files.atomic import read_lines
from hpcbench.schema.work import Shard


class ClaimStore:
    """The claims of one worker in an experiment's directory.

    Args:
        experiment: the experiment.
        group: the worker's group.
        owner: the worker.
    """

    def __init__(self, experiment: Experiment, group: str, owner: Owner) -> None:
        self._experiment, self._group, self._owner = experiment, group, owner
        self._reused: dict[str, dict[int, bool]] = {}
        """Run task → shards with answers of earlier experiments; whether these are all of its answers."""

    def claimed(self, run_task: str) -> Collection[int]:
        """Numbers of shards that any worker has ever claimed, or that earlier experiments answered whole."""
        folder, known = self._experiment.shards(run_task), self._reused.setdefault(run_task, {})
        found = []
        for index, attempts in attempts_in(folder.names).items():
            if attempts[-1] == REUSED and index not in known:
                known[index] = is_reused_whole(folder, index)
            if attempts[-1] != REUSED or known[index]:
                found.append(index)
        return found

    def states(self, shards: Sequence[Shard]) -> list[ShardState]:
        """The state of these shards of one run task."""
        return states_of(self._experiment, shards)

    def claim(self, shard: Shard, attempt: int) -> Claim | None:
        """Open an attempt; None if another worker was quicker."""
        before = ShardState(shard, attempt - 1, 0, "free", None)
        return claim(self._experiment, before, self._owner)

    def left_behind(self) -> Mapping[str, Collection[int]]:
        """Run task → shards that earlier runs of this worker claimed, by their events."""
        found: dict[str, set[int]] = {}
        for restart in range(self._owner.restart):
            earlier = replace(self._owner, restart=restart)
            for event in read_lines(self._experiment.worker_events(self._group, earlier.id)):
                if event.get("event") == "shard_claimed":
                    run_task, _, index = str(event.get("shard")).rpartition("/")
                    found.setdefault(run_task, set()).add(int(index))
        return found

    def busy(self) -> Mapping[str, int]:
        """Model → workers of the group that have it loaded or are loading it now."""
        found = Counter[str]()
        own = self._experiment.worker_events(self._group, self._owner.id)
        for path, events in self._experiment.worker_records():
            if path.name.partition(".")[0] != self._group or path == own:
                continue
            model = None
            for event in events:
                if event["event"] in ("model_loading", "model_ready"):
                    model = event["model"]
                elif event["event"] in LAST_WORDS or event["event"] == "model_failed":
                    model = None
            if model is not None:
                found[model] += 1
        return found
