"""Output of the verbs: tables on a terminal, plain lines when piped, JSON on request.

Drawing modules are imported only when needed: a program that asks for JSON does not wait for them.
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.data.progress import Moved, Progress, size_text
from hpcbench.errors import RunFailed
from hpcbench.experiment.ending import remarks
from hpcbench.experiment.layout import Experiment

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hpcbench.status import ExperimentStatus, Observer

POLL_SECONDS = {"local": 0.5, "slurm": 5.0}
"""Seconds between two looks of `watch` at the files; queries of Slurm are rarer and serve all readers."""


PLAIN_SECONDS = 10.0
"""Least time between two lines of progress when piped; a change of state or a failure is printed at once."""

TELLING_SECONDS = 60.0
"""Longest wait, in seconds, until trackers and notifiers know of an experiment's end."""


def console() -> Console:
    """Standard output; wide enough when piped that no cell is cut."""
    from rich.console import Console

    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=160)


def print_json(data: Any) -> None:
    """Print JSON for programs."""
    print(json.dumps(data, ensure_ascii=False, indent=2))


def say(line: str) -> None:
    """Print news for people to stderr, as stdout may be piped."""
    print(line, file=sys.stderr, flush=True)


def day(seconds: float) -> str:
    """A time, to the minute, for people here."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


class Notes(list[str]):
    """Notes that a verb prints as they come, and gives again in its JSON."""

    def __init__(self, mark: str = "") -> None:
        super().__init__()
        self._mark = mark

    def __call__(self, line: str) -> None:
        self.append(line)
        say(f"{self._mark}{line}")


@contextlib.contextmanager
def working(line: str) -> Iterator[Callable[[str], None]]:
    """A line with a moving sign on a terminal while the block runs, plain lines when piped.

    Yields a function that replaces the line.
    """
    out = console()
    if not out.is_terminal:
        say(line)
        yield say
        return
    with out.status(line) as status:
        yield status.update


def table(*titles: str, right: Collection[str] = ()) -> Table:
    """A table without lines, with columns by title; columns of numbers are aligned right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        made.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return made


@contextlib.contextmanager
def transfer_bar() -> Iterator[Progress]:
    """A bar with rate and remaining time during a transfer; plain lines when piped."""
    from rich.console import Console

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
        what = ""

        def tell(moved: Moved) -> None:
            nonlocal what
            if moved.what != what:  # bytes from before this transfer do not count for its rate
                what = moved.what
                shown.reset(task, completed=moved.bytes, description=what)
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
    """Prints a line at each new transfer, and every ten seconds."""

    def __init__(self) -> None:
        self.what, self.printed_at = "", 0.0
        self.started_at, self.before = 0.0, 0  # start of the transfer, and bytes present then

    def __call__(self, moved: Moved) -> None:
        now = time.monotonic()
        if moved.what == self.what and now - self.printed_at < 10:
            return
        if moved.what != self.what:
            self.started_at, self.before = now, moved.bytes
        self.what, self.printed_at = moved.what, now
        if moved.of_files:
            done, whole = size_text(moved.bytes), size_text(moved.of_bytes)
            files = f"{moved.files} of {moved.of_files} files"
            say(f"{moved.what}: {done} of {whole}, {files}{self._rate(moved, now)}")
        else:
            say(moved.what)

    def _rate(self, moved: Moved, now: float) -> str:
        """Bytes a second and the remaining time, once bytes have arrived."""
        if now <= self.started_at or moved.bytes <= self.before:
            return ""
        rate = (moved.bytes - self.before) / (now - self.started_at)
        left = timedelta(seconds=round(max(0, moved.of_bytes - moved.bytes) / rate))
        return f", {size_text(rate)}/s, {left} left"


def follow(
    experiment: Experiment, *, silent: bool = False, until: float = math.inf
) -> ExperimentStatus:
    """Show an experiment until it has ended; when piped, one line per change.

    Args:
        experiment: the experiment.
        silent: print nothing.
        until: return before it has ended at this time of the monotonic clock.
    """
    # Imported only here: most verbs print without a status, whose modules take a tenth of a second.
    from hpcbench.cli.due import do_what_is_due
    from hpcbench.cli.status_screen import StatusScreen
    from hpcbench.status import ENDED, Observer

    out = console()
    pause = POLL_SECONDS[experiment.resolved.executor]
    observer = Observer(experiment)
    status = observer.look()
    if silent or not out.is_terminal:
        return _follow_plainly(experiment, observer, status, pause, silent, until)
    from rich.live import Live

    with Live(StatusScreen(status, live=True), console=out, auto_refresh=False) as live:
        live.refresh()
        while status.state not in ENDED and time.monotonic() < until:
            time.sleep(pause)
            status = observer.look()
            live.update(StatusScreen(status, live=True), refresh=True)
            do_what_is_due(experiment, status)
        live.update(
            StatusScreen(_before_scores(status)), refresh=True
        )  # at the end with all causes
    return status


