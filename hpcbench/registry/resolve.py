"""Plan in, resolved plan out: every name looked up, every cross-reference checked, all mistakes at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.files.user import read_text
from hpcbench.registry.auto_concurrency import auto
from hpcbench.registry.catalog import FOLDERS, Catalog, RunMode, load_document
from hpcbench.registry.collections import read_collection
from hpcbench.registry.cross_checks import Checks
from hpcbench.registry.document_names import named
from hpcbench.registry.paths import is_reference, with_absolute_paths
from hpcbench.registry.settings import read_settings
from hpcbench.registry.source import Loc, Source, Unfit, parse, validate
from hpcbench.schema.documents import (
    KINDS,
    Cell,
    Dataset,
    Document,
    ExperimentPlan,
    Gate,
    Image,
    Load,
    Matrix,
    Metric,
    MLTask,
    Model,
    ModelChoice,
    Prompt,
    Report,
    RunTask,
    RunTaskSettings,
    Site,
)
from hpcbench.schema.plan import Places, ResolvedPlan, ResolvedRunTask

DocumentT = TypeVar("DocumentT", bound=Document)
ResultT = TypeVar("ResultT")

LONGEST_NAME = 80
"""Of a run task; a longer one made by a matrix, repeats or a sweep is cut and made unique by a hash."""

OPEN_LOOP = 1024
"""Most requests in flight of a point with a rate: it bounds the client's memory, not the load."""

Where = Callable[[str], Loc]
"""Key of a run task → where the plan says it."""


def load_plan(
    path: Path,
    registries: Sequence[Path] = (),
    settings: Sequence[str] = (),
    mode: RunMode | None = None,
    *,
    locks: bool = True,
) -> ResolvedPlan:
    """Read a plan and everything it names.

    Args:
        path: the plan's YAML file.
        registries: further registries; the last one wins.
        settings: `[KIND/NAME:]path.to.key=value`, the last overlay.
        mode: prod or dev; none: RUN_MODE of the environment.
        locks: whether prod asks for locks; whoever only looks needs none.

    Raises:
        UserError: every mistake found in the plan and the documents it names.
    """
    catalog = Catalog(registries, mode=mode, settings=read_settings(settings))
    resolver = _Resolver(catalog, locks=locks)
    return resolver.plan(*resolver.read(lambda: catalog.plan(path)))


def load_model(given: str, registries: Sequence[Path] = (), mode: RunMode | None = None) -> Model:
    """A model alone, by the name of its document or by its file, with all it names filled in.

    Locks are not asked for: nothing that is kept comes of it.

    Raises:
        UserError: every mistake found in the document and those it names.
    """
    return _Resolver(Catalog(registries, mode=mode), locks=False).model(given)


def load_site(name: str, mode: RunMode | None = None, settings: Sequence[str] = ()) -> Site | None:
    """The site profile of that name that this machine has of its own; None: it has none.

    Args:
        name: its name.
        mode: prod or dev; none: RUN_MODE of the environment.
        settings: as of `load_plan`.

    Raises:
        UserError: it is wrong.
    """
    catalog = Catalog(mode=mode, settings=read_settings(settings), project=False)
    return _Resolver(catalog, locks=False).site(name) if catalog.files("sites", name) else None


def load_gate(given: str, registries: Sequence[Path] = (), mode: RunMode | None = None) -> Gate:
    """A gate's policy alone, by the name of its document or by its file.

    Raises:
        UserError: every mistake found in the document.
    """
    return _Resolver(Catalog(registries, mode=mode), locks=False).gate(given)


@dataclass(frozen=True, slots=True)
class Look:
    """What is found in one document, right or wrong."""

    problems: tuple[Problem, ...] = ()
    """All mistakes in it and in those it names; empty: it is right."""
    run_tasks: tuple[RunTask, ...] = ()
    """What a plan comes to, as far as it can be read."""
    resolved: ResolvedPlan | None = None
    """A plan that is right."""


