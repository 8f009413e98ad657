"""Further models of agents: each is that of another run task of the plan, and has GPUs of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpcbench.errors import Problem, unknown
from hpcbench.registry.expansion import WrittenRunTask
from hpcbench.registry.resource_shapes import largest_node
from hpcbench.registry.source import Loc
from hpcbench.schema.agent import Agent, ToolEntry
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.site import Site


def problems(
    one: WrittenRunTask,
    resolved: ResolvedRunTask,
    chosen: Mapping[str, Sequence[ResolvedRunTask]],
    left_out: Sequence[str],
    site: Site,
    *,
    on_cluster: bool,
) -> Iterator[Problem]:
    """Mistakes about the models that an agent uses beside its own.

    Args:
        one: the agent's run task, as it is written.
        resolved: the same, resolved.
        chosen: run tasks that the plan runs by their written names, with their repeats and points.
        left_out: run tasks that `only` leaves out.
        site: the site.
        on_cluster: whether jobs of Slurm run it, not this machine alone.
    """
    agent = resolved.agent
    if agent is None:
        return
    own = isinstance(one.task.agent, Agent)
    found: dict[str, ResolvedRunTask] = {}
    for below, name in _named(agent):
        loc = (*one.where("agent"), *below) if own else one.where("ml_task")
        others = [other for other in chosen if other != one.task.name]
        if name in left_out:
            what = f"agent '{one.task.name}' uses the model of '{name}', which `only` leaves out"
            yield one.source.problem(loc, what, f"add '{name}' to `only`")
        elif name not in others:
            yield one.source.problem(loc, unknown("run task", name, others, of="this plan"))
        elif len(chosen[name]) > 1:
            what = f"'{name}' is {len(chosen[name])} run tasks, with its repeats and points"
            yield one.source.problem(loc, what, "name a run task without `repeats` and `load`")
        else:
            for other in chosen[name]:
                found[other.model.name] = other
                yield from _alone(one, loc, resolved, other, site.container.manager)
    found.pop(resolved.model.name, None)
    most = largest_node(resolved.task.resources, site if on_cluster else None)
    each = [resolved.model.gpus, *(other.model.gpus for other in found.values())]
    if found and most is not None and sum(each) > most:
        what = f"the models of agent '{one.task.name}' need {' + '.join(map(str, each))} GPUs on one node"
        what += f", but the largest has {most}"
        loc = one.where("agent" if own else "ml_task")
        yield one.source.problem(loc, what, "use smaller models, or an endpoint (`engine: remote`)")


def _alone(
    one: WrittenRunTask, loc: Loc, resolved: ResolvedRunTask, other: ResolvedRunTask, manager: str
) -> Iterator[Problem]:
    """Why two models cannot have an engine each in one job."""
    if other.model.name == resolved.model.name:
        return
    for model in (resolved.model, other.model):
        if model.nodes > 1:
            what = f"model '{model.name}' runs on {model.nodes} nodes, an agent of several models on one"
            yield one.source.problem(loc, what, "use a model that fits into one node")
        if model.gpus and _in_docker(model.image, manager):
            what = f"model '{model.name}' is in Docker, where two engines cannot share a job's GPUs"
            yield one.source.problem(loc, what, "use Apptainer, or an endpoint (`engine: remote`)")


def _in_docker(image: str | None, manager: str) -> bool:
    """Whether Docker runs an image: by the site's manager, or as `docker:REFERENCE` says."""
    scheme, colon, rest = (image or "venv:").partition(":")
    named = scheme if colon and not rest.startswith("//") else manager
    return named == "docker"


def _named(agent: Agent) -> Iterator[tuple[Loc, str]]:
    """Run tasks whose models are used, with their places in the agent's settings."""
    lists: list[tuple[Loc, Sequence[str | ToolEntry]]] = [(("tools",), agent.tools)]
    for role, said in agent.agents.items():
        lists.append((("agents", role, "tools"), said.tools))
        if said.model_of is not None:
            yield ("agents", role, "model_of"), said.model_of
    for loc, tools in lists:
        for number, tool in enumerate(tools):
            if isinstance(tool, ToolEntry) and tool.model_of is not None:
                yield (*loc, number, "model_of"), tool.model_of
