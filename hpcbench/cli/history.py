"""`hpcbench history`: a metric over all experiments, and the points at which its level changed."""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.output import console, day, print_json, say, table
from hpcbench.errors import UserError, unknown
from hpcbench.experiment.layout import home
from hpcbench.number_format import four_digits
from hpcbench.registry.catalog import user_site

if TYPE_CHECKING:
    from hpcbench.comparison.history import Trend
    from hpcbench.reporting.figures import Figure
    from hpcbench.statistics.changes import Change

BARS = "▁▂▃▄▅▆▇█"
LONGEST = 40
"""Newest points that a sparkline shows."""

SHOWN = 30
"""Newest points of a trend that are listed; `--csv` has all."""

DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


def history(arguments: argparse.Namespace) -> int:
    """`hpcbench history METRIC`."""
    from hpcbench.comparison import history as past

    root = home(user_site())
    if arguments.rebuild:
        count = past.rebuild(root, say)
        say(f"the history has {count} experiments")
        if arguments.metric is None:
            return 0
    else:
        past.catch_up(root)
    names = past.known(root)
    if arguments.metric is None:
        print_json(names) if arguments.json else print(
            "\n".join(names) or "no experiment has ended yet"
        )
        return 0
    found = past.trends(
        root,
        arguments.metric,
        plan=arguments.plan,
        run_task=arguments.run_task,
        since=_since(arguments.since),
    )
    if not found and not set(arguments.metric) & set("*?[") and arguments.metric not in names:
        raise UserError(unknown("metric or figure", arguments.metric, names))
    if arguments.plot is not None:
        _draw(found, arguments.plot, root)
    if arguments.json:
        print_json([one.to_json() for one in found])
    elif arguments.csv:
        _print_csv(found)
    else:
        _print(found)
    return 0


def _since(text: str | None) -> float:
    """A date or an age, as seconds since the epoch."""
    if text is None:
        return 0.0
    if match := re.fullmatch(r"([0-9]{1,4})([dwmy])", text):
        return time.time() - int(match[1]) * DAYS[match[2]] * 86400
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        remedy = "give a date such as 2026-11-01, or 90d, 12w, 6m, 1y"
        raise UserError(f"--since {text} is not a date or an age", remedy=remedy) from None


def _print(found: Sequence[Trend]) -> None:
    if not found:
        say("no experiment that is done has such a value")
    for one in found:
        out = console()
        values = [point.value for point in one.points]
        arrow = "↑" if one.higher_is_better else "↓"
        of = f" ({one.made_by})" if one.made_by else ""
        out.print(f"{one.plan} / {one.run_task}: {one.name} {arrow}{of}", soft_wrap=True)
        out.print(f"  {sparkline(values)}  {len(values)} points, newest {four_digits(values[-1])}")
        changed = {change.at: change for change in one.changes}
        titles = ("", "time", "experiment", "value", "95 % interval", "change")
        shown = table(*titles, right=("value", "95 % interval"))
        for place in range(max(0, len(values) - SHOWN), len(values)):
            point, change = one.points[place], changed.get(place)
            interval = ""
            if point.low is not None and point.high is not None:
                interval = f"[{four_digits(point.low)}, {four_digits(point.high)}]"
            mark = ""
            if change is not None:
                better = (change.after > change.before) == one.higher_is_better
                word = "[green]better[/]" if better else "[bold red]worse[/]"
                seen = time.strftime("%Y-%m-%d", time.localtime(one.points[change.seen].time))
                mark = f"◆ {word}: {_step(change)}, detected {seen}"
            when = day(point.time)
            shown.add_row(" ", when, point.experiment, four_digits(point.value), interval, mark)
        out.print(shown)
        out.print()
    for line in _read_otherwise(found):
        say(line)


def _read_otherwise(found: Sequence[Trend]) -> Iterator[str]:
    """How to join trends that differ only in the parser's version."""
    from hpcbench.evaluation.versions import other_reading

    newest: dict[tuple[str, ...], Trend] = {}
    for one in sorted(found, key=lambda one: one.points[-1].time):
        of = (one.plan, one.run_task, one.name, one.signature)
        before = newest.get(of)
        newest[of] = one
        if before is not None:
            ids = before.points[-1].experiment, one.points[-1].experiment
            why, remedy = other_reading((before.reading, one.reading), ids) or ("", "")
            more = len(before.points) - 1
            also = f" and for the {more} before it" if more else ""
            if why:
                what = f"{one.run_task}, {one.name}: {why}"
                yield f"{what}: {remedy}{also}, then `hpcbench history --rebuild`"


