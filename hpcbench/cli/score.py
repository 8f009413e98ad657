"""`hpcbench score`: tables of scores, and new scores without asking a model again."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.cli.output import console, print_json, say, table
from hpcbench.errors import EnvironmentFault, UserError, unknown
from hpcbench.experiment.counts import DEFINITIONS
from hpcbench.experiment.layout import RESCORED, Experiment, Rescored, find, home
from hpcbench.experiment.outcome import not_whole
from hpcbench.experiment.view.performance_json import performance_of
from hpcbench.files.user import open_file
from hpcbench.registry.catalog import Catalog, user_site
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask

if TYPE_CHECKING:
    from rich.table import Table

    from hpcbench.evaluation.image_scoring import ImageScorer
    from hpcbench.evaluation.score_tables import Row, Scored
    from hpcbench.evaluation.scores import Change, Subject
    from hpcbench.plugins import Environment

MOST_NAMED = 5
"""Number of run tasks or metrics that a line names; it counts the others."""

NOT_NAMED = "--metrics does not name"
"""Beginning of why a metric of the plan is not scored."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


AS_PLANNED = "as the plan defines it"
"""Source of a metric's definition that the experiment's plan has."""

TABLES = (".csv", ".jsonl", ".json", ".tsv")
"""Suffixes of files of answers; no experiment's name has them."""


def score(arguments: argparse.Namespace) -> int:
    """`hpcbench score EXPERIMENT|FILE`."""
    _check(arguments)
    target = Path(arguments.target)
    if target.suffix.lower() in TABLES or target.is_file():
        open_file(target).close()  # reports why it is not a readable file
        _use_packages(arguments)
        return _score_file(arguments)
    experiment = find(home(user_site()), arguments.target)
    own = {metric.name for one in experiment.resolved.run_tasks for metric in one.metrics}
    packages = _use_packages(arguments, own)  # before those of the plan: a corrected plugin counts
    experiment.use_packages()
    with _folder(experiment, arguments) as folder, _writing(experiment):
        return _score_experiment(experiment, folder, arguments, packages)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.save is not None and not _NAME.fullmatch(arguments.save):
        what = f"--save {arguments.save} is not a valid name"
        raise UserError(
            what, remedy="use letters, digits, `.`, `_` and `-`, a letter or digit first"
        )
    if arguments.pivot and arguments.pivot not in arguments.by:
        arguments.by = [*arguments.by, arguments.pivot]
    if arguments.macro and not arguments.by:
        raise UserError(
            "--macro needs groups", remedy="name their column, for example --by doc_type"
        )
    if arguments.macro and arguments.pivot:
        what = "--macro and --pivot exclude each other: --macro has one row for all groups"
        raise UserError(what, remedy="leave one out")
    if arguments.pivot and len(arguments.by) > 2:
        raise UserError(
            "--pivot works with two columns of --by: one down, one across",
            remedy="--by A,B --pivot B",
        )


def _use_packages(arguments: argparse.Namespace, own: Collection[str] = ()) -> Path | None:
    """Build the packages of named metrics, and of a file's ML task and dataset, as `submit` does.

    Args:
        arguments: with the names.
        own: metrics that an experiment has; they need a package only if a `--registry` defines them.

    Returns:
        The folder of the packages; None: the metrics need none.
    """
    from hpcbench.submit.plan_packages import use

    catalog, given = Catalog(arguments.registry), arguments.registry
    names = [one for one in arguments.metrics if one not in own or _given(catalog, one, given)]
    of_file = [("ml_tasks", arguments.ml_task), ("datasets", arguments.dataset)]
    definitions = [(kind, name) for kind, name in of_file if name and catalog.files(kind, name)]
    if not names and definitions[:1] == of_file[:1]:
        ml_task = catalog.get(MLTask, arguments.ml_task)
        names = [*(ml_task.default_metrics or ml_task.metrics)]
    defined = [name for name in names if catalog.files("metrics", name)]
    # The package of a metric that scores in an image goes there.
    definitions += [("metrics", one) for one in defined if catalog.get(Metric, one).image is None]
    plain = [("metrics", name) for name in names if not catalog.files("metrics", name)]
    return use(catalog, say, definitions, plain)