def look(kind: str, path: Path, catalog: Catalog) -> Look:
    """Check one document by its file as far as it goes, and raise nothing for what is wrong in it.

    Args:
        kind: its kind, a folder of a registry; a plan may lie anywhere.
        path: its file, as the catalog calls it.
        catalog: where names are looked up.
    """
    if kind == "experiments":
        return _look_at_plan(_Resolver(catalog), lambda: catalog.plan(path), path)
    resolver = _Resolver(catalog, locks=False)
    try:
        if (name := catalog.name(kind, path)) is not None:
            resolver.one(KINDS[kind], name)
            resolver.checks.conditions()
        else:
            resolver.problems.append(Problem(f"stands in no registry's {kind}/", str(path), 1, 1))
    except UserError as error:
        resolver.problems.extend(error.problems)
    return Look(tuple(_ordered(resolver.problems, path)))


def look_at_text(text: str, path: Path, catalog: Catalog, *, locks: bool = True) -> Look:
    """Check a plan that is not written yet, as `look` checks one that is.

    Args:
        text: its YAML.
        path: the file that it is meant for: its paths are relative to it, and problems name it.
        catalog: where names are looked up.
        locks: whether prod asks for locks.
    """

    def read_plan() -> tuple[ExperimentPlan, Source]:
        source = parse(path, text)
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


def check_registries(registries: Sequence[Path] = (), mode: RunMode | None = None) -> int:
    """Read every document of the search path and check what it names; returns how many there are.

    Locks are not asked for: a document may wait for its digest until a plan uses it.

    Raises:
        UserError: every mistake found.
    """
    return _Resolver(Catalog(registries, mode=mode), locks=False).everything()


@dataclass(frozen=True, slots=True)
class _Written:
    """A run task as a plan says it, in whatever way."""

    task: RunTask
    source: Source
    """The file it stands in."""
    where: Where
    asked: tuple[Source, Loc]
    """Where the plan names it."""
    sweep: str | None = None
    """The run task whose sweep it is a point of."""


