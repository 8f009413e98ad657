"""`hpcbench report`: scores on the screen, and reports written again, in any format, after the fact."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.cli.output import (
    console,
    metric_table,
    print_json,
    say,
)
from hpcbench.errors import EnvironmentFault, HpcbenchError, Problem, RunFailed, UserError, unknown
from hpcbench.experiment.ending import why_dashes
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.results import metrics_of
from hpcbench.registry.catalog import Catalog, user_site
from hpcbench.schema.documents import Report

MAIN = ("report.html", "report.md", "report.pdf", "report.json", "report.tex")
"""Files that are told of a folder of reports, best first."""


def report(arguments: argparse.Namespace) -> int:
    """`hpcbench report [EXPERIMENT]`."""
    experiment = find(home(user_site()), arguments.experiment)
    if not experiment.metrics_file.exists():
        raise RunFailed(f"{experiment.id} has no scores yet: `hpcbench status {experiment.id}`")
    if arguments.format or arguments.to is not None:
        return _write(experiment, arguments)
    wrong = None if any(_files(experiment.report_dir)) else _written(experiment, None, None)[2]
    if arguments.json:
        print_json(metrics_of(experiment))
        return 0
    out = console()
    known = outcome(experiment)
    if known is not None and known.reason:
        line = f"{experiment.id} is {known.state}{known.why}"
        out.print(line, soft_wrap=True, highlight=False, markup=False)
    out.print(metric_table(experiment))
    for line in why_dashes(metrics_of(experiment)["run_tasks"]):
        out.print(line, soft_wrap=True, highlight=False, markup=False)
    out.print()
    for path in _files(experiment.report_dir):
        out.print(f"report: {path}", soft_wrap=True, highlight=False)
    _open(_files(experiment.report_dir), arguments)
    _raise(wrong or [])
    return 0


def _write(experiment: Experiment, arguments: argparse.Namespace) -> int:
    """Write reports anew: those that are named, else the plan's."""
    experiment.use_packages()
    documents = list(_documents(experiment, arguments)) or None
    if arguments.to == Path("-"):
        return _print(experiment, documents)
    tables, written, failed = _written(experiment, documents, arguments.to)
    if arguments.json:
        print_json({"experiment": experiment.id, "files": [str(path) for path in written]})
    else:
        out = console()
        for sentence in tables["summary"]:
            out.print(sentence, highlight=False, markup=False)
        for path in [path for path in written if path.name in MAIN] or written:
            out.print(f"report: {path}", soft_wrap=True, highlight=False, markup=False)
    _open(written, arguments)
    _raise(failed)
    return 0


def _written(
    experiment: Experiment, documents: Sequence[Report] | None, folder: Path | None
) -> tuple[Mapping[str, Any], list[Path], list[Exception]]:
    """Write reports: the tables they were given, their files, and why some could not be written."""
    from hpcbench import reporting

    failed: list[Exception] = []
    written: list[Path] = []

    def said(document: Report, files: Sequence[Path], wrong: Exception | None) -> None:
        written.extend(files)
        if wrong is not None:
            failed.append(wrong)
            if not isinstance(wrong, HpcbenchError):
                say(f"report {document.name}: {type(wrong).__name__}: {wrong}")

    try:
        tables = reporting.report(experiment, documents, folder, said)
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename}: {error.strerror}", remedy="--to DIR writes reports elsewhere"
        ) from error
    return tables, written, failed


def _raise(failed: Sequence[Exception]) -> None:
    for wrong in failed:
        if isinstance(wrong, HpcbenchError):
            raise wrong
    if failed:
        raise RunFailed(f"{len(failed)} reports could not be written")


def _print(experiment: Experiment, documents: Sequence[Report] | None) -> int:
    """One report of text, to standard output."""
    from hpcbench.reporting.context import gather

    if documents is None or len(documents) != 1:
        raise UserError("--to - prints one report", remedy="name it: --format markdown")
    (document,) = documents
    plugin = plugins.load("reports", document.plugin)(document.options)
    files = plugin.render(gather(experiment))
    name, content = next(iter(files.items()))
    if isinstance(content, bytes):
        raise UserError(f"{name} is no text", remedy="--to DIR")
    sys.stdout.write(content)
    return 0


def _documents(experiment: Experiment, arguments: argparse.Namespace) -> Iterator[Report]:
    """Reports by name: the plan's, the registry's, or a plugin with its defaults."""
    own = {document.name: document for document in experiment.resolved.reports}
    catalog = Catalog(arguments.registry)
    for name in dict.fromkeys(arguments.format):
        if name in own:
            yield own[name]
        elif catalog.files("reports", name):
            yield catalog.get(Report, name)
        elif plugins.find("reports", name) is not None:
            yield Report(name=name, plugin=name)
        else:
            known = [*own, *catalog.names("reports"), *plugins.available("reports")]
            message = unknown("report", name, dict.fromkeys(known))
            raise UserError(Problem(f"--format {name}: {message}"))


def _files(folder: Path) -> list[Path]:
    """Reports that are there."""
    return [folder / name for name in MAIN if (folder / name).is_file()]


def _open(files: Sequence[Path], arguments: argparse.Namespace) -> None:
    """Show the first report in a browser, where there is one."""
    if not arguments.open:
        return
    pages = [path for name in MAIN for path in files if path.name == name]
    if not pages:
        raise UserError("there is no report to open", remedy="--format html")
    import webbrowser

    if not webbrowser.open(pages[0].resolve().as_uri()):
        raise EnvironmentFault(
            "no browser can be opened here",
            remedy=f"from your own machine: `scp HOST:{pages[0].resolve()} .`",
        )
