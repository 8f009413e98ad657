"""The next step of an experiment: release shards of dead workers, submit a further round, or report.

Only this module decides how an experiment continues and whether it has ended; it writes `outcome.json`. Any
process may call it at any time, repeatedly or concurrently: the last job of a round, a worker that ends (on a
site with only GPU nodes, the last worker does all of it), and the login node where jobs may not call sbatch.
It reads the present state, does the steps that are due, and does no step twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from hpcbench import garbage, slurm
from hpcbench.comparison import gate, history
from hpcbench.comparison.interim import last_looks
from hpcbench.database import later
from hpcbench.errors import EnvironmentFault, HpcbenchError, Problem, RunFailed, UserError
from hpcbench.evaluation import stage
from hpcbench.evaluation.endings import endings
from hpcbench.experiment.answer_index import write_index
from hpcbench.experiment.archiving import fold, fold_workers
from hpcbench.experiment.claims import ShardState, shard_states
from hpcbench.experiment.control import ControlState, control_state
from hpcbench.experiment.ending import experiment_end
from hpcbench.experiment.interim import settle
from hpcbench.experiment.last_word import NO_ROOM, finaliser_found_no_room, finalisers_ballast
from hpcbench.experiment.layout import Experiment, find
from hpcbench.experiment.outcome import Outcome, ended, outcome, state_of
from hpcbench.experiment.submission import Round, job_name, rounds
from hpcbench.experiment.submission_lock import LOCK_SECONDS, alone
from hpcbench.notify.dispatch import tell, tell_verdict
from hpcbench.reporting.upload import upload_results
from hpcbench.reporting.writing import report
from hpcbench.resume import last_job
from hpcbench.resume.rebalance import keep_off_failed_nodes, release_unlaunched, share_workers
from hpcbench.resume.resubmit import bad_nodes, may_go_on, next_groups, stop_over_budget
from hpcbench.status.liveness import (
    ask_again,
    forgive,
    living,
    release_dead,
    remaining,
    reopen_damaged,
    supervisors,
    working,
)
from hpcbench.submit import oauth_tokens, secrets_file
from hpcbench.submit.rounds import begin_first_round, begin_round, hand_over, submit_last_job
from hpcbench.usage.durations import remember
from hpcbench.usage.gpu_hours import account

UPLOAD_SECONDS = 300.0
"""How long the end of an experiment waits while another process uploads earlier results."""


def main(argv: Sequence[str]) -> None:
    """`hpcbench.finalise EXPERIMENT [--worker | --supervised]`.

    With `--worker` it does not wait for other processes; with `--supervised` all workers have ended.
    """
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    patience = 0 if "--worker" in argv else 2 * LOCK_SECONDS
    try:
        advance(experiment, patience=patience, supervised="--supervised" in argv)
    except RunFailed:
        return  # another process does it
    except (EnvironmentFault, UserError) as fault:
        # Nothing is lost: the next call on the login node continues from here.
        print(f"this job could not complete the round: {fault}", file=sys.stderr)  # noqa: T201 - the job's log
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        sys.exit(finaliser_found_no_room(experiment, error))


def advance(
    experiment: Experiment,
    *,
    patience: float = 0,
    again: bool = False,
    supervised: bool = False,
    force: bool = False,
) -> str:
    """Do the steps that are due; returns the result in one word.

    `running` workers are at work · `paused` · `submitted` a further round, or more of this one · `left`
    to the login node, as this job may not submit · `concluded`.

    Args:
        experiment: the experiment.
        patience: how long to wait while another process does the same, seconds.
        supervised: the local executor's supervisor states that all its workers have ended.
        again: the user resumes an ended experiment: shards that were given up are tried again.
        force: the user states that a supervisor and workers of another host are gone.

    Raises:
        RunFailed: another process is doing the same.
        UserError: the local executor's supervisor belongs to another host, and only that host can see it.
        EnvironmentFault: Slurm does not answer or refuses.
    """
    with alone(experiment, patience):
        before = state_of(experiment) if ended(experiment) else None
        if before is not None and not again:
            return "concluded"
        settle(experiment)
        known = rounds(experiment)
        can_submit = _can_submit(experiment)
        if not can_submit and not (known and known[-1].handed):
            return "left"
        if again and not (known and known[-1].handed):
            _require_secrets(experiment)
        if not known:  # killed between preparing and submitting
            begin_first_round(experiment)
            return "submitted"
        if not known[-1].handed:
            hand_over(experiment)
            return "submitted"
        now = control_state(experiment)
        alive = [] if supervised else _alive(experiment)
        if not (supervised or force or before):
            _refuse_unseen(experiment, known)
        release_dead(experiment, alive, elsewhere_gone=force)
        if again:
            forgive(experiment)
        busy = working(experiment, alive)
        if busy:
            return _while_others_work(experiment, now, busy) if can_submit else "running"
        if now.paused and not now.cancelled:
            return "paused"
        if not now.cancelled:
            reopen_damaged(experiment)
            if again and before in ("incomplete", "failed"):
                ask_again(experiment)
            if (result := _further_round(experiment, now, again, can_submit)) is not None:
                return result
            if _last_job_again(experiment, forced=again):
                return "submitted"
        conclude(experiment)
    secrets_file.forget(experiment)
    if can_submit:
        _cancel_the_net(experiment)
    return "concluded"


def _further_round(
    experiment: Experiment, now: ControlState, again: bool, can_submit: bool
) -> str | None:
    """Submit a round for the work that is left; the result as of `advance`, None: nothing is left to try."""
    left = remaining(experiment)
    open_left = [state for state in left if not now.rests(state.shard.run_task)]
    if left and not open_left:
        return "paused"
    answered = count_answered(experiment)
    if open_left and stop_over_budget(experiment, open_left):
        now = control_state(experiment)
        open_left = [state for state in open_left if not now.rests(state.shard.run_task)]
    if not open_left or not (again or may_go_on(experiment, open_left, answered)):
        return None
    groups = next_groups(experiment, open_left, again=again)
    if not groups:
        return None
    if not can_submit:
        return "left"
    if again:
        _require_secrets(experiment, {state.shard.run_task for state in open_left})
    begin_round(experiment, groups, bad_nodes(experiment), answered)
    return "submitted"


def _require_secrets(experiment: Experiment, run_tasks: Collection[str] | None = None) -> None:
    """Check, as submission does, that the user who resumes has the secrets, and that token servers take them.

    Args:
        experiment: the experiment.
        run_tasks: those whose samples are asked; None: all.

    Raises:
        UserError: a secret is missing, or a token server refuses it.
    """
    secrets_file.lend(experiment)
    resolved = experiment.resolved
    asked = [one for one in resolved.run_tasks if run_tasks is None or one.name in run_tasks]
    resolved = resolved.model_copy(update={"run_tasks": tuple(asked)})
    secrets_file.require(resolved)
    oauth_tokens.require(resolved, lambda line: print(line, file=sys.stderr))  # noqa: T201 - the user's shell


def _last_job_again(experiment: Experiment, *, forced: bool) -> bool:
    """On a login node, submit the last job again if it died; returns whether that was done.

    Evaluation is the work of a job. A login node does it only where no last job could be submitted.

    Args:
        experiment: the experiment.
        forced: however often the last job has died.

    Raises:
        EnvironmentFault: it has died too often, or Slurm refuses.
    """
    now = rounds(experiment)[-1]
    if experiment.planned.executor != "slurm" or "SLURM_JOB_ID" in os.environ or not now.finalisers:
        return False
    names = [job_name(experiment, step.name, now.number) for step in now.last_steps]
    died = last_job.death(now, slurm.job_ends(now.finalisers, names))
    if died is None:
        return False
    wanted = last_job.grown(died.step.resources, died.end.state, experiment.resolved)
    if died.times >= last_job.TRIES and not forced:
        raise EnvironmentFault(
            f"{experiment.id}: its last job (evaluation and report) died {died.times} times: {died.words}",
            remedy=f"`hpcbench resume {experiment.id}` submits it with {last_job.in_words(wanted)}",
        )
    submit_last_job(experiment, wanted, died.words)
    return True


def _can_submit(experiment: Experiment) -> bool:
    """Whether this process may call sbatch, scontrol and scancel: a site may forbid it in jobs."""
    return experiment.planned.submit_from_jobs or "SLURM_JOB_ID" not in os.environ


def count_answered(experiment: Experiment) -> int:
    """Number of answers so far."""
    return sum(state.answered for state in _states(experiment))


def conclude(experiment: Experiment) -> None:
    """Evaluate the answers, report, and write how the experiment ended."""
    secrets_file.load(experiment)  # a login node's shell need not have them
    stages = experiment.resolved.plan.stages
    if "evaluation" in stages:
        stage.evaluate(experiment, lambda line: print(line, file=sys.stderr))  # noqa: T201 - the job's log
        last_looks(experiment)
    ended = _ended_as(experiment)
    state = ended.state
    _count(experiment)
    verdict = _judge(experiment, state)  # before the report, which includes it
    tables = report(experiment) if "reporting" in stages else None
    _owe_rows(experiment)  # before the end is written: a kill after it leaves the debt
    ended.write(experiment)
    finalisers_ballast(experiment).unlink(missing_ok=True)
    _tidy(experiment)
    _remember_results(experiment)
    _send_results(experiment)
    if (left := later.pay(experiment, later.LIMIT)) is not None:
        print(f"not all is in the database: {left}", file=sys.stderr)  # noqa: T201 - the job's log
    failures = tell(experiment, state, tables)
    if verdict is not None:
        failures = [*failures, *tell_verdict(experiment, verdict)]
    for failure in failures:
        print(f"could not send a notification: {failure}", file=sys.stderr)  # noqa: T201 - the job's log


def scored_again(experiment: Experiment) -> None:
    """Update the outcome of an ended experiment after its answers were scored again."""
    before = outcome(experiment)
    if before is None or not ended(experiment):
        return
    now = _ended_as(experiment)
    _owe_rows(experiment)
    if now != before:
        now.write(experiment)
    _remember_results(experiment)


def _ended_as(experiment: Experiment) -> Outcome:
    now = control_state(experiment)
    found = endings(experiment)
    state, reason = experiment_end(found, cancelled=now.cancelled)
    left = [
        one.shard.id
        for one in _states(experiment)
        if one.state != "done" and one.shard.run_task not in now.enough_tasks
    ]
    return Outcome(
        round=rounds(experiment)[-1].number,
        state=state,
        reason=reason,
        run_tasks={name: one.to_json() for name, one in found.items()},
        shards_left=tuple(left),
        notify=bool(experiment.resolved.plan.notifications),
    )


def _count(experiment: Experiment) -> None:
    """Write its usage, for people and for later estimates; an error here fails no experiment."""
    for count in (account, remember):
        try:
            count(experiment)
        except Exception as error:  # noqa: BLE001 - scores and report matter more than any error here
            print(f"could not count the resources used: {error!r}", file=sys.stderr)  # noqa: T201 - the job's log


def _judge(experiment: Experiment, state: str) -> dict[str, Any] | None:
    """Verdict of the plan's gate; None: the plan names no gate, or the judgement failed."""
    resolved = experiment.resolved
    if resolved.gate is None or resolved.plan.baseline is None:
        return None
    try:
        root = experiment.path.parent.parent
        baseline = find(root, resolved.plan.baseline)
        return gate.judge(baseline, experiment, resolved.gate, state=state).write(experiment)
    except Exception as error:  # noqa: BLE001 - no error here changes how the experiment ended
        print(f"gate {resolved.gate.name} could not judge the experiment: {error}", file=sys.stderr)  # noqa: T201 - the job's log
        return None


