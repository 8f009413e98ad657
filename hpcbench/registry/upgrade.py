"""Converts definitions of an older form on reading; an inconvertible definition is refused, with a remedy.

The older form is VLMHyperBench v0.2's: other words for the same things (`tasks:` in a plan, `class_path` of
a metric, a model inline in a run task). These words, or `schema_version: "0.2"`, identify it; a definition
with `schema_version: 1` may only use today's words.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hpcbench.errors import UserError
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.definitions import KINDS

CURRENT = 1

FOLDERS = {"ml_tasks": ("tasks",), "run_tasks": ("runs",)}
"""Kind → its folders in v0.2."""

_RENAMED: Mapping[str, Mapping[str, str]] = {
    "ml_tasks": {"entry_point": "plugin", "supported_metrics": "metrics"},
    "run_tasks": {"custom_packages": "packages"},
    "experiments": {"tasks": "run_tasks"},
    "datasets": {"type": "iterator", "path": "source", "params": "options"},
    "metrics": {"class_path": "plugin", "params": "options"},
    "reports": {"class_path": "plugin", "params": "options"},
}
_DROPPED: Mapping[str, tuple[str, ...]] = {
    "ml_tasks": ("supported_reports", "supported_frameworks"),
    "run_tasks": (),
}
_MODEL = {"framework": "engine", "docker_image": "image", "engine_params": "engine_options"}
_FRAMEWORKS = {"hugging face": "huggingface", "hf": "huggingface", "transformers": "huggingface"}


def upgrade(kind: str, source: Source) -> Source:
    """The same definition in today's form; the same object where nothing changes.

    Raises:
        UserError: this hpcbench does not know its `schema_version`.
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
                f"this hpcbench does not know schema_version {version!r:.40}",
                remedy,
            )
        )
    if version is None and not _old(kind, source.data):
        return source
    edited = Source(
        source.path, copy.deepcopy(source.data), dict(source.marks), dict(source.key_marks)
    )
    _drop(edited, ("schema_version",))
    _definition(kind, edited, ())
    return edited


def _old(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether it contains words of v0.2 that today's form does not have."""
    known = KINDS[kind].model_fields.keys()
    words = {*_RENAMED.get(kind, ()), *_DROPPED.get(kind, ())} - known
    if words & data.keys():
        return True
    if kind == "models" and _gateway(data) is not None:
        return True
    entries = data.get("run_tasks", ()) if kind == "experiments" else ()
    inside = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    if kind == "run_tasks":
        inside = [dict(data)]
    return any(
        "custom_packages" in one
        or (isinstance(one.get("model"), dict) and _old_model(one["model"]))
        for one in inside
    )


def _old_model(model: Mapping[str, Any]) -> bool:
    return (
        bool({*_MODEL, "package_manager", "params"} & model.keys()) or _gateway(model) is not None
    )


def _gateway(model: Mapping[str, Any]) -> Loc | None:
    """Where a model says `gateway: {auth_type, jwt: {…}}`, below the model; None: it does not."""
    for loc, place in (((), model), (("engine_options",), model.get("engine_options"))):
        if isinstance(place, dict) and isinstance(place.get("gateway"), dict):
            return (*loc, "gateway")
    return None


def _definition(kind: str, edited: Source, loc: Loc) -> None:
    for old, new in _RENAMED.get(kind, {}).items():
        _move(edited, (*loc, old), (*loc, new))
    for word in _DROPPED.get(kind, ()):
        _drop(edited, (*loc, word))
    data = _get(edited, loc)
    if kind == "experiments" and isinstance(data.get("run_tasks"), list):
        for index, entry in enumerate(data["run_tasks"]):
            if isinstance(entry, dict):
                _definition("run_tasks", edited, (*loc, "run_tasks", index))
    if kind == "run_tasks" and isinstance(data.get("model"), dict):
        _model(edited, loc)
    if kind == "models":
        _auth(edited, loc)


def _model(edited: Source, loc: Loc) -> None:
    """`model: {name, framework, docker_image, package_manager, engine_params, env, params}`."""
    at = (*loc, "model")
    _drop(edited, (*at, "package_manager"))
    _move(edited, (*at, "params"), (*loc, "generation"))
    for old, new in _MODEL.items():
        _move(edited, (*at, old), (*at, new))
    _auth(edited, at)
    model = _get(edited, at)
    engine, image = model.get("engine"), model.get("image")
    if isinstance(engine, str):
        model["engine"] = _FRAMEWORKS.get(engine.lower(), engine.lower())
    if isinstance(image, str) and "://" not in image and not image.endswith(".sif"):
        model["image"] = f"docker://{image}"


def _auth(edited: Source, at: Loc) -> None:
    """`gateway: {auth_type: jwt, jwt: {…}}` becomes `engine_options.auth: {type: jwt, …}`."""
    model = _get(edited, at)
    found = _gateway(model)
    if found is None or not isinstance(model.setdefault("engine_options", {}), dict):
        return
    gateway = (*at, *found)
    _move(edited, (*gateway, "base_url"), (*at, "engine_options", "base_url"))
    _move(edited, (*gateway, "auth_type"), (*gateway, "type"))
    inner = _get(edited, gateway).get("jwt")
    if isinstance(inner, dict):
        for name in list(inner):
            _move(edited, (*gateway, "jwt", name), (*gateway, name))
        if not inner:
            _drop(edited, (*gateway, "jwt"))
    _move(edited, gateway, (*at, "engine_options", "auth"))


def _get(source: Source, loc: Loc) -> Any:
    data = source.data
    for part in loc:
        data = data[part]
    return data


def _drop(source: Source, loc: Loc) -> None:
    _get(source, loc[:-1]).pop(loc[-1], None)
    for marks in (source.marks, source.key_marks):
        for known in [one for one in marks if one[: len(loc)] == loc]:
            del marks[known]


def _move(source: Source, old: Loc, new: Loc) -> None:
    """Rename a key in place, with its positions; a key that exists under both names stays."""
    parent, target = _get(source, old[:-1]), _get(source, new[:-1])
    if old[-1] not in parent or new[-1] in target:
        return
    target[new[-1]] = parent.pop(old[-1])
    for marks in (source.marks, source.key_marks):
        for known in [one for one in marks if one[: len(old)] == old]:
            renamed = (*new, *known[len(old) :])
            marks[renamed] = marks.pop(known)
