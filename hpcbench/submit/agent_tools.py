"""Tools of agents: their images and packages prepared once, and what a model will see of each tool locked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcbench import environments
from hpcbench.agents.conversation import as_functions
from hpcbench.agents.own_tools import needing, seen_by
from hpcbench.agents.tool_host import PreparedEnvironment, ToolEnvironment
from hpcbench.agents.toolboxes import locked, places_of, specs_of
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import Environment
from hpcbench.schema.agent import OF_THE_LOOP
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.submit import Say


def prepare_tools(
    resolved: ResolvedPlan, cache: Path, say: Say
) -> tuple[dict[str, Environment], dict[str, Any]]:
    """Prepare the tools of all agents of a plan.

    Returns:
        The environments of their tools by key; and run task → `functions`, the tools as each of its agents
        sees them, in OpenAI's form; `locked`, their hashes; `rooms`, the key of each place.

    Raises:
        UserError: two tools have one name.
        EnvironmentFault: an image cannot be prepared, or a tool cannot be started; names the run task.
    """
    prepared: dict[str, Environment] = {}
    tools: dict[str, Any] = {}
    for run_task in resolved.run_tasks:
        if (agent := run_task.agent) is None:
            continue
        shown, agent = agent, needing(agent)
        keys: dict[ToolEnvironment, str] = {}
        for place in places_of(agent, OF_THE_LOOP):
            key = keys[place] = key_of(place)
            if key not in prepared:
                say(f"preparing {place.image or 'packages'} for tools")
                lines = list(place.packages)
                prepared[key] = environments.prepare(
                    place.image, cache, resolved.site.container, lines, say
                )
        places = {
            place: PreparedEnvironment(prepared[key], resolved.site.container)
            for place, key in keys.items()
        }
        try:
            found = specs_of(agent, places, resolved.site.container, OF_THE_LOOP)
        except EnvironmentFault as fault:
            what = f"run task '{run_task.name}': {fault.message}"
            raise EnvironmentFault(what, remedy=fault.remedy) from fault
        except UserError as error:
            problems = [
                run_task.problem("agent", one.message, one.remedy) for one in error.problems
            ]
            raise UserError(*problems) from error
        specs = [spec for of_entry in found.values() for spec in of_entry]
        tools[run_task.name] = {
            "functions": {
                name: as_functions([*seen_by(shown, name, found.__getitem__).values()])
                for name in shown.agents or ("",)
            },
            "locked": locked(specs),
            "origins": {spec.name: spec.origin for spec in specs},
            "rooms": [[place.image, list(place.packages), key] for place, key in keys.items()],
        }
    return prepared, tools


def key_of(place: ToolEnvironment) -> str:
    """Key of a place's environment, never an engine's or a metric's."""
    return " + ".join([f"tools: {place.image or ''}", *place.packages])
