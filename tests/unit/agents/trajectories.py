"""Trajectories on the disk, written by the classes that workers use."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from hpcbench.agents.loop import End
from hpcbench.agents.tools import ResultKind, ToolResult
from hpcbench.agents.trajectory import Called, Stamps, Trajectory, Turn, intent_line
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender
from hpcbench.schema.records import Request, Response, ToolCall
from hpcbench.worker.trajectories import _response
from tests.unit.small import write_attempt


def _png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 40), "#3070b0").save(file, "PNG")
    return file.getvalue()


PNG = _png()
"""An image of 60 × 40 pixels."""

SECOND = 1_000_000_000

Step = tuple[str, Mapping[str, Any] | str, ResultKind, int]
"""Tool, its arguments, how the call ended, number of images that it made."""


@dataclass
class Story:
    """A sample's work as it is written down."""

    sample: str
    turns: list[Turn] = field(default_factory=list)
    clock: int = 0

    def does(self, *steps: Step, text: str = "", agent: str = "", tokens: int = 10) -> Story:
        """Add a turn with calls: half a second to think, a quarter for each tool."""
        number = len(self.turns) + 1
        called = []
        for place, (tool, said, kind, images) in enumerate(steps):
            arguments = said if isinstance(said, str) else json.dumps(said)
            call = ToolCall(f"t{number}c{place}", tool, arguments)
            result = f"{tool} of turn {number}" if kind == "ok" else f"no {tool}"
            called.append(Called(call, ToolResult(kind, result, (PNG,) * images, 0.25)))
        return self._add(text, called, agent, tokens)

    def says(self, text: str, agent: str = "", tokens: int = 10) -> Story:
        """Add the answer."""
        return self._add(text, [], agent, tokens)

    def _add(self, text: str, called: Sequence[Called], agent: str, tokens: int) -> Story:
        send, done = self.clock, self.clock + SECOND // 2
        stamps = Stamps(send, send + SECOND // 10, done, done)
        usage = {"prompt_tokens": 100 * (len(self.turns) + 1), "completion_tokens": tokens}
        self.turns.append(
            Turn(
                text, tuple(one.call for one in called), tuple(called), stamps, agent,
                finish_reason="tool_calls" if called else "stop", usage=usage, image_sha256=("aa",),
            )
        )  # fmt: skip
        self.clock = done + len(called) * SECOND // 4
        return self

    @property
    def trajectory(self) -> Trajectory:
        """Its state."""
        found = Trajectory(self.sample)
        for turn in self.turns:
            found.add(turn)
        found.sync_seconds = 0.01 * len(self.turns)
        return found

    @property
    def lines(self) -> list[Mapping[str, Any]]:
        """Its lines."""
        return [turn.to_json(self.sample, number) for number, turn in enumerate(self.turns, 1)]

    def response(self, end: End | None = None) -> Response:
        """Its response; without an end: the last text is the answer."""
        end = end or End("answered", self.turns[-1].text)
        found = _response(Request(self.sample, (), {}, 10), self.trajectory, end, 0)
        times = {"start": 0, "send": 0, "headers": None, "chunks": (), "done": self.clock}
        return Response.from_json({**found.to_json(), "times": times})


def lost(sample: str, number: int, tool: str = "pay") -> Mapping[str, Any]:
    """A line before a call that must not be repeated."""
    return intent_line(sample, number, ToolCall("c", tool, "{}"))


def write_trajectories(
    here: Experiment,
    index: int,
    attempt: int,
    lines: Sequence[Mapping[str, Any]],
    responses: Sequence[Response],
    end: str = "done",
    run_task: str = "rt",
) -> None:
    """An attempt of an agent as a worker leaves it."""
    write_attempt(here, index, attempt, responses, end, run_task)
    with Appender(here.shard_turns(run_task, index, attempt)) as file:
        for line in lines:
            file.write(line)
