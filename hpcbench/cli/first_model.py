"""The model that a first plan names: one that can run here, else the tiny one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcbench.cli.data import site_of
from hpcbench.registry.catalog import Catalog
from hpcbench.schema.documents import MLTask, Model, Site
from hpcbench.submit.first_plan import TINY, Choices, for_a_first_look

LONG_TEXT = 4096
"""Tokens of an answer that is the text of a page."""


@dataclass(frozen=True, slots=True)
class FirstModel:
    """A model in a plan, and what has to stand beside it."""

    entry: str | Mapping[str, Any]
    """The run task's `model`."""
    comment: str = ""
    """For the top of the plan."""
    prompt: str = ""
    """Prompt that it needs; empty: any."""
    generation: Mapping[str, Any] | None = None
    """The run task's `generation`; None: as usual."""
    resources: Mapping[str, Any] | None = None
    """The run task's `resources`; None: as usual."""
    notes: list[str] = field(default_factory=list)
    """What a person should know at once."""


def choose_model(arguments: argparse.Namespace, task: str, images: int, prompt: str) -> FirstModel:
    """The model of `--model`, else the first that can run on the site.

    Args:
        arguments: with `model`, `out` and `site`.
        task: name of the ML task.
        images: images of a request, at most.
        prompt: prompt for any model but the tiny one; empty: the ML task's.

    Raises:
        UserError: there is no such model.
    """
    choices = Choices([arguments.out] if arguments.out.is_dir() else [])
    if arguments.model is not None:
        return _of(choices.catalog.get(Model, arguments.model), task, images, prompt)
    memory = _gpu_memory(site_of(arguments))
    fitting = [
        one
        for one in choices.readable(choices.get(MLTask, task))
        if one.name != TINY
        and (not one.gpus or (memory is not None and (one.gpu_memory_gb or 0) <= memory))
    ]
    own = [one for one in fitting if _is_own(choices.catalog, one.name)]
    if fitting:
        return _of(for_a_first_look(own or fitting), task, images, prompt)
    return _of(choices.catalog.get(Model, TINY), task, images, prompt)


def _of(model: Model, task: str, images: int, prompt: str) -> FirstModel:
    if model.name == TINY:
        return _tiny(task, prompt)
    entry: str | Mapping[str, Any] = model.name
    limits = model.engine_options.get("limit_mm_per_prompt")
    limit = limits.get("image") if isinstance(limits, Mapping) else None
    if isinstance(limit, int) and images > limit:
        entry = {"name": model.name, "engine_options": {"limit_mm_per_prompt": {"image": images}}}
    long = task == "ocr" and (model.context_length or 0) >= 4 * LONG_TEXT
    longer = {"max_tokens": LONG_TEXT} if long else None
    return FirstModel(entry, "Other models: `hpcbench registry list models`.", prompt, longer)


def _tiny(task: str, prompt: str) -> FirstModel:
    own = f"demo_{task}" if task in ("vqa", "ocr", "kie", "classification") else ""
    instead = f"write `prompt: {prompt}`, and take out" if prompt else "take out `prompt`,"
    comment = (
        "tiny-vlm shows that the plan runs. It reads pages of the demo, and no others. For a real number\n"
        "name another model (`hpcbench registry list models`; for an endpoint see docs/engines.md)\n"
        f"instead, {instead} `generation` and `resources`."
    )
    note = (
        "the plan's model is tiny-vlm, which reads only pages of the demo (another: --model NAME)"
    )
    small = {"cpus": 1, "memory_gb": 3, "time_limit": "00:30:00"}
    return FirstModel(TINY, comment, own, {"max_tokens": 96}, small, [note])


def _is_own(catalog: Catalog, name: str) -> bool:
    """Whether a model's document is the user's, the project's or the site's, and no part of hpcbench."""
    return catalog.label(catalog.files("models", name)[0]) != "shipped"


def _gpu_memory(site: Site) -> float | None:
    """Memory of a GPU of the site, GiB; infinite: it has some, of unknown memory; None: it has none."""
    if site.executor == "slurm":
        usual = site.slurm.partitions.get(site.slurm.partition or "")
        if usual is None:
            return float("inf")
        if usual.gpus == {}:
            return None
        return max(usual.gpu_memory_gb.values(), default=float("inf"))
    from hpcbench.monitor import gpus, visible

    return max((one.memory_bytes / 2**30 for one in visible(gpus())), default=None)
