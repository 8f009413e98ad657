"""Translates definitions of VLMHyperBench v0.2 into today's form; the only place that knows v0.2's words.

Words that today's form does not have (`tasks:` in a plan, `class_path` of a metric, a model inline in a run
task), or `schema_version: "0.2"`, identify the older form; a definition with `schema_version: 1` may only use
today's words. Every word of v0.2 is obeyed, or refused at its line with what to write instead:
docs/registries.md has the table. Values keep their positions, so that later mistakes are reported there.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hpcbench import plugins
from hpcbench.errors import Problem, UserError, nearest, unknown
from hpcbench.registry.source import Loc, Source, shown
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.model import Generation

ValueT = TypeVar("ValueT")

CURRENT = 1

FOLDERS = {"ml_tasks": ("tasks",), "run_tasks": ("runs",)}
"""Kind → its folders in v0.2."""

TASKS: Mapping[str, Mapping[str, Any]] = {
    "vqa": {"sample_fields": ["question"], "prompts": {"en": "vqa_short", "ru": "vqa_short_ru"}},
    "ocr": {"prompts": {"en": "ocr_text", "ru": "ocr_text_ru"}},
    "kie": {"output": "object", "prompts": {"en": "kie_all_json", "ru": "kie_all_json_ru"}},
    "classification": {
        "output": "label",
        "prompts": {"en": "classify_short", "ru": "classify_short_ru"},
    },
}
"""Task module of v0.2, which is also our plugin → what a definition of v0.2 leaves to the module."""

METRICS = {
    "structural_fidelity": "schema_valid", "latency": "latency_mean", "peak_memory": "peak_gpu_memory",
    "throughput": "tokens_per_second", "ttft": "ttft_mean",
}  # fmt: skip
"""Metric of v0.2 → its name here, where it is another one."""

_RENAMED: Mapping[str, Mapping[str, str]] = {
    "ml_tasks": {
        "entry_point": "plugin", "supported_metrics": "metrics", "supported_reports": "reports",
        "supported_frameworks": "engines",
    },
    "run_tasks": {"custom_packages": "packages", "prompt_config": "prompt"},
    "experiments": {"tasks": "run_tasks"},
    "datasets": {"type": "iterator", "path": "source", "params": "options"},
    "metrics": {"class_path": "plugin", "params": "options"},
    "reports": {"class_path": "plugin", "params": "options"},
    "models": {"framework": "engine", "docker_image": "image", "engine_params": "engine_options"},
}  # fmt: skip
_FURTHER: Mapping[str, tuple[str, ...]] = {
    "ml_tasks": ("environment", "dataset_interface", "custom_packages", "prompt_config"),
    "models": ("package_manager",),
}
"""Other words that only v0.2 has."""

_MODEL = ("framework", "docker_image", "engine_params", "package_manager", "params")
_FRAMEWORKS = {"hugging face": "huggingface", "hf": "huggingface", "transformers": "huggingface"}
_OPTIONS = {
    "max_model_len": "context_length", "dtype": "dtype", "tensor_parallel_size": "gpus",
}  # fmt: skip
"""Engine parameter of v0.2 → key of a model that every engine obeys."""

_PARTS = ("answer", "data_index", "id", "image", "image_path", "images", "split")
"""Fields of v0.2's datasets that every sample has without being asked."""

_OWN_MODULES = ("vlmhyperbench.", "metric_evaluator.", "metric_registry.", "report_generator.")
"""Packages of v0.2's own classes."""

_TASK_MODULE = re.compile(r"(?:(?:vlmhyperbench\.|hpcbench\.)?tasks\.)?(\w+)(?:\.__main__)?")
_CLASS = re.compile(r".+(?::\w+|\.[A-Z]\w*)")
_PYPI = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:==([A-Za-z0-9.!+_-]+))?")


def upgrade(kind: str, source: Source) -> Source:
    """The same definition in today's form; the same object where nothing changes.

    Raises:
        UserError: this hpcbench does not know its `schema_version`; or, each at its place, words of v0.2 that
            it does not obey.
    """
    version = source.data.get("schema_version")
    if version == CURRENT and not isinstance(version, bool):
        return source
    if version is not None and str(version) != "0.2":
        newer = isinstance(version, (int, float)) and version > CURRENT
        remedy = (
            "install a newer hpcbench-vlm"
            if newer
            else 'write 1, or "0.2" for a definition of VLMHyperBench'
        )
        raise UserError(
            source.problem(
                ("schema_version",),
                f"this hpcbench does not know schema_version {shown(version)}",
                remedy,
            )
        )
    if version is None and not _old(kind, source.data):
        return source
    translation = _Translation(source)
    translation.drop(("schema_version",))
    translation.definition(kind, ())
    if translation.problems:
        raise UserError(*translation.problems)
    return translation.source


