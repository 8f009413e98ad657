"""The toolbox of an agent: tools of plugins and of servers, together, under one name each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.agents.mcp_server import McpTools
from hpcbench.agents.tool_host import PreparedEnvironment, ToolEnvironment, ToolHost
from hpcbench.agents.tool_process import described
from hpcbench.agents.tools import ToolResult, ToolSpec, unknown_tool
from hpcbench.environments.orphans import held_folder, scratch
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.schema.agent import Agent, ToolEntry
from hpcbench.schema.site import ContainerSite


def entries_of(agent: Agent, beside: Collection[str] = ()) -> tuple[ToolEntry, ...]:
    """The tools of an agent and of all its roles, written out, each once, in their order.

    A role that names a tool means the entry of the whole with that name, if there is one.

    Args:
        agent: the agent.
        beside: names of tools that the loop runs itself; they are left out.

    Raises:
        UserError: two entries have one name and say different things.
    """
    own = {one.name: one for one in agent.tools if isinstance(one, ToolEntry)}
    found = dict[str, ToolEntry]()
    for listed in (agent.tools, *(role.tools for role in agent.agents.values())):
        for one in listed:
            entry = one if isinstance(one, ToolEntry) else own.get(one, ToolEntry(name=one))
            if entry.name in beside:
                continue
            if found.setdefault(entry.name, entry) != entry:
                raise UserError(
                    Problem(
                        f"two tools are called '{entry.name}', and differ",
                        remedy="give one of them another `name`, and name its `plugin`",
                    )
                )
    return tuple(found.values())


def places_of(agent: Agent, beside: Collection[str] = ()) -> tuple[ToolEnvironment, ...]:
    """The images and packages that must be prepared for an agent's tools, each once."""
    places = dict.fromkeys(_place(entry) for entry in entries_of(agent, beside))
    places.pop(ToolEnvironment(), None)
    return tuple(places)


def plugin_specs(agent: Agent, beside: Collection[str] = ()) -> tuple[ToolSpec, ...]:
    """The tools of an agent that are plugins: imported, not constructed; nothing is started.

    Raises:
        UserError: there is no such plugin.
        EnvironmentFault: it cannot be imported, or does not fit.
    """
    return tuple(_spec(one) for one in entries_of(agent, beside) if one.mcp is None)


def specs_of(
    agent: Agent,
    prepared: Mapping[ToolEnvironment, PreparedEnvironment] | None = None,
    container: ContainerSite | None = None,
    beside: Collection[str] = (),
) -> dict[str, tuple[ToolSpec, ...]]:
    """Entry of an agent's definition → its tools, in order, for the manifest. Servers are started, listed and
    ended.

    Call it where no event loop runs.

    Args:
        agent: the agent.
        prepared: the prepared places of `places_of`.
        container: settings of containers on this site.
        beside: names of tools that the loop runs itself; they are left out.

    Raises:
        UserError, EnvironmentFault: see `toolbox_of`.
    """
    entries = entries_of(agent, beside)
    if all(entry.mcp is None for entry in entries):
        found = plugin_specs(agent, beside)
        _unique([(spec, spec.origin) for spec in found])
        return {spec.name: (spec,) for spec in found}

    async def listed() -> dict[str, tuple[ToolSpec, ...]]:
        box = await toolbox_of(agent, prepared, container, beside=beside, only_listed=True)
        await box.close()
        known = {spec.name: spec for spec in box.specs}
        return {one.name: tuple(known[name] for name in box.names(one.name)) for one in entries}

    return asyncio.run(listed())


