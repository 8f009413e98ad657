"""Which versions of parser and metrics stored scores were made by, and whether two may be compared.

Scores files name them in their metadata. Files of versions of hpcbench before that do not: their answers were
read by version 1 of the parser, and the signatures of their metrics are those in `metrics.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.errors import EnvironmentFault
from hpcbench.evaluation.scores import Place, read_keys
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.results import metrics_of
from hpcbench.parsers import same_reading, version_of


@dataclass(frozen=True, slots=True)
class Made:
    """What scores of a run task were made by."""

    reading: str = ""
    """Parser and version, as `hpcbench.parsers.reading_of`; empty: version 1."""
    signatures: Mapping[str, str] = field(default_factory=dict)
    """Metric → the signature it was scored by; metrics that are not in it are not known."""


def made_by(experiment: Experiment, place: Place, run_task: str) -> Made:
    """What the scores of a run task of an experiment were made by."""
    keys = read_keys(place)
    if keys is not None and keys.signatures:
        return Made(keys.reading, keys.signatures)
    try:
        entries = metrics_of(experiment)["run_tasks"].get(run_task, {}).get("metrics", {})
    except EnvironmentFault:
        return Made()
    return Made("", {name: one["signature"] for name, one in entries.items() if one is not None})


def other_reading(readings: tuple[str, str], ids: tuple[str, str]) -> tuple[str, str] | None:
    """Why scores that were read otherwise are not to be compared, and the remedy; None: they may be.

    Args:
        readings: of the scores of two experiments, as `Made.reading`.
        ids: the two experiments.
    """
    (one, other), (first, second) = readings, ids
    if same_reading(one, other):
        return None
    parser = (one or other).partition("|")[0]
    old, new = version_of(one), version_of(other)
    if first == second:
        why = f"scores of {first} were read by versions {old} and {new} of parser {parser}"
    else:
        why = (
            f"scores of {first} were read by version {old} of parser {parser}, "
            f"those of {second} by version {new}"
        )
    numbers = [[int(part) for part in version.split(".")] for version in (old, new)]
    return why, f"run `hpcbench score {first if numbers[0] < numbers[1] else second}`"
