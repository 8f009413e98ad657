"""Resolves a plan: looks up every name, checks every cross-reference, reports all mistakes at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.files.user import read_text
from hpcbench.registry import agent_models, judging
from hpcbench.registry.authors_way import asked_as_its_authors_do, with_reasoning_parser
from hpcbench.registry.auto_concurrency import auto
from hpcbench.registry.auto_stream_interval import with_numbers
from hpcbench.registry.catalog import FOLDERS, Catalog, RunMode, load_definition
from hpcbench.registry.collections import with_collection
from hpcbench.registry.cross_checks import Checks
from hpcbench.registry.cuda import asks_for_forward_compatibility, runs
from hpcbench.registry.definition_names import named
from hpcbench.registry.engine_limits import limits_of
from hpcbench.registry.expansion import (
    Where,
    Written,
    after_all,
    below,
    cells,
    circles,
    expanded,
    limited,
    twice,
)
from hpcbench.registry.fitting_metrics import JUDGE, first_scores, is_resource
from hpcbench.registry.model_choice import chosen
from hpcbench.registry.paths import is_reference, with_absolute_paths
from hpcbench.registry.plugin_checks import Findings, PluginChecks
from hpcbench.registry.resource_shapes import largest_node, replicated, spread
from hpcbench.registry.settings import read_settings
from hpcbench.registry.source import Loc, Source, Unfit, parse, validate
from hpcbench.registry.upgrade import upgrade
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.experiment_plan import Evaluation, ExperimentPlan
from hpcbench.schema.gate import Gate
from hpcbench.schema.image import Image
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.metric import Metric, MetricVersion
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.outputs import Report
from hpcbench.schema.package import Package
from hpcbench.schema.plan import Places, ResolvedPlan, ResolvedRunTask
from hpcbench.schema.prompt import Language, Prompt
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site

DefinitionT = TypeVar("DefinitionT", bound=Definition)
ResultT = TypeVar("ResultT")


def load_plan(
    path: Path,
    registries: Sequence[Path] = (),
    settings: Sequence[str] = (),
    mode: RunMode | None = None,
    *,
    locks: bool = True,
) -> ResolvedPlan:
    """Read a plan and every definition it names.

    Args:
        path: the plan's YAML file.
        registries: further registries; the last one wins.
        settings: `[KIND/NAME:]path.to.key=value`, the last overlay.
        mode: prod or dev; none: RUN_MODE of the environment.
        locks: whether prod requires locks; callers that only look need none.

    Raises:
        UserError: every mistake found in the plan and the definitions it names.
    """
    catalog = Catalog(registries, mode=mode, settings=read_settings(settings), plan=path)
    resolver = _Resolver(catalog, locks=locks)
    return resolver.plan(*resolver.read(lambda: catalog.plan(path)))


def load_model(given: str, registries: Sequence[Path] = (), mode: RunMode | None = None) -> Model:
    """A model alone, by the name of its definition or by its file, with all its names resolved.

    Locks are not required: the result is not stored.

    Raises:
        UserError: every mistake found in the definition and in definitions it names.
    """
    return _Resolver(Catalog(registries, mode=mode), locks=False).model(given)


def models_that_say(word: str, registries: Sequence[Path] = ()) -> Iterator[str]:
    """Names of the models whose files contain a word: a quick choice before they are resolved."""
    catalog = Catalog(registries)
    for name in catalog.names("models"):
        with contextlib.suppress(OSError, UserError):
            if any(
                word in path.read_text(encoding="utf-8") for path in catalog.files("models", name)
            ):
                yield name


@dataclass(frozen=True, slots=True)
class ForScores:
    """Definitions that score answers without a plan."""

    ml_task: MLTask | None
    metrics: tuple[Metric, ...]
    """The metrics; `image` of each is a reference."""
    metric_packages: Mapping[str, tuple[str, ...]]
    """Metric → packages that must be importable where it scores."""
    packages: Mapping[str, Package]
    """These packages."""
    origins: Mapping[str, str]
    """`kind/name` → the definition's file."""
    images: Mapping[str, Image]
    """Reference → the `images/` definition that it comes from."""


def load_for_scores(
    metrics: Sequence[str], ml_task: str | None = None, registries: Sequence[Path] = ()
) -> ForScores:
    """Metrics, and perhaps an ML task, alone, with all their names resolved; locks are not required.

    Raises:
        UserError: every mistake found in these definitions and in definitions they name.
    """
    return _Resolver(Catalog(registries), locks=False).for_scores(metrics, ml_task)


