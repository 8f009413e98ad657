"""Cross-checks: what a document says against the documents, plugins and site it meets. Runs nothing.

A plugin that a package brings is checked as far as its document goes; once the package is built and on the
path, the same checks look at the plugin itself.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from hpcbench import plugins, secret
from hpcbench.errors import EnvironmentFault, Problem, UserError, unknown
from hpcbench.files.user import read_text
from hpcbench.plugins import EngineSpec, PromptSpec
from hpcbench.registry import sites
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.engine_limits import beyond
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.registry.resource_shapes import misfits, model_findings
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.documents import (
    MEMORY_FIGURES,
    SPEED_FIGURES,
    Dataset,
    Document,
    ExperimentPlan,
    Gate,
    Image,
    Metric,
    MLTask,
    Model,
    Notification,
    Package,
    Prompt,
    Report,
    RunTask,
    Site,
    Tracker,
)
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import PromptEntry

Where = Callable[[str], Loc]

TRANSPORTS = ("docker", "oras", "oci", "oci-archive", "docker-archive", "docker-daemon")
"""What an image reference may begin with that is not the name of an environment's plugin."""

_MADE_UP = frozenset({"doc_class_question_type"})
"""What a prompt may use beside a sample's own fields: made of others."""

_OF_DOCUMENTS = {"dataset": ("datasets", "dataset"), "task": ("ml_tasks", "ML task")}
"""What it may use beside them, too: names of documents, of these kinds, and what people call them."""

_HARMLESS = re.compile(r"<.*>|\[.*\]|[\d, ]+|~?/.*")
"""What a tokenizer calls tokens, and paths."""

STAGES = ("inference", "evaluation", "reporting")


