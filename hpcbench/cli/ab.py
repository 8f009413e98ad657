"""`hpcbench ab`: two arms of one plan, or two plans, in turns on the same nodes, and one table."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.cli import dry_run
from hpcbench.cli.compare import STYLE, margin
from hpcbench.cli.output import console, finish, print_json, say, table
from hpcbench.cli.plan_names import named_plan, plan_called
from hpcbench.cli.submit import prepared_once
from hpcbench.data.progress import size_text
from hpcbench.errors import RunFailed, UserError, unknown
from hpcbench.experiment.interim import (
    FIRST,
    LOOKS,
    halves,
    looks_at,
)
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.experiment.submission import rounds
from hpcbench.planning import LOAD_SECONDS
from hpcbench.registry.ab import expanded, side_by_side
from hpcbench.registry.catalog import user_site
from hpcbench.registry.settings import typed
from hpcbench.schema.plan import Arms, ResolvedPlan, ResolvedRunTask, WorkPlan
from hpcbench.submit.plan_packages import NO_PACKAGES, Packages, load_with_packages
from hpcbench.submit.preview import preview_of, read_only
from hpcbench.submit.rounds import submit_first

if TYPE_CHECKING:
    from hpcbench.reporting.report_tables import ArmsRow

Load = Callable[[Path, Sequence[Path], Sequence[str]], tuple[ResolvedPlan, Packages]]
"""Reads a plan: its file, further registries, settings."""

OF_SPEED = "; for a speed figure the margin is a fraction: 0.02 is 2 %"


def ab(arguments: argparse.Namespace) -> int:
    """`hpcbench ab PLAN --a … --b …`, `hpcbench ab PLAN PLAN`, or `hpcbench ab EXPERIMENT`."""
    if not _is_plan(arguments):
        return _tell(find(home(user_site()), arguments.what), as_json=arguments.json)
    if arguments.dry_run:
        both, _ = _both(arguments, _only_read)
        preview = preview_of(both, (), Path(arguments.what), say)
        if not arguments.json:
            print("\n".join(_turns(preview.resolved, preview.work)) + "\n")
        return dry_run.show(preview, arguments.json)
    resolved, packages = _both(arguments, partial(load_with_packages, say=say))
    experiment = prepared_once(resolved, Path(arguments.what), packages)
    submit_first(experiment)
    for line in _turns(resolved, experiment.work):
        say(line)
    if not arguments.wait:
        jobs = rounds(experiment)[-1].jobs
        if arguments.json:
            print_json({"id": experiment.id, "path": str(experiment.path), "jobs": jobs})
        else:
            print(f"submitted {experiment.id}\n  hpcbench ab {experiment.id}")
        return 0
    return _follow(experiment, as_json=arguments.json)


def _is_plan(arguments: argparse.Namespace) -> bool:
    """Whether the command names a plan, which needs both arms; an experiment takes none."""
    path = Path(arguments.what)
    plan = path.suffix in (".yaml", ".yml") or path.is_file()
    given = bool(arguments.a or arguments.b or arguments.other)
    if given and not plan and (named := named_plan(arguments.what, arguments.registry)):
        arguments.what, plan = str(named), True
    if arguments.other and not Path(arguments.other).exists():
        arguments.other = str(plan_called(Path(arguments.other), arguments.registry))
    if plan and not given:
        raise UserError(
            "the plan needs two arms",
            remedy="set a value of each: --a PATH=VALUE --b PATH=VALUE; or name a second plan",
        )
    if given and not plan:
        raise UserError(
            "no such plan; --a, --b and a second plan need one",
            file=arguments.what,
            remedy="name the plan's YAML file",
        )
    return plan


def _only_read(
    plan: Path, registry: Sequence[Path], settings: Sequence[str]
) -> tuple[ResolvedPlan, Packages]:
    """Same as `load_with_packages`, for a dry run: it builds no package."""
    return read_only(plan, registry, settings)[0], NO_PACKAGES


def _both(arguments: argparse.Namespace, load: Load) -> tuple[ResolvedPlan, Packages]:
    """The plan with both arms that the command line names."""
    arms = Arms(
        plans=(arguments.what, arguments.other) if arguments.other else None,
        a=tuple(arguments.a),
        b=tuple(arguments.b),
        metrics=tuple(arguments.metrics),
        margins=dict(margin(text, OF_SPEED) for text in arguments.margin),
        alpha=_alpha(arguments.alpha),
        early_stop=not arguments.no_early_stop,
    )
    arguments.typed = {}
    return arms_of(
        Path(arguments.what),
        arms,
        load,
        registries=arguments.registry,
        settings=arguments.settings,
        limit=arguments.limit,
        options=arguments.typed,
    )


def arms_of(
    plan: Path,
    arms: Arms,
    load: Load,
    *,
    registries: Sequence[Path],
    settings: Sequence[str],
    limit: int | None,
    options: dict[str, str],
) -> tuple[ResolvedPlan, Packages]:
    """The plan with both arms side by side.

    Args:
        plan: its file, arm a's where each arm has its own.
        arms: the arms, and how they are compared.
        load: reads a plan with given settings.
        registries: further registries.
        settings: settings of both arms.
        limit: samples of each run task; None: all.
        options: receives each setting with the option that the user typed for it.

    Raises:
        UserError: all mistakes in plan and settings.
    """
    other = Path(arms.plans[1]) if arms.plans is not None else plan
    short = [f"limit={limit}"] if limit is not None else []
    base, _ = load(plan, registries, settings)
    shared = [*settings, *expanded(base, short)]
    options |= dict.fromkeys(expanded(base, short), typed("limit", limit))

    def arm(path: Path, own: Sequence[str], letter: str) -> tuple[ResolvedPlan, Packages]:
        # An arm starts from its plan with the shared settings, so a name that --set changes is the new one.
        start = base if path == plan else load(path, registries, settings)[0]
        for text in own:
            options.update(dict.fromkeys(expanded(start, [text]), typed(letter, text)))
        return load(path, registries, [*settings, *expanded(start, short), *expanded(start, own)])

    (a, first), (b, second) = arm(plan, arms.a, "a"), arm(other, arms.b, "b")
    for judge in (one for one in (*a.run_tasks, *b.run_tasks) if one.task.judge is not None):
        remedy = "leave it out, or compare two run tasks by `judge: {of: …, against: …}`"
        raise UserError(f"run task '{judge.name}' is a judge, which has no arms", remedy=remedy)
    for one in (*a.run_tasks, *b.run_tasks):
        if one.agent is not None and one.agent.models_of:
            what = f"agent '{one.name}' uses models of other run tasks, so it has no arms"
            raise UserError(what, remedy="leave it out, or compare two plans by `hpcbench compare`")
    both = side_by_side(a, b, arms, shared, say)
    _check_metrics(both)
    return both, _packages(first, second)


def _packages(a: Packages, b: Packages) -> Packages:
    """The packages of both arms together.

    Raises:
        UserError: the arms need different packages on the host, where one Python serves both.
    """
    if a.host is not None and b.host is not None and a.host != b.host:
        what = (
            "the arms need different packages outside the engine, where both arms run in one Python"
        )
        raise UserError(what, remedy="let both arms use the same metrics, datasets and prompts")
    return Packages(a.host or b.host, {**a.locked, **b.locked})


def _check_metrics(resolved: ResolvedPlan) -> None:
    from hpcbench.comparison.ab import FIGURES
    from hpcbench.registry.fitting_metrics import is_resource

    assert resolved.arms is not None
    if "evaluation" not in resolved.plan.stages:
        raise UserError(
            "hpcbench cannot compare arms without the stage 'evaluation'",
            remedy="add it to `stages:` of the plan",
        )
    every = [metric for one in resolved.run_tasks for metric in one.metrics]
    known = {metric.name for metric in every if not is_resource(metric)} | {*FIGURES}
    if not (known - {*FIGURES} or resolved.arms.metrics):
        what = "the plan names only metrics of resources, and arms are compared by their answers"
        raise UserError(what, remedy=f"name a figure: --metrics {min(FIGURES)}")
    for name in (*resolved.arms.metrics, *(key for key in resolved.arms.margins if key != "*")):
        if name not in known:
            raise UserError(unknown("metric or figure", name, sorted(known)))


def _alpha(value: float) -> float:
    if not 0 < value < 1:
        raise UserError(
            f"--alpha {value:g} is not between 0 and 1", remedy="for example --alpha 0.05"
        )
    return value


# --- before -------------------------------------------------------------------------------------------


def _turns(resolved: ResolvedPlan, work: WorkPlan) -> Iterator[str]:
    """Blocks and loads of each run task, on one line."""
    cuts = {cut.run_task: cut for cut in work.cuts}
    for pair, names in resolved.pairs.items():
        cut, other = (cuts[name] for name in names)
        arms = [resolved.run_task(name) for name in names]
        if not any(set(names) <= set(group.run_tasks) for group in work.groups):
            yield _apart(pair, *arms)
            continue
        models = [arm.model.name for arm in arms]
        blocks = (cut.seconds_per_sample + other.seconds_per_sample) * cut.samples
        line = f"{pair}: {cut.samples} samples in {cut.count} pairs of blocks of {cut.size}"
        if len(set(models)) == 1:
            yield f"{line}; the engine loads the model once for both arms"
            continue
        load = sum(work.load_seconds.get(one, LOAD_SECONDS) for one in models) / 2
        yield (
            f"{line}; each pair of blocks costs about one model load: {(cut.count + 1) * load:.0f} s "
            f"of loading and at most {blocks:.0f} s of answering (--set shard_size=N: larger blocks need "
            "fewer loads, smaller blocks reduce the effect of a node's drift)"
        )


def _apart(pair: str, one: ResolvedRunTask, other: ResolvedRunTask) -> str:
    """Why two arms run in separate jobs."""
    differs = [
        what
        for what, same in (
            ("GPUs", one.model.gpus == other.model.gpus),
            ("resources", one.task.resources == other.task.resources),
            ("environment", one.environment == other.environment),
        )
        if not same
    ]
    return (
        f"warning: {pair}: the arms differ in {' and '.join(differs)}, so they run in separate jobs, not "
        "on the same nodes: hpcbench compares their quality, not their speed"
    )


# --- after --------------------------------------------------------------------------------------------


def _follow(experiment: Experiment, *, as_json: bool) -> int:
    """Follow the experiment to its end, and print the table."""
    if not as_json:
        print(f"submitted {experiment.id} in {experiment.path}")
        code = finish(experiment)
        print()
        return code or _tell(experiment, as_json=False)
    from hpcbench.cli.output import follow

    ended = follow(experiment, silent=True)
    _tell(experiment, as_json=True)
    if ended.state != "done":
        raise RunFailed(f"{experiment.id} is {ended.state}: see `hpcbench status {experiment.id}`")
    return 0


def _tell(experiment: Experiment, *, as_json: bool) -> int:
    from hpcbench.comparison.ab import costs

    resolved = experiment.resolved
    if resolved.arms is None:
        raise UserError(
            f"{experiment.id} has no arms",
            remedy="`hpcbench ab PLAN --a … --b …` submits an experiment with arms",
        )
    arms = resolved.arms
    each, currency = _per_document(experiment), resolved.site.currency
    charged = _costs_of_documents(experiment)
    found = []
    for pair, names in resolved.pairs.items():
        known = looks_at(experiment, pair)
        done = halves(experiment, pair)
        found.append(
            {
                "run_task": pair,
                "done": len(done.both),
                "of": done.of,
                "looks": len(known),
                "look": known[-1] if known else None,
                "currency": currency,
                "one_load": len({resolved.run_task(name).model.name for name in names}) == 1,
                "costs": costs(experiment, names),
                "per_document": {
                    letter: each.get(name) for letter, name in zip("ab", names, strict=True)
                },
                "cost": {
                    letter: charged.get(name) for letter, name in zip("ab", names, strict=True)
                },
            }
        )
    if as_json:
        arms_json = arms.model_dump(mode="json")
        print_json(
            {"version": 1, "experiment": experiment.id, "arms": arms_json, "run_tasks": found}
        )
        return 0
    for letter in "ab":
        print(f"arm {letter}: {' '.join(arms.texts(letter)) or 'the plan as it is'}")
    for one in found:
        print()
        _print(one, arms)
    return 0


def _print(summary: Mapping[str, Any], arms: Arms) -> None:
    """The table of a run task, and the facts that a reader needs to judge it."""
    from hpcbench.reporting.ab import rows_of

    look = summary["look"]
    if look is None:
        print(
            f"{summary['run_task']}: {summary['done']} of {summary['of']} pairs of blocks, "
            "no interim look yet"
        )
        return
    percent = f"{(1 - look['alpha']) * 100:.4g} %"
    numbers = ("arm a", "arm b", "b - a, b ÷ a", f"{percent} interval", "verdict of b")
    shown = table(summary["run_task"], *numbers, right=numbers)
    for rows in rows_of(look):
        for one in rows:
            shown.add_row(*_row(one))
    for row in _cost_rows(summary["costs"], one_load=summary["one_load"]):
        shown.add_row(*row)
    for row in _document_rows(summary["per_document"], summary["currency"]):
        shown.add_row(*row)
    if row := _cost_row(**summary["cost"]):
        shown.add_row(*row)
    console().print(shown)
    for line in _notes(look, arms):
        print(textwrap.fill(line, console().width, subsequent_indent="  ", break_on_hyphens=False))


def _row(one: ArmsRow) -> list[str]:
    from hpcbench.reporting.ab import cells

    what, *numbers = cells(one)
    mark = "* " if one["decides"] else "  "
    verdict = one["verdict"]
    return [mark + what, *numbers, f"[{STYLE[verdict]}]{verdict}[/]" if verdict else ""]


def _cost_rows(costs: Mapping[str, Any], *, one_load: bool) -> Iterator[list[str]]:
    a, b = costs["a"], costs["b"]
    if one_load:
        yield ["  load for both arms", _load(a), "", "", "", ""]
    elif a["load_seconds"] is not None or b["load_seconds"] is not None:
        yield ["  load", *(_load(one) for one in (a, b)), "", "", ""]
    for name in ("gpu_peak", "effective", "kv_peak", "host_held_peak"):
        if name in a["memory"] or name in b["memory"]:
            sizes = [
                size_text(int(one["memory"][name])) if name in one["memory"] else "–"
                for one in (a, b)
            ]
            yield [f"  {name}", *sizes, "", "", ""]


def _per_document(experiment: Experiment) -> dict[str, dict[str, float | None]]:
    """Run task → its use of GPUs for a document, and the cost; empty while the experiment runs."""
    from hpcbench.experiment.view.metrics_json import metrics_of
    from hpcbench.experiment.view.usage import written_usage
    from hpcbench.reporting.usage_rows import per_document

    usage = written_usage(experiment)
    if usage is None or not experiment.metrics_file.exists():
        return {}
    documents = {name: one.documents for name, one in metrics_of(experiment).run_tasks.items()}
    return per_document(usage.hours, documents, experiment.resolved.site.gpu_hour_price)


def _costs_of_documents(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Run task → the metric `cost`, value and unit; empty while the experiment runs."""
    from hpcbench.evaluation.resources import cost_of
    from hpcbench.experiment.view.performance_json import performance_of

    if not experiment.performance_file.exists():
        return {}
    found = {}
    for name, speed in performance_of(experiment).run_tasks.items():
        figure = cost_of(experiment, experiment.run_task(name), speed)
        if figure.value is not None:
            found[name] = {"value": figure.value, "unit": figure.unit}
    return found