def _given(catalog: Catalog, metric: str, registries: Sequence[Path]) -> bool:
    """Whether a `--registry` defines a metric; it may be the project's, which counts without it, too."""
    files = catalog.files("metrics", metric)
    return bool(files) and any(one.resolve() in files[0].resolve().parents for one in registries)


# --- an experiment ------------------------------------------------------------------------------------


def _score_experiment(
    experiment: Experiment,
    folder: Path | None,
    arguments: argparse.Namespace,
    packages: Path | None,
) -> int:
    from hpcbench.evaluation import stage
    from hpcbench.evaluation.plan_metrics import check_here

    scores = folder / "scores" if folder is not None else None
    scored: list[Scored] = []
    changes: dict[str, Change] = {}
    chosen: dict[str, tuple[ResolvedRunTask, Sequence[_Chosen]]] = {
        one.name: (one, _definitions(one, experiment.resolved.plan, arguments))
        for one in _run_tasks(experiment, arguments.run_task)
    }
    left_out = [*_left_out(chosen.values())] if arguments.metrics else []
    chosen, prepared = _with_images(experiment, chosen, arguments)
    for subject in _subjects(experiment, chosen, arguments, prepared):
        name = subject.run_task.name
        if arguments.dry_run:
            changes[name] = stage.what_is_due(experiment, subject, scores)
            continue
        due = stage.what_is_due(experiment, subject, scores).scored
        for image in subject.images:
            if arguments.anew or set(image.metrics) & set(due):
                image.check()  # before a score is written
        now = {x: one for x, one in subject.metrics.items() if arguments.anew or x in due}
        check_here(subject.run_task, now)
        one, changes[name] = stage.score(experiment, subject, scores, again=arguments.anew)
        scored.append(one)
    if arguments.dry_run:
        return _print_changes(experiment, changes, left_out, arguments)
    scored = _with_figures(experiment, scored)
    if folder is None and not arguments.run_task:
        from hpcbench.finalise import scored_again

        stage.write_metrics(experiment, scored, experiment.metrics_file)
        scored_again(experiment)
        _mend_performance(experiment)
        if (short := not_whole(experiment)) is not None:
            say(short)
    elif arguments.save:
        _save(Rescored(experiment.path, arguments.save), scored, packages)
    sources = _sources(chosen.values())
    header = {
        "experiment": experiment.id,
        "folder": str(folder) if arguments.save else None,
        "definitions": sources,
        "run_tasks": {name: asdict(change) for name, change in changes.items()},
        "left_out": left_out,
    }
    _say_sources(sources, arguments)
    code = _print_rows(scored, header, arguments)
    if arguments.save and not arguments.json:
        stored = Rescored(experiment.path, arguments.save).id
        say(f"compare by them: hpcbench compare {stored} OTHER{RESCORED}{arguments.save}")
    _say_left_out(left_out, arguments)
    return _say_failed(changes.items()) or code


def _say_failed(changes: Iterable[tuple[str, Change]]) -> int:
    """Print a line for each metric that could not score in its image; returns the exit code."""
    lines = [f"{name}: {why}" for name, change in changes for why in change.failed]
    for line in lines:
        say(line)
    return EnvironmentFault.exit_code if lines else 0


