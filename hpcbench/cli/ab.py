"""`hpcbench ab`: two arms of one plan, in turns on the same nodes; and the one table of what came out."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.cli import dry_run
from hpcbench.cli.compare import STYLE
from hpcbench.cli.output import console, finish, print_json, say
from hpcbench.cli.submit import prepared_once
from hpcbench.data.progress import size_text
from hpcbench.errors import Problem, RunFailed, UserError, unknown
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
from hpcbench.schema.plan import Arms, ResolvedPlan, ResolvedRunTask, WorkPlan
from hpcbench.submit.prepare import NO_PACKAGES, Packages, load
from hpcbench.submit.preview import preview_of, read_only
from hpcbench.submit.rounds import submit_first

if TYPE_CHECKING:
    from hpcbench.reporting.report_tables import ArmsRow


def ab(arguments: argparse.Namespace) -> int:
    """`hpcbench ab PLAN --a … --b …`, or `hpcbench ab EXPERIMENT`."""
    if not _is_plan(arguments):
        return _tell(find(home(user_site()), arguments.what), as_json=arguments.json)
    if arguments.dry_run:
        both, _ = _resolved(arguments, _only_read)
        preview = preview_of(both, (), Path(arguments.what), say)
        if not arguments.json:
            print("\n".join(_turns(preview.resolved, preview.work)) + "\n")
        return dry_run.show(preview, arguments.json)
    resolved, packages = _resolved(arguments, partial(load, say=say))
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
    """Whether a plan is named: then both arms are wanted; of an experiment none."""
    path = Path(arguments.what)
    plan = path.suffix in (".yaml", ".yml") or path.is_file()
    given = bool(arguments.a or arguments.b)
    if plan and not given:
        raise UserError("no arm is said", remedy="--a model.engine_options.x=1 --b …=2")
    if given and not plan:
        raise UserError(Problem("no such plan", arguments.what, remedy="name the plan's YAML file"))
    return plan


def _only_read(
    plan: Path, registry: Sequence[Path], settings: Sequence[str]
) -> tuple[ResolvedPlan, Packages]:
    """As `load`, for a dry run: no package is built."""
    return read_only(plan, registry, settings)[0], NO_PACKAGES


def _resolved(
    arguments: argparse.Namespace,
    load: Callable[[Path, Sequence[Path], Sequence[str]], tuple[ResolvedPlan, Packages]],
) -> tuple[ResolvedPlan, Packages]:
    """The plan with both arms side by side.

    Args:
        arguments: the command line.
        load: reads a plan with some settings.

    Raises:
        UserError: every mistake in plan and settings.
    """
    plan, registry = Path(arguments.what), arguments.registry
    base, _ = load(plan, registry, arguments.settings)
    # Arms are made of the plan as it is with what both have: a name that --set changes is the changed one.
    short = [f"limit={arguments.limit}"] if arguments.limit is not None else []
    shared = [*arguments.settings, *expanded(base, short)]
    a, first = load(plan, registry, [*shared, *expanded(base, arguments.a)])
    b, second = load(plan, registry, [*shared, *expanded(base, arguments.b)])
    arms = Arms(
        a=tuple(arguments.a),
        b=tuple(arguments.b),
        metrics=tuple(arguments.metric),
        margins=dict(_margin(text) for text in arguments.margin),
        alpha=_alpha(arguments.alpha),
        early_stop=not arguments.no_early_stop,
    )
    both = side_by_side(a, b, arms, shared, say)
    _check_metrics(both)
    return both, _packages(first, second)


def _packages(a: Packages, b: Packages) -> Packages:
    """The packages of both arms.

    Raises:
        UserError: each needs others on the host, where one Python serves both.
    """
    if a.host is not None and b.host is not None and a.host != b.host:
        what = (
            "the arms differ in packages that run outside the engine, where both share one Python"
        )
        raise UserError(Problem(what, remedy="arms of one set of metrics, datasets and prompts"))
    return Packages(a.host or b.host, {**a.locked, **b.locked})


def _check_metrics(resolved: ResolvedPlan) -> None:
    from hpcbench.comparison.ab import FIGURES

    assert resolved.arms is not None
    if "evaluation" not in resolved.plan.stages:
        raise UserError("arms cannot be compared without the stage 'evaluation'")
    known = {metric.name for one in resolved.run_tasks for metric in one.metrics} | {*FIGURES}
    for name in (*resolved.arms.metrics, *(key for key in resolved.arms.margins if key != "*")):
        if name not in known:
            raise UserError(Problem(unknown("metric or figure", name, sorted(known))))


def _margin(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        remedy = (
            "--margin 0.01, or --margin METRIC=0.01; of a figure of speed a share, 0.02 for 2 %"
        )
        raise UserError(f"--margin {text}", remedy=remedy)
    return name or "*", value


def _alpha(value: float) -> float:
    if not 0 < value < 1:
        raise UserError(f"--alpha {value:g}", remedy="a share between 0 and 1, such as 0.05")
    return value


# --- before -------------------------------------------------------------------------------------------


def _turns(resolved: ResolvedPlan, work: WorkPlan) -> Iterator[str]:
    """Blocks and loads of each run task, in a line."""
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
            yield f"{line}; both arms by one load"
            continue
        load = sum(work.load_seconds.get(one, LOAD_SECONDS) for one in models) / 2
        yield (
            f"{line}; each pair costs about one load: {(cut.count + 1) * load:.0f} s of loading beside "
            f"{blocks:.0f} s of answers at most (--set shard_size=N: longer blocks load less, shorter ones "
            "feel less of a node's drift)"
        )


def _apart(pair: str, one: ResolvedRunTask, other: ResolvedRunTask) -> str:
    """Why two arms have jobs of their own."""
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
        f"careful, {pair}: the arms differ in {' and '.join(differs)}, so they run in jobs of their own, not "
        "on the same nodes: quality is compared, speed is not"
    )


# --- after --------------------------------------------------------------------------------------------


def _follow(experiment: Experiment, *, as_json: bool) -> int:
    """Follow it to its end, and print the table."""
    if not as_json:
        print(f"submitted {experiment.id} in {experiment.path}")
        code = finish(experiment)
        print()
        return code or _tell(experiment, as_json=False)
    from hpcbench.cli.output import follow

    ended = follow(experiment, silent=True)
    _tell(experiment, as_json=True)
    if ended.state != "done":
        raise RunFailed(f"{experiment.id} is {ended.state}: `hpcbench status {experiment.id}`")
    return 0


def _tell(experiment: Experiment, *, as_json: bool) -> int:
    from hpcbench.comparison.ab import costs

    resolved = experiment.resolved
    if resolved.arms is None:
        raise UserError(
            f"{experiment.id} has no arms", remedy="`hpcbench ab PLAN --a … --b …` makes such a one"
        )
    arms = resolved.arms
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
                "one_load": len({resolved.run_task(name).model.name for name in names}) == 1,
                "costs": costs(experiment, names),
            }
        )
    if as_json:
        told = arms.model_dump(mode="json")
        print_json({"version": 1, "experiment": experiment.id, "arms": told, "run_tasks": found})
        return 0
    for letter, texts in (("a", arms.a), ("b", arms.b)):
        print(f"arm {letter}: {' '.join(texts) or 'the plan as it is'}")
    for one in found:
        print()
        _print(one, arms)
    return 0


def _print(told: Mapping[str, Any], arms: Arms) -> None:
    """The one table of a run task, and what a reader has to know to believe it."""
    from rich.table import Table

    from hpcbench.reporting.ab import rows_of

    look = told["look"]
    if look is None:
        print(f"{told['run_task']}: {told['done']} of {told['of']} pairs of blocks, no look yet")
        return
    percent = f"{(1 - look['alpha']) * 100:.4g} %"
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in (
        told["run_task"],
        "arm a",
        "arm b",
        "b - a, b ÷ a",
        f"{percent} interval",
        "verdict of b",
    ):
        table.add_column(title, justify="right" if title != told["run_task"] else "left")
    for rows in rows_of(look):
        for one in rows:
            table.add_row(*_row(one))
    for row in _cost_rows(told["costs"], one_load=told["one_load"]):
        table.add_row(*row)
    console().print(table)
    for line in _notes(look, arms):
        print(line)


def _row(one: ArmsRow) -> list[str]:
    arrow = "↑" if one["higher_is_better"] else "↓"
    if one["unit"]:
        value, change, ends = f"{{:.4g}} {one['unit']}", "× {:.4f}", "{:.4f}"
    else:
        value, change, ends = "{:.4f}", "{:+.4g}", "{:+.4g}"
    return [
        f"{'* ' if one['decides'] else '  '}{one['what']} {arrow}",
        value.format(one["a"]),
        value.format(one["b"]),
        change.format(one["change"]),
        _ends(one["low"], one["high"], ends),
        f"[{STYLE[one['verdict']]}]{one['verdict']}[/]",
    ]


def _cost_rows(costs: Mapping[str, Any], *, one_load: bool) -> Iterator[list[str]]:
    a, b = costs["a"], costs["b"]
    if one_load:
        yield ["  load of both", _load(a), "", "", "", ""]
    elif a["load_seconds"] is not None or b["load_seconds"] is not None:
        yield ["  load", *(_load(one) for one in (a, b)), "", "", ""]
    for name in ("gpu_peak", "effective", "kv_peak", "host_held_peak"):
        if name in a["memory"] or name in b["memory"]:
            sizes = [
                size_text(int(one["memory"][name])) if name in one["memory"] else "–"
                for one in (a, b)
            ]
            yield [f"  {name}", *sizes, "", "", ""]


def _load(one: Mapping[str, Any]) -> str:
    return "–" if one["load_seconds"] is None else f"{one['load_seconds']:.1f} s × {one['loads']}"


def _notes(look: Mapping[str, Any], arms: Arms) -> Iterator[str]:
    """What the numbers rest on."""
    from hpcbench.evaluation import number_format as form

    seen = f"{look['done']} of {look['of']} pairs of blocks, {look['samples']} samples"
    if look["stop"]:
        yield f"stopped early at {seen}: {look['why']}"
    elif look["last"]:
        yield seen
    else:
        yield f"{seen}: look {look['look'] + 1} of at most {LOOKS}, and it goes on"
    deciding = ", ".join(look["deciding"]) or "nothing"
    if arms.early_stop:
        yield (
            f"* decides: {deciding}. Intervals hold at all looks at once; this one alone would be one of "
            f"{(1 - look['nominal']) * 100:.5g} % (Lan-DeMets, O'Brien-Fleming's spending, looks from "
            f"{FIRST:.0%} on)"
        )
    else:
        yield f"* decides: {deciding}. One look, at the end"
    level = "the level of this look" if arms.early_stop else "the level asked for"
    for one in look["quality"]:
        why = form.why_inconclusive(one, level)
        if why and (one["metric"] in look["deciding"] or form.excludes_zero(one["interval"])):
            yield f"{one['metric']} is inconclusive: {why}"
    if not look["same_nodes"]:
        yield "the arms did not run on the same nodes: no fair ratio of speeds"
    elif look["blocks_apart"]:
        yield f"{look['blocks_apart']} pairs were not asked in one go by one worker: not in the speeds"
    if look["blocks"]:
        who = "one worker" if look["workers"] == 1 else f"{look['workers']} workers"
        yield f"speeds: {look['blocks']} pairs of blocks by {who}, loads not counted"


def _ends(low: float | None, high: float | None, form: str) -> str:
    return "–" if low is None or high is None else f"[{form.format(low)}, {form.format(high)}]"
