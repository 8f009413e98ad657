"""Plan in, resolved plan out: every name looked up, every cross-reference checked, all mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.registry.catalog import FOLDERS, Catalog, load_document
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.documents import (
    Dataset,
    Document,
    ExperimentPlan,
    Metric,
    MLTask,
    Model,
    Prompt,
    RunTask,
    Site,
)
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask

DocumentT = TypeVar("DocumentT", bound=Document)
ResultT = TypeVar("ResultT")


def load_plan(path: Path, registries: Sequence[Path] = ()) -> ResolvedPlan:
    """Read a plan and everything it names.

    Args:
        path: the plan's YAML file.
        registries: further registries; the last one wins.

    Raises:
        UserError: every mistake found in the plan and the documents it names.
    """
    plan, source = load_document(ExperimentPlan, path)
    return _Resolver(Catalog(registries)).plan(plan, source)


class _Resolver:
    """Collects problems instead of stopping at the first."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.problems: list[Problem] = []
        self.origins: dict[str, str] = {}

    def plan(self, plan: ExperimentPlan, source: Source) -> ResolvedPlan:
        site = self._site(plan, source)
        resolved = [
            self._run_task(entry, source, ("run_tasks", index))
            for index, entry in enumerate(plan.run_tasks)
        ]
        run_tasks = [run_task for run_task in resolved if run_task is not None]
        seen: set[str] = set()
        for index, run_task in enumerate(resolved):
            if run_task is None:
                continue
            if run_task.name in seen:
                self.problems.append(
                    source.problem(("run_tasks", index), f"run task '{run_task.name}' stands twice")
                )
            seen.add(run_task.name)
        if self.problems or site is None:
            raise UserError(*dict.fromkeys(self.problems))
        return ResolvedPlan(
            plan=plan,
            site=site,
            run_tasks=tuple(run_tasks),
            origins=dict(sorted(self.origins.items())),
        )

    def _site(self, plan: ExperimentPlan, source: Source) -> Site | None:
        name = plan.site or "default"
        if plan.site is None and "default" not in self.catalog.names("sites"):
            return Site(name="default", description="built in: no `hpcbench init` was run")
        return self._find(Site, name, source, ("site",))

    def _run_task(self, entry: str | RunTask, source: Source, loc: Loc) -> ResolvedRunTask | None:
        if isinstance(entry, str):
            found = self._try(lambda: self.catalog.get_with_source(RunTask, entry, (source, loc)))
            if found is None:
                return None
            (task, source), loc = found, ()
            self.origins[f"run_tasks/{entry}"] = str(source.path)
        else:
            task = entry
        ml_task = self._find(MLTask, task.ml_task, source, (*loc, "ml_task"))
        model = self._find(Model, task.model, source, (*loc, "model"))
        dataset = self._find(Dataset, task.dataset, source, (*loc, "dataset"))
        if ml_task is None or model is None or dataset is None:
            return None
        prompt = self._prompt(task, ml_task, source, loc)
        metrics = self._metrics(task, ml_task, source, loc)
        missing = [name for name in ml_task.sample_fields if name not in dataset.fields]
        if missing:
            self.problems.append(
                source.problem(
                    (*loc, "dataset"),
                    f"dataset '{dataset.name}' has no field {', '.join(map(repr, missing))} "
                    f"that ML task '{ml_task.name}' needs",
                )
            )
        wanted = [
            ("engines", model.engine, "model"),
            ("datasets", dataset.iterator, "dataset"),
            ("tasks", ml_task.plugin, "ml_task"),
            *(("metrics", metric.plugin, "metrics") for metric in metrics),
        ]
        if prompt is not None:
            wanted.append(("prompts", prompt.strategy, "prompt"))
        for kind, name, key in wanted:
            if name not in plugins.available(kind):
                message = plugins.unknown(f"{kind} plugin", name, plugins.available(kind))
                self.problems.append(source.problem((*loc, key), message))
        if prompt is None:
            return None
        split = task.split or dataset.split
        return ResolvedRunTask(
            task=task,
            ml_task=ml_task,
            model=model,
            dataset=dataset.model_copy(update={"split": split}),
            prompt=prompt,
            metrics=metrics,
        )

    def _prompt(self, task: RunTask, ml_task: MLTask, source: Source, loc: Loc) -> Prompt | None:
        name = task.prompt or ml_task.prompt
        if name is None:
            self.problems.append(
                source.problem(loc, "key 'prompt' is missing and the ML task has no default")
            )
            return None
        return self._find(Prompt, name, source, (*loc, "prompt"))

    def _metrics(
        self, task: RunTask, ml_task: MLTask, source: Source, loc: Loc
    ) -> tuple[Metric, ...]:
        found = []
        for index, name in enumerate(task.metrics or ml_task.metrics):
            place = (*loc, "metrics", index)
            if name not in ml_task.metrics:
                message = plugins.unknown(
                    f"metric of ML task '{ml_task.name}'", name, ml_task.metrics
                )
                self.problems.append(source.problem(place, message))
                continue
            metric = self._find(Metric, name, source, place)
            if metric is not None:
                found.append(metric)
        return tuple(found)

    def _find(
        self, model: type[DocumentT], name: str, asked_in: Source, loc: Loc
    ) -> DocumentT | None:
        found = self._try(lambda: self.catalog.get_with_source(model, name, (asked_in, loc)))
        if found is None:
            return None
        document, source = found
        self.origins[f"{FOLDERS[model]}/{name}"] = str(source.path)
        return _with_absolute_paths(document, source)

    def _try(self, look_up: Callable[[], ResultT]) -> ResultT | None:
        try:
            return look_up()
        except UserError as error:
            self.problems.extend(error.problems)
            return None


def _with_absolute_paths(document: DocumentT, source: Source) -> DocumentT:
    """Paths in a document are relative to its file; from here on they are absolute."""

    def absolute(path: str) -> str:
        expanded = os.path.expanduser(path)  # noqa: PTH111 - Path's raises for a user nobody knows
        return str((source.path.resolve().parent / expanded).resolve())

    update: dict[str, str] = {}
    if isinstance(document, Dataset | Model):
        update["source"] = absolute(document.source)
    if isinstance(document, Model) and document.image:
        scheme, colon, rest = document.image.partition(":")
        if scheme in ("venv", "oci-archive", "docker-archive"):
            update["image"] = f"{scheme}:{absolute(rest)}"
        elif not colon:
            update["image"] = absolute(document.image)
    return document.model_copy(update=update)
