"""Who leads, what the gate said: the section that a hurried reader reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench.evaluation import number_format as form
from hpcbench.experiment.counts import counts_of, total
from hpcbench.reporting.blocks import (
    Block,
    Section,
    Strong,
    Table,
    Text,
)
from hpcbench.reporting.report_tables import (
    ArmsRow,
    Leader,
    Tables,
    TwoArms,
)
from hpcbench.reporting.sections.shared import dataset_of


def verdict(tables: Tables, *, checks: bool = True) -> Section:
    """What came out; `checks`: with those of a gate."""
    run_tasks = tables["metrics"]["run_tasks"]
    models = {table["model"] for table in run_tasks.values()}
    datasets = {(table["dataset"], table["split"]) for table in run_tasks.values()}
    counts = total(map(counts_of, run_tasks.values()))
    told = (
        f"{form.many(len(models), 'model')}, {form.many(len(datasets), 'dataset')}, "
        f"{form.many(len(run_tasks), 'run task')}. Samples: {counts.sentence()}; "
        f"coverage {form.share(counts.coverage)}."
    )
    blocks: list[Block] = [Text(" ".join(tables["summary"]), "lead"), Text(told)]
    if tables["left"]:
        warning = (
            f"Incomplete: {form.count(tables['left'])} samples are in shards that did not come to their "
            f"end; `hpcbench resume {tables['id']}` goes on."
        )
        blocks.append(Text(warning, "warn"))
    if checks and tables["verdict"] is not None and tables["verdict"]["checks"]:
        blocks.append(_checks(tables["verdict"]))
    if any(one["rivals"] for one in tables["leaders"]):
        blocks += [_leaders(tables), _rivals(tables)]
        blocks.append(
            Text(
                "Difference: leader minus the other over the samples that both have scored, paired by "
                "sample, clustered by document; p after Holm's correction over all of these.",
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
        Text(f"Arm {letter}: {' '.join(texts) or 'the plan as it is'}.")
        for letter, texts in (("a", found["a"]), ("b", found["b"]))
    ]
    if not found["run_tasks"]:
        blocks.append(Text("Nobody has looked at them yet."))
    for one in found["run_tasks"]:
        blocks.append(_two_arms(one))
        seen = f"{one['done']} of {one['of']} pairs of blocks, {form.count(one['samples'])} samples an arm."
        if one["stopped"] is not None:
            seen = f"Stopped early: {one['stopped']}; {form.count(one['samples'])} samples an arm."
        if not one["same_nodes"]:
            seen += " The arms did not run on the same nodes: the ratios of speed are not fair."
        blocks.append(Text(seen, "note"))
    return Section("arms", "Two arms in turns", tuple(blocks))


def _two_arms(one: TwoArms) -> Table:
    rows = [
        (
            f"{row['what']} {form.arrow(higher_is_better=row['higher_is_better'])}",
            form.value(row["a"]), form.value(row["b"]), form.difference(row["change"]),
            form.interval(row["low"], row["high"], sign=True), _decided(row),
        )
        for row in one["quality"]
    ] + [
        (
            f"{row['what']} {form.arrow(higher_is_better=row['higher_is_better'])}",
            f"{form.figure(row['a'])} {row['unit']}", f"{form.figure(row['b'])} {row['unit']}",
            f"× {form.value(row['change'])}", form.interval(row["low"], row["high"]), _decided(row),
        )
        for row in one["speed"]
    ]  # fmt: skip
    heads = (
        one["run_task"], "arm a", "arm b", "b - a, b ÷ a", f"{one['level'] * 100:.4g} % interval",
        "verdict of b",
    )  # fmt: skip
    return Table(f"Arms of {one['run_task']}", heads, tuple(rows), 1, frozenset({5}))


def _decided(row: ArmsRow) -> Strong | str:
    return Strong(row["verdict"]) if row["decides"] else row["verdict"]


def _checks(verdict: Mapping[str, Any]) -> Table:
    order = {"fail": 0, "inconclusive": 1}
    checks = sorted(verdict["checks"], key=lambda one: order.get(one["verdict"], 2))
    rows = tuple(
        (
            one["run_task"], one["what"], one["level"],
            _told(one["baseline"], one["kind"]), _told(one["candidate"], one["kind"]),
            _told(one["difference"], one["kind"]),
            f"[{_told(one['low'], one['kind'])}, {_told(one['high'], one['kind'])}]",
            _told(one["margin"], one["kind"]),
            Strong(one["verdict"]) if one["verdict"] != "pass" else one["verdict"], one["why"],
        )
        for one in checks
    )  # fmt: skip
    heads = (
        "run task", "what", "level", "baseline", "candidate", "difference", "95 % interval", "margin",
        "verdict", "why",
    )  # fmt: skip
    caption = f"Checks of the gate by the policy {verdict['policy']}, what did not pass first"
    title = "Checks of the gate" if len(rows) > 12 else ""
    return Table(caption, heads, rows, 2, frozenset({2, 8, 9}), title)


def _told(number: float | None, kind: str) -> str:
    return form.value(number) if kind in ("quality", "coverage") else form.figure(number)


def _leaders(tables: Tables) -> Table:
    rows = []
    for one in tables["leaders"]:
        named: dict[str, list[str]] = {}
        for rival in one["rivals"]:
            named.setdefault(rival["verdict"], []).append(_of(rival, one))
        arrow = form.arrow(higher_is_better=one["higher_is_better"])
        if one["rivals"]:
            rows.append(
                (
                    dataset_of(one), f"{one['metric']} {arrow}", _of(one, one),
                    form.value_with_interval(one["value"], one["low"], one["high"]),
                    form.share(one["coverage"]),
                    *(", ".join(named.get(key, ())) for key in ("behind", "cannot be told apart")),
                )
            )  # fmt: skip
    heads = (
        "dataset", "metric", "best", "value", "coverage", "ahead of, more than chance",
        "cannot be told apart from",
    )  # fmt: skip
    return Table("Who leads on each dataset", heads, tuple(rows), 1, frozenset({1, 2, 5, 6}))


def _rivals(tables: Tables) -> Table:
    words = {"behind": "behind, more than chance", "ahead": "ahead on common samples"}
    rows = []
    for one in tables["leaders"]:
        for rival in one["rivals"]:
            if rival["difference"] is None:
                continue
            arrow = form.arrow(higher_is_better=one["higher_is_better"])
            rows.append(
                (
                    dataset_of(one), f"{one['metric']} {arrow}", _of(one, one), _of(rival, one),
                    form.difference(rival["difference"]),
                    form.interval(rival["low"], rival["high"], sign=True),
                    form.p_value(rival["p"]), words.get(rival["verdict"], rival["verdict"]),
                )
            )  # fmt: skip
    heads = (
        "dataset", "metric", "best", "held against", "difference", "95 % interval", "p", "verdict",
    )  # fmt: skip
    caption = "The best of each dataset held against the others"
    return Table(caption, heads, tuple(rows), 1, frozenset({1, 2, 3, 7}), caption)


def _of(one: Any, leader: Leader) -> str:
    """The model; where several run tasks are of it, which."""
    models = [leader["model"], *(rival["model"] for rival in leader["rivals"])]
    model = str(one["model"])
    return model if models.count(model) == 1 else f"{model} ({one['run_task']})"