def _with_images(
    experiment: Experiment,
    chosen: Mapping[str, tuple[ResolvedRunTask, Sequence[_Chosen]]],
    arguments: argparse.Namespace,
) -> tuple[dict[str, tuple[ResolvedRunTask, Sequence[_Chosen]]], Mapping[str, Environment]]:
    """The run tasks with what images say of the chosen metrics, and images that the experiment lacks."""
    stored = experiment.manifest.environments
    run_tasks = [
        _with_metrics(one, [metric.metric for metric in metrics if metric.fits])
        for one, metrics in chosen.values()
    ]
    if not any(_is_unknown(one, experiment.run_task(one.name), stored) for one in run_tasks):
        return dict(chosen), {}
    from hpcbench.registry.resolve import load_for_scores
    from hpcbench.submit.scoring_images import ready

    own = {metric.name for one in experiment.resolved.run_tasks for metric in one.metrics}
    new = dict.fromkeys(
        metric.name for one in run_tasks for metric in one.metrics if metric.name not in own
    )
    catalog = Catalog(arguments.registry)
    defined = [name for name in new if catalog.files("metrics", name)]
    found = load_for_scores(defined, registries=arguments.registry)
    resolved = experiment.resolved
    images = {one.name: one.image for one in found.metrics}
    placed = tuple(
        one.model_copy(
            update={
                "metrics": tuple(
                    metric.model_copy(update={"image": images.get(metric.name) or metric.image})
                    for metric in one.metrics
                ),
                "metric_packages": {**one.metric_packages, **found.metric_packages},
            }
        )
        for one in run_tasks
    )
    resolved = resolved.model_copy(
        update={
            "run_tasks": placed,
            "packages": {**resolved.packages, **found.packages},
            "origins": {**resolved.origins, **found.origins},
            "images": {**resolved.images, **found.images},
        }
    )
    resolved, prepared = ready(resolved, stored, experiment.cache_dir, say)
    facts = {one.name: one for one in resolved.run_tasks}
    return {
        name: (
            one.model_copy(
                update={
                    "metric_facts": facts[name].metric_facts,
                    "metric_packages": facts[name].metric_packages,
                }
            ),
            [_placed(metric, facts[name]) for metric in metrics],
        )
        for name, (one, metrics) in chosen.items()
    }, prepared


def _placed(chosen: _Chosen, run_task: ResolvedRunTask) -> _Chosen:
    """A chosen metric with the reference of its image."""
    images = {one.name: one.image for one in run_task.metrics}
    metric = chosen.metric
    if metric.name not in images:
        return chosen
    return replace(chosen, metric=metric.model_copy(update={"image": images[metric.name]}))


def _with_metrics(run_task: ResolvedRunTask, metrics: Sequence[Metric]) -> ResolvedRunTask:
    return run_task.model_copy(update={"metrics": tuple(metrics)})


def _is_unknown(
    run_task: ResolvedRunTask, planned: ResolvedRunTask, stored: Mapping[str, Any]
) -> bool:
    """Whether a metric in an image is another than the plan's, or its image is not prepared."""
    away = [one for one in run_task.metrics if one.image is not None]
    lacking = any(one.environment not in stored for one in run_task.scoring_images)
    return lacking or any(
        one not in planned.metrics or one.name not in planned.metric_facts for one in away
    )


def _save(stored: Rescored, scored: Sequence[Scored], packages: Path | None) -> None:
    """Write `metrics.json`, and last how it was scored: readers need the definitions and their packages."""
    from hpcbench.evaluation import stage
    from hpcbench.files.atomic import write_json
    from hpcbench.schema.plan import RescoredTask, Rescoring

    stage.write_metrics(stored, scored, stored.metrics_file)
    run_tasks = {
        one.run_task.name: RescoredTask(
            metrics=one.run_task.metrics,
            facts=one.run_task.metric_facts,
            on_invalid=one.run_task.task.on_invalid,
        )
        for one in scored
    }
    folders = () if packages is None else (str(packages),)
    record = Rescoring(packages=folders, run_tasks=run_tasks)
    write_json(stored.record_file, record.model_dump(mode="json"))


def _sources(chosen: Iterable[tuple[ResolvedRunTask, Sequence[_Chosen]]]) -> dict[str, str]:
    """Metric → where its definition comes from."""
    found: dict[str, dict[str, None]] = {}
    for _, metrics in chosen:
        for one in metrics:
            if one.fits:
                found.setdefault(one.metric.name, {})[one.source] = None
    return {name: "; ".join(sources) for name, sources in found.items()}


def _say_sources(sources: Mapping[str, str], arguments: argparse.Namespace) -> None:
    """Print where the definitions come from that `--metrics` chose and that are not simply the plan's."""
    if arguments.metrics and not arguments.json:
        for name, source in sources.items():
            if source != AS_PLANNED:
                say(f"{name}: {source}")


