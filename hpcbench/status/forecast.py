"""Rate of answers and time of the last answer: collects the input of `status/eta.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hpcbench.experiment.claims import REUSED, ShardState, id_of_owner
from hpcbench.experiment.layout import responses_name
from hpcbench.experiment.view.workers import WorkerRun
from hpcbench.schema.work import WorkPlan
from hpcbench.status import eta
from hpcbench.status.experiment_status import Eta
from hpcbench.status.findings import Facts

RATE_SECONDS = 300.0
"""Window of a rate: a longer window would hide that work stopped, a shorter window would make it jump."""

FAR_ENOUGH = 0.25
"""A running shard's pace is used once this share of its samples is answered."""

WAITING = ("pending", "acknowledged", "lost")
"""States of shards that a worker will take."""

SEEN = 100
"""Maximum number of shards of a run task whose pace is used; further shards add no information."""


SYNCHRONOUS = 60.0
"""Largest difference of nodes' clocks, in seconds, that does not matter to a rate over minutes."""


class Span(NamedTuple):
    """Time and answers of the newest attempt at a shard. A tuple: there may be 100,000."""

    run_task: str
    """The shard's run task."""
    began: float
    """Start, seconds since the epoch."""
    end: float
    """End; now, while the attempt runs."""
    answered: int
    """Answers of this attempt."""
    far: bool
    """Whether the attempt has enough answers to measure its pace."""


def spans(states: Iterable[ShardState], now: float, ahead: Mapping[str, float]) -> list[Span]:
    """The newest attempt of each shard, if it has answers; the latest first.

    Args:
        states: shards.
        now: seconds since the epoch.
        ahead: worker → seconds that its clock is ahead of ours: shards' start times are on this clock.
    """
    found = []
    for state in states:
        if not state.began or state.state in ("free", "released"):
            continue
        done, works = state.state == "done", state.state == "claimed"
        began = state.began
        if works and abs(off := ahead.get(id_of_owner(state.owner), 0.0)) > SYNCHRONOUS:
            began -= off
        end = now if works else began + state.seconds
        samples = state.shard.stop - state.shard.start
        alone = state.attempt == 1 and not _has_taken_over(state)
        own = samples if done and alone else _own(state)
        if own and end > began:
            far = done or (works and own >= FAR_ENOUGH * samples)
            found.append(Span(state.shard.run_task, began, end, own, far))
    found.sort(key=lambda span: -span.began)
    return found


def rates(known: Sequence[Span], now: float) -> dict[str, float]:
    """Run task → answers a second over the last minutes; run tasks without answers are left out.

    The answers of a shard are assumed to be spread evenly over its newest attempt.
    """
    if not known:
        return {}
    window = max(1.0, min(RATE_SECONDS, now - known[-1].began))
    found: defaultdict[str, float] = defaultdict(float)
    for span in known:
        inside = span.end - max(span.began, now - window)
        if inside > 0:
            share = min(1.0, inside / (span.end - span.began))
            found[span.run_task] += span.answered * share / window
    return dict(found)


def forecast(facts: Facts, known: Sequence[Span]) -> Eta | None:
    """Time of the last answer; None: no work is left, or no duration is known."""
    crews, waits, working = _crews(facts)
    if not crews:
        return None
    work, now = facts.experiment.work, facts.now
    span = eta.estimate(crews, _paces(work, known), work.load_seconds)
    if span is None:
        return None
    low, likely, high = (round(now + one, 1) for one in (span.low, span.likely, span.high))
    if not working:
        text = f"{eta.durations_text(span.low, span.high)} after it starts"
    else:
        text = eta.span_text(low, high, now) + (", plus the wait for Slurm" if waits else "")
    return Eta(low=low, likely=likely, high=high, confidence=eta.CONFIDENCE, waits=waits, text=text)


def _has_taken_over(state: ShardState) -> bool:
    """Whether earlier experiments answered samples of the shard."""
    name = responses_name(state.shard.index, REUSED)
    return state.folder is not None and (name in state.folder.loose or name in state.folder.folded)


def _own(state: ShardState) -> int:
    """Answers of the newest attempt."""
    if state.folder is None or (state.attempt <= 1 and not _has_taken_over(state)):
        return state.answered
    shard = state.shard
    return state.folder.lines_of(responses_name(shard.index, state.attempt))


def _crews(facts: Facts) -> tuple[list[eta.Crew], bool, bool]:
    """Groups with work left, whether one of them has no worker yet, whether any worker works."""
    models = {one.name: one.model for one in facts.experiment.planned.run_tasks}
    loads = facts.experiment.work.load_seconds
    left, held = _left(facts)
    rounds = facts.run_state.rounds
    groups = rounds[-1].groups if rounds else facts.experiment.work.groups
    crews, waits, working = [], False, False
    for group in groups:
        todo = tuple(
            eta.RemainingShards(name, models[name], *left[name])
            for name in group.run_tasks
            if name in left
        )
        busy = [
            _busy(worker, held.get(worker.id), loads, facts.now)
            for worker in facts.living
            if worker.group == group.id
        ]
        if not todo and not any(one.run_task for one in busy):
            continue
        working = working or bool(busy)
        if not busy:
            waits = True
            count = min(group.workers, group.throttle, sum(one.shards for one in todo))
            busy = [eta.Busy()] * max(1, count)
        crews.append(eta.Crew(todo, tuple(busy)))
    return crews, waits, working


def _left(facts: Facts) -> tuple[dict[str, tuple[int, int]], dict[str, ShardState]]:
    """Run task → unheld shards and their unanswered samples; worker → the shard it holds."""
    left: dict[str, tuple[int, int]] = {}
    held: dict[str, ShardState] = {}
    for state, shard in facts.shards:
        name = state.shard.run_task
        if shard.state in ("claimed", "running", "silent") and state.owner is not None:
            held[id_of_owner(state.owner)] = state
        elif shard.state in WAITING and not facts.run_state.control.rests(name):
            shards, samples = left.get(name, (0, 0))
            left[name] = (shards + 1, samples + shard.samples - shard.answered)
    return left, held


def _busy(
    worker: WorkerRun, state: ShardState | None, loads: Mapping[str, float], now: float
) -> eta.Busy:
    loading = 0.0
    if worker.loading is not None and worker.model is not None:
        loading = max(5.0, loads.get(worker.model, 0.0) - (now - worker.loading))
    if state is None:
        return eta.Busy(worker.model, loading=loading)
    samples = state.shard.stop - state.shard.start - state.answered
    return eta.Busy(worker.model, state.shard.run_task, max(0, samples), loading)


def _paces(work: WorkPlan, known: Iterable[Span]) -> dict[str, eta.Pace]:
    """Measured seconds a sample of each run task; the latest shards are used first."""
    seen: defaultdict[str, list[float]] = defaultdict(list)
    for span in known:
        if span.far and len(seen[span.run_task]) < SEEN:
            seen[span.run_task].append((span.end - span.began) / span.answered)
    return {
        cut.run_task: eta.Pace(cut.seconds_per_sample, tuple(seen[cut.run_task]))
        for cut in work.cuts
    }
