"""The state of a shard: its files first, then whether its worker lives.

A worker's own files are the truth for progress; Slurm, or /proc under the local executor, only for liveness.
Silence alone never makes a shard lost, and a job that Slurm forgot never leaves one unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hpcbench.experiment.claims import ShardState
from hpcbench.status.models import ShardCounts, ShardStatus, ShardWord

NEWS_SECONDS = 120
"""Twice the longest time an NFS client may keep a directory by default."""

Life = Literal["lives", "requeued", "gone", "unknown"]
"""What is known of a worker: `requeued` its array task waits or runs again and takes its shards up itself;
`unknown` nobody could be asked."""


@dataclass(frozen=True, slots=True)
class Owned:
    """What is known of the owner of a claimed shard."""

    life: Life
    """Whether it lives."""
    heard: float
    """When it was last heard of, seconds since the epoch."""
    cause: str = ""
    """Why it is gone, as far as known."""
    node: str | None = None
    """Its node."""


def judge(state: ShardState, held: Owned | None, now: float, *, ended: bool = False) -> ShardStatus:
    """The state of one shard.

    Args:
        state: what its files say.
        held: what is known of its owner, where it is claimed.
        now: seconds since the epoch.
        ended: whether the experiment has ended: nobody will take up what is left.
    """
    answered = state.answered  # which may have to count lines
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
    """How many are in each state."""
    return ShardCounts(**Counter[str](shard.state for shard in shards))


def _word(
    state: ShardState, held: Owned | None, answered: int, now: float, ended: bool
) -> tuple[ShardWord, str]:
    if state.state == "done":
        return "done", ""
    if held is None:
        return _unheld(state, answered, ended)
    quiet = now - held.heard > NEWS_SECONDS
    if held.life == "gone" and (quiet or ended):
        return "lost", held.cause or "its job is gone without a word"
    if held.life == "requeued":
        return "claimed", "its array task was requeued and takes it up again"
    if quiet:
        return "silent", f"nothing heard of its worker for {(now - held.heard) / 60:.0f} min"
    return ("running" if answered else "claimed"), ""


def _unheld(state: ShardState, answered: int, ended: bool) -> tuple[ShardWord, str]:
    if state.state != "free" and not state.claimable:
        times = f"given up after {state.failed_attempts} workers"
        return "failed", f"{times}: {state.reason}" if state.reason else times
    if ended:
        return "failed", state.reason
    return ("acknowledged" if answered else "pending"), state.reason
