"""`hpcbench score`: tables over scores, and scores anew without asking a model again."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.cli.output import console, print_json, say
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.counts import DEFINITIONS
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.experiment.outcome import not_whole
from hpcbench.experiment.results import performance_of
from hpcbench.files.user import open_file
from hpcbench.registry.catalog import Catalog, user_site
from hpcbench.schema.documents import Metric
from hpcbench.schema.plan import ResolvedRunTask

if TYPE_CHECKING:
    from rich.table import Table

    from hpcbench.evaluation import Change, Row, Scored, Subject

MOST_NAMED = 5
"""Run tasks that a line names; the others are counted."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


TABLES = (".csv", ".jsonl", ".json", ".tsv")
"""Endings that no experiment's name has."""


def score(arguments: argparse.Namespace) -> int:
    """`hpcbench score EXPERIMENT|FILE`."""
    _check(arguments)
    target = Path(arguments.target)
    if target.suffix.lower() in TABLES or target.is_file():
        open_file(target).close()  # says what it is where it is no file
        return _score_file(arguments)
    experiment = find(home(user_site()), arguments.target)
    experiment.use_packages()
    with _folder(experiment, arguments) as folder, _writing(experiment):
        return _score_experiment(experiment, folder, arguments)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.save is not None and not _NAME.fullmatch(arguments.save):
        raise UserError(f"--save {arguments.save}: a name of letters, digits, `.`, `_` and `-`")
    if arguments.pivot and arguments.pivot not in arguments.by:
        arguments.by = [*arguments.by, arguments.pivot]
    if arguments.macro and not arguments.by:
        raise UserError("--macro is the mean over groups", remedy="say which: --by doc_type")
    if arguments.macro and arguments.pivot:
        raise UserError("--macro has one row for all groups, which --pivot would part")
    if arguments.pivot and len(arguments.by) > 2:
        raise UserError(
            "--pivot has one column of --by down and one across", remedy="--by A,B --pivot B"
        )


# --- an experiment ------------------------------------------------------------------------------------


def _score_experiment(
    experiment: Experiment, folder: Path | None, arguments: argparse.Namespace
) -> int:
    from hpcbench import evaluation

    scores = folder / "scores" if folder is not None else None
    scored: list[Scored] = []
    changes: dict[str, Change] = {}
    chosen = {
        one.name: (one, _documents(one, arguments))
        for one in _run_tasks(experiment, arguments.run_task)
    }
    left_out = [*_left_out(chosen.values())] if arguments.metrics else []
    for subject in _subjects(experiment, chosen, arguments):
        name = subject.run_task.name
        if arguments.dry_run:
            changes[name] = evaluation.what_is_due(experiment, subject, scores)
            continue
        one, changes[name] = evaluation.score(experiment, subject, scores, anew=arguments.anew)
        scored.append(one)
    if arguments.dry_run:
        return _print_changes(experiment, changes, left_out, arguments)
    if folder is None and not arguments.run_task:
        from hpcbench.finalise import scored_again

        evaluation.write_metrics(experiment, scored, experiment.metrics_file)
        scored_again(experiment)
        _mend_performance(experiment)
        if (short := not_whole(experiment)) is not None:
            say(short)
    elif arguments.save:
        assert folder is not None
        evaluation.write_metrics(experiment, scored, folder / "metrics.json")
    told = {"experiment": experiment.id, "folder": str(folder) if arguments.save else None}
    changed = {"run_tasks": {name: asdict(change) for name, change in changes.items()}}
    code = _print_rows(scored, {**told, **changed, "left_out": left_out}, arguments)
    _say_left_out(left_out, arguments)
    return code


def _left_out(
    chosen: Iterable[tuple[ResolvedRunTask, Sequence[_Chosen]]],
) -> Iterator[dict[str, str]]:
    """What `--metrics` does not score: metrics that do not fit a run task, and the plan's other ones."""
    for run_task, metrics in chosen:
        for one in metrics:
            if not one.fits:
                why = f"it scores {one.accepts}; the answers are {run_task.ml_task.output}"
                yield {"run_task": run_task.name, "metric": one.metric.name, "why": why}
        named = {one.metric.name for one in metrics}
        for metric in run_task.metrics:
            if metric.name not in named:
                why = "of the plan, not among --metrics"
                yield {"run_task": run_task.name, "metric": metric.name, "why": why}


def _say_left_out(left_out: Sequence[dict[str, str]], arguments: argparse.Namespace) -> None:
    """A line for each metric and reason, with the run tasks it is about."""
    if arguments.json:
        return
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        by_reason.setdefault((one["metric"], one["why"]), []).append(one["run_task"])
    for (metric, why), names in by_reason.items():
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        say(f"left out: {metric} of {', '.join(names[:MOST_NAMED])}{more}: {why}")


