"""A scripted model and scripted tools for the agent's loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.agents.loop import End, Loop, Talk, ToolTimes
from hpcbench.agents.tools import ToolResult, ToolSpec
from hpcbench.agents.trajectory import Trajectory
from hpcbench.schema.agent import Agent
from hpcbench.schema.records import Message, Outcome, Response, Times, ToolCall

QUESTION = (Message("system", "Be short."), Message("user", "How much?", (Path("page.png"),)))
IMAGE = b"\x89PNG\r\n\x1a\n"

Reply = str | Sequence[tuple[str, str]] | Response
"""A text; calls of tools with their arguments; or a whole response."""


class Killed(Exception):
    """The worker was killed."""


def response(
    text: str | None = "",
    outcome: Outcome = "ok",
    calls: Sequence[tuple[str, str]] = (),
    error: str | None = None,
    seconds: float = 0.5,
    tokens: tuple[int, int] = (10, 2),
) -> Response:
    """An answer to a request that took `seconds`."""
    done = int(seconds * 1e9)
    return Response(
        "s1",
        outcome,
        text,
        "tool_calls" if calls else "stop",
        dict(zip(("prompt_tokens", "completion_tokens"), tokens, strict=True)),
        Times(0, 0, 1000, (done // 2, done), done),
        1,
        ("aa",),
        error=error,
        calls=tuple(ToolCall(f"c{n}", tool, said) for n, (tool, said) in enumerate(calls)),
    )


@dataclass
class Model:
    """Gives replies in turn; remembers the requests."""

    replies: Sequence[Reply]
    again: bool = False
    """Whether the last reply is repeated for ever."""
    asked: list[tuple[Sequence[Message], Sequence[Mapping[str, Any]]]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    """Whose model each request was for."""

    async def __call__(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        seconds: float,
        model_of: str = "",
    ) -> Response:
        self.asked.append((messages, tools))
        self.models.append(model_of)
        turn = sum(one.role == "assistant" for one in messages)
        reply = self.replies[min(turn, len(self.replies) - 1) if self.again else turn]
        if isinstance(reply, Response):
            return reply
        return response(reply) if isinstance(reply, str) else response("", calls=reply)


TOOLS = (
    ToolSpec("look", "Look closer.", {"type": "object"}),
    ToolSpec("pay", "Pay a bill.", {"type": "object"}, idempotent=False),
)


@dataclass
class Tools:
    """Runs `look` and `pay`."""

    specs: Sequence[ToolSpec] = TOOLS
    gives: Callable[[str], ToolResult] = lambda name: ToolResult(
        "ok", f"{name}ed", (IMAGE,) if name == "look" else (), 0.25
    )
    called: list[tuple[str, Mapping[str, Any], Sequence[Path], float]] = field(default_factory=list)

    def names(self, entry: str) -> Sequence[str]:
        return [entry]

    async def call(
        self, name: str, arguments: Mapping[str, Any], images: Sequence[Path], seconds: float
    ) -> ToolResult:
        self.called.append((name, arguments, images, seconds))
        return self.gives(name)

    async def close(self) -> None:
        pass


class Files:
    """One page; images of tools by number."""

    def pages(self) -> Sequence[Path]:
        return [Path("page.png")]

    def made(self, place: int) -> Path:
        return Path(f"made{place + 1}.png")


def with_tools(**values: Any) -> Agent:
    """An agent with these tools."""
    return Agent.model_validate({"tools": ["look", "pay"], **values})


@dataclass
class Run:
    """One run of the loop, which may be killed at a write."""

    model: Model
    tools: Tools = field(default_factory=Tools)
    agent: Agent = field(default_factory=lambda: with_tools())
    lines: list[Mapping[str, Any]] = field(default_factory=list)
    """The lines on the disk."""
    as_text: bool = False
    context: int | None = None
    others: Mapping[str, Talk] = field(default_factory=dict)
    most_seconds: float | None = None

    def go(self, *, kill_at: int | None = None, before: bool = False) -> End | None:
        """Run, from the lines on the disk; `kill_at`: the write at which it is killed, before or after it."""
        trajectory = Trajectory.of("s1", self.lines)
        trajectory.most_seconds = self.most_seconds
        counter = itertools.count()

        async def write(line: Mapping[str, Any]) -> float:
            if (killed := next(counter) == kill_at) and before:
                raise Killed
            self.lines.append(line)
            if killed:
                raise Killed
            return 0.001

        loop = Loop(
            self.agent,
            self.tools,
            ToolTimes(self.agent.limits.tool_seconds),
            {"": Talk(self.as_text, self.context, answer_tokens=8), **self.others},
        )
        self.trajectory = trajectory
        return asyncio.run(
            loop.run(QUESTION, trajectory, Files(), self.model, write, asyncio.Event())
        )