def load_site(name: str, mode: RunMode | None = None, settings: Sequence[str] = ()) -> Site | None:
    """This machine's own site profile of that name; None: it has none.

    Args:
        name: its name.
        mode: prod or dev; none: RUN_MODE of the environment.
        settings: as for `load_plan`.

    Raises:
        UserError: it is wrong.
    """
    catalog = Catalog(mode=mode, settings=read_settings(settings), project=False)
    return _Resolver(catalog, locks=False).site(name) if catalog.files("sites", name) else None


def load_gate(given: str, registries: Sequence[Path] = (), mode: RunMode | None = None) -> Gate:
    """A gate's policy alone, by the name of its definition or by its file.

    Raises:
        UserError: every mistake found in the definition.
    """
    return _Resolver(Catalog(registries, mode=mode), locks=False).gate(given)


@dataclass(frozen=True, slots=True)
class Look:
    """Findings in one definition, right or wrong."""

    problems: tuple[Problem, ...] = ()
    """All mistakes in it and in the definitions it names; empty: it is right."""
    run_tasks: tuple[RunTask, ...] = ()
    """A plan's run tasks, as far as it can be read."""
    resolved: ResolvedPlan | None = None
    """The resolved plan, if it is right."""


def look(kind: str, path: Path, catalog: Catalog) -> Look:
    """Check one definition by its file as far as possible; mistakes in it raise nothing.

    Args:
        kind: its kind, a folder of a registry; a plan may be anywhere.
        path: its file, named as in the catalog.
        catalog: where names are looked up.
    """
    if kind == "experiments":
        return _look_at_plan(_Resolver(catalog), lambda: catalog.plan(path), path)
    resolver = _Resolver(catalog, locks=False)
    try:
        if (name := catalog.name(kind, path)) is not None:
            resolver.one(KINDS[kind], name)
            resolver.checks.prompts.conditions()
        else:
            what = f"the file is in no registry's {kind}/"
            remedy = "move it there, or name its registry with --registry"
            resolver.problems.append(Problem(what, str(path), 1, 1, remedy))
    except UserError as error:
        resolver.problems.extend(error.problems)
    return Look(tuple(_ordered(resolver.problems, path)))


def look_at_text(text: str, path: Path, catalog: Catalog, *, locks: bool = True) -> Look:
    """Check an unsaved plan, as `look` checks a file.

    Args:
        text: its YAML.
        path: the file for the text: its paths are relative to it, and problems name it.
        catalog: where names are looked up.
        locks: whether prod requires locks.
    """

    def read_plan() -> tuple[ExperimentPlan, Source]:
        source = upgrade("experiments", parse(path, text))
        return validate(ExperimentPlan, source), source

    return _look_at_plan(_Resolver(catalog, locks=locks), read_plan, path)


def _look_at_plan(
    resolver: _Resolver, read_plan: Callable[[], tuple[ExperimentPlan, Source]], path: Path
) -> Look:
    resolved = None
    try:
        resolved = resolver.plan(*resolver.read(read_plan))
    except UserError as error:
        resolver.problems.extend(error.problems)
    found = tuple(_ordered(resolver.problems, path))
    return Look(found, tuple(resolver.expanded), resolved)


@dataclass(frozen=True, slots=True)
class Needed:
    """Packages that definitions name, or that provide the plugins they name."""

    packages: Mapping[str, Package]
    """Name → its definition, paths absolute."""
    origins: Mapping[str, str]
    """`packages/NAME` → the file that contains it."""


def packages_of(
    catalog: Catalog,
    definitions: Iterable[tuple[str, str]] = (),
    plugins: Iterable[tuple[str, str]] = (),
) -> Needed:
    """The packages of definitions and plugins, by the rule that a plan's packages follow.

    Mistakes in these definitions raise nothing: their readers report them.

    Args:
        catalog: where names are looked up.
        definitions: kind and name of each definition.
        plugins: kind and name of plugins that no definition names.
    """
    resolver = _Resolver(catalog, locks=False)
    checks = resolver.checks.plugins
    for kind, name in definitions:
        resolver.one(KINDS[kind], name)
    for kind, name in plugins:
        provider = checks.provider(kind, name)
        if provider is not None:
            checks.package(provider, Source(Path(f"{kind}/{name}"), None), ())
    return Needed(checks.packages, checks.origins)


