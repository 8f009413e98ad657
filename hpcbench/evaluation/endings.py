"""How the run tasks of an experiment ended, from its scores; without scores, from its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hpcbench.experiment.claims import answers_of, shard_states
from hpcbench.experiment.control import ControlState, control_state
from hpcbench.experiment.ending import Ending, ending_of, quoted
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answer import MISSING
from hpcbench.experiment.view.metrics_json import Scores, metrics_of
from hpcbench.experiment.view.workers import WorkerEvent, worker_runs
from hpcbench.schema.records import ANSWERED


def endings(experiment: Experiment) -> dict[str, Ending]:
    """Run task → how it ended, in the plan's order. For a run task without scores, every answer is read.

    Raises:
        EnvironmentFault: `metrics.json` is damaged.
    """
    now = control_state(experiment)
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    # Run tasks with enough answers: no worker processes the rest.
    left = Counter(
        one.shard.run_task
        for one in shard_states(
            experiment, [name for name in names if name not in now.enough_tasks]
        )
        if one.state != "done"
    )
    tables: Mapping[str, Scores] = {}
    if experiment.metrics_file.exists():
        tables = metrics_of(experiment).run_tasks
    found = {}
    for name in names:
        table = tables.get(name) or _counted(experiment, name)
        least = experiment.resolved.min_coverage(name)
        ending = ending_of(table, least, left[name])
        if ending.state != "done" and table.outcomes.get(MISSING):
            ending = _with_load(ending, experiment, name)
        if name in now.failed_tasks and ending.state == "done" and _is_silent(experiment, name):
            ending = replace(ending, state="failed")  # all was asked before its pilot ended
        found[name] = _with_wish(ending, now, name)
    return found


def _is_silent(experiment: Experiment, run_task: str) -> bool:
    """Whether no answer has any text."""
    return not any(
        (one.text or "").strip()
        for _, answers in answers_of(experiment, run_task)
        for one in answers.values()
    )


def _with_load(found: Ending, experiment: Experiment, run_task: str) -> Ending:
    """The ending with the reason why the model could not be loaded, if samples were not asked for it."""
    model = experiment.run_task(run_task).model.name
    last = ""
    for run in worker_runs(experiment):
        for event in map(WorkerEvent.of, run.events):
            if event.model != model:
                continue
            if event.kind == "model_ready":
                return found  # some worker loaded it: another cause keeps the run task from its end
            if event.kind == "model_failed":
                last = event.message
    return (
        replace(found, reason=f"{found.reason}; {model} was not loaded: {quoted(last)}")
        if last
        else found
    )


def _counted(experiment: Experiment, run_task: str) -> Scores:
    """Counts of the requests' outcomes of a run task that is not evaluated, as in a table."""
    asked, outcomes, errors = 0, Counter[str](), Counter[tuple[str, str]]()
    for shard, answers in answers_of(experiment, run_task):
        size = shard.stop - shard.start
        asked += size
        outcomes[MISSING] += max(0, size - len(answers))
        outcomes.update(one.outcome for one in answers.values())
        errors.update(
            (one.outcome, one.error or "no reason given")
            for one in answers.values()
            if one.outcome not in ANSWERED
        )
    table = {
        "asked": asked,
        "answered": sum(outcomes[outcome] for outcome in ANSWERED),
        "skipped": experiment.skipped(run_task),
        "outcomes": {outcome: count for outcome, count in outcomes.items() if count},
        "errors": [{"message": why, "count": count} for (_, why), count in errors.most_common(1)],
    }
    return Scores.model_validate(table)


def _with_wish(found: Ending, now: ControlState, run_task: str) -> Ending:
    """The ending with the reason of an early end, if there was one. A failed pilot's reason suffices."""
    if run_task in now.failed_tasks and found.state != "done":
        return replace(found, reason=now.failed_tasks[run_task])
    why = now.stopped_tasks.get(run_task)
    if run_task in now.cancelled_tasks:
        why = "it was cancelled"
    if why is None or found.state == "done":
        return found
    return replace(found, reason=f"{found.reason}; {why}")
