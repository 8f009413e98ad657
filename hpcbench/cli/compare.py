"""`hpcbench compare`: candidates compared with a baseline, sample by sample."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.cli.output import console, print_json, say, table
from hpcbench.errors import UserError
from hpcbench.experiment.layout import Experiment, find_scored, home
from hpcbench.registry.catalog import user_site
from hpcbench.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

STYLE = {"better": "green", "worse": "red", "equivalent": "blue", "inconclusive": "yellow"}

FLIPS = 3
"""Number of lost and won samples that are printed without --flips."""

MANY_FLIPS = 1_000
"""From this number of flips on, JSON is not indented."""

MOST_DIFFERENCES = 40
"""Number of configuration differences that are printed; --json and --report have all."""

_CELL = 48
"""Characters of a text in a cell of a table."""

MOST_PACKAGES = 6
"""Number of further differences, in packages of images, that are printed; there may be a hundred."""

REPORTS = (".md", ".html")

_CSV = (
    "candidate", "baseline_task", "candidate_task", "metric", "change", "sample", "document",
    "baseline_score", "candidate_score", "baseline_answer", "candidate_answer", "references",
)  # fmt: skip


def compare(arguments: argparse.Namespace) -> int:
    """`hpcbench compare BASELINE CANDIDATE…`."""
    root = home(user_site())
    baseline = find_scored(root, arguments.baseline)
    candidates = [find_scored(root, name) for name in arguments.candidates]
    pairs = [_pair(text) for text in arguments.run_task]
    margins = dict(margin(text) for text in arguments.margin)
    _check(arguments, baseline, candidates)
    if arguments.sample is not None:
        return _show_sample(arguments, baseline, candidates, pairs)
    from hpcbench.comparison.account import account

    whole = arguments.json or arguments.flips_csv is not None
    comparison = account(
        baseline,
        candidates,
        pairs,
        arguments.metrics,
        margins,
        arguments.counting,
        common=arguments.common,
        most=arguments.flips if arguments.flips is not None or whole else FLIPS,
        every_metric=whole,
    )
    if arguments.flips_csv is not None:
        _write_flips(arguments.flips_csv, comparison)
    if arguments.report is not None:
        _write_report(arguments.report, comparison)
    if arguments.json:
        _print_json(comparison)
        return 0
    for one in comparison["candidates"]:
        _print(comparison, one, arguments)
    if comparison["comparisons"] > 1:
        print(
            f"\np after Holm's correction for {comparison['comparisons']} comparisons; "
            "the verdicts use it"
        )
    return 0


def _print_json(comparison: Mapping[str, Any]) -> None:
    """Print JSON; many flips go on one line, which takes a tenth of the time."""
    if sum(len(one["flips"]) for one in comparison["candidates"]) < MANY_FLIPS:
        print_json(comparison)
        return
    import json

    print(json.dumps(comparison, ensure_ascii=False))


def _check(
    arguments: argparse.Namespace, baseline: Experiment, candidates: Sequence[Experiment]
) -> None:
    if (
        any((one.path, one.id) == (baseline.path, baseline.id) for one in candidates)
        and not arguments.run_task
    ):
        raise UserError(
            "baseline and candidate are one experiment",
            remedy="name two of its run tasks: --run-task ONE=OTHER",
        )
    if len({(one.path, one.id) for one in candidates}) < len(candidates):
        raise UserError("two candidates are the same experiment", remedy="name it once")
    if arguments.flips is not None and arguments.flips < 0:
        raise UserError(f"--flips {arguments.flips} is negative", remedy="give 0 or more")
    if arguments.report is not None and arguments.report.suffix not in REPORTS:
        raise UserError(
            f"--report {arguments.report} has another suffix than .md or .html",
            remedy="for example --report compared.html",
        )


def _pair(text: str) -> tuple[str, str]:
    one, _, other = text.partition("=")
    return one, other or one


def margin(text: str, more: str = "") -> tuple[str, float]:
    """Parse `METRIC=0.01`, or `0.01` for all other metrics (`*`); `more` extends the error's remedy."""
    name, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf") or (equals and not name):
        what = f"--margin {text} is not a positive number"
        raise UserError(what, remedy=f"--margin 0.01, or --margin METRIC=0.01{more}")
    return name or "*", value


