"""Samples that a candidate lost or won, complete: the question, the references, both answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.evaluation.score_distributions import TEXTS
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import ScoresFiles, rows_of
from hpcbench.reporting.blocks import Flipped
from hpcbench.reporting.report_tables import WorstSample
from hpcbench.reporting.thumbnails import Thumbnail, thumbnails
from hpcbench.reporting.worst_samples import samples_shown

MOST_SHOWN = 20
"""At most so many lost and so many won samples of a candidate are shown complete."""

Key = tuple[str, str, str, str]
"""A flip of a candidate: run task of the baseline and of the candidate, metric, sample."""


def flipped(baseline: str, candidate: Mapping[str, Any]) -> dict[Key, Flipped]:
    """The flips to look at first, where both experiments' scores can still be read.

    Args:
        baseline: directory of the baseline.
        candidate: a candidate's entry in the result of `comparison.account`.
    """
    chosen: list[Mapping[str, Any]] = []
    for change in ("lost", "won"):
        chosen += [one for one in candidate["flips"] if one["change"] == change][:MOST_SHOWN]
    sides = [
        _side(Experiment(Path(path)), chosen, number)
        for number, path in enumerate((baseline, candidate["path"]))
    ]
    found: dict[Key, Flipped] = {}
    for one in chosen:
        key = key_of(one)
        if all(key in side for side in sides):
            anchor = f"{candidate['id']}-{len(found) + 1}"
            found[key] = Flipped(anchor, one["change"], sides[0][key], sides[1][key])
    return found


def key_of(flip: Mapping[str, Any]) -> Key:
    """The key that identifies a flip of a candidate."""
    return (flip["baseline"], flip["candidate"], flip["metric"], flip["sample"])


def images_of(
    candidate: str, shown: Mapping[Key, Flipped], budget_mb: float
) -> dict[tuple[str, str], list[Thumbnail]]:
    """Small copies of the flips' images, see `thumbnails`."""
    some: dict[str, dict[str, WorstSample]] = {}
    for (_, run_task, _, sample), one in shown.items():
        some.setdefault(run_task, {})[sample] = one.candidate
    tables = {"path": candidate, "worst": {name: [*of.values()] for name, of in some.items()}}
    return thumbnails(tables, 2 * MOST_SHOWN, budget_mb)


def _side(
    experiment: Experiment, flips: Sequence[Mapping[str, Any]], number: int
) -> dict[Key, WorstSample]:
    """Each flip's sample in one of the two runs."""
    mine = ("baseline", "candidate")[number]
    wanted: dict[str, list[tuple[Key, str, dict[str, Any]]]] = {}
    for name in {one[mine] for one in flips}:
        some = [one for one in flips if one[mine] == name]
        file = ScoresFiles(experiment.scores_dir, name).scores
        if not file.exists():
            continue
        read = rows_of(file, TEXTS, only=[one["sample"] for one in some])
        rows = {row["sample"]: row for row in read.unique("sample", keep="first").to_dicts()}
        wanted[name] = [
            (key_of(one), one["metric"], {
                **rows[one["sample"]], "place": one["rows"][number], "score": one["scores"][number],
            })
            for one in some
            if one["sample"] in rows
        ]  # fmt: skip
    samples = samples_shown(
        experiment,
        {name: [(metric, row) for _, metric, row in some] for name, some in wanted.items()},
    )
    return {
        key: one
        for name, some in wanted.items()
        for (key, _, _), one in zip(some, samples[name], strict=True)
    }
