"""The screen of `status` and `watch`: it fits the terminal, and lists the worst and busiest parts first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from hpcbench.number_format import duration, many
from hpcbench.status import (
    ENDED,
    ExperimentStatus,
    Failure,
    RunTaskStatus,
    ShardCounts,
    WorkerStatus,
)

COLOURS = {
    "done": "green", "running": "cyan", "working": "cyan", "evaluating": "cyan", "loading": "blue",
    "starting": "blue", "idle": "dim", "pending": "yellow", "submitting": "yellow",
    "paused": "yellow", "stalled": "yellow", "silent": "yellow", "failed": "red", "stopped": "red",
    "incomplete": "red", "lost": "red", "cancelled": "red", "interrupted": "red", "unreadable": "red",
}  # fmt: skip

SEGMENTS = (
    ("done", "green"), ("running", "cyan"), ("claimed", "blue"), ("silent", "yellow"),
    ("lost", "red"), ("failed", "red"),
)  # fmt: skip
"""Parts of the bar of shards, from the left; the rest is dim."""

WIDE = 110
"""Columns from which rates and models fit beside run tasks."""

PIPED = 400
"""Columns for programs as readers: nothing is cut."""

EMPTY = "·"

FAILED = "×"
"""Cells of the bar of failed shards, also without colour."""
"""Character of a bar's unfilled part, which differs even without colours."""

LEAST_ROWS = 2
"""Least number of rows of each table, on any terminal."""

FIRST = {
    "failed": 0,
    "incomplete": 0,
    "stopped": 0,
    "running": 1,
    "paused": 2,
    "pending": 3,
    "cancelled": 4,
    "done": 5,
}
"""State → rank of a run task if not all fit on the screen; the lowest rank comes first."""  # fmt: skip


class StatusScreen:
    """An experiment's status for rich; it fits the given width, and the height if `live`.

    Args:
        status: the status to show.
        live: whether it must fit the terminal, for `watch`; otherwise it is as long as sensible.
    """

    def __init__(self, status: ExperimentStatus, *, live: bool = False) -> None:
        self.status, self.live = status, live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not console.is_terminal:
            wide = options.update(width=PIPED)
            yield from console.render(screen(self.status, PIPED, everything=True), wide)
            return
        height = console.size.height - 1 if self.live else None
        yield screen(self.status, options.max_width, height)


def screen(
    status: ExperimentStatus, width: int, height: int | None = None, *, everything: bool = False
) -> RenderableType:
    """The screen for a terminal of this size.

    Args:
        status: the status to show.
        width: columns.
        height: lines that it must fit; None: as many as needed, within limits.
        everything: leave nothing out, for programs as readers.
    """
    head = [*_head(status, width), *_waits(status)]
    tasks, workers = len(status.run_tasks), len(status.workers)
    if height is None:
        most = (50, 50) if everything else (8, 4)
        wrong = _wrong(status, *most, "", brief=False)
        rows = (tasks, workers) if everything else (min(tasks, 30), min(workers, 20))
    else:
        # Other lines: one between the parts, the titles, and the omitted rows of each table.
        left = height - len(head) - 3 - (3 if workers else 0) - bool(status.report)
        most = (4, 2) if left > 24 else (2, 1)
        wrong = [
            _one_line(line) for line in _wrong(status, *most, f"{status.path}/", brief=left <= 24)
        ]
        wrong = wrong[: max(1, left - 1 - 2 * LEAST_ROWS)]
        rows = _share(left - len(wrong) - bool(wrong), tasks, workers)
        head = [_one_line(line) for line in head]
    parts: list[RenderableType] = [*head, Text(), *_task_table(status, rows[0], width)]
    if status.workers:
        parts += [Text(), *_worker_table(status, rows[1], width)]
    if wrong:
        parts += [Text(), *wrong]
    if status.report:
        parts.append(Text(f"report: {status.report}"))
    return Group(*parts)


def shards_bar(shards: ShardCounts, width: int) -> Text:
    """A bar of shards by state; each state that occurs gets at least one cell."""
    total = max(1, shards.total())
    bar, used = Text(), 0
    for name, colour in SEGMENTS:
        count = getattr(shards, name)
        cells = min(width - used, max(1, round(width * count / total))) if count else 0
        if name == "done" and count < total:
            cells = min(cells, width - 1)
        bar.append((FAILED if name == "failed" else "━") * cells, colour)
        used += cells
    return bar.append(EMPTY * (width - used), "bright_black")


