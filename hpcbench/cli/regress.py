"""`hpcbench regress`: a plan against its baseline, as far as possible now."""

from __future__ import annotations

import argparse
import time

from hpcbench.cli.gate import print_verdict
from hpcbench.cli.output import follow, print_json, say
from hpcbench.cli.submit import prepared_once
from hpcbench.errors import UserError
from hpcbench.registry.resolve import load_gate
from hpcbench.regress import Ask, Regression, Standing
from hpcbench.regress import regress as go_as_far_as_can_be
from hpcbench.submit.plan_packages import load_with_packages
from hpcbench.submit.rounds import submit_first

PAUSE = 1.0
"""Seconds between looks without an experiment to follow, e.g. while another call prepares a run."""


def regress(arguments: argparse.Namespace) -> int:
    """`hpcbench regress PLAN --baseline NAME`."""
    resolved, packages = load_with_packages(
        arguments.plan, arguments.registry, arguments.settings, say=say
    )
    baseline = arguments.baseline or resolved.plan.baseline
    if baseline is None:
        raise UserError("the plan names no baseline", remedy="--baseline NAME")
    policy = resolved.gate
    if arguments.policy is not None or policy is None:
        policy = load_gate(arguments.policy or "default", arguments.registry)
    wanted = Regression(
        plan=arguments.plan,
        resolved=resolved,
        baseline=baseline,
        policy=policy,
        set_if_none=arguments.set_baseline_if_none,
        promote=arguments.promote,
        go_on=arguments.next,
    )
    ask = Ask(
        prepare=lambda plan: prepared_once(plan, arguments.plan, packages),
        submit=submit_first,
        say=say if arguments.json else print,
    )
    standing = go_as_far_as_can_be(wanted, ask)
    while arguments.wait and standing.state in ("submitted", "running"):
        for experiment in standing.experiments:
            follow(experiment, silent=arguments.json)
        time.sleep(PAUSE)
        standing = go_as_far_as_can_be(wanted, ask)
    return _print(standing, as_json=arguments.json)


def _print(standing: Standing, *, as_json: bool) -> int:
    if as_json:
        ids = [one.id for one in standing.experiments]
        print_json({"state": standing.state, "experiments": ids, "verdict": standing.verdict})
    elif standing.verdict is not None:
        print_verdict(standing.verdict)
    return standing.exit_code
