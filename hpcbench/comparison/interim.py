"""`python -m hpcbench.comparison.interim EXPERIMENT RUN_TASK`: look at two arms, if a look is due.

It scores the samples that both arms have answered, compares them at the level that this look may use of the
risk (`statistics.nominal_levels`), and writes its findings; `experiment/interim.py` decides what follows.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import statistics
from hpcbench.comparison import ab as speed_of
from hpcbench.comparison.pairing import SamplePairs
from hpcbench.comparison.results import MetricDifference
from hpcbench.evaluation import stage
from hpcbench.evaluation.score_tables import Scored
from hpcbench.evaluation.summary import counts_of
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.interim import (
    LOOKS,
    Halves,
    halves_in,
    is_due,
    keep,
    looks_at,
    settle,
    states_in,
)
from hpcbench.experiment.layout import Experiment
from hpcbench.registry.fitting_metrics import is_resource
from hpcbench.schema.plan import Arms, ResolvedPlan

LEAST = 1e-12
"""Below this share of the risk a look is only reported, and no quantile is computed."""


def main(argv: Sequence[str]) -> None:
    """Look at the arms of one run task."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    look(experiment, argv[1])
    settle(experiment)


def endpoints(resolved: ResolvedPlan, pair: str) -> tuple[str, ...]:
    """Endpoints that decide a run task: the plan's metrics and figures of speed, else its first metric."""
    assert resolved.arms is not None
    metrics = [
        one.name
        for one in resolved.run_task(resolved.pairs[pair][0]).metrics
        if not is_resource(one)  # arms have their own figures of these, in pairs of blocks
    ]
    known = {*metrics, *speed_of.FIGURES}
    asked = tuple(name for name in resolved.arms.metrics if name in known)
    return asked or (() if resolved.arms.metrics else tuple(metrics[:1]))


def alpha_each(resolved: ResolvedPlan) -> float:
    """The risk of each deciding endpoint: the whole risk, divided (Bonferroni)."""
    assert resolved.arms is not None
    return resolved.arms.alpha / max(
        1, sum(len(endpoints(resolved, pair)) for pair in resolved.pairs)
    )


def last_looks(experiment: Experiment) -> None:
    """Look a last time at all undecided arms, after the last answer."""
    for pair in experiment.resolved.pairs:
        look(experiment, pair, last=True)


def look(experiment: Experiment, pair: str, *, last: bool = False) -> dict[str, Any] | None:
    """Look at the arms of a run task, if a look is due; returns the findings that it wrote.

    Args:
        experiment: the experiment.
        pair: the run task.
        last: no more answers follow: look if there are more answers than at the previous look.
    """
    resolved, known = experiment.resolved, looks_at(experiment, pair)
    assert resolved.arms is not None
    states = states_in(experiment, pair)
    done = halves_in(pair, *states)
    seen = max((one["fraction"] for one in known), default=0.0)
    if not done.both or any(one["stop"] for one in known):
        return None
    if not (done.fraction > seen if last else is_due(known, done)):
        return None
    fractions = [*(one["fraction"] for one in known), done.fraction]
    each = alpha_each(resolved)
    # A run that never stops early needs no risk for later looks: each look uses the whole risk.
    level = statistics.nominal_levels(fractions if resolved.arms.early_stop else [1.0], each)[-1]
    found = {
        "pair": pair,
        "look": len(known),
        "time": round(time.time(), 3),
        "done": len(done.both),
        "of": done.of,
        "fraction": done.fraction,
        "last": last,
        "alpha": each,
        "nominal": level,
        "deciding": list(endpoints(resolved, pair)),
        **_compared(experiment, pair, states, done, max(level, LEAST)),
    }
    found |= _decision(found, resolved.arms, last=last)
    return found if keep(experiment, pair, len(known), found) else None