def _left_out(
    chosen: Iterable[tuple[ResolvedRunTask, Sequence[_Chosen]]],
) -> Iterator[dict[str, str]]:
    """Metrics that `--metrics` leaves out: those that do not fit a run task, and the plan's other metrics."""
    for run_task, metrics in chosen:
        for one in metrics:
            if not one.fits:
                why = f"the metric scores {one.accepts}; the answers are {run_task.ml_task.output}"
                yield {"run_task": run_task.name, "metric": one.metric.name, "why": why}
        named = {one.metric.name for one in metrics}
        for metric in run_task.metrics:
            if metric.name not in named:
                why = f"{NOT_NAMED} it"
                yield {"run_task": run_task.name, "metric": metric.name, "why": why}


def _say_left_out(left_out: Sequence[dict[str, str]], arguments: argparse.Namespace) -> None:
    """Print a line for each metric that does not fit, with its run tasks; one for the plan's others."""
    from hpcbench.number_format import few

    if arguments.json:
        return
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        by_reason.setdefault((one["metric"], one["why"]), []).append(one["run_task"])
    others = [metric for metric, why in by_reason if why.startswith(NOT_NAMED)]
    for (metric, why), names in by_reason.items():
        if not why.startswith(NOT_NAMED):
            say(f"left out: {metric} of {few(names, MOST_NAMED)}: {why}")
    if others:
        it = "it" if len(others) == 1 else "them"
        say(f"left out: {few(others, MOST_NAMED)}: {NOT_NAMED} {it}")


