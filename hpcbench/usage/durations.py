"""Durations of samples and loads in earlier experiments, for planning and estimates.

At the end of an experiment `remember` writes its durations to `history.json`, a small derived file.
`rates` reads these files of the newest experiments of the same home; it never reads answers.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from hpcbench.errors import OTHER_FORM
from hpcbench.experiment.layout import Experiment, experiments_dir
from hpcbench.experiment.view.attempts import Attempt, Attempts
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.files.atomic import derived, write_json
from hpcbench.planning import LOAD_SECONDS, SECONDS_PER_SAMPLE
from hpcbench.schema.decoding import decoded
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Measured, ResolvedPlan, ResolvedRunTask

DEFAULT_AT_ONCE = 8
"""Up to this many requests in flight, an engine is assumed to need the same time as for one. Batches of a
data-centre GPU are bound by its memory's bandwidth far beyond this number."""

RECENT = 3
"""Number of experiments of the best match that are used, newest first."""

LOOKED_THROUGH = 500
"""Number of experiments that are looked through, newest first."""

MADE_AT_ONCE = 10
"""Missing summaries that one call computes, newest first; the next call computes more."""

SHARDS_READ = 64
"""Shards of a run task, and workers, that a summary reads: evenly spread, enough for a median."""

VERSION = 1
"""Version of `history.json`."""

_LEVELS = (
    "the same dataset",
    "another dataset of its ML task",
    "another ML task",
    "the same dataset under another load",
    "another dataset of its ML task under another load",
    "another ML task under another load",
    "other options or GPUs of its engine",
)
"""How similar an earlier run task of the same model is, best first."""

_LOAD_LEVELS = ("the same engine", "other options or GPUs of its engine")
"""How similar an earlier load of the same model is, best first."""


@dataclass(frozen=True, slots=True)
class _Conditions:
    """Properties that decide a duration, as far as they are considered; a hash is None if it is not known."""

    model: str
    model_hash: str | None
    engine: str
    """Hash of the engine, its options, and its GPUs."""
    dataset: str
    dataset_hash: str | None
    ml_task: str
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Duration(_Conditions):
    """Durations of a run task's samples, or of a model's loads, in seconds."""

    low: float
    """10th percentile."""
    seconds: float
    """Median."""
    high: float
    """90th percentile."""
    run_task: str = ""
    answer_bytes: float = 0.0
    """Bytes of an answer on disk, on average."""