def _cost_row(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> list[str]:
    """The row of `cost`; empty: an arm has none."""
    if a is None or b is None:
        return []
    return _ratio_row("cost", *((one["value"], one["unit"]) for one in (a, b)))


def _document_rows(
    each: Mapping[str, Mapping[str, float | None] | None], currency: str
) -> Iterator[list[str]]:
    a, b = each["a"], each["b"]
    if a is None or b is None:
        return
    for name, unit in (
        ("gpu_seconds_per_document", "s"),
        ("cost_per_1000_documents", currency),
    ):
        first, second = a[name], b[name]
        if first is not None and second is not None:
            yield _ratio_row(name, (first, unit), (second, unit))


def _ratio_row(name: str, a: tuple[float, str], b: tuple[float, str]) -> list[str]:
    """A row of a figure without an interval: value and unit of both arms, and b ÷ a where the units agree."""
    from hpcbench import number_format as form

    both = (f"{form.figure(value)} {unit}".rstrip() for value, unit in (a, b))
    ratio = f"× {form.value(b[0] / a[0])}" if a[0] and a[1] == b[1] else "–"
    return [f"  {name}", *both, ratio, "", ""]


def _load(one: Mapping[str, Any]) -> str:
    return "–" if one["load_seconds"] is None else f"{one['load_seconds']:.1f} s × {one['loads']}"


def _notes(look: Mapping[str, Any], arms: Arms) -> Iterator[str]:
    """Facts behind the numbers."""
    from hpcbench import number_format as form

    seen = f"{look['done']} of {look['of']} pairs of blocks, {look['samples']} samples"
    if look["stop"]:
        found = ", ".join(f"{name} is {verdict}" for name, verdict in look["verdicts"].items())
        yield f"stopped early at {seen}: {found} in b"
    elif look["last"]:
        yield seen
    else:
        yield f"{seen}: look {look['look'] + 1} of at most {LOOKS}; the experiment continues"
    deciding = ", ".join(look["deciding"]) or "nothing"
    if arms.early_stop:
        yield (
            f"* decides: {deciding}. Intervals hold for all looks together; alone, this one would have "
            f"{(1 - look['nominal']) * 100:.5g} % (Lan-DeMets, O'Brien-Fleming spending, looks from "
            f"{form.percent(FIRST)} on)"
        )
    else:
        yield f"* decides: {deciding}. One look, at the end"
    level = "the level of this look" if arms.early_stop else "the level of --alpha"
    for one in look["quality"]:
        why = form.why_inconclusive(one, level)
        if why and (one["metric"] in look["deciding"] or form.excludes_zero(one["interval"])):
            yield f"{one['metric']} is inconclusive: {why}"
    sure = [
        f"{one['metric']} is {one['verdict']} (p = {one['p_value']:.2g})"
        for one in look["quality"]
        if one["verdict"] in ("better", "worse") and not form.excludes_zero(one["interval"])
    ]
    if sure:
        yield (
            f"{', '.join(sure)} by the p-value; the interval, which allows for changes that no document "
            "here shows, contains 0"
        )
    if not look["same_nodes"]:
        yield "the arms did not run on the same nodes: their speeds have no fair ratio"
    elif look["blocks_apart"]:
        yield f"the speeds leave out {look['blocks_apart']} pairs that one worker did not run in succession"
    if look["blocks"]:
        who = "one worker" if look["workers"] == 1 else f"{look['workers']} workers"
        yield f"speeds: {look['blocks']} pairs of blocks by {who}, without the time of model loads"