async def toolbox_of(
    agent: Agent,
    prepared: Mapping[ToolEnvironment, PreparedEnvironment] | None = None,
    container: ContainerSite | None = None,
    *,
    locked: Mapping[str, str] | None = None,
    beside: Collection[str] = (),
    near: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    only_listed: bool = False,
) -> Tools:
    """Start all that an agent's tools need: a process of plugins a place, and its servers.

    Args:
        agent: the agent.
        prepared: the prepared places of `places_of`.
        container: settings of containers on this site, for what runs in hpcbench's own Python.
        locked: name → `ToolSpec.sha256` of the manifest: each tool must still be so. None: not compared.
        beside: names of tools that the loop runs itself; they are left out, and their names are taken.
        near: a folder on this node for files of calls; None: the node's own.
        say: receives news of tools, a line each: what is not isolated here, what was started again.
        only_listed: plugins are only imported, not constructed, and cannot be called.

    Raises:
        UserError: an entry contradicts another, or names a plugin that is not there.
        EnvironmentFault: something cannot be started, has a name twice, or is not as locked.
    """
    entries = entries_of(agent, beside)
    own = PreparedEnvironment(None, container or ContainerSite())
    memory = agent.limits.tool_memory_gb
    async with AsyncExitStack() as opened:
        folder = opened.enter_context(held_folder(scratch(near)))
        boxes = dict[str, ToolHost | McpTools | _Listed]()
        for entries_here in _together(entries):
            first = entries_here[0]
            environment = _prepared(first, prepared or {}, own)
            box: ToolHost | McpTools | _Listed
            if first.mcp is not None:
                box = McpTools(
                    first.name, first.mcp, environment, only=first.only, idempotent=first.idempotent,
                    memory_gb=memory, folder=folder, say=say,
                )  # fmt: skip
            elif only_listed:
                box = _Listed(entries_here)
            else:
                box = ToolHost(
                    [_job(one) for one in entries_here], environment, memory_gb=memory,
                    network=first.network, folder=folder, say=say,
                )  # fmt: skip
            opened.push_async_callback(box.close)
            boxes |= {one.name: box for one in entries_here}
        starts = (one.start() for one in dict.fromkeys(boxes.values()))
        for failed in await asyncio.gather(*starts, return_exceptions=True):
            if failed is not None:
                raise failed
        for entry in entries:  # another pydantic in an image may write another schema
            host = boxes[entry.name]
            if entry.mcp is None and _place(entry) != ToolEnvironment():
                host.specs = [_spec(entry) if one.name == entry.name else one for one in host.specs]
        tools = Tools(entries, boxes, beside)
        if locked is not None:
            _compare(tools.specs, locked)
        tools.opened = opened.pop_all()
        return tools


class Tools:
    """The tools of an agent, wherever they run; a `Toolbox`."""

    def __init__(
        self,
        entries: Sequence[ToolEntry],
        boxes: Mapping[str, ToolHost | McpTools | _Listed],
        beside: Collection[str] = (),
    ) -> None:
        self.opened = AsyncExitStack()
        """Everything that `close` closes."""
        self._of: dict[str, ToolHost | McpTools | _Listed] = {}
        self._named: dict[str, tuple[str, ...]] = {}
        found = list[tuple[ToolSpec, str]]()
        for entry in entries:
            box = boxes[entry.name]
            specs = [spec for spec in box.specs if entry.mcp is not None or spec.name == entry.name]
            self._named[entry.name] = tuple(spec.name for spec in specs)
            for spec in specs:
                found.append((spec, spec.origin))
                self._of[spec.name] = box
        _unique(found, beside)
        self.specs: Sequence[ToolSpec] = tuple(spec for spec, _ in found)

    def names(self, entry: str) -> tuple[str, ...]:
        """Names of the tools of an entry: of a server's, all that the model sees."""
        return self._named[entry]

    async def call(
        self, name: str, arguments: Mapping[str, Any], images: Sequence[Path], seconds: float
    ) -> ToolResult:
        """See `Toolbox.call`."""
        box = self._of.get(name)
        if box is None:
            return unknown_tool(name, self._of)
        try:
            json.dumps(dict(arguments))
        except (TypeError, ValueError) as error:
            return ToolResult("arguments", f"the arguments are no JSON object: {error}")
        return await box.call(name, arguments, images, seconds)

    async def close(self) -> None:
        """End all processes."""
        await self.opened.aclose()


