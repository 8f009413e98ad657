"""All that is to be told of candidates and their baseline, as one plain object: what `compare --json` prints.

Reports and the command line show this object and nothing else; docs/comparing.md says what stands where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcbench.comparison.compare import (
    CandidateResult,
    Compared,
    Counting,
    compare_many,
)
from hpcbench.comparison.differences import config_differences
from hpcbench.comparison.flips import flips, moves
from hpcbench.comparison.speed import speed
from hpcbench.errors import UserError
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import not_whole

VERSION = 1
"""Of the object."""


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
        baseline: what is compared with.
        candidates: what is compared.
        pairs: run tasks to pair, see `comparing.compare`; so are the next three.
        metrics: only these; none: all.
        margins: metric → difference that does not matter.
        counting: what answers without a value count.
        common: compare what both have asked where they have not asked the same.
        most: flips listed of each metric, so many lost and so many won; None: all.
        every_metric: list flips of all metrics; else only of the first one of each pair of run tasks.

    Raises:
        UserError, RunFailed: as `comparing.compare`.
    """
    try:
        held = compare_many(baseline, candidates, pairs, metrics, margins, counting, common=common)
    except UserError as error:
        ended = [one for one in map(not_whole, (baseline, *candidates)) if one is not None]
        raise UserError(*ended, *error.problems) from error
    return {
        "version": VERSION,
        "baseline": {"id": baseline.id, "path": str(baseline.path), "ended": not_whole(baseline)},
        "counting": counting,
        "common": common,
        "comparisons": sum(len(one.compared) for one in held),
        "candidates": [
            _of_candidate(baseline, one, counting, most, every_metric) for one in held
        ],
    }  # fmt: skip


def _of_candidate(
    baseline: Experiment,
    held: CandidateResult,
    counting: Counting,
    most: int | None,
    every_metric: bool,
) -> dict[str, Any]:
    speeds = speed(baseline, held.candidate, held.pairs, held.other_samples)
    shown = held.compared if every_metric else tuple(leading(held))
    return {
        "id": held.candidate.id,
        "path": str(held.candidate.path),
        "ended": not_whole(held.candidate),
        "compared": [one.to_json() for one in held.compared],
        "refused": [one.to_json() for one in held.refused],
        "careful": list(careful(held)),
        "moves": [
            {
                "baseline": one.baseline,
                "candidate": one.candidate,
                "metric": one.metric,
                "moves": [list(move) for move in moves(held, one, counting)],
            }
            for one in leading(held)
        ],
        "scores_files": [
            [str(baseline.scores_file(one)), str(held.candidate.scores_file(other))]
            for one, other in held.pairs
        ],
        "flips": [
            flip.to_json()
            for one in shown
            for flip in (flips(held, one, counting, most) if most != 0 else ())
        ],
        "speed": [one.to_json() for one in speeds.figures],
        "speed_notes": list(speeds.notes),
        "differences": [
            one.to_json() for one in config_differences(baseline, held.candidate, held.pairs)
        ],
    }


def leading(held: CandidateResult) -> Iterator[Compared]:
    """The first metric of each pair of run tasks."""
    seen = set[tuple[str, str]]()
    for one in held.compared:
        if (one.baseline, one.candidate) not in seen:
            seen.add((one.baseline, one.candidate))
            yield one


def careful(held: CandidateResult) -> Iterator[str]:
    """What is not the same beside the candidate's own work."""
    told = {(one.baseline, one.candidate): one.differs for one in held.compared}
    for pair, differs in told.items():
        for text in differs:
            yield f"{' → '.join(dict.fromkeys(pair))}: {text}"
