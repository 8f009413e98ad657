"""Verbs that set up: init, doctor."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import yaml

from hpcbench.cli.screen import console, finish, print_json, say
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.files import write_atomic
from hpcbench.launch.prepare import prepare
from hpcbench.launch.site import checks, detect
from hpcbench.launch.submit import submit_round
from hpcbench.registry.catalog import share_dir, user_dir, user_site
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.documents import Site

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def init(arguments: argparse.Namespace) -> int:
    """`hpcbench init`."""
    path = user_dir() / "sites" / "default.yaml"
    if path.exists() and not arguments.force and not arguments.dry_run:
        raise UserError(Problem("there is a site profile already", str(path), remedy="--force"))
    site, remarks = detect()
    for remark in remarks:
        say(remark)
    # What equals the default goes unsaid, except the lines a user will want to edit.
    data = site.model_dump(mode="json", exclude_defaults=True)
    data = {"schema_version": 1, **data, "executor": site.executor}
    schema = share_dir() / "registries" / "schemas" / "sites.json"
    text = f"# yaml-language-server: $schema={schema}\n"
    text += "# Site profile of this cluster. All fields: `hpcbench schema sites`\n"
    text += yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if arguments.dry_run:
        print(text, end="")
        return 0
    write_atomic(path, text)
    print(f"wrote {path}; next: hpcbench doctor --run")
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """`hpcbench doctor`."""
    site = user_site() or Site(name="default")
    found = list(checks(site))
    failed = [check for check in found if check.state == "failed"]
    if arguments.json:
        print_json([asdict(check) for check in found])
    else:
        out = console()
        for check in found:
            mark, colour = MARKS[check.state]
            out.print(f"[{colour}]{mark}[/] {check.name}: ", end="")
            out.print(check.detail, markup=False, soft_wrap=True)
            if check.remedy:
                out.print(f"    → {check.remedy}", markup=False, style="dim", soft_wrap=True)
    if failed:
        raise EnvironmentFault(f"{len(failed)} checks failed")
    return _real_run(arguments.image) if arguments.real_run else 0


def _real_run(image: str | None) -> int:
    """The tiny model through one real job: in an image on the site's GPUs, or in this Python."""
    plan = share_dir() / "examples" / "demo" / "doctor.yaml"
    resolved = load_plan(plan)
    if image is not None:
        gpus = 1 if resolved.executor == "slurm" else 0
        update = {"image": image, "gpus": gpus}
        tasks = [
            task.model_copy(update={"model": task.model.model_copy(update=update)})
            for task in resolved.run_tasks
        ]
        resolved = resolved.model_copy(update={"run_tasks": tuple(tasks)})
    experiment = prepare(resolved, plan, say)
    submit_round(experiment)
    return finish(experiment)
