"""Whether a user has chosen where a plan runs: on a login node no engine starts without that choice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hpcbench import slurm
from hpcbench.errors import Problem
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.submit.image_check import Finding


def unchosen(resolved: ResolvedPlan, plan_file: Path | None = None) -> Iterator[Finding]:
    """A finding if neither plan nor site profile names an executor and this machine submits to a cluster.

    Inside a job of Slurm the engine may run here: the user has asked for this machine.

    Args:
        resolved: the plan.
        plan_file: its file, for the place of the finding.
    """
    chosen = resolved.plan.executor or "executor" in resolved.site.model_fields_set
    if chosen or "SLURM_JOB_ID" in os.environ or not slurm.on_cluster():
        return
    problem = Problem(
        "this machine submits to a Slurm cluster, and neither the plan nor a site profile says where to run",
        str(plan_file) if plan_file is not None else None,
        remedy="`hpcbench init` writes a site profile for the cluster; `--set executor=local` runs the "
        "engine on this machine",
    )
    yield Finding(problem, certain=True, about="executor")
