"""Paths in a definition are relative to the file that contains them; resolving makes them absolute."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from hpcbench.registry.source import Loc, Source
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.image import Image
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.package import Package
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import PromptExample
from hpcbench.schema.site import Site

DefinitionT = TypeVar("DefinitionT", bound=Definition)

Note = Callable[[Loc, str, str], None]
"""Receives a path of a definition: its place, as it is written there, and absolute."""


def is_reference(image: str) -> bool:
    """Whether an image is named by a reference, not by its definition."""
    file = image.rpartition("/")[2]
    return (
        ":" in image
        or image.startswith(("/", ".", "~"))
        or file.endswith((".sif", ".def"))
        or is_dockerfile(image)
    )


def is_dockerfile(path: str) -> bool:
    """Whether a file is a Dockerfile, by its name."""
    return path.rpartition("/")[2].partition(".")[0] in ("Dockerfile", "Containerfile")


def with_absolute_paths(
    definition: DefinitionT, source: Source, note: Note = lambda loc, written, absolute: None
) -> DefinitionT:
    """The definition with every path absolute; an overlay's paths are relative to the overlay.

    Args:
        definition: the definition.
        source: its source.
        note: receives every path of it.
    """

    def absolute(path: str, *loc: str | int) -> str:
        expanded = os.path.expanduser(path)  # noqa: PTH111 - Path's raises for an unknown user
        found = str((source.place(loc)[0].resolve().parent / expanded).resolve())
        note(loc, path, found)
        return found

    update: dict[str, Any] = {}
    if isinstance(definition, Dataset | Model):
        folder = definition.source
        if folder and "://" not in folder:
            update["source"] = absolute(folder, "source")
    of_definition = isinstance(definition, Model | Metric | MLTask) and definition.image
    if of_definition and is_reference(of_definition):
        update["image"] = _absolute_image(of_definition, lambda path: absolute(path, "image"))
    if isinstance(definition, ExperimentPlan):
        image = definition.evaluation.image
        if image and is_reference(image):
            image = _absolute_image(image, lambda path: absolute(path, "evaluation", "image"))
            update["evaluation"] = definition.evaluation.model_copy(update={"image": image})
    if isinstance(definition, Model) and definition.chat_template is not None:
        update["chat_template"] = absolute(definition.chat_template, "chat_template")
    if isinstance(definition, Image):
        if definition.reference:
            update["reference"] = _absolute_image(
                definition.reference, lambda path: absolute(path, "reference")
            )
        if definition.recipe:
            update["recipe"] = absolute(definition.recipe, "recipe")
    if isinstance(definition, Package) and definition.source.type == "local":
        path = absolute(definition.source.path, "source", "path")
        update["source"] = definition.source.model_copy(update={"path": path})
    if isinstance(definition, Prompt):
        if definition.collection is not None:
            update["collection"] = absolute(definition.collection, "collection")
        update["examples"] = _placed(definition.examples, absolute, "examples")
        update["prompts"] = tuple(
            replace(
                entry, examples=_placed(entry.examples, absolute, "prompts", number, "examples")
            )
            for number, entry in enumerate(definition.prompts)
        )
    if isinstance(definition, Site):
        for key in ("models", "caches"):
            folders = getattr(definition, key)
            update[key] = tuple(
                absolute(os.path.expandvars(folder), key, number)
                for number, folder in enumerate(folders)
            )
        template = definition.slurm.template
        if template is not None and ("/" in template or template.endswith(".j2")):
            path = absolute(os.path.expandvars(template), "slurm", "template")
            update["slurm"] = definition.slurm.model_copy(update={"template": path})
    return definition.model_copy(update=update) if update else definition


def _placed(
    examples: tuple[PromptExample, ...], absolute: Callable[..., str], *loc: str | int
) -> tuple[PromptExample, ...]:
    """Examples of a prompt with the absolute paths of their images."""
    return tuple(
        replace(
            one,
            images=tuple(
                absolute(path, *loc, number, "images", image)
                for image, path in enumerate(one.images)
            ),
        )
        for number, one in enumerate(examples)
    )


def _absolute_image(image: str, absolute: Callable[[str], str]) -> str:
    scheme, colon, rest = image.partition(":")
    if not colon:
        return absolute(image)
    if scheme in ("venv", "oci", "oci-archive", "docker-archive"):
        return f"{scheme}:{absolute(rest.removeprefix('//'))}"
    return image