def sparkline(values: Sequence[float]) -> str:
    """The newest values as small bars, from the lowest value to the highest."""
    shown = values[-LONGEST:]
    low, high = min(shown), max(shown)
    if low == high:
        return BARS[3] * len(shown)
    step = (high - low) / (len(BARS) - 1)
    return "".join(BARS[round((value - low) / step)] for value in shown)


def _print_csv(found: Sequence[Trend]) -> None:
    """Print one line per point. A definition's name begins with a letter or digit, so it is no formula."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(
        (
            "plan", "run_task", "name", "signature", "time", "experiment", "value", "low", "high",
            "change", "reading",
        )
    )  # fmt: skip
    for one in found:
        changed = {change.at for change in one.changes}
        for place, point in enumerate(one.points):
            out.writerow(
                (
                    one.plan, one.run_task, one.name, one.signature, f"{point.time:.0f}",
                    point.experiment, point.value, point.low, point.high, int(place in changed),
                    one.reading,
                )
            )  # fmt: skip


def _draw(found: Sequence[Trend], path: Path, root: Path) -> None:
    """Draw one metric as a picture, or several on one page.

    Raises:
        UserError: an unsupported format, or several metrics for one picture.
    """
    from hpcbench.files.atomic import write_atomic
    from hpcbench.reporting import figures

    form = path.suffix.lower()
    if form not in (".svg", ".png", ".html"):
        what = f"--plot {path} has another suffix than .svg, .png or .html"
        raise UserError(what, remedy="for example --plot history.html")
    names = list(dict.fromkeys(one.name for one in found))
    if form != ".html" and len(names) > 1:
        what = f"{len(names)} metrics do not fit one picture"
        raise UserError(what, remedy="name one metric, or FILE.html for all")
    drawn = [_figure([one for one in found if one.name == name]) for name in names]
    if not drawn:
        raise UserError(
            "no values to plot", remedy="`hpcbench history` lists the metrics that have some"
        )
    if form == ".svg":
        write_atomic(path, figures.svg(drawn[0]))
    elif form == ".png":
        write_atomic(path, figures.png(drawn[0]))
    else:
        write_atomic(path, _page(drawn, root))
    say(f"wrote {path}")


def _figure(found: Sequence[Trend]) -> Figure:
    """Trends of one metric, one line each, with rings at changes of level."""
    from hpcbench.reporting.charts import Moment, history

    lines: dict[str, list[Moment]] = {}
    notes = []
    for one in found:
        name = f"{one.plan} / {one.run_task}"
        if [(other.plan, other.run_task) for other in found].count((one.plan, one.run_task)) > 1:
            name += f", {one.made_by or 'unknown hardware'}"
        at = {change.at for change in one.changes}
        lines[name] = [
            Moment(point.time, point.experiment, point.value, point.low, point.high, place in at)
            for place, point in enumerate(one.points)
        ]
        notes += [
            f"{name}, {one.points[change.at].experiment}: {_step(change)} "
            f"(detected with {one.points[change.seen].experiment})"
            for change in one.changes
        ]
    arrow = "↑" if found[0].higher_is_better else "↓"
    figure = history(f"{found[0].name} {arrow}", lines, notes=notes)
    assert figure is not None  # a trend has points
    return figure


def _step(change: Change) -> str:
    return f"{four_digits(change.before)} → {four_digits(change.after)}"


def _page(drawn: Sequence[Figure], root: Path) -> str:
    """All figures on one page in the style of reports, each with its table."""
    import hpcbench
    from hpcbench.reporting.blocks import Plot, Section
    from hpcbench.reporting.formats import html

    head = {
        "id": str(root),
        "plan": {"name": "History", "description": "Metrics of experiments, in order of time."},
        "manifest": {"hpcbench": hpcbench.__version__},
    }
    found = [Section(figure.name, figure.title, (Plot(figure),)) for figure in drawn]
    return html.written(head, found, {})