# --- files ---------------------------------------------------------------------------------------------


def _write_report(path: Path, comparison: Mapping[str, Any]) -> None:
    """Write the page; Markdown gets plots beside it. The page comes last: if it exists, it is complete."""
    from hpcbench.files.atomic import write_atomic
    from hpcbench.reporting.comparison import page

    files = page(comparison, path.suffix)
    whole = files.pop(path.suffix)
    for name, content in files.items():
        write_atomic(path.absolute().parent / name, content)
    write_atomic(path.absolute(), whole)
    say(f"report: {path}")


def _write_flips(path: Path, comparison: Mapping[str, Any]) -> None:
    """Write every flip as a row. A cell that a spreadsheet would read as a formula gets an apostrophe."""
    import csv
    import io

    from hpcbench.files.atomic import write_atomic

    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(_CSV)
    count = 0
    for candidate in comparison["candidates"]:
        for flip in candidate["flips"]:
            cells = [
                candidate["id"], flip["baseline"], flip["candidate"], flip["metric"], flip["change"],
                flip["sample"], flip["document"], *flip["scores"], *flip["answers"],
                " | ".join(flip["references"]),
            ]  # fmt: skip
            rows.writerow([_harmless(cell) if isinstance(cell, str) else cell for cell in cells])
            count += 1
    write_atomic(path.absolute(), text.getvalue())
    say(f"{count} flips: {path}")


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


# --- output --------------------------------------------------------------------------------------------


def _print(
    comparison: Mapping[str, Any], one: Mapping[str, Any], arguments: argparse.Namespace
) -> None:
    from hpcbench.comparison.speed import not_comparable

    out = console()
    if len(comparison["candidates"]) > 1 or out.is_terminal:
        out.print(f"\n[bold]{comparison['baseline']['id']} → {one['id']}[/]")
    for ended in filter(None, (comparison["baseline"]["ended"], one["ended"])):
        print(f"warning: {ended}")
    if one["compared"]:
        out.print(_scores(one["compared"]))
    for line in _notes(one):
        print(line)
    if one["speed"]:
        out.print()
        out.print(_speeds(one["speed"]))
    for line in not_comparable(one["speed"]):
        print(f"warning: {line}")
    for line in one["speed_notes"]:
        print(line)
    if one["flips"]:
        out.print()
        out.print(_flips(one["flips"]))
        print(
            f"all texts of a sample: {_command(arguments, one)} --sample {one['flips'][0]['sample']}"
        )
    if one["differences"]:
        out.print()
        shown = _shortlist(one["differences"])
        out.print(_differences(shown))
        if more := len(one["differences"]) - len(shown):
            print(f"and {more} more differences, mostly packages: --json and --report list them")


def _command(arguments: argparse.Namespace, one: Mapping[str, Any]) -> str:
    pairs = "".join(f" --run-task {text}" for text in arguments.run_task)
    place = arguments.candidates[0] if len(arguments.candidates) == 1 else one["id"]
    return f"hpcbench compare {arguments.baseline} {place}{pairs}"


def _scores(compared: Sequence[Mapping[str, Any]]) -> Table:
    from hpcbench.comparison.table_rows import metric_cells

    numbers = (
        "baseline", "candidate", "difference", "95 % interval", "p", "won/lost/same", "documents",
    )  # fmt: skip
    shown = table("run task", "metric", *numbers, "verdict", right=numbers)
    previous = ""
    for one in compared:
        name, *cells, verdict = metric_cells(one)
        styled = f"[{STYLE[verdict]}]{verdict}[/]"
        shown.add_row(name if name != previous else "", *cells, styled)
        previous = name
    return shown


