"""What is done for jobs while they run: workers of an array that has ended are given to others, and a job
that Slurm starts again keeps away from the node it died on."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench import slurm
from hpcbench.experiment.claims import ShardState
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import EventLog
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.planning import shares


def share_workers(
    experiment: Experiment, busy: Sequence[slurm.Job], left: Sequence[ShardState]
) -> None:
    """Let the arrays that live have all the workers that the plan allows at once; under `alone`.

    An array that has ended gives its share to the others, and so does one whose group has nothing left: its
    waiting tasks are cancelled.

    Args:
        experiment: the experiment.
        busy: its jobs that work or wait.
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
    slurm.cancel_waiting(idle)  # array tasks that would find nothing to do
    steps = [step for step in steps if weights[step.group]]
    parts = [weights[step.group] * step.workers for step in steps]
    with EventLog(experiment.submission_file) as log:
        for step, share in zip(
            steps, shares(parts, experiment.resolved.plan.parallelism), strict=True
        ):
            known = step.throttle or now.group(step.group).throttle
            if share > known and slurm.set_throttle(str(step.job), share):
                log.write("throttle", step=step.name, to=share)


def unlaunched(reason: str) -> bool:
    """Whether a job waits because its node could not launch it: Slurm holds it until somebody releases it."""
    return reason.replace("_", " ").lower() == "launch failed requeued held"


def release_unlaunched(alive: Sequence[slurm.Job]) -> None:
    """Let jobs start that their node could not launch; Slurm has drained that node.

    Raises:
        EnvironmentFault: Slurm does not answer.
    """
    held = [job.id for job in alive if job.state == "PENDING" and unlaunched(job.reason)]
    if held:
        slurm.release_hold(held)


def keep_off_failed_nodes(experiment: Experiment, alive: Sequence[slurm.Job]) -> None:
    """A job that waits to be started again, after a run that ended without a word, gets another node.

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
