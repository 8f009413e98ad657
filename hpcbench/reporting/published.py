"""Published scores of a dataset, beside those of an experiment with the same model.

Whether a difference is more than noise: both scores are means over samples, so their difference has the
standard error √(own² + published²). The own one is that of the interval, clustered by document. The source
gives only the mean p and the number of samples n of the published run. Its standard error is taken as the
larger of two: the own one carried over to n samples, and √(p (1 - p) / n), the largest that independent
scores in [0, 1] with mean p can have (there x² ≤ x, so the variance is at most p - p²). Half a unit of the
published value's last digit is added, since it was rounded.

Both runs mostly asked the same samples. Then their scores rise and fall together and the true noise is
smaller: "more than noise" holds, while "within noise" says only that these figures show no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import MetricValue, Scores
from hpcbench.reporting.report_tables import PublishedCondition, PublishedScore
from hpcbench.schema.dataset import Condition, Published
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedRunTask

Z = 1.959963984540054
"""97.5 % quantile of the normal distribution: intervals of 95 %."""

WORDS: Mapping[str, str] = {
    "answers": "answers read",
    "kit": "measured with",
    "precision": "number format",
}
"""Condition → its name in reports, where it differs."""


def published_scores(
    experiment: Experiment, tables: Mapping[str, Scores], names: Sequence[str]
) -> list[PublishedScore]:
    """Every published score with a value here: the same model, dataset, split and metric.

    Args:
        experiment: the experiment.
        tables: its run tasks' scores in `metrics.json`.
        names: run tasks to show, in their order.
    """
    resolved = {one.name: one for one in experiment.resolved.run_tasks}
    return [
        _beside(resolved[name], one, tables[name])
        for name in names
        for one in resolved[name].dataset.published
        if fits(resolved[name], one) and one.metric in tables[name].metrics
    ]


def fits(run_task: ResolvedRunTask, one: Published) -> bool:
    """Whether a published score is of a run task's model and split, and one of its metrics computes it."""
    return (
        one.metric in {metric.name for metric in run_task.metrics}
        and is_of(one, run_task.model)
        and (one.split is None or one.split == run_task.dataset.split)
    )


def is_of(one: Published, model: Model) -> bool:
    """Whether a published score is of this model, by its name or by the place of its weights."""
    return one.model in (model.name, model.source.removeprefix("hf://").partition("@")[0])


def _beside(run_task: ResolvedRunTask, one: Published, table: Scores) -> PublishedScore:
    assert one.metric is not None
    own = table.metrics[one.metric]
    noise, why = noise_of(one, own)
    value = None if own is None else own.value * one.of
    difference = None if value is None else value - one.value
    more = difference is not None and noise is not None and abs(difference) > noise
    return {
        "run_task": run_task.name,
        "model": run_task.model.name,
        "dataset": run_task.dataset.name,
        "metric": one.metric,
        "higher_is_better": own is None or own.higher_is_better,
        "of": one.of,
        "published": one.value,
        "source": one.source,
        "samples": one.samples,
        "value": value,
        "low": None if own is None or own.low is None else own.low * one.of,
        "high": None if own is None or own.high is None else own.high * one.of,
        "n": 0 if own is None else own.n,
        "difference": difference,
        "noise": noise,
        "verdict": "undecided" if why else "more than noise" if more else "within noise",
        "why": why,
        "conditions": list(_conditions(run_task, one, own)),
    }


def noise_of(one: Published, own: MetricValue | None) -> tuple[float | None, str]:
    """The largest difference that chance explains at 95 %, on the published scale; else why it is unknown."""
    if own is None:
        return None, "no sample is scored here"
    if own.low is None or own.high is None:
        return None, "the value here has no interval"
    if one.samples is None:
        return None, "the source does not say of how many samples the published value is"
    share, n = one.value / one.of, one.samples
    here = ((own.high - own.low) / (2 * Z)) ** 2
    there = max(here * own.n / n, share * (1 - share) / n)
    rounding = 0.5 * 10.0 ** -_decimals(one.value)
    return Z * math.sqrt(here + there) * one.of + rounding, ""


def _decimals(value: float) -> int:
    """Digits behind the point of a number as it was written; 794.0 has none."""
    text = repr(value)
    return 0 if text.endswith(".0") or "e" in text else len(text.partition(".")[2])


def _conditions(
    run_task: ResolvedRunTask, one: Published, own: MetricValue | None
) -> Iterator[PublishedCondition]:
    """Every condition of the run here, beside the one that the source states."""
    task, model = run_task.task, run_task.model
    text = run_task.prompt.user if not run_task.prompt.prompts else None
    sampled = (
        f"temperature {task.generation.temperature:g}, at most {task.generation.max_tokens} tokens"
    )
    scored = "–" if own is None else f"{own.n} of split {run_task.dataset.split or 'all'}"
    here: Mapping[Condition, str] = {
        "prompt": run_task.prompt.name if text is None else f"{run_task.prompt.name}: {text}",
        "generation": sampled,
        "images": "as the dataset has them",
        "answers": own.signature if own is not None else "–",
        "engine": model.engine if model.image is None else f"{model.engine}, {model.image}",
        "precision": model.dtype,
        "kit": "hpcbench",
        "samples": scored,
    }
    for what in get_args(Condition):
        stated = one.conditions.get(what)
        if what == "samples" and one.samples is not None:
            stated = str(one.samples) if stated is None else f"{one.samples}, {stated}"
        yield {"what": WORDS.get(what, what), "published": stated, "here": here[what]}
