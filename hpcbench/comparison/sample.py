"""One sample with the answers of several runs, for a closer look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcbench.comparison.pairing import match_run_tasks
from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import HpcbenchError, UserError
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import rows_of
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import StoredImage

_TEXTS = ("sample", "document", "outcome", "reason", "answer", "prediction", "references")


def look_at(
    baseline: Experiment,
    candidates: Sequence[Experiment],
    sample: str,
    pairs: Sequence[tuple[str, str]] = (),
) -> Iterator[dict[str, Any]]:
    """Each run's work on a sample, the baseline's run tasks before those of candidates.

    Args:
        baseline: an experiment.
        candidates: experiments that are compared with the baseline.
        sample: id of the sample.
        pairs: run tasks of either, see `match_run_tasks`.

    Returns:
        For each run task that has it: `experiment`, `run_task`, `outcome`, `document`, `scores` by metric,
        `images` (paths, where files exist), and as lists of texts `question`, `references`, `answer` and
        `prediction`.

    Raises:
        UserError: no run task has such a sample.
    """
    places: dict[tuple[Path, str], tuple[Experiment, ResolvedRunTask]] = {}
    for candidate in candidates:
        for one, other in match_run_tasks(baseline, candidate, pairs):
            places.setdefault((baseline.path, one.name), (baseline, one))
            places.setdefault((candidate.path, other.name), (candidate, other))
    ordered = sorted(places, key=lambda place: place[1])
    found = [entry for place in ordered if (entry := _entry(*places[place], sample)) is not None]
    if not found:
        raise UserError(f"no run task that the experiments share has a sample '{sample}'")
    yield from found


def _entry(here: Experiment, run_task: ResolvedRunTask, sample: str) -> dict[str, Any] | None:
    file = here.scores_file(run_task.name)
    if not file.exists():
        return None
    metrics = [metric.name for metric in run_task.metrics]
    places = (rows_of(file, ["sample"])["sample"] == sample).arg_true()
    if not len(places):
        return None
    row = rows_of(file, [*_TEXTS, *metrics], only=[sample]).to_dicts()[0]
    unread = [f"(unreadable: {row['reason']})"] if row["reason"] else []
    return {
        "experiment": here.id,
        "run_task": run_task.name,
        "outcome": row["outcome"],
        "document": row["document"],
        "scores": {name: row.get(name) for name in metrics},
        **_asked(here, run_task, sample, int(places[0])),
        "references": [text or "" for text in row["references"] or ()],
        "answer": [row["answer"]] if row["answer"] is not None else [],
        "prediction": unread or ([row["prediction"]] if row["prediction"] != row["answer"] else []),
    }


def _asked(here: Experiment, run_task: ResolvedRunTask, sample: str, place: int) -> dict[str, Any]:
    """The sample's fields in the dataset; empty where the dataset no longer has it."""
    try:
        iterator = open_dataset(run_task.dataset, here.cache_dir)
        chosen = here.chosen(run_task.name)
        found = next(samples(iterator, chosen, place, place + 1), None)
    except (HpcbenchError, OSError, KeyError):
        found = None
    if found is None or found.id != sample:
        return {"images": [], "question": []}
    question = found.fields.get("question")
    return {
        "images": [
            image.name if isinstance(image, StoredImage) else str(image)
            for image in found.images
            if not isinstance(image, bytes)
        ],
        "question": [] if question is None else [str(question)],
    }
