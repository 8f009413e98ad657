"""Agents' work, and repeats of run tasks joined."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from hpcbench import number_format as form
from hpcbench.experiment.view.metrics_json import Chance, Metrics
from hpcbench.experiment.view.performance_json import Latency, Trajectories
from hpcbench.reporting import charts
from hpcbench.reporting.blocks import Block, Part, Plot, Section, Table, Text
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.sections.shared import MOST_PLOTS, performance_in

MOST_TOOLS = 12
"""Most columns of tools; rarer ones are added up."""


def agents(tables: Tables) -> Section | None:
    run_tasks = performance_in(tables).run_tasks
    works = {
        name: one.trajectories for name, one in run_tasks.items() if one.trajectories is not None
    }
    if not works:
        return None
    note = (
        "Of a sample: p50 / p95; a dash: too few samples. Wasted: calls without a result, or that repeat an "
        "earlier one. Model: from sending each request to the end of its answer. Disk: waiting until each "
        "turn is on the disk, which is part of neither. TTFT: of each turn. Figures of requests do not "
        "count agents' answers. Prefix caches of the engine are in these times where it has them on."
    )
    heads = (
        "run task", "samples", "responded", "turns", "calls", "wasted", "model, s", "tools, s", "disk, s",
        "TTFT, ms", "tokens", "prompt tokens", "samples/s",
    )  # fmt: skip
    rows = tuple(_row(name, work) for name, work in works.items())
    blocks: list[Block] = [
        Text(note, "note"),
        Table("Agents: work on a sample", heads, rows),
        _counts("How the work ended, samples", {name: one.exits for name, one in works.items()}),
    ]
    if any(one.calls for one in works.values()):
        blocks.append(_counts("Calls by tool", {name: one.calls for name, one in works.items()}))
    if any(one.failed for one in works.values()):
        failed = {name: one.failed for name, one in works.items()}
        blocks.append(_counts("Calls without a result, by cause", failed))
    if plans := _plans(works):
        blocks.append(plans)
    drawn = (figure for name, work in works.items() for figure in charts.of_agent(name, work))
    blocks += [Plot(one) for one in islice(drawn, MOST_PLOTS)]
    return Section("agents", "Agents", tuple(blocks))


def _row(name: str, work: Trajectories) -> tuple[str, ...]:
    rate = work.samples_per_s
    return (
        name, form.count(work.samples), form.count(work.answered), _numbers(work.turns_each),
        _numbers(work.calls_each), form.count(work.wasted), _of(work.think_s), _of(work.tool_s),
        _of(work.sync_s), _of(work.ttft_ms),
        _numbers(work.tokens_each), form.count(work.prompt_tokens),
        form.figure(None if rate is None else rate.value),
    )  # fmt: skip


def _of(spread: Latency | None) -> str:
    """`3 / 12`: median and 95th percentile."""
    if spread is None:
        return form.figure(None)
    return f"{form.figure(spread.p50.value)} / {form.figure(spread.p95.value)}"


def _numbers(spread: Latency | None) -> str:
    """The same of whole numbers."""
    shares = () if spread is None else (spread.p50.value, spread.p95.value)
    return " / ".join(form.DASH if one is None else f"{one:,g}" for one in shares) or form.DASH


def _counts(caption: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
    """A row a run task and a column a name, the most frequent first; rare ones are added up."""
    totals: dict[str, int] = {}
    for own in counts.values():
        for name, count in own.items():
            totals[name] = totals.get(name, 0) + count
    names = sorted(totals, key=lambda name: (-totals[name], name))
    shown, rest = names[:MOST_TOOLS], names[MOST_TOOLS:]
    heads = ("run task", *shown, *(["others"] if rest else []))
    rows = tuple(
        (
            run_task,
            *(form.count(own.get(name, 0)) for name in shown),
            *([form.count(sum(own.get(name, 0) for name in rest))] if rest else []),
        )
        for run_task, own in counts.items()
    )
    return Table(caption, heads, rows)


def _plans(works: Mapping[str, Trajectories]) -> Table | None:
    rows = tuple(
        (
            name,
            form.count(one.plans.samples),
            form.count(one.plans.steps),
            form.count(one.plans.done),
        )
        for name, one in works.items()
        if one.plans is not None
    )
    heads = ("run task", "samples with a plan", "steps", "steps done")
    return Table("Plans", heads, rows) if rows else None


def repeats(tables: Tables) -> Section | None:
    found = Metrics.model_validate(tables["metrics"]).repeats
    if not found:
        return None
    note = (
        "pass@k: the chance that at least one of k attempts is right (Chen et al. 2021); pass^k: that all of "
        "k are (Yao et al. 2024, τ-bench). Unbiased estimates over the samples with at least k attempts; "
        "[ ]: 95 % interval by document. Shown for metrics whose values are 0 or 1."
    )
    parts = []
    for name, one in found.items():
        rows = tuple(
            (
                metric,
                str(entry.k),
                form.count(entry.n),
                _chance(entry.pass_at),
                _chance(entry.pass_all),
            )
            for metric, entries in one.metrics.items()
            for entry in entries
        )
        heads = ("metric", "k", "samples", "pass@k", "pass^k")
        caption = f"{name}: {form.many(len(one.run_tasks), 'repeat')}"
        parts.append(Part(name, (Table(caption, heads, rows),)))
    return Section("repeats", "Repeats", (Text(note, "note"),), tuple(parts))


def _chance(one: Chance) -> str:
    ends = ""
    if one.low is not None and one.high is not None:
        ends = f" [{one.low:.3f}, {one.high:.3f}]"
    return f"{one.value:.3f}{ends}"
