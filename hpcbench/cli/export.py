"""`hpcbench export`: tables and logs for other tools, traces, and what other kits call the same."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from hpcbench.cli.output import Notes, console, print_json, say, table
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.claims import pieces_of
from hpcbench.experiment.layout import Experiment, all_experiments, find, home
from hpcbench.registry.catalog import user_site

if TYPE_CHECKING:
    from hpcbench.interchange.table_files import Format

_LOGS = ("lmms-eval", "inspect", "inspect-json", "atif")
_OF_TABLES = ("what", "where", "columns", "excel")


def export(arguments: argparse.Namespace) -> int:
    """`hpcbench export [EXPERIMENT|--all] --format FORM [--out PLACE]`, `--to phoenix`, `--compat KIT`."""
    if arguments.to or arguments.compat:
        return _elsewhere(arguments)
    form = _form(arguments)
    experiments = _experiments(arguments)
    if form in _LOGS:
        return _logs(experiments, form, arguments)
    return _table(experiments, form, arguments)


def _elsewhere(arguments: argparse.Namespace) -> int:
    """Traces, or figures in another kit's names, of one experiment."""
    if arguments.all or arguments.format:
        raise UserError(
            "--to and --compat work on one experiment and have their own format",
            remedy="leave --all and --format out",
        )
    experiment = find(home(user_site()), arguments.experiment or "@last")
    if arguments.compat == "v01":
        return _answers(experiment, arguments)
    if arguments.compat:
        return _figures(experiment, arguments)
    if not arguments.url:
        remedy = "for example --url http://localhost:6006"
        raise UserError("--to phoenix needs the address of Phoenix", remedy=remedy)
    return _traces(experiment, arguments)


# --- tables and logs ----------------------------------------------------------------------------------


def _form(arguments: argparse.Namespace) -> str:
    """The requested form, or the form that the file's name implies."""
    from hpcbench.interchange.table_files import FORMATS

    to_file = arguments.out not in (None, "-")
    ending = Path(arguments.out).suffix[1:].lower() if to_file else ""
    form = arguments.format or (ending if ending in FORMATS else None)
    if form is None:
        raise UserError("no format is given", remedy=f"--format {' | '.join((*FORMATS, *_LOGS))}")
    if not to_file and (form == "parquet" or form in _LOGS):
        what = f"hpcbench cannot write {form} to standard output"
        raise UserError(what, remedy="name a file or folder: --out")
    if not to_file and arguments.json:
        what = "--json describes a file, but the rows go to standard output"
        raise UserError(what, remedy="name the file: --out FILE")
    if form in _LOGS and (given := [name for name in _OF_TABLES if getattr(arguments, name)]):
        what = f"--{given[0]} works on tables only, and {form} is a log format"
        raise UserError(what, remedy="leave it out")
    if arguments.excel and form != "csv":
        raise UserError("--excel works on CSV only", remedy="--format csv, or leave --excel out")
    return str(form)


def _experiments(arguments: argparse.Namespace) -> list[Experiment]:
    root = home(user_site())
    if arguments.all and arguments.experiment:
        raise UserError("give an experiment or --all, not both", remedy="leave one out")
    if not arguments.all:
        return [find(root, arguments.experiment or "@last")]
    found = list(all_experiments(root))
    if not found:
        raise UserError(f"no experiments in {root}", remedy="`hpcbench submit PLAN` makes one")
    return found


def _table(experiments: list[Experiment], form: str, arguments: argparse.Namespace) -> int:
    from hpcbench.interchange.result_tables import Wanted, open_table
    from hpcbench.interchange.table_files import write

    shape: Format = form  # type: ignore[assignment]
    out = None if arguments.out in (None, "-") else Path(arguments.out)
    if out is not None and out.is_dir():
        raise UserError(f"cannot write {out}: it is a folder", remedy="name a file: --out FILE")
    wanted = Wanted(
        arguments.what or "scores", arguments.run_task, arguments.where, arguments.columns
    )
    notes = Notes()
    table = open_table(experiments, wanted, notes)
    with (
        _progress(f"{wanted.what} to {form}", table.total, out is not None) as progress,
        _into(out),
    ):
        rows = write(table, shape, out, progress, excel=arguments.excel)
    for path, lines in table.damaged.items():
        notes(f"{path}: skipped {lines} damaged lines")
    summary = {"experiments": [one.id for one in experiments], "what": wanted.what, "format": form}
    if arguments.json:
        size = out.stat().st_size if out is not None else None
        print_json(
            {
                **summary, "out": str(out), "rows": rows, "columns": list(table.schema),
                "bytes": size, "damaged": dict(table.damaged), "notes": notes,
            }
        )  # fmt: skip
    elif out is not None:
        print(f"{rows:,} rows of {wanted.what} in {out}")
    return 0


