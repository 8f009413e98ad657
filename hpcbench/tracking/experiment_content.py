"""Data of an experiment for a tracker, read from its files: the same for every tracker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hpcbench.comparison.speed import (
    LATENCIES,
    MEMORY,
    PERCENTILES,
    RATES,
)
from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import DamagedFile
from hpcbench.experiment.claims import attempts_of, shard_states
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import MetricValue, metrics_of
from hpcbench.experiment.view.performance_json import Figure, Speed, speeds
from hpcbench.experiment.view.scores import rows_of
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, Response, Sample

GOOD = ("ok", "truncated")
"""Outcomes of requests that were answered."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A sample's prompt and its response."""

    experiment: str
    """The experiment's id."""
    run_task: ResolvedRunTask
    """The run task."""
    sample: Sample
    """The sample, without its images' bytes."""
    messages: Sequence[Message]
    """The prompt."""
    response: Response
    """The response."""
    settings: Mapping[str, Any]
    """Request fields other than the messages."""
    began: datetime
    """When it was asked. Times on nodes are monotonic: they are comparable only within one attempt at a
    shard. Each shard starts at the experiment's creation, and its attempts follow on each other."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Metric → its score; empty before evaluation."""

    def name_at(self, place: str) -> str:
        """Its name at one place of a tracker: SHA-256 of place, experiment, run task and sample, in hex."""
        key = f"{place}/{self.experiment}/{self.run_task.name}/{self.sample.id}"
        return hashlib.sha256(key.encode()).hexdigest()

    @property
    def took(self) -> timedelta:
        """Its duration."""
        times = self.response.times
        return timedelta(microseconds=(times.done - times.start) / 1000)

    @property
    def good(self) -> bool:
        """Whether it was answered."""
        return self.response.outcome in GOOD

    def about(self) -> dict[str, Any]:
        """Further fields, as plain data."""
        sample, response = self.sample, self.response
        return {
            "experiment": self.experiment, "run_task": self.run_task.name, "sample": sample.id,
            "dataset": self.run_task.dataset.name, "document": sample.document,
            "prompt": response.prompt, "outcome": response.outcome, "tries": response.tries,
            "references": sample.references, "images": response.image_sha256,
            **({"reasoning": response.reasoning} if response.reasoning else {}), **sample.metadata,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """Exchanges of one shard."""

    shard: str
    """Its id."""
    attempt: int
    """Number of its newest attempt: a new number may mean new answers."""
    whole: bool
    """Whether it gets no further exchanges, unless the experiment is resumed."""
    exchanges: Sequence[Exchange]
    """In the order of the dataset."""


def pieces(
    experiment: Experiment,
    run_task: ResolvedRunTask,
    sent: Mapping[str, int],
    *,
    limit: int | None,
    ended: bool,
) -> Iterator[Piece]:
    """Every shard of a run task with its exchanges, except shards without anything new.

    Args:
        experiment: the experiment.
        run_task: the run task.
        sent: shard → the attempt that was sent completely.
        limit: most samples, the first of the run task; None: all.
        ended: whether the experiment has ended: then every shard is whole.

    Raises:
        EnvironmentFault, UserError: the dataset can no longer be read.
    """
    # States before answers: a shard that is done by then has all of its answers.
    states = {one.shard.id: one for one in shard_states(experiment, [run_task.name])}
    last = (
        limit if limit is not None else max((one.shard.stop for one in states.values()), default=0)
    )
    skip = {
        name
        for name, one in states.items()
        if one.state == "free" or one.attempt == sent.get(name) or one.shard.start >= last
    }
    if len(skip) == len(states):
        return
    iterator = open_dataset(run_task.dataset, experiment.cache_dir)
    chosen, prompt = experiment.chosen(run_task.name), TaskPrompt(run_task)
    scores = scores_of(experiment, run_task) if ended else {}
    for shard, attempts in attempts_of(experiment, run_task.name, skip):
        answers = _dated(attempts, experiment.created)
        found, stop = [], min(shard.stop, last)
        for sample in samples(iterator, chosen, shard.start, stop, images=False):
            if sample.id in answers:
                response, began = answers[sample.id]
                exchange = Exchange(
                    experiment.id, run_task, sample, prompt.build(sample), response,
                    prompt.generation, began, scores.get(sample.id, {}),
                )  # fmt: skip
                found.append(exchange)
        state = states[shard.id]
        yield Piece(shard.id, state.attempt, ended or state.state == "done", found)


def _dated(
    attempts: Sequence[Sequence[Response]], created: datetime
) -> dict[str, tuple[Response, datetime]]:
    """Answers of a shard by sample, and when each was asked: every attempt has its own clock."""
    found: dict[str, tuple[Response, datetime]] = {}
    for attempt in attempts:
        own = [one for one in attempt if one.reused_from is None]
        # Answers of earlier experiments have other clocks.
        found |= {one.sample_id: (one, created) for one in attempt if one.reused_from is not None}
        if not own:
            continue
        first = min(one.times.start for one in own)
        for one in own:
            after = timedelta(microseconds=(one.times.start - first) / 1000)
            found[one.sample_id] = one, created + after
        created += timedelta(microseconds=(max(one.times.done for one in own) - first) / 1000)
    return found


def scores_of(experiment: Experiment, run_task: ResolvedRunTask) -> dict[str, dict[str, float]]:
    """Sample → metric → score, where scores exist; empty before evaluation."""
    wanted = ["sample", *(metric.name for metric in run_task.metrics)]
    try:
        frame = rows_of(experiment.scores_file(run_task.name), wanted)
    except (OSError, DamagedFile):
        return {}
    names = frame.columns[1:]
    return {
        row["sample"]: {name: float(row[name]) for name in names if row[name] is not None}
        for row in frame.iter_rows(named=True)
    }


def figures_of(experiment: Experiment) -> dict[str, dict[str, float]]:
    """Run task → figure → value; figures without a value are left out.

    `anls`, `anls.low`, `anls.high`, `anls.n` of each metric, `coverage`, and under their places in
    `performance.json`: `ttft_ms.p95` with its ends, `answers_per_s`, `memory.gpu_peak` (bytes).
    """
    timed = speeds(experiment)
    found: dict[str, dict[str, float]] = {}
    for name, table in metrics_of(experiment).run_tasks.items():
        figures: dict[str, float | None] = {
            "coverage": table.coverage, "asked": table.asked, "answered": table.answered,
        }  # fmt: skip
        for metric, entry in table.metrics.items():
            if entry is not None:
                figures |= {**_interval(metric, entry), f"{metric}.n": entry.n}
        if name in timed:
            figures |= _speed(timed[name])
        found[name] = {key: float(value) for key, value in figures.items() if value is not None}
    return found


def _speed(table: Speed) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for key in LATENCIES:
        for share in PERCENTILES:
            if (latency := table.latency(key)) is not None:
                figures |= _interval(f"{key}.{share}", latency.figure(share))
    for key in RATES:
        if (rate := table.rate(key)) is not None:
            figures |= _interval(key, rate)
    if table.memory is not None:
        figures |= {f"memory.{key}": table.memory.figure(key) for key in MEMORY}
    return figures


def _interval(name: str, entry: MetricValue | Figure) -> dict[str, float | None]:
    return {name: entry.value, f"{name}.low": entry.low, f"{name}.high": entry.high}


def parameters_of(experiment: Experiment, run_task: ResolvedRunTask) -> dict[str, str]:
    """Values that a run task's figures depend on, as texts."""
    manifest, measured = experiment.manifest, experiment.measured
    git = manifest.git["hpcbench"]
    model, task = run_task.model, run_task.task
    found: dict[str, Any] = {
        "experiment": experiment.id,
        "plan": experiment.resolved.plan.name,
        "run_task": run_task.name,
        "ml_task": run_task.ml_task.name,
        "model": model.name,
        "model_source": model.source,
        "model_hash": measured.model_hashes.get(model.name),
        "dataset": run_task.dataset.name,
        "dataset_version": run_task.dataset.version,
        "dataset_hash": measured.dataset_hashes.get(run_task.name),
        "prompt": run_task.prompt.name,
        "prompt_version": run_task.prompt.version,
        "engine": model.engine,
        "seed": manifest.seed,
        "hpcbench": manifest.hpcbench,
        "hpcbench_commit": git and git["commit"],
        "python": manifest.python,
    }
    for name, image in manifest.environments.items():
        found[f"image.{name or 'none'}"] = image.get("digest")
    for name, one in model.engine_options.items():
        found[f"engine_options.{name}"] = one
    for name, one in task.generation.model_dump(mode="json", exclude_none=True).items():
        found[f"generation.{name}"] = one
    for name, one in manifest.packages.items():
        found[f"version.{name}"] = one
    return {name: _text(one) for name, one in found.items() if one is not None and one != ""}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def files_of(experiment: Experiment) -> dict[str, Path]:
    """Files to keep with the figures, by their names at the tracker. None contains a secret."""
    here = {
        path.name: path
        for path in (
            experiment.plan_file, experiment.resolved_file, experiment.manifest_file,
            experiment.metrics_file, experiment.performance_file, experiment.usage_file,
            experiment.outcome_file,
        )
    }  # fmt: skip
    if experiment.report_dir.is_dir():
        here |= {f"report/{path.name}": path for path in sorted(experiment.report_dir.iterdir())}
    return {name: path for name, path in here.items() if path.is_file() and path.name[:1] != "."}


def scores_file(experiment: Experiment, run_task: str) -> dict[str, Path]:
    """A run task's file with the score of every sample, if it exists."""
    path = experiment.scores_file(run_task)
    return {f"scores/{path.name}": path} if path.is_file() else {}
