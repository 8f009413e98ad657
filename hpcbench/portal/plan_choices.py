"""Definitions that a plan's form offers, with the figures that decide a choice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.errors import UserError
from hpcbench.portal.models.plans import CHOICE_KINDS, Choice
from hpcbench.registry.catalog import Catalog
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model


def choices_in(plans: Path) -> tuple[Choice, ...]:
    """Definitions of `CHOICE_KINDS`, by kind and name; invalid ones say what is wrong.

    Args:
        plans: the user's folder of plans; its `registries/` comes last.
    """
    own = plans / "registries"
    catalog = Catalog([own] if own.is_dir() else [], project=False)
    return tuple(
        _choice(catalog, kind, name) for kind in CHOICE_KINDS for name in catalog.names(kind)
    )


def _choice(catalog: Catalog, kind: str, name: str) -> Choice:
    try:
        found = catalog.get(KINDS[kind], name)
    except UserError as error:
        wrong = secret.mask(error.problems[0].message)[:500]
        return Choice.model_validate({"kind": kind, "name": name, "fault": wrong})
    return Choice.model_validate(
        {"kind": kind, "name": name, "description": found.description, **dict(_figures(found))}
    )


def _figures(found: Definition) -> Iterator[tuple[str, Any]]:
    match found:
        case Model():
            yield "engine", found.engine
            yield "gpus", found.gpus
            yield "gpu_memory_gb", found.gpu_memory_gb
            yield "parameters_b", found.parameters_b
            yield "size_gb", found.size_gb
        case Dataset():
            yield "samples", found.samples
            yield "size_gb", found.size_gb
            yield "fields", found.fields
        case MLTask():
            yield "fields", found.sample_fields
