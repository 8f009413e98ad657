"""Changes to jobs while they run: the workers of an ended array go to other arrays, and a job that Slurm
restarts avoids the node on which it died."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench import slurm
from hpcbench.experiment.claims import ShardState
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.planning import shares


def share_workers(
    experiment: Experiment, busy: Sequence[slurm.Job], left: Sequence[ShardState]
) -> None:
    """Give the living arrays all workers that the plan allows at once; the caller holds `alone`.

    An ended array gives its share to the others. An array whose group has no work left does the same, and
    its waiting tasks are cancelled.

    Args:
        experiment: the experiment.
        busy: its jobs that run or wait.
        left: shards that are left.

    Raises:
        EnvironmentFault: Slurm does not answer.
    """
    now = rounds(experiment)[-1]
    if not now.several:
        return
    alive = {job.array_job for job in busy if job.reason != "Dependency"}
    steps = [step for step in now.steps.values() if step.group and step.job in alive]
    weights = {
        group.id: sum(
            state.shard.seconds for state in left if state.shard.run_task in group.run_tasks
        )
        for group in now.groups
    }
    idle = [str(step.job) for step in steps if not weights[step.group]]
    slurm.cancel_waiting(idle)  # array tasks that would find no work
    steps = [step for step in steps if weights[step.group]]
    parts = [weights[step.group] * step.workers for step in steps]
    with EventLog(experiment.submission_file) as log:
        for step, share in zip(
            steps, shares(parts, experiment.resolved.plan.parallelism), strict=True
        ):
            known = step.throttle or now.group(step.group).throttle
            if share > known and slurm.set_throttle(str(step.job), share):
                log.write("throttle", step=step.name, to=share)


def release_unlaunched(alive: Sequence[slurm.Job]) -> None:
    """Release jobs that their node could not launch; Slurm has drained that node.

    Raises:
        EnvironmentFault: Slurm does not answer.
    """
    held = [job.id for job in alive if job.state == "PENDING" and slurm.unlaunched(job.reason)]
    if held:
        slurm.release_hold(held)


def keep_off_failed_nodes(experiment: Experiment, alive: Sequence[slurm.Job]) -> None:
    """Move a job that waits for its restart to another node if its last run ended without a final entry.

    Raises:
        EnvironmentFault: Slurm does not answer.
    """
    again = {job.id: job.restarts for job in alive if job.state == "PENDING" and job.restarts}
    if not again:
        return
    runs = [run for run in worker_runs(experiment) if run.owner]
    if len({run.node for run in runs}) < 2:
        return  # there may be no other node
    for run in runs:
        if not run.over and again.get(run.job) == run.restart + 1:
            slurm.exclude_nodes(run.job, [run.node])