class _Listed:
    """Plugins that are only listed."""

    def __init__(self, entries: Sequence[ToolEntry]) -> None:
        self._entries = entries
        self.specs: Sequence[ToolSpec] = ()

    async def start(self) -> None:
        self.specs = tuple(map(_spec, self._entries))

    async def call(
        self, name: str, arguments: Mapping[str, Any], images: Sequence[Path], seconds: float
    ) -> ToolResult:
        return ToolResult("gone", "the tools are only listed")

    async def close(self) -> None:
        pass


def locked(specs: Sequence[ToolSpec]) -> dict[str, str]:
    """Name → hash of what a model sees of each tool, for the manifest."""
    return {spec.name: spec.sha256 for spec in specs}


def _compare(specs: Sequence[ToolSpec], locked: Mapping[str, str]) -> None:
    for spec in specs:
        if spec.name not in locked:
            what = f"tool '{spec.name}' of {spec.origin} was not there when the plan was submitted"
        elif locked[spec.name] != spec.sha256:
            what = (
                f"tool '{spec.name}' of {spec.origin} is not as it was when the plan was submitted"
            )
        else:
            continue
        raise EnvironmentFault(what, remedy="submit the plan again, or install the former version")
    names = {spec.name for spec in specs}
    if gone := [name for name in locked if name not in names]:
        raise EnvironmentFault(
            f"tool '{gone[0]}' is gone since the plan was submitted",
            remedy="submit the plan again, or install the former version",
        )


def _unique(found: Sequence[tuple[ToolSpec, str]], beside: Collection[str] = ()) -> None:
    """Check that each tool has a name of its own.

    Raises:
        EnvironmentFault: two have one; names both.
    """
    origins = {name: "hpcbench's own" for name in beside}
    for spec, origin in found:
        if spec.name in origins:
            raise EnvironmentFault(
                f"two tools are called '{spec.name}': {origins[spec.name]} and {origin}",
                remedy="give a plugin's tool another `name`, or leave a server's out with `only`",
            )
        origins[spec.name] = origin


def _together(entries: Sequence[ToolEntry]) -> Iterator[list[ToolEntry]]:
    """Entries that share a process: plugins of one place and one right to use the network."""
    groups = dict[object, list[ToolEntry]]()
    for entry in entries:
        key = (entry.name,) if entry.mcp is not None else (_place(entry), entry.network)
        groups.setdefault(key, []).append(entry)
    yield from groups.values()


def _place(entry: ToolEntry) -> ToolEnvironment:
    return (
        ToolEnvironment(entry.image)
        if entry.mcp is None
        else ToolEnvironment(entry.mcp.image, entry.mcp.packages)
    )


def _prepared(
    entry: ToolEntry,
    prepared: Mapping[ToolEnvironment, PreparedEnvironment],
    own: PreparedEnvironment,
) -> PreparedEnvironment:
    place = _place(entry)
    if place == ToolEnvironment():
        return own
    if place not in prepared:
        what = f"image {place.image}" if place.image else f"packages {', '.join(place.packages)}"
        raise EnvironmentFault(
            f"tool '{entry.name}' needs {what}, which was not prepared",
            remedy="submit the plan again",
        )
    return prepared[place]


def _job(entry: ToolEntry) -> dict[str, Any]:
    return {
        "name": entry.name, "plugin": entry.plugin or entry.name, "options": dict(entry.options),
        "idempotent": entry.idempotent,
    }  # fmt: skip


def _spec(entry: ToolEntry) -> ToolSpec:
    job = _job(entry)
    plugin = plugins.load("tools", job["plugin"])
    point = plugins.find("tools", job["plugin"])
    origin = plugins.origin(point) if point is not None else job["plugin"]
    return ToolSpec(**described(entry.name, plugin, job, origin))