def _logs(experiments: list[Experiment], form: str, arguments: argparse.Namespace) -> int:
    from hpcbench.interchange.kit_logs import Form, write_logs

    assert form in get_args(Form)
    shape: Form = form  # type: ignore[assignment]
    out = Path(arguments.out)
    written: list[Path] = []
    notes = Notes()
    total = sum(cut.samples for one in experiments for cut in one.work.cuts)
    with _progress(f"logs for {form}", total, shown=True) as progress, _into(out):
        done = 0
        for experiment in experiments:
            experiment.use_packages()
            for path, samples in write_logs(experiment, shape, out, arguments.run_task, notes):
                written.append(path)
                done += samples
                progress(done)
    if arguments.json:
        ids = [one.id for one in experiments]
        print_json(
            {"experiments": ids, "format": form, "files": [*map(str, written)], "notes": notes}
        )
    else:
        for path in written:
            print(path)
    return 0


def _answers(experiment: Experiment, arguments: argparse.Namespace) -> int:
    """Answers in the form of v0.1, a file for each run task."""
    from hpcbench.interchange.v01 import write_answers

    if arguments.out in (None, "-"):
        what = "v01 writes a file for each run task, not to standard output"
        raise UserError(what, remedy="name a folder: --out data_dirs/ModelsAnswers")
    out = Path(arguments.out)
    if out.is_file():
        raise UserError(f"cannot write {out}: it is a file", remedy="name a folder: --out FOLDER")
    experiment.use_packages()
    notes = Notes()
    with _into(out):
        written = list(write_answers(experiment, out, arguments.run_task, notes))
    if arguments.json:
        files = [{"file": str(path), "answers": count} for path, count in written]
        print_json({"experiment": experiment.id, "compat": "v01", "files": files, "notes": notes})
    else:
        for path, _ in written:
            print(path)
    return 0


@contextlib.contextmanager
def _progress(what: str, total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal and the rows do not go to the same one."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    err = Console(stderr=True)
    with Bar(console=err, transient=True, disable=not (shown and err.is_terminal)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.update(task, completed=rows)


@contextlib.contextmanager
def _into(out: Path | None) -> Iterator[None]:
    """Name the output path in an error of writing."""
    try:
        yield
    except (PermissionError, IsADirectoryError, NotADirectoryError, FileNotFoundError) as error:
        raise EnvironmentFault(
            f"cannot write {out}: {error.strerror}", remedy="choose another place with --out"
        ) from error


# --- speed under another kit's name, traces -----------------------------------------------------------


def _figures(experiment: Experiment, arguments: argparse.Namespace) -> int:
    """Figures in another kit's names, for each run task."""
    from hpcbench.inference.kit_figures import KITS, Figures, end_to_end

    found: dict[str, Figures] = {}
    pieces: dict[str, int] = {}
    for run_task in experiment.resolved.run_tasks:
        goal = run_task.task.slo.model_dump(exclude_none=True)
        slos = {name.removesuffix("_ms"): limit for name, limit in goal.items()}
        parts = list(pieces_of(experiment, run_task.name))
        pieces[run_task.name] = len(parts)
        found[run_task.name] = KITS[arguments.compat](end_to_end(parts), slos or None)
    if arguments.json:
        run_tasks = {
            name: {
                "pieces": pieces[name],
                "figures": {key: asdict(one) for key, one in part.items()},
            }
            for name, part in found.items()
        }
        print_json(
            {"experiment": experiment.id, "compat": arguments.compat, "run_tasks": run_tasks}
        )
        return 0
    for name, part in found.items():
        if not part:
            say(f"{name}: no figures, as it has no answers")
            continue
        shown = table(arguments.compat, "value", "definition", right=("value",))
        shown.title = name
        for key, one in part.items():
            shown.add_row(key, f"{one.value:,.3f}", one.definition)
        console().print(shown)
        if pieces[name] > 1:
            print(f"{pieces[name]} shards joined end to end: the rates are those of one engine")
    return 0


def _traces(experiment: Experiment, arguments: argparse.Namespace) -> int:
    from hpcbench.secret import reveal
    from hpcbench.tracking.phoenix import export as export_traces

    experiment.use_packages()
    key = reveal("${env:PHOENIX_API_KEY}") if os.environ.get("PHOENIX_API_KEY") else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    total = sum(shard.stop - shard.start for shard in experiment.work.shards)
    project = arguments.project or experiment.resolved.plan.name
    with _progress("sending traces", total, shown=True) as progress:
        sent = export_traces(experiment, arguments.url, project, headers, progress)
    if arguments.json:
        print_json({"experiment": experiment.id, "sent": sent})
    else:
        print(f"{sent} traces sent to {arguments.url}")
    return 0