def _notes(one: Mapping[str, Any]) -> Iterator[str]:
    """Facts that a reader needs to judge the table."""
    from hpcbench.comparison.table_rows import metric_notes, refusal_text

    for refused in one["refused"]:
        yield f"not compared: {refusal_text(refused)}"
    for compared in one["compared"]:
        for name, text in metric_notes(compared):
            yield f"{name}: {text}"
    for text in one["careful"]:
        yield f"warning: {text}"


def _speeds(figures: Sequence[Mapping[str, Any]]) -> Table:
    from hpcbench.comparison.table_rows import DETAILS, speed_cells

    numbers = ("baseline", "candidate", "ratio", "95 % interval")
    shown = table("run task", "speed and memory", *numbers, "", right=numbers)
    previous = ""
    for one in figures:
        if one["figure"].endswith(DETAILS):
            continue
        name, *cells = speed_cells(one)
        shown.add_row(
            name if name != previous else "", *cells, "" if one["comparable"] else "not comparable",
            style=None if one["comparable"] else "dim",
        )  # fmt: skip
        previous = name
    return shown


def _flips(flips: Sequence[Mapping[str, Any]]) -> Table:
    from rich.markup import escape

    from hpcbench import number_format as form
    from hpcbench.comparison.pairing import pair_name

    shown = table(
        "change", "sample", "document", "metric", "scores", "baseline's answer",
        "candidate's answer", right=("scores",),
    )  # fmt: skip
    for one in flips:
        scores = " → ".join(form.value(score) for score in one["scores"])
        texts = (escape(_line(text)) for text in one["answers"])
        color = STYLE["worse" if one["change"] == "lost" else "better"]
        shown.add_row(
            f"[{color}]{one['change']}[/]", escape(_line(one["sample"])),
            escape(_line(one["document"])),
            f"{pair_name(one['baseline'], one['candidate'])}, {one['metric']}", scores, *texts,
        )  # fmt: skip
    return shown


def _shortlist(differences: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The differences that are printed: a few packages come last."""
    packages = [one for one in differences if ".versions." in one["path"]]
    others = [one for one in differences if one not in packages]
    return [*others[:MOST_DIFFERENCES], *packages[:MOST_PACKAGES]]


def _differences(differences: Sequence[Mapping[str, Any]]) -> Table:
    from rich.markup import escape

    from hpcbench.comparison.table_rows import setting_text

    shown = table("configured differently", "baseline", "candidate")
    for one in differences:
        values = (_line(setting_text(one[side])) for side in ("one", "other"))
        shown.add_row(escape(one["path"]), *(escape(text) for text in values))
    return shown


def _line(text: str) -> str:
    """A text on one line, for a cell. A model's text may contain anything, even a terminal's commands."""
    flat = " ".join(_printable(text).split())
    return flat if len(flat) <= _CELL else f"{flat[:_CELL]}…"


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in visible(text))


# --- one sample ----------------------------------------------------------------------------------------


def _show_sample(
    arguments: argparse.Namespace,
    baseline: Experiment,
    candidates: Sequence[Experiment],
    pairs: Sequence[tuple[str, str]],
) -> int:
    """`--sample ID`: the answers of the baseline and each candidate to one sample."""
    from hpcbench.comparison.sample import look_at

    found = list(look_at(baseline, candidates, arguments.sample, pairs))
    if arguments.json:
        print_json({"version": 1, "sample": arguments.sample, "found": found})
        return 0
    width = min(110, os.get_terminal_size().columns if os.isatty(1) else 110)
    for one in found:
        print(f"== {one['experiment']}, {one['run_task']}: {one['outcome']}, {one['document']}")
        for name, score in one["scores"].items():
            print(f"{name}: {'–' if score is None else format(score, '.4g')}")
        for image in one["images"]:
            print(f"image: {image}")
        for title in ("question", "references", "answer", "prediction"):
            for text in one[title]:
                print(f"{title}:")
                shown = textwrap.fill(_printable(text), width, replace_whitespace=False)
                print(textwrap.indent(shown, "  "))
        print()
    return 0
