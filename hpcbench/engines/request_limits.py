"""Limits of an engine for every request, as far as its options and the model's files state them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_POSITIONS = (
    "max_position_embeddings", "model_max_length", "max_seq_len", "max_seq_length", "max_sequence_length",
    "max_target_positions", "n_positions", "seq_len", "seq_length",
)  # fmt: skip
"""Keys of models' configs for the largest number of positions."""


def positions(folder: str) -> int | None:
    """Most tokens that the model in this folder can take, by the most generous reading of its config.

    Engines read several keys, each by its own rules; a limit above all of them refuses no request that
    could work. None: the config is missing, or has no such key.
    """
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    found, stretched = 0, 1.0
    for part in _parts(config):
        found = max([found, *(part[key] for key in _POSITIONS if type(part.get(key)) is int)])
        for key in ("rope_scaling", "rope_parameters"):
            scaling = part.get(key)
            factor = scaling.get("factor") if isinstance(scaling, Mapping) else None
            if isinstance(factor, (int, float)):
                stretched = max(stretched, float(factor))
    return int(found * stretched) or None


def count_of(limits: Any) -> int | None:
    """Most images in one request, from an engine's mapping of limits or its JSON; None: unset."""
    if isinstance(limits, str):
        try:
            limits = json.loads(limits)
        except ValueError:
            return None
    said = limits.get("image") if isinstance(limits, Mapping) else None
    if isinstance(said, Mapping):
        said = said.get("count")
    return said if type(said) is int else None


def _parts(config: Any) -> Iterator[Mapping[str, Any]]:
    """A config and its nested ones: the language model of a VLM has its own."""
    if isinstance(config, Mapping):
        yield config
        for value in config.values():
            yield from _parts(value)
