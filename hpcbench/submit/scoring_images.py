"""Images in which metrics score: prepared once, and asked what their metrics say of themselves.

A metric that cannot be loaded in its image is refused here, before any GPU is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hpcbench import environments, plugins
from hpcbench.environments.packages import metadata_of
from hpcbench.environments.plugin_packages import Locked, check_provides, for_cpus, lock
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.evaluation.image_scoring import ImageScorer, scorers_of, title_of
from hpcbench.installed import own_requirements
from hpcbench.plugins import Environment
from hpcbench.registry.source import read
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask, ScoringImage
from hpcbench.schema.shared_types import MetricFacts
from hpcbench.submit import Say

OF_METRICS = ("lxml", "numpy", "rapidfuzz", "sacrebleu", "scipy")
"""Requirements of hpcbench that its own metrics import."""


def prepare_images(
    resolved: ResolvedPlan,
    cache: Path,
    locked: Mapping[str, Locked],
    say: Say,
    known: Mapping[str, Environment] = MappingProxyType({}),
) -> dict[str, Environment]:
    """`ScoringImage.environment` → the prepared environment; each once, and `known` ones not again.

    Raises:
        UserError: a package conflicts with the image, or does not have its plugins.
        EnvironmentFault: an image cannot be prepared, or cannot score; names it and its metrics.
    """
    prepared = dict(known)
    for run_task in resolved.run_tasks:
        for image in run_task.scoring_images:
            if image.environment not in prepared:
                say(f"preparing {image.image} for metrics")
                prepared[image.environment] = _prepare(resolved, image, cache, locked, say)
    return prepared


def _prepare(
    resolved: ResolvedPlan, image: ScoringImage, cache: Path, locked: Mapping[str, Locked], say: Say
) -> Environment:
    site = resolved.site.container
    names = ", ".join(f"'{name}'" for name in image.metrics)
    which = f"metric {names} scores in {title_of(resolved, image.image)}"
    if environments.kind_of(image.image, site.manager) in environments.ELSEWHERE:
        raise EnvironmentFault(
            f"{which}, but {site.manager} runs images on other machines, where no answers are",
            remedy="remove `image` of the metric, the ML task or the evaluation, or name a `venv:` folder",
        )
    lines = [line for name in image.packages for line in locked[name].requirements]
    # Of every run task with the image: they share the environment.
    definitions = {
        metric.name: metric
        for run_task in resolved.run_tasks
        for metric in run_task.metrics
        if metric.image == image.image
    }
    if any(plugins.ships("metrics", one.plugin) for one in definitions.values()):
        lines += own_requirements(OF_METRICS)
    try:
        found = environments.prepare(image.image, cache, site, for_cpus(lines), say)
    except EnvironmentFault as fault:
        raise EnvironmentFault(f"{which}: {fault.message}", remedy=fault.remedy) from fault
    if image.packages and found.packages is not None:
        inside = {name: resolved.packages[name] for name in image.packages}
        with metadata_of(Path(found.packages)) as folder:
            check_provides(folder, inside, resolved.origins)
    return found


def with_facts(resolved: ResolvedPlan, prepared: Mapping[str, Environment]) -> ResolvedPlan:
    """The plan with the facts that metrics in images say of themselves.

    Args:
        resolved: the plan.
        prepared: environments by their keys.

    Raises:
        UserError: metrics that cannot score in their image, each at its definition.
        EnvironmentFault: a container does not start.
    """
    known: dict[str, dict[str, MetricFacts | str]] = {}
    problems: list[Problem] = []
    run_tasks = []
    for run_task in resolved.run_tasks:
        facts: dict[str, MetricFacts] = {}
        for scorer in scorers_of(resolved, run_task, prepared):
            for name, said in _described(scorer, known).items():
                wrong = said if isinstance(said, str) else _differs(run_task, name, said)
                if wrong:
                    problems.append(_problem(resolved, name, scorer.title, wrong))
                elif isinstance(said, MetricFacts):
                    facts[name] = said
        run_tasks.append(run_task.model_copy(update={"metric_facts": facts}))
    if problems:
        raise UserError(*dict.fromkeys(problems))
    return resolved.model_copy(update={"run_tasks": tuple(run_tasks)})


def _described(
    scorer: ImageScorer, known: dict[str, dict[str, MetricFacts | str]]
) -> dict[str, MetricFacts | str]:
    """Descriptions of an image's metrics; equal metrics in one image are loaded once."""
    key = repr([scorer.environment, list(scorer.wanted)])
    if key not in known:
        try:
            known[key] = scorer.describe()
        except EnvironmentFault as fault:
            names = ", ".join(f"'{name}'" for name in scorer.metrics)
            what = f"metric {names} cannot score in {scorer.title}: {fault.message}"
            raise EnvironmentFault(what, remedy=fault.remedy) from fault
    return known[key]


def _differs(run_task: ResolvedRunTask, name: str, facts: MetricFacts) -> str:
    """Why scores of a metric would not be what its definition says, or have no tables; empty: all is well."""
    definition = next(one for one in run_task.metrics if one.name == name)
    version = facts.signature.rpartition("|v")[2]
    if definition.version and definition.version.removeprefix("v") != version:
        return f"it has version {version} there, and its definition says {definition.version}"
    ours = plugins.ships("metrics", definition.plugin)
    if not ours and facts.aggregation != "corpus":
        return ""
    try:
        own = plugins.load("metrics", definition.plugin)(**definition.options).signature
    except (EnvironmentFault, UserError) as error:
        return f"it is a corpus metric, whose sums hpcbench's own Python has to combine: {error}"
    if own != facts.signature:
        return f"it is {facts.signature} there and {own} here: install the same versions in both"
    return ""


def _problem(resolved: ResolvedPlan, metric: str, title: str, why: str) -> Problem:
    what = f"metric '{metric}' cannot score in {title}: {why}"
    remedy = "name its package in the metric's definition, or use an image that has it"
    file = resolved.origins.get(f"metrics/{metric}", "").partition(" + ")[0]
    try:
        return read(Path(file)).problem(("plugin",), what, remedy)
    except UserError:
        return Problem(what, remedy=remedy)


def ready(
    resolved: ResolvedPlan, stored: Mapping[str, Any], cache: Path, say: Say
) -> tuple[ResolvedPlan, dict[str, Environment]]:
    """Prepare images for scoring now, outside a submission.

    Args:
        resolved: run tasks with the metrics to score by, and the definitions that these name.
        stored: environments that an experiment has, by their keys.
        cache: `HOME/cache`.
        say: receives lines about slow steps.

    Returns:
        The plan with facts of all metrics in images, and the environments of their images.

    Raises:
        UserError, EnvironmentFault: as of `prepare_images` and `with_facts`.
    """
    images = [image for run_task in resolved.run_tasks for image in run_task.scoring_images]
    prepared = {
        one.environment: Environment(**stored[one.environment])
        for one in images
        if one.environment in stored
    }
    lacking = [one for one in images if one.environment not in prepared]
    names = dict.fromkeys(name for one in lacking for name in one.packages)
    dev = resolved.mode == "dev"
    locked = {
        name: lock(resolved.packages[name], cache, dev=dev, say=say, copied=True) for name in names
    }
    prepared = prepare_images(resolved, cache, locked, say, prepared)
    return with_facts(resolved, prepared), prepared