def _remember_results(experiment: Experiment) -> None:
    """Add the results to the history of results; an error here fails no experiment."""
    if not experiment.metrics_file.exists():
        return
    try:
        history.record(experiment)
    except Exception as error:  # noqa: BLE001 - as above
        print(f"could not add the experiment to the history: {error!r}", file=sys.stderr)  # noqa: T201 - the job's log


def _send_results(experiment: Experiment) -> None:
    """Upload results as the plan says; an error here fails no experiment."""
    try:
        for one in upload_results(experiment, patience=UPLOAD_SECONDS):
            for line in [one["error"]] if "error" in one else one["left"]:
                print(f"could not upload: {line}", file=sys.stderr)  # noqa: T201 - the job's log
    except Exception as error:  # noqa: BLE001 - as above
        print(f"could not upload: {error!r}", file=sys.stderr)  # noqa: T201 - the job's log


def _owe_rows(experiment: Experiment) -> None:
    """Note that the database lacks this end of the experiment; an error here fails no experiment."""
    try:
        later.owe(experiment)
    except Exception as error:  # noqa: BLE001 - as above
        print(f"could not note what the database lacks: {error!r}", file=sys.stderr)  # noqa: T201 - the job's log


def _tidy(experiment: Experiment) -> None:
    """Fold the files of an ended experiment into few, and index its answers for later experiments; after an
    error here, `hpcbench gc` does it."""
    try:
        for run_task in experiment.resolved.run_tasks:
            fold(experiment, run_task.name)
        fold_workers(experiment)
        write_index(experiment)
    except (OSError, HpcbenchError) as error:
        print(f"could not fold and index the experiment's files: {error}", file=sys.stderr)  # noqa: T201 - the job's log


