"""Checks of an agent's tools: plugins and their options, servers and what they need, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpcbench.errors import UserError
from hpcbench.installed import install_hint
from hpcbench.registry.model_checks import ModelChecks
from hpcbench.registry.plugin_checks import Findings, PluginChecks, absent, required
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.agent import OF_THE_LOOP, Agent, McpServer, ToolEntry
from hpcbench.schema.plan import ResolvedRunTask


class AgentChecks:
    """Checks agents; nothing is started."""

    def __init__(self, plugins: PluginChecks, models: ModelChecks, found: Findings) -> None:
        self.plugins, self.models, self.found = plugins, models, found

    def run_task(
        self, resolved: ResolvedRunTask, source: Source, where: Callable[[str], Loc]
    ) -> None:
        """Check the tools of a run task's own agent, and the settings that have no meaning beside it."""
        task, ml_task = resolved.task, resolved.ml_task
        at = where("ml_task" if task.agent is None else "agent")
        if isinstance(task.agent, Agent):
            self.agent(task.agent, source, at)
        elif task.agent or ml_task.agent is True:
            self.agent(Agent(), source, at)
        if ml_task.module is not None:
            what = f"ML task '{ml_task.name}' has a module, which asks the model itself"
            self.found.say(source, at, f"{what}, so there is no agent", "remove one of the two")
        single = {
            "rate": task.rate, "load": task.load, "measure": task.measure,
            "slo": task.slo.model_dump(exclude_none=True),
        }  # fmt: skip
        for key, value in single.items():
            if value:
                what = f"an agent sends several requests for a sample, so '{key}' has no meaning"
                self.found.say(source, where(key), what, "remove it", at_key=True)
        if task.output_schema == "response_format":
            what = "the engine would force the form of answers on the agent's calls, too"
            self.found.say(source, where("output_schema"), what, "use `output_schema: prompt`")

    def agent(self, agent: Agent, source: Source, loc: Loc) -> None:
        """Check an agent's tools.

        Args:
            agent: its settings.
            source: the definition that has them.
            loc: their place in it, such as `("agent",)`.
        """
        own = {one.name: one for one in agent.tools if isinstance(one, ToolEntry)}
        seen = dict[str, ToolEntry]()
        for place, one in _listed(agent):
            entry = one if isinstance(one, ToolEntry) else own.get(one, ToolEntry(name=one))
            if entry.name in OF_THE_LOOP:
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
        self.found.secrets(server.env, source, (*at, "env"))


def _listed(agent: Agent) -> Iterator[tuple[Loc, str | ToolEntry]]:
    """The tools of an agent and of its roles, with their places."""
    for number, one in enumerate(agent.tools):
        yield ("tools", number), one
    for name, role in agent.agents.items():
        for number, one in enumerate(role.tools):
            yield ("agents", name, "tools", number), one
