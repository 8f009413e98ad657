"""Versions of the parser and metrics of stored scores, and whether two sets of scores may be compared.

Scores files name them in their metadata. Files of earlier versions of hpcbench do not: their answers were
read by version 1 of the parser, and the signatures of their metrics are those in `metrics.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import scores_of
from hpcbench.experiment.view.scores import ScoresFiles, read_keys
from hpcbench.parsers import same_reading, version_of


@dataclass(frozen=True, slots=True)
class ScoreVersions:
    """The parser and metrics that computed the scores of a run task."""

    reading: str = ""
    """Parser and version, as `hpcbench.parsers.reading_of`; empty: version 1."""
    signatures: Mapping[str, str] = field(default_factory=dict)
    """Metric → the signature it was scored by; other metrics are unknown."""


def made_by(experiment: Experiment, place: ScoresFiles, run_task: str) -> ScoreVersions:
    """The parser and metrics that computed the scores of a run task."""
    keys = read_keys(place)
    if keys is not None and keys.signatures:
        return ScoreVersions(keys.reading, keys.signatures)
    table = scores_of(experiment, run_task)
    entries = table.values if table is not None else {}
    return ScoreVersions("", {name: one.signature for name, one in entries.items()})


def other_reading(readings: tuple[str, str], ids: tuple[str, str]) -> tuple[str, str] | None:
    """Why scores of different readings must not be compared, and the remedy; None: they may be compared.

    Args:
        readings: the readings of two experiments' scores, as `ScoreVersions.reading`.
        ids: the two experiments.
    """
    (one, other), (first, second) = readings, ids
    if same_reading(one, other):
        return None
    parser = (one or other).partition("|")[0]
    old, new = version_of(one), version_of(other)
    if first == second:
        why = f"scores of {first} come from versions {old} and {new} of parser {parser}"
    else:
        why = (
            f"scores of {first} come from version {old} of parser {parser}, "
            f"those of {second} from version {new}"
        )
    numbers = [[int(part) for part in version.split(".")] for version in (old, new)]
    return why, f"run `hpcbench score {first if numbers[0] < numbers[1] else second}`"
