"""`hpcbench gc`: free the space and files that ended experiments no longer need."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcbench.cli.output import console, print_json, say, table
from hpcbench.data.progress import size_text
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.experiment.layout import all_experiments, find, home
from hpcbench.registry.catalog import user_site
from hpcbench.remote import unused_copies
from hpcbench.site import gc as clearing
from hpcbench.site.gc import Finding
from hpcbench.submit import snapshot

UNUSED_DAYS = 1.0
"""Days after which unused copies of environments, and files sent by laptops, are removed."""


def gc(arguments: argparse.Namespace) -> int:
    """`hpcbench gc [EXPERIMENT…]`."""
    if arguments.older is not None and arguments.older < 0:
        raise UserError(
            f"--older {arguments.older:g} is negative", remedy="give days, for example --older 90"
        )
    root = home(user_site())
    everything = list(all_experiments(root))
    chosen = [find(root, wanted) for wanted in arguments.experiments] or everything
    jobs = clearing.living_jobs([*everything, *chosen])
    found = [clearing.look(experiment, jobs) for experiment in chosen]
    to_delete: list[Finding] = []
    if arguments.older is not None:
        to_delete = clearing.deletable(found, root, arguments.older)
        if not _agreed(to_delete, arguments):
            to_delete = []
    rows, failed = [], []
    for finding in found:
        try:
            rows.append(_one(finding, finding in to_delete, arguments.dry_run))
        except (OSError, HpcbenchError) as error:
            failed.append(f"{finding.experiment.id}: {error}")
            rows.append(_row(finding, finding, "failed"))
    others: list[str] = []
    if not arguments.experiments:
        others = _others(root, found, to_delete, arguments.dry_run, failed)
    if arguments.json:
        print_json(
            {"version": 1, "dry_run": arguments.dry_run, "experiments": rows, "others": others}
        )
    else:
        _print(rows, others, arguments.dry_run)
    if failed:
        raise EnvironmentFault(
            "could not clear " + "; ".join(failed),
            remedy="remove the cause, and repeat the command",
        )
    return 0


def _agreed(to_delete: Sequence[Finding], arguments: argparse.Namespace) -> bool:
    """List the experiments to delete, and return whether the user agrees."""
    if not to_delete or arguments.dry_run:
        return True
    for one in to_delete:
        day = time.strftime("%Y-%m-%d", time.localtime(one.changed))
        say(
            f"will delete {one.experiment.path}  {size_text(one.before.bytes)}, unchanged since {day}"
        )
    if arguments.yes:
        return True
    if not sys.stdin.isatty() or arguments.json:
        raise UserError(
            f"gc needs your consent to delete {len(to_delete)} experiments", remedy="give it: --yes"
        )
    say(f"delete {len(to_delete)} experiments? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _one(finding: Finding, delete: bool, dry: bool) -> dict[str, Any]:
    """Clear or delete one experiment, and return a row about the result."""
    if finding.busy:
        return _row(finding, finding, "left alone", finding.busy)
    if dry:
        return _row(finding, finding, "would be deleted" if delete else "would be cleared")
    if delete:
        clearing.delete(finding.experiment)
        return _row(finding, None, "deleted")
    after = clearing.clear(finding)
    return _row(finding, after, "cleared" if after.before != finding.before else "nothing to do")


def _row(
    finding: Finding, after: Finding | None, done: str, reason: str | None = None
) -> dict[str, Any]:
    return {
        "id": finding.experiment.id,
        "done": done,
        "reason": reason,
        "loose": finding.loose,
        "leftovers": [str(path) for path in finding.leftovers],
        "before": asdict(finding.before),
        "after": asdict(after.before) if after else {"files": 0, "bytes": 0},
    }


def _others(
    root: Path,
    found: Sequence[Finding],
    to_delete: Sequence[Finding],
    dry: bool,
    failed: list[str],
) -> list[str]:
    """Remove paths that belong to no experiment; all experiments must be in `found`."""
    stay = [one.experiment for one in found if one not in to_delete]
    lying = clearing.clear_home(root, {one.experiment.id for one in found if one.busy})
    lying += snapshot.unused(root, stay, UNUSED_DAYS)
    lying += unused_copies.unused(root / "remote", stay, UNUSED_DAYS)
    gone = []
    for path in lying:
        try:
            if not dry:
                clearing.remove(path)
            gone.append(str(path))
        except OSError as error:
            failed.append(f"{path}: {error.strerror or error}")
    return gone


def _print(rows: Sequence[dict[str, Any]], others: Sequence[str], dry: bool) -> None:
    if not rows and not others:
        print("no experiments")
        return
    shown = table("experiment", "result", "files", "", "size", "", right=("files", "size"))
    for row in rows:
        before, after = row["before"], row["after"]
        said = row["done"] + (f": {row['reason']}" if row["reason"] else "")
        if dry and not row["reason"]:
            said += f": {row['loose']} files to fold, {len(row['leftovers'])} to remove"
        shown.add_row(
            row["id"], said,
            str(before["files"]), f"→ {after['files']}",
            size_text(before["bytes"]), f"→ {size_text(after['bytes'])}",
        )  # fmt: skip
    console().print(shown)
    for path in others:
        print(f"{'would remove' if dry else 'removed'} {path}")