def packaged(catalog: Catalog, kind: str) -> dict[str, str]:
    """Plugins of a kind that packages of the registries provide: name → name of the package."""
    return PluginChecks(catalog, Findings([]), prod=False).provided(kind)


def check_registries(
    registries: Sequence[Path] = (), mode: RunMode | None = None
) -> tuple[int, Needed]:
    """Read every definition of the search path and check its names.

    Locks are not required: a definition may lack its digest until a plan uses it.

    Returns:
        The number of definitions, and the packages that they need.

    Raises:
        UserError: every mistake found.
    """
    resolver = _Resolver(Catalog(registries, mode=mode), locks=False)
    count = resolver.everything()
    return count, Needed(resolver.checks.plugins.packages, resolver.checks.plugins.origins)


class _Resolver:
    """Collects problems instead of stopping at the first."""

    def __init__(self, catalog: Catalog, *, locks: bool = True) -> None:
        self.catalog = catalog
        self.problems: list[Problem] = []
        self.checks = Checks(catalog, self.problems, locks=locks)
        self.origins: dict[str, str] = {}
        self.images: dict[str, Image] = {}
        """Reference → the `images/` definition that it came from."""
        self.expanded: list[RunTask] = []
        """Run tasks of the checked plan."""
        self.driver: str | None = None
        """Newest CUDA that the drivers of the site's NVIDIA GPUs support; None: unknown."""
        self.scoring: str | None = None
        """Reference of the image of the plan's evaluation."""
        self._resolved: dict[tuple[str, str], tuple[Definition, Source]] = {}

    def read(
        self, read_plan: Callable[[], tuple[ExperimentPlan, Source]]
    ) -> tuple[ExperimentPlan, Source]:
        """A plan; if it does not fit the schema, its definition names are checked, too.

        Raises:
            UserError: every mistake found.
        """
        try:
            return read_plan()
        except Unfit as error:
            known = {(one.line, one.column) for one in error.problems}
            for model, name, loc in named(error.source.data):
                place = error.source.place(loc)
                if place[1:] not in known:  # a value that is no name is reported already
                    look_up = partial(
                        self.catalog.get_with_source, model, name, (error.source, loc)
                    )
                    self._try(look_up)
            whole = _ordered([*error.problems, *self.problems], error.source.path)
            raise UserError(*whole) from error

    def plan(self, plan: ExperimentPlan, source: Source) -> ResolvedPlan:
        """The plan with all its names resolved."""
        site = self._site(plan, source)
        plan = with_absolute_paths(plan, source)
        if site is not None and site.container.gpu_maker == "nvidia":
            self.driver = site.container.cuda
        self.scoring = self._reference(plan.evaluation.image, source, ("evaluation", "image"))
        plan = plan.model_copy(update={"evaluation": Evaluation(image=self.scoring)})
        whole = judging.in_order(list(self._written(plan, source)))
        self.problems += circles(whole)
        by_name = {
            entry.task.name: list(expanded(limited(entry, plan.limit), plan.load))
            for entry in self._only(plan, source, whole)
        }
        self.problems += judging.problems(whole, by_name)
        written = [
            after_all(point, by_name)
            for own in by_name.values()
            for point in judging.placed(own, by_name)
        ]
        self.expanded = [one.task for one in written]
        self.problems += twice(whole)
        self.problems += twice(written)
        if not written and not self.problems:
            self.problems.append(source.problem((), "a plan needs 'run_tasks' or 'matrix'"))
        executor = plan.executor or (site.executor if site is not None else "local")
        cluster = site if executor == "slurm" else None
        found = [self._run_task(one, cluster) for one in written]
        if site is not None:
            self._agents_models(
                whole, by_name, written, found, site, on_cluster=executor == "slurm"
            )
        if executor == "local" and not self.problems:
            for run_task in found:
                if run_task is not None and run_task.model.nodes > 1:
                    what = f"model '{run_task.model.name}' needs {run_task.model.nodes} nodes"
                    what += ", but `executor: local` is one machine"
                    remedy = "use `executor: slurm`"
                    self.problems.append(run_task.problem("model", what, remedy))
        reports = self._reports(plan, source, written)
        gate = self._find(Gate, plan.gate, source, ("gate",)) if plan.gate is not None else None
        at_once = [self._with_at_once(one, gate) for one in found if one is not None]
        run_tasks = with_numbers(at_once)
        self.checks.plan(plan, source, cluster)
        self.checks.budget(plan, [one.model for one in run_tasks], source)
        self.checks.modules(plan, run_tasks, source)
        self.checks.prompts.conditions()
        self._unused_settings()
        if self.problems or site is None:
            raise UserError(*_ordered(self.problems, source.path))
        return ResolvedPlan(
            plan=plan,
            site=site,
            run_tasks=tuple(run_tasks),
            mode=self.catalog.mode,
            reports=reports,
            gate=gate,
            settings=tuple(setting.text for setting in self.catalog.settings),
            packages=dict(sorted(self.checks.plugins.packages.items())),
            origins=dict(sorted({**self.origins, **self.checks.plugins.origins}.items())),
            images=self.images,
        )

    def _agents_models(
        self,
        whole: Sequence[Written],
        by_name: Mapping[str, Sequence[Written]],
        written: Sequence[Written],
        found: Sequence[ResolvedRunTask | None],
        site: Site,
        *,
        on_cluster: bool,
    ) -> None:
        """Check the further models of agents, if all run tasks could be resolved."""
        resolved = {one.task.name: run_task for one, run_task in zip(written, found, strict=True)}
        chosen = {
            name: [run_task for one in own if (run_task := resolved.get(one.task.name)) is not None]
            for name, own in by_name.items()
        }
        left_out = [one.task.name for one in whole if one.task.name not in by_name]
        for one, run_task in zip(written, found, strict=True):
            if run_task is not None and None not in found:
                self.problems += agent_models.problems(
                    one, run_task, chosen, left_out, site, on_cluster=on_cluster
                )

    def everything(self) -> int:
        """Check all definitions."""
        count = 0
        for model, kind in FOLDERS.items():
            for name in self.catalog.names(kind):
                count += 1
                self.one(model, name)
        self.checks.prompts.conditions()
        self.problems += [one for one in self.catalog.unread() if one not in self.problems]
        if self.problems:
            raise UserError(*_ordered(self.problems))
        return count

    def one(self, model: type[Definition], name: str) -> None:
        """Check one definition of a registry and the definitions it names."""
        found = self._try(lambda: self.catalog.get_with_source(model, name))
        if found is None:
            return
        definition, source = found
        if self._rests_on_own(definition, source):
            return
        if isinstance(definition, RunTask):
            for one in expanded(Written(definition, source, below(()), (source, ()))):
                self._run_task(one, None)
        elif isinstance(definition, ExperimentPlan):
            image = with_absolute_paths(definition, source).evaluation.image
            self.scoring = self._reference(image, source, ("evaluation", "image"))
            written = self._only(definition, source, list(self._written(definition, source)))
            self.problems += twice(written)
            for one in written:
                self._run_task(one, None)
            self.checks.plan(definition, source, None)
        else:
            self.checks.definition(definition, source)

    def _rests_on_own(self, definition: Definition, source: Source) -> bool:
        """Whether a shipped run task or plan names an ML task that the user has redefined, whose metrics may
        be others."""
        if self.catalog.label(source.path) != "shipped":
            return False
        tasks = [definition] if isinstance(definition, RunTask) else []
        if isinstance(definition, ExperimentPlan):
            tasks = [
                self.catalog.get(RunTask, one)
                for one in definition.run_tasks
                if isinstance(one, str)
            ]
        names = {one.ml_task for one in tasks if self.catalog.files("ml_tasks", one.ml_task)}
        paths = [self.catalog.get_with_source(MLTask, name)[1].path for name in names]
        return any(self.catalog.label(path) != "shipped" for path in paths)

    # --- run tasks, in any form --------------------------------------------------------------------

    def _written(self, plan: ExperimentPlan, source: Source) -> Iterator[Written]:
        for index, entry in enumerate(plan.run_tasks):
            loc: Loc = ("run_tasks", index)
            if isinstance(entry, RunTask):
                yield Written(entry, source, below(loc), (source, (*loc, "name")))
                continue
            found = self._try(
                lambda name=entry, loc=loc: self.catalog.get_with_source(  # type: ignore[misc]
                    RunTask, name, (source, loc)
                )
            )
            if found is not None:
                task, own = found
                self.origins[f"run_tasks/{task.name}"] = self._origin("run_tasks", str(entry))
                yield Written(task, own, below(()), (source, loc))
        for index, matrix in enumerate(plan.matrix):
            yield from cells(matrix, source, ("matrix", index), self.problems)

    def _only(self, plan: ExperimentPlan, source: Source, written: list[Written]) -> list[Written]:
        """The run tasks that the plan's `only` names, if it names any."""
        names = [one.task.name for one in written]
        for index, name in enumerate(plan.only):
            if name not in names:
                what = unknown("run task", name, names, of="this plan")
                self.problems.append(source.problem(("only", index), what))
        return [one for one in written if not plan.only or one.task.name in plan.only]

    def _run_task(self, one: Written, site: Site | None) -> ResolvedRunTask | None:
        task, source, where = one.task, one.source, one.where
        ml_task = self._find(MLTask, task.ml_task, source, where("ml_task"))
        model = self._model(task, source, where)
        dataset = self._find(Dataset, task.dataset, source, where("dataset"))
        if ml_task is None or model is None or dataset is None:
            return None
        task, ml_task = asked_as_its_authors_do(task, ml_task, model)
        prompts = self._prompts(task, ml_task, dataset, source, where)
        metrics = self._metrics(task, ml_task, source, where, swapped=one.swapped)
        if not prompts:
            return None
        prompt = next(iter(prompts.values()))
        own = {
            "ml_task": ml_task.name, "dataset": dataset.name,
            "prompt": prompt.name if task.prompt is not None else None,
            "metrics": tuple(one.name for one in metrics) if task.metrics else (),
            "model": model.name if isinstance(task.model, str) else task.model,
        }  # fmt: skip
        resolved = ResolvedRunTask.model_construct(
            task=self._with_max_tokens(task, ml_task, model).model_copy(update=own),
            ml_task=ml_task,
            model=replicated(
                spread(
                    with_reasoning_parser(model),
                    self.checks.models.gpus(model),
                    largest_node(task.resources, site),
                ),
                task.resources,
                site,
            ),
            dataset=self._with_split(dataset, task.split),
            prompt=prompt,
            default_prompts=prompts if len(prompts) > 1 else {},
            metrics=metrics,
            metric_packages=self._metric_packages(metrics, ml_task),
            engine_packages=(
                *self.checks.plugins.packages_beside(model, ml_task, task),
                *self.checks.plugins.protocol_packages(task, model, source, where("protocol")),
            ),
            sweep=one.sweep,
            swapped=one.swapped,
            places=_places(one),
        )
        self.checks.run_task(resolved, source, where, site)
        return resolved

    def _with_max_tokens(self, task: RunTask, ml_task: MLTask, model: Model) -> RunTask:
        """The run task with the ML task's `max_tokens`, or one that fits the model, unless it has its own."""
        own = task.generation
        if "max_tokens" in own.model_fields_set:
            return task
        tokens = ml_task.max_tokens
        if tokens is None:
            most = limits_of(model, self.checks.plugins.loaded("engines", model.engine)).tokens
            if most is None or most > own.max_tokens:
                return task
            tokens = max(1, most // 2)
        generation = own.model_copy(update={"max_tokens": tokens})
        return task.model_copy(update={"generation": generation})

    def _metric_packages(
        self, metrics: Sequence[Metric], ml_task: MLTask
    ) -> dict[str, tuple[str, ...]]:
        """Metric → packages that must be importable where it scores: its own, and those of the ML task."""
        checks = self.checks.plugins
        every = checks.required_packages(ml_task)
        found = {
            one.name: tuple(dict.fromkeys((*checks.metric_packages(one), *every)))
            for one in metrics
        }
        return {name: packages for name, packages in found.items() if packages}

    def _with_at_once(self, run_task: ResolvedRunTask, gate: Gate | None) -> ResolvedRunTask:
        """The run task with the number for its `concurrency: auto`."""
        engine = self.checks.plugins.loaded("engines", run_task.model.engine)
        found = self._try(lambda: auto(run_task, engine, gate))
        return run_task.model_copy(update={"at_once": found})

    def _with_split(self, dataset: Dataset, split: str | None) -> Dataset:
        if split is None or split == dataset.split:
            return dataset
        # The definition's number of samples belongs to the definition's split.
        return dataset.model_copy(update={"split": split, "samples": None})

    # --- definitions that a run task names -----------------------------------------------------------

    def _model(self, task: RunTask, source: Source, where: Where) -> Model | None:
        if isinstance(task.model, str):
            return self._find(Model, task.model, source, where("model"))
        choice, loc = task.model, where("model")
        if not self.catalog.files("models", choice.name) and choice.engine is not None:
            base: Model | None = Model(
                name=choice.name, source=f"hf://{choice.name}", engine=choice.engine
            )
        else:
            base = self._find(Model, choice.name, source, (*loc, "name"))
        if base is None:
            return None
        changed = chosen(base, choice)
        if origin := self.origins.get(f"models/{base.name}"):
            self.origins[f"models/{changed.name}"] = origin
        placed = with_absolute_paths(changed, source) if choice.image else changed
        image = self._image(placed, source, (*loc, "image")) if choice.image else placed
        self.checks.choice(image, source, loc)
        return image

    def _image(self, model: Model, source: Source, loc: Loc) -> Model:
        """The model with an `images/` definition's name replaced by that definition's reference."""
        name = model.image
        if name is None or is_reference(name):
            return model
        reference = self._of_definition(name, source, loc, model)
        return model if reference is None else model.model_copy(update={"image": reference})

    def _of_definition(
        self, name: str, source: Source, loc: Loc, model: Model | None = None
    ) -> str | None:
        """The reference of an `images/` definition; None and a problem if there is none."""
        image = self._find(Image, name, source, loc)
        if model is None or not asks_for_forward_compatibility(model):
            image = self._for_the_driver(image, source, loc)
        if image is None:
            return None
        reference = self.checks.image(image, source, loc, model)
        if reference is not None:
            self.images[reference] = image
        return reference

    def _for_the_driver(self, image: Image | None, source: Source, loc: Loc) -> Image | None:
        """The image, or the one that it names for drivers as old as the site's."""
        seen: list[str] = []
        while image is not None and self.driver is not None and image.cuda is not None:
            if runs(image.cuda, self.driver) or image.for_older_drivers is None:
                break
            if image.name in seen:
                names = " → ".join((*seen, image.name))
                self.problems.append(source.problem(loc, f"images replace each other: {names}"))
                return None
            seen.append(image.name)
            image = self._find(Image, image.for_older_drivers, source, loc)
        return image

    def _reference(self, image: str | None, source: Source, loc: Loc) -> str | None:
        """The reference of an image for scoring, which a plan names."""
        if image is None or not is_reference(image):
            return None if image is None else self._of_definition(image, source, loc)
        self.checks.models.image(image, source, loc)
        return image

    def _scores_in(self, metric: Metric, ml_task: MLTask) -> Metric:
        """The metric with the image in which it scores for an ML task; one of resources scores in none."""
        if is_resource(metric):
            return metric
        image = metric.image or ml_task.image or self.scoring
        return metric if image == metric.image else metric.model_copy(update={"image": image})

    def _with_collection(self, prompt: Prompt, source: Source, loc: Loc) -> Prompt:
        """The prompt with the content of its file: the file may change before a worker reads it."""
        try:
            return with_collection(prompt)
        except UserError as error:
            at = (*loc, "collection")
            self.problems.extend(
                # A file that cannot be read has no lines: the one that names it is what the user corrects.
                source.problem(at, f"{one.file}: {one.message}", one.remedy)
                if one.line is None
                else one
                for one in error.problems
            )
            return prompt

    def _prompts(
        self, task: RunTask, ml_task: MLTask, dataset: Dataset, source: Source, where: Where
    ) -> dict[Language, Prompt]:
        """Language → prompt, the first one until the dataset's language is known; empty: there is none."""
        given = task.prompt or ml_task.prompt
        if isinstance(given, Prompt):
            if task.prompt:
                return {"en": self._placed(given, source, where("prompt"))}
            own = self.catalog.get_with_source(MLTask, ml_task.name)[1]
            return {"en": self._placed(given, own, ("prompt",))}
        names: dict[Language, str] = {"en": given} if given is not None else dict(ml_task.prompts)
        if given is None and dataset.language is not None and dataset.language in names:
            names = {dataset.language: names[dataset.language]}
        if not names and ml_task.module is not None:
            return {"en": Prompt(name="none", user="")}
        plugin, checks = ml_task.plugin, self.checks.plugins
        if not names and (checks.known("tasks", plugin) or checks.loaded("tasks", plugin)):
            loc = where("name")
            self.problems.append(
                source.problem(
                    loc[:-1] if loc[-1:] == ("name",) else loc,
                    "key 'prompt' is missing, and the ML task names no prompt",
                    "add `prompt: …`",
                )
            )
        found: dict[Language, Prompt | None] = {
            language: self._find(Prompt, name, source, where("prompt"))
            for language, name in names.items()
        }
        prompts = {language: one for language, one in found.items() if one is not None}
        return prompts if len(prompts) == len(found) else {}

    def _metrics(
        self,
        task: RunTask,
        ml_task: MLTask,
        source: Source,
        where: Where,
        *,
        swapped: bool = False,
    ) -> tuple[Metric, ...]:
        found: list[Metric] = []
        names = task.metrics or ml_task.default_metrics or ml_task.metrics
        if not names:
            what = f"key 'metrics' is missing, and ML task '{ml_task.name}' names no metric"
            self.problems.append(source.problem(where("ml_task"), what, "add `metrics: […]`"))
        for index, entry in enumerate(names):
            place = (*where("metrics"), index)
            name = entry if isinstance(entry, str) else entry.name
            metric = self._find(Metric, name, source, place)
            if metric is None:
                continue
            self.checks.metric_fits(metric, ml_task, source, place)
            if not isinstance(entry, str):
                metric = self.checks.metric_of_version(metric, entry, source, place)
            metric = self._scores_in(metric, ml_task)
            if swapped and metric.plugin == JUDGE:
                metric = metric.model_copy(update={"options": {**metric.options, "swapped": True}})
            if any(one.name == metric.name and one != metric for one in found):
                what = f"two metrics would have the column '{metric.name}'"
                self.problems.append(source.problem(place, what, "rename one of the definitions"))
            if metric not in found:
                found.append(metric)
        return first_scores(found)

    def _reports(
        self, plan: ExperimentPlan, source: Source, written: Sequence[Written]
    ) -> tuple[Report, ...]:
        asked: dict[str, tuple[Source, Loc]] = {}
        for index, name in enumerate(plan.reports):
            asked.setdefault(name, (source, ("reports", index)))
        for one in written:
            for index, name in enumerate(one.task.reports):
                asked.setdefault(name, (one.source, (*one.where("reports"), index)))
        found = [self._find(Report, name, *place) for name, place in asked.items()]
        return tuple(report for report in found if report is not None)

    def model(self, given: str) -> Model:
        """A model without a plan."""
        definition, source = self._named_or_file(Model, given)
        found = self._placed(definition, source)
        if self.problems:
            raise UserError(*_ordered(self.problems, source.path))
        return spread(found, self.checks.models.gpus(found))

    def for_scores(self, metrics: Sequence[str], ml_task: str | None) -> ForScores:
        """Metrics and an ML task without a plan."""
        of = None
        if ml_task is not None:
            of = self._placed(*self.catalog.get_with_source(MLTask, ml_task))
        found = []
        for name in metrics:
            definition, source = self.catalog.get_with_source(Metric, name)
            self.origins[f"metrics/{name}"] = self._origin("metrics", name)
            found.append(self._placed(definition, source))
        if self.problems:
            raise UserError(*_ordered(self.problems))
        checks = self.checks.plugins
        named = {one.name: packages for one in found if (packages := checks.metric_packages(one))}
        if of is not None:
            named = self._metric_packages(found, of)
        return ForScores(
            of,
            tuple(found),
            named,
            dict(checks.packages),
            {**self.origins, **checks.origins},
            self.images,
        )

    def gate(self, given: str) -> Gate:
        """A gate's policy without a plan."""
        definition, source = self._named_or_file(Gate, given)
        self.checks.definition(definition, source)
        if self.problems:
            raise UserError(*_ordered(self.problems, source.path))
        return definition

    def site(self, name: str) -> Site:
        """A site profile without a plan."""
        found = self._placed(*self.catalog.get_with_source(Site, name))
        if self.problems:
            raise UserError(*_ordered(self.problems))
        return found

    def _named_or_file(self, model: type[DefinitionT], given: str) -> tuple[DefinitionT, Source]:
        """A definition by its name, with or without its kind, or by its file."""
        kind = FOLDERS[model]
        if not given.endswith((".yaml", ".yml")):
            return self.catalog.get_with_source(model, given.removeprefix(f"{kind}/"))
        if not Path(given).is_file():
            raise UserError(
                Problem("no such file", given, remedy=f"name a definition of {kind}/, or its file")
            )
        return load_definition(model, Path(given))

    def _site(self, plan: ExperimentPlan, source: Source) -> Site | None:
        name = plan.site or "default"
        if plan.site is None and "default" not in self.catalog.names("sites"):
            return Site(name="default", description="built in: no `hpcbench init` was run")
        return self._find(Site, name, source, ("site",))

    def _find(
        self, model: type[DefinitionT], name: str, asked_in: Source, loc: Loc
    ) -> DefinitionT | None:
        """The definition, with absolute paths, checked; None and a problem if there is none."""
        key = (FOLDERS[model], name)
        if key not in self._resolved:
            found = self._try(lambda: self.catalog.get_with_source(model, name, (asked_in, loc)))
            if found is None:
                return None
            self.origins[f"{key[0]}/{found[0].name}"] = self._origin(*key)
            self._resolved[key] = self._placed(*found), found[1]
        return self._resolved[key][0]  # type: ignore[return-value]

    def _placed(self, definition: DefinitionT, source: Source, loc: Loc = ()) -> DefinitionT:
        """A definition, at its place in a file, with absolute paths and the texts of its files, checked."""
        placed: Definition = with_absolute_paths(definition, source)
        if isinstance(placed, Prompt):
            placed = self._with_collection(placed, source, loc)
        self.checks.definition(placed, source, loc)
        if isinstance(placed, Model):
            placed = self._image(_with_template(placed), source, ("image",))
        if isinstance(placed, Metric | MLTask) and placed.image and not is_reference(placed.image):
            reference = self._of_definition(placed.image, source, ("image",))
            placed = placed.model_copy(update={"image": reference})
        return placed  # type: ignore[return-value]

    def _origin(self, kind: str, name: str) -> str:
        return " + ".join(map(str, self.catalog.files(kind, name)))

    def _try(self, look_up: Callable[[], ResultT]) -> ResultT | None:
        try:
            return look_up()
        except UserError as error:
            self.problems.extend(error.problems)
            return None

    def _unused_settings(self) -> None:
        for setting in self.catalog.settings:
            if setting.definition is not None and not self._used(setting.definition):
                self.problems.append(
                    Problem(
                        f"the plan does not use {setting.definition}",
                        f"--set {setting.text}",
                        1,
                        1,
                        "check the name",
                    )
                )

    def _used(self, definition: str) -> bool:
        """Whether the plan uses `KIND/NAME`."""
        kind, _, name = definition.partition("/")
        found = self._try(lambda: self.catalog.files(kind, name))
        return bool(found) and " + ".join(map(str, found or ())) in self.origins.values()


def _ordered(problems: Sequence[Problem], first: Path | None = None) -> list[Problem]:
    """Each problem once, file by file from top to bottom; the plan's own file first."""
    once = list(dict.fromkeys(problems))
    files = list(dict.fromkeys([str(first), *(one.file for one in once)]))
    return sorted(once, key=lambda one: (files.index(one.file), one.line or 0, one.column or 0))


def _places(one: Written) -> Places:
    """Places in a run task of values that only a check of the data can find wrong."""
    metrics = [(*one.where("metrics"), index) for index in range(len(one.task.metrics))]
    locs = {
        "model": one.where("model"),
        "max_tokens": (*one.where("generation"), "max_tokens"),
        "metrics": one.where("metrics") if metrics else one.where("ml_task"),
        **dict(zip(map(_column, one.task.metrics), metrics, strict=True)),
    }
    found = {key: one.source.place(loc) for key, loc in locs.items()}
    return Places({key: (str(file), line, column) for key, (file, line, column) in found.items()})


def _column(entry: str | MetricVersion) -> str:
    """Name of a metric's scores."""
    return entry if isinstance(entry, str) else entry.column


def _with_template(model: Model) -> Model:
    """The model with its chat template's text: the file may change before the engine starts."""
    if model.chat_template is None:
        return model
    try:
        text = read_text(Path(model.chat_template))
    except UserError:
        return model  # the checks report it
    return model.model_copy(update={"chat_template": text})
