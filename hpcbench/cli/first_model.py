"""The model that a first plan names: a model that fits this site, else the tiny one."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcbench.cli.data import site_of
from hpcbench.registry.catalog import Catalog
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.submit.first_plan import TINY, Choices, for_a_first_look
from hpcbench.submit.plan_facts import gpus_of_site

LONG_TEXT = 4096
"""Tokens of an answer that contains a page's text."""


@dataclass(frozen=True, slots=True)
class FirstModel:
    """A model of a plan, with the settings it needs."""

    entry: str
    """The run task's `model`."""
    comment: str = ""
    """Comment for the top of the plan."""
    prompt: str = ""
    """Prompt that the model needs; empty: any."""
    generation: Mapping[str, Any] | None = None
    """The run task's `generation`; None: the default."""
    resources: Mapping[str, Any] | None = None
    """The run task's `resources`; None: the default."""
    notes: list[str] = field(default_factory=list)
    """Notes that the user should read now."""


def choose_model(arguments: argparse.Namespace, task: str, prompt: str) -> FirstModel:
    """The model of `--model`, else the first model that fits the site.

    Args:
        arguments: with `model`, `out` and `site`.
        task: name of the ML task.
        prompt: prompt for any model but the tiny one; empty: the ML task's.

    Raises:
        UserError: no such model.
    """
    choices = Choices([arguments.out] if arguments.out.is_dir() else [])
    if arguments.model is not None:
        return _of(choices.catalog.get(Model, arguments.model), task, prompt)
    gpus = gpus_of_site(site_of(arguments))
    fitting = [
        one
        for one in choices.readable(choices.get(MLTask, task))
        if one.name != TINY
        and (not one.gpus or (gpus and one.fits_gpu(gpus.memory_gb or math.inf)))
    ]
    own = [one for one in fitting if _is_own(choices.catalog, one.name)]
    if fitting:
        return _of(for_a_first_look(own or fitting), task, prompt)
    return _of(choices.catalog.get(Model, TINY), task, prompt)


def _of(model: Model, task: str, prompt: str) -> FirstModel:
    if model.name == TINY:
        return _tiny(task, prompt)
    long = (
        task == "ocr" and task not in model.tasks and (model.context_length or 0) >= 4 * LONG_TEXT
    )
    longer = {"max_tokens": LONG_TEXT} if long else None
    return FirstModel(model.name, "Other models: `hpcbench registry list models`.", prompt, longer)


def _tiny(task: str, prompt: str) -> FirstModel:
    own = f"demo_{task}" if task in ("vqa", "ocr", "kie", "classification") else ""
    instead = f"set `prompt: {prompt}`, and remove" if prompt else "remove `prompt`,"
    comment = (
        "tiny-vlm shows that the plan runs. It reads only the pages of the demo. For real scores\n"
        "name another model (`hpcbench registry list models`; for an endpoint see docs/engines.md),\n"
        f"{instead} `generation` and `resources`."
    )
    note = "the plan uses tiny-vlm, which reads only the pages of the demo (--model NAME names another)"
    small = {"cpus": 1, "memory_gb": 3, "time_limit": "00:30:00"}
    return FirstModel(TINY, comment, own, {"max_tokens": 96}, small, [note])


def _is_own(catalog: Catalog, name: str) -> bool:
    """Whether a model's definition belongs to the user, project or site, not to hpcbench."""
    return catalog.label(catalog.files("models", name)[0]) != "shipped"