def _head(status: ExperimentStatus, width: int) -> list[Text]:
    first = Text.assemble((status.id, "bold"), "  ", (status.state, COLOURS[status.state]))
    if status.reason:
        first.append(f": {status.reason}")
    first.append(f"  {status.executor}", "dim")
    if status.round > 1:
        first.append(f"  round {status.round}", "dim")
    if status.jobs:
        listed = ", ".join(f"{count} {state.lower()}" for state, count in status.jobs.items())
        first.append(f"  jobs: {listed}", "dim")
    share = status.answered / status.samples if status.samples else 0.0
    second = shards_bar(status.shards, max(12, min(40, width - 50)))
    second.append(f"  {int(100 * share)} %", "bold").append(
        f"  {status.answered:,}/{status.samples:,} samples done"
    )
    if status.rate:
        second.append(f"  {_rate(status.rate)}")
    lines = [first, second, _shards_line(status.shards)]
    if status.eta is not None:
        line = Text.assemble("last answer ", (status.eta.text, "bold"))
        lines.append(line.append(f"  ({100 * status.eta.confidence:.0f} % sure)", "dim"))
    if status.spending is not None:
        lines.append(Text(f"spent {status.spending.text}", "dim"))
    if agents := _agents(status.run_tasks):
        lines.append(Text(agents, "dim"))
    return lines


def _shards_line(shards: ShardCounts) -> Text:
    line = Text.assemble(("shards ", "dim"))
    colours = dict(SEGMENTS)
    parts = [(name, count) for name, count in asdict(shards).items() if count]
    for place, (name, count) in enumerate(sorted(parts, key=lambda part: part[0] != "done")):
        line.append(" · " if place else "", "dim")
        line.append(f"{count:,} {name}", colours.get(name, "default"))
    return line


def _waits(status: ExperimentStatus) -> list[Text]:
    lines = [
        Text.assemble(
            ("◌ ", "yellow"),
            (wait.step or wait.job) + (f" ×{wait.count}" if wait.count > 1 else "") + " ",
            (wait.why, "yellow"),
        )
        for wait in status.waits[:4]
    ]
    if len(status.waits) > 4:
        lines.append(Text(f"  and {len(status.waits) - 4} more arrays wait", "dim"))
    if status.deferred:
        lines.append(
            Text(
                f"◌ {status.deferred} workers wait for submission: Slurm limits the number of jobs",
                "yellow",
            )
        )
    if status.slurm is not None and status.slurm.fault:
        old = (
            f"its last answer is {duration(status.time - status.slurm.time)} old"
            if status.slurm.time
            else "it has never answered"
        )
        lines.append(
            Text.assemble(("! ", "yellow"), f"Slurm does not answer ({status.slurm.fault}); {old}")
        )
    if status.needs:
        lines.append(Text(f"→ {status.needs}", "bold yellow"))
    return lines


