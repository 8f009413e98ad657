"""Samples to look at first: the question, the answer, the reference, and the difference by words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.data.pictures import name_of
from hpcbench.evaluation.score_distributions import worst
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.scores import ScoresFiles
from hpcbench.prompts import TaskPrompt
from hpcbench.reporting.printed_tables import first_metric
from hpcbench.reporting.report_tables import WorstSample
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Sample

CUT = 1200
"""Characters of an answer, reference or prompt that are kept."""

REFERENCES = 20
"""Most acceptable answers that are searched for the nearest."""

Piece = tuple[Literal["same", "lost", "added"], str]


def worst_samples(
    experiment: Experiment, tables: Mapping[str, Scores], names: Iterable[str], count: int
) -> dict[str, list[WorstSample]]:
    """The worst samples of each run task by its first metric; no perfect samples.

    Args:
        experiment: the experiment.
        tables: its run tasks' scores in `metrics.json`.
        names: run tasks to look at.
        count: samples of each.
    """
    rows: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for name in names:
        rows[name] = []
        metric = first_metric(tables[name])
        if metric is not None and count:
            up = tables[name].values[metric].higher_is_better
            place = ScoresFiles(experiment.scores_dir, name)
            some = worst(place, metric, count, higher_is_better=up)
            rows[name] = [(metric, row) for row in some]
    return samples_shown(experiment, rows)


def samples_shown(
    experiment: Experiment, rows: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]]
) -> dict[str, list[WorstSample]]:
    """Samples for people, with the question where the dataset can still be read.

    Args:
        experiment: the experiment.
        rows: run task → for each sample the metric of its `score`, and its row from
            `evaluation.worst`.
    """
    resolved = {one.name: one for one in experiment.resolved.run_tasks}
    found = {name: [_shown(row, metric) for metric, row in some] for name, some in rows.items()}
    for name, sample, one in _with_samples(experiment, found, resolved):
        one["images"] = [name_of(image) for image in sample.images]
        one["prompt"] = _prompt(resolved[name], sample)
    return found


def _shown(row: Mapping[str, Any], metric: str) -> WorstSample:
    references = [one for one in row["references"] or () if one is not None] or [""]
    answer: str | None = row["answer"]
    read = row["prediction"] if row["prediction"] is not None else answer
    reference, pieces = compared_by_words(references, read)
    shown = None if answer is None else answer[:CUT]
    return {
        "sample": row["sample"],
        "document": row["document"],
        "place": row["place"],
        "metric": metric,
        "score": row["score"],
        "outcome": row["outcome"],
        "prompt": None,
        "images": [],
        "answer": shown,
        "reference": reference[:CUT],
        "others": len(references) - 1,
        "diff": pieces,
        "cut": len(reference) > CUT or len(answer or "") > CUT,
    }


def compared_by_words(
    references: Sequence[str], answer: str | None, most: int = CUT
) -> tuple[str, list[Piece]]:
    """The reference that is nearest to an answer, and the difference by words; one line for each field.

    Args:
        references: at least one.
        answer: the answer to compare; None: there is no difference.
        most: characters of either that are compared.
    """
    read = None if answer is None else spread(answer)
    reference = _nearest([spread(one) for one in references], read)
    return reference, [] if read is None else diff(reference[:most], read[:most])


def diff(reference: str, answer: str) -> list[Piece]:
    """The difference from the reference to the answer by words: as few lost and added words as possible.

    The longest common subsequence of words (Myers 1986, "An O(ND) difference algorithm", has the same goal).
    """
    from rapidfuzz.distance import Indel

    one, other = (re.findall(r"\S+", text) for text in (reference, answer))
    found: list[Piece] = []
    for step in Indel.opcodes(one, other):
        if step.tag == "equal":
            found.append(("same", " ".join(one[step.src_start : step.src_end])))
        elif step.tag == "delete":
            found.append(("lost", " ".join(one[step.src_start : step.src_end])))
        else:
            found.append(("added", " ".join(other[step.dest_start : step.dest_end])))
        if [kind for kind, _ in found[-2:]] == ["added", "lost"]:
            found[-2:] = found[:-3:-1]  # first the expected word, then the answer's
    return found


def _nearest(references: Sequence[str], answer: str | None) -> str:
    """The reference that is nearest to an answer; the first of equally near ones."""
    if answer is None or len(references) == 1:
        return references[0]
    from rapidfuzz.distance import Indel

    some = references[:REFERENCES]
    return max(some, key=lambda one: Indel.normalized_similarity(one[:CUT], answer[:CUT]))


def spread(text: str) -> str:
    """An object, one line for each field, in a fixed order, to compare its words; other text unchanged."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1, sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _with_samples(
    experiment: Experiment,
    found: Mapping[str, list[WorstSample]],
    resolved: Mapping[str, ResolvedRunTask],
) -> Iterator[tuple[str, Sample, WorstSample]]:
    """Run task, sample and its entry, where the dataset can still be read."""
    wanted: dict[str, list[tuple[int, str, WorstSample]]] = {}
    for name, some in found.items():
        key = resolved[name].dataset.model_dump_json() + json.dumps(_chosen(experiment, name))
        wanted.setdefault(key, []).extend((one["place"], name, one) for one in some)
    for group in wanted.values():
        names = [name for _, name, _ in group]
        places = sorted({place for place, _, _ in group})
        read = dict(samples_at(experiment, resolved[names[0]], places)) if group else {}
        for place, name, one in group:
            sample = read.get(place)
            if sample is not None and sample.id == one["sample"]:
                yield name, sample, one


def _chosen(experiment: Experiment, run_task: str) -> Any:
    try:
        return experiment.chosen(run_task)
    except (OSError, ValueError):
        return None


def samples_at(
    experiment: Experiment, run_task: ResolvedRunTask, places: Sequence[int]
) -> Iterator[tuple[int, Sample]]:
    """Samples by their places among the asked samples, with images; none where the dataset is gone."""
    try:
        chosen = experiment.chosen(run_task.name)
        iterator = open_dataset(run_task.dataset, experiment.cache_dir)
        for place in places:
            for sample in samples(iterator, chosen, place, place + 1):
                yield place, sample
    except Exception:  # noqa: BLE001 - foreign code over files that may be gone: the report does without
        return


def _prompt(run_task: ResolvedRunTask, sample: Sample) -> str | None:
    """The text of the question, as the prompt's definition words it."""
    try:
        messages = TaskPrompt(run_task).build(sample)
    except Exception:  # noqa: BLE001 - foreign strategy: the report does without its text
        return None
    if len(messages) == 1:
        text = messages[0].text
    else:
        text = "\n\n".join(f"{one.role}: {one.text}" for one in messages)
    return text if len(text) <= CUT else f"{text[:CUT]} …"