def _subjects(
    experiment: Experiment,
    chosen: Mapping[str, tuple[ResolvedRunTask, Sequence[_Chosen]]],
    arguments: argparse.Namespace,
) -> Iterator[Subject]:
    """The run tasks that are asked for, each with the metrics that fit it."""
    from hpcbench import evaluation

    for name in arguments.metrics:
        found = [
            one for _, metrics in chosen.values() for one in metrics if one.metric.name == name
        ]
        if not any(one.fits for one in found):
            outputs = ", ".join(sorted({one.ml_task.output for one, _ in chosen.values()}))
            raise UserError(f"metric '{name}' is not for answers that are {outputs}")
    for one, metrics in chosen.values():
        documents = [metric.metric for metric in metrics if metric.fits]
        if not documents:
            continue
        task = one.task
        if arguments.on_invalid:
            task = task.model_copy(update={"on_invalid": arguments.on_invalid})
        run_task = one.model_copy(update={"task": task})
        subject = evaluation.subject_of(
            experiment, run_task, documents, _columns(run_task, arguments)
        )
        _check_columns(subject)
        yield subject


def _run_tasks(experiment: Experiment, wanted: Sequence[str]) -> Iterator[ResolvedRunTask]:
    named = {experiment.run_task(name).name for name in wanted}
    for one in experiment.resolved.run_tasks:
        if not wanted or one.name in named:
            yield one


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A metric that a run task is to be scored by."""

    metric: Metric
    """Its document, with the options of the command line."""
    accepts: str = ""
    """Kinds of answers it scores; empty: any."""
    fits: bool = True
    """Whether the run task's answers are of those."""


def _documents(run_task: ResolvedRunTask, arguments: argparse.Namespace) -> list[_Chosen]:
    """Metrics of a run task: the plan's, or those named; with options laid over."""
    from hpcbench import plugins
    from hpcbench.tasks.alone import metric_of

    if not arguments.metrics:
        return [_Chosen(_with_options(one, arguments.options)) for one in run_task.metrics]
    own = {document.name: document for document in run_task.metrics}
    catalog = Catalog(arguments.registry)
    found = []
    for name in arguments.metrics:
        one = own.get(name) or metric_of(catalog, name)
        accepts = getattr(plugins.load("metrics", one.plugin), "accepts", ())
        fits = not accepts or "reading" in accepts or run_task.ml_task.output in accepts
        found.append(_Chosen(_with_options(one, arguments.options), ", ".join(accepts), fits))
    return found


def _with_options(document: Metric, options: dict[str, dict[str, Any]]) -> Metric:
    if document.name not in options:
        return document
    return document.model_copy(update={"options": {**document.options, **options[document.name]}})


def _columns(run_task: ResolvedRunTask, arguments: argparse.Namespace) -> list[str]:
    """Metadata that tables want and scores would not hold by themselves."""
    from hpcbench.evaluation.aggregate import FIELD, OF_RUN_TASKS, OF_SAMPLES

    known = {*OF_RUN_TASKS, *OF_SAMPLES, FIELD, *run_task.dataset.group_by}
    wanted = [*arguments.by, *([arguments.weight] if arguments.weight else [])]
    return [name for name in dict.fromkeys(wanted) if name not in known]


def _check_columns(subject: Subject) -> None:
    """Refuse a column that none of the first samples has."""
    from hpcbench.errors import unknown

    if not subject.more_columns:
        return
    known: dict[str, None] = {}
    for sample, _ in itertools.islice(subject.answered, 1000):
        known |= dict.fromkeys((*sample.metadata, *sample.fields))
    for name in subject.more_columns:
        if name not in known:
            message = unknown("metadata or field of its samples", name, [*known])
            raise UserError(Problem(f"run task '{subject.run_task.name}': {message}"))


def _mend_performance(experiment: Experiment) -> None:
    """Write `performance.json` where it is missing or cannot be read."""
    from hpcbench import evaluation

    try:
        performance_of(experiment)
    except EnvironmentFault:
        evaluation.write_performance(experiment)


@contextlib.contextmanager
def _folder(experiment: Experiment, arguments: argparse.Namespace) -> Iterator[Path | None]:
    """Where scores go: None is the experiment's own place, for its plan's metrics alone."""
    if arguments.save is not None:
        yield experiment.rescored_dir(arguments.save)
    elif arguments.metrics or arguments.options or arguments.on_invalid:
        with tempfile.TemporaryDirectory(prefix="hpcbench-score-") as folder:
            yield Path(folder)
    else:
        yield None


@contextlib.contextmanager
def _writing(experiment: Experiment) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise EnvironmentFault(
            f"{experiment.id} is not yours to write: {error.filename}",
            remedy="name metrics with --metrics: what they say is printed and not kept",
        ) from error


# --- a file of answers --------------------------------------------------------------------------------


def _score_file(arguments: argparse.Namespace) -> int:
    from hpcbench.tasks.alone import dataset_of, run_task_of, score_file

    if not arguments.dataset or not arguments.ml_task:
        remedy = "--dataset DATASET --ml-task vqa"
        raise UserError(Problem("a file of answers needs both", arguments.target, remedy=remedy))
    if arguments.save or arguments.dry_run:
        raise UserError("--save and --dry-run are for experiments")
    catalog = Catalog(arguments.registry)
    dataset = dataset_of(catalog, arguments.dataset, arguments.annotations, arguments.split)
    run_task = run_task_of(catalog, arguments.ml_task, dataset, arguments.metrics)
    documents = tuple(_with_options(one, arguments.options) for one in run_task.metrics)
    task = run_task.task.model_copy(update={"on_invalid": arguments.on_invalid or "exclude"})
    run_task = run_task.model_copy(update={"metrics": documents, "task": task})
    with tempfile.TemporaryDirectory(prefix="hpcbench-score-") as folder:
        columns = _columns(run_task, arguments)
        scored = score_file(run_task, Path(arguments.target), Path(folder), columns)
        return _print_rows([scored], {"file": arguments.target}, arguments)


