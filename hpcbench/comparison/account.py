"""A whole comparison as one plain object: what `compare --json` prints.

Reports and the command line show only this object; docs/comparing.md describes its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcbench.comparison.compare import compare_many
from hpcbench.comparison.differences import config_differences
from hpcbench.comparison.flips import flips, moves
from hpcbench.comparison.pairing import Counting
from hpcbench.comparison.results import CandidateResult
from hpcbench.comparison.speed import speed
from hpcbench.errors import UserError
from hpcbench.experiment.layout import Experiment, Rescored
from hpcbench.experiment.outcome import not_whole

VERSION = 1
"""Version of the object."""


def account(
    baseline: Experiment,
    candidates: Sequence[Experiment],
    pairs: Sequence[tuple[str, str]] = (),
    metrics: Sequence[str] = (),
    margins: Mapping[str, float] | None = None,
    counting: Counting = "zero",
    *,
    common: bool = False,
    most: int | None = None,
    every_metric: bool = True,
) -> dict[str, Any]:
    """Scores, speed, flips and configuration of candidates beside their baseline.

    Args:
        baseline: the experiment to compare with.
        candidates: the experiments to compare.
        pairs: run tasks to pair, see `compare_many`, which also describes the next three.
        metrics: only these; none: all.
        margins: metric → difference that does not matter.
        counting: how answers without a value count.
        common: compare only the common samples where the two did not ask the same samples.
        most: at most so many lost and so many won flips of each metric; None: all.
        every_metric: list flips of all metrics; else only of the first metric of each pair of run tasks.

    Raises:
        UserError, RunFailed: as `compare_many`.
    """
    try:
        found = compare_many(baseline, candidates, pairs, metrics, margins, counting, common=common)
    except UserError as error:
        ended = [one for one in map(not_whole, (baseline, *candidates)) if one is not None]
        raise UserError(*ended, *error.problems) from error
    return {
        "version": VERSION,
        "baseline": {"id": baseline.id, "path": str(baseline.path), "ended": not_whole(baseline)},
        "counting": counting,
        "common": common,
        "comparisons": sum(len(one.compared) for one in found),
        "candidates": [
            _of_candidate(baseline, one, counting, most, every_metric) for one in found
        ],
    }  # fmt: skip


def _scored_otherwise(baseline: Experiment, candidate: Experiment) -> Iterator[str]:
    """Scores of one side alone that `hpcbench score --save` stored: equal signatures do not show it."""
    stored = [one for one in (baseline, candidate) if isinstance(one, Rescored)]
    if len(stored) == 1:
        other = candidate if stored[0] is baseline else baseline
        yield f"{stored[0].id} was scored again, and {other.id} was not: a metric may have changed since"
    elif len({one.name for one in stored}) == 2:
        yield f"the scores were stored under two names: {stored[0].name}, {stored[1].name}"


def _of_candidate(
    baseline: Experiment,
    result: CandidateResult,
    counting: Counting,
    most: int | None,
    every_metric: bool,
) -> dict[str, Any]:
    candidate = result.candidate
    speeds = speed(baseline, candidate, result.pairs, result.other_samples)
    paired = [one for one in result.compared if one.paired]
    shown = paired if every_metric else result.first_metrics
    return {
        "id": candidate.id,
        "path": str(candidate.path),
        "ended": not_whole(candidate),
        "compared": [one.to_json() for one in result.compared],
        "refused": [one.to_json() for one in result.refused],
        "careful": [*_scored_otherwise(baseline, candidate), *result.caveats],
        "moves": [
            {
                "baseline": one.baseline,
                "candidate": one.candidate,
                "metric": one.metric,
                "moves": [list(move) for move in moves(result, one, counting)],
            }
            for one in result.first_metrics
        ],
        "scores_files": [
            [str(baseline.scores_file(one)), str(candidate.scores_file(other))]
            for one, other in result.pairs
        ],
        "flips": [
            flip.to_json()
            for one in shown
            for flip in (flips(result, one, counting, most) if most != 0 else ())
        ],
        "speed": [one.to_json() for one in speeds.figures],
        "speed_notes": list(speeds.notes),
        "differences": [
            one.to_json() for one in config_differences(baseline, candidate, result.pairs)
        ],
    }
