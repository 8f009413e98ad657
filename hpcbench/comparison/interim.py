"""`python -m hpcbench.comparison.interim EXPERIMENT RUN_TASK`: look at two arms, if that is due.

It scores what is answered in both arms, compares it at the level that this look may use of the risk
(`statistics.nominal_levels`), and writes down what it found; `experiment/interim.py` says what follows.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import evaluation, statistics
from hpcbench.comparison import ab as speed_of
from hpcbench.comparison.pairing import SamplePairs
from hpcbench.comparison.results import MetricDifference
from hpcbench.evaluation.aggregate import Scored
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
from hpcbench.schema.plan import Arms, ResolvedPlan

LEAST = 1e-12
"""Below this share of the risk a look is only told, and no quantile is asked for."""


def main(argv: Sequence[str]) -> None:
    """Look at the arms of one run task."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    look(experiment, argv[1])
    settle(experiment)


def endpoints(resolved: ResolvedPlan, pair: str) -> tuple[str, ...]:
    """What decides about a run task: the metrics and figures of speed that were asked for, else its first."""
    assert resolved.arms is not None
    metrics = [one.name for one in resolved.run_task(resolved.pairs[pair][0]).metrics]
    known = {*metrics, *speed_of.FIGURES}
    asked = tuple(name for name in resolved.arms.metrics if name in known)
    return asked or (() if resolved.arms.metrics else tuple(metrics[:1]))


def alpha_each(resolved: ResolvedPlan) -> float:
    """The risk of each that decides: all of it, divided (Bonferroni)."""
    assert resolved.arms is not None
    return resolved.arms.alpha / max(
        1, sum(len(endpoints(resolved, pair)) for pair in resolved.pairs)
    )


def last_looks(experiment: Experiment) -> None:
    """Look once more at all arms that no look has told apart, when nothing more comes."""
    for pair in experiment.resolved.pairs:
        look(experiment, pair, last=True)


def look(experiment: Experiment, pair: str, *, last: bool = False) -> dict[str, Any] | None:
    """Look at the arms of a run task, if it is time; returns what was found and written down.

    Args:
        experiment: the experiment.
        pair: the run task.
        last: nothing more comes: look if there is more than at the look before.
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
    # Who never stops early looks once, whatever there is: nothing has to be kept back for later looks.
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
    """Quality and speed of both arms over what is done in both."""
    resolved = experiment.resolved
    assert resolved.arms is not None
    names = resolved.pairs[pair]
    margins = resolved.arms.margins
    level = 1 - nominal
    with tempfile.TemporaryDirectory(prefix="hpcbench-look-") as folder:
        scored = [_scored(experiment, name, done, Path(folder)) for name in names]
        samples = SamplePairs.of(scored[:1], scored[1:], only_asked=False)
        quality = [one.to_look() for one in _differences(samples, margins, level)]
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
        "speed": speed,
        "same_nodes": together,
        "blocks": len(blocks),
        "blocks_apart": apart,
        "workers": len({one.worker for one in blocks}),
    }


def same_nodes(experiment: Experiment, pair: str) -> bool:
    """Whether the same workers ask both arms."""
    names = set(experiment.resolved.pairs[pair])
    return any(names <= set(group.run_tasks) for group in experiment.work.groups)


def _scored(experiment: Experiment, name: str, done: Halves, folder: Path) -> Scored:
    """Scores of an arm over what is done in both."""
    run_task = experiment.resolved.run_task(name)
    subject = evaluation.subject_of(experiment, run_task, shards=done.both)
    return evaluation.score(experiment, subject, folder)[0]


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
    """Whether all that decides is decided, and why."""
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
