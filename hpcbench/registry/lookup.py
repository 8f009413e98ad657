"""Looks up definitions, checks them and completes them: paths become absolute, names of images references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hpcbench.errors import Problem, UserError
from hpcbench.files.user import read_text
from hpcbench.registry.catalog import FOLDERS, Catalog, load_definition
from hpcbench.registry.collections import with_collection
from hpcbench.registry.cross_checks import Checks
from hpcbench.registry.cuda import asks_for_forward_compatibility, runs
from hpcbench.registry.paths import is_reference, with_absolute_paths
from hpcbench.registry.resource_shapes import spread
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.definition import Definition
from hpcbench.schema.gate import Gate
from hpcbench.schema.image import Image
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.package import Package
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.site import Site

DefinitionT = TypeVar("DefinitionT", bound=Definition)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ForScores:
    """Definitions that score answers without a plan."""

    ml_task: MLTask | None
    metrics: tuple[Metric, ...]
    """The metrics; `image` of each is a reference."""
    metric_packages: Mapping[str, tuple[str, ...]]
    """Metric → packages that must be importable where it scores."""
    packages: Mapping[str, Package]
    """These packages."""
    origins: Mapping[str, str]
    """`kind/name` → the definition's file."""
    images: Mapping[str, Image]
    """Reference → the `images/` definition that it comes from."""


