"""Logs in other kits' formats, so that their viewers open hpcbench's experiments: lmms-eval's, Inspect's, and
trajectories in ATIF.

A viewer shows hpcbench's data: the sent prompt, the raw answer, hpcbench's scores with their intervals. A log
is written sample by sample under a temporary name, and renamed when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hpcbench.agents.conversation import with_system
from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Scores, metrics_of
from hpcbench.experiment.view.scores import frames_of, shape_of
from hpcbench.experiment.view.turns import shard_turns
from hpcbench.interchange import atif_log, inspect_log, lmms_log
from hpcbench.interchange.log_records import Logged, RunTaskLog
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.agent import Agent
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message

Form = Literal["lmms-eval", "inspect", "inspect-json", "atif"]
"""The log's format: `inspect` is a `.eval` file, `inspect-json` the same as JSON; `atif`: see `atif_log`."""

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
        if form == "atif":
            yield atif_log.write(log, out)
            continue
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
        agent = run_task.agent
        for shard, answers in answers_of(experiment, run_task.name):
            turns = shard_turns(experiment, run_task.name, shard.index) if agent else None
            for sample in samples(iterator, chosen, shard.start, shard.stop, images=True):
                row = next(rows, {})
                if row.get("sample") not in (None, sample.id):
                    row, rows = {}, iter(())  # scores of other answers
                    self.note(
                        f"{run_task.name}: its scores belong to other samples and are left out"
                    )
                messages: Sequence[Message] = prompt.build(sample)
                if agent is not None:
                    messages = _as_agents_see(messages, agent)
                lines = turns.of(sample.id) if turns is not None else ()
                yield Logged(number, sample, messages, answers.get(sample.id), row, lines)
                number += 1


def _as_agents_see(messages: Sequence[Message], agent: Agent) -> Sequence[Message]:
    """The first messages of an agent: the first role's own prompt, and no more images than it is shown."""
    first = next(iter(agent.agents.values()), None)
    *others, last = with_system(messages, first.prompt if first is not None else "")
    return (*others, replace(last, images=last.images[: agent.show]))


def _scores(path: Path, note: Note) -> Iterator[dict[str, Any]]:
    """Rows of a scores file, in the dataset's order."""
    shape = shape_of(path)
    if shape is None:
        note(f"{path.stem}: scores are missing or damaged: `hpcbench score` writes them")
        return
    for frame in frames_of(path, shape, BATCH):
        yield from frame.iter_rows(named=True)
