"""`hpcbench report`: print scores, and write reports again later, in any format."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.cli.output import (
    console,
    metric_table,
    no_scores,
    print_json,
    say,
)
from hpcbench.errors import EnvironmentFault, HpcbenchError, RunFailed, UserError, unknown
from hpcbench.experiment.ending import remarks
from hpcbench.experiment.layout import Experiment, find_scored, home
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.registry.catalog import Catalog, user_site
from hpcbench.schema.outputs import Report

MAIN = ("report.html", "report.md", "report.pdf", "report.json", "report.tex")
"""Main files of a folder of reports, best first; only these are printed."""


def report(arguments: argparse.Namespace) -> int:
    """`hpcbench report [EXPERIMENT]`."""
    experiment = find_scored(home(user_site()), arguments.experiment)
    if not experiment.metrics_file.exists():
        raise no_scores(experiment)
    if arguments.methods or arguments.latex:
        return _methods(experiment, arguments)
    if arguments.format or arguments.to is not None or arguments.reused_times:
        return _write(experiment, arguments)
    wrong = None if any(_files(experiment.report_dir)) else _written(experiment, None, None)[2]
    if arguments.json:
        print_json(metrics_of(experiment).to_json())
        return 0
    out = console()
    known = outcome(experiment)
    if known is not None and known.reason:
        line = f"{experiment.id} is {known.state}{known.why}"
        out.print(line, soft_wrap=True, highlight=False, markup=False)
    out.print(metric_table(experiment))
    for line in remarks(metrics_of(experiment).run_tasks):
        out.print(line, soft_wrap=True, highlight=False, markup=False)
    out.print()
    for path in _files(experiment.report_dir):
        out.print(f"report: {path}", soft_wrap=True, highlight=False)
    _open(_files(experiment.report_dir), arguments)
    _raise(wrong or [])
    return 0


def _methods(experiment: Experiment, arguments: argparse.Namespace) -> int:
    """Print the methods section of a paper."""
    if not arguments.methods:
        raise UserError(
            "--latex is for the methods section",
            remedy="--methods --latex; for tables: --format latex",
        )
    if arguments.format or arguments.to is not None or arguments.open:
        raise UserError(
            "--methods prints to standard output and takes neither --format nor --to nor --open",
            remedy=f"hpcbench report {experiment.id} --methods > methods.md",
        )
    from hpcbench.reporting import methods as of

    experiment.use_packages()
    found = of.methods(experiment)
    if arguments.json:
        print_json(of.to_json(found))
    else:
        sys.stdout.write(of.latex(found) if arguments.latex else of.markdown(found))
    return 0


def _write(experiment: Experiment, arguments: argparse.Namespace) -> int:
    """Write reports again: the named ones, else the plan's."""
    experiment.use_packages()
    definitions = list(_definitions(experiment, arguments)) or None
    if arguments.to == Path("-"):
        return _print(experiment, definitions, reused_times=arguments.reused_times)
    tables, written, failed = _written(
        experiment, definitions, arguments.to, reused_times=arguments.reused_times
    )
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
    experiment: Experiment,
    definitions: Sequence[Report] | None,
    folder: Path | None,
    *,
    reused_times: bool = False,
) -> tuple[Mapping[str, Any], list[Path], list[Exception]]:
    """Write reports; returns their tables, their files, and the errors of failed reports."""
    from hpcbench.reporting.writing import report as write

    failed: list[Exception] = []
    written: list[Path] = []

    def said(definition: Report, files: Sequence[Path], wrong: Exception | None) -> None:
        written.extend(files)
        if wrong is not None:
            failed.append(wrong)
            if not isinstance(wrong, HpcbenchError):
                say(f"report {definition.name}: {type(wrong).__name__}: {wrong}")

    try:
        tables = write(experiment, definitions, folder, said, reused_times=reused_times)
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
        raise RunFailed(f"hpcbench could not write {len(failed)} reports; see the lines above")


def _print(
    experiment: Experiment, definitions: Sequence[Report] | None, *, reused_times: bool
) -> int:
    """Print one text report to standard output."""
    from hpcbench.reporting.gather import gather

    if definitions is None or len(definitions) != 1:
        raise UserError(
            "--to - prints exactly one report", remedy="name one, for example --format markdown"
        )
    (definition,) = definitions
    plugin = plugins.load("reports", definition.plugin)(definition.options)
    files = plugin.render(gather(experiment, reused_times=reused_times))
    name, content = next(iter(files.items()))
    if isinstance(content, bytes):
        raise UserError(
            f"--to - prints text only, and {name} is not text", remedy="name a folder: --to DIR"
        )
    sys.stdout.write(content)
    return 0


def _definitions(experiment: Experiment, arguments: argparse.Namespace) -> Iterator[Report]:
    """Reports by name: from the plan, from the registry, or a plugin with defaults."""
    own = {definition.name: definition for definition in experiment.resolved.reports}
    catalog = Catalog(arguments.registry)
    _use_packages(catalog, [name for name in arguments.format if name not in own])
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
            raise UserError(f"--format {name}: {message}")


def _use_packages(catalog: Catalog, names: Sequence[str]) -> None:
    """Build the packages of reports that the experiment's plan does not have."""
    from hpcbench.submit.plan_packages import use

    defined = {name for name in names if catalog.files("reports", name)}
    use(
        catalog,
        say,
        [("reports", name) for name in names if name in defined],
        [("reports", name) for name in names if name not in defined],
    )


def _files(folder: Path) -> list[Path]:
    """Existing reports of a folder."""
    return [folder / name for name in MAIN if (folder / name).is_file()]


def _open(files: Sequence[Path], arguments: argparse.Namespace) -> None:
    """Show the first report in a browser, if there is a browser."""
    if not arguments.open:
        return
    pages = [path for name in MAIN for path in files if path.name == name]
    if not pages:
        raise UserError("no report to open", remedy="--format html writes one")
    import webbrowser

    if not webbrowser.open(pages[0].resolve().as_uri()):
        raise EnvironmentFault(
            "this machine opens no browser",
            remedy=f"on your own machine: `scp {platform.node()}:{pages[0].resolve()} .`",
        )