class _Resolver:
    """Collects problems instead of stopping at the first."""

    def __init__(self, catalog: Catalog, *, locks: bool = True) -> None:
        self.catalog = catalog
        self.problems: list[Problem] = []
        self.checks = Checks(catalog, self.problems, locks=locks)
        self.origins: dict[str, str] = {}
        self.images: dict[str, Image] = {}
        """Reference → the `images/` document that stands for it."""
        self.expanded: list[RunTask] = []
        """Run tasks of the plan that was looked at."""
        self._resolved: dict[tuple[str, str], tuple[Document, Source]] = {}

    def read(
        self, read_plan: Callable[[], tuple[ExperimentPlan, Source]]
    ) -> tuple[ExperimentPlan, Source]:
        """A plan; one that does not fit the schema is looked through for names that stand for nothing, too.

        Raises:
            UserError: every mistake found.
        """
        try:
            return read_plan()
        except Unfit as error:
            known = {(one.line, one.column) for one in error.problems}
            for model, name, loc in named(error.source.data):
                place = error.source.place(loc)
                if place[1:] not in known:  # that it is no name at all is said
                    look_up = partial(
                        self.catalog.get_with_source, model, name, (error.source, loc)
                    )
                    self._try(look_up)
            whole = _ordered([*error.problems, *self.problems], error.source.path)
            raise UserError(*whole) from error

    def plan(self, plan: ExperimentPlan, source: Source) -> ResolvedPlan:
        """The plan with all its names resolved."""
        site = self._site(plan, source)
        whole = list(self._written(plan, source))
        self._circles(whole)
        expanded = {
            entry.task.name: list(_expanded(_limited(entry, plan.limit), plan.load))
            for entry in self._only(plan, source, whole)
        }
        written = [_after(point, expanded) for own in expanded.values() for point in own]
        self.expanded = [one.task for one in written]
        self._unique(whole)
        self._unique(written)
        if not written and not self.problems:
            self.problems.append(source.problem((), "a plan needs 'run_tasks' or a 'matrix'"))
        executor = plan.executor or (site.executor if site is not None else "local")
        cluster = site if executor == "slurm" else None
        found = [self._run_task(one, cluster) for one in written]
        reports = self._reports(plan, source, written)
        gate = self._find(Gate, plan.gate, source, ("gate",)) if plan.gate is not None else None
        run_tasks = [self._with_at_once(one, gate) for one in found if one is not None]
        self.checks.plan(plan, source)
        self.checks.conditions()
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
            packages=dict(sorted(self.checks.packages.items())),
            origins=dict(sorted({**self.origins, **self.checks.origins}.items())),
            images=self.images,
        )

    def everything(self) -> int:
        """Check all documents there are."""
        count = 0
        for model, kind in FOLDERS.items():
            for name in self.catalog.names(kind):
                count += 1
                self.one(model, name)
        self.checks.conditions()
        if self.problems:
            raise UserError(*_ordered(self.problems))
        return count

    def one(self, model: type[Document], name: str) -> None:
        """Check one document of a registry and what it names."""
        found = self._try(lambda: self.catalog.get_with_source(model, name))
        if found is None:
            return
        document, source = found
        if isinstance(document, RunTask):
            for one in _expanded(_Written(document, source, _below(()), (source, ()))):
                self._run_task(one, None)
        elif isinstance(document, ExperimentPlan):
            written = self._only(document, source, list(self._written(document, source)))
            self._unique(written)
            for one in written:
                self._run_task(one, None)
            self.checks.plan(document, source)
        else:
            self.checks.document(document, source)

    # --- run tasks, in whatever way they are written -----------------------------------------------

    def _written(self, plan: ExperimentPlan, source: Source) -> Iterator[_Written]:
        for index, entry in enumerate(plan.run_tasks):
            loc: Loc = ("run_tasks", index)
            if isinstance(entry, RunTask):
                yield _Written(entry, source, _below(loc), (source, (*loc, "name")))
                continue
            found = self._try(
                lambda name=entry, loc=loc: self.catalog.get_with_source(  # type: ignore[misc]
                    RunTask, name, (source, loc)
                )
            )
            if found is not None:
                task, own = found
                self.origins[f"run_tasks/{entry}"] = self._origin("run_tasks", str(entry))
                yield _Written(task, own, _below(()), (source, loc))
        for index, matrix in enumerate(plan.matrix):
            yield from self._cells(matrix, source, ("matrix", index))

    def _cells(self, matrix: Matrix, source: Source, loc: Loc) -> Iterator[_Written]:
        """All cells of a matrix that are not excluded, then what it includes beside them."""
        settings = {name: getattr(matrix, name) for name in RunTaskSettings.model_fields}
        unused = set(range(len(matrix.exclude)))
        for m, model in enumerate(matrix.models):
            for d, dataset in enumerate(matrix.datasets):
                for p, prompt in enumerate(matrix.prompts or (None,)):
                    out = [
                        number
                        for number, cell in enumerate(matrix.exclude)
                        if _matches(cell, model, dataset, prompt)
                    ]
                    unused.difference_update(out)
                    if out:
                        continue
                    parts = [
                        model,
                        dataset,
                        *([prompt] if prompt and len(matrix.prompts) > 1 else []),
                    ]
                    task = RunTask.model_construct(
                        **{
                            **settings,
                            "name": _cell_name(parts),
                            "model": model,
                            "dataset": dataset,
                            "prompt": prompt,
                        }
                    )
                    at = {
                        "name": loc,
                        "model": (*loc, "models", m),
                        "dataset": (*loc, "datasets", d),
                        "prompt": (*loc, "prompts", p) if prompt else loc,
                    }
                    yield _Written(task, source, _cell_where(loc, at), (source, at["model"]))

        for number in sorted(unused):
            self.problems.append(
                source.problem((*loc, "exclude", number), "excludes no cell of this matrix")
            )
        for number, task in enumerate(matrix.include):
            at_task: Loc = (*loc, "include", number)
            yield _Written(task, source, _below(at_task), (source, (*at_task, "name")))

    def _only(
        self, plan: ExperimentPlan, source: Source, written: list[_Written]
    ) -> list[_Written]:
        """Those that the plan's `only` names, if it names any."""
        names = [one.task.name for one in written]
        for index, name in enumerate(plan.only):
            if name not in names:
                what = unknown("run task of this plan", name, names)
                self.problems.append(source.problem(("only", index), what))
        return [one for one in written if not plan.only or one.task.name in plan.only]

    def _circles(self, written: Sequence[_Written]) -> None:
        """`after` names run tasks of the plan, and none comes after itself."""
        after = {one.task.name: one.task.after for one in written}
        for one in written:
            for index, name in enumerate(one.task.after):
                loc = (*one.where("after"), index)
                if name not in after:
                    what = unknown("run task of this plan", name, list(after))
                    self.problems.append(one.source.problem(loc, what))
                elif one.task.name in _before(name, after):
                    what = f"'{one.task.name}' is to come after '{name}', which comes after it"
                    self.problems.append(one.source.problem(loc, what))

    def _unique(self, written: Sequence[_Written]) -> None:
        seen: set[str] = set()
        for one in written:
            if one.task.name in seen:
                source, loc = one.asked
                self.problems.append(
                    source.problem(loc, f"run task '{one.task.name}' stands twice")
                )
            seen.add(one.task.name)

    def _run_task(self, one: _Written, site: Site | None) -> ResolvedRunTask | None:
        task, source, where = one.task, one.source, one.where
        ml_task = self._find(MLTask, task.ml_task, source, where("ml_task"))
        model = self._model(task, source, where)
        dataset = self._find(Dataset, task.dataset, source, where("dataset"))
        if ml_task is None or model is None or dataset is None:
            return None
        prompt = self._prompt(task, ml_task, source, where)
        metrics = self._metrics(task, ml_task, source, where)
        if prompt is None:
            return None
        resolved = ResolvedRunTask.model_construct(
            task=_with_max_tokens(task, ml_task),
            ml_task=ml_task,
            model=model.model_copy(update={"gpus": self.checks.gpus(model)}),
            dataset=self._with_split(dataset, task.split),
            prompt=prompt,
            metrics=metrics,
            engine_packages=self.checks.engine_packages(model),
            sweep=one.sweep,
            places=_places(one),
        )
        self.checks.run_task(resolved, source, where, site)
        return resolved

    def _with_at_once(self, run_task: ResolvedRunTask, gate: Gate | None) -> ResolvedRunTask:
        """The run task with what its `concurrency: auto` comes to."""
        engine = self.checks.engine(run_task.model)
        found = self._try(lambda: auto(run_task, engine, gate))
        return run_task.model_copy(update={"at_once": found})

    def _with_split(self, dataset: Dataset, split: str | None) -> Dataset:
        if split is None or split == dataset.split:
            return dataset
        # Its number of samples is that of the split that the document names.
        return dataset.model_copy(update={"split": split, "samples": None})

    # --- what a run task names ---------------------------------------------------------------------

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
        changed = _chosen(base, choice)
        placed = with_absolute_paths(changed, source) if choice.image else changed
        image = self._image(placed, source, (*loc, "image")) if choice.image else placed
        self.checks.choice(image, source, loc)
        return image

    def _image(self, model: Model, source: Source, loc: Loc) -> Model:
        """The model with an `images/` document's name replaced by what that document refers to."""
        name = model.image
        if name is None or is_reference(name):
            return model
        image = self._find(Image, name, source, loc)
        if image is None:
            return model
        reference = self.checks.image(image, model, source, loc)
        if reference is not None:
            self.images[reference] = image
        return model.model_copy(update={"image": reference})

    def _with_collection(self, prompt: Prompt, source: Source) -> Prompt:
        """The prompt with the entries of its file: the file may change before a worker reads it."""
        if prompt.collection is None:
            return prompt
        try:
            entries = read_collection(Path(prompt.collection))
        except UserError as error:
            self.problems.extend(error.problems)
            return prompt
        return prompt.model_copy(update={"prompts": (*prompt.prompts, *entries)})

    def _prompt(
        self, task: RunTask, ml_task: MLTask, source: Source, where: Where
    ) -> Prompt | None:
        name = task.prompt or ml_task.prompt
        if name is None:
            loc = where("name")
            self.problems.append(
                source.problem(
                    loc[:-1] if loc[-1:] == ("name",) else loc,
                    "key 'prompt' is missing and the ML task has no default",
                )
            )
            return None
        return self._find(Prompt, name, source, where("prompt"))

    def _metrics(
        self, task: RunTask, ml_task: MLTask, source: Source, where: Where
    ) -> tuple[Metric, ...]:
        found = []
        names = task.metrics or ml_task.default_metrics or ml_task.metrics
        for index, name in enumerate(names):
            place = (*where("metrics"), index)
            metric = self._find(Metric, name, source, place)
            if metric is None:
                continue
            found.append(metric)
            self.checks.metric_fits(metric, ml_task, source, place)
        return tuple(found)

    def _reports(
        self, plan: ExperimentPlan, source: Source, written: Sequence[_Written]
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
        document, source = self._named_or_file(Model, given)
        found = self._placed(document, source)
        if self.problems:
            raise UserError(*_ordered(self.problems, source.path))
        return found.model_copy(update={"gpus": self.checks.gpus(found)})

    def gate(self, given: str) -> Gate:
        """A gate's policy without a plan."""
        document, source = self._named_or_file(Gate, given)
        self.checks.document(document, source)
        if self.problems:
            raise UserError(*_ordered(self.problems, source.path))
        return document

    def site(self, name: str) -> Site:
        """A site profile without a plan."""
        found = self._placed(*self.catalog.get_with_source(Site, name))
        if self.problems:
            raise UserError(*_ordered(self.problems))
        return found

    def _named_or_file(self, model: type[DocumentT], given: str) -> tuple[DocumentT, Source]:
        """A document by its name, with or without its kind, or by its file."""
        kind = FOLDERS[model]
        if not given.endswith((".yaml", ".yml")):
            return self.catalog.get_with_source(model, given.removeprefix(f"{kind}/"))
        if not Path(given).is_file():
            raise UserError(Problem("no such file", given, remedy=f"name a {kind}/ document"))
        return load_document(model, Path(given))

    def _site(self, plan: ExperimentPlan, source: Source) -> Site | None:
        name = plan.site or "default"
        if plan.site is None and "default" not in self.catalog.names("sites"):
            return Site(name="default", description="built in: no `hpcbench init` was run")
        return self._find(Site, name, source, ("site",))

    def _find(
        self, model: type[DocumentT], name: str, asked_in: Source, loc: Loc
    ) -> DocumentT | None:
        """The document, its paths absolute, itself checked; None and a problem if there is none."""
        key = (FOLDERS[model], name)
        if key not in self._resolved:
            found = self._try(lambda: self.catalog.get_with_source(model, name, (asked_in, loc)))
            if found is None:
                return None
            self.origins["/".join(key)] = self._origin(*key)
            self._resolved[key] = self._placed(*found), found[1]
        return self._resolved[key][0]  # type: ignore[return-value]

    def _placed(self, document: DocumentT, source: Source) -> DocumentT:
        """A document with absolute paths and the texts of files it names, checked."""
        placed: Document = with_absolute_paths(document, source)
        if isinstance(placed, Prompt):
            placed = self._with_collection(placed, source)
        self.checks.document(placed, source)
        if isinstance(placed, Model):
            placed = self._image(_with_template(placed), source, ("image",))
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
            if setting.document is not None and setting.document not in self.origins:
                self.problems.append(
                    Problem(
                        f"the plan uses no document {setting.document}",
                        f"--set {setting.text}",
                        1,
                        1,
                    )
                )


def _ordered(problems: Sequence[Problem], first: Path | None = None) -> list[Problem]:
    """Each once, file by file from top to bottom; the plan's own file first."""
    once = list(dict.fromkeys(problems))
    files = list(dict.fromkeys([str(first), *(one.file for one in once)]))
    return sorted(once, key=lambda one: (files.index(one.file), one.line or 0, one.column or 0))


def _before(name: str, after: Mapping[str, Sequence[str]]) -> set[str]:
    """A run task and all that it comes after, near and far."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += after.get(one, ())
    return found


def _after(one: _Written, expanded: Mapping[str, Sequence[_Written]]) -> _Written:
    """With the names of every repeat and point of what it comes after; what the plan leaves out is done."""
    names = [other.task.name for name in one.task.after for other in expanded.get(name, ())]
    if tuple(names) == one.task.after:
        return one
    return replace(one, task=one.task.model_copy(update={"after": tuple(names)}))


def _places(one: _Written) -> Places:
    """Where a run task says what is only found to be wrong once the data is looked at."""
    metrics = [(*one.where("metrics"), index) for index in range(len(one.task.metrics))]
    locs = {
        "model": one.where("model"),
        "max_tokens": (*one.where("generation"), "max_tokens"),
        "metrics": one.where("metrics") if metrics else one.where("ml_task"),
        **dict(zip(one.task.metrics, metrics, strict=True)),
    }
    found = {key: one.source.place(loc) for key, loc in locs.items()}
    return Places({key: (str(file), line, column) for key, (file, line, column) in found.items()})


def _below(loc: Loc) -> Where:
    return lambda key: (*loc, key)


def _cell_where(loc: Loc, at: Mapping[str, Loc]) -> Where:
    return lambda key: at.get(key, (*loc, key))


def _with_max_tokens(task: RunTask, ml_task: MLTask) -> RunTask:
    """With the ML task's `max_tokens`, unless the run task says how many."""
    own = task.generation
    if ml_task.max_tokens is None or "max_tokens" in own.model_fields_set:
        return task
    generation = own.model_copy(update={"max_tokens": ml_task.max_tokens})
    return task.model_copy(update={"generation": generation})


def _limited(one: _Written, limit: int | None) -> _Written:
    """With at most so many samples."""
    own = one.task.limit
    if limit is None or (own is not None and own <= limit):
        return one
    return replace(one, task=one.task.model_copy(update={"limit": limit}))


def _expanded(one: _Written, load: Load | None = None) -> Iterator[_Written]:
    """A run task as often as it is to be asked, at every load of its sweep; `load` instead of its own."""
    for repeat in _repeats(one):
        yield from _points(repeat, load or repeat.task.load)


def _repeats(one: _Written) -> Iterator[_Written]:
    """A run task asked n times is n run tasks that differ in seed."""
    task = one.task
    if task.repeats == 1:
        yield one
        return
    for number in range(task.repeats):
        generation = task.generation.model_copy(
            update={"seed": (task.generation.seed or 0) + number}
        )
        name = _cut(f"{task.name}-r{number + 1}")
        update = {"name": name, "repeats": 1, "generation": generation}
        yield replace(one, task=task.model_copy(update=update))


def _points(one: _Written, load: Load | None) -> Iterator[_Written]:
    """A run task at n loads is n run tasks that differ in how requests are sent."""
    task = one.task
    if load is None or not (load.concurrency or load.rate):
        yield replace(
            one, task=task.model_copy(update={"load": load})
        )  # no points: the checks tell
        return
    limits = [limit for limit in (task.limit, load.requests) if limit is not None]
    shared: dict[str, Any] = {
        "load": load,
        "limit": min(limits, default=None),
        "arrival": load.arrival,
        "warm_up": load.warm_up,
        "slo": load.slo,
    }
    # A rate always shows its point, `-r2.0`: `-r2` is the second repeat.
    points: list[tuple[str, int, float | None]] = [
        *((f"c{count}", count, None) for count in load.concurrency),
        *((f"r{float(rate)}", OPEN_LOOP, rate) for rate in load.rate),
    ]
    for mark, concurrency, rate in points:
        own = {"name": _cut(f"{task.name}-{mark}"), "concurrency": concurrency, "rate": rate}
        yield replace(one, task=task.model_copy(update={**shared, **own}), sweep=task.name)


def _matches(cell: Cell, model: str, dataset: str, prompt: str | None) -> bool:
    given = ((cell.model, model), (cell.dataset, dataset), (cell.prompt, prompt))
    return any(wanted for wanted, _ in given) and all(
        wanted in (None, name) for wanted, name in given
    )


def _cell_name(parts: Sequence[str]) -> str:
    return _cut(re.sub(r"[^A-Za-z0-9._-]", ".", "-".join(parts)))


def _cut(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _chosen(model: Model, choice: ModelChoice) -> Model:
    """The model with a run task's changes; called so that two different ones never share a name."""
    update: dict[str, Any] = {
        key: value
        for key, value in (("engine", choice.engine), ("image", choice.image))
        if value is not None
    }
    if choice.engine_options:
        update["engine_options"] = {**model.engine_options, **choice.engine_options}
    if choice.env:
        update["env"] = {**model.env, **choice.env}
    if not update:
        return model
    mark = hashlib.sha256(repr(sorted(update.items())).encode()).hexdigest()[:6]
    return model.model_copy(update={**update, "name": f"{model.name}.{mark}"})


def _with_template(model: Model) -> Model:
    """The model with its chat template's text: the file may change before the engine starts."""
    if model.chat_template is None:
        return model
    try:
        text = read_text(Path(model.chat_template))
    except UserError:
        return model  # told by the checks
    return model.model_copy(update={"chat_template": text})
