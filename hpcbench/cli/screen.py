"""What the verbs print: tables on a terminal, plain lines when piped, JSON on request."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hpcbench.data.progress import Moved, Progress, size_text
from hpcbench.errors import RunFailed
from hpcbench.experiment.files import read_json
from hpcbench.experiment.layout import Experiment
from hpcbench.launch.status import ENDED, ExperimentStatus, RunTaskStatus
from hpcbench.launch.status import status as status_of
from hpcbench.reporting.tables import format_interval, format_value, metric_rows, speed_rows

POLL_SECONDS = {"local": 0.5, "slurm": 5.0}
"""How often `watch` looks: each look under Slurm is a question to slurmctld."""

COLOURS = {
    "done": "green", "running": "cyan", "evaluating": "cyan", "pending": "yellow",
    "submitting": "yellow", "failed": "red", "incomplete": "red", "lost": "red",
    "cancelled": "red", "interrupted": "red",
}  # fmt: skip


def console() -> Console:
    """Standard output; wide enough when piped that nothing is cut."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=160)


def print_json(data: Any) -> None:
    """JSON for programs."""
    print(json.dumps(data, ensure_ascii=False, indent=2))


def say(line: str) -> None:
    """News for people; not on standard output, which may be piped."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def transfer_bar() -> Iterator[Progress]:
    """A bar with rate and time left while something is transferred; plain lines when piped."""
    err = Console(stderr=True, highlight=False)
    if not err.is_terminal:
        yield _PlainProgress()
        return
    from rich import progress as rich_progress
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(30), DownloadColumn(binary_units=True),
        TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with rich_progress.Progress(*columns, console=err, transient=True) as shown:
        task = shown.add_task("", total=None, visible=False)

        def tell(moved: Moved) -> None:
            files = f"  {moved.files}/{moved.of_files} files" if moved.of_files else ""
            total = moved.of_bytes or None
            shown.update(
                task,
                description=f"{moved.what}{files}",
                completed=moved.bytes,
                total=total,
                visible=True,
            )

        yield tell


class _PlainProgress:
    """A line whenever something else goes on, and every ten seconds."""

    def __init__(self) -> None:
        self.what, self.told = "", 0.0

    def __call__(self, moved: Moved) -> None:
        now = time.monotonic()
        if moved.what == self.what and now - self.told < 10:
            return
        self.what, self.told = moved.what, now
        if moved.of_files:
            done, whole = size_text(moved.bytes), size_text(moved.of_bytes)
            say(f"{moved.what}: {done} of {whole}, {moved.files} of {moved.of_files} files")
        else:
            say(moved.what)


def status_screen(status: ExperimentStatus) -> RenderableType:
    """The screen of `status` and `watch`."""
    head = Text.assemble(
        (status.id, "bold"), "  ", (status.state, COLOURS[status.state]), f"  {status.executor}"
    )
    if status.workers:
        listed = ", ".join(f"{count} {state.lower()}" for state, count in status.workers.items())
        head.append(f"  jobs: {listed}")
    if status.round > 1:
        head.append(f"  round {status.round}")
    if status.pending_reason:
        head.append(f"  waiting: {status.pending_reason}", "yellow")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("run task", "state", "", "answered", "shards"):
        table.add_column(title, justify="right" if title in ("answered", "shards") else "left")
    for run_task in status.run_tasks:
        table.add_row(
            run_task.name,
            Text(run_task.state, COLOURS[run_task.state]),
            _bar(run_task),
            f"{run_task.answered}/{run_task.samples}",
            f"{run_task.shards_done}/{run_task.shards}",
        )
    parts: list[RenderableType] = [head, table]
    for trouble in status.troubles:
        where = trouble.model or trouble.run_task or trouble.node or ""
        times = f" (×{trouble.count})" if trouble.count > 1 else ""
        parts.append(Text.assemble(("! ", "red"), f"{where}: {trouble.message}{times}"))
        if trouble.log:
            parts.append(Text(f"  log: {trouble.log}", "dim"))
    if status.report:
        parts.append(Text(f"report: {status.report}"))
    return Group(*parts)


def follow(experiment: Experiment, *, silent: bool = False) -> ExperimentStatus:
    """Show an experiment until it has ended; one line a change when piped."""
    out = console()
    pause = POLL_SECONDS[experiment.resolved.executor]
    status = status_of(experiment)
    if silent or not out.is_terminal:
        return _follow_plainly(experiment, status, pause, silent)
    with Live(status_screen(status), console=out, refresh_per_second=4) as live:
        while status.state not in ENDED:
            time.sleep(pause)
            status = status_of(experiment)
            live.update(status_screen(status))
    return status


def finish(experiment: Experiment, *, as_json: bool = False) -> int:
    """Follow an experiment to its end and print what came out."""
    ended = follow(experiment, silent=as_json)
    if as_json:
        print_json(ended.model_dump(mode="json"))
    else:
        out = console()
        if ended.troubles and not out.is_terminal:
            out.print(status_screen(ended))
        if experiment.metrics_file.exists():
            out.print()
            out.print(metric_table(experiment))
            for table in sweep_tables(experiment):
                out.print()
                out.print(table)
        if ended.report:
            out.print(f"\nreport: {ended.report}", soft_wrap=True)
    if ended.state != "done":
        raise RunFailed(f"{experiment.id} is {ended.state}: `hpcbench status {experiment.id}`")
    return 0


def metric_table(experiment: Experiment) -> Table:
    """The scores with their intervals."""
    metrics: Mapping[str, Any] = read_json(experiment.metrics_file)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, justify in (
        ("run task", "left"), ("metric", "left"), ("value", "right"), ("95 % interval", "right"),
        ("n", "right"), ("documents", "right"), ("coverage", "right"),
    ):  # fmt: skip
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    previous = ""
    for row in metric_rows(metrics):
        arrow = "↑" if row.higher_is_better else "↓"
        table.add_row(
            row.run_task if row.run_task != previous else "",
            f"{row.metric} {arrow}",
            format_value(row),
            format_interval(row),
            str(row.n),
            str(row.clusters),
            f"{row.coverage:.1%}",
        )
        previous = row.run_task
    return table


def sweep_tables(experiment: Experiment) -> Iterator[Table]:
    """Each sweep with its points."""
    performance: Mapping[str, Any] = read_json(experiment.performance_file)
    for name, sweep in performance["sweeps"].items():
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column(name)
        for title in ("answered", "answers/s", "TTFT p50 / p95, ms", "E2E p50 / p95, ms", "good/s"):
            table.add_column(title, justify="right")
        table.add_column("")
        for row in speed_rows(performance, sweep["points"]):
            table.add_row(
                row.load, row.answered, row.answers, row.ttft, row.e2e, row.good, row.marks
            )
        yield table


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a file."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - lines * 400))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def _follow_plainly(
    experiment: Experiment, status: ExperimentStatus, pause: float, silent: bool
) -> ExperimentStatus:
    last = ""
    while True:
        answered = sum(run_task.answered for run_task in status.run_tasks)
        samples = sum(run_task.samples for run_task in status.run_tasks)
        line = f"{status.id} {status.state} {answered}/{samples} answered"
        if line != last and not silent:
            print(line, flush=True)
        last = line
        if status.state in ENDED:
            return status
        time.sleep(pause)
        status = status_of(experiment)


def _bar(run_task: RunTaskStatus, width: int = 20) -> Text:
    full = round(width * run_task.answered / run_task.samples)
    return Text.assemble(("━" * full, COLOURS[run_task.state]), ("━" * (width - full), "dim"))
