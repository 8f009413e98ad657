"""Tools of the loop itself: a plan, handing over to another agent, and the text of a region.

A plan and the agent whose turn it is are part of the trajectory. The text of a region comes from the same
model, which is asked about that region alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from hpcbench.agents.tools import ToolResult, ToolSpec
from hpcbench.agents.trajectory import Trajectory
from hpcbench.schema.agent import Agent
from hpcbench.schema.records import Response

_ORIGIN = "hpcbench"

STATUSES = ("pending", "in_progress", "done", "skipped")

READ_REGION = "Write down all text in the image, line by line, and nothing else."
"""Prompt of `ocr_region`."""

SPECS = (
    ToolSpec(
        "create_plan",
        "Write down the steps of your work, before you begin. A new plan replaces the one before.",
        {
            "type": "object",
            "properties": {
                "steps": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 50}
            },
            "required": ["steps"],
            "additionalProperties": False,
        },
        origin=_ORIGIN,
    ),
    ToolSpec(
        "update_plan",
        "Change the status of a step of your plan. Steps are counted from 1.",
        {
            "type": "object",
            "properties": {
                "step": {"type": "integer", "minimum": 1},
                "status": {"enum": list(STATUSES)},
            },
            "required": ["step", "status"],
            "additionalProperties": False,
        },
        origin=_ORIGIN,
    ),
    ToolSpec(
        "ocr_region",
        "Read the text in a part of an image.",
        {
            "type": "object",
            "properties": {
                "image": {"type": "integer", "minimum": 1},
                "box": {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0, "maximum": 1000},
                    "minItems": 4,
                    "maxItems": 4,
                    "description": "left, top, right, bottom, in thousandths of width and height",
                },
            },
            "required": ["box"],
            "additionalProperties": False,
        },
        origin=_ORIGIN,
    ),
)  # fmt: skip
"""Tools that a definition may name."""


def needing(agent: Agent) -> Agent:
    """The agent with the tools that its loop's tools need: `ocr_region` crops."""
    names = {one if isinstance(one, str) else one.name for one in agent.listed}
    if "ocr_region" not in names or "crop" in names:
        return agent
    return agent.model_copy(update={"tools": (*agent.tools, "crop")})


def hand_over(agents: Sequence[str]) -> ToolSpec:
    """The tool by which an agent hands over to one of these."""
    return ToolSpec(
        "hand_over",
        "Hand over to another agent, which goes on from here.",
        {
            "type": "object",
            "properties": {
                "agent": {"enum": list(agents)},
                "message": {"type": "string", "description": "What it needs to know."},
            },
            "required": ["agent"],
            "additionalProperties": False,
        },
        origin=_ORIGIN,
    )


def seen_by(
    agent: Agent, name: str, tools_of: Callable[[str], Iterable[ToolSpec]]
) -> dict[str, ToolSpec]:
    """The tools that an agent sees by name, in the order of its definition.

    Args:
        agent: the definition.
        name: the agent among several; empty: there is only one.
        tools_of: gives the tools of an entry that are not the loop's own: a server may have several.
    """
    own = {one.name: one for one in SPECS}
    entries = agent.tools
    found: dict[str, ToolSpec] = {}
    if name:
        role = agent.agents[name]
        entries = role.tools or entries
        others = [one for one in agent.agents if one != name]
        others = others if role.hand_over is None else list(role.hand_over)
        if others:
            found["hand_over"] = hand_over(others)
    for entry in entries:
        called = entry if isinstance(entry, str) else entry.name
        tools = [own[called]] if called in own else tools_of(called)
        found |= {one.name: one for one in tools}
    return found


def change(trajectory: Trajectory, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Run a tool that changes the trajectory; the change is made when its turn is added.

    Args:
        trajectory: the turns before.
        name: its name.
        arguments: its arguments, which fit its schema.
    """
    if name == "create_plan":
        steps = "\n".join(f"{place}. {step}" for place, step in enumerate(arguments["steps"], 1))
        return ToolResult("ok", f"The plan:\n{steps}")
    if name == "update_plan":
        step, count = int(arguments["step"]), len(trajectory.plan)  # 1.0 is whole, too
        if step > count:
            return ToolResult(
                "error", f"the plan has {count} steps" if count else "there is no plan"
            )
        return ToolResult("ok", f"Step {step} is {arguments['status']}.")
    message = arguments.get("message", "")
    said = f" Its message: {message}" if message else ""
    return ToolResult("ok", f"Agent {arguments['agent']} goes on.{said}")


async def read_region(
    crop: Callable[[], Awaitable[ToolResult]], ask: Callable[[bytes], Awaitable[Response]]
) -> ToolResult:
    """The text of a region.

    Args:
        crop: gives the region as an image.
        ask: asks the model about an image.
    """
    cut = await crop()
    if cut.kind != "ok":
        return cut
    if not cut.images:  # a plugin of the user's own may be called `crop`
        return ToolResult("error", "the tool crop gave no image", (), cut.seconds)
    answer = await ask(cut.images[0])
    seconds = cut.seconds + (answer.times.done - answer.times.send) / 1e9
    if answer.text is None:
        return ToolResult("error", answer.error or "the model gave no answer", (), seconds)
    return ToolResult("ok", answer.text, (), seconds, answer.usage or {})