class Lookup:
    """Definitions by name; mistakes are collected instead of raised."""

    def __init__(self, catalog: Catalog, *, locks: bool = True) -> None:
        self.catalog = catalog
        self.problems: list[Problem] = []
        self.checks = Checks(catalog, self.problems, locks=locks)
        self.origins: dict[str, str] = {}
        self.images: dict[str, Image] = {}
        """Reference → the `images/` definition that it came from."""
        self.driver: str | None = None
        """Newest CUDA that the drivers of the site's NVIDIA GPUs support; None: unknown."""
        self._resolved: dict[tuple[str, str], tuple[Definition, Source]] = {}

    def model(self, given: str) -> Model:
        """A model without a plan."""
        definition, source = self._named_or_file(Model, given)
        found = self.placed(definition, source)
        if self.problems:
            raise UserError(*ordered(self.problems, source.path))
        return spread(found, self.checks.models.gpus(found))

    def for_scores(self, metrics: Sequence[str], ml_task: str | None) -> ForScores:
        """Metrics and an ML task without a plan."""
        of = None
        if ml_task is not None:
            of = self.placed(*self.catalog.get_with_source(MLTask, ml_task))
        found = []
        for name in metrics:
            definition, source = self.catalog.get_with_source(Metric, name)
            self.origins[f"metrics/{name}"] = self.origin("metrics", name)
            found.append(self.placed(definition, source))
        if self.problems:
            raise UserError(*ordered(self.problems))
        checks = self.checks.plugins
        named = {one.name: packages for one in found if (packages := checks.metric_packages(one))}
        if of is not None:
            named = self.metric_packages(found, of)
        return ForScores(
            of,
            tuple(found),
            named,
            dict(checks.packages),
            {**self.origins, **checks.origins},
            self.images,
        )

    def gate(self, given: str) -> Gate:
        """A gate's policy without a plan."""
        definition, source = self._named_or_file(Gate, given)
        self.checks.definition(definition, source)
        if self.problems:
            raise UserError(*ordered(self.problems, source.path))
        return definition

    def site(self, name: str) -> Site:
        """A site profile without a plan."""
        found = self.placed(*self.catalog.get_with_source(Site, name))
        if self.problems:
            raise UserError(*ordered(self.problems))
        return found

    def find(
        self, model: type[DefinitionT], name: str, asked_in: Source, loc: Loc
    ) -> DefinitionT | None:
        """The definition, with absolute paths, checked; None and a problem if there is none."""
        key = (FOLDERS[model], name)
        if key not in self._resolved:
            found = self.attempt(lambda: self.catalog.get_with_source(model, name, (asked_in, loc)))
            if found is None:
                return None
            self.origins[f"{key[0]}/{found[0].name}"] = self.origin(*key)
            self._resolved[key] = self.placed(*found), found[1]
        return self._resolved[key][0]  # type: ignore[return-value]

    def placed(self, definition: DefinitionT, source: Source, loc: Loc = ()) -> DefinitionT:
        """A definition, at its place in a file, with absolute paths and the texts of its files, checked."""
        placed: Definition = with_absolute_paths(definition, source)
        if isinstance(placed, Prompt):
            placed = self._with_collection(placed, source, loc)
        self.checks.definition(placed, source, loc)
        if isinstance(placed, Model):
            placed = self.with_image(_with_template(placed), source, ("image",))
        if isinstance(placed, Metric | MLTask) and placed.image and not is_reference(placed.image):
            reference = self.reference_of(placed.image, source, ("image",))
            placed = placed.model_copy(update={"image": reference})
        return placed  # type: ignore[return-value]

    def with_image(self, model: Model, source: Source, loc: Loc) -> Model:
        """The model with an `images/` definition's name replaced by that definition's reference."""
        name = model.image
        if name is None or is_reference(name):
            return model
        reference = self.reference_of(name, source, loc, model)
        return model if reference is None else model.model_copy(update={"image": reference})

    def reference_of(
        self, name: str, source: Source, loc: Loc, model: Model | None = None
    ) -> str | None:
        """The reference of an `images/` definition; None and a problem if there is none."""
        image = self.find(Image, name, source, loc)
        if model is None or not asks_for_forward_compatibility(model):
            image = self._for_the_driver(image, source, loc)
        if image is None:
            return None
        reference = self.checks.image(image, source, loc, model)
        if reference is not None:
            self.images[reference] = image
        return reference

    def _for_the_driver(self, image: Image | None, source: Source, loc: Loc) -> Image | None:
        """The image, or the one that it names for drivers as old as the site's."""
        seen: list[str] = []
        while image is not None and self.driver is not None and image.cuda is not None:
            if runs(image.cuda, self.driver) or image.for_older_drivers is None:
                break
            if image.name in seen:
                names = " → ".join((*seen, image.name))
                self.problems.append(source.problem(loc, f"images replace each other: {names}"))
                return None
            seen.append(image.name)
            image = self.find(Image, image.for_older_drivers, source, loc)
        return image

    def scoring_image(self, image: str | None, source: Source, loc: Loc) -> str | None:
        """The reference of an image for scoring, which a plan names."""
        if image is None or not is_reference(image):
            return None if image is None else self.reference_of(image, source, loc)
        self.checks.models.image(image, source, loc)
        return image

    def _with_collection(self, prompt: Prompt, source: Source, loc: Loc) -> Prompt:
        """The prompt with the content of its file: the file may change before a worker reads it."""
        try:
            return with_collection(prompt)
        except UserError as error:
            at = (*loc, "collection")
            self.problems.extend(
                # A file that cannot be read has no lines: the one that names it is what the user corrects.
                source.problem(at, f"{one.file}: {one.message}", one.remedy)
                if one.line is None
                else one
                for one in error.problems
            )
            return prompt

    def _named_or_file(self, model: type[DefinitionT], given: str) -> tuple[DefinitionT, Source]:
        """A definition by its name, with or without its kind, or by its file."""
        kind = FOLDERS[model]
        if not given.endswith((".yaml", ".yml")):
            return self.catalog.get_with_source(model, given.removeprefix(f"{kind}/"))
        if not Path(given).is_file():
            raise UserError(
                "no such file", file=given, remedy=f"name a definition of {kind}/, or its file"
            )
        return load_definition(model, Path(given))

    def metric_packages(
        self, metrics: Sequence[Metric], ml_task: MLTask
    ) -> dict[str, tuple[str, ...]]:
        """Metric → packages that must be importable where it scores: its own, and those of the ML task."""
        checks = self.checks.plugins
        every = checks.required_packages(ml_task)
        found = {
            one.name: tuple(dict.fromkeys((*checks.metric_packages(one), *every)))
            for one in metrics
        }
        return {name: packages for name, packages in found.items() if packages}

    def origin(self, kind: str, name: str) -> str:
        return " + ".join(map(str, self.catalog.files(kind, name)))

    def attempt(self, look_up: Callable[[], ResultT]) -> ResultT | None:
        try:
            return look_up()
        except UserError as error:
            self.problems.extend(error.problems)
            return None


def ordered(problems: Sequence[Problem], first: Path | None = None) -> list[Problem]:
    """Each problem once, file by file from top to bottom; the plan's own file first."""
    once = list(dict.fromkeys(problems))
    files = list(dict.fromkeys([str(first), *(one.file for one in once)]))
    return sorted(once, key=lambda one: (files.index(one.file), one.line or 0, one.column or 0))


def _with_template(model: Model) -> Model:
    """The model with its chat template's text: the file may change before the engine starts."""
    if model.chat_template is None:
        return model
    try:
        text = read_text(Path(model.chat_template))
    except UserError:
        return model  # the checks report it
    return model.model_copy(update={"chat_template": text})
