"""Cross-checks: a definition compared with the definitions that it names, plugins and site. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, Problem, UserError, nearest, unknown
from hpcbench.registry import sites
from hpcbench.registry.agent_checks import AgentChecks
from hpcbench.registry.budget_checks import mistakes
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.database_address import problems
from hpcbench.registry.engine_limits import beyond
from hpcbench.registry.fitting_metrics import JUDGE, fits, measures, metrics_of
from hpcbench.registry.model_checks import ModelChecks
from hpcbench.registry.paths import is_reference, with_absolute_paths
from hpcbench.registry.plugin_checks import Findings, PluginChecks, absent, failed
from hpcbench.registry.prompt_checks import PromptChecks
from hpcbench.registry.resource_shapes import misfits, too_short
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.agent import Agent
from hpcbench.schema.dataset import Dataset, Published
from hpcbench.schema.definition import Definition
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.gate import MEMORY_FIGURES, SPEED_FIGURES, Gate
from hpcbench.schema.image import Image
from hpcbench.schema.metric import Metric, MetricVersion
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Generation, Model
from hpcbench.schema.outputs import Notification, Report, Tracker
from hpcbench.schema.package import Package
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site

Where = Callable[[str], Loc]

STAGES = ("inference", "evaluation", "reporting")


def unfit(catalog: Catalog, dataset: Dataset, one: Published) -> str:
    """Why the run task that a published score names is not its measurement; empty: it is."""
    if one.run_task is None:
        return ""
    if not catalog.files("run_tasks", one.run_task):
        return unknown("definition", one.run_task, catalog.names("run_tasks"), of="run_tasks")
    task = catalog.get(RunTask, one.run_task)
    if catalog.key("datasets", task.dataset) != catalog.key("datasets", dataset.name):
        return f"run task '{task.name}' is one of dataset '{task.dataset}', not '{dataset.name}'"
    metrics = [entry if isinstance(entry, str) else entry.name for entry in task.metrics]
    if metrics and one.metric not in metrics:
        return f"run task '{task.name}' does not have metric '{one.metric}'"
    return ""


class Checks:
    """Finds contradictions; every definition is checked once.

    `plugins`, `models`, `prompts` and `agents` check their kinds; this class does the other checks, and sets
    the order.
    """

    def __init__(self, catalog: Catalog, problems: list[Problem], *, locks: bool = True) -> None:
        self.catalog, self.found = catalog, Findings(problems)
        self.plugins = PluginChecks(catalog, self.found, prod=catalog.mode == "prod" and locks)
        self.models = ModelChecks(self.plugins, self.found)
        self.prompts = PromptChecks(catalog, self.plugins, self.found)
        self.agents = AgentChecks(self.plugins, self.models, self.found)
        self.rated: set[str] = set()
        """Run tasks of the plan whose answers a judge rates."""

    def definition(self, definition: Definition, source: Source, loc: Loc = ()) -> None:
        """A definition by itself: its plugin, options, package, secrets, and the requirements of prod.

        Args:
            definition: the definition.
            source: its file.
            loc: its place there, of a prompt inside another definition.
        """
        if not self.found.first(type(definition), definition.name):
            return
        if isinstance(definition, MLTask):
            self.plugins.plugin("tasks", definition.plugin, source, ("plugin",))
            if definition.parser is not None:
                self.plugins.plugin("parsers", definition.parser, source, ("parser",))
            for index, entry in enumerate(definition.required_packages):
                self.plugins.package(entry, source, ("required_packages", index))
            self.scoring_image(definition, source)
            self._ml_task(definition, source)
            if isinstance(definition.agent, Agent):
                self.agents.agent(definition.agent, source, ("agent",))
        elif isinstance(definition, Model):
            self.plugins.plugin(
                "engines", definition.engine, source, ("engine",), definition.package
            )
            self.models.model(definition, source, ())
            self._model_tasks(definition, source)
        elif isinstance(definition, Dataset):
            self._dataset(definition, source)
        elif isinstance(definition, Metric):
            plugin = self.plugins.plugin(
                "metrics", definition.plugin, source, ("plugin",), definition.package,
                elsewhere=definition.image is not None,
            )  # fmt: skip
            self.plugins.options(plugin, definition.options, source, ("options",))
            self._version(plugin, definition, source)
            self.scoring_image(definition, source)
            if definition.image is not None and measures(plugin):
                what = f"metric '{definition.name}' reads no answer, so it scores in no image"
                self.found.say(source, ("image",), what, "remove `image`")
        elif isinstance(definition, Prompt):
            self.prompts.prompt(definition, source, loc)
        elif isinstance(definition, Report):
            plugin = self.plugins.plugin(
                "reports", definition.plugin, source, ("plugin",), definition.package
            )
            self.plugins.options(plugin, definition.options, source, ("options",))
        elif isinstance(definition, Package):
            self.plugins.locked(with_absolute_paths(definition, source), source, ("source",))
        elif isinstance(definition, Site):
            self._site(definition, source)
        elif isinstance(definition, Gate):
            self._gate(definition, source)
        elif isinstance(definition, Image) and not (definition.reference or definition.recipe):
            self.found.say(source, (), "an image needs a 'reference' or a 'recipe'")

    def choice(self, model: Model, source: Source, loc: Loc) -> None:
        """A model with a run task's changes."""
        if self.found.first("choice", model.name):
            self.plugins.plugin("engines", model.engine, source, (*loc, "engine"), model.package)
            self.models.model(model, source, loc)

    def scoring_image(self, definition: Metric | MLTask, source: Source) -> None:
        """The image of a metric or ML task by its reference; a name is checked where it is resolved."""
        if definition.image is not None and is_reference(definition.image):
            self.models.image(definition.image, source, ("image",))

    def image(
        self, image: Image, source: Source, loc: Loc, model: Model | None = None
    ) -> str | None:
        """The target of an image definition, checked against the model that will run in it."""
        if model is not None and image.engines and model.engine not in image.engines:
            listed = ", ".join(image.engines)
            self.found.say(
                source, loc, f"image '{image.name}' contains {listed}, not {model.engine}"
            )
        if image.reference is None:
            return image.recipe
        pinned = image.digest or "@sha256:" in image.reference
        if self.plugins.prod and image.reference.startswith("docker://") and not pinned:
            self.found.say(
                source, loc, f"image '{image.name}' is not locked: its definition has no digest",
                f"run `hpcbench images lock {image.name}`, which writes it, or set RUN_MODE=dev",
            )  # fmt: skip
        if image.digest is None or not image.reference.startswith("docker://"):
            return image.reference
        return f"{image.reference.partition('@')[0]}@{image.digest}"

    def metric_fits(self, metric: Metric, ml_task: MLTask, source: Source, loc: Loc) -> None:
        """Check that a metric belongs to the ML task and can score the form that answers are read into."""
        if not self.found.first("fits", metric.name, ml_task.name):
            return
        listed = {self.catalog.key("metrics", name) for name in ml_task.metrics}
        if None in listed:
            return  # a name in the list is unknown: it may be this one
        if listed and self.catalog.key("metrics", metric.name) not in listed:
            self._not_listed("metric", metric.name, ml_task, ml_task.metrics, source, loc)
            return
        plugin = self.plugins.loaded("metrics", metric.plugin)
        accepts = getattr(plugin, "accepts", None)
        if accepts and not fits(accepts, ml_task):
            others = [name for name in metrics_of(self.catalog, ml_task) if name != metric.name]
            close = nearest(metric.name, others) or next(iter(ml_task.default_metrics), None)
            self.found.say(
                source, loc,
                f"metric '{metric.name}' scores {' or '.join(accepts)}, but ML task '{ml_task.name}' "
                f"reads answers into {ml_task.output}",
                f"name a metric that scores {ml_task.output}" + (f", such as {close}" if close else ""),
            )  # fmt: skip

    def metric_of_version(
        self, metric: Metric, entry: MetricVersion, source: Source, loc: Loc
    ) -> Metric:
        """The metric with one version of its code, under a name of its own.

        Its plugin has this version, or the plugin of the same name with `_vVERSION` has it.
        """
        found = metric.model_copy(update={"name": entry.column, "version": f"v{entry.version}"})
        own = _version_of(self.plugins.loaded("metrics", metric.plugin), metric)
        if own in (None, str(entry.version)):
            return found
        older = found.model_copy(update={"plugin": f"{metric.plugin}_v{entry.version}"})
        if not self.plugins.known("metrics", older.plugin):
            self.found.say(
                source, loc,
                f"metric '{metric.name}' has version {own} here, not {entry.version}, and there is no "
                f"plugin '{older.plugin}'",
                f"write `version: {own}`, or install a package that provides the older version",
            )  # fmt: skip
            return found
        plugin = self.plugins.plugin("metrics", older.plugin, source, loc, metric.package)
        self.plugins.options(plugin, metric.options, source, loc)
        self._version(plugin, older, source, loc)
        return older

    def run_task(
        self, resolved: ResolvedRunTask, source: Source, where: Where, site: Site | None
    ) -> None:
        """Check the run task's parts against each other."""
        task, ml_task, dataset = resolved.task, resolved.ml_task, resolved.dataset
        if self.found.first("fields", ml_task.name, dataset.name):
            needed = dict.fromkeys((*ml_task.sample_fields, ml_task.label_field))
            lacking = [name for name in needed if name and name not in dataset.fields]
            if lacking:
                self.found.say(
                    source, where("dataset"),
                    f"dataset '{dataset.name}' has no field {', '.join(map(repr, lacking))} "
                    f"that ML task '{ml_task.name}' needs",
                    "if every sample has it, list it under the dataset's `fields`",
                )  # fmt: skip
        self._narrowed(resolved, source, where)
        if ml_task.module is not None:
            self._own_module(resolved, source, where)
        if resolved.agent is not None:
            self.agents.run_task(resolved, source, where)
        self._judge(resolved, source, where)
        for prompt in (*resolved.default_prompts.values(),) or (resolved.prompt,):
            self.prompts.fits(
                resolved.model_copy(update={"prompt": prompt}), source, where("prompt")
            )
        if dataset.splits and task.split is not None and task.split not in dataset.splits:
            what = unknown("split", task.split, dataset.splits, of=f"dataset '{dataset.name}'")
            self.found.say(source, where("split"), what)
        self._generation(resolved, source, where)
        engine = self.plugins.loaded("engines", resolved.model.engine)
        if resolved.model.nodes > 1 and engine and not getattr(engine, "several_nodes", False):
            what = f"engine '{resolved.model.engine}' runs on one node, but model '{resolved.model.name}' "
            what += f"needs {resolved.model.nodes}"
            self.found.say(source, where("model"), what, "use `engine: vllm` or `engine: sglang`")
        self.found.problems += [resolved.problem(*one) for one in beyond(resolved, engine)]
        schema = ml_task.output_schema or ml_task.output_model
        if task.output_schema != "none" and schema is None:
            what = f"ML task '{ml_task.name}' has no output_schema to send"
            self.found.say(source, where("output_schema"), what, "write `output_schema: none`")
        self._choice_of_samples(task, dataset, source, where)
        self._load(task, source, where)
        for index, entry in enumerate(task.packages):
            self.plugins.package(entry, source, (*where("packages"), index))
        if site is not None:
            for key, below, message, remedy in misfits(resolved, site):
                self.found.say(source, (*where(key), *below), message, remedy)

    def _judge(self, resolved: ResolvedRunTask, source: Source, where: Where) -> None:
        """Check that a judge has an ML task of verdicts and a metric of its kind, and that no other has."""
        task, ml_task, judge = resolved.task, resolved.ml_task, resolved.task.judge
        if judge is None:
            if ml_task.plugin == JUDGE:
                what = f"ML task '{ml_task.name}' rates the answers of another run task"
                remedy = "add `judge: {of: RUN_TASK}`"
                self.found.say(source, where("ml_task"), what, remedy)
            return
        if ml_task.plugin != JUDGE:
            what = f"ML task '{ml_task.name}' reads no verdicts"
            remedy = "use `ml_task: judge_binary`, or another one of plugin `judge`"
            self.found.say(source, where("ml_task"), what, remedy)
            return
        allowed = _verdicts(ml_task.output_schema or {})
        if not allowed:
            what = f"ML task '{ml_task.name}' has no output_schema that requires a `verdict` with an `enum`"
            self.found.say(source, where("ml_task"), what, "see docs/judging.md")
        if resolved.agent is not None and not task.agent:
            self.found.say(
                source,
                where("ml_task"),
                f"ML task '{ml_task.name}' has an agent, which cannot judge",
            )
        for metric in resolved.metrics:
            pairs = metric.options.get("kind") == "pairwise"
            if metric.plugin == JUDGE and (strange := _unknown_to(metric, allowed)):
                what = f"ML task '{ml_task.name}' allows the verdict {strange}, but metric "
                what += f"'{metric.name}' has no value for it"
                remedy = "change the `enum`, or the metric's options"
                self.found.say(source, where("ml_task"), what, remedy)
            if metric.plugin == JUDGE and pairs != (judge.against is not None):
                first = "pairs" if pairs else "single answers"
                what = f"metric '{metric.name}' is for verdicts on {first}"
                remedy = "use `ml_task: judge_pairwise`, or remove `against`"
                remedy = "add `against: RUN_TASK`" if pairs else remedy
                self.found.say(source, where("judge"), what, remedy)

    def _narrowed(self, resolved: ResolvedRunTask, source: Source, where: Where) -> None:
        """Check what an ML task's definition narrows: engines, reports, the iterator of datasets."""
        ml_task, iterator, engine = (
            resolved.ml_task,
            resolved.dataset.iterator,
            resolved.model.engine,
        )
        known = all(self.plugins.known("engines", one) for one in ml_task.engines)
        if ml_task.engines and engine not in ml_task.engines and known:
            self._not_listed("engine", engine, ml_task, ml_task.engines, source, where("model"))
        if ml_task.iterator not in (None, iterator):
            what = f"ML task '{ml_task.name}' is for datasets of iterator '{ml_task.iterator}'"
            self.found.say(source, where("dataset"), f"{what}, not '{iterator}'")
        allowed = {self.catalog.key("reports", name) for name in ml_task.reports}
        for index, name in enumerate(
            resolved.task.reports if allowed and None not in allowed else ()
        ):
            if self.catalog.key("reports", name) not in allowed:
                loc = (*where("reports"), index)
                self._not_listed("report", name, ml_task, ml_task.reports, source, loc)

    def _not_listed(
        self, kind: str, name: str, ml_task: MLTask, listed: Sequence[str], source: Source, loc: Loc
    ) -> None:
        """Report a known name that an ML task's own list does not have."""
        what = f"ML task '{ml_task.name}' lists {', '.join(listed)} and no {kind} '{name}'"
        file = self.catalog.get_with_source(MLTask, ml_task.name)[1].path
        self.found.say(source, loc, what, f"name one of these, or add it to the list in {file}")

    def _own_module(self, resolved: ResolvedRunTask, source: Source, where: Where) -> None:
        """Check that nothing is asked of an ML task's own module that it cannot give."""
        task, prompt, module = resolved.task, resolved.prompt, resolved.ml_task.module
        speed = {
            "rate": task.rate, "load": task.load, "measure": task.measure,
            "slo": task.slo.model_dump(exclude_none=True), "protocol": task.protocol != "http",
        }  # fmt: skip
        for key, value in speed.items():
            if value:
                what = f"module '{module}' asks the model itself, so '{key}' has no effect"
                self.found.say(source, where(key), what, "remove it", at_key=True)
        if prompt.examples or any(one.examples for one in prompt.prompts):
            what = f"prompt '{prompt.name}' has examples, which module '{module}' does not get"
            self.found.say(source, where("prompt"), what, "name a prompt without examples")

    def _generation(self, resolved: ResolvedRunTask, source: Source, where: Where) -> None:
        """Check that the engine knows the requests' settings, and accepts them as it is started."""
        task, model = resolved.task, resolved.model
        engine = self.plugins.loaded("engines", model.engine)
        known = getattr(engine, "generation", None)
        if known is None:
            return
        options = {name.replace("-", "_"): value for name, value in model.engine_options.items()}
        needs = getattr(engine, "generation_needs", {})
        for name in task.generation.extra:
            at = (*where("generation"), "extra", name)
            if name not in known:
                settings = [*known, *Generation.model_fields]
                what = unknown("generation setting", name, settings, of=f"engine '{model.engine}'")
                new = getattr(engine, "renamed", {}).get(name)
                self.found.say(source, at, what, f"its new name is `{new}`" if new else None)
            elif name in needs and options.get(needs[name]) is not True:
                what = (
                    f"engine '{model.engine}' refuses every request with '{name}', unless it starts with "
                    f"{needs[name]}"
                )
                remedy = f"add `{needs[name]}: true` to the engine_options of model '{model.name}'"
                self.found.say(source, at, what, remedy)
        if task.output_schema == "response_format" and "response_format" not in known:
            what = f"engine '{model.engine}' does not support response_format"
            self.found.say(source, where("output_schema"), what, "use `output_schema: prompt`")

    def _load(self, task: RunTask, source: Source, where: Where) -> None:
        """Check that a sweep has points, a rate several requests in flight, and gRPC its route."""
        if task.load is not None and not (task.load.concurrency or task.load.rate):
            self.found.say(
                source, where("load"), "a sweep needs points",
                "add `concurrency: [1, 2, 4]` or `rate: [0.5, 1]` below `load`",
            )  # fmt: skip
        elif task.rate is not None and task.concurrency == 1:
            self.found.say(
                source, where("rate"),
                f"a rate of {task.rate:g} requests per second needs more than one request in flight",
                f"use `load: {{rate: [{task.rate:g}]}}`, or a larger `concurrency`",
            )  # fmt: skip
        elif task.rate is not None and task.concurrency == "auto":
            self.found.say(
                source, where("concurrency" if "concurrency" in task.model_fields_set else "rate"),
                f"a rate of {task.rate:g} requests per second cannot have `concurrency: auto`: requests "
                "that are due would wait",
                f"use `load: {{rate: [{task.rate:g}]}}`, or a limit that no request reaches: "
                "`concurrency: 256`",
            )  # fmt: skip
        if task.protocol == "grpc" and task.route == "direct" and "route" in task.model_fields_set:
            what = "`protocol: grpc` goes through the wrapper, so `route: direct` is not possible"
            self.found.say(
                source, where("route"), what, "remove `route`, or write `route: proxied`"
            )

    def _choice_of_samples(
        self, task: RunTask, dataset: Dataset, source: Source, where: Where
    ) -> None:
        """Names in `where` and `sample` against the fields and metadata of the dataset's definition."""
        if dataset.scored_here == "nothing" and task.judge is None and task.name not in self.rated:
            what = f"no metric of hpcbench scores dataset '{dataset.name}': {dataset.scorer} does"
            remedy = (
                "add a run task with `judge: {of: " + task.name + "}`; with a metric of your own, "
                "lay an overlay with `scored_here: parts` over it"
            )
            self.found.say(source, where("dataset"), what, remedy)
        known = {*dataset.fields, *dataset.group_by, "id", "document"}
        remedy = "list it under the dataset's `fields` or `group_by`"
        if task.where is not None:
            from jinja2 import TemplateError, meta
            from jinja2.sandbox import SandboxedEnvironment

            environment = SandboxedEnvironment()
            try:
                environment.compile_expression(task.where)
                parsed = environment.parse("{{ (" + task.where + ") }}")
            except (TemplateError, ValueError, RecursionError) as error:
                self.found.say(
                    source, where("where"), f"not a valid expression: {str(error)[:200]}"
                )
                return
            for name in sorted(meta.find_undeclared_variables(parsed) - known):
                what = unknown("field", name, known, of=f"dataset '{dataset.name}'")
                self.found.say(source, where("where"), what, None if "did you" in what else remedy)
        by = task.sample.by if task.sample is not None else None
        if by is not None and by not in known:
            what = unknown("field", by, known, of=f"dataset '{dataset.name}'")
            self.found.say(
                source, (*where("sample"), "by"), what, None if "did you" in what else remedy
            )

    def plan(self, plan: ExperimentPlan, source: Source, cluster: Site | None) -> None:
        """The plan's fields other than its run tasks; `cluster`: the site, if Slurm runs the plan."""
        longest = plan.max_job_minutes
        if longest is not None and cluster and (short := too_short(60 * longest, cluster)):
            self.found.say(source, ("max_job_minutes",), *short)
        if plan.stages != STAGES[: len(plan.stages)]:
            self.found.say(
                source, ("stages",), "stages must follow one another without a gap",
                f"write one, two or all of them, from the first: {', '.join(STAGES)}",
            )  # fmt: skip
        if plan.gate is not None and plan.baseline is None:
            what = "a gate needs a 'baseline' to compare with"
            self.found.say(source, ("gate",), what, "add `baseline: EXPERIMENT`")
        sections: tuple[tuple[str, str, tuple[Notification | Tracker, ...]], ...] = (
            ("notifications", "notifiers", plan.notifications),
            ("trackers", "trackers", plan.trackers),
        )
        for key, kind, entries in sections:
            for index, entry in enumerate(entries):
                plugin = self.plugins.plugin(kind, entry.plugin, source, (key, index, "plugin"))
                self.plugins.options(plugin, entry.options, source, (key, index, "options"))
                self.found.references(entry.options, source, (key, index, "options"))
        for index, place in enumerate(plan.upload):
            scheme = place.url.partition("://")[0] if "://" in place.url else "file"
            storage = self.plugins.plugin("storage", scheme, source, ("upload", index, "url"))
            self.plugins.options(storage, place.storage, source, ("upload", index, "storage"))
            self.found.references(place.storage, source, ("upload", index, "storage"))
        if plan.database is not None:
            for what, remedy in problems(plan.database):
                self.found.say(source, ("database", "url"), what, remedy)
            self.found.references(plan.database.url, source, ("database", "url"))

    def budget(
        self, plan: ExperimentPlan, run_tasks: Sequence[ResolvedRunTask], source: Source
    ) -> None:
        """The plan's budget against its run tasks."""
        for key, problem in mistakes(plan.budget, run_tasks):
            self.found.say(source, (key,), problem.message, problem.remedy)

    def _version(
        self, plugin: Any, metric: Metric, source: Source, loc: Loc = ("version",)
    ) -> None:
        """The version in a metric's definition equals the plugin's, the end of its signature."""
        if plugin is None or not metric.version:
            return
        try:
            own = _version_of(plugin, metric)
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            self.found.say(source, ("plugin",), failed(metric.plugin, error))
            return
        if own is not None and metric.version.removeprefix("v") != own:
            self.found.say(
                source, loc,
                f"metric '{metric.name}' has version {own} here, not {metric.version}",
                f"write `version: {own}`, if its scores are what you want",
            )  # fmt: skip

    def _model_tasks(self, model: Model, source: Source) -> None:
        """Names in `tasks` of a model."""
        for name, own in model.tasks.items():
            loc: Loc = ("tasks", name)
            self._known("ML task", "ml_tasks", name, source, loc)
            if own.parser is not None:
                self.plugins.plugin("parsers", own.parser, source, (*loc, "parser"))
            if own.prompt is not None:
                self._known("prompt", "prompts", own.prompt, source, (*loc, "prompt"))

    def _known(self, word: str, kind: str, name: str, source: Source, loc: Loc) -> None:
        """Check that a definition exists."""
        if not self.catalog.files(kind, name):
            self.found.say(source, loc, unknown(word, name, self.catalog.names(kind)))

    def _ml_task(self, ml_task: MLTask, source: Source) -> None:
        for index, name in enumerate(ml_task.metrics):
            self._known("metric", "metrics", name, source, ("metrics", index))
        for index, name in enumerate(ml_task.engines):
            if not self.plugins.known("engines", name):
                what = unknown(plugins.called("engines"), name, plugins.available("engines"))
                self.found.say(source, ("engines", index), what)
        for index, name in enumerate(ml_task.default_metrics):
            known = ml_task.metrics or self.catalog.names("metrics")
            if self.catalog.key("metrics", name) not in {
                self.catalog.key("metrics", one) for one in known
            }:
                what = unknown("metric", name, known, of="this ML task" if ml_task.metrics else "")
                self.found.say(source, ("default_metrics", index), what)
        prompts: dict[Loc, Any] = {("prompt",): ml_task.prompt}
        prompts |= {("prompts", language): name for language, name in ml_task.prompts.items()}
        for loc, prompt in prompts.items():
            if isinstance(prompt, str):
                self._known("prompt", "prompts", prompt, source, loc)
        for index, name in enumerate(ml_task.reports):
            self._known("report", "reports", name, source, ("reports", index))
        self._answer_schema(ml_task, source)

    def _answer_schema(self, ml_task: MLTask, source: Source) -> None:
        """Check an ML task's form of answers."""
        key = "output_model" if ml_task.output_schema is None else "output_schema"
        if ml_task.output_schema is not None:
            if ml_task.output == "text":
                self.found.say(
                    source,
                    (key,),
                    "output_schema does not fit `output: text`",
                    "write `output: object`",
                )
            elif wrong := _schema_problem(ml_task.output_schema):
                self.found.say(source, (key,), f"not a valid JSON Schema: {wrong}")
            elif ml_task.output == "label" and not ml_task.output_schema.get("enum"):
                self.found.say(source, (key,), "output_schema of labels needs an `enum`")
        if ml_task.output_model is None:
            return
        if ml_task.output_schema is not None:
            self.found.say(
                source, ("output_model",), "output_schema and output_model exclude each other",
                "remove one of them",
            )  # fmt: skip
        elif ml_task.output != "object":
            self.found.say(
                source, (key,), "output_model needs `output: object`", "write `output: object`"
            )
        elif not (ml_task.required_packages and absent(ml_task.output_model.replace(":", "."))):
            try:
                plugins.answer_model(ml_task.output_model)
            except UserError as error:
                for problem in error.problems:
                    self.found.say(source, (key,), problem.message, problem.remedy)
            except EnvironmentFault as error:
                self.found.say(source, (key,), error.message, error.remedy)

    def _dataset(self, dataset: Dataset, source: Source) -> None:
        plugin = self.plugins.plugin(
            "datasets", dataset.iterator, source, ("iterator",), dataset.package
        )
        self.plugins.options(plugin, dataset.options, source, ("options",))
        self.models.source(dataset, source, ())
        if dataset.splits and dataset.split is not None and dataset.split not in dataset.splits:
            self.found.say(source, ("split",), unknown("split", dataset.split, dataset.splits))
        self._named_by(dataset, source)

    def _named_by(self, dataset: Dataset, source: Source) -> None:
        """A dataset's ML task, and the metrics and run tasks of its published scores, exist and fit it."""
        named: list[tuple[str, str | None, Loc]] = [("ml_tasks", dataset.ml_task, ("ml_task",))]
        for index, one in enumerate(dataset.published):
            named.append(("metrics", one.metric, ("published", index, "metric")))
        for kind, name, loc in named:
            if name is not None and not self.catalog.files(kind, name):
                what = unknown("definition", name, self.catalog.names(kind), of=kind)
                self.found.say(source, loc, what)
        for index, one in enumerate(dataset.published):
            if cause := unfit(self.catalog, dataset, one):
                self.found.say(source, ("published", index, "run_task"), cause)

    def _gate(self, gate: Gate, source: Source) -> None:
        """A gate's rules name existing things, as far as a name without `*` and `?` can be checked."""
        metrics = self.catalog.names("metrics")
        kinds = (
            ("metrics", "metric", metrics, gate.metrics),
            ("speed", "figure of speed", SPEED_FIGURES, gate.speed),
            ("memory", "figure of memory", MEMORY_FIGURES, gate.memory),
        )
        for key, what, known, rules in kinds:
            for rule in rules:
                name = rule.rpartition(":")[2]
                if name not in known and not set(name) & set("*?["):
                    self.found.say(source, (key, rule), unknown(what, name, known))
                elif not any(fnmatchcase(one, name) for one in known):
                    self.found.say(source, (key, rule), f"no {what} matches '{name}'")
        for rule, margin in gate.metrics.items():
            if margin.absolute is None and margin.relative is None:
                what = "a rule for a metric needs 'absolute' or 'relative', its margin"
                self.found.say(source, ("metrics", rule), what)

    def _site(self, site: Site, source: Source) -> None:
        for loc, message, remedy in sites.findings(site):
            self.found.say(source, loc, message, remedy)
        for name, value in site.env.items():
            self.found.references(value, source, ("env", name))
        template = with_absolute_paths(site, source).slurm.template
        if template is not None and (wrong := sites.template_problem(template)):
            if wrong.line is not None:
                self.found.problems.append(wrong)
            else:
                what = wrong.message if wrong.file is None else f"{wrong.file}: {wrong.message}"
                self.found.say(source, ("slurm", "template"), what)


def _schema_problem(schema: Mapping[str, Any]) -> str | None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return str(error.message)
    return None


def _version_of(plugin: Any, metric: Metric) -> str | None:
    """Version of a metric's code, the end of its signature; None: the plugin is not here, or has no such
    option, which another check reports."""
    if plugin is None:
        return None
    try:
        return str(plugins.with_options(plugin, metric.options).signature.rpartition("|v")[2])
    except (TypeError, ValueError):
        return None


def _verdicts(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """Verdicts that a schema of judges allows; empty: it does not require one of a list."""
    try:
        listed = schema["properties"]["verdict"]["enum"]
        return tuple(listed) if "verdict" in schema["required"] else ()
    except (KeyError, TypeError):
        return ()


def _unknown_to(metric: Metric, verdicts: Sequence[Any]) -> str:
    """The first verdict that a metric has no value for; empty: it knows all, or its options are wrong."""
    try:
        made = plugins.load("metrics", metric.plugin)(**metric.options)
    except (TypeError, ValueError):
        return ""  # reported with the metric
    for verdict in verdicts:
        try:
            made.score({"verdict": verdict}, ())
        except ValueError:
            return repr(verdict)
    return ""
