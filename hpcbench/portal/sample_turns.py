"""An agent's work on one sample: its turns, its plan, and the images that its tools made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hpcbench.agents.trajectory import Called, Trajectory, Turn
from hpcbench.experiment.view.turns import MOST_BYTES
from hpcbench.experiment.view.turns import turns_of as lines_of
from hpcbench.portal.asked_samples import Gone
from hpcbench.portal.context import Portal
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.json_safe import sound
from hpcbench.portal.lru import LruCache
from hpcbench.portal.media import Picture, Size, pictures_of
from hpcbench.portal.models.samples import PlanStep, SampleTurn, SampleTurns, TurnCall
from hpcbench.portal.sample_table import SampleTable
from hpcbench.schema.records import ToolCall

MOST_TEXT = 100_000
"""Characters of a text that are sent."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A trajectory with the facts of its response."""

    trajectory: Trajectory
    figures: Mapping[str, Any] | None
    """None: it has not ended."""
    shown: int
    """Images of the sample, which a model counts first."""

    @property
    def size(self) -> int:
        """About its bytes in memory."""
        return 10_000 + sum(map(len, self.trajectory.images))


_kept: LruCache[_Seen] = LruCache(2 * MOST_BYTES, lambda one: one.size)
"""Trajectories that were shown last: a page asks for each of their images."""


def works_in_turns(table: SampleTable) -> bool:
    """Whether an agent works on the samples."""
    try:
        return table.run_task.agent is not None
    except (OSError, ValueError, KeyError):
        return False


def turns_of(table: SampleTable, place: int) -> SampleTurns:
    """An agent's work on a sample so far; no turns before it begins.

    Raises:
        PortalFault: there is no such sample.
    """
    seen = _seen(table, place)
    figures, trajectory = seen.figures or {}, seen.trajectory
    turns = tuple(_turns(table, place, seen))
    count = figures.get("turns")
    return SampleTurns(
        exit=sound(figures.get("exit")),
        why=sound(str(figures.get("why", ""))),
        turns=turns,
        plan=tuple(PlanStep(text=sound(one.text), status=one.status) for one in trajectory.plan),
        think_seconds=sum(one.think_seconds for one in trajectory.turns),
        tool_seconds=sum(one.tool_seconds for one in trajectory.turns),
        sync_seconds=_number(figures.get("sync_seconds")),
        wasted=figures["wasted"] if isinstance(figures.get("wasted"), int) else None,
        left_out=max(0, count - len(turns)) if isinstance(count, int) else 0,
    )


def made_count(table: SampleTable, place: int) -> int:
    """Number of images that tools made for a sample."""
    return len(_seen(table, place).trajectory.images) if works_in_turns(table) else 0


def made_of(portal: Portal, table: SampleTable, place: int, number: int, size: Size) -> Picture:
    """An image that a tool made.

    Args:
        portal: keeps small copies.
        table: the run task's samples.
        place: place of the sample.
        number: number of the image among those of tools, from 0.
        size: `thumb` is a small copy.

    Raises:
        PortalFault: there is no such image, or it cannot be shown.
    """
    images = _seen(table, place).trajectory.images
    if number >= len(images):
        raise missing(f"tools made {len(images)} images for the sample")
    return pictures_of(portal).of(table.run_task.dataset, images[number], size)


def _seen(table: SampleTable, place: int) -> _Seen:
    table.check(place)
    if not works_in_turns(table):
        raise missing("no agent works on the samples of this run task")
    (row,) = table.rows_at([place], ["sample"])
    name = row["sample"]
    recorded = table.recorded({place: name}).get(place)
    ended = None if recorded is None else (recorded.shard, recorded.attempt)
    key = (table.experiment.path, table.name, place)

    def read() -> _Seen:
        cut = table.experiment.work.cut(table.name)
        shard = None if cut is None else cut.shard_at(table.asked_place(place))
        shard = recorded.shard if recorded is not None else shard
        try:
            lines = lines_of(table.experiment, table.name, shard, name) if shard is not None else []
        except OSError as error:
            what = f"the turns cannot be read: {error.strerror or error}"
            raise PortalFault(500, "unreadable", what) from error
        trajectory = Trajectory.of(name, lines)
        if recorded is None:
            return _Seen(trajectory, None, _images(table, place))
        response = recorded.response
        return _Seen(trajectory, response.trajectory, len(response.image_sha256))

    # The work on a sample without an answer goes on: it is read each time.
    return read() if ended is None else _kept.of(key, (ended, table.version), read)


def _images(table: SampleTable, place: int) -> int:
    try:
        return len(table.sample(place).images)
    except Gone:
        return 0


def _turns(table: SampleTable, place: int, seen: _Seen) -> Iterator[SampleTurn]:
    made, begin = 0, 0.0
    for number, turn in enumerate(seen.trajectory.turns, 1):
        calls = []
        for at, call in enumerate(turn.calls):
            one = turn.called[at] if at < len(turn.called) else None
            calls.append(_call(table, place, call, one, made, seen.shown))
            made += len(one.result.images) if one is not None else 0
        yield _turn(turn, number, begin, tuple(calls))
        begin += turn.think_seconds + turn.tool_seconds


def _turn(turn: Turn, number: int, begin: float, calls: tuple[TurnCall, ...]) -> SampleTurn:
    first = turn.stamps.first
    tokens = [turn.usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return SampleTurn(
        number=number,
        agent=sound(turn.agent),
        text=_text(turn.text),
        reasoning=None if turn.reasoning is None else _text(turn.reasoning),
        calls=calls,
        outcome=turn.outcome,
        begin=begin,
        seconds=turn.think_seconds,
        ttft=None if first is None else (first - turn.stamps.send) / 1e9,
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
    )


def _call(
    table: SampleTable, place: int, call: ToolCall, one: Called | None, made: int, shown: int
) -> TurnCall:
    """A call with its result.

    Args:
        table: the run task's samples.
        place: place of the sample.
        call: the call.
        one: the call with its result; None: it was not made.
        made: images that tools made before it.
        shown: images of the sample.
    """
    count = 0 if one is None else len(one.result.images)
    run_task, experiment = quote(table.name, safe=""), quote(table.experiment.id, safe="")
    below = f"experiments/{experiment}/run-tasks/{run_task}/samples/{place}/made"
    return TurnCall(
        tool=sound(call.tool),
        arguments=_text(call.arguments),
        kind=None if one is None else one.result.kind,
        text="" if one is None else _text(one.result.text),
        seconds=None if one is None else one.result.seconds,
        images=tuple(f"{below}/{made + at}" for at in range(count)),
        numbers=tuple(shown + made + at + 1 for at in range(count)),
    )


def _text(text: str) -> str:
    found: str = sound(text)
    left = len(found) - MOST_TEXT
    return found if left <= 0 else f"{found[:MOST_TEXT]} … {left:,} more characters"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
