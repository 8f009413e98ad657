"""`hpcbench import`: results of other kits become experiments; definitions of older versions today's."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.cli.output import Notes, print_json, say
from hpcbench.errors import UserError

if TYPE_CHECKING:
    from hpcbench.registry.catalog import Catalog
    from hpcbench.registry.legacy import AnsweredRow


def import_anything(arguments: argparse.Namespace) -> int:
    """`hpcbench import PLACE --from KIT`."""
    if arguments.form == "v01":
        return _v01(arguments)
    if arguments.form == "v02":
        return _v02(arguments)
    return _results(arguments)


def _v02(arguments: argparse.Namespace) -> int:
    """Rewrite a folder of v0.2's registries in today's spelling."""
    import difflib

    from hpcbench.registry.rewrite import left, rewritten, write

    folder: Path = arguments.file
    if not folder.is_dir():
        raise UserError("no such folder", file=folder, remedy="name v0.2's registries")
    if arguments.out is not None:
        what = "v02 changes the definitions where they are, since their paths are relative"
        raise UserError(what, remedy="leave --out out; --dry-run only shows the changes")
    found = rewritten(folder)
    diffs = [
        "".join(
            difflib.unified_diff(
                one.before.splitlines(keepends=True), one.after.splitlines(keepends=True),
                str(one.path), str(one.target),
            )
        )
        for one in found
    ]  # fmt: skip
    if not arguments.dry_run:
        write(found)
    for path in (unread := left(folder)):
        top = path.relative_to(folder).parts[0]
        where = "it is in no folder of a kind" if path.parent == folder else (
            f"no kind of definition has a folder {top}/"
        )  # fmt: skip
        say(f"! {path} is left as it is: {where}")
    if arguments.json:
        files = [
            {"file": str(one.path), "target": str(one.target), "diff": diff}
            for one, diff in zip(found, diffs, strict=True)
        ]
        more = [str(path) for path in unread]
        print_json({"written": not arguments.dry_run, "files": files, "left": more})
        return 0
    for diff, one in zip(diffs, found, strict=True):
        print(diff or f"rename {one.path} to {one.target}\n", end="")
    done = "would be rewritten" if arguments.dry_run else "rewritten"
    say(f"{len(found)} files {done}" if found else "every definition is in today's spelling")
    if not arguments.dry_run:
        say(f"next: `hpcbench validate --registry {folder}`")
    return 0


def _v01(arguments: argparse.Namespace) -> int:
    """Import a user_config.csv as a plan and experiments, or one CSV of answers as an experiment."""
    from hpcbench.interchange.v01 import experiments_of, is_answers
    from hpcbench.registry.catalog import Catalog, user_site
    from hpcbench.registry.legacy import Imported, import_v01
    from hpcbench.schema.site import Site

    catalog, site = Catalog(arguments.registry), user_site() or Site(name="default")
    out = arguments.out or Path("imported")
    experiments: list[str] = []
    notes = Notes("! ")

    def score(rows: Sequence[AnsweredRow]) -> None:
        made = experiments_of(rows, catalog, site, notes, dry_run=arguments.dry_run)
        experiments.extend(one.id for one in made)

    if is_answers(arguments.file):
        score([_answers(arguments, catalog)])
        found = Imported(None, (), ())
    else:
        found = import_v01(
            arguments.file, out, arguments.vlm_base, arguments.data_dirs,
            score=score, dry_run=arguments.dry_run,
        )  # fmt: skip
    for remark in found.remarks:
        notes(remark)
    if arguments.json:
        print_json(
            {
                "plan": str(found.plan) if found.plan else None,
                "files": [str(path) for path in found.written],
                "experiments": experiments,
                "notes": notes,
            }
        )
        return 0
    for path in found.written:
        say(f"{'would write' if arguments.dry_run else 'wrote'} {path}")
    for one in experiments:
        print(one)
    if found.plan is not None and not arguments.dry_run:
        print(f"hpcbench validate {found.plan} --registry {out / 'registries'}")
    return 0


def _answers(arguments: argparse.Namespace, catalog: Catalog) -> AnsweredRow:
    """A CSV of answers that the command names, with the dataset that it names."""
    from hpcbench.registry.legacy import AnsweredRow
    from hpcbench.tasks.alone import dataset_of

    path: Path = arguments.file
    if not arguments.dataset:
        what = "the file has answers, and names no dataset"
        raise UserError(what, file=path, remedy="name theirs: --dataset NAME|FOLDER|FILE")
    name = arguments.name or path.stem
    return AnsweredRow(
        name=name,
        ml_task=arguments.ml_task,
        model=arguments.model or name,
        dataset=dataset_of(catalog, arguments.dataset, "annotation.csv", None),
        metrics=tuple(arguments.metrics),
        answers=path,
    )


def _results(arguments: argparse.Namespace) -> int:
    """Import a kit's results as an experiment."""
    from hpcbench.experiment.layout import home
    from hpcbench.interchange.imports import ImportOptions, make
    from hpcbench.interchange.kit_results import Keys
    from hpcbench.interchange.read_kits import read_run
    from hpcbench.registry.catalog import Catalog, user_site
    from hpcbench.schema.ml_task import MLTask
    from hpcbench.schema.site import Site
    from hpcbench.tasks.alone import metric_of

    catalog = Catalog(arguments.registry)
    ml_task = catalog.get(MLTask, arguments.ml_task)
    if arguments.dataset and len(arguments.task) > 1:
        raise UserError("--dataset works with one task", remedy="import the tasks one by one")
    run = read_run(arguments.file, arguments.form, Keys(arguments.map), arguments.task)
    if arguments.dataset and len(run.tasks) > 1:
        names = ", ".join(task.name for task in run.tasks)
        what = f"--dataset works with one task, and the results have {names}"
        raise UserError(what, remedy="choose one: --task NAME")
    metrics = arguments.metrics
    if not metrics and not any(task.metrics for task in run.tasks):
        metrics = ml_task.default_metrics or ml_task.metrics
        say(f"{run.kit} stored no scores of samples; hpcbench scores them by {', '.join(metrics)}")
    how = ImportOptions(
        ml_task=ml_task,
        metrics=tuple(metric_of(catalog, name) for name in metrics),
        name=arguments.name,
        model=arguments.model,
        dataset=arguments.dataset,
        mapping=arguments.map,
    )
    if arguments.dry_run:
        return _tell(run, arguments)
    notes = Notes()
    site = user_site() or Site(name="default")
    experiment = make(run, how, home(site), site, notes)
    if arguments.json:
        tasks = [one.name for one in experiment.resolved.run_tasks]
        print_json({"experiment": experiment.id, "run_tasks": tasks, "notes": notes})
    else:
        print(experiment.id)
        say(f"next: `hpcbench report {experiment.id}`, `hpcbench compare {experiment.id} @last`")
    return 0


def _tell(run: object, arguments: argparse.Namespace) -> int:
    """Print a preview of the import; it reads every sample, so it finds a torn file."""
    from hpcbench.interchange.kit_results import KitRun

    assert isinstance(run, KitRun)
    counts = {task.name: sum(1 for _ in task.samples()) for task in run.tasks}
    if arguments.json:
        print_json(
            {
                "kit": run.kit, "version": run.version, "model": run.model, "samples": counts,
                "metrics": {task.name: [one.name for one in task.metrics] for task in run.tasks},
                "files": [str(path) for path in run.files],
            }
        )  # fmt: skip
        return 0
    print(f"{run.model}, {run.kit} {run.version or 'of unknown version'}")
    for task in run.tasks:
        metrics = ", ".join(one.name for one in task.metrics) or "no scores of samples"
        print(f"  {task.name}: {counts[task.name]:,} samples; {metrics}")
    return 0