def _old(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether it contains words of v0.2 that today's form does not have."""
    words = {*_RENAMED.get(kind, ()), *_FURTHER.get(kind, ())} - KINDS[kind].model_fields.keys()
    if words & data.keys() or (kind == "models" and _gateway(data) is not None):
        return True
    if kind == "packages":
        return _old_source(data.get("source")) or bool(
            isinstance(arguments := data.get("install_args"), dict)
            and arguments.keys() - {"extras"}
        )
    entries = data.get("run_tasks", ()) if kind == "experiments" else ()
    inside = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    return any(map(_old_run_task, [dict(data)] if kind == "run_tasks" else inside))


def _old_run_task(data: Mapping[str, Any]) -> bool:
    model, metrics = data.get("model"), data.get("metrics")
    return (
        bool(_RENAMED["run_tasks"].keys() & data.keys())
        or (isinstance(model, dict) and bool({*_MODEL} & model.keys() or _gateway(model)))
        or (isinstance(metrics, list) and any(_old_metric(one) for one in metrics))
    )


def _old_metric(entry: Any) -> bool:
    """Whether an entry of a list of metrics has v0.2's form; `{name, version: 1}` is today's, too."""
    return isinstance(entry, dict) and not (
        entry.keys() == {"name", "version"} and type(entry["version"]) is int
    )


def _gateway(model: Mapping[str, Any]) -> Loc | None:
    """Where a model says `gateway: {auth_type, jwt: {…}}`, below the model; None: it does not."""
    keys = ("engine_options", "engine_params")
    places: list[tuple[Loc, Any]] = [((), model), *(((key,), model.get(key)) for key in keys)]
    for loc, place in places:
        if isinstance(place, dict) and isinstance(place.get("gateway"), dict):
            return (*loc, "gateway")
    return None


def _old_source(source: Any) -> bool:
    return isinstance(source, str) or (isinstance(source, dict) and "type" not in source)


class _Translation:
    """One definition on its way; problems are collected."""

    def __init__(self, source: Source) -> None:
        self.source = Source(
            source.path, copy.deepcopy(source.data), dict(source.marks), dict(source.key_marks)
        )
        self.problems: list[Problem] = []

    def definition(self, kind: str, loc: Loc) -> None:
        """The definition at a place."""
        for old, new in _RENAMED.get(kind, {}).items():
            self.move((*loc, old), (*loc, new))
            absent: Loc = (*loc, new)
            if not self.has(absent):
                self.source.written[absent] = (*loc, old)
        steps: Mapping[str, Callable[[Loc], None]] = {
            "ml_tasks": self._ml_task, "run_tasks": self._run_task, "experiments": self._plan,
            "datasets": self._dataset, "metrics": self._class, "reports": self._class,
            "models": self._model_definition, "packages": self._package,
        }  # fmt: skip
        if kind in steps:
            self.kind = kind
            steps[kind](loc)

    # --- kinds ------------------------------------------------------------------------------------------

    def _plan(self, loc: Loc) -> None:
        for at, one in self._entries((*loc, "run_tasks")):
            if isinstance(one, dict):
                self.definition("run_tasks", at)

    def _ml_task(self, loc: Loc) -> None:
        self._environment(loc)
        self._dataset_interface(loc)
        at = (*loc, "plugin")
        name = self._text(at)
        module = _TASK_MODULE.fullmatch(name) if name is not None else None
        if module is not None and module[1] in TASKS:
            self.put(at, module[1])
            place = self.source.marks.get(at)
            for key, value in TASKS[module[1]].items():
                if key not in self.get(loc) and not (
                    key == "prompts" and self.has((*loc, "prompt"))
                ):
                    self.get(loc)[key] = copy.deepcopy(value)
                    if place is not None:
                        added: Loc = (*loc, key)
                        self.source.marks[added] = place
        elif module is not None and "." in module[0] and nearest(module[1], TASKS):
            known = [f"vlmhyperbench.tasks.{one}" for one in TASKS]
            self.say(at, unknown("task of v0.2", str(name), known))
        elif name is not None and "." in name and not _CLASS.fullmatch(name):
            self._own_module(loc)
        self._metrics((*loc, "metrics"))
        self._engines((*loc, "engines"))
        packages = self._list((*loc, "custom_packages"))
        for index in range(len(packages)):
            self._package((*loc, "custom_packages", index))
        self.extend((*loc, "custom_packages"), (*loc, "required_packages"))
        if self.has((*loc, "prompt_config")):
            self.move((*loc, "prompt_config"), (*loc, "prompt"))
            self._prompt(loc)

    def _own_module(self, loc: Loc) -> None:
        """`entry_point` names a module of the user's own: it answers, and its answers are read as text."""
        self.move((*loc, "plugin"), (*loc, "module"))
        self.get(loc)["plugin"] = "vqa"
        if (place := self.source.marks.get((*loc, "module"))) is not None:
            added: Loc = (*loc, "plugin")
            self.source.marks[added] = place

    def _environment(self, loc: Loc) -> None:
        """`environment: {entry_point, default_packages}`."""
        at = (*loc, "environment")
        if not self._is_map(at, "{entry_point, default_packages}"):
            return
        self.move((*at, "entry_point"), (*loc, "plugin"))
        self.extend((*at, "default_packages"), (*loc, "required_packages"))
        self._rest(
            at, "write `entry_point` and `required_packages`; an image is named by the model"
        )

    def _dataset_interface(self, loc: Loc) -> None:
        """`dataset_interface: {type, required_fields}`."""
        at = (*loc, "dataset_interface")
        if not self._is_map(at, "{type, required_fields}"):
            return
        self.move((*at, "type"), (*loc, "iterator"))
        self._iterator((*loc, "iterator"))
        wanted: Loc = (*at, "required_fields")
        if self._is_list(wanted):
            fields = [one for one in self.get(wanted) if one not in _PARTS]
            if fields:
                self.get(loc).setdefault("sample_fields", fields)
            self.drop(wanted)
        self._rest(at, "write `type` and `required_fields`")

    def _run_task(self, loc: Loc) -> None:
        if isinstance(self.get((*loc, "model")), dict):
            self._model(loc)
        self._metrics((*loc, "metrics"))
        for index in range(len(self._list((*loc, "packages")))):
            self._package((*loc, "packages", index))
        self._prompt(loc)

    def _model(self, loc: Loc) -> None:
        """`model: {name, framework, docker_image, package_manager, engine_params, env, params}`."""
        at = (*loc, "model")
        for old, new in _RENAMED["models"].items():
            self.move((*at, old), (*at, new))
        self.move((*at, "params"), (*loc, "generation"))
        generation = self.get((*loc, "generation"))
        if isinstance(generation, dict):
            for key in [one for one in generation if one not in Generation.model_fields]:
                generation.setdefault("extra", {})
                self.move((*loc, "generation", key), (*loc, "generation", "extra", key))
        self._engine_and_image(at)

    def _model_definition(self, loc: Loc) -> None:
        """The same as a definition of its own."""
        self._engine_and_image(loc)
        name = self._text((*loc, "name"))
        if name is not None and self.get((*loc, "engine")) in ("vllm", "huggingface", "sglang"):
            self.get(loc).setdefault("source", f"hf://{name}")
        if self.has((*loc, "params")):
            self.say(
                (*loc, "params"),
                "a model has no 'params'",
                "write them in the run task: `generation`",
            )

    def _engine_and_image(self, at: Loc) -> None:
        manager = self.get((*at, "package_manager"))
        if manager not in (None, "pip", "uv"):
            self.say(
                (*at, "package_manager"),
                f"packages cannot be installed with {manager!r:.40} beside an image",
                "write pip or uv, or name an image that contains them: `docker_image`",
            )
        self.drop((*at, "package_manager"))
        for old, new in _OPTIONS.items():
            self.move((*at, "engine_options", old), (*at, new))
        if self.get((*at, "engine_options")) == {}:
            self.drop((*at, "engine_options"))
        self._auth(at)
        self._engine((*at, "engine"))
        image = self._text((*at, "image"))
        if image is not None and "://" not in image and not image.endswith(".sif"):
            self.put((*at, "image"), f"docker://{image}")

    def _auth(self, at: Loc) -> None:
        """`gateway: {auth_type: jwt, jwt: {…}}` becomes `engine_options.auth: {type: jwt, …}`.

        `auth_type` chooses among sections that are named after their types; the others say nothing. The
        model's name there is that of its definition.
        """
        model = self.get(at)
        found = _gateway(model)
        if found is None or not isinstance(model.setdefault("engine_options", {}), dict):
            return
        if (name := self._text((*at, "name"))) is not None:
            model["engine_options"].setdefault("model", name)
        gateway: Loc = (*at, *found)
        self.move((*gateway, "base_url"), (*at, "engine_options", "base_url"))
        self.move((*gateway, "auth_type"), (*gateway, "type"))
        chosen = self.get((*gateway, "type")) or "jwt"
        for section in ("jwt", "bearer", "none"):
            inner = self.get((*gateway, section))
            if section == chosen and isinstance(inner, dict):
                for name in list(inner):
                    self.move((*gateway, section, name), (*gateway, name))
            if not inner or section != chosen:
                self.drop((*gateway, section))
        self.move(gateway, (*at, "engine_options", "auth"))

    def _dataset(self, loc: Loc) -> None:
        data = self.get(loc)
        if "annotations" not in data:
            data.setdefault("iterator", "v01")
        data.setdefault("fields", ["question"])
        if self._iterator((*loc, "iterator")) == "v01":
            data.setdefault("group_by", ["doc_class", "question_type"])

    def _class(self, loc: Loc) -> None:
        """A metric or report by its class."""
        self._ours(self.kind, (*loc, "plugin"))

    def _package(self, loc: Loc) -> None:
        """`{name, source, install_args}`; `source` is a map, or text as pip takes it."""
        if not isinstance(self.get(loc), dict):
            return
        at = (*loc, "source")
        text = self._text(at)
        source = self.get(at)
        if text is not None:
            self.put(at, self._written(at, text))
        elif isinstance(source, dict) and "type" not in source and len(source) == 1:
            (way,) = source
            inner = source[way]
            if isinstance(inner, dict):
                for key in list(inner):
                    self.move((*at, way, key), (*at, key))
                self.drop((*at, way))
                self.get(at)["type"] = way
        arguments = (*loc, "install_args")
        if not isinstance(self.get(arguments), dict):
            return
        for key in list(self.get(arguments)):
            plain = key.lstrip("-").replace("-", "_")
            if plain in ("index", "index_url") and isinstance(self.get(at), dict):
                self.move((*arguments, key), (*at, "index"))
            elif plain != "extras":
                self.say(
                    (*arguments, key),
                    f"hpcbench does not install packages with '{key}'",
                    "remove it: exact versions are installed into a folder of their own; `extras` and "
                    "`index_url` are obeyed",
                )
                self.drop((*arguments, key))

    def _written(self, at: Loc, text: str) -> dict[str, Any]:
        """A package's source that is written as text."""
        if text.startswith("git+"):
            url, _, ref = text.removeprefix("git+").rpartition("@")
            if "/" in ref or not url:  # the @ of user@host
                url, ref = text.removeprefix("git+"), ""
            return {"type": "git", "url": url, **({"ref": ref} if ref else {})}
        if text.startswith((".", "/", "~")):
            return {"type": "local", "path": text}
        found = _PYPI.fullmatch(text.replace(" ", ""))
        if found is None:
            self.say(
                at, f"'{text:.60}' is no source of a package",
                "write git+URL@TAG, ./FOLDER, or NAME==VERSION",
            )  # fmt: skip
            return {"type": "pypi", "name": "x"}
        return {"type": "pypi", "name": found[1], **({"version": found[2]} if found[2] else {})}

    # --- values -----------------------------------------------------------------------------------------

    def _metrics(self, at: Loc) -> None:
        """Names of metrics, or `{name, version, backend, params}`."""
        kept: list[tuple[Loc, Any]] = []
        for loc, one in self._entries(at):
            name, version = one, None
            if isinstance(one, dict):
                name, version = one.get("name"), one.get("version")
                version = version if type(version) is int else None
                if one.get("backend") not in (None, "native"):
                    self.say((*loc, "backend"), f"there is no backend {one['backend']!r:.40}",
                             "write a definition in metrics/ for it, and its name here")  # fmt: skip
                if version is None and "version" in one:
                    self.say((*loc, "version"), f"{shown(one['version'])} is no version of a metric here",
                             "leave it out, or write a whole number: `version: 1`")  # fmt: skip
                for key in one.keys() - {"name", "backend", "version"}:
                    self.say((*loc, key), f"a metric in a list has no '{key}'",
                             "write it in a definition in metrics/, and its name here")  # fmt: skip
            if isinstance(name, str):
                name = METRICS.get(name.lower(), name)
            kept.append((loc, name if version is None else {"name": name, "version": version}))
        if isinstance(self.get(at), list):
            places = [self.source.marks.get(loc) for loc, _ in kept]
            self._forget(at, itself=False)
            for index, place in enumerate(places):
                if place is not None:
                    here: Loc = (*at, index)
                    self.source.marks[here] = place
            if kept:
                self.put(at, [name for _, name in kept])
            else:
                self.drop(at)

    def _prompt(self, loc: Loc) -> None:
        """`prompt_config`: a file of v0.2's prompts, or its content, becomes a prompt of its own."""
        at = (*loc, "prompt")
        config = self.get(at)
        text = self._text(at)
        if text is not None and text.endswith(".json"):
            self.put(at, {"name": f"prompts of {self._title(loc)}", "collection": text})
        elif isinstance(config, dict) and "name" not in config:
            try:
                prompt = prompt_of(config)
            except ValueError as error:
                self.say(at, str(error), "see docs/registries.md")
                prompt = {"user": ""}
            self.put(at, {"name": f"prompts of {self._title(loc)}", **prompt})

    def _title(self, loc: Loc) -> str:
        return str(self.get((*loc, "name")) or "a run task")[:100]

    def _iterator(self, at: Loc) -> str | None:
        return self._ours("datasets", at, {"vqa": "v01", "annotation": "v01", "csv": "v01"})

    def _ours(self, kind: str, at: Loc, further: Mapping[str, str] | None = None) -> str | None:
        """Put the plugin's name for a class of v0.2; other values stay."""
        path = self._text(at)
        if path is None or path in plugins.available(kind):
            return path
        bare = path.isidentifier()
        if not bare and not path.startswith(_OWN_MODULES):
            return path
        known = {**{name: name for name in plugins.available(kind)}, **(further or {})}
        for part in reversed(re.split(r"[.:]", path)):
            word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part).lower()
            word = re.sub(r"_?(metric|report|generator|dataset|iterator)s?$", "", word)
            for tried in (word, METRICS.get(word, word), *(() if bare else word.split("_"))):
                if tried in known:
                    self.put(at, known[tried])
                    return known[tried]
        if bare:
            return path
        what = plugins.called(kind)
        self.say(at, f"hpcbench has no {what} for v0.2's '{path}'",
                 f"write the name of one: {', '.join(list(plugins.available(kind))[:8])}, …")  # fmt: skip
        return None

    def _engines(self, at: Loc) -> None:
        for loc, _ in self._entries(at):
            self._engine(loc)

    def _engine(self, at: Loc) -> None:
        engine = self._text(at)
        if engine is not None:
            self.put(at, _FRAMEWORKS.get(engine.lower(), engine.lower()))

    # --- the tree ---------------------------------------------------------------------------------------

    def say(self, loc: Loc, message: str, remedy: str | None = None) -> None:
        """Refuse the value at a place."""
        self.problems.append(self.source.problem(loc, message, remedy, at_key=True))

    def get(self, loc: Loc) -> Any:
        """The value at a place; None: there is none."""
        data = self.source.data
        for part in loc:
            try:
                data = data[part]
            except (KeyError, IndexError, TypeError):
                return None
        return data

    def has(self, loc: Loc) -> bool:
        """Whether there is such a key."""
        parent = self.get(loc[:-1])
        return isinstance(parent, dict) and loc[-1] in parent

    def put(self, loc: Loc, value: Any) -> None:
        """Replace a value that keeps its place."""
        self.get(loc[:-1])[loc[-1]] = value

    def drop(self, loc: Loc) -> None:
        """Remove a key."""
        parent = self.get(loc[:-1])
        if isinstance(parent, dict):
            parent.pop(loc[-1], None)
            self._forget(loc)

    def move(self, old: Loc, new: Loc) -> None:
        """Rename a key, with its positions; a key that exists under both names stays."""
        parent, target = self.get(old[:-1]), self.get(new[:-1])
        if not isinstance(parent, dict) or old[-1] not in parent or new[-1] in target:
            return
        target[new[-1]] = parent.pop(old[-1])
        self.source.written.setdefault(old, self.source.as_written(old))
        _move(self.source.marks, old, new)
        _move(self.source.key_marks, old, new)
        _move(self.source.written, old, new)

    def extend(self, old: Loc, new: Loc) -> None:
        """Append a list to another one, with its positions."""
        added = self.get(old)
        if not self._is_list(old):
            return
        if not isinstance(self.get(new), list):
            self.move(old, new)
            return
        for index in range(len(added)):
            place: Loc = (*new, len(self.get(new)))
            self.get(new).append(added[index])
            for marks in (self.source.marks, self.source.key_marks):
                _move(marks, (*old, index), place)
        self.drop(old)

    def _is_map(self, at: Loc, form: str) -> bool:
        """Whether there is a map; another value is refused."""
        value = self.get(at)
        if value is not None and not isinstance(value, dict):
            self.say(at, f"{at[-1]}: must be a map: {form}, not {shown(value)}")
        if not isinstance(value, dict):
            self.drop(at)
        return isinstance(value, dict)

    def _is_list(self, at: Loc) -> bool:
        """Whether there is a list; another value is refused."""
        value = self.get(at)
        if value is not None and not isinstance(value, list):
            self.say(at, f"{at[-1]}: must be a list: [A, B], not {shown(value)}")
        if not isinstance(value, list):
            self.drop(at)
        return isinstance(value, list)

    def _rest(self, at: Loc, remedy: str) -> None:
        """Refuse all that is left of a map, and remove the map."""
        for key in self.get(at):
            self.say((*at, key), f"unknown key '{key}'", remedy)
        self.drop(at)

    def _text(self, loc: Loc) -> str | None:
        value = self.get(loc)
        return value if isinstance(value, str) else None

    def _list(self, loc: Loc) -> list[Any]:
        value = self.get(loc)
        return value if isinstance(value, list) else []

    def _entries(self, loc: Loc) -> list[tuple[Loc, Any]]:
        return [((*loc, index), one) for index, one in enumerate(self._list(loc))]

    def _forget(self, loc: Loc, *, itself: bool = True) -> None:
        for marks in (self.source.marks, self.source.key_marks):
            for known in [one for one in marks if one[: len(loc)] == loc]:
                if itself or known != loc:
                    del marks[known]


