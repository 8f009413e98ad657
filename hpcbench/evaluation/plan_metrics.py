"""The metrics that a run task names, ready to score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.view.scores import OF_SAMPLES
from hpcbench.schema.metric import Metric
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.scorer.description import Described
from hpcbench.scorer.one import is_of_run


def load_metrics(run_task: ResolvedRunTask) -> dict[str, Any]:
    """A run task's metrics by the names of their definitions, options filled in; without `run_metrics`.

    A metric that scores in an image need not be importable here, unless it is a corpus metric: then the facts
    from its image take its place.

    Raises:
        UserError: there is no such metric, it does not know an option, or a definition has the name of a
            column of scores.
    """
    return {name: one for name, one in _every_metric(run_task).items() if not is_of_run(one)}


def run_metrics(run_task: ResolvedRunTask) -> dict[str, Any]:
    """The run task's resource metrics that have one value for the whole, and no column of scores.

    Raises:
        UserError: as `load_metrics`.
    """
    return {name: one for name, one in _every_metric(run_task).items() if is_of_run(one)}


def check_here(run_task: ResolvedRunTask, metrics: Mapping[str, Any]) -> None:
    """Check that loaded metrics have here what they score by, unless they score in an image.

    Raises:
        UserError: one has not.
    """
    here = [one.name for one in run_task.metrics if one.image is None and one.name in metrics]
    if wrong := [*filter(None, (lacking(name, metrics[name]) for name in here))]:
        raise UserError(*wrong)


def lacking(name: str, metric: Any) -> Problem | None:
    """Why a metric cannot score in this Python; None: it can."""
    try:
        getattr(metric, "check_here", lambda: None)()
    except (ImportError, ValueError) as error:
        return Problem(f"metric '{name}' cannot score here: {error}")
    return None


def _every_metric(run_task: ResolvedRunTask) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for definition in run_task.metrics:
        if definition.name in OF_SAMPLES:
            what = (
                f"a metric cannot have the name '{definition.name}', the name of a column of scores"
            )
            raise UserError(Problem(what, remedy="rename its definition"))
        if (described := _described(run_task, definition)) is not None:
            found[definition.name] = described
            continue
        plugin = plugins.load("metrics", definition.plugin)
        if wrong := plugins.check_options(plugin, definition.options):
            problems = (Problem(f"metric '{definition.name}': {message}") for _, message in wrong)
            raise UserError(*problems)
        found[definition.name] = plugins.with_options(plugin, definition.options)
    return found


def _described(run_task: ResolvedRunTask, definition: Metric) -> Described | None:
    """A metric of an image by the facts that its image gave; None: its class is here, or has to be."""
    facts = run_task.metric_facts.get(definition.name)
    if definition.image is None or facts is None or facts.aggregation == "corpus":
        return None
    return None if plugins.ships("metrics", definition.plugin) else Described(facts)
