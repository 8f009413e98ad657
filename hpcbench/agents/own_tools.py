"""Tools of the loop itself: a plan, and handing over to another agent. They change the trajectory alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcbench.agents.tools import ToolResult, ToolSpec
from hpcbench.agents.trajectory import Trajectory

_ORIGIN = "hpcbench"

STATUSES = ("pending", "in_progress", "done", "skipped")

PLAN = (
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
)  # fmt: skip
"""Tools of an agent with a plan."""


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


def run(trajectory: Trajectory, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Run a tool of the loop; the trajectory changes when the turn is added.

    Args:
        trajectory: the turns before.
        name: its name.
        arguments: its arguments, which fit its schema.
    """
    if name == "create_plan":
        steps = "\n".join(f"{place}. {step}" for place, step in enumerate(arguments["steps"], 1))
        return ToolResult("ok", f"The plan:\n{steps}")
    if name == "update_plan":
        step, count = arguments["step"], len(trajectory.plan)
        if step > count:
            return ToolResult(
                "error", f"the plan has {count} steps" if count else "there is no plan"
            )
        return ToolResult("ok", f"Step {step} is {arguments['status']}.")
    message = arguments.get("message", "")
    said = f" Its message: {message}" if message else ""
    return ToolResult("ok", f"Agent {arguments['agent']} goes on.{said}")
