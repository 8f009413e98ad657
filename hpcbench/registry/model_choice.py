"""A model with a run task's changes, and the name that says what differs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpcbench.schema.model import Model, ModelChoice
from hpcbench.schema.names import LONGEST

_SCALARS = ("engine", "image", "dtype", "context_length", "gpus")
_MAPPINGS = ("engine_options", "env")

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_VALUE = re.compile(r"[A-Za-z0-9_.+:-]{1,24}")
"""Texts that a name shows as they are."""


def chosen(model: Model, choice: ModelChoice) -> Model:
    """The model with a run task's changes; two different models never have the same name.

    Its name shows the changes: `tiny-vlm (dtype=float16, max_num_seqs=8)`. Six digits of a hash replace a
    value that is long, has other characters or could be taken for another type, and a value of `env`, which
    may be private; they replace all changes if the name would be too long.
    """
    update: dict[str, Any] = {
        key: value for key in _SCALARS if (value := getattr(choice, key)) is not None
    }
    for key in _MAPPINGS:
        if own := getattr(choice, key):
            update[key] = {**getattr(model, key), **own}
    update = {key: value for key, value in update.items() if value != getattr(model, key)}
    if not update:
        return model
    name = f"{model.name} ({', '.join(_changes(model, update))})"
    if len(name) > LONGEST:
        mark = f" ({_digits(sorted(update.items()))})"
        name = f"{model.name[: LONGEST - len(mark)]}{mark}"
    return model.model_copy(update={**update, "name": name})


def _changes(model: Model, update: Mapping[str, Any]) -> Iterator[str]:
    for key, value in update.items():
        if key not in _MAPPINGS:
            yield f"{key}={_shown(value)}"
            continue
        before = getattr(model, key)
        for name, own in value.items():
            if name in before and before[name] == own:
                continue
            if key == "env":
                yield f"env.{_key(name)}={_digits(own)}"
            else:
                yield f"{'engine_options.' if name in _SCALARS else ''}{_key(name)}={_shown(own)}"


def _key(name: str) -> str:
    return name if _KEY.fullmatch(name) else _digits(name)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    ambiguous = isinstance(value, str) and _is_json(value)
    return text if _VALUE.fullmatch(text) and not ambiguous else _digits(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _digits(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:6]