class Checks:
    """Finds what does not fit; every document is looked at once."""

    def __init__(self, catalog: Catalog, problems: list[Problem], *, locks: bool = True) -> None:
        self.catalog, self.problems = catalog, problems
        self.packages: dict[str, Package] = {}
        self.origins: dict[str, str] = {}
        self._seen: set[Any] = set()
        self._providers: dict[tuple[str, str], str] | None = None
        self._strategies: dict[str, Any] = {}
        """Prompt → class of its strategy, where that can be looked at and takes the prompt."""
        self._conditions: dict[tuple[str, str], Problem] = {}
        """Prompt and a name in its conditions → what to tell of it if no other dataset has the name."""
        self._engine_of: dict[str, tuple[str, ...]] = {}
        self._prod = catalog.mode == "prod" and locks

    # --- one document -------------------------------------------------------------------------------

    def document(self, document: Document, source: Source) -> None:
        """What a document says of itself: its plugin, options, package, secrets, what prod asks of it."""
        if not self._first(type(document), document.name):
            return
        if isinstance(document, MLTask):
            self._plugin("tasks", document.plugin, source, ("plugin",))
            if document.parser is not None:
                self._plugin("parsers", document.parser, source, ("parser",))
            for index, name in enumerate(document.required_packages):
                self._package(name, source, ("required_packages", index))
            self._ml_task(document, source)
        elif isinstance(document, Model):
            self._plugin("engines", document.engine, source, ("engine",), document.package)
            self._model(document, source, ())
        elif isinstance(document, Dataset):
            self._dataset(document, source)
        elif isinstance(document, Metric):
            plugin = self._plugin("metrics", document.plugin, source, ("plugin",), document.package)
            self._options(plugin, document.options, source, ("options",))
            self._version(plugin, document, source)
        elif isinstance(document, Prompt):
            self._prompt(document, source)
        elif isinstance(document, Report):
            plugin = self._plugin("reports", document.plugin, source, ("plugin",), document.package)
            self._options(plugin, document.options, source, ("options",))
        elif isinstance(document, Package):
            self._locked(document, source, ("source",))
        elif isinstance(document, Site):
            self._site(document, source)
        elif isinstance(document, Gate):
            self._gate(document, source)
        elif isinstance(document, Image) and not (document.reference or document.recipe):
            self._say(source, (), "an image needs a 'reference' or a 'recipe'")

    def choice(self, model: Model, source: Source, loc: Loc) -> None:
        """A model with a run task's changes."""
        if self._first("choice", model.name):
            self._plugin("engines", model.engine, source, (*loc, "engine"), model.package)
            self._model(model, source, loc)

    def image(self, image: Image, model: Model, source: Source, loc: Loc) -> str | None:
        """What an image document stands for, checked against the model that is to run in it."""
        if image.engines and model.engine not in image.engines:
            listed = ", ".join(image.engines)
            self._say(source, loc, f"image '{image.name}' holds {listed}, not {model.engine}")
        if image.reference is None:
            return image.recipe
        if image.digest is None or not image.reference.startswith("docker://"):
            return image.reference
        return f"{image.reference.partition('@')[0]}@{image.digest}"

    def metric_fits(self, metric: Metric, ml_task: MLTask, source: Source, loc: Loc) -> None:
        """A metric is one of the ML task's and can score what the task reads answers into."""
        if not self._first("fits", metric.name, ml_task.name):
            return
        if metric.name not in ml_task.metrics:
            self._say(
                source, loc,
                unknown(f"metric of ML task '{ml_task.name}'", metric.name, ml_task.metrics),
            )  # fmt: skip
            return
        plugin = self._loaded("metrics", metric.plugin)
        accepts = getattr(plugin, "accepts", None)
        if accepts and not {ml_task.output, "reading"} & set(accepts):
            self._say(
                source, loc,
                f"metric '{metric.name}' scores {' or '.join(accepts)}, and ML task '{ml_task.name}' "
                f"reads answers into {ml_task.output}",
            )  # fmt: skip

    # --- one run task -------------------------------------------------------------------------------

    def run_task(
        self, resolved: ResolvedRunTask, source: Source, where: Where, site: Site | None
    ) -> None:
        """What its parts say of each other."""
        task, ml_task, dataset = resolved.task, resolved.ml_task, resolved.dataset
        if self._first("fields", ml_task.name, dataset.name):
            needed = dict.fromkeys((*ml_task.sample_fields, ml_task.label_field))
            lacking = [name for name in needed if name and name not in dataset.fields]
            if lacking:
                self._say(
                    source, where("dataset"),
                    f"dataset '{dataset.name}' has no field {', '.join(map(repr, lacking))} "
                    f"that ML task '{ml_task.name}' needs",
                )  # fmt: skip
        self._prompt_fits(resolved, source, where("prompt"))
        if dataset.splits and task.split is not None and task.split not in dataset.splits:
            what = unknown(f"split of dataset '{dataset.name}'", task.split, dataset.splits)
            self._say(source, where("split"), what)
        self._generation(resolved, source, where)
        engine = self._loaded("engines", resolved.model.engine)
        self.problems += [resolved.problem(*one) for one in beyond(resolved, engine)]
        schema = ml_task.output_schema or ml_task.output_model
        if task.output_schema != "none" and schema is None:
            what = f"ML task '{ml_task.name}' has no output_schema to tell"
            self._say(source, where("output_schema"), what)
        self._choice_of_samples(task, dataset, source, where)
        self._load(task, source, where)
        for index, entry in enumerate(task.packages):
            self._package(entry, source, (*where("packages"), index))
        if site is not None:
            for key, below, message, remedy in misfits(resolved, site):
                self._say(source, (*where(key), *below), message, remedy)

    def _generation(self, resolved: ResolvedRunTask, source: Source, where: Where) -> None:
        """Settings of requests that the engine knows, and takes as it is started."""
        task, model = resolved.task, resolved.model
        engine = self._loaded("engines", model.engine)
        known = getattr(engine, "generation", None)
        if known is None:
            return
        options = {name.replace("-", "_"): value for name, value in model.engine_options.items()}
        needs = getattr(engine, "generation_needs", {})
        for name in task.generation.extra:
            at = (*where("generation"), "extra", name)
            if name not in known:
                what = unknown(f"generation setting of {model.engine}", name, known)
                new = getattr(engine, "renamed", {}).get(name)
                self._say(source, at, what, f"it is now `{new}`" if new else None)
            elif name in needs and options.get(needs[name]) is not True:
                what = f"{model.engine} refuses every request with '{name}' as it would be started"
                remedy = f"`{needs[name]}: true` in the engine_options of model '{model.name}'"
                self._say(source, at, what, remedy)
        if task.output_schema == "response_format" and "response_format" not in known:
            what = f"engine '{model.engine}' does not know response_format"
            self._say(source, where("output_schema"), what, "`output_schema: prompt`")

    def _load(self, task: RunTask, source: Source, where: Where) -> None:
        """How requests are sent: a sweep has points, and a rate has room."""
        if task.load is not None and not (task.load.concurrency or task.load.rate):
            self._say(
                source, where("load"), "a sweep needs points",
                "`concurrency: [1, 2, 4]` or `rate: [0.5, 1]` below `load`",
            )  # fmt: skip
        elif task.rate is not None and task.concurrency == 1:
            self._say(
                source, where("rate"),
                f"a rate of {task.rate:g} with one request in flight is no rate: what is due would wait",
                f"`load: {{rate: [{task.rate:g}]}}`, or a larger `concurrency`",
            )  # fmt: skip
        elif task.rate is not None and task.concurrency == "auto":
            self._say(
                source, where("concurrency" if "concurrency" in task.model_fields_set else "rate"),
                f"a rate of {task.rate:g} with `concurrency: auto` is no rate: what is due would wait",
                f"`load: {{rate: [{task.rate:g}]}}`, or a number that is never reached: `concurrency: 256`",
            )  # fmt: skip

    def _choice_of_samples(
        self, task: RunTask, dataset: Dataset, source: Source, where: Where
    ) -> None:
        """Names in `where` and `sample` against the fields and metadata that the dataset's document lists."""
        known = {*dataset.fields, *dataset.group_by, "id", "document"}
        told = "list it under the dataset's `fields` or `group_by`"
        if task.where is not None:
            from jinja2 import TemplateError, meta
            from jinja2.sandbox import SandboxedEnvironment

            environment = SandboxedEnvironment()
            try:
                environment.compile_expression(task.where)
                parsed = environment.parse("{{ (" + task.where + ") }}")
            except (TemplateError, ValueError, RecursionError) as error:
                self._say(source, where("where"), f"no expression: {str(error)[:200]}")
                return
            for name in sorted(meta.find_undeclared_variables(parsed) - known):
                what = unknown(f"field of dataset '{dataset.name}'", name, known)
                self._say(source, where("where"), what, None if "did you" in what else told)
        by = task.sample.by if task.sample is not None else None
        if by is not None and by not in known:
            what = unknown(f"field of dataset '{dataset.name}'", by, known)
            self._say(source, (*where("sample"), "by"), what, None if "did you" in what else told)

    def engine(self, model: Model) -> Any:
        """The class of a model's engine; None: it cannot be looked at from here."""
        return self._loaded("engines", model.engine)

    def engine_packages(self, model: Model) -> tuple[str, ...]:
        """Packages that must be importable beside a model's engine."""
        if model.name not in self._engine_of:
            named = [model.package, self._provider("engines", model.engine)]
            found = dict.fromkeys(name for name in named if name is not None)
            self._engine_of[model.name] = tuple(found)
        return self._engine_of[model.name]

    # --- the plan -----------------------------------------------------------------------------------

    def plan(self, plan: ExperimentPlan, source: Source) -> None:
        """What the plan says beside its run tasks."""
        if plan.stages != STAGES[: len(plan.stages)]:
            self._say(
                source, ("stages",), "stages follow on each other",
                f"write the first of them, in this order: {', '.join(STAGES)}",
            )  # fmt: skip
        if plan.gate is not None and plan.baseline is None:
            self._say(source, ("gate",), "a gate needs a 'baseline' to judge against")
        told: tuple[tuple[str, str, tuple[Notification | Tracker, ...]], ...] = (
            ("notifications", "notifiers", plan.notifications),
            ("trackers", "trackers", plan.trackers),
        )
        for key, kind, entries in told:
            for index, entry in enumerate(entries):
                plugin = self._plugin(kind, entry.plugin, source, (key, index, "plugin"))
                self._options(plugin, entry.options, source, (key, index, "options"))
                self._references(entry.options, source, (key, index, "options"))
        for index, place in enumerate(plan.upload):
            scheme = place.url.partition("://")[0] if "://" in place.url else "file"
            storage = self._plugin("storage", scheme, source, ("upload", index, "url"))
            self._options(storage, place.storage, source, ("upload", index, "storage"))
            self._references(place.storage, source, ("upload", index, "storage"))

    # --- plugins and packages -----------------------------------------------------------------------

    def _plugin(
        self, kind: str, name: str, source: Source, loc: Loc, package: str | None = None
    ) -> Any:
        """The plugin's class; None and perhaps a problem if it cannot be looked at here and now."""
        provider = package or self._provider(kind, name)
        if provider is not None:
            at = ("package",) if package else loc
            brought = self._package(provider, source, at)
            known = brought.provides.get(kind, ()) if brought is not None else ()  # type: ignore[call-overload]
            if brought is not None and brought.provides and name not in known and "." not in name:
                self._say(
                    source, loc, unknown(f"{kind} plugin of package '{provider}'", name, known)
                )
                return None
        point = plugins.find(kind, name)
        if point is None:
            if provider is None:
                self._say(source, loc, unknown(f"{kind} plugin", name, plugins.available(kind)))
            return None
        if name not in plugins.available(kind) and _absent(point.module):
            if provider is None:
                self._say(
                    source, loc, f"there is no module '{point.module}' for {kind} plugin '{name}'",
                    "name the package that brings it: `package: NAME`",
                )  # fmt: skip
            return None
        if provider is not None and kind == "engines":
            return None  # it lives beside the engine; what lies here may be another version
        try:
            return plugins.load(kind, name)
        except EnvironmentFault as fault:
            self._say(source, loc, fault.message, fault.remedy)
            return None

    def _loaded(self, kind: str, name: str) -> Any:
        """The plugin's class if it can be looked at; its absence was told elsewhere."""
        if self._provider(kind, name) is not None and kind == "engines":
            return None
        try:
            return plugins.load(kind, name) if plugins.find(kind, name) is not None else None
        except (EnvironmentFault, UserError):
            return None

    def _provider(self, kind: str, name: str) -> str | None:
        """The package document that says it brings this plugin."""
        if self._providers is None:
            self._providers = {}
            for package in self.catalog.names("packages"):
                try:
                    found = self.catalog.get(Package, package)
                except UserError:
                    continue  # told when the package is asked for
                for provided, names in found.provides.items():
                    for one in names:
                        self._providers.setdefault((provided, one), package)
        return self._providers.get((kind, name))

    def _package(self, entry: str | Package, source: Source, loc: Loc) -> Package | None:
        """A package that the plan uses, by name or written out."""
        if isinstance(entry, Package):
            package, own = with_absolute_paths(entry, source), source
            if self._first("inline", entry.name):
                self._locked(package, source, (*loc, "source"))
        else:
            try:
                found, own = self.catalog.get_with_source(Package, entry, (source, loc))
            except UserError as error:
                self.problems.extend(error.problems)
                return None
            package = with_absolute_paths(found, own)
            self.document(package, own)
        self.packages[package.name] = package
        self.origins[f"packages/{package.name}"] = str(own.path)
        return package

    def _locked(self, package: Package, source: Source, loc: Loc) -> None:
        """`prod` takes only what is the same tomorrow."""
        origin = package.source
        if origin.type == "local":
            if not Path(origin.path).is_dir():
                self._say(source, (*loc, "path"), f"no such folder: {origin.path}")
            elif self._prod:
                self._say(
                    source, loc, f"package '{package.name}' is a local folder, which changes",
                    "RUN_MODE=dev, or name a git tag or a version",
                )  # fmt: skip
        elif origin.type == "git":
            self._references(origin.url, source, (*loc, "url"))
            if origin.ref is None and self._prod:
                self._say(
                    source, loc, f"package '{package.name}' names no commit or tag",
                    "add `ref: TAG`, or RUN_MODE=dev",
                )  # fmt: skip
        else:
            self._references(origin.index, source, (*loc, "index"))
            if origin.version is None and self._prod:
                self._say(
                    source, loc, f"package '{package.name}' names no version",
                    "add `version: X.Y.Z`, or RUN_MODE=dev",
                )  # fmt: skip

    def _options(self, plugin: Any, options: Mapping[str, Any], source: Source, loc: Loc) -> None:
        if plugin is None:
            return
        for where, message in plugins.check_options(plugin, options):
            self._say(source, (*loc, *where), message, at_key=True)

    def _version(self, plugin: Any, metric: Metric, source: Source) -> None:
        """A version that a metric's document states is the plugin's, the end of its signature."""
        if plugin is None or not metric.version:
            return
        try:
            own = plugin(**metric.options).signature.rpartition("|v")[2]
        except (TypeError, ValueError):
            return  # told as a wrong option
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            self._say(source, ("plugin",), _failed(metric.plugin, error))
            return
        if metric.version.removeprefix("v") != own:
            self._say(
                source, ("version",),
                f"metric '{metric.name}' is version {own} here, not {metric.version}",
            )  # fmt: skip

    # --- kinds of documents -------------------------------------------------------------------------

    def _ml_task(self, ml_task: MLTask, source: Source) -> None:
        for index, name in enumerate(ml_task.metrics):
            if not self.catalog.files("metrics", name):
                what = unknown("metric", name, self.catalog.names("metrics"))
                self._say(source, ("metrics", index), what)
        for index, name in enumerate(ml_task.default_metrics):
            if name not in ml_task.metrics:
                what = unknown("metric of this ML task", name, ml_task.metrics)
                self._say(source, ("default_metrics", index), what)
        if ml_task.prompt is not None and not self.catalog.files("prompts", ml_task.prompt):
            what = unknown("prompt", ml_task.prompt, self.catalog.names("prompts"))
            self._say(source, ("prompt",), what)
        self._answer_schema(ml_task, source)

    def _answer_schema(self, ml_task: MLTask, source: Source) -> None:
        """What an ML task says of the form of answers."""
        key = "output_model" if ml_task.output_schema is None else "output_schema"
        if ml_task.output_schema is not None:
            if ml_task.output == "text":
                self._say(source, (key,), "only an object has a schema", "output: object")
            elif wrong := _schema_problem(ml_task.output_schema):
                self._say(source, (key,), f"no JSON Schema: {wrong}")
            elif ml_task.output == "label" and not ml_task.output_schema.get("enum"):
                self._say(source, (key,), "the schema of a label is an `enum`")
        if ml_task.output_model is None:
            return
        if ml_task.output_schema is not None:
            self._say(source, ("output_model",), "output_schema and output_model: one of the two")
        elif ml_task.output != "object":
            self._say(source, (key,), "only an object has a model", "output: object")
        elif not (ml_task.required_packages and _absent(ml_task.output_model.replace(":", "."))):
            try:
                plugins.answer_model(ml_task.output_model)
            except UserError as error:
                for problem in error.problems:
                    self._say(source, (key,), problem.message, problem.remedy)
            except EnvironmentFault as error:
                self._say(source, (key,), error.message, error.remedy)

    def _model(self, model: Model, source: Source, loc: Loc) -> None:
        for name, value in model.env.items():
            self._references(value, source, (*loc, "env", name))
            if secret.written_out(name, value):
                self._say(
                    source, (*loc, "env", name), f"{name} holds a secret in plain text",
                    f"write ${{env:{name}}} and export it, or ${{file:PATH}}",
                )  # fmt: skip
        for number, line in enumerate(model.needs):
            try:
                Requirement(line)
            except InvalidRequirement as error:
                what = f"'{line}' is no requirement: {str(error).splitlines()[0]}"
                self._say(source, (*loc, "needs", number), what, "write NAME>=VERSION")
        scheme, colon, _ = (model.image or "").partition(":")
        if colon and scheme not in TRANSPORTS:
            self._plugin("environments", scheme, source, (*loc, "image"))
        self._engine_options(model, source, loc)
        for below, message, remedy in model_findings(model, self.gpus(model)):
            self._say(source, (*loc, *below), message, remedy)
        self._weights(model, source, loc)
        self._source(model, source, loc)
        if model.chat_template is not None:
            self._chat_template(model.chat_template, source, (*loc, "chat_template"))
        if self._prod:
            self._model_locked(model, source, loc)

    def _engine_options(self, model: Model, source: Source, loc: Loc) -> None:
        for inner in _secret_options(model.engine_options):
            what = f"{inner[-1]} holds a secret in plain text"
            remedy = "options stand in a command line: give it by the model's `env`, as ${env:NAME}"
            self._say(source, (*loc, "engine_options", *inner), what, remedy)
        engine = self._loaded("engines", model.engine)
        if engine is None:
            return
        spec = EngineSpec(
            "/model", model.name, "/socket", dtype=model.dtype, gpus=self.gpus(model),
            context_length=model.context_length, options=model.engine_options,
        )  # fmt: skip
        try:
            engine().launch_command(spec)
        except UserError as error:
            for problem in error.problems:
                named = [name for name in model.engine_options if f"'{name}'" in problem.message]
                at = (*loc, "engine_options", *named[:1])
                self._say(source, at, problem.message, problem.remedy, at_key=True)
        except EnvironmentFault:
            return  # of this machine; the engine runs on another
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            self._say(source, (*loc, "engine"), _failed(model.engine, error))

    def gpus(self, model: Model) -> int:
        """GPUs that a model needs; one whose engine reads no weights needs none unless it says so."""
        said = "gpus" in model.model_fields_set
        reads = getattr(self._loaded("engines", model.engine), "weights", True)
        return model.gpus if said or reads else 0

    def _weights(self, model: Model, source: Source, loc: Loc) -> None:
        """Weights are named, unless the engine serves none; one that is not here may be of either kind."""
        engine = self._loaded("engines", model.engine)
        if not model.source and engine is not None and getattr(engine, "weights", True):
            self._say(
                source, loc, f"key 'source' is missing: engine '{model.engine}' reads weights",
                "`source: hf://ORGANISATION/NAME`, or the folder they are in",
            )  # fmt: skip

    def _model_locked(self, model: Model, source: Source, loc: Loc) -> None:
        locked = model.revision or model.content_hash
        if model.source.startswith("hf://") and not locked:
            self._say(
                source, (*loc, "source"),
                f"model '{model.name}' is not locked: neither revision nor content_hash is said",
                f"`hpcbench models verify {model.name}` fills it in, or RUN_MODE=dev",
            )  # fmt: skip
        image = model.image or ""
        if image.startswith("docker://") and "@sha256:" not in image:
            self._say(
                source, (*loc, "image"), f"image {image} is not locked: a tag can move",
                f"`hpcbench images lock {image}` tells its digest, or RUN_MODE=dev",
            )  # fmt: skip

    def _chat_template(self, path: str, source: Source, loc: Loc) -> None:
        from jinja2 import Environment, TemplateSyntaxError

        try:
            Environment().parse(read_text(Path(path)))  # noqa: S701 - parsed, never rendered
        except UserError as error:
            self._say(source, loc, str(error))
        except (ValueError, RecursionError) as error:
            self._say(source, loc, f"{path} is no Jinja2 template: {str(error)[:200]}")
        except TemplateSyntaxError as error:
            self._say(source, loc, f"{path}:{error.lineno}: no Jinja2 template: {error.message}")

    def _dataset(self, dataset: Dataset, source: Source) -> None:
        plugin = self._plugin("datasets", dataset.iterator, source, ("iterator",), dataset.package)
        self._options(plugin, dataset.options, source, ("options",))
        self._source(dataset, source, ())
        if dataset.splits and dataset.split is not None and dataset.split not in dataset.splits:
            self._say(source, ("split",), unknown("split", dataset.split, dataset.splits))

    def _source(self, document: Dataset | Model, source: Source, loc: Loc) -> None:
        """The storage of what lies elsewhere, and its options."""
        scheme, marks, _ = document.source.partition("://")
        if not marks:
            return
        known = plugins.find("storage", scheme) is not None or isinstance(document, Model)
        package = None if known else document.package
        plugin = self._plugin("storage", scheme, source, (*loc, "source"), package)
        self._options(plugin, document.storage, source, (*loc, "storage"))
        self._references(document.storage, source, (*loc, "storage"))
        for name, value in document.storage.items():
            if isinstance(value, str) and secret.written_out(name, value):
                self._say(
                    source, (*loc, "storage", name), f"{name} holds a secret in plain text",
                    "write ${env:NAME} and export it, or ${file:PATH}",
                )  # fmt: skip

    def _prompt(self, prompt: Prompt, source: Source) -> None:
        plugin = self._plugin("prompts", prompt.strategy, source, ("strategy",), prompt.package)
        self._options(plugin, prompt.options, source, ("options",))
        if plugin is None:
            return
        if prompt.user is None and not prompt.prompts:
            if prompt.collection is None:
                self._say(source, (), "a prompt needs 'user', 'prompts' or a 'collection'")
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
                self._say(source, (key,), problem.message, problem.remedy)
            return
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            self._say(source, ("strategy",), _failed(prompt.strategy, error))
            return
        self._strategies[prompt.name] = plugin

    def _prompt_fits(self, resolved: ResolvedRunTask, source: Source, loc: Loc) -> None:
        """What a prompt asks for is in the dataset; entries for others may ask for more."""
        prompt, dataset = resolved.prompt, resolved.dataset
        names = dict(zip(_OF_DOCUMENTS, (dataset.name, resolved.ml_task.name), strict=True))
        if not self._first("prompt", prompt.name, *names.values()):
            return
        known = {*dataset.fields, *dataset.group_by}
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
                self._say(source, loc, what, one.remedy)
            return
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            self._say(source, loc, _failed(prompt.strategy, error))
            return

        def lacking(name: str, where: str, remedy: str) -> Problem:
            what = f"prompt '{prompt.name}' {where}: " + unknown(
                f"field of dataset '{dataset.name}'", name, known
            )
            return source.problem(loc, what, None if "did you mean" in what else remedy)

        self._documents_meant(prompt, dataset, wanted, source, loc)
        told = "list it under the dataset's `fields` or `group_by`"
        for name in sorted(wanted - given):
            self.problems.append(lacking(name, f"asks for {{{{ {name} }}}}", told))
        told += "; an entry for another dataset says so: `dataset: NAME`"
        for name in sorted(conditions.keys() - wanted - given):
            where = f"has `when: {{{name}: …}}` in '{conditions[name]}'"
            self._conditions.setdefault((prompt.name, name), lacking(name, where, told))

    def _documents_meant(
        self, prompt: Prompt, dataset: Dataset, wanted: frozenset[str], source: Source, loc: Loc
    ) -> None:
        """`dataset` and `task` are names of documents, not what a column has that is called so."""
        for name, (kind, called) in _OF_DOCUMENTS.items():
            documents = self.catalog.names(kind)
            said = {
                str(one.when[name]).strip(): one.id
                for one in reversed(prompt.prompts)
                if name in one.when
            }
            strange = sorted(said.keys() - {*documents})
            if name in (*dataset.fields, *dataset.group_by) and (name in wanted or strange):
                self._say(
                    source, loc,
                    f"prompt '{prompt.name}' uses '{name}', which is the name of the document, not what "
                    f"dataset '{dataset.name}' has under it",
                    "map that column under another name",
                )  # fmt: skip
            elif strange and self._first("strange", prompt.name, name):
                for value in strange:
                    where = f"has `when: {{{name}: {value}}}` in '{said[value]}'"
                    what = unknown(called, value, documents)
                    told = f"if a column says so, map it as `source_{name}`, and say that in `when`"
                    self._say(
                        source, loc, f"prompt '{prompt.name}' {where}: {what}",
                        None if "did you mean" in what else told,
                    )  # fmt: skip

    def _wanted(
        self, prompt: Prompt, entries: tuple[PromptEntry, ...], names: Mapping[str, str]
    ) -> frozenset[str]:
        """Names that a prompt with these entries takes from samples; none, where nobody can tell.

        Raises:
            UserError: it is none for these names.
        """
        plugin = self._strategies.get(prompt.name)
        if plugin is None or not (prompt.user or entries) or not hasattr(plugin, "placeholders"):
            return frozenset()
        spec = PromptSpec(
            prompt.user, prompt.system, entries, prompt.examples, **names, options=prompt.options
        )
        return frozenset(plugin(spec).placeholders())

    def conditions(self) -> None:
        """Tell of names in conditions that no dataset of the catalog knows.

        Datasets beside those that a prompt is used with are read only where something is to be told.
        """
        strange = {name for _, name in self._conditions}
        for one in self.catalog.names("datasets"):
            if not strange:
                break
            try:
                dataset = self.catalog.get(Dataset, one)
            except UserError:
                continue  # told where it is used
            strange.difference_update(dataset.fields, dataset.group_by)
        self.problems.extend(
            problem for (_, name), problem in self._conditions.items() if name in strange
        )
        self._conditions.clear()

    # --- the site -----------------------------------------------------------------------------------

    def _gate(self, gate: Gate, source: Source) -> None:
        """Its rules name what there is, as far as a name without `*` and `?` can be told to be wrong."""
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
                    self._say(source, (key, rule), unknown(what, name, known))
                elif not any(fnmatchcase(one, name) for one in known):
                    self._say(source, (key, rule), f"no {what} fits '{name}'")
        for rule, margin in gate.metrics.items():
            if margin.absolute is None and margin.relative is None:
                what = "needs 'absolute' or 'relative': how much worse it may be"
                self._say(source, ("metrics", rule), what)

    def _site(self, site: Site, source: Source) -> None:
        for loc, message, remedy in sites.findings(site):
            self._say(source, loc, message, remedy)
        for name, value in site.env.items():
            self._references(value, source, ("env", name))
        template = with_absolute_paths(site, source).slurm.template
        if template is not None and (wrong := sites.template_problem(template)):
            if wrong.line is not None:
                self.problems.append(wrong)
            else:
                what = wrong.message if wrong.file is None else f"{wrong.file}: {wrong.message}"
                self._say(source, ("slurm", "template"), what)

    # --- small helpers ------------------------------------------------------------------------------

    def _references(self, value: Any, source: Source, loc: Loc) -> None:
        """Secrets that a document refers to can be had here."""
        if isinstance(value, str):
            for message, remedy in secret.missing(value):
                self._say(source, loc, message, remedy)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                self._references(inner, source, (*loc, key))

    def _first(self, *key: Any) -> bool:
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _say(
        self,
        source: Source,
        loc: Loc,
        message: str,
        remedy: str | None = None,
        *,
        at_key: bool = False,
    ) -> None:
        self.problems.append(source.problem(loc, message, remedy, at_key=at_key))


def _secret_options(options: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Where options hold a secret, by their names.

    A tokenizer's tokens are none (they stand in brackets, or are numbers), nor are paths.
    """
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from ((name, *inner) for inner in _secret_options(value))
        elif (
            isinstance(value, str)
            and secret.written_out(name.replace("-", "_"), value)
            and not _HARMLESS.fullmatch(value)
        ):
            yield (name,)


def _failed(plugin: str, error: Exception) -> str:
    return f"plugin '{plugin}' fails: {type(error).__name__}: {str(error)[:200]}"


def _absent(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is None
    except (ImportError, ValueError):
        return True


def _schema_problem(schema: Mapping[str, Any]) -> str | None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return str(error.message)
    return None