# --- what is printed ----------------------------------------------------------------------------------


def _print_rows(
    scored: Sequence[Scored], told: dict[str, Any], arguments: argparse.Namespace
) -> int:
    from hpcbench import evaluation

    rows = evaluation.table(scored, arguments.by, weight=arguments.weight, macro=arguments.macro)
    if arguments.json:
        print_json({**told, "rows": [row.to_json() for row in rows]})
        return 0
    if not rows:
        print("no sample was asked yet")
        return 0
    if arguments.pivot:
        console().print(_pivoted(rows, arguments))
    else:
        console().print(_listed(rows))
    for line in dict.fromkeys(_notes(rows)):
        print(line)
    _say_faults(scored)
    if told.get("folder"):
        say(f"kept in {told['folder']}")
    return 0


def _listed(rows: Sequence[Row]) -> Table:
    from rich.table import Table

    from hpcbench.evaluation import number_format as form
    from hpcbench.evaluation.aggregate import label

    table = Table(box=None, pad_edge=False, header_style="dim")
    keys = list(rows[0].by)
    for title in (*keys, "metric"):
        table.add_column(title)
    invalid, faults = any(row.invalid for row in rows), any(row.faults for row in rows)
    more = [
        *(["unreadable", "excluded / zero"] if invalid else []),
        *(["faults"] if faults else []),
    ]
    for title in ("value", "95 % interval", "n", "documents", "coverage", *more):
        table.add_column(title, justify="right")
    for row in rows:
        cells = [label(row.by[key]) for key in keys]
        cells.append(f"{row.metric} {form.arrow(higher_is_better=row.higher_is_better)}")
        cells += [form.value(row.value), form.interval(row.low, row.high)]
        cells += [form.count(row.n), form.count(row.documents), form.share(row.coverage)]
        if invalid:
            both = row.value_if or {}
            pair = " / ".join(form.value(both.get(policy)) for policy in ("exclude", "zero"))
            cells += [f"{row.invalid:,}", pair if both else "–"]
        cells += [f"{row.faults:,}"] if faults else []
        table.add_row(*cells)
    return table


def _pivoted(rows: Sequence[Row], arguments: argparse.Namespace) -> Table:
    from rich.table import Table

    from hpcbench import evaluation
    from hpcbench.evaluation import number_format as form

    (index,) = [key for key in rows[0].by if key != arguments.pivot][-1:] or ["metric"]
    heads, lines = evaluation.pivot(rows, index, arguments.pivot)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("metric", index) if index != "metric" else ("metric",):
        table.add_column(title)
    for head in heads:
        table.add_column(head, justify="right")
    for metric, line, cells in lines:
        values = [
            form.value_with_interval(cells[head].value, cells[head].low, cells[head].high)
            if head in cells
            else form.DASH
            for head in heads
        ]
        table.add_row(*((metric, line) if index != "metric" else (metric,)), *values)
    return table


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row.average == "macro":
            yield f"macro average: the mean of the values of the groups by {row.by['macro']}"
        if row.weight:
            yield f"samples weigh what their {row.weight} says"
    nothing = {row.by.get("run_task"): row for row in rows if not row.ok}
    for name, row in nothing.items():
        parts = ((row.asked - row.answered, "failed"), (row.answered - row.ok, "unreadable"))
        why = ", ".join(f"{count:,} of {row.asked:,} {what}" for count, what in parts if count)
        yield f"– {name or 'these samples'}: nothing was scored{f': {why}' if why else ''}"
    if any(row.invalid for row in rows):
        yield f"unreadable: {DEFINITIONS['unreadable']}"


def _say_faults(scored: Sequence[Scored]) -> None:
    from hpcbench import evaluation

    for one in scored:
        for fault in evaluation.faults_of(one):
            what = f"{fault['count']} samples not scored by {fault['metric']}"
            say(f"{one.run_task.name}: {what}: {fault['message']}, e.g. {fault['sample']}")


def _print_changes(
    experiment: Experiment,
    changes: dict[str, Change],
    left_out: Sequence[dict[str, str]],
    arguments: argparse.Namespace,
) -> int:
    if arguments.json:
        told = {name: asdict(change) for name, change in changes.items()}
        print_json({"experiment": experiment.id, "run_tasks": told, "left_out": left_out})
        return 0
    for name, change in changes.items():
        scored = ", ".join(change.scored) or "nothing"
        kept = f"; as it is: {', '.join(change.kept)}" if change.kept else ""
        print(f"{name}: to score: {scored}{kept}")
    _say_left_out(left_out, arguments)
    return 0