def _move(places: dict[Loc, ValueT], old: Loc, new: Loc) -> None:
    """Move what is known of a place, and of all below it, to another place."""
    for known in [one for one in places if one[: len(old)] == old]:
        moved: Loc = (*new, *known[len(old) :])
        places[moved] = places.pop(known)


def prompt_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a prompt definition for the content of v0.2's `prompt_config`.

    A fixed text comes before the texts of a document's type, these before the default; each half alone.

    Args:
        config: `{system_prompt, user_prompt, fixed_system_prompt, fixed_prompt, type_mapping}`, also below a
            key `prompt_config`.

    Raises:
        ValueError: it has another form; in words.
    """
    inner = config.get("prompt_config", config)
    if not isinstance(inner, Mapping) or not all(isinstance(key, str) for key in inner):
        raise ValueError("prompt_config must be a map")
    known = ("system_prompt", "user_prompt", "fixed_system_prompt", "fixed_prompt", "type_mapping")
    if strange := [key for key in inner if key not in known]:
        raise ValueError("prompt_config: " + unknown("key", strange[0], known))
    texts = {key: inner.get(key) or None for key in known[:4]}
    mapping = inner.get("type_mapping") or {}
    if not all(isinstance(one, str | None) for one in texts.values()):
        raise ValueError("prompt_config: prompts must be text")
    if not isinstance(mapping, Mapping) or not all(
        isinstance(one, Mapping)
        and not one.keys() - {"system_prompt", "user_prompt"}
        and all(isinstance(text, str | None) for text in one.values())
        for one in mapping.values()
    ):
        raise ValueError(
            "prompt_config: type_mapping must map types to {system_prompt, user_prompt}"
        )

    def halves(one: Mapping[str, Any]) -> dict[str, Any]:
        user = texts["fixed_prompt"] or one.get("user_prompt") or texts["user_prompt"]
        system = texts["fixed_system_prompt"] or one.get("system_prompt") or texts["system_prompt"]
        return {"user": user, **({"system": system} if system else {})}

    default = halves({})
    if default["user"] is None and not mapping:
        raise ValueError("prompt_config has no user_prompt")
    entries = [
        {"id": str(kind), "when": {"doc_type": str(kind)}, **halves(one)}
        for kind, one in mapping.items()
    ]
    if lacking := [one["id"] for one in entries if one["user"] is None]:
        raise ValueError(f"prompt_config has no user_prompt for '{lacking[0]}'")
    default = {key: value for key, value in default.items() if value is not None}
    return {**default, **({"prompts": entries} if entries else {})}
