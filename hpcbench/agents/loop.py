"""The loop of an agent on one sample: model → calls → results → … → answer.

    while no limit is reached:
        reply = ask(conversation so far)
        no calls in it? → answered
        run each call
        write the turn to the disk

Every way out is an `Exit`. A turn is on the disk before the next request, so the loop may be killed at any
moment and started again with the turns on the disk.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from hpcbench.agents import own_tools, text_calls
from hpcbench.agents.conversation import as_functions, conversation, with_system
from hpcbench.agents.tools import (
    Toolbox,
    ToolResult,
    ToolSpec,
    arguments_of,
    unknown_tool,
    writable,
)
from hpcbench.agents.trajectory import CHANGES, Called, Exit, Trajectory, Turn, intent_line
from hpcbench.schema.agent import OF_THE_LOOP, READER, Agent
from hpcbench.schema.records import Message, Outcome, Response, ToolCall

ENOUGH = 20
"""Calls of a tool from which its 95th percentile counts."""

MOST_NAME = 100
"""Characters of a tool's name that are kept; no tool has so many."""

_TOO_LONG = re.compile(
    r"context|maximum.{0,20}length|too long|max_model_len|input tokens", re.IGNORECASE
)
"""An engine's words for a conversation that does not fit into its context."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a trajectory."""

    exit: Exit
    text: str | None
    """The answer; None without one."""
    why: str = ""
    """Why there is none, in a few words."""
    outcome: Outcome = "ok"
    """Outcome of the sample, as a request's."""


class Ask(Protocol):
    """Sends one request to the model, or to that of another run task, and waits for its answer."""

    async def __call__(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        seconds: float,
        model_of: str = "",
    ) -> Response: ...


@dataclass(frozen=True, slots=True)
class Talk:
    """How the loop talks to a model."""

    as_text: bool
    """Whether calls are written as text; else in OpenAI's form."""
    context: int | None = None
    """Most tokens of a conversation and its next answer; None: unknown."""
    answer_tokens: int = 0
    """Most tokens of an answer."""


Write = Callable[[Mapping[str, Any]], Awaitable[float]]
"""Writes a line; returns when it is on the disk, with the seconds that this took."""


class Stop(Protocol):
    """Ends the loop at the next boundary of turns once it is set."""

    def is_set(self) -> bool: ...


class ToolTimes:
    """How long calls of each tool took, for the time that the next one gets."""

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._seen: dict[str, deque[float]] = {}

    def add(self, tool: str, seconds: float) -> None:
        """Add a call."""
        self._seen.setdefault(tool, deque(maxlen=200)).append(seconds)

    def limit(self, tool: str) -> float:
        """Longest time for a call: three times the 95th percentile of the last 200, at least the floor."""
        seen = sorted(self._seen.get(tool, ()))
        if len(seen) < ENOUGH:
            return self._floor
        return max(self._floor, 3 * seen[int(0.95 * (len(seen) - 1))])


class Files(Protocol):
    """The images of a trajectory as files."""

    def pages(self) -> Sequence[Path]:
        """The sample's images."""

    def made(self, place: int) -> Path:
        """An image that a tool made."""


