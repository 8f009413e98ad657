"""Checks a prompt's placeholders against the datasets that it is used with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.plugins import PromptSpec
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.plugin_checks import Findings, PluginChecks, failed
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import PromptEntry

_MADE_UP = frozenset({"doc_class_question_type"})
"""Names that a prompt may use beside a sample's own fields: derived from other fields."""

_OF_DEFINITIONS = {"dataset": ("datasets", "dataset"), "task": ("ml_tasks", "ML task")}
"""Further names that it may use: names of definitions → their kind, and its label for people."""


class PromptChecks:
    """Checks prompts; reports unknown names after every dataset of a prompt was checked."""

    def __init__(self, catalog: Catalog, plugin_checks: PluginChecks, found: Findings) -> None:
        self.catalog, self.plugins, self.found = catalog, plugin_checks, found
        self._strategies: dict[str, Any] = {}
        """Prompt → class of its strategy, where that can be loaded and accepts the prompt."""
        self._conditions: dict[tuple[str, str], Problem] = {}
        """Prompt and a name in its conditions → the problem to report if no other dataset has the name."""

    def prompt(self, prompt: Prompt, source: Source, loc: Loc = ()) -> None:
        """Check a prompt's definition, at its place in a file, with its strategy."""
        plugin = self.plugins.plugin(
            "prompts", prompt.strategy, source, (*loc, "strategy"), prompt.package
        )
        self.plugins.options(plugin, prompt.options, source, (*loc, "options"))
        if plugin is None:
            return
        if prompt.user is None and not prompt.prompts:
            if prompt.collection is None:
                self.found.say(source, loc, "a prompt needs 'user', 'prompts' or 'collection'")
            return
        spec = PromptSpec(
            prompt.user, prompt.system, prompt.prompts, prompt.examples, options=prompt.options
        )
        try:
            plugin(spec)
        except UserError as error:
            for problem in error.problems:
                key = (
                    "user"
                    if not prompt.prompts
                    else "prompts"
                    if prompt.collection is None
                    else "collection"
                )
                self.found.say(source, (*loc, key), problem.message, problem.remedy)
            return
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            self.found.say(source, (*loc, "strategy"), failed(prompt.strategy, error))
            return
        self._strategies[prompt.name] = plugin

    def fits(self, resolved: ResolvedRunTask, source: Source, loc: Loc) -> None:
        """Check that the dataset has the prompt's names; entries for other datasets may need more."""
        prompt, dataset = resolved.prompt, resolved.dataset
        names = dict(zip(_OF_DEFINITIONS, (dataset.name, resolved.ml_task.name), strict=True))
        judge = resolved.task.judge
        shown = {"answer"} if judge is None or judge.against is None else {"first", "second"}
        kind = "" if judge is None else "+".join(sorted(shown))
        if not self.found.first("prompt", prompt.name, *names.values(), kind):
            return
        known = {*dataset.fields, *dataset.group_by}
        if "doc_class" in known:
            known.add("doc_type")
        if judge is not None:
            known |= {*shown, "reference", "references"}
        given = known | _MADE_UP | names.keys()
        own = [
            one for one in prompt.prompts
            if all(str(one.when.get(key, name)).strip() == name for key, name in names.items())
        ]  # fmt: skip
        conditions = {name: one.id for one in reversed(own) for name in one.when}
        fitting = tuple(one for one in own if one.when.keys() <= given)
        try:
            wanted = self._wanted(prompt, fitting, names)
        except UserError as error:
            for one in error.problems:
                what = f"prompt '{prompt.name}': {one.message}"
                self.found.say(source, loc, what, one.remedy)
            return
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            self.found.say(source, loc, failed(prompt.strategy, error))
            return

        def lacking(name: str, where: str, remedy: str) -> Problem:
            what = f"prompt '{prompt.name}' {where}: " + unknown(
                "field", name, known, of=f"dataset '{dataset.name}'"
            )
            return source.problem(loc, what, None if "did you mean" in what else remedy)

        if judge is not None and wanted and (unseen := sorted(shown - wanted)):
            names_unseen = " and ".join(f"{{{{ {name} }}}}" for name in unseen)
            what = f"rubric '{prompt.name}' does not show the judge {names_unseen}"
            self.found.say(source, loc, what, "add it to the template")
        self._definitions_meant(prompt, dataset, wanted, source, loc)
        remedy = "list it under the dataset's `fields` or `group_by`"
        for name in sorted(wanted - given):
            self.found.problems.append(lacking(name, f"uses {{{{ {name} }}}}", remedy))
        remedy += ", or limit the entry to another dataset with `dataset: NAME`"
        for name in sorted(conditions.keys() - wanted - given):
            where = f"has `when: {{{name}: …}}` in '{conditions[name]}'"
            self._conditions.setdefault((prompt.name, name), lacking(name, where, remedy))

    def _definitions_meant(
        self, prompt: Prompt, dataset: Dataset, wanted: frozenset[str], source: Source, loc: Loc
    ) -> None:
        """`dataset` and `task` are names of definitions, not the values of a column with that name."""
        for name, (kind, called) in _OF_DEFINITIONS.items():
            definitions = self.catalog.names(kind)
            said = {
                str(one.when[name]).strip(): one.id
                for one in reversed(prompt.prompts)
                if name in one.when
            }
            strange = sorted(said.keys() - {*definitions})
            if name in (*dataset.fields, *dataset.group_by) and (name in wanted or strange):
                self.found.say(
                    source, loc,
                    f"prompt '{prompt.name}' uses '{name}', which is the name of the {called}'s definition, "
                    f"not the column of dataset '{dataset.name}'",
                    "map that column to another name",
                )  # fmt: skip
            elif strange and self.found.first("strange", prompt.name, name):
                for value in strange:
                    where = f"has `when: {{{name}: {value}}}` in '{said[value]}'"
                    what = unknown(called, value, definitions)
                    remedy = f"for a column, map it as `source_{name}`, and use that name in `when`"
                    self.found.say(
                        source, loc, f"prompt '{prompt.name}' {where}: {what}",
                        None if "did you mean" in what else remedy,
                    )  # fmt: skip

    def _wanted(
        self, prompt: Prompt, entries: tuple[PromptEntry, ...], names: Mapping[str, str]
    ) -> frozenset[str]:
        """Names that a prompt with these entries takes from samples; empty, where unknown.

        Raises:
            UserError: the prompt is invalid with these names.
        """
        plugin = self._strategies.get(prompt.name)
        if plugin is None or not (prompt.user or entries) or not hasattr(plugin, "placeholders"):
            return frozenset()
        spec = PromptSpec(
            prompt.user, prompt.system, entries, prompt.examples, **names, options=prompt.options
        )
        return frozenset(plugin(spec).placeholders())

    def conditions(self) -> None:
        """Report names in conditions that no dataset of the catalog knows.

        Datasets that a prompt is not used with are read only if there is a name to report.
        """
        strange = {name for _, name in self._conditions}
        for one in self.catalog.names("datasets"):
            if not strange:
                break
            try:
                dataset = self.catalog.get(Dataset, one)
            except UserError:
                continue  # reported where it is used
            strange.difference_update(dataset.fields, dataset.group_by)
        self.found.problems.extend(
            problem for (_, name), problem in self._conditions.items() if name in strange
        )
        self._conditions.clear()
