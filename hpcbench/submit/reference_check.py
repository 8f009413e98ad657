"""Check with a few samples before submission whether a run task's metrics can read its references."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from typing import Any

from hpcbench.data.datasets import Ranges, samples, total
from hpcbench.errors import Problem, UserError
from hpcbench.evaluation.plan_metrics import check_here, load_metrics
from hpcbench.evaluation.scoring import as_text
from hpcbench.metrics.base import TooLarge
from hpcbench.parsers import Read, reader
from hpcbench.plugins import DatasetIterator
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Sample
from hpcbench.scorer.isolate import Guard
from hpcbench.scorer.one import is_ours, parts_of, takes_measurement, takes_reading, takes_sample

ASKED = 5
"""Number of checked samples, spread from the first to the last to cover all kinds of a mixed dataset."""

SHOWN = 60
"""Maximum number of shown characters of a reference."""

_EMPTY = {"text": "", "label": "", "object": {}}
"""Output of an ML task → an empty answer."""


def check_references(run_task: ResolvedRunTask, iterator: DatasetIterator, ranges: Ranges) -> None:
    """Score references as if they were answers, as evaluation would.

    A metric that fails on all checked samples could score no sample. Metrics that score in an image are left
    out: their images are not prepared yet.

    Raises:
        UserError: a metric fails on all checked samples, or lacks a package here; a metric or parser does not
            exist.
    """
    here = tuple(one for one in run_task.metrics if one.image is None)
    loaded = load_metrics(run_task.model_copy(update={"metrics": here}))
    check_here(run_task, loaded)
    asked = [one for one in _some(iterator, ranges) if one.references]
    metrics = {name: one for name, one in loaded.items() if not takes_measurement(one)}
    if not asked or not metrics:
        return
    read, guard = reader(run_task.ml_task), Guard(run_task.task.score_timeout)
    wrong: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for name, metric in metrics.items():
        faults = [_fault(metric, run_task, read, guard, sample) for sample in asked]
        if all(faults):
            said = name if name in run_task.places.of else "metrics"
            wrong.setdefault((said, is_ours(metric)), []).append((name, faults[0]))
    if wrong:
        raise UserError(
            *(
                _problem(run_task, key, some, asked[0], ours=ours)
                for (key, ours), some in wrong.items()
            )
        )


def _some(iterator: DatasetIterator, ranges: Ranges) -> Iterator[Sample]:
    number = total(ranges)
    count = min(ASKED, number)
    places = {turn * (number - 1) // max(1, count - 1) for turn in range(count)}
    for place in sorted(places):
        yield from samples(iterator, ranges, place, place + 1, images=False)


def _fault(metric: Any, run_task: ResolvedRunTask, read: Read, guard: Guard, sample: Sample) -> str:
    """Why a metric cannot score a right answer; empty: it can, or this is uncertain."""
    place = ""

    def score() -> None:
        nonlocal place
        reading = read(as_text(sample.references[0]) or "", sample, False)
        value = reading.value if reading.value is not None else _EMPTY[run_task.ml_task.output]
        references = (sample,) if takes_sample(metric) else sample.references
        try:
            parts_of(metric, reading if takes_reading(metric) else value, references)
        except TooLarge:
            return
        except Exception as error:
            # A complaint of ours is about the reference; of a foreign metric, perhaps about its code.
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = "" if is_ours(metric) else f" at {last.filename}:{last.lineno}"
            raise

    with guard:
        _, fault = guard.call(score)
    return "" if fault in (None, guard.over) else f"{fault}{place}"


def _problem(
    run_task: ResolvedRunTask,
    key: str,
    faults: list[tuple[str, str]],
    sample: Sample,
    *,
    ours: bool,
) -> Problem:
    """One problem for all metrics that the plan names at one place."""
    said = json.dumps(sample.references[0], ensure_ascii=False, default=str)
    said = said if len(said) <= SHOWN else f"{said[:SHOWN]} …"
    names = ", ".join(f"'{name}'" for name, _ in faults)
    does = "cannot read the" if ours else "fails on all checked"
    what = (
        f"metric {names} {does} references of dataset '{run_task.dataset.name}': "
        f"{faults[0][1]}; sample '{sample.id}' has {said}"
    )
    remedy = "use another metric or ML task, or correct `references` in the dataset's mapping"
    if not ours:
        remedy = "correct the metric, or use one that takes these references"
    return run_task.problem(key, what, remedy)
