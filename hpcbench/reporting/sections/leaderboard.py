"""The leading models and the gate's verdict: the section for a hurried reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench import number_format as form
from hpcbench.experiment.counts import total
from hpcbench.reporting.ab import cells
from hpcbench.reporting.blocks import (
    Block,
    Section,
    Strong,
    Table,
    Text,
)
from hpcbench.reporting.leaderboard import named
from hpcbench.reporting.report_tables import (
    Tables,
    TwoArms,
)
from hpcbench.reporting.sections.shared import dataset_of, scores_in


def verdict(tables: Tables, *, checks: bool = True) -> Section:
    """The results; `checks`: with the gate's checks."""
    run_tasks = scores_in(tables)
    models = {table.model for table in run_tasks.values()}
    datasets = {(table.dataset, table.split) for table in run_tasks.values()}
    counts = total(one.counts for one in run_tasks.values())
    scope = (
        f"{form.many(len(models), 'model')}, {form.many(len(datasets), 'dataset')}, "
        f"{form.many(len(run_tasks), 'run task')}. Samples: {counts.sentence()}; "
        f"coverage {form.share(counts.coverage)}."
    )
    blocks: list[Block] = [Text(" ".join(tables["summary"]), "lead"), Text(scope)]
    if tables["left"]:
        warning = (
            f"Incomplete: {form.count(tables['left'])} samples are in shards that did not finish; "
            f"`hpcbench resume {tables['id']}` continues."
        )
        blocks.append(Text(warning, "warn"))
    if checks and tables["verdict"] is not None and tables["verdict"]["checks"]:
        blocks.append(_checks(tables["verdict"]))
    if any(one["rivals"] for one in tables["leaders"]):
        blocks += [_leaders(tables), _rivals(tables)]
        blocks.append(
            Text(
                "Difference: leader minus the other over the samples that both have scored, paired by "
                "sample, clustered by document; p after Holm's correction over all these comparisons.",
                "note",
            )
        )
    return Section("verdict", "Verdict", tuple(blocks))


def arms(tables: Tables) -> Section | None:
    """Two settings of one plan, asked in turns."""
    found = tables["arms"]
    if found is None:
        return None
    blocks: list[Block] = [
        Text(f"Arm {letter}: {' '.join(texts) or 'the plan unchanged'}.")
        for letter, texts in (("a", found["a"]), ("b", found["b"]))
    ]
    if not found["run_tasks"]:
        blocks.append(Text("The arms have not been compared yet."))
    for one in found["run_tasks"]:
        blocks.append(_two_arms(one))
        seen = f"{one['done']} of {one['of']} pairs of blocks, {form.count(one['samples'])} samples per arm."
        if one["stopped"] is not None:
            seen = f"Stopped early: {one['stopped']}; {form.count(one['samples'])} samples per arm."
        if not one["same_nodes"]:
            seen += " The arms did not run on the same nodes: their speeds are not compared."
        blocks.append(Text(seen, "note"))
    return Section("arms", "Two arms in turns", tuple(blocks))


def _two_arms(one: TwoArms) -> Table:
    rows = [
        (*cells(row), Strong(row["verdict"]) if row["decides"] else row["verdict"])
        for row in (*one["quality"], *one["answers"], *one["speed"])
    ]
    heads = (
        one["run_task"], "arm a", "arm b", "b - a, b ÷ a", f"{one['level'] * 100:.4g} % interval",
        "verdict of b",
    )  # fmt: skip
    return Table(f"Arms of {one['run_task']}", heads, tuple(rows), 1, frozenset({5}))


def _checks(verdict: Mapping[str, Any]) -> Table:
    order = {"fail": 0, "inconclusive": 1}
    checks = sorted(verdict["checks"], key=lambda one: order.get(one["verdict"], 2))
    rows = tuple(
        (
            one["run_task"], one["what"], one["level"],
            _value(one["baseline"], one["kind"]), _value(one["candidate"], one["kind"]),
            _value(one["difference"], one["kind"]),
            f"[{_value(one['low'], one['kind'])}, {_value(one['high'], one['kind'])}]",
            _value(one["margin"], one["kind"]),
            Strong(one["verdict"]) if one["verdict"] != "pass" else one["verdict"], one["why"],
        )
        for one in checks
    )  # fmt: skip
    heads = (
        "run task", "what", "level", "baseline", "candidate", "difference", "95 % interval", "margin",
        "verdict", "why",
    )  # fmt: skip
    caption = f"Checks of the gate by the policy {verdict['policy']}, those that did not pass first"
    title = "Checks of the gate" if len(rows) > 12 else ""
    return Table(caption, heads, rows, 2, frozenset({2, 8, 9}), title)


def _value(number: float | None, kind: str) -> str:
    return form.value(number) if kind in ("quality", "coverage") else form.figure(number)


def _leaders(tables: Tables) -> Table:
    rows = []
    for one in tables["leaders"]:
        fates: dict[str, list[str]] = {}
        for rival in one["rivals"]:
            fates.setdefault(rival["verdict"], []).append(named(rival, one))
        arrow = form.arrow(higher_is_better=one["higher_is_better"])
        if one["rivals"]:
            rows.append(
                (
                    dataset_of(one), f"{one['metric']} {arrow}", named(one, one),
                    form.value_with_interval(one["value"], one["low"], one["high"]),
                    form.share(one["coverage"]),
                    *(", ".join(fates.get(key, ())) for key in ("behind", "cannot be told apart")),
                )
            )  # fmt: skip
    heads = (
        "dataset", "metric", "best", "value", "coverage", "ahead of by more than chance",
        "cannot be distinguished from",
    )  # fmt: skip
    return Table("Who leads on each dataset", heads, tuple(rows), 1, frozenset({1, 2, 5, 6}))


def _rivals(tables: Tables) -> Table:
    words = {"behind": "behind by more than chance", "ahead": "ahead on common samples"}
    rows = []
    for one in tables["leaders"]:
        for rival in one["rivals"]:
            if rival["difference"] is None:
                continue
            arrow = form.arrow(higher_is_better=one["higher_is_better"])
            rows.append(
                (
                    dataset_of(one), f"{one['metric']} {arrow}", named(one, one), named(rival, one),
                    form.difference(rival["difference"]),
                    form.interval(rival["low"], rival["high"], sign=True),
                    form.p_value(rival["p"]), words.get(rival["verdict"], rival["verdict"]),
                )
            )  # fmt: skip
    heads = (
        "dataset", "metric", "best", "compared with", "difference", "95 % interval", "p", "verdict",
    )  # fmt: skip
    caption = "The best of each dataset compared with the others"
    return Table(caption, heads, tuple(rows), 1, frozenset({1, 2, 3, 7}), caption)
