"""Logs of other kits, so that their viewers open our experiments: lmms-eval's and Inspect's.

What a viewer shows is ours: the prompt that was sent, the answer as it came, our scores with their intervals.
A log is written sample by sample under a temporary name, and appears when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import EnvironmentFault, Problem, UserError, unknown
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.results import metrics_of
from hpcbench.interchange import inspect_log, lmms_log
from hpcbench.interchange.log_records import Logged, RunTaskLog
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.plan import ResolvedRunTask

Form = Literal["lmms-eval", "inspect", "inspect-json"]
"""Whose log: `inspect` is a `.eval` file, `inspect-json` the same as JSON."""

BATCH = 5_000
"""Rows of scores in memory at a time."""

Note = Callable[[str], None]


def write_logs(
    experiment: Experiment, form: Form, out: Path, run_tasks: Sequence[str], note: Note
) -> Iterator[tuple[Path, int]]:
    """Write the logs of an experiment into a folder.

    Args:
        experiment: the experiment.
        form: whose.
        out: the folder; made if need be.
        run_tasks: only these; none: all.
        note: is told what is lacking.

    Yields:
        Each file, and how many samples are in it that were not told before.

    Raises:
        UserError: no such run task, or its dataset is not there any more.
        OSError: a file cannot be written.
    """
    known = [one.name for one in experiment.resolved.run_tasks]
    for name in run_tasks:
        if name not in known:
            raise UserError(Problem(unknown("run task", name, known)))
    try:
        metrics = metrics_of(experiment)["run_tasks"]
    except EnvironmentFault as fault:
        note(f"without scores: {fault}")
        metrics = {}
    logs = [
        RunTaskLog(
            experiment=experiment,
            run_task=one,
            metrics=metrics.get(one.name, {}).get("metrics", {}),
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
    """Samples of a run task with all there is of them, in order, each time anew."""

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
                    row, rows = {}, iter(())  # of other answers than these
                    self.note(f"{run_task.name}: scores are not of these samples, and left out")
                messages = prompt.build(sample)
                yield Logged(number, sample, messages, answers.get(sample.id), row)
                number += 1


def _scores(path: Path, note: Note) -> Iterator[dict[str, Any]]:
    """Rows of a scores file, in the dataset's order."""
    import polars

    try:
        scan = polars.scan_parquet(path, glob=False)
        count = scan.select(polars.len()).collect().item()
    except (OSError, polars.exceptions.PolarsError):
        note(f"{path.stem}: no scores, or damaged ones: `hpcbench score` makes them")
        return
    for start in range(0, count, BATCH):
        yield from scan.slice(start, BATCH).collect().iter_rows(named=True)
