"""The record of a model's work on one sample in turns, its state and its figures.

A turn is one reply of the model with the results of the tools that it called. A file of turns has one line a
turn, forced to the disk before the next turn begins, so a trajectory continues at its last finished turn:

    {"sample": "s1", "turn": 1, "agent": "", "reply": {…}, "results": [{…}]}

Before a call that must not be repeated, there is a line of its own:

    {"sample": "s1", "turn": 2, "intent": {"id": "c1", "tool": "pay", "arguments": "{…}"}}

Images that tools made are in the line of their turn, in base64: no file of their own could be lost.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hpcbench.agents.tools import ToolResult, arguments_of
from hpcbench.schema.records import Outcome, Response, ToolCall

Exit = Literal[
    "answered", "limit_calls", "limit_tokens", "limit_time", "limit_context", "loop", "refused",
    "tool_failed", "request_failed", "engine_gone",
]  # fmt: skip
"""How a trajectory ended.

- `answered`: the model replied without a call;
- `limit_calls`, `limit_tokens`, `limit_time`: a limit of the agent was reached;
- `limit_context`: the conversation does not fit into the model's context;
- `loop`: the same call gave the same result too often in a row;
- `refused`: the model refused to answer;
- `tool_failed`: a call that must not be repeated was lost with its worker;
- `request_failed`: a request had no answer after all tries, or the engine refused it;
- `engine_gone`: the sample ended the engine.
"""

CHANGES = frozenset({"create_plan", "update_plan", "hand_over"})
"""Tools that change the state of the trajectory."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call with its result."""

    call: ToolCall
    result: ToolResult

    @property
    def key(self) -> tuple[str, str]:
        """The same for the same call: tool, and arguments without differences of spelling."""
        try:
            arguments = json.dumps(arguments_of(self.call.arguments), sort_keys=True)
        except ValueError:
            arguments = self.call.arguments
        return self.call.tool, arguments

    @property
    def digest(self) -> str:
        """Hash of the result as the model sees it."""
        seen = hashlib.sha256(self.result.text.encode())
        for image in self.result.images:
            seen.update(hashlib.sha256(image).digest())
        return seen.hexdigest()


