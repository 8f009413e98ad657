"""Logs in other kits' formats, so that their viewers open hpcbench's experiments: lmms-eval's and Inspect's.

A viewer shows hpcbench's data: the sent prompt, the raw answer, hpcbench's scores with their intervals. A log
is written sample by sample under a temporary name, and renamed when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.evaluated import Scores, metrics_of
from hpcbench.experiment.view.scores import frames_of, shape_of
from hpcbench.interchange import inspect_log, lmms_log
from hpcbench.interchange.log_records import Logged, RunTaskLog
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.plan import ResolvedRunTask

Form = Literal["lmms-eval", "inspect", "inspect-json"]
"""The log's format: `inspect` is a `.eval` file, `inspect-json` the same as JSON."""

BATCH = 5_000
"""Rows of scores in memory at a time."""

Note = Callable[[str], None]


def write_logs(
    experiment: Experiment, form: Form, out: Path, run_tasks: Sequence[str], note: Note
) -> Iterator[tuple[Path, int]]:
    """Write the logs of an experiment into a folder.

    Args:
        experiment: the experiment.
        form: the format.
        out: the folder; created if missing.
        run_tasks: only these; empty: all.
        note: receives missing data, a line each.

    Yields:
        Each file, and its number of samples that were not yielded before.

    Raises:
        UserError: no such run task, or its dataset no longer exists.
        OSError: a file cannot be written.
    """
    experiment.check_run_tasks(run_tasks)
    try:
        tables: Mapping[str, Scores] = metrics_of(experiment).run_tasks
    except EnvironmentFault as fault:
        note(f"without scores: {fault}")
        tables = {}
    logs = [
        RunTaskLog(
            experiment=experiment,
            run_task=one,
            metrics=tables[one.name].metrics if one.name in tables else {},
            samples=_Samples(experiment, one, note),
        )
        for one in experiment.resolved.run_tasks
        if not run_tasks or one.name in run_tasks
    ]
    if form == "lmms-eval":
        yield from lmms_log.write(experiment, logs, out)
        return
    for log in logs:
        yield inspect_log.write(log, out, as_zip=form == "inspect")


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of a run task with all their data, in order; each iteration reads them again."""

    experiment: Experiment
    run_task: ResolvedRunTask
    note: Note

    def __iter__(self) -> Iterator[Logged]:
        experiment, run_task = self.experiment, self.run_task
        iterator = open_dataset(run_task.dataset, experiment.cache_dir)
        chosen, prompt = experiment.chosen(run_task.name), TaskPrompt(run_task)
        rows = _scores(experiment.scores_file(run_task.name), self.note)
        number = 0
        for shard, answers in answers_of(experiment, run_task.name):
            for sample in samples(iterator, chosen, shard.start, shard.stop, images=True):
                row = next(rows, {})
                if row.get("sample") not in (None, sample.id):
                    row, rows = {}, iter(())  # scores of other answers
                    self.note(
                        f"{run_task.name}: its scores belong to other samples and are left out"
                    )
                messages = prompt.build(sample)
                yield Logged(number, sample, messages, answers.get(sample.id), row)
                number += 1


def _scores(path: Path, note: Note) -> Iterator[dict[str, Any]]:
    """Rows of a scores file, in the dataset's order."""
    shape = shape_of(path)
    if shape is None:
        note(f"{path.stem}: scores are missing or damaged: `hpcbench score` writes them")
        return
    for frame in frames_of(path, shape, BATCH):
        yield from frame.iter_rows(named=True)
