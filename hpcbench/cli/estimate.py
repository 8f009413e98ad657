"""`hpcbench submit --estimate`: what a plan would take, and where it fits."""

from __future__ import annotations

from dataclasses import asdict

from hpcbench.cli.screen import print_json
from hpcbench.launch.outlook import outlook, words
from hpcbench.schema.plan import ResolvedPlan


def show(resolved: ResolvedPlan, as_json: bool) -> int:
    """Print what a plan would take; nothing is submitted or written."""
    found = outlook(resolved)
    if as_json:
        told = {name: [asdict(queue) for queue in known] for name, known in found.queues.items()}
        data = {**asdict(found.estimate), "measured": found.estimate.measured, "queues": told}
        print_json({"plan": resolved.plan.name, "samples": dict(found.samples), **data})
    else:
        print("\n".join(words(resolved, found)))
    return 0
