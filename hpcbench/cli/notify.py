"""`hpcbench notify`: send missing notifications now, and test notifications."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hpcbench.cli.output import print_json, say
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.notify.dispatch import send_now, send_test
from hpcbench.notify.outbox import Delivery
from hpcbench.registry.catalog import user_site
from hpcbench.registry.resolve import load_plan
from hpcbench.submit import secrets_file

MARKS = {"told": "sent", "failed": "FAILED", "sending": "unknown", "owed": "not sent yet"}


def notify(arguments: argparse.Namespace) -> int:
    """`hpcbench notify EXPERIMENT|PLAN [--test]`."""
    plan = Path(arguments.target)
    if plan.suffix in (".yaml", ".yml") and plan.is_file():
        found = _of_plan(plan, arguments)
    else:
        experiment = find(home(user_site()), arguments.target)
        secrets_file.load(experiment)
        known = experiment.resolved.plan
        if not known.notifications:
            raise _no_notifications(known.name)
        if arguments.test:
            found = send_test(experiment, known.notifications, known.name)
        else:
            found = send_now(experiment)
    if arguments.json:
        print_json([one.to_json() for one in found])
    else:
        _print(found)
    failed = [one for one in found if one.state != "told"]
    if failed:
        raise EnvironmentFault(
            f"{len(failed)} of {len(found)} notifications were not sent",
            remedy="remove the cause shown above, and repeat the command",
        )
    return 0


def _of_plan(plan: Path, arguments: argparse.Namespace) -> list[Delivery]:
    """Send test notifications of a plan."""
    if not arguments.test:
        what = f"{plan} is a plan, and only experiments have notifications to send"
        raise UserError(what, remedy="--test sends test notifications of a plan")
    resolved = load_plan(plan, arguments.registry, arguments.settings)
    if not resolved.plan.notifications:
        raise _no_notifications(resolved.plan.name)
    with tempfile.TemporaryDirectory(prefix="hpcbench-notify-") as folder:
        nowhere = Experiment(Path(folder) / f"test-of-{resolved.plan.name}")
        return send_test(nowhere, resolved.plan.notifications, resolved.plan.name)


def _no_notifications(name: str) -> UserError:
    return UserError(
        f"plan {name} has no notifications",
        remedy="add `notifications:` to the plan, see docs/ci.md",
    )


def _print(found: Sequence[Delivery]) -> None:
    for one in found:
        tries = f", {one.tries} tries" if one.tries > 1 else ""
        said = f": {one.said}" if one.said else ""
        what = one.event.get("state")
        print(f"{MARKS[one.state]}  notifications.{one.number} {one.plugin}  {what}{tries}{said}")
    if not found:
        say("no notification is due yet")
