"""Checks a model's definition against its engine, and the storage of models and datasets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from hpcbench import plugins, secret
from hpcbench.errors import EnvironmentFault, UserError, unknown
from hpcbench.files.user import read_text
from hpcbench.plugins import EngineSpec, Split
from hpcbench.registry.plugin_checks import Findings, PluginChecks, failed
from hpcbench.registry.resource_shapes import model_findings
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.image_reference import Reference
from hpcbench.schema.model import Model, option_name

TRANSPORTS = ("docker", "oras", "oci", "oci-archive", "docker-archive", "docker-daemon")
"""Possible prefixes of an image reference that are not the name of an environment's plugin."""

_ABSENT = object()
_HARMLESS = re.compile(r"<.*>|\[.*\]|[\d, ]+|~?/.*")
"""Names and values of a tokenizer's tokens, and paths."""


class ModelChecks:
    """Checks models."""

    def __init__(self, plugin_checks: PluginChecks, found: Findings) -> None:
        self.plugins, self.found = plugin_checks, found

    def model(self, model: Model, source: Source, loc: Loc) -> None:
        """A model's definition, or a definition with a run task's changes."""
        self.found.secrets(model.env, source, (*loc, "env"))
        needed: dict[Loc, str] = {("needs", number): one for number, one in enumerate(model.needs)}
        needed |= {("served_by", engine): one for engine, one in model.served_by.items()}
        for place, line in needed.items():
            try:
                Requirement(line)
            except InvalidRequirement as error:
                what = f"'{line}' is not a requirement: {str(error).splitlines()[0]}"
                self.found.say(source, (*loc, *place), what, "write NAME>=VERSION")
        self._facts(model, source, loc)
        if model.image is not None:
            self.image(model.image, source, (*loc, "image"))
        self._engine_options(model, source, loc)
        for below, message, remedy in model_findings(model, self.gpus(model)):
            self.found.say(source, (*loc, *below), message, remedy)
        self._weights(model, source, loc)
        self.source(model, source, loc)
        if model.chat_template is not None:
            self._chat_template(model.chat_template, source, (*loc, "chat_template"))
        if self.plugins.prod:
            self._model_locked(model, source, loc)

    def _facts(self, model: Model, source: Source, loc: Loc) -> None:
        """`sources` and `unread` name keys that the definition has, each only once."""
        named: dict[Loc, str] = {("sources", key): key for key in model.sources}
        named |= {("unread", number): key for number, key in enumerate(model.unread)}
        for place, key in named.items():
            if key not in Model.model_fields:
                what = unknown("key", key, list(Model.model_fields), of="a model's definition")
                self.found.say(source, (*loc, *place), what)
            elif place[0] == "unread" and key in model.sources:
                what = f"'{key}' is in 'sources' and in 'unread'"
                self.found.say(source, (*loc, *place), what, "remove it from one of them")

    def _engine_options(self, model: Model, source: Source, loc: Loc) -> None:
        for inner in _secret_options(model.engine_options):
            what = f"{inner[-1]} contains a secret in plain text"
            remedy = (
                "write ${env:NAME} and export it, or ${file:PATH}"
                if inner[0] in ("auth", "gateway")
                else "options become visible in a command line: use the model's `env` and ${env:NAME}"
            )
            self.found.say(source, (*loc, "engine_options", *inner), what, remedy)
        engine = self.plugins.loaded("engines", model.engine)
        if engine is None:
            return
        options = model.engine_options
        self.found.references(options.get("auth"), source, (*loc, "engine_options", "auth"))
        secrets = {*_secret_options(options)}  # said above
        if model.gpu_memory_share is not None:
            self._share(model, engine, source, loc)
        wrong = plugins.check_options(engine, options)
        for at, message in wrong:
            if at not in secrets:
                self.found.say(source, (*loc, "engine_options", *at), message, at_key=True)
        said = {message for _, message in wrong}
        spec = EngineSpec(
            "/model", model.name, "/socket", dtype=model.dtype, gpus=self.gpus(model),
            context_length=model.context_length, options=model.engine_options,
            parallel=Split(**model.parallel.model_dump()) if model.parallel else None,
        )  # fmt: skip
        try:
            engine().launch_command(spec)
        except UserError as error:
            for problem in error.problems:
                if problem.message in said:
                    continue  # an engine may check its own options, too
                where = (*loc, "engine_options", *_named(options, problem.message))
                self.found.say(source, where, problem.message, problem.remedy, at_key=True)
        except EnvironmentFault:
            return  # this machine's fault; the engine runs on another
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            if not wrong:
                self.found.say(source, (*loc, "engine"), failed(model.engine, error))

    def _share(self, model: Model, engine: object, source: Source, loc: Loc) -> None:
        """Whether an engine can limit itself to a share of a GPU, and only the definition says which."""
        option = getattr(engine, "memory_share_option", None)
        if option is None:
            what = f"engine '{model.engine}' has no option for a share of a GPU's whole memory"
            self.found.say(source, (*loc, "gpu_memory_share"), what, "use `engine: vllm`")
        elif (written := option_name(model.engine_options, option)) is not None:
            what = f"`gpu_memory_share` sets the engine option '{written}'"
            self.found.say(source, (*loc, "engine_options", written), what, "remove one of them")

    def gpus(self, model: Model) -> int:
        """GPUs that a model needs; if its engine reads no weights, none unless the model says so."""
        said = "gpus" in model.model_fields_set
        reads = getattr(self.plugins.loaded("engines", model.engine), "weights", True)
        return model.gpus if said or reads else 0

    def _weights(self, model: Model, source: Source, loc: Loc) -> None:
        """Check that the model names weights, unless its engine needs none; an absent one may be either."""
        engine = self.plugins.loaded("engines", model.engine)
        if not model.source and engine is not None and getattr(engine, "weights", True):
            self.found.say(
                source, loc, f"key 'source' is missing: engine '{model.engine}' reads weights",
                "add `source: hf://ORGANISATION/NAME`, or the folder with the weights",
            )  # fmt: skip

    def _model_locked(self, model: Model, source: Source, loc: Loc) -> None:
        locked = model.revision or model.content_hash
        if model.source.startswith("hf://") and not locked:
            self.found.say(
                source, (*loc, "source"),
                f"model '{model.name}' is not locked: it has neither revision nor content_hash",
                f"run `hpcbench models verify {model.name}`, which adds one, or set RUN_MODE=dev",
            )  # fmt: skip

    def image(self, image: str, source: Source, loc: Loc) -> None:
        """An image by its reference: its manager is here, and prod has its digest."""
        scheme, colon, _ = image.partition(":")
        if colon and scheme not in TRANSPORTS:
            self.plugins.plugin("environments", scheme, source, loc)
        if image.startswith("docker://"):
            try:
                Reference.parse(image)
            except UserError as error:
                self.found.say(source, loc, error.problems[0].message, error.problems[0].remedy)
                return
        if self.plugins.prod and image.startswith("docker://") and "@sha256:" not in image:
            self.found.say(
                source, loc, f"image {image} is not locked: a tag can move",
                f"run `hpcbench images lock {image}`, which finds its digest, or set RUN_MODE=dev",
            )  # fmt: skip

    def _chat_template(self, path: str, source: Source, loc: Loc) -> None:
        from jinja2 import Environment, TemplateSyntaxError

        try:
            Environment().parse(read_text(Path(path)))  # noqa: S701 - parsed, never rendered
        except UserError as error:
            self.found.say(source, loc, str(error))
        except (ValueError, RecursionError) as error:
            self.found.say(
                source, loc, f"{path} is not a valid Jinja2 template: {str(error)[:200]}"
            )
        except TemplateSyntaxError as error:
            self.found.say(
                source, loc, f"{path}:{error.lineno}: not a valid Jinja2 template: {error.message}"
            )

    def source(self, definition: Dataset | Model, source: Source, loc: Loc) -> None:
        """The storage of remote data, and its options."""
        scheme, marks, _ = definition.source.partition("://")
        if not marks:
            return
        known = plugins.find("storage", scheme) is not None or isinstance(definition, Model)
        package = None if known else definition.package
        plugin = self.plugins.plugin("storage", scheme, source, (*loc, "source"), package)
        self.plugins.options(plugin, definition.storage, source, (*loc, "storage"))
        self.found.secrets(definition.storage, source, (*loc, "storage"), shown="NAME")


def _named(options: Mapping[str, Any], message: str) -> tuple[str, ...]:
    """The option that a message names in quotes, as `name` or `outer.inner`; empty: none."""
    for quoted in re.findall(r"'([^' ]+)'", message):
        inside: Any = options
        for name in (path := tuple(quoted.split("."))):
            inside = inside.get(name, _ABSENT) if isinstance(inside, Mapping) else _ABSENT
        if inside is not _ABSENT:
            return path
    return ()


def _secret_options(options: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Where options contain a secret, by their names.

    A tokenizer's tokens are no secrets (they are in brackets, or are numbers), nor are paths, nor is the
    address of a token server.
    """
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from ((name, *inner) for inner in _secret_options(value))
        elif (
            isinstance(value, str)
            and name != "token_url"
            and secret.written_out(name.replace("-", "_"), value)
            and not _HARMLESS.fullmatch(value)
        ):
            yield (name,)