@dataclass(frozen=True, slots=True)
class Stamps:
    """Times of a turn's request, `time.monotonic_ns()` of the worker; None: it had no such chunk."""

    send: int
    """Body ready, about to be written."""
    first: int | None
    """First chunk with text or a call."""
    last: int | None
    """Last such chunk."""
    done: int
    """Stream closed."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply of the model, with the results of its calls."""

    text: str
    """The reply's text."""
    calls: tuple[ToolCall, ...]
    """Tools that it calls; none: it is the answer."""
    called: tuple[Called, ...]
    """The calls that were made; fewer than `calls` where a limit came first."""
    stamps: Stamps
    """When its request was sent and answered."""
    agent: str = ""
    """The agent that replied, of several."""
    reasoning: str | None = None
    """Text that the engine marked as reasoning."""
    finish_reason: str | None = None
    """The engine's own word."""
    outcome: Outcome = "ok"
    """Outcome of the request: ok, truncated or refused."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """The engine's count of tokens: prompt_tokens, completion_tokens."""
    tries: int = 1
    """Requests sent for it."""
    image_sha256: tuple[str, ...] = ()
    """Hash of each image of its request, as sent."""

    @classmethod
    def of(
        cls, reply: Response, calls: Sequence[ToolCall], called: Sequence[Called], agent: str
    ) -> Turn:
        """A turn from the response to its request."""
        chunks = reply.times.chunks
        return cls(
            text=reply.text or "",
            calls=tuple(calls),
            called=tuple(called),
            stamps=Stamps(
                reply.times.send,
                chunks[0] if chunks else None,
                chunks[-1] if chunks else None,
                reply.times.done,
            ),
            agent=agent,
            reasoning=reply.reasoning,
            finish_reason=reply.finish_reason,
            outcome=reply.outcome,
            usage=reply.usage or {},
            tries=reply.tries,
            image_sha256=reply.image_sha256,
        )

    @property
    def think_seconds(self) -> float:
        """Time from sending the request to the end of its answer."""
        return (self.stamps.done - self.stamps.send) / 1e9

    @property
    def tool_seconds(self) -> float:
        """Time that its tools took."""
        return sum(one.result.seconds for one in self.called)

    def without_images(self) -> Turn:
        """The turn with empty images in place of those that its tools made."""
        if not any(one.result.images for one in self.called):
            return self
        called = (
            replace(one, result=replace(one.result, images=(b"",) * len(one.result.images)))
            for one in self.called
        )
        return replace(self, called=tuple(called))

    def to_json(self, sample: str, number: int) -> dict[str, Any]:
        """Its line."""
        reply = {
            "text": self.text,
            "calls": [_call(call) for call in self.calls],
            "finish_reason": self.finish_reason,
            "outcome": self.outcome,
            "usage": dict(self.usage),
            "tries": self.tries,
            "times": {
                "send": self.stamps.send,
                "first": self.stamps.first,
                "last": self.stamps.last,
                "done": self.stamps.done,
            },
            "image_sha256": list(self.image_sha256),
        }
        if self.reasoning is not None:
            reply["reasoning"] = self.reasoning
        results = [
            {
                "id": one.call.id,
                "kind": one.result.kind,
                "text": one.result.text,
                "images": [base64.b64encode(image).decode() for image in one.result.images],
                "seconds": round(one.result.seconds, 6),
                **({"usage": dict(one.result.usage)} if one.result.usage else {}),
            }
            for one in self.called
        ]
        place = {"sample": sample, "turn": number, "agent": self.agent}
        return {**place, "reply": reply, "results": results}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Turn:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the line is no turn.
        """
        reply = line["reply"]
        calls = tuple(ToolCall(**call) for call in reply["calls"])
        called = tuple(
            Called(
                call,
                ToolResult(
                    one["kind"],
                    one["text"],
                    tuple(base64.b64decode(image) for image in one["images"]),
                    one["seconds"],
                    one.get("usage", {}),
                ),
            )
            for call, one in zip(calls, line["results"], strict=False)
        )
        return cls(
            text=reply["text"],
            calls=calls,
            called=called,
            stamps=Stamps(**reply["times"]),
            agent=line["agent"],
            reasoning=reply.get("reasoning"),
            finish_reason=reply["finish_reason"],
            outcome=reply["outcome"],
            usage=reply["usage"],
            tries=reply["tries"],
            image_sha256=tuple(reply["image_sha256"]),
        )


def _call(call: ToolCall) -> dict[str, str]:
    return {"id": call.id, "tool": call.tool, "arguments": call.arguments}


def _tokens(usage: Mapping[str, int]) -> dict[str, int]:
    return {kind: usage.get(kind, 0) for kind in ("prompt_tokens", "completion_tokens")}


def intent_line(sample: str, number: int, call: ToolCall) -> dict[str, Any]:
    """The line before a call that must not be repeated."""
    return {"sample": sample, "turn": number, "intent": _call(call)}


@dataclass(slots=True)
class Step:
    """A step of a plan."""

    text: str
    status: Literal["pending", "in_progress", "done", "skipped"] = "pending"


class Trajectory:
    """The turns of one sample so far, with the state after them."""

    def __init__(self, sample: str) -> None:
        self.sample = sample
        self.turns: list[Turn] = []
        self.plan: list[Step] = []
        """Steps of the model's plan; empty: it made none."""
        self.agent = ""
        """The agent whose turn is next; empty: the first one."""
        self.images: list[bytes] = []
        """Images that tools made."""
        self.most_seconds: float | None = None
        """Longest time of this one; None: that of all."""
        self.lost: ToolCall | None = None
        """A call that must not be repeated and whose result was lost."""
        self.sync_seconds = 0.0
        """Time that this process waited for the disk."""
        self.same = 0
        """How often in a row the last call was made with the same result."""
        self._last: tuple[tuple[str, str], str] | None = None

    @classmethod
    def of(cls, sample: str, lines: Iterable[Mapping[str, Any]]) -> Trajectory:
        """The trajectory that these lines record; a line that cannot be read ends it.

        Args:
            sample: the sample's id.
            lines: in the order of attempts. A worker that lost its shard may have written a turn after
                another one read its turns; then the other one's turn of that number counts.
        """
        turns, lost = list[Turn](), tuple[int, ToolCall | None]((0, None))
        for line in lines:
            try:
                number = line["turn"]
                if (intent := line.get("intent")) is not None:
                    lost = number, ToolCall(**intent)
                    continue
                turn = Turn.from_json(line)
                if not 0 < number <= len(turns) + 1:
                    continue
            except (KeyError, TypeError, ValueError, AttributeError, IndexError):
                break
            turns[number - 1 :] = [turn]
            lost = lost if lost[0] > number else (0, None)
        found = cls(sample)
        for turn in turns:
            try:
                found.add(turn)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError):
                break  # a change of the state that cannot be read
        found.lost = lost[1] if lost[0] == len(turns) + 1 else None
        return found

    def add(self, turn: Turn) -> None:
        """Add a finished turn."""
        self.turns.append(turn)
        self.agent = turn.agent
        for one in turn.called:
            self.images.extend(one.result.images)
            self.same = self.same + 1 if (one.key, one.digest) == self._last else 1
            self._last = one.key, one.digest
            if one.result.kind == "ok" and one.call.tool in CHANGES:
                self._apply(one.call)

    def drop_images(self) -> None:
        """Forget the bytes of images that tools made: they are in files. Their number stays."""
        self.images = [b""] * len(self.images)
        self.turns = [turn.without_images() for turn in self.turns]

    def _apply(self, call: ToolCall) -> None:
        """Change the state by a call of one of the loop's tools."""
        said = json.loads(call.arguments)
        if call.tool == "create_plan":
            self.plan = [Step(text) for text in said["steps"]]
        elif call.tool == "update_plan":
            self.plan[int(said["step"]) - 1].status = said["status"]
        else:
            self.agent = said["agent"]

    @property
    def answered(self) -> bool:
        """Whether the last reply is the answer."""
        return bool(self.turns) and not self.turns[-1].calls

    @property
    def calls(self) -> Counter[str]:
        """Tool → number of its calls."""
        return Counter(one.call.tool for turn in self.turns for one in turn.called)

    @property
    def seconds(self) -> float:
        """Time of all replies and tools, without waiting."""
        return sum(turn.think_seconds + turn.tool_seconds for turn in self.turns)

    def tokens(self, kind: Literal["prompt_tokens", "completion_tokens"]) -> int:
        """Tokens of all requests, as the engine counted them."""
        return sum(
            usage.get(kind, 0)
            for turn in self.turns
            for usage in (turn.usage, *(one.result.usage for one in turn.called))
        )

    def figures(self, exit_: Exit, why: str = "") -> dict[str, Any]:
        """Figures of the whole, for its response.

        `wasted` counts calls without a result and calls that repeat an earlier one. `images` counts those of
        all requests. `path` names tools and agents in the order of their use. `plan` counts the steps of the
        last plan, and those done. `by` has the tokens and images of each agent among several, and of a tool
        that asks a model.
        """
        called = [one for turn in self.turns for one in turn.called]
        failed = Counter(one.result.kind for one in called if one.result.kind != "ok")
        seen: set[tuple[str, str]] = set()
        wasted = 0
        for one in called:
            wasted += one.result.kind != "ok" or one.key in seen
            seen.add(one.key)
        first = [
            round((turn.stamps.first - turn.stamps.send) / 1e6, 3)
            for turn in self.turns
            if turn.stamps.first is not None
        ]
        found: dict[str, Any] = {
            "exit": exit_,
            "turns": len(self.turns),
            "calls": dict(self.calls),
            "wasted": wasted,
            "prompt_tokens": self.tokens("prompt_tokens"),
            "completion_tokens": self.tokens("completion_tokens"),
            "images": sum(len(turn.image_sha256) for turn in self.turns),
            "think_seconds": round(sum(turn.think_seconds for turn in self.turns), 6),
            "tool_seconds": round(sum(turn.tool_seconds for turn in self.turns), 6),
            "sync_seconds": round(self.sync_seconds, 6),
            "ttft_ms": first,
            "path": self._path(),
        }
        if by := self._by():
            found["by"] = by
        if why:
            found["why"] = why
        if failed:
            found["failed"] = dict(failed)
        if self.plan:
            done = sum(step.status == "done" for step in self.plan)
            found["plan"] = {"steps": len(self.plan), "done": done}
        return found

    def _by(self) -> dict[str, dict[str, int]]:
        found: dict[str, Counter[str]] = {}
        for turn in self.turns:
            if turn.agent:
                used = found.setdefault(turn.agent, Counter())
                used.update({**_tokens(turn.usage), "images": len(turn.image_sha256)})
            for one in turn.called:
                if one.result.usage:
                    used = found.setdefault(one.call.tool, Counter())
                    used.update({**_tokens(one.result.usage), "images": 1})
        return {name: dict(used) for name, used in found.items()}

    def _path(self) -> list[str]:
        path: list[str] = []
        agent = ""
        for turn in self.turns:
            if turn.agent != agent:
                agent = turn.agent
                path.append(f"agent {agent}")
            path += [one.call.tool for one in turn.called if one.call.tool != "hand_over"]
        return path
