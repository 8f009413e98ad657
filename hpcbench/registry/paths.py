"""Paths in a document are relative to the file they stand in; a resolved document has them absolute."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from hpcbench.registry.source import Loc, Source
from hpcbench.schema.documents import Dataset, Document, Image, Model, Package, Prompt, Site
from hpcbench.schema.records import PromptExample

DocumentT = TypeVar("DocumentT", bound=Document)

Note = Callable[[Loc, str, str], None]
"""Told of a path in a document: where it stands, as it is written there, and absolute."""


def is_reference(image: str) -> bool:
    """Whether an image is named by what it is, not by its document."""
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
    document: DocumentT, source: Source, note: Note = lambda loc, written, absolute: None
) -> DocumentT:
    """The document with every path absolute; what an overlay says is relative to the overlay.

    Args:
        document: the document.
        source: where it was read.
        note: told of every path of it.
    """

    def absolute(path: str, *loc: str | int) -> str:
        expanded = os.path.expanduser(path)  # noqa: PTH111 - Path's raises for a user nobody knows
        found = str((source.place(loc)[0].resolve().parent / expanded).resolve())
        note(loc, path, found)
        return found

    update: dict[str, Any] = {}
    if isinstance(document, Dataset | Model):
        folder = document.source
        if folder and "://" not in folder:
            update["source"] = absolute(folder, "source")
    if isinstance(document, Model):
        if document.image and is_reference(document.image):
            update["image"] = _absolute_image(document.image, lambda path: absolute(path, "image"))
        if document.chat_template is not None:
            update["chat_template"] = absolute(document.chat_template, "chat_template")
    if isinstance(document, Image):
        if document.reference:
            update["reference"] = _absolute_image(
                document.reference, lambda path: absolute(path, "reference")
            )
        if document.recipe:
            update["recipe"] = absolute(document.recipe, "recipe")
    if isinstance(document, Package) and document.source.type == "local":
        path = absolute(document.source.path, "source", "path")
        update["source"] = document.source.model_copy(update={"path": path})
    if isinstance(document, Prompt):
        if document.collection is not None:
            update["collection"] = absolute(document.collection, "collection")

        def placed(
            examples: tuple[PromptExample, ...], *loc: str | int
        ) -> tuple[PromptExample, ...]:
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

        update["examples"] = placed(document.examples, "examples")
        update["prompts"] = tuple(
            replace(entry, examples=placed(entry.examples, "prompts", number, "examples"))
            for number, entry in enumerate(document.prompts)
        )
    if isinstance(document, Site):
        for key in ("models", "caches"):
            folders = getattr(document, key)
            update[key] = tuple(
                absolute(os.path.expandvars(folder), key, number)
                for number, folder in enumerate(folders)
            )
        template = document.slurm.template
        if template is not None and ("/" in template or template.endswith(".j2")):
            path = absolute(os.path.expandvars(template), "slurm", "template")
            update["slurm"] = document.slurm.model_copy(update={"template": path})
    return document.model_copy(update=update) if update else document


def _absolute_image(image: str, absolute: Callable[[str], str]) -> str:
    scheme, colon, rest = image.partition(":")
    if not colon:
        return absolute(image)
    if scheme in ("venv", "oci", "oci-archive", "docker-archive"):
        return f"{scheme}:{absolute(rest.removeprefix('//'))}"
    return image