def _share(left: int, tasks: int, workers: int) -> tuple[int, int]:
    """Rows for run tasks and workers: halves; rows that one table does not need go to the other."""
    left = max(left, 2 * LEAST_ROWS)
    for_tasks = min(tasks, max(left // 2, left - workers))
    return for_tasks, min(workers, left - for_tasks)


def _task_table(status: ExperimentStatus, rows: int, width: int) -> list[RenderableType]:
    run_tasks = status.run_tasks
    shown = list(run_tasks)
    if len(shown) > rows:
        order = {
            one.name: (FIRST[one.state], -(one.rate or 0.0), place)
            for place, one in enumerate(shown)
        }
        chosen = {one.name for one in sorted(shown, key=lambda one: order[one.name])[:rows]}
        shown = [one for one in shown if one.name in chosen]
    wide = width >= WIDE
    rates = wide and status.state not in ENDED
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    table.add_column("run task", overflow="ellipsis", no_wrap=True, max_width=max(16, width // 3))
    if wide:
        table.add_column("model", overflow="ellipsis", no_wrap=True, style="dim", max_width=30)
    table.add_column("state", no_wrap=True)
    table.add_column("")
    for title in ("samples", "shards") + (("rate",) if rates else ()):
        table.add_column(title, justify="right", no_wrap=True)
    for one in shown:
        cells: list[RenderableType] = [one.name]
        if wide:
            cells.append(one.model)
        cells += [
            Text(one.state, COLOURS[one.state]),
            _bar(one, 20 if wide else 10),
            f"{one.answered:,}/{one.samples:,}",
            f"{one.shards.done:,}/{one.shards.total():,}",
        ]
        if rates:
            cells.append(Text(_rate(one.rate) if one.rate else "", "dim"))
        table.add_row(*cells)
    parts: list[RenderableType] = [table]
    parts += [
        Text(
            f"  {one.name} is {one.state}: {one.reason}",
            "" if one.state == "done" else "red",
            no_wrap=True,
            overflow="ellipsis",
        )
        for one in shown
        if one.reason
    ][:3]
    if len(run_tasks) > len(shown):
        names = {one.name for one in shown}
        rest = Counter(one.state for one in run_tasks if one.name not in names)
        listed = ", ".join(f"{count:,} {state}" for state, count in rest.most_common())
        parts.append(Text(f"and {rest.total():,} more: {listed}", "dim"))
    return parts


def _worker_table(status: ExperimentStatus, rows: int, width: int) -> list[RenderableType]:
    worst = {"silent": 0, "working": 1, "loading": 2, "starting": 3, "idle": 4}
    order = sorted(status.workers, key=lambda one: (worst[one.state], one.node, one.id))
    shown, rest = order[:rows], order[rows:]
    wide, gpus = width >= WIDE, any(one.gpus for one in order)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=16 if wide else 12)
    if wide:
        table.add_column("worker", no_wrap=True)
        table.add_column("model", no_wrap=True, overflow="ellipsis", style="dim", max_width=30)
    room = max(20, width // 3)
    table.add_column("shard", no_wrap=True, overflow="ellipsis", max_width=room)
    table.add_column("", justify="right", no_wrap=True)
    if gpus:
        table.add_column("GPU", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True, style="dim")
    for one in shown:
        cells: list[RenderableType] = [one.node, *((one.job, one.model or "") if wide else ())]
        cells += [_doing(one, wide, room), _far(one, status.time)]
        cells += [_gpus(one, 4 if wide else 1)] if gpus else []
        table.add_row(*cells, duration(status.time - one.since))
    parts: list[RenderableType] = [table]
    if rest:
        counted = Counter(one.state for one in rest)
        listed = ", ".join(f"{count:,} {state}" for state, count in counted.most_common())
        parts.append(Text(f"and {len(rest):,} more workers: {listed}", "dim"))
    return parts


def _doing(worker: WorkerStatus, wide: bool, room: int) -> Text:
    if worker.shard:
        # Its number is at the end.
        cut = len(worker.shard) > room
        return Text(f"…{worker.shard[1 - room :]}" if cut else worker.shard)
    model = f" {worker.model}" if worker.state == "loading" and worker.model and not wide else ""
    return Text(worker.state + model, COLOURS[worker.state])


def _far(worker: WorkerStatus, now: float) -> Text:
    if worker.state == "silent":
        return Text(f"silent {duration(now - worker.heard)}", COLOURS["silent"])
    return Text(f"{worker.answered}/{worker.samples}" if worker.shard else "")


def _gpus(worker: WorkerStatus, most: int) -> Text:
    """Utilisation of each GPU, or the mean of more than `most`, and the memory in use on all."""
    known = [one for one in worker.gpus if one.utilisation is not None or one.used_gb is not None]
    if not known:
        return Text()
    used = sum(one.used_gb or 0.0 for one in known)
    shares = [one.utilisation for one in known if one.utilisation is not None]
    text = Text()
    for share in shares if len(shares) <= most else [sum(shares) / len(shares)]:
        text.append("▁▂▃▄▅▆▇█"[min(7, int(share / 12.5))], _heat(share)).append(f"{share:3.0f} % ")
    if len(shares) > most:
        text.append(f"×{len(shares)} ", "dim")
    return text.append(f"{used:.0f} GiB", "dim")


def _heat(share: float) -> str:
    return "green" if share >= 60 else "yellow" if share >= 15 else "bright_black"


def _wrong(
    status: ExperimentStatus, failures: int, alarms: int, below: str, *, brief: bool
) -> list[Text]:
    """Failures and alarms.

    Args:
        status: the status to show.
        failures: most failures to show.
        alarms: most alarms to show.
        below: folder that is cut from the path of each log.
        brief: leave out places and times.
    """
    lines: list[Text] = []
    for mark, colour, found, most in (
        ("✗", "red", status.failures, failures), ("!", "yellow", status.alarms, alarms),
    ):  # fmt: skip
        for one in found[:most]:
            line = Text.assemble((f"{mark} ", colour))
            line.append(f"×{one.count:,} " if one.count > 1 else "", "bold")
            lines.append(line.append(one.line))
            if not brief:
                lines.append(Text(f"  {_where(one, status.time, below)}", "dim"))
        if len(found) > most:
            rest = sum(one.count for one in found[most:])
            causes = len(found) - most
            lines.append(
                Text(
                    f"  and {causes} more {'cause' if causes == 1 else 'causes'}, ×{rest:,}", "dim"
                )
            )
    return lines


def _where(one: Failure, now: float, below: str) -> str:
    """Affected models or run tasks, nodes, time, and a log file."""
    whom = _names(one.models or one.run_tasks)
    where = f"on {_names(one.nodes)}" if one.nodes else ""
    when = f"{duration(now - one.last)} ago" if one.last else ""
    text = ", ".join(part for part in (whom, where, when) if part)
    log = (one.log or "").removeprefix(below)
    return f"{text}{'; ' if text and log else ''}{log}"


def _names(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
    )


def _bar(run_task: RunTaskStatus, width: int) -> Text:
    share = run_task.answered / run_task.samples if run_task.samples else 0.0
    full = min(width, int(width * share + 0.5)) if share < 1 else width
    full = min(full, width - 1) if share < 1 else width
    colour = COLOURS[run_task.state]
    return Text.assemble(("━" * full, colour), (EMPTY * (width - full), "bright_black"))


def _agents(run_tasks: Sequence[RunTaskStatus]) -> str:
    """`agents: 120 turns and 85 tool calls so far, 8 samples in work`; empty without agents."""
    own = [one for one in run_tasks if one.turns is not None]
    if not own:
        return ""
    turns, calls, working = (
        sum(getattr(one, name) or 0 for one in own) for name in ("turns", "tool_calls", "working")
    )
    said = f"agents: {many(turns, 'turn')} and {many(calls, 'tool call')}"
    return said + (f" so far, {many(working, 'sample')} in work" if working else "")


def _rate(rate: float) -> str:
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
