"""The evaluation stage: it scores the answers of an experiment and writes what `metrics.json` holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.data.datasets import check_answers, check_places, open_dataset, samples
from hpcbench.evaluation.image_scoring import scorers_of
from hpcbench.evaluation.performance import write_performance
from hpcbench.evaluation.plan_metrics import load_metrics, run_metrics
from hpcbench.evaluation.repeats import base_of, joined
from hpcbench.evaluation.resources import with_figures
from hpcbench.evaluation.score_tables import Scored
from hpcbench.evaluation.scores import Change, Subject, update
from hpcbench.evaluation.scores import what_is_due as _what_is_due
from hpcbench.evaluation.summary import tabulate
from hpcbench.experiment.claims import answers_of, digest_of, shard_states
from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answer import Answer
from hpcbench.experiment.view.metrics_json import METRICS_VERSION, Metrics, MetricValue, Scores
from hpcbench.experiment.view.scores import ScoresFiles
from hpcbench.files.atomic import write_json
from hpcbench.judging.verdict_summary import Vote, summarise
from hpcbench.metrics.judge import Judge
from hpcbench.parsers import reading_of
from hpcbench.plugins import Environment
from hpcbench.schema.metric import Metric
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Sample
from hpcbench.scorer.one import takes_measurement


def evaluate(experiment: Experiment, say: Callable[[str], None] = lambda line: None) -> Metrics:
    """Score all existing answers; write scores, `metrics.json` and `performance.json`.

    Args:
        experiment: the experiment.
        say: receives a line for each metric that could score nothing in its image.

    Returns:
        The contents of `metrics.json`.
    """
    scored = []
    for run_task in experiment.resolved.run_tasks:
        one, change = score(experiment, subject_of(experiment, run_task))
        scored.append(one)
        for why in change.failed:
            say(f"{run_task.name}: {why}")
    measured = write_performance(experiment)  # metrics of resources are made of it
    scored = with_figures(experiment, scored, measured.run_tasks)
    return write_metrics(experiment, scored, experiment.metrics_file)


def score(
    experiment: Experiment, subject: Subject, folder: Path | None = None, *, again: bool = False
) -> tuple[Scored, Change]:
    """Bring the scores of a run task up to date.

    Args:
        experiment: the experiment of the run task.
        subject: its answers, and the metrics to score them by.
        folder: folder of the scores; None: the experiment's own. Columns that the experiment's own scores
            already have are copied from them.
        again: score by every metric, even where columns exist.
    """
    own = ScoresFiles(experiment.scores_dir, subject.run_task.name)
    place = own if folder is None else ScoresFiles(folder, subject.run_task.name)
    change = update(subject, place, own, again=again)
    seed = experiment.resolved.plan.seed
    reading = reading_of(subject.run_task.ml_task)
    skipped = experiment.skipped(subject.run_task.name)
    scored = Scored(
        subject.run_task,
        subject.metrics,
        place,
        seed,
        reading,
        skipped=skipped,
        of_run=run_metrics(subject.run_task),
    )
    return scored, change


def what_is_due(experiment: Experiment, subject: Subject, folder: Path | None = None) -> Change:
    """The change that `score` would make."""
    own = ScoresFiles(experiment.scores_dir, subject.run_task.name)
    place = own if folder is None else ScoresFiles(folder, subject.run_task.name)
    return _what_is_due(subject, place, own)


def write_metrics(experiment: Experiment, scored: Sequence[Scored], path: Path | None) -> Metrics:
    """The contents of `metrics.json` for these scores; written to `path` unless that is None."""
    tables = {
        (name := one.run_task.name): tabulate(one, experiment.unusable(name)) for one in scored
    }
    repeats = joined(scored)
    judges = summarise(
        experiment, votes_by_judge((one.run_task, one.metrics, one.place) for one in scored)
    )
    for judge in judges.values():
        for name in judge["run_tasks"]:
            tables[name] = _marked(tables[name], judge["metric"], judge["state"])
    metrics = Metrics.model_validate(
        {
            "version": METRICS_VERSION,
            "run_tasks": tables,
            **({"repeats": repeats} if repeats else {}),
            **({"judges": judges} if judges else {}),
        }
    )
    if path is not None:
        write_json(path, metrics.to_json())
    return metrics


def _marked(table: Scores, metric: str, calibration: str) -> Scores:
    """The table of a judge that says beside its value whether it is calibrated."""
    entry = table.metrics.get(metric)
    if entry is None:
        return table
    marked = MetricValue.model_validate({**entry.to_json(), "calibration": calibration})
    return table.model_copy(update={"metrics": {**table.metrics, metric: marked}})


def votes_by_judge(
    scored: Iterable[tuple[ResolvedRunTask, Mapping[str, Any], ScoresFiles]],
) -> dict[str, list[Vote]]:
    """Judge without the mark of its repeats → its repeats, where a metric of verdicts has scored them.

    Args:
        scored: run tasks, their metrics by name, and the places of their scores.
    """
    found: dict[str, list[Vote]] = {}
    for run_task, metrics, place in scored:
        if run_task.task.judge is None:
            continue
        for name, metric in metrics.items():
            if isinstance(metric, Judge):
                vote = Vote(run_task, place, name, metric)
                found.setdefault(base_of(run_task.name), []).append(vote)
                break
    return found


def subject_of(
    experiment: Experiment,
    run_task: ResolvedRunTask,
    metrics: Sequence[Metric] | None = None,
    columns: Sequence[str] = (),
    shards: Sequence[int] | None = None,
    prepared: Mapping[str, Environment] | None = None,
) -> Subject:
    """A run task of an experiment with its answers.

    Where a run task has enough answers for its comparison, only finished shards count: no worker will process
    the others.

    Args:
        experiment: the experiment.
        run_task: one of its run tasks.
        metrics: other metrics than the plan's.
        columns: metadata or fields to keep beside the dataset's `group_by`.
        shards: numbers of the only shards that count; None: all shards to be processed.
        prepared: environments of images in which metrics score, besides those of the experiment, by
            `ScoringImage.environment`.
    """
    if shards is None and run_task.name in control_state(experiment).enough_tasks:
        states = shard_states(experiment, [run_task.name])
        shards = [one.shard.index for one in states if one.state == "done"]
    only = None if shards is None else frozenset(shards)
    if metrics is not None:
        run_task = run_task.model_copy(update={"metrics": tuple(metrics)})
    source = [
        digest_of(experiment, run_task.name),
        experiment.measured.dataset_hashes.get(run_task.name),
        run_task.dataset.model_dump_json(
            exclude={"description", "notes", "metadata", "group_by", "language"}
        ),
        experiment.chosen(run_task.name),
        *([] if only is None else [sorted(only)]),
    ]
    loaded = load_metrics(run_task)
    measured_too = any(map(takes_measurement, loaded.values()))
    return Subject(
        run_task,
        loaded,
        _Answered(experiment, run_task, only, measured_too),
        repr(source),
        tuple(columns),
        scorers_of(
            experiment.resolved, run_task, {**experiment.manifest.environments, **(prepared or {})}
        ),
    )


@dataclass(frozen=True, slots=True)
class _Answered:
    """Samples of a run task with their answers; each iteration reads them again."""

    experiment: Experiment
    run_task: ResolvedRunTask
    only: frozenset[int] | None = None
    """Numbers of the shards whose samples these are; None: all."""
    measured: bool = False
    """Whether a metric looks at what answers took."""

    def __iter__(self) -> Iterator[tuple[Sample, Answer | None]]:
        experiment, name, dataset = self.experiment, self.run_task.name, self.run_task.dataset
        iterator = open_dataset(dataset, experiment.cache_dir)
        chosen = experiment.chosen(name)
        check_places(iterator, dataset.name, 0, chosen)
        for shard, answers in answers_of(experiment, name):
            if self.only is not None and shard.index not in self.only:
                continue
            met = set[str]()
            for sample in samples(iterator, chosen, shard.start, shard.stop, images=False):
                met.add(sample.id)
                found = answers.get(sample.id)
                yield sample, None if found is None else Answer.of(found, measured=self.measured)
            check_answers(answers, met, dataset.name)  # no score rather than one without them