def _subjects(
    experiment: Experiment,
    chosen: Mapping[str, tuple[ResolvedRunTask, Sequence[_Chosen]]],
    arguments: argparse.Namespace,
    prepared: Mapping[str, Environment],
) -> Iterator[Subject]:
    """The requested run tasks, each with the metrics that fit it."""
    from hpcbench.evaluation import stage

    for name in arguments.metrics:
        found = [
            one for _, metrics in chosen.values() for one in metrics if one.metric.name == name
        ]
        if not any(one.fits for one in found):
            outputs = ", ".join(sorted({one.ml_task.output for one, _ in chosen.values()}))
            what = f"metric '{name}' does not score answers of the kind {outputs}"
            remedy = (
                "`hpcbench metrics list` shows the kinds that each scores; "
                "`hpcbench list` shows other experiments"
            )
            raise UserError(what, remedy=remedy)
    for one, metrics in chosen.values():
        definitions = [metric.metric for metric in metrics if metric.fits]
        if not definitions:
            continue
        task = one.task
        if arguments.on_invalid:
            task = task.model_copy(update={"on_invalid": arguments.on_invalid})
        run_task = one.model_copy(update={"task": task})
        subject = stage.subject_of(
            experiment,
            run_task,
            definitions,
            _columns(run_task, arguments),
            prepared=prepared,
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
    """A metric for the scores of a run task."""

    metric: Metric
    """Its definition, with the options of the command line."""
    accepts: str = ""
    """Kinds of answers it scores; empty: any."""
    fits: bool = True
    """Whether the run task's answers are of these kinds."""
    source: str = AS_PLANNED
    """Where its definition comes from, in words."""


def _definitions(
    run_task: ResolvedRunTask, plan: ExperimentPlan, arguments: argparse.Namespace
) -> list[_Chosen]:
    """Metrics of a run task: the plan's or the named ones, with the options of the command line."""
    from hpcbench import plugins
    from hpcbench.registry.fitting_metrics import fits as does_fit
    from hpcbench.registry.fitting_metrics import is_resource
    from hpcbench.tasks.alone import metric_of

    if not arguments.metrics:
        return [_Chosen(_with_options(one, arguments.options)) for one in run_task.metrics]
    own = {definition.name: definition for definition in run_task.metrics}
    catalog = Catalog(arguments.registry)
    found = []
    for name in arguments.metrics:
        planned = None if _given(catalog, name, arguments.registry) else own.get(name)
        one = planned or metric_of(catalog, name)
        image = one.image or run_task.ml_task.image or plan.evaluation.image
        image = None if is_resource(one) else image
        one = one.model_copy(update={"image": image})
        accepts: tuple[str, ...] = ()  # of a metric that only its image has: it is not asked yet
        if image is None or plugins.ships("metrics", one.plugin):
            accepts = getattr(plugins.load("metrics", one.plugin), "accepts", ())
        fits = does_fit(accepts, run_task.ml_task)
        source = _source(catalog, name, planned, in_plan=name in own)
        metric = _with_options(one, arguments.options)
        found.append(_Chosen(metric, ", ".join(accepts), fits, source))
    return found


def _source(catalog: Catalog, name: str, planned: Metric | None, *, in_plan: bool) -> str:
    """Where a metric's definition comes from, and whether another one differs from it."""
    files = catalog.files("metrics", name)
    if planned is None:
        where = f"as {files[0]} defines it" if files else "the plugin with its defaults"
        return f"{where}, not the plan" if in_plan else where
    if files and _other(catalog, name, planned):
        folder = files[0].parents[name.count("/") + 1]
        return f"{AS_PLANNED}; {files[0]} has changed since, and --registry {folder} uses it"
    return AS_PLANNED


def _other(catalog: Catalog, name: str, planned: Metric) -> bool:
    """Whether the registries now define a metric otherwise than the plan; a wrong definition does not."""
    try:
        now = catalog.get(Metric, name)
    except UserError:
        return False
    return (now.plugin, now.options) != (planned.plugin, planned.options)


def _with_options(definition: Metric, options: dict[str, dict[str, Any]]) -> Metric:
    if definition.name not in options:
        return definition
    return definition.model_copy(
        update={"options": {**definition.options, **options[definition.name]}}
    )


def _columns(run_task: ResolvedRunTask, arguments: argparse.Namespace) -> list[str]:
    """Metadata that tables need beyond the columns of scores."""
    from hpcbench.evaluation.score_tables import FIELD, OF_RUN_TASKS, OF_SAMPLES

    known = {*OF_RUN_TASKS, *OF_SAMPLES, FIELD, *run_task.dataset.group_by}
    wanted = [*arguments.by, *([arguments.weight] if arguments.weight else [])]
    return [name for name in dict.fromkeys(wanted) if name not in known]


def _with_figures(experiment: Experiment, scored: list[Scored]) -> list[Scored]:
    """Scores with resource metrics of whole run tasks, which are made of their speed."""
    from hpcbench.evaluation import performance, resources

    wanted = {one.run_task.name for one in scored if one.of_run}
    if not wanted:
        return scored
    try:
        speeds = performance_of(experiment).run_tasks
    except EnvironmentFault:
        speeds = {}
    if not wanted <= {*speeds}:
        speeds = {**performance.performance(experiment).run_tasks, **speeds}
    return resources.with_figures(experiment, scored, speeds)


def _check_columns(subject: Subject) -> None:
    """Refuse a column that none of the first samples has."""

    if not subject.more_columns:
        return
    known: dict[str, None] = {}
    for sample, _ in itertools.islice(subject.answered, 1000):
        known |= dict.fromkeys((*sample.metadata, *sample.fields))
    for name in subject.more_columns:
        if name not in known:
            message = unknown("metadata or field of its samples", name, [*known])
            raise UserError(f"run task '{subject.run_task.name}': {message}")


def _mend_performance(experiment: Experiment) -> None:
    """Write `performance.json` if it is missing or unreadable."""
    from hpcbench.evaluation import performance

    try:
        performance_of(experiment)
    except EnvironmentFault:
        performance.write_performance(experiment)


@contextlib.contextmanager
def _folder(experiment: Experiment, arguments: argparse.Namespace) -> Iterator[Path | None]:
    """Folder of the scores; None: the experiment's own, only for its plan's metrics."""
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
            f"{experiment.id} belongs to another user: you may not write {error.filename}",
            remedy="name metrics with --metrics: hpcbench prints their scores, and stores nothing",
        ) from error


# --- a file of answers --------------------------------------------------------------------------------


