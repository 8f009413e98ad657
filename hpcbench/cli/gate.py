"""Verbs that name baselines and judge candidates by them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hpcbench.cli.output import console, day, print_json, say, table
from hpcbench.errors import DamagedFile, UserError, unknown
from hpcbench.experiment import baselines
from hpcbench.experiment.layout import Experiment, find, find_scored, home
from hpcbench.experiment.outcome import outcome
from hpcbench.number_format import four_digits, percent
from hpcbench.registry.catalog import user_site
from hpcbench.registry.resolve import load_gate

STYLES = {"pass": "green", "fail": "bold red", "inconclusive": "yellow"}
WORDS = {"GO": "bold green", "NO-GO": "bold red", "INCONCLUSIVE": "bold yellow"}


def gate(arguments: argparse.Namespace) -> int:
    """`hpcbench gate CANDIDATE --baseline NAME`."""
    from hpcbench.comparison.gate import judge

    root = home(user_site())
    candidate = find_scored(root, arguments.candidate)
    plan = candidate.resolved.plan
    named = arguments.baseline or plan.baseline
    if named is None:
        remedy = "--baseline NAME; `hpcbench baseline list` lists the names"
        raise UserError("the plan names no baseline", remedy=remedy)
    policy = candidate.resolved.gate
    if arguments.policy is not None or policy is None:
        policy = load_gate(arguments.policy or "default", arguments.registry)
    confirmations = [find_scored(root, one) for one in arguments.confirmed_by]
    verdict = judge(find_scored(root, named), candidate, policy, confirmations)
    record = verdict.to_json() if arguments.dry_run else verdict.write(candidate)
    if arguments.json:
        print_json(record)
    else:
        print_verdict(record)
        if not arguments.dry_run:
            console().print(f"\nverdict: {candidate.verdict_file}", soft_wrap=True)
    return verdict.exit_code


def print_verdict(record: Mapping[str, Any]) -> None:
    """Print every check as a line of a table, and the verdict."""
    from hpcbench.comparison.gate.verdict import Check

    numbers = ("baseline", "candidate", "difference", "margin")
    shown = table("run task", "check", *numbers, "result", "reason", right=numbers)
    previous, why = None, ""
    for one in record["checks"]:
        share = one["kind"] in ("speed", "memory")
        level = "" if one["level"] == "critical" else " (advisory)"
        shown.add_row(
            one["run_task"] if one["run_task"] != previous else "",
            one["what"],
            _number(one["baseline"], of=one["kind"]),
            _number(one["candidate"], of=one["kind"]),
            _difference(one["difference"], share=share),
            _difference(one["margin"], share=share).lstrip("+"),
            f"[{STYLES[one['verdict']]}]{one['verdict']}[/]{level}",
            one["why"] if one["why"] != why else "same as above",
        )
        previous, why = one["run_task"], one["why"]
    out = console()
    out.print(shown)
    out.print(
        f"\n[{WORDS[record['verdict']]}]{record['verdict']}[/]: {record['candidate']} compared "
        f"with {record['baseline']}, policy {record['policy']}",
        soft_wrap=True,
    )
    keys = [one.name for one in fields(Check)]
    in_table = {
        str(Check(**{key: one[key] for key in keys if key in one})) for one in record["checks"]
    }
    for reason in dict.fromkeys(record["reasons"]):
        if reason in in_table:  # already printed
            continue
        out.print(f"  {reason}", soft_wrap=True, markup=False)


def _number(value: float | None, *, of: str) -> str:
    if value is None:
        return "–"
    return f"{four_digits(value / 2**30)} GiB" if of == "memory" else four_digits(value)


def _difference(value: float | None, *, share: bool) -> str:
    if value is None:
        return "–"
    return percent(value, 1, sign=True) if share else four_digits(value, sign=True)


# --- baselines -----------------------------------------------------------------------------------------


def set_baseline(arguments: argparse.Namespace) -> int:
    """`hpcbench baseline set EXPERIMENT --name NAME`."""
    root = home(user_site())
    experiment = find(root, arguments.experiment)
    _check_whole(experiment, force=arguments.force)
    inside = experiment.path.parent.parent.resolve() == root.resolve()
    meant = experiment.id if inside else str(experiment.path)
    before = None
    with contextlib.suppress(DamagedFile):
        before = baselines.current(root, arguments.name)
    made = baselines.name_it(root, arguments.name, meant, arguments.note)
    if arguments.json:
        print_json(made.to_json())
        return 0
    instead = f", instead of {before.experiment}" if before and before.experiment != meant else ""
    print(f"{made.name} is {made.experiment}{instead}")
    return 0


def list_baselines(arguments: argparse.Namespace) -> int:
    """`hpcbench baseline list`."""
    found = baselines.baselines(home(user_site()))
    if arguments.json:
        print_json([one.to_json() for one in found])
    elif found:
        _print(found)
    else:
        say("no baselines yet; `hpcbench baseline set EXPERIMENT --name main` sets one")
    return 0


def show_baseline(arguments: argparse.Namespace) -> int:
    """`hpcbench baseline show NAME`."""
    root = home(user_site())
    found = list(baselines.entries(root, arguments.name))[::-1]
    if not found:
        raise _no_such(root, arguments.name)
    if arguments.json:
        print_json([one.to_json() for one in found])
    else:
        _print(found)
    return 0


def remove_baseline(arguments: argparse.Namespace) -> int:
    """`hpcbench baseline remove NAME`."""
    root = home(user_site())
    if baselines.current(root, arguments.name) is None:
        raise _no_such(root, arguments.name)
    baselines.name_it(root, arguments.name, None)
    print(f"removed the name {arguments.name}; `hpcbench gc --older` may now delete its experiment")
    return 0


def _check_whole(experiment: Experiment, *, force: bool) -> None:
    """Refuse an experiment that is no reliable baseline.

    Raises:
        UserError: it failed; or it is not done or has no scores, and `force` is not set.
    """
    known = outcome(experiment)
    state, why = (known.state, known.why) if known else ("", "")
    if state == "failed":
        remedy = f"`hpcbench resume {experiment.id}` repeats what failed"
        raise UserError(f"{experiment.id} failed, so it cannot be a baseline{why}", remedy=remedy)
    wrong = ""
    if force:
        return
    if state != "done":
        wrong = f"is {state}, not done{why}" if state else "has not ended"
    elif not experiment.metrics_file.exists():
        wrong = "has no scores"
    if wrong:
        raise UserError(
            f"{experiment.id} {wrong}, so it is not a reliable baseline",
            remedy="--force sets it all the same",
        )


def _no_such(root: Path, name: str) -> UserError:
    names = [one.name for one in baselines.baselines(root)]
    return UserError(unknown("baseline", name, names))


def _print(found: Sequence[baselines.Baseline]) -> None:
    shown = table("name", "experiment", "since", "by", "note")
    for one in found:
        when = day(one.time)
        shown.add_row(one.name, one.experiment or "– removed", when, one.by, one.note)
    console().print(shown)
