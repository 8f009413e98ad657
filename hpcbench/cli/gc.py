"""`hpcbench gc`: free the space and files that ended experiments no longer need."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcbench.cli.output import console, print_json, say, table
from hpcbench.data.progress import size_text
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.experiment.layout import all_experiments, find, home
from hpcbench.number_format import many
from hpcbench.registry.catalog import user_site
from hpcbench.remote import unused_copies
from hpcbench.site import gc as clearing
from hpcbench.site.caches import CacheUsage, caches
from hpcbench.site.gc import DiskUsage, Finding
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
    older = arguments.older
    to_delete = clearing.deletable(found, root, older) if older is not None else []
    lying = [] if arguments.experiments else _lying(root, found, to_delete)
    plan = _Plan(found, to_delete, lying)
    dry = arguments.dry_run
    if not arguments.json and (dry or (plan.words and not arguments.yes)):
        _print([_one(one, one in to_delete, dry=True) for one in found], plan, dry=True)
    if not dry and not _agreed(plan, arguments):
        print("nothing changed")
        return 0
    rows, failed = [], []
    for finding in found:
        try:
            rows.append(_one(finding, finding in to_delete, dry))
        except (OSError, HpcbenchError) as error:
            failed.append(f"{finding.experiment.id}: {error}")
            rows.append(_row(finding, finding, "failed"))
    others = _without_others(lying, dry, failed)
    kept = [] if arguments.experiments else list(caches(root, all_experiments(root)))
    if arguments.json:
        shown = [{**asdict(one), "path": str(one.path)} for one in kept]
        print_json(
            {"version": 1, "dry_run": dry, "experiments": rows, "others": others, "caches": shown}
        )
    else:
        if not dry:
            _print(rows, _Plan(found, to_delete, [one for one in lying if str(one[0]) in others]))
        _print_caches(kept)
    if failed:
        raise EnvironmentFault(
            "could not clear " + "; ".join(failed),
            remedy="remove the cause, and repeat the command",
        )
    return 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """Space that a call frees."""

    found: Sequence[Finding]
    to_delete: Sequence[Finding]
    lying: Sequence[tuple[Path, DiskUsage]]
    """Paths that belong to no experiment, with their sizes."""

    @property
    def words(self) -> str:
        """`delete 2 experiments, fold 40 files, remove 3 others`; empty: nothing is to be done."""
        stay = [one for one in self.found if not one.busy and one not in self.to_delete]
        folds = sum(one.loose for one in stay)
        removes = sum(len(one.leftovers) for one in stay) + len(self.lying)
        parts = [
            f"delete {many(len(self.to_delete), 'experiment')}" if self.to_delete else "",
            f"fold {many(folds, 'file')}" if folds else "",
            f"remove {many(removes, 'unneeded path')}" if removes else "",
        ]
        return ", ".join(filter(None, parts))

    @property
    def bytes(self) -> int:
        """Bytes that deletions and removals free; folding frees blocks and inodes beside them."""
        stay = [one for one in self.found if not one.busy and one not in self.to_delete]
        left = (path for one in stay for path in one.leftovers)
        return (
            sum(one.before.bytes for one in self.to_delete)
            + sum(clearing.size(path).bytes for path in left)
            + sum(size.bytes for _, size in self.lying)
        )


def _agreed(plan: _Plan, arguments: argparse.Namespace) -> bool:
    """Whether there is nothing to ask, or the user agrees.

    Raises:
        UserError: there is no terminal to ask on, and `--yes` is missing.
    """
    if not plan.words or arguments.yes:
        return True
    for one in plan.to_delete:
        day = time.strftime("%Y-%m-%d", time.localtime(one.changed))
        say(
            f"will delete {one.experiment.path}  {size_text(one.before.bytes)}, unchanged since {day}"
        )
    if not sys.stdin.isatty() or arguments.json:
        raise UserError(f"gc needs your consent to {plan.words}", remedy="give it: --yes")
    say(f"{plan.words} ({size_text(plan.bytes)})? [y/N]")
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


def _lying(
    root: Path, found: Sequence[Finding], to_delete: Sequence[Finding]
) -> list[tuple[Path, DiskUsage]]:
    """Paths that belong to no experiment, with their sizes; all experiments must be in `found`."""
    stay = [one.experiment for one in found if one not in to_delete]
    lying = clearing.clear_home(root, {one.experiment.id for one in found if one.busy})
    lying += snapshot.unused(root, stay, UNUSED_DAYS)
    lying += unused_copies.unused(root / "remote", stay, UNUSED_DAYS)
    return [(path, clearing.size(path)) for path in lying]


def _without_others(
    lying: Sequence[tuple[Path, DiskUsage]], dry: bool, failed: list[str]
) -> list[str]:
    """Remove paths that belong to no experiment."""
    gone = []
    for path, _ in lying:
        try:
            if not dry:
                clearing.remove(path)
            gone.append(str(path))
        except OSError as error:
            failed.append(f"{path}: {error.strerror or error}")
    return gone


def _print(rows: Sequence[dict[str, Any]], plan: _Plan, *, dry: bool = False) -> None:
    if not rows and not plan.lying:
        print("no experiments")
        return
    shown = table("experiment", "result", "files", "", "size", "", right=("files", "size"))
    for row in rows:
        before, after = row["before"], row["after"]
        said = row["done"] + (f": {row['reason']}" if row["reason"] else "")
        if dry and not row["reason"]:
            said += f": {row['loose']} files to fold, {len(row['leftovers'])} to remove"
        files_now, bytes_now = f"→ {after['files']}", f"→ {size_text(after['bytes'])}"
        shown.add_row(
            row["id"], said,
            str(before["files"]), "" if dry else files_now,
            size_text(before["bytes"]), "" if dry else bytes_now,
        )  # fmt: skip
    console().print(shown)
    for path, size in plan.lying:
        verb = "would remove" if dry else "removed"
        print(f"{verb} {path} ({many(size.files, 'file')}, {size_text(size.bytes)})")


def _print_caches(kept: Sequence[CacheUsage]) -> None:
    if not kept:
        return
    print("\ncaches, which gc leaves as they are:")
    shown = table(
        "cache", "content", "files", "size", "in use", "freed by", right=("files", "size", "in use")
    )
    for one in kept:
        needed = "?" if one.needed is None else str(one.needed)
        shown.add_row(
            str(one.path),
            one.what,
            f"{one.room.files:,}",
            size_text(one.room.bytes),
            needed,
            one.emptied,
        )
    console().print(shown)