def _alive(experiment: Experiment) -> list[slurm.Job]:
    """Living jobs without finalising jobs, which wait for them."""
    if experiment.resolved.executor != "slurm" and ended(experiment):
        return []  # its supervisor, if still there, is about to end
    own = {job for one in rounds(experiment) for job in one.finalisers}
    return [job for job in living(experiment) if job.array_job not in own]


def _refuse_unseen(experiment: Experiment, known: Sequence[Round]) -> None:
    """Refuse a second supervisor if the first may run on another host, unseen from here."""
    if experiment.resolved.executor == "slurm":
        return
    running, unseen = supervisors(experiment, known)
    if unseen and not running:
        raise UserError(
            Problem(
                f"{experiment.id} was started on {unseen}, and only that machine shows whether it still runs",
                remedy="resume it there, or add --force if that machine no longer exists",
            )
        )


def _while_others_work(experiment: Experiment, now: ControlState, busy: Sequence[slurm.Job]) -> str:
    if experiment.resolved.executor != "slurm" or now.cancelled or now.paused:
        return "running"
    release_unlaunched(busy)
    keep_off_failed_nodes(experiment, busy)
    share_workers(experiment, busy, remaining(experiment))
    if rounds(experiment)[-1].deferred:
        hand_over(experiment, busy)
        return "submitted"
    return "running"


def _states(experiment: Experiment) -> list[ShardState]:
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    return shard_states(experiment, names)


def _cancel_the_net(experiment: Experiment) -> None:
    """Cancel the waiting finalising job after a worker has finalised."""
    if experiment.resolved.executor != "slurm":
        return
    own = {job for one in rounds(experiment) for job in one.finalisers}
    try:
        slurm.cancel([job.id for job in slurm.queue() if job.id in own and job.state == "PENDING"])
    except HpcbenchError as error:
        print(f"could not cancel the waiting last job: {error}", file=sys.stderr)  # noqa: T201 - the job's log


if __name__ == "__main__":
    garbage.skip_last_collection()
    main(sys.argv[1:])