def _score_file(arguments: argparse.Namespace) -> int:
    from hpcbench.tasks.alone import dataset_of, run_task_of, score_file

    if not arguments.dataset or not arguments.ml_task:
        remedy = "for example --dataset DATASET --ml-task vqa"
        what = "a file of answers needs --dataset and --ml-task"
        raise UserError(what, file=arguments.target, remedy=remedy)
    if arguments.save or arguments.dry_run:
        raise UserError("--save and --dry-run work with experiments only", remedy="leave them out")
    catalog = Catalog(arguments.registry)
    dataset = dataset_of(catalog, arguments.dataset, arguments.annotations, arguments.split)
    run_task = run_task_of(catalog, arguments.ml_task, dataset, arguments.metrics)
    definitions = tuple(_with_options(one, arguments.options) for one in run_task.metrics)
    task = run_task.task.model_copy(update={"on_invalid": arguments.on_invalid or "exclude"})
    run_task = run_task.model_copy(update={"metrics": definitions, "task": task})
    run_task, images = _images_of_file(run_task, arguments)
    with tempfile.TemporaryDirectory(prefix="hpcbench-score-") as folder:
        columns = _columns(run_task, arguments)
        scored, change = score_file(run_task, Path(arguments.target), Path(folder), columns, images)
        code = _print_rows([scored], {"file": arguments.target}, arguments)
        return _say_failed([(arguments.target, change)]) or code


def _images_of_file(
    run_task: ResolvedRunTask, arguments: argparse.Namespace
) -> tuple[ResolvedRunTask, tuple[ImageScorer, ...]]:
    """The run task with what images say of its metrics, and the prepared images in which they score."""
    if not run_task.scoring_images:
        return run_task, ()
    from hpcbench.evaluation.image_scoring import scorers_of
    from hpcbench.registry.resolve import load_for_scores
    from hpcbench.schema.site import Site
    from hpcbench.submit.scoring_images import ready

    catalog = Catalog(arguments.registry)
    names = [one.name for one in run_task.metrics if catalog.files("metrics", one.name)]
    found = load_for_scores(names, run_task.ml_task.name, arguments.registry)
    assert found.ml_task is not None
    own = {one.name: one.image for one in found.metrics}
    metrics = tuple(
        one.model_copy(update={"image": own.get(one.name) or found.ml_task.image})
        for one in run_task.metrics
    )
    placed = {"metrics": metrics, "metric_packages": found.metric_packages}
    site = user_site() or Site(name="default")
    resolved = ResolvedPlan(
        plan=ExperimentPlan(name="score"),
        site=site,
        run_tasks=(run_task.model_copy(update=placed),),
        mode=catalog.mode,
        packages=found.packages,
        origins=found.origins,
        images=found.images,
    )
    resolved, prepared = ready(resolved, {}, home(site) / "cache", say)
    (run_task,) = resolved.run_tasks
    return run_task, scorers_of(resolved, run_task, prepared)


# --- output -------------------------------------------------------------------------------------------


def _print_rows(
    scored: Sequence[Scored], header: dict[str, Any], arguments: argparse.Namespace
) -> int:
    from hpcbench.evaluation import score_tables

    rows = score_tables.table(scored, arguments.by, weight=arguments.weight, macro=arguments.macro)
    if arguments.json:
        print_json({**header, "rows": [row.to_json() for row in rows]})
        return 0
    whole = dict.fromkeys(name for one in scored for name in one.figures)
    if whole and not {row.metric for row in rows} & {*whole}:
        say(f"left out: {', '.join(whole)}: such a metric has one value for a whole run task")
    if not rows:
        print("no sample has been sent to the model yet")
        return 0
    if arguments.pivot:
        console().print(_pivoted(rows, arguments))
    else:
        console().print(_listed(rows))
    for line in dict.fromkeys(_notes(rows)):
        print(line)
    _say_faults(scored)
    if header.get("folder"):
        say(f"scores stored in {header['folder']}")
    return 0