@dataclass(frozen=True, slots=True)
class _Summary:
    """Content of `history.json`."""

    version: int
    id: str
    run_tasks: tuple[_Duration, ...]
    loads: tuple[_Duration, ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> _Summary | None:
        """The content of a file; None: another version's."""
        return decoded(cls, data) if data["version"] == VERSION else None


_Levels = dict[int, list[_Duration]]
"""Place in `_LEVELS` → durations found there, newest first."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Duration of a sample or a load, in seconds."""

    seconds: float
    """Median of earlier durations, or a default."""
    low: float
    """A tenth was faster; equal to `seconds` for a default."""
    high: float
    """A tenth was slower; equal to `seconds` for a default."""
    source: str = ""
    """Its source, e.g. `2 experiments, the same dataset`; empty: a default, not measured."""

    @property
    def known(self) -> bool:
        """Whether an earlier experiment measured it."""
        return bool(self.source)


@dataclass(frozen=True, slots=True)
class Rates:
    """Durations of a plan's samples and loads, from earlier experiments."""

    samples: Mapping[str, Rate]
    """Run task → one worker's duration of a sample, with the run task's number of requests in flight."""
    loads: Mapping[str, Rate]
    """Model → duration from the request for it until it is ready."""
    answer_bytes: Mapping[str, float]
    """Run task → bytes of an answer on disk, where measured."""
    timed: frozenset[str] = frozenset()
    """Models with measured loads and measured samples of all their run tasks."""

    @property
    def seconds_per_sample(self) -> Mapping[str, float]:
        """Run task → seconds of a worker per sample."""
        return {name: rate.seconds for name, rate in self.samples.items()}

    @property
    def load_seconds(self) -> Mapping[str, float]:
        """Model → seconds until it is ready."""
        return {name: rate.seconds for name, rate in self.loads.items()}

    @property
    def for_planning(
        self,
    ) -> tuple[Mapping[str, float], Mapping[str, float], frozenset[str]]:
        """Arguments of `planning.plan_work`: seconds of samples and loads, and models with measured times."""
        return self.seconds_per_sample, self.load_seconds, self.timed

    @property
    def known(self) -> frozenset[str]:
        """Run tasks whose rate is measured; all other rates are defaults."""
        return frozenset(name for name, rate in self.samples.items() if rate.known)


def rates(root: Path, resolved: ResolvedPlan, measured: Measured, *, keep: bool = False) -> Rates:
    """Durations of this plan's run tasks and models, from the newest experiments below a home.

    Args:
        root: the home.
        resolved: the plan.
        measured: hashes of its datasets and models; without them definitions are compared by name.
        keep: whether to write missing summaries to disk; otherwise this writes nothing.
    """
    wanted = {
        run_task.name: _conditions(run_task, resolved, measured) for run_task in resolved.run_tasks
    }
    models = {run_task.model.name: wanted[run_task.name] for run_task in resolved.run_tasks}
    tasks_of: dict[str, list[str]] = {name: [] for name in models}
    for run_task in resolved.run_tasks:
        tasks_of[run_task.model.name].append(run_task.name)
    near: dict[str, _Levels] = {name: {} for name in wanted}
    loads: dict[str, _Levels] = {name: {} for name in models}
    for summary in islice(_summaries(root, keep=keep), LOOKED_THROUGH):
        for model, key in models.items():
            same = [one for one in summary.run_tasks if _same_model(one, key)]
            if same:
                for name in tasks_of[model]:
                    _hear(near[name], [(_level(one, wanted[name]), one) for one in same])
            loaded = [one for one in summary.loads if _same_model(one, key)]
            _hear(loads[model], [(_load_level(one, key), one) for one in loaded])
        if all(len(one.get(0, ())) >= RECENT for one in (*near.values(), *loads.values())):
            break
    bytes_seen = {
        name: statistics.median(one.answer_bytes for one in best)
        for name, levels in near.items()
        if (best := _best(levels)[1])
    }
    tasks = {run_task.name: run_task for run_task in resolved.run_tasks}
    per_sample = {
        name: _no_faster(tasks[name], _rate(near[name], _default(tasks[name]))) for name in tasks
    }
    per_load = {name: _rate(loads[name], LOAD_SECONDS, _LOAD_LEVELS) for name in models}
    timed = {
        model
        for model, rate in per_load.items()
        if rate.known and all(per_sample[name].known for name in tasks_of[model])
    }
    return Rates(per_sample, per_load, bytes_seen, frozenset(timed))


def remember(experiment: Experiment) -> None:
    """Write the durations of an ended experiment, for estimates of later experiments.

    Raises:
        OSError: the file cannot be written.
    """
    write_json(experiment.history_file, asdict(_summary(experiment)))


def _summaries(root: Path, *, keep: bool) -> Iterator[_Summary]:
    """Summaries of ended experiments, newest first; a missing one is computed."""
    try:
        folders = sorted(experiments_dir(root).iterdir(), reverse=True)
    except FileNotFoundError:
        return
    made = 0
    for folder in folders:
        experiment = Experiment(folder)
        try:
            found = derived(experiment.history_file, _Summary.of)
            if found is None and made < MADE_AT_ONCE and experiment.outcome_file.exists():
                made += 1
                found = _summary(experiment)
                if keep:
                    write_json(experiment.history_file, asdict(found))
        except (OSError, *OTHER_FORM):
            continue  # of an older form, half removed or another user's: history is optional
        if found is not None:
            yield found


def _summary(experiment: Experiment) -> _Summary:
    """Durations of an experiment's run tasks and models, where measured."""
    resolved, measured = experiment.resolved, experiment.measured
    conditions = {
        run_task.name: _conditions(run_task, resolved, measured) for run_task in resolved.run_tasks
    }
    run_tasks = []
    for name, key in conditions.items():
        attempts = Attempts(experiment, name)
        found = [one for shard in attempts.by_shard(SHARDS_READ) for one in shard]
        seen = [
            (one.seconds / one.answered, one.answered)
            for one in found
            if one.ended in ("done", "drained") and one.answered
        ]
        if seen:
            own = _duration(key, seen)
            size = _answer_bytes(attempts, found)
            run_tasks.append(replace(own, run_task=name, answer_bytes=size))
    models = {run_task.model.name: conditions[run_task.name] for run_task in resolved.run_tasks}
    loads = (
        _duration(models[model], [(one, 1) for one in seconds])
        for model, seconds in _loads(experiment).items()
        if model in models
    )
    return _Summary(VERSION, experiment.id, tuple(run_tasks), tuple(loads))


def _loads(experiment: Experiment) -> dict[str, list[float]]:
    """Model → seconds of each of its loads."""
    found: dict[str, list[float]] = {}
    for run in worker_runs(experiment, most=SHARDS_READ):
        for event in run.events:
            if event["event"] == "model_ready" and "seconds" in event:
                found.setdefault(event["model"], []).append(float(event["seconds"]))
    return found


def _answer_bytes(attempts: Attempts, found: Sequence[Attempt]) -> float:
    size = count = 0
    for one in found:
        if one.answered and (own := attempts.answer_bytes(one)) is not None:
            size += own
            count += one.answered
    return round(size / count, 1) if count else 0.0


def _conditions(
    run_task: ResolvedRunTask, resolved: ResolvedPlan, measured: Measured
) -> _Conditions:
    task, model = run_task.task, run_task.model
    load = (
        f"{task.rate}/s {task.arrival}"
        if task.rate is not None
        else str(run_task.in_flight or task.concurrency)
    )
    return _Conditions(
        model=model.name,
        model_hash=_real(measured.model_hashes.get(model.name)),
        engine=_engine(run_task, model, resolved),
        dataset=run_task.dataset.name,
        dataset_hash=_real(measured.dataset_hashes.get(run_task.name)),
        ml_task=run_task.ml_task.name,
        load=load,
    )


def _engine(run_task: ResolvedRunTask, model: Model, resolved: ResolvedPlan) -> str:
    kind = run_task.task.resources.gpu_type or resolved.site.slurm.gpu_gres
    parts = [
        model.engine, model.dtype, model.context_length, dict(model.engine_options),
        model.gpus, kind if resolved.executor == "slurm" and model.gpus else "",
        *([model.nodes, model.parallel.model_dump()] if model.parallel else []),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _real(content: str | None) -> str | None:
    """A hash; None for a text that means there is no hash."""
    return content if content is not None and content.startswith("sha256:") else None


def _hear(near: _Levels, found: Sequence[tuple[int, _Duration]]) -> None:
    """Add the durations of an experiment that are most similar to the requested run task or load.

    Each experiment adds one: the median of its equally similar run tasks.
    """
    if found:
        best = min(level for level, _ in found)
        same = [one for level, one in found if level == best]
        same.sort(key=lambda one: one.seconds)
        near.setdefault(best, []).append(same[len(same) // 2])


def _level(one: _Duration, key: _Conditions) -> int:
    """Place in `_LEVELS` of an earlier run task of the same model."""
    if one.engine != key.engine:
        return len(_LEVELS) - 1
    under_another_load = 0 if one.load == key.load else 3
    if _same((one.dataset, one.dataset_hash), (key.dataset, key.dataset_hash)):
        return under_another_load
    return under_another_load + (1 if one.ml_task == key.ml_task else 2)


def _load_level(one: _Duration, key: _Conditions) -> int:
    """Place in `_LOAD_LEVELS` of an earlier load of the same model."""
    return 0 if one.engine == key.engine else 1


def _same_model(one: _Duration, key: _Conditions) -> bool:
    return _same((one.model, one.model_hash), (key.model, key.model_hash))


def _same(one: tuple[str, str | None], other: tuple[str, str | None]) -> bool:
    """Whether two definitions are the same: by hash, else by name."""
    place = 1 if one[1] and other[1] else 0
    return one[place] == other[place]


def _best(levels: _Levels) -> tuple[int, list[_Duration]]:
    """The most similar level that has any, and its newest ones."""
    if not levels:
        return 0, []
    level = min(levels)
    return level, levels[level][:RECENT]


def _rate(levels: _Levels, default: float, words: Sequence[str] = _LEVELS) -> Rate:
    level, heard = _best(levels)
    if not heard:
        return Rate(default, default, default)
    count = f"{len(heard)} experiment{'s' if len(heard) > 1 else ''}"
    return Rate(
        statistics.median(one.seconds for one in heard),
        min(one.low for one in heard),
        max(one.high for one in heard),
        f"{count}, {words[level]}",
    )


def _default(run_task: ResolvedRunTask) -> float:
    return SECONDS_PER_SAMPLE / min(run_task.in_flight or DEFAULT_AT_ONCE, DEFAULT_AT_ONCE)


def _no_faster(run_task: ResolvedRunTask, rate: Rate) -> Rate:
    """At a fixed request rate a sample takes at least the time between two requests."""
    asked = run_task.task.rate
    if asked is None:
        return rate
    seconds, low, high = (max(one, 1 / asked) for one in (rate.seconds, rate.low, rate.high))
    return Rate(seconds, low, high, rate.source)


def _duration(conditions: _Conditions, seen: Iterable[tuple[float, int]]) -> _Duration:
    """Median and 10th and 90th percentiles of weighted durations."""
    ordered = sorted(seen)
    whole = sum(weight for _, weight in ordered)
    passed = accumulate(weight for _, weight in ordered)
    reached = [(total, value) for total, (value, _) in zip(passed, ordered, strict=True)]
    low, middle, high = (
        round(next(value for total, value in reached if total >= share * whole), 6)
        for share in (0.1, 0.5, 0.9)
    )
    return _Duration(**asdict(conditions), low=low, seconds=middle, high=high)
