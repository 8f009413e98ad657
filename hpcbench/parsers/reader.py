"""The function that reads answers of an ML task: its plugin or parser, its schema and its policies."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from hpcbench import plugins
from hpcbench.parsers import reasoning
from hpcbench.parsers.by_name import JsonObject, Label, Text
from hpcbench.parsers.reasoning import UNFINISHED, strip_reasoning
from hpcbench.parsers.structured import DataParser, whole_characters
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.records import Reading, Sample

Read = Callable[[str, Sample, bool], Reading]
"""Reads an answer, given its sample and whether it was cut at max_tokens."""


def reader(ml_task: MLTask) -> Read:
    """The function that reads answers of an ML task; it never raises.

    A plugin that declares what it `wants` (text, label, object) leaves reading to `DataParser`. Any other
    plugin reads the answer itself, after thoughts are removed; its result is checked against the schema. If
    it raises, that answer is lost, with the reason.

    Raises:
        UserError: there is no such plugin, or its model is no model.
        EnvironmentFault: the plugin or the model cannot be imported.
    """
    kind, _, plugin = _plugin(ml_task)
    wants = getattr(plugin, "wants", None)
    data = DataParser(
        wants or ml_task.output,
        ml_task.output_schema,
        plugins.answer_model(ml_task.output_model) if ml_task.output_model else None,
        repair=ml_task.repair,
        reasoning=ml_task.reasoning,
        transcript=getattr(plugin, "transcribes", False),
    )
    if wants is None:
        return _foreign(plugin(), kind, data)
    field = ml_task.label_field

    def read(text: str, sample: Sample, truncated: bool = False) -> Reading:
        labels = labels_of(sample.fields.get(field)) if field is not None else ()
        return data.read(text, truncated, labels)

    return read


def reading_of(ml_task: MLTask) -> str:
    """The reading of an ML task: parser and version, such as `json_object|v2`; empty: version 1.

    A plugin that leaves reading to `DataParser` has the version of hpcbench's parser of that kind. Any other
    plugin has its own `version`, followed by a full stop and the version of the removal of thoughts.

    Raises:
        UserError, EnvironmentFault: as in `reader`.
    """
    _, name, plugin = _plugin(ml_task)
    wants = getattr(plugin, "wants", None)
    if wants is not None:
        ours, number = _OURS[wants]
        return f"{ours}|v{number}"
    version = str(getattr(plugin, "version", 1))
    if ml_task.reasoning == "strip":
        version += f".{reasoning.VERSION}"
    return "" if version == "1" else f"{name}|v{version}"


def same_reading(one: str, other: str) -> bool:
    """Whether two readings, as named by `reading_of`, are of one version, or of two parsers."""
    names = {reading.partition("|")[0] for reading in (one, other)} - {""}
    return one == other or len(names) > 1


def version_of(reading: str) -> str:
    """The version in a reading."""
    return reading.rpartition("|v")[2] or "1"


_OURS = {
    "text": ("text", Text.version),
    "label": ("label", Label.version),
    "object": ("json_object", JsonObject.version),
}
"""`wants` of a plugin → hpcbench's parser for it, and its version."""


def _plugin(ml_task: MLTask) -> tuple[str, str, Any]:
    """The plugin that reads the answers of an ML task: kind of plugin, name, class."""
    kind, name = ("parsers", ml_task.parser) if ml_task.parser else ("tasks", ml_task.plugin)
    return kind, name, plugins.load(kind, name)


def labels_of(listed: object) -> Sequence[str]:
    """Labels in a field of a sample: a list, or text with one label per line or commas between them."""
    if isinstance(listed, str):
        parts = listed.splitlines() if "\n" in listed.strip() else re.split("[,;]", listed)
        return tuple(part.strip() for part in parts if part.strip())
    if isinstance(listed, Sequence):
        return tuple(str(one) for one in listed)
    return ()


def _foreign(plugin: Any, kind: str, data: DataParser) -> Read:
    """The reading function of a plugin that reads answers itself."""

    def read(text: str, sample: Sample, truncated: bool = False) -> Reading:
        text = whole_characters(text)
        answer = strip_reasoning(text) if data.reasoning == "strip" else text
        if answer is None:
            return Reading(None, UNFINISHED, truncated=truncated)
        try:
            found = plugin.parse(answer) if kind == "parsers" else plugin.parse(answer, sample)
        except Exception as error:  # noqa: BLE001 - foreign code: one sample is lost, not the run
            said = " ".join(str(error).split())[:80]
            reason = f"{kind.removesuffix('s')} {type(error).__name__}: {said}"
            return Reading(None, reason, truncated=truncated)
        if isinstance(found, Reading):
            given = dataclasses.replace(found, truncated=found.truncated or truncated)
            if given.value is None or given.faults or not data.schema.definition:
                return given
            judged = data.judged(given.value, given.truncated)
            return dataclasses.replace(judged, form=given.form, repairs=given.repairs)
        if found is None:
            return Reading(None, "not read", truncated=truncated)
        return data.judged(found, truncated)

    return read