def _listed(rows: Sequence[Row]) -> Table:
    from hpcbench import number_format as form
    from hpcbench.evaluation.score_tables import label

    keys = list(rows[0].by)
    invalid, faults = any(row.invalid for row in rows), any(row.faults for row in rows)
    more = [
        *(["unreadable", "excluded / zero"] if invalid else []),
        *(["faults"] if faults else []),
    ]
    numbers = ("value", "95 % interval", "n", "documents", "coverage", *more)
    shown = table(*keys, "metric", *numbers, right=numbers)
    for row in rows:
        cells = [label(row.by[key]) for key in keys]
        cells.append(form.metric(row.metric, row.unit, higher_is_better=row.higher_is_better))
        cells += [form.value(row.value), form.interval(row.low, row.high)]
        cells += [form.count(row.n), form.count(row.documents), form.share(row.coverage)]
        if invalid:
            both = row.value_if or {}
            pair = " / ".join(form.value(both.get(policy)) for policy in ("exclude", "zero"))
            cells += [f"{row.invalid:,}", pair if both else "–"]
        cells += [f"{row.faults:,}"] if faults else []
        shown.add_row(*cells)
    return shown


def _pivoted(rows: Sequence[Row], arguments: argparse.Namespace) -> Table:
    from hpcbench import number_format as form
    from hpcbench.evaluation import score_tables

    (index,) = [key for key in rows[0].by if key != arguments.pivot][-1:] or ["metric"]
    heads, lines = score_tables.pivot(rows, index, arguments.pivot)
    names = ("metric", index) if index != "metric" else ("metric",)
    shown = table(*names, *heads, right=heads)
    for metric, line, cells in lines:
        values = [
            form.value_with_interval(cells[head].value, cells[head].low, cells[head].high)
            if head in cells
            else form.DASH
            for head in heads
        ]
        shown.add_row(*((metric, line) if index != "metric" else (metric,)), *values)
    return shown


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    from hpcbench.evaluation.score_tables import label

    for row in rows:
        if row.average == "macro":
            yield f"macro average: the mean of the values of the groups by {row.by['macro']}"
        if row.weight:
            yield f"each sample has the weight of its {row.weight}"
    nothing = {row.by.get("run_task"): row for row in rows if not row.ok}
    for name, row in nothing.items():
        parts = ((row.asked - row.answered, "failed"), (row.answered - row.ok, "unreadable"))
        why = ", ".join(f"{count:,} of {row.asked:,} {what}" for count, what in parts if count)
        yield f"– {name or 'these samples'}: no sample has a score{f': {why}' if why else ''}"
    for row in rows:
        groups = ", ".join(label(value) for value in row.by.values())
        if row.unit and row.value is None:
            yield f"– {groups or 'these samples'}: {row.metric} has no value: {row.method}"
        elif row.without:
            yield f"! {groups or 'these samples'}: {row.metric} leaves out {row.without:,} answers"
        if row.refused and not row.faults:
            groups = ", ".join(f"{key} {label(value)}" for key, value in row.by.items())
            yield f"– {row.metric} of {groups or 'these samples'}: {row.refused}"
    if any(row.invalid for row in rows):
        yield f"unreadable: {DEFINITIONS['unreadable']}"


def _say_faults(scored: Sequence[Scored]) -> None:
    from hpcbench.evaluation import summary
    from hpcbench.metrics.base import OF_BOUNDS
    from hpcbench.number_format import many

    for one in scored:
        for fault in summary.faults_of(one):
            what = f"{many(fault['count'], 'sample')} without a score by {fault['metric']}"
            text = f"{one.run_task.name}: {what}: {fault['message']}, e.g. {fault['sample']}"
            if fault["message"].endswith(OF_BOUNDS):
                text += "; it has no value before the metric or its bounds are corrected"
            say(text)


def _print_changes(
    experiment: Experiment,
    changes: dict[str, Change],
    left_out: Sequence[dict[str, str]],
    arguments: argparse.Namespace,
) -> int:
    if arguments.json:
        run_tasks = {name: asdict(change) for name, change in changes.items()}
        print_json({"experiment": experiment.id, "run_tasks": run_tasks, "left_out": left_out})
        return 0
    for name, change in changes.items():
        scored = ", ".join(change.scored) or "nothing"
        kept = f"; unchanged: {', '.join(change.kept)}" if change.kept else ""
        print(f"{name}: will score: {scored}{kept}")
    _say_left_out(left_out, arguments)
    return 0