class Loop:
    """An agent, ready for any number of samples at once.

    Args:
        agent: its definition.
        tools: runs its tools.
        times: how long tools take.
        talks: run task whose model is used → how to talk to it; empty name: the agent's own model.
        request_seconds: longest time of a request.
    """

    def __init__(
        self,
        agent: Agent,
        tools: Toolbox,
        times: ToolTimes,
        talks: Mapping[str, Talk],
        *,
        request_seconds: float = 600.0,
    ) -> None:
        self.agent, self.tools, self.times = agent, tools, times
        self.talks, self.request_seconds = talks, request_seconds
        known = {one.name: one for one in tools.specs}
        self._specs = {
            name: own_tools.seen_by(
                agent, name, lambda entry: [known[one] for one in tools.names(entry)]
            )
            for name in agent.agents or ("",)
        }
        """Agent → its tools by name."""

    async def run(
        self,
        prompt: Sequence[Message],
        trajectory: Trajectory,
        files: Files,
        ask: Ask,
        write: Write,
        stop: Stop,
    ) -> End | None:
        """Go on with a trajectory until it ends; None if `stop` is set before.

        Args:
            prompt: the first messages of the sample.
            trajectory: its turns so far, from the disk.
            files: its images.
            ask: sends a request.
            write: writes a turn.
            stop: ends the loop at the next boundary of turns.

        Raises:
            EngineGone: the engine ended.
        """
        _put_away(trajectory, files)
        while True:
            if (end := self._end(trajectory)) is not None:
                return end
            if stop.is_set():
                return None
            reply = await self._ask(prompt, trajectory, files, ask)
            if (end := self._failed(reply, trajectory)) is not None:
                return end
            number = len(trajectory.turns) + 1
            as_text = self.talks[self._model_of(self._name(trajectory))].as_text
            said = text_calls.calls_in(reply.text or "", number) if as_text else reply.calls
            calls = [replace(one, tool=writable(one.tool)[:MOST_NAME]) for one in said]
            called = await self._run(calls, trajectory, reply, files, ask, write)
            turn = Turn.of(reply, calls, called, self._name(trajectory))
            trajectory.sync_seconds += await write(turn.to_json(trajectory.sample, number))
            trajectory.add(turn)
            _put_away(trajectory, files)

    # its ways out

    def _end(self, trajectory: Trajectory) -> End | None:
        """The end that follows from the turns so far."""
        limits, turns = self.agent.limits, trajectory.turns
        if (lost := trajectory.lost) is not None:
            why = f"a call of {lost.tool} was lost with its worker, and must not be repeated"
            return End("tool_failed", None, why, "failed")
        if not turns:
            return None
        last = turns[-1]
        if trajectory.answered:
            ways: Mapping[str, Exit] = {"refused": "refused"}
            return End(ways.get(last.outcome, "answered"), last.text, "", last.outcome)
        if trajectory.calls.total() >= limits.calls:
            return self._limit("limit_calls", f"{limits.calls} calls", trajectory)
        used = trajectory.tokens("completion_tokens")
        if limits.tokens is not None and used >= limits.tokens:
            return self._limit("limit_tokens", f"{used} of {limits.tokens} tokens", trajectory)
        most = self._most_seconds(trajectory)
        if trajectory.seconds >= most:
            return self._limit("limit_time", f"{most:g} s", trajectory)
        if trajectory.same >= limits.same_calls:
            why = f"the same call of {last.called[-1].call.tool} {limits.same_calls} times"
            return self._limit("loop", why, trajectory)
        model_of = self._model_of(self._name(trajectory))
        talk = self.talks[model_of]
        held = last.usage.get("prompt_tokens", 0) + last.usage.get("completion_tokens", 0)
        counted = held if self._model_of(last.agent) == model_of else 0  # by this model's tokenizer
        if talk.context is not None and counted and held + talk.answer_tokens > talk.context:
            why = f"{held} tokens, with {talk.answer_tokens} for an answer, exceed {talk.context}"
            return self._limit("limit_context", why, trajectory)
        return None

    def _limit(self, exit_: Exit, why: str, trajectory: Trajectory) -> End:
        """A limit: the sample has no answer, which is the model's fault, so nothing asks it again."""
        return End(exit_, "", why, "truncated")

    def _failed(self, reply: Response, trajectory: Trajectory) -> End | None:
        """The end of a request without an answer."""
        if reply.outcome in ("ok", "truncated", "refused"):
            return None
        why = reply.error or "a request had no answer"
        if reply.outcome == "invalid" and trajectory.turns and _TOO_LONG.search(why):
            return self._limit("limit_context", why, trajectory)
        spent = (reply.times.done - reply.times.send) / 1e9
        most = self._most_seconds(trajectory)
        if trajectory.seconds + spent >= most:
            return self._limit("limit_time", f"{most:g} s", trajectory)
        return End("request_failed", None, why, reply.outcome)

    # a turn

    async def _ask(
        self, prompt: Sequence[Message], trajectory: Trajectory, files: Files, ask: Ask
    ) -> Response:
        name = self._name(trajectory)
        model_of = self._model_of(name)
        as_text = self.talks[model_of].as_text
        specs = list(self._specs[name].values())
        role = self.agent.agents[name].prompt if name else ""
        described = text_calls.instructions(specs) if as_text and specs else ""
        messages = conversation(
            with_system(prompt, role, described),
            trajectory,
            files.made,
            len(files.pages()),
            as_text=as_text,
        )
        left = self._most_seconds(trajectory) - trajectory.seconds
        functions = () if as_text else as_functions(specs)
        seconds = max(0.001, min(left, self.request_seconds))
        return await ask(messages, functions, seconds, model_of)

    async def _run(
        self,
        calls: Sequence[ToolCall],
        trajectory: Trajectory,
        reply: Response,
        files: Files,
        ask: Ask,
        write: Write,
    ) -> list[Called]:
        """Run the calls of a reply one after the other, as far as the limits allow."""
        specs = self._specs[self._name(trajectory)]
        before, limits = trajectory.calls, self.agent.limits
        most_seconds = self._most_seconds(trajectory)
        spent = trajectory.seconds + (reply.times.done - reply.times.send) / 1e9
        made = [*files.pages(), *(files.made(place) for place in range(len(trajectory.images)))]
        called: list[Called] = []
        for call in calls:
            if before.total() >= limits.calls or spent >= most_seconds:
                break
            before[call.tool] += 1
            most = limits.calls_of.get(call.tool)
            if most is not None and before[call.tool] > most:
                result = ToolResult("error", f"{call.tool} may be called {most} times at most")
            else:
                spec = specs.get(call.tool)
                if spec is not None and not spec.idempotent:
                    number = len(trajectory.turns) + 1
                    trajectory.sync_seconds += await write(
                        intent_line(trajectory.sample, number, call)
                    )
                left = most_seconds - spent
                result = await self._call(call, specs, trajectory, made, left, ask)
            spent += result.seconds
            called.append(Called(call, result))
        return called

    async def _call(
        self,
        call: ToolCall,
        specs: Mapping[str, ToolSpec],
        trajectory: Trajectory,
        images: Sequence[Path],
        left: float,
        ask: Ask,
    ) -> ToolResult:
        spec = specs.get(call.tool)
        if spec is None:
            if not call.tool:
                return ToolResult("arguments", "the call is no JSON object with name and arguments")
            return unknown_tool(call.tool, specs)
        try:
            arguments = arguments_of(call.arguments)
        except ValueError as error:
            return ToolResult("arguments", str(error))
        if call.tool in OF_THE_LOOP and (wrong := spec.misfit(arguments)):
            return ToolResult("arguments", wrong)
        if call.tool in CHANGES:
            return own_tools.change(trajectory, call.tool, arguments)
        seconds = max(0.001, min(left, self.times.limit(call.tool)))
        if call.tool == READER:
            model_of = self.agent.reader or self._model_of(self._name(trajectory))
            result = await self._read_region(arguments, images, seconds, ask, model_of)
        else:
            seen = images[: len(images) - len(trajectory.images)] if spec.of_pages else images
            result = await self.tools.call(call.tool, arguments, seen, seconds)
        self.times.add(call.tool, result.seconds)
        return result

    async def _read_region(
        self,
        arguments: Mapping[str, Any],
        images: Sequence[Path],
        seconds: float,
        ask: Ask,
        model_of: str,
    ) -> ToolResult:
        async def crop() -> ToolResult:
            return await self.tools.call("crop", arguments, images, seconds)

        async def text_of(image: bytes) -> Response:
            question = Message("user", own_tools.READ_REGION, (image,))
            return await ask((question,), (), seconds, model_of)

        return await own_tools.read_region(crop, text_of)

    def _most_seconds(self, trajectory: Trajectory) -> float:
        """Longest time of a trajectory."""
        return trajectory.most_seconds or self.agent.limits.seconds

    def _name(self, trajectory: Trajectory) -> str:
        """The agent whose turn it is; empty: there is only one."""
        return trajectory.agent or next(iter(self.agent.agents), "")

    def _model_of(self, name: str) -> str:
        """Run task whose model an agent is; empty: the run task's own."""
        return (name and self.agent.agents[name].model_of) or ""


def _put_away(trajectory: Trajectory, files: Files) -> None:
    """Keep images that tools made in files only: those of all trajectories would not fit into the memory."""
    if any(trajectory.images):
        for place in range(len(trajectory.images)):
            files.made(place)
        trajectory.drop_images()
