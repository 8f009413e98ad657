"""Checks of an agent's tools: plugins and their options, servers and what they need, names."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hpcbench import secret
from hpcbench.errors import UserError
from hpcbench.installed import install_hint
from hpcbench.registry.model_checks import ModelChecks
from hpcbench.registry.plugin_checks import Findings, PluginChecks, absent, required
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.agent import Agent, McpServer, ToolEntry


class AgentChecks:
    """Checks agents; nothing is started."""

    def __init__(self, plugins: PluginChecks, models: ModelChecks, found: Findings) -> None:
        self.plugins, self.models, self.found = plugins, models, found

    def agent(self, agent: Agent, source: Source, loc: Loc, beside: Collection[str] = ()) -> None:
        """Check an agent's tools.

        Args:
            agent: its settings.
            source: the definition that has them.
            loc: their place in it, such as `("agent",)`.
            beside: names of tools that the loop runs itself.
        """
        own = {one.name: one for one in agent.tools if isinstance(one, ToolEntry)}
        seen = dict[str, ToolEntry]()
        for place, one in _listed(agent):
            entry = one if isinstance(one, ToolEntry) else own.get(one, ToolEntry(name=one))
            if entry.name in beside:
                if isinstance(one, ToolEntry) and (one.plugin or one.mcp):
                    what = f"'{entry.name}' is a tool of hpcbench itself"
                    self.found.say(source, (*loc, *place, "name"), what, "choose another name")
                continue
            if isinstance(one, str) and entry.name in seen:
                continue
            at = (*loc, *place)
            if seen.setdefault(entry.name, entry) != entry:
                self.found.say(
                    source, (*at, "name"), f"two tools are called '{entry.name}', and differ",
                    "give one of them another `name`, and name its `plugin`",
                )  # fmt: skip
            elif entry.mcp is not None:
                self._server(entry.mcp, source, (*at, "mcp"))
            else:
                self._plugin(entry, source, at, named=one is not entry)

    def _plugin(self, entry: ToolEntry, source: Source, at: Loc, *, named: bool) -> None:
        where = at if named else (*at, "plugin" if entry.plugin else "name")
        plugin = self.plugins.plugin("tools", entry.plugin or entry.name, source, where)
        if entry.image is not None:
            self.models.image(entry.image, source, (*at, "image"))
        self.plugins.options(plugin, entry.options, source, (*at, "options"))
        self.found.references(entry.options, source, (*at, "options"))
        missing = [one for one in getattr(plugin, "needs", ()) if absent(one)]
        if missing and entry.image is None:
            what = (
                f"tool '{entry.name}' needs {', '.join(missing)}, which this Python does not have"
            )
            extra = getattr(plugin, "extra", None)
            self.found.say(source, where, what, install_hint(extra) if extra else None)

    def _server(self, server: McpServer, source: Source, at: Loc) -> None:
        if absent("mcp"):
            what = "servers of tools need the package mcp, which this Python does not have"
            self.found.say(source, at, what, install_hint("agents"))
        if server.image is not None:
            self.models.image(server.image, source, (*at, "image"))
        for number, line in enumerate(server.packages):
            try:
                required(line)
            except UserError as error:
                problem = error.problems[0]
                self.found.say(
                    source, (*at, "packages", number), problem.message,
                    "write NAME==VERSION, as pip does",
                )  # fmt: skip
        for name, value in server.env.items():
            self.found.references(value, source, (*at, "env", name))
            if secret.written_out(name, value):
                self.found.say(
                    source, (*at, "env", name), f"{name} contains a secret in plain text",
                    f"write ${{env:{name}}} and export it, or ${{file:PATH}}",
                )  # fmt: skip


def _listed(agent: Agent) -> Iterator[tuple[Loc, str | ToolEntry]]:
    """The tools of an agent and of its roles, with their places."""
    for number, one in enumerate(agent.tools):
        yield ("tools", number), one
    for name, role in agent.agents.items():
        for number, one in enumerate(role.tools):
            yield ("agents", name, "tools", number), one
