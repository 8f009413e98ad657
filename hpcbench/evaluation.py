"""Answers become scores, scores become metrics: parse → score → aggregate, per run task.

Every sample that was asked about is in the table, answered or not: `coverage` is scored ÷ asked, and what a
sample without an answer counts is the run task's `on_failed`. `metrics.json` holds nothing of time or place:
the same answers give the same bytes. What `speed` makes of times and tokens goes to `performance.json`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import plugins, speed, statistics
from hpcbench.data.datasets import open_dataset, samples
from hpcbench.experiment.claims import pieces_of, responses_of
from hpcbench.experiment.files import read_lines, write_json
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.documents import MLTask
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Response, Sample
from hpcbench.speed import ANSWERED

PERFORMANCE_VERSION = 2
"""Of `performance.json`: 2 since its figures have intervals, rates and notes."""

MISSING = "missing"
"""Stands where an outcome would for a sample nobody has asked about yet."""

EXAMPLES = 5
"""Kinds of errors that the metrics file tells in words."""


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """One sample with its answer, its prediction and the parts of every metric."""

    sample: Sample
    """The sample."""
    response: Response | None
    """Its answer; None if it has none."""
    prediction: object | None
    """The answer as its task reads it; None if it cannot be read."""
    parts: Mapping[str, Any]
    """Metric → numerator and denominator; empty if the sample is left out."""

    @property
    def outcome(self) -> str:
        """The response's outcome, or `missing`."""
        return self.response.outcome if self.response else MISSING


def main(argv: Sequence[str]) -> None:
    """Evaluate one experiment: `hpcbench.evaluation EXPERIMENT`."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    if "evaluation" in experiment.resolved.plan.stages:
        evaluate(experiment)


def evaluate(experiment: Experiment) -> dict[str, Any]:
    """Score all answers there are; writes scores, `metrics.json` and `performance.json`.

    Returns:
        What `metrics.json` holds.
    """
    tables: dict[str, Any] = {}
    performance: dict[str, Any] = {}
    events = _events(experiment)
    for run_task in experiment.resolved.run_tasks:
        metrics = load_metrics(run_task)
        scored = list(score(run_task, _answered(experiment, run_task), metrics))
        write_scores(experiment.scores_file(run_task.name), scored, metrics)
        seed, skipped = experiment.resolved.plan.seed, experiment.skipped(run_task.name)
        tables[run_task.name] = tabulate(run_task, scored, metrics, seed, skipped)
        told = [event for event in events if event["run_task"] == run_task.name]
        performance[run_task.name] = measure_performance(experiment, run_task, told)
    table = {"version": 1, "run_tasks": tables}
    write_json(experiment.metrics_file, table)
    write_json(
        experiment.performance_file,
        {
            "version": PERFORMANCE_VERSION,
            "run_tasks": performance,
            "sweeps": speed.sweeps(performance),
        },
    )
    return table


def write_scores(path: Path, scored: Iterable[ScoredSample], metrics: Mapping[str, Any]) -> None:
    """One row a sample: id, document, outcome, prediction, references, value of each metric."""
    import polars

    rows = [
        {
            "sample": one.sample.id,
            "document": one.sample.document,
            "outcome": one.outcome,
            "answer": one.response.text if one.response else None,
            "prediction": _as_text(one.prediction),
            "references": [_as_text(reference) for reference in one.sample.references],
            **{
                name: metric.aggregate([one.parts[name]]) if name in one.parts else None
                for name, metric in metrics.items()
            },
        }
        for one in scored
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    schema = {name: polars.Float64 for name in metrics}
    polars.DataFrame(rows, infer_schema_length=None, schema_overrides=schema).write_parquet(
        temporary
    )
    temporary.replace(path)


def measure_performance(
    experiment: Experiment, run_task: ResolvedRunTask, events: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """What `performance.json` says of a run task: the load it was under, and `speed`'s figures.

    Every request counts that was made. Scores take one answer a sample; speed takes those of an attempt that
    was taken over, too: the engine had to answer them.
    """
    task = run_task.task
    load = {
        "concurrency": task.concurrency,
        "rate": task.rate,
        "arrival": task.arrival if task.rate is not None else None,
        "warm_up": task.warm_up,
        "sweep": run_task.sweep,
    }
    return {"load": load, **speed.measure(pieces_of(experiment, run_task.name), task.slo, events)}


def _events(experiment: Experiment) -> list[dict[str, Any]]:
    """What workers told of run tasks that belongs to their speed."""
    return [
        event
        for path in experiment.worker_event_files()
        for event in read_lines(path)
        if event["event"] in speed.EVENTS and "run_task" in event
    ]


def load_metrics(run_task: ResolvedRunTask) -> dict[str, Any]:
    """A run task's metrics by the names of their documents, options filled in."""
    return {
        document.name: plugins.load("metrics", document.plugin)(**document.options)
        for document in run_task.metrics
    }


