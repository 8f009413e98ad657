"""The resolver of plans: each run task with every definition that it names; mistakes are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.registry import agent_models, judging
from hpcbench.registry.authors_way import asked_as_its_authors_do, with_reasoning_parser
from hpcbench.registry.auto_concurrency import auto
from hpcbench.registry.auto_stream_interval import with_numbers
from hpcbench.registry.catalog import FOLDERS, Catalog
from hpcbench.registry.definition_names import named
from hpcbench.registry.engine_limits import limits_of
from hpcbench.registry.expansion import (
    Where,
    WrittenRunTask,
    after_all,
    below,
    cells,
    circles,
    expanded,
    limited,
    twice,
)
from hpcbench.registry.fitting_metrics import JUDGE, first_scores, is_resource
from hpcbench.registry.lookup import Lookup, ordered
from hpcbench.registry.model_choice import chosen
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.registry.resource_shapes import largest_node, replicated, spread
from hpcbench.registry.source import Loc, Source, Unfit
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.experiment_plan import Evaluation, ExperimentPlan
from hpcbench.schema.gate import Gate
from hpcbench.schema.metric import Metric, MetricVersion
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.outputs import Report
from hpcbench.schema.plan import Places, ResolvedPlan, ResolvedRunTask
from hpcbench.schema.prompt import Language, Prompt
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site


class Resolver(Lookup):
    """Resolves a plan, or checks all definitions of the registries."""

    def __init__(self, catalog: Catalog, *, locks: bool = True) -> None:
        super().__init__(catalog, locks=locks)
        self.expanded: list[RunTask] = []
        """Run tasks of the checked plan."""
        self.scoring: str | None = None
        """Reference of the image of the plan's evaluation."""

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
                    self.attempt(look_up)
            whole = ordered([*error.problems, *self.problems], error.source.path)
            raise UserError(*whole) from error

    def plan(self, plan: ExperimentPlan, source: Source) -> ResolvedPlan:
        """The plan with all its names resolved."""
        site = self._site(plan, source)
        plan = with_absolute_paths(plan, source)
        if site is not None and site.container.gpu_maker == "nvidia":
            self.driver = site.container.cuda
        self.scoring = self.scoring_image(plan.evaluation.image, source, ("evaluation", "image"))
        plan = plan.model_copy(update={"evaluation": Evaluation(image=self.scoring)})
        whole = judging.in_order(list(self._written(plan, source)))
        judges = [one.task.judge for one in whole if one.task.judge is not None]
        self.checks.rated = {name for judge in judges for name in judge.judged}
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
            self.problems += _beyond_one_machine(found)
        reports = self._reports(plan, source, written)
        gate = self.find(Gate, plan.gate, source, ("gate",)) if plan.gate is not None else None
        at_once = [self._with_at_once(one, gate) for one in found if one is not None]
        run_tasks = with_numbers(at_once)
        self.checks.plan(plan, source, cluster)
        self.checks.budget(plan, run_tasks, source)
        self.checks.prompts.conditions()
        self._unused_settings()
        if self.problems or site is None:
            raise UserError(*ordered(self.problems, source.path))
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
        whole: Sequence[WrittenRunTask],
        by_name: Mapping[str, Sequence[WrittenRunTask]],
        written: Sequence[WrittenRunTask],
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
            raise UserError(*ordered(self.problems))
        return count

    def one(self, model: type[Definition], name: str) -> None:
        """Check one definition of a registry and the definitions it names."""
        found = self.attempt(lambda: self.catalog.get_with_source(model, name))
        if found is None:
            return
        definition, source = found
        if self._rests_on_own(definition, source):
            return
        if isinstance(definition, RunTask):
            for one in expanded(WrittenRunTask(definition, source, below(()), (source, ()))):
                self._run_task(one, None)
        elif isinstance(definition, ExperimentPlan):
            image = with_absolute_paths(definition, source).evaluation.image
            self.scoring = self.scoring_image(image, source, ("evaluation", "image"))
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

    def _written(self, plan: ExperimentPlan, source: Source) -> Iterator[WrittenRunTask]:
        for index, entry in enumerate(plan.run_tasks):
            loc: Loc = ("run_tasks", index)
            if isinstance(entry, RunTask):
                yield WrittenRunTask(entry, source, below(loc), (source, (*loc, "name")))
                continue
            found = self.attempt(
                lambda name=entry, loc=loc: self.catalog.get_with_source(  # type: ignore[misc]
                    RunTask, name, (source, loc)
                )
            )
            if found is not None:
                task, own = found
                self.origins[f"run_tasks/{task.name}"] = self.origin("run_tasks", str(entry))
                yield WrittenRunTask(task, own, below(()), (source, loc))
        for index, matrix in enumerate(plan.matrix):
            yield from cells(matrix, source, ("matrix", index), self.problems)

    def _only(
        self, plan: ExperimentPlan, source: Source, written: list[WrittenRunTask]
    ) -> list[WrittenRunTask]:
        """The run tasks that the plan's `only` names, if it names any."""
        names = [one.task.name for one in written]
        for index, name in enumerate(plan.only):
            if name not in names:
                what = unknown("run task", name, names, of="this plan")
                self.problems.append(source.problem(("only", index), what))
        return [one for one in written if not plan.only or one.task.name in plan.only]

    def _run_task(self, one: WrittenRunTask, site: Site | None) -> ResolvedRunTask | None:
        task, source, where = one.task, one.source, one.where
        ml_task = self.find(MLTask, task.ml_task, source, where("ml_task"))
        model = self._model(task, source, where)
        dataset = self.find(Dataset, task.dataset, source, where("dataset"))
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
            metric_packages=self.metric_packages(metrics, ml_task),
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

    def _with_at_once(self, run_task: ResolvedRunTask, gate: Gate | None) -> ResolvedRunTask:
        """The run task with the number for its `concurrency: auto`."""
        engine = self.checks.plugins.loaded("engines", run_task.model.engine)
        found = self.attempt(lambda: auto(run_task, engine, gate))
        return run_task.model_copy(update={"at_once": found})

    def _with_split(self, dataset: Dataset, split: str | None) -> Dataset:
        if split is None or split == dataset.split:
            return dataset
        # The definition's number of samples belongs to the definition's split.
        return dataset.model_copy(update={"split": split, "samples": None})

    def _model(self, task: RunTask, source: Source, where: Where) -> Model | None:
        if isinstance(task.model, str):
            return self.find(Model, task.model, source, where("model"))
        choice, loc = task.model, where("model")
        if not self.catalog.files("models", choice.name) and choice.engine is not None:
            base: Model | None = Model(
                name=choice.name, source=f"hf://{choice.name}", engine=choice.engine
            )
        else:
            base = self.find(Model, choice.name, source, (*loc, "name"))
        if base is None:
            return None
        changed = chosen(base, choice)
        if origin := self.origins.get(f"models/{base.name}"):
            self.origins[f"models/{changed.name}"] = origin
        placed = with_absolute_paths(changed, source) if choice.image else changed
        image = self.with_image(placed, source, (*loc, "image")) if choice.image else placed
        self.checks.choice(image, source, loc)
        return image

    def _scores_in(self, metric: Metric, ml_task: MLTask) -> Metric:
        """The metric with the image in which it scores for an ML task; one of resources scores in none."""
        if is_resource(metric):
            return metric
        image = metric.image or ml_task.image or self.scoring
        return metric if image == metric.image else metric.model_copy(update={"image": image})

    def _prompts(
        self, task: RunTask, ml_task: MLTask, dataset: Dataset, source: Source, where: Where
    ) -> dict[Language, Prompt]:
        """Language → prompt, the first one until the dataset's language is known; empty: there is none."""
        given = task.prompt or ml_task.prompt
        if isinstance(given, Prompt):
            if task.prompt:
                return {"en": self.placed(given, source, where("prompt"))}
            own = self.catalog.get_with_source(MLTask, ml_task.name)[1]
            return {"en": self.placed(given, own, ("prompt",))}
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
            language: self.find(Prompt, name, source, where("prompt"))
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
            metric = self.find(Metric, name, source, place)
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
        self, plan: ExperimentPlan, source: Source, written: Sequence[WrittenRunTask]
    ) -> tuple[Report, ...]:
        asked: dict[str, tuple[Source, Loc]] = {}
        for index, name in enumerate(plan.reports):
            asked.setdefault(name, (source, ("reports", index)))
        for one in written:
            for index, name in enumerate(one.task.reports):
                asked.setdefault(name, (one.source, (*one.where("reports"), index)))
        found = [self.find(Report, name, *place) for name, place in asked.items()]
        return tuple(report for report in found if report is not None)

    def _site(self, plan: ExperimentPlan, source: Source) -> Site | None:
        name = plan.site or "default"
        if plan.site is None and "default" not in self.catalog.names("sites"):
            return Site(name="default", description="built in: no `hpcbench init` was run")
        return self.find(Site, name, source, ("site",))

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
        found = self.attempt(lambda: self.catalog.files(kind, name))
        return bool(found) and " + ".join(map(str, found or ())) in self.origins.values()


def _places(one: WrittenRunTask) -> Places:
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


def _beyond_one_machine(found: Iterable[ResolvedRunTask | None]) -> Iterator[Problem]:
    """Models that need several nodes, for a plan that runs on this machine."""
    for run_task in found:
        if run_task is not None and run_task.model.nodes > 1:
            what = f"model '{run_task.model.name}' needs {run_task.model.nodes} nodes"
            what += ", but `executor: local` is one machine"
            yield run_task.problem("model", what, "use `executor: slurm`")


def _column(entry: str | MetricVersion) -> str:
    """Name of a metric's scores."""
    return entry if isinstance(entry, str) else entry.column
