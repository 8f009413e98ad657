"""What only a look into an image can tell: does it hold what a model needs, and run on the site's GPUs?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hpcbench.errors import Problem, UserError
from hpcbench.plugins import Environment
from hpcbench.registry.source import Loc, Source, read
from hpcbench.schema.documents import Model
from hpcbench.schema.plan import ResolvedPlan


def check_images(resolved: ResolvedPlan, prepared: Mapping[str, Environment]) -> None:
    """Hold every model against the image it is to run in.

    Args:
        resolved: the plan.
        prepared: by `ResolvedRunTask.environment`.

    Raises:
        UserError: all that does not fit, each where the model says it.
    """
    problems = [
        problem
        for run_task in resolved.run_tasks
        for problem in _misfits(resolved, run_task.model, prepared[run_task.environment])
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def _misfits(resolved: ResolvedPlan, model: Model, environment: Environment) -> Iterator[Problem]:
    source = _document(resolved.origins.get(f"models/{model.name}"))
    image = model.image or "this Python"
    for number, line in enumerate(model.needs):
        needed = Requirement(line)
        version = _version(environment, needed.name)
        if version is None:
            what = f"{image} has no {needed.name}, model '{model.name}' needs {line}"
        elif not needed.specifier.contains(version, prereleases=True):
            what = f"{image} has {needed.name} {version}, model '{model.name}' needs {line}"
        else:
            continue
        yield source.problem(("needs", number), what, "another image, or another version of it")
    driver, cuda = resolved.site.container.cuda, environment.versions.get("cuda")
    # Within one major version, a driver runs what was built for a newer minor one.
    if model.gpus and driver and cuda and int(cuda.split(".")[0]) > int(driver.split(".")[0]):
        place: Loc = ("image",)
        yield source.problem(
            place,
            f"{image} is made for CUDA {cuda}, the driver of this site takes {driver} (container.cuda)",
            "an image for that CUDA, or nodes with a newer driver",
        )


def _version(environment: Environment, name: str) -> str | None:
    """A build of an engine for processors goes by another name."""
    normal = canonicalize_name(name)
    return environment.versions.get(normal) or environment.versions.get(f"{normal}-cpu")


def _document(file: str | None) -> Source:
    """The document that states it; a model written out inside a plan has no file of its own."""
    try:
        return read(Path(file or ""))
    except UserError:
        return Source(Path(file or "the plan"), None)