def score(
    run_task: ResolvedRunTask,
    answered: Iterable[tuple[Sample, Response | None]],
    metrics: Mapping[str, Any],
) -> Iterator[ScoredSample]:
    """Read and score answers; a sample without one counts as the run task's `on_failed` says."""
    read = _reader(run_task.ml_task)
    for sample, response in answered:
        usable = response is not None and response.outcome in ANSWERED
        text = response.text if response is not None and usable else None
        prediction = read(text, sample) if text is not None else None
        parts = {
            name: metric.score(prediction, sample.references)
            for name, metric in metrics.items()
            if usable or run_task.task.on_failed == "zero"
        }
        yield ScoredSample(sample, response, prediction, parts)


def _answered(
    experiment: Experiment, run_task: ResolvedRunTask
) -> Iterator[tuple[Sample, Response | None]]:
    iterator = open_dataset(run_task.dataset, experiment.cache_dir)
    chosen = experiment.chosen(run_task.name)
    for shard in experiment.work.shards_of((run_task.name,)):
        answers = {response.sample_id: response for response in responses_of(experiment, shard)}
        for sample in samples(iterator, chosen, shard.start, shard.stop, images=False):
            yield sample, answers.get(sample.id)


def _reader(ml_task: MLTask) -> Callable[[str, Sample], object | None]:
    """How an answer is read: by the task's plugin or its parser, then held to its schema."""
    if ml_task.parser is not None:
        parser = plugins.load("parsers", ml_task.parser)()

        def read(text: str, sample: Sample) -> object | None:
            found: object | None = parser.parse(text)
            return found
    else:
        read = plugins.load("tasks", ml_task.plugin)().parse
    if ml_task.output_schema is None:
        return read
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(dict(ml_task.output_schema))

    def read_valid(text: str, sample: Sample) -> object | None:
        found = read(text, sample)
        return found if found is not None and validator.is_valid(found) else None

    return read_valid


def tabulate(
    run_task: ResolvedRunTask,
    scored: Sequence[ScoredSample],
    metrics: Mapping[str, Any],
    seed: int,
    skipped: int = 0,
) -> dict[str, Any]:
    """What `metrics.json` says of a run task; `skipped` samples of its dataset were never asked."""
    answered = sum(one.outcome in ANSWERED for one in scored)
    unread = sum(one.outcome in ANSWERED and one.prediction is None for one in scored)
    return {
        "ml_task": run_task.ml_task.name,
        "model": run_task.model.name,
        "dataset": run_task.dataset.name,
        "split": run_task.dataset.split,
        "prompt": run_task.prompt.name,
        "on_failed": run_task.task.on_failed,
        "asked": len(scored),
        "answered": answered,
        "unread": unread,
        "skipped": skipped,
        "coverage": answered / (len(scored) + skipped),
        "outcomes": dict(sorted(Counter(one.outcome for one in scored).items())),
        "errors": _errors(scored),
        "metrics": {
            name: _aggregate(metric, [one for one in scored if one.parts], name, seed)
            for name, metric in metrics.items()
        },
    }


def _aggregate(
    metric: Any, scored: Sequence[ScoredSample], name: str, seed: int
) -> dict[str, Any] | None:
    """Value with its interval; None when no sample is left to score."""
    if not scored:
        return None
    parts = [one.parts[name] for one in scored]
    clusters = [one.sample.document for one in scored]
    numerators = [part.numerator for part in parts]
    if metric.aggregation == "mean":
        interval = statistics.mean_interval(numerators, clusters, bounds=metric.bounds)
        if interval.method == statistics.NO_SPREAD and set(numerators) in ({0.0}, {1.0}):
            interval = _all_alike(interval)
    else:
        denominators = [part.denominator for part in parts]
        if not math.fsum(denominators):
            return _entry(metric, metric.aggregate(parts), None)
        interval = statistics.ratio_interval(
            numerators, denominators, clusters, seed=seed, bounds=metric.bounds
        )
    return _entry(metric, metric.aggregate(parts), interval)


def _all_alike(interval: statistics.Interval) -> statistics.Interval:
    """All right or all wrong leaves no spread to measure, yet it is evidence: Wilson over documents.

    Documents stand for samples, which is cautious: questions about one document go together.
    """
    share = statistics.proportion_interval(
        interval.clusters if interval.estimate else 0, interval.clusters
    )
    return dataclasses.replace(
        interval, low=share.low, high=share.high, method=f"{share.method} over documents"
    )


def _entry(metric: Any, value: float, interval: statistics.Interval | None) -> dict[str, Any]:
    return {
        "value": value,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "level": interval.level if interval else None,
        "n": interval.n if interval else 0,
        "clusters": interval.clusters if interval else 0,
        "method": interval.method if interval else "undefined: empty references",
        "signature": metric.signature,
        "higher_is_better": metric.higher_is_better,
    }


def _errors(scored: Sequence[ScoredSample]) -> list[dict[str, Any]]:
    """The commonest reasons for samples without an answer, with how often and one sample."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for one in scored:
        if one.response is not None and one.outcome not in ANSWERED:
            key = (one.outcome, one.response.error or "no reason given")
            counts[key] += 1
            first.setdefault(key, one.sample.id)
    commonest = sorted(counts, key=lambda key: (-counts[key], key))[:EXAMPLES]
    return [
        {"outcome": key[0], "message": key[1], "count": counts[key], "sample": first[key]}
        for key in commonest
    ]


def _as_text(value: object | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