def _compared(
    experiment: Experiment, pair: str, states: Any, done: Halves, nominal: float
) -> dict[str, Any]:
    """Quality and speed of both arms over the samples that both have done."""
    resolved = experiment.resolved
    assert resolved.arms is not None
    names = resolved.pairs[pair]
    margins = resolved.arms.margins
    level = 1 - nominal
    with tempfile.TemporaryDirectory(prefix="hpcbench-look-") as folder:
        scored = [_scored(experiment, name, done, Path(folder)) for name in names]
        samples = SamplePairs.of(scored[:1], scored[1:])
        quality = [one.to_look() for one in _differences(samples, margins, level)]
        answers = {
            letter: {
                "coverage": counts_of(one).coverage,
                **tokens_each(experiment, name, done.both),
            }
            for letter, one, name in zip("ab", scored, names, strict=True)
        }
    together = same_nodes(experiment, pair)
    blocks, apart = speed_of.paired_blocks(experiment, names, states, done)
    speed = [
        faster.to_look()
        for figure in speed_of.FIGURES
        if together
        and (
            faster := speed_of.compare_speed(
                blocks, figure, level, margins.get(figure, margins.get("*"))
            )
        )
    ]
    return {
        "samples": len(samples.rows[0]),
        "quality": quality,
        "answers": answers,
        "speed": speed,
        "same_nodes": together,
        "blocks": len(blocks),
        "blocks_apart": apart,
        "workers": len({one.worker for one in blocks}),
    }


def tokens_each(
    experiment: Experiment, name: str, shards: Collection[int]
) -> dict[str, float | None]:
    """Mean `prompt_tokens` and `completion_tokens` of a run task's answers, by the engine's count.

    Args:
        experiment: the experiment.
        name: the run task.
        shards: only answers of these shards.

    Returns:
        None where the engine did not count the tokens of every answer.
    """
    found: dict[str, list[int | None]] = {"prompt_tokens": [], "completion_tokens": []}
    for shard, answers in answers_of(experiment, name):
        if shard.index not in shards:
            continue
        for one in answers.values():
            if one.text is None:
                continue
            for key, counts in found.items():
                counts.append((one.usage or {}).get(key))
    return {key: _mean(counts) for key, counts in found.items()}


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [one for one in counts if one is not None]
    return sum(known) / len(known) if known and len(known) == len(counts) else None


def same_nodes(experiment: Experiment, pair: str) -> bool:
    """Whether the same workers ask both arms."""
    names = set(experiment.resolved.pairs[pair])
    return any(names <= set(group.run_tasks) for group in experiment.work.groups)


def _scored(experiment: Experiment, name: str, done: Halves, folder: Path) -> Scored:
    """Scores of an arm over the samples that both arms have done."""
    run_task = experiment.resolved.run_task(name)
    subject = stage.subject_of(experiment, run_task, shards=done.both)
    return stage.score(experiment, subject, folder)[0]


def _differences(
    samples: SamplePairs, margins: Mapping[str, float], level: float
) -> Iterator[MetricDifference]:
    """Each metric that both arms have, where a sample is scored in both."""
    for metric in samples.baseline.metrics:
        if metric not in samples.candidate.metrics:
            continue
        found = samples.metric(metric)
        if found.both.any():
            margin = margins.get(metric, margins.get("*"))
            compared = found.compare(found.both, samples.asked_alone, margin=margin, level=level)
            signature = samples.baseline.signature(metric)
            yield MetricDifference(*samples.names, metric, signature, compared)


def _decision(found: dict[str, Any], arms: Arms, *, last: bool) -> dict[str, Any]:
    """Whether every deciding endpoint is decided, and why."""
    verdicts = {
        **{one["metric"]: one["verdict"] for one in found["quality"]},
        **{one["figure"]: one["verdict"] for one in found["speed"]},
    }
    deciding = {name: verdicts.get(name, "inconclusive") for name in found["deciding"]}
    decided = bool(deciding) and "inconclusive" not in deciding.values()
    stop = decided and not last and arms.early_stop and found["nominal"] >= LEAST
    said = ", ".join(f"{name} is {verdict}" for name, verdict in deciding.items())
    why = (
        f"b against a: {said}, after {found['done']} of {found['of']} pairs of blocks"
        if stop
        else ""
    )
    return {
        "verdicts": deciding,
        "decided": decided,
        "stop": stop,
        "why": why,
        "looks_at_most": LOOKS,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
