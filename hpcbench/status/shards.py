"""The state of a shard: from its files first, then from its worker's liveness.

A worker's own files decide its progress; Slurm, or /proc under the local executor, decides only liveness.
Silence alone never makes a shard lost, and a job that Slurm forgot never leaves a shard unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hpcbench.experiment.claims import ShardState
from hpcbench.status.experiment_status import ShardCounts, ShardStatus, ShardWord

NEWS_SECONDS = 120
"""Twice the longest time that an NFS client caches a directory by default."""

Life = Literal["lives", "requeued", "gone", "unknown"]
"""Liveness of a worker: `requeued` its array task waits or runs again and takes its shards up itself;
`unknown` there was no answer."""


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """The known facts about the owner of a claimed shard."""

    life: Life
    """The owner's liveness."""
    heard: float
    """The owner's last sign of life, seconds since the epoch."""
    cause: str = ""
    """Why the owner is gone, as far as known."""
    node: str | None = None
    """The owner's node."""


def judge(
    state: ShardState,
    held: OwnerFacts | None,
    now: float,
    *,
    ended: bool = False,
    cancelled: bool = False,
) -> ShardStatus:
    """The state of one shard.

    Args:
        state: its state by its files.
        held: its owner, if it is claimed.
        now: seconds since the epoch.
        ended: whether the experiment has ended: no worker will take the remaining shards.
        cancelled: whether a user cancelled its run task: what is left neither failed nor was lost, and
            `resume` takes it.
    """
    answered = state.answered  # read once: it may have to count lines
    if cancelled and (held is None or held.life == "gone"):
        word, cause = _cancelled(state, answered)
    else:
        word, cause = _word(state, held, answered, now, ended)
    said = state.owner or {}
    return ShardStatus(
        state.shard.id,
        word,
        state.shard.stop - state.shard.start,
        answered,
        state.attempt,
        cause or None,
        str(said["job"]) if held and "job" in said else None,
        held.node if held else None,
        state.began or None,
    )


def count(shards: Iterable[ShardStatus]) -> ShardCounts:
    """Number of shards in each state."""
    return ShardCounts(**Counter[str](shard.state for shard in shards))


def _word(
    state: ShardState, held: OwnerFacts | None, answered: int, now: float, ended: bool
) -> tuple[ShardWord, str]:
    if state.state == "done":
        return "done", ""
    if held is None:
        return _unheld(state, answered, ended)
    quiet = now - held.heard > NEWS_SECONDS
    if held.life == "gone" and (quiet or ended):
        return "lost", held.cause or "its job ended without a message"
    if held.life == "requeued":
        return "claimed", "its array task was requeued and will continue it"
    if quiet:
        return "silent", f"no message from its worker for {(now - held.heard) / 60:.0f} min"
    return ("running" if answered else "claimed"), ""


def _cancelled(state: ShardState, answered: int) -> tuple[ShardWord, str]:
    if state.state in ("done", "claimed"):
        return "done" if state.state == "done" else "acknowledged" if answered else "pending", ""
    return _unheld(state, answered, ended=False)


def _unheld(state: ShardState, answered: int, ended: bool) -> tuple[ShardWord, str]:
    if state.state != "free" and not state.claimable:
        times = f"given up after {state.failed_attempts} workers"
        return "failed", f"{times}: {state.reason}" if state.reason else times
    if ended:
        return "failed", state.reason
    return ("acknowledged" if answered else "pending"), state.reason
