"""Shards of a run task as the portal's dataset objects, from the follower's last status or from files."""

from __future__ import annotations

import time

from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.portal.context import Portal
from hpcbench.portal.faults import bad_request
from hpcbench.portal.follower import follower_of
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.run_tasks import DatasetObject
from hpcbench.status import ShardStatus
from hpcbench.status.shards import judge


def objects(
    portal: Portal, experiment: Experiment, run_task: str, after: str | None, limit: int
) -> Page[DatasetObject]:
    """A page of a run task's shards, in order.

    Args:
        portal: the portal.
        experiment: an experiment that can be read.
        run_task: one of its run tasks.
        after: number of the last known shard.
        limit: most shards.

    Raises:
        PortalFault: `after` is no number of a shard.
    """
    begin = _place(after)
    follower = follower_of(portal)
    found = follower.shards(experiment.id, run_task) if follower else None
    if found is None:
        now = time.time()
        control = control_state(experiment)
        cancelled = control.cancelled or run_task in control.cancelled_tasks
        states = shard_states(experiment, [run_task])
        found = [judge(state, None, now, ended=True, cancelled=cancelled) for state in states]
    shown = found[begin : begin + limit]
    more = begin + limit < len(found)
    return Page(
        items=tuple(map(_object, shown)),
        next=str(begin + limit - 1) if more else None,
        total=min(len(found), 10_000),
    )


def _place(after: str | None) -> int:
    if after is None:
        return 0
    if after.isascii() and after.isdecimal() and len(after) < 10:
        return int(after) + 1
    raise bad_request("`after` is not the number of a shard", "start without `after`")


def _object(shard: ShardStatus) -> DatasetObject:
    return DatasetObject(
        index=int(shard.id.rpartition("/")[2]),
        state=shard.state,
        samples=shard.samples,
        answered=shard.answered,
        attempt=shard.attempt,
        node=shard.node,
        cause=shard.cause,
        since=shard.since or None,
    )