def _before_scores(status: ExperimentStatus) -> ExperimentStatus:
    """The status for a screen above the scores, below which the report is named."""
    return replace(status, report=None)


def finish(experiment: Experiment, *, as_json: bool = False) -> int:
    """Follow an experiment to its end and print its results; Ctrl-C leaves it running."""
    from hpcbench.experiment.submission_lock import wait_for_others

    try:
        ended = follow(experiment, silent=as_json)
        wait_for_others(experiment, TELLING_SECONDS)
    except KeyboardInterrupt:
        say(f"{experiment.id} continues; `hpcbench watch {experiment.id}` shows it again")
        return 130
    if as_json:
        print_json(asdict(ended))
    else:
        from hpcbench.cli.status_screen import StatusScreen
        from hpcbench.experiment.view.metrics_json import metrics_of

        out = console()
        if (ended.failures or ended.alarms) and not out.is_terminal:
            out.print(StatusScreen(_before_scores(ended)))
        if experiment.metrics_file.exists():
            out.print()
            out.print(metric_table(experiment))
            for line in remarks(metrics_of(experiment).run_tasks):
                out.print(line, soft_wrap=True, markup=False)
            for table in sweep_tables(experiment):
                out.print()
                out.print(table)
        if ended.report:
            out.print(_how_to_see(experiment, Path(ended.report)), soft_wrap=True, markup=False)
    if ended.state != "done":
        why = f" ({ended.reason})" if ended.reason else ""
        raise RunFailed(
            f"{experiment.id} is {ended.state}{why}: see `hpcbench status {experiment.id}`"
        )
    return 0


def no_scores(experiment: Experiment) -> RunFailed:
    """The error of a verb that needs scores where there are none: the run goes on, or was cancelled."""
    return RunFailed(
        f"{experiment.id} has no scores yet: `hpcbench status {experiment.id}` shows its state, and "
        f"`hpcbench score {experiment.id}` scores the answers that it has"
    )


def _how_to_see(experiment: Experiment, report: Path) -> str:
    """Path of the report, as a page if there is one, and how to open it."""
    page = report.with_suffix(".html")
    if not page.exists():
        return f"\nreport: {report}"
    return (
        f"\nreport: {page}\n"
        f"  in a browser on this machine: hpcbench report {experiment.id} --open; "
        f"on your own machine: scp {platform.node()}:{page} . or hpcbench portal"
    )


def metric_table(experiment: Experiment) -> Table:
    """The scores with their intervals."""
    from hpcbench.experiment.view.metrics_json import metrics_of
    from hpcbench.reporting.printed_tables import metric_cells, metric_rows

    metrics = metrics_of(experiment).run_tasks
    numbers = ("value", "95 % interval", "n", "documents", "coverage")
    shown = table("run task", "metric", *numbers, right=numbers)
    previous = ""
    for row in metric_rows(metrics):
        name, *cells = metric_cells(row)
        shown.add_row(name if name != previous else "", *cells)
        previous = name
    return shown


def sweep_tables(experiment: Experiment) -> Iterator[Table]:
    """One table per sweep, with its points."""
    from hpcbench.experiment.view.performance_json import performance_of
    from hpcbench.reporting.printed_tables import speed_rows

    performance = performance_of(experiment)
    for name, sweep in performance.sweeps.items():
        numbers = (
            "responded",
            "answers/s",
            "TTFT p50 / p95, ms",
            "E2E p50 / p95, ms",
            "goodput, 1/s",
        )
        shown = table(name, *numbers, right=numbers)
        for row in speed_rows(performance, sweep.points):
            shown.add_row(row.load, row.answered, row.answers, row.ttft, row.e2e, row.good)
        yield shown


def _follow_plainly(
    experiment: Experiment,
    observer: Observer,
    status: ExperimentStatus,
    pause: float,
    silent: bool,
    until: float,
) -> ExperimentStatus:
    from hpcbench.cli.due import do_what_is_due
    from hpcbench.status import ENDED
    from hpcbench.status.experiment_status import counted

    printed, last, when = "", None, 0.0
    while True:
        line = f"{status.id} {status.state} {status.answered:,}/{status.samples:,} samples done"
        if wrong := counted(status.failures):
            line += f", {wrong}"
        if status.reason:
            line += f": {status.reason}"
        news = (status.state, wrong, status.reason)
        due = news != last or time.monotonic() - when >= PLAIN_SECONDS
        if line != printed and due and not silent:
            print(line, flush=True)
            printed, last, when = line, news, time.monotonic()
        if status.state in ENDED or time.monotonic() >= until:
            return status
        if not do_what_is_due(experiment, status):
            time.sleep(pause)
        status = observer.look()
