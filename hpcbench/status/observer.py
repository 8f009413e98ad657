"""Status of experiments: progress from files, liveness from Slurm, combined into one answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import (
    Ends,
    ShardState,
    id_of_owner,
    seat_of,
    shard_states,
)
from hpcbench.experiment.control import control_state
from hpcbench.experiment.event_log import reported_ends
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.submission import job_name
from hpcbench.experiment.view.readings import monitor_heard
from hpcbench.experiment.view.workers import WorkerRun, WorkerRuns
from hpcbench.slurm import LOST
from hpcbench.status import own_jobs as own_jobs
from hpcbench.status.experiment_status import (
    Brief,
    ExperimentStatus,
    ShardStatus,
    State,
)
from hpcbench.status.findings import (
    Facts,
    RunState,
    is_news,
    outcome_of,
    rounds_now,
    state_of,
)
from hpcbench.status.own_jobs import Jobs
from hpcbench.status.render import in_words
from hpcbench.status.shards import OwnerFacts, judge


class Observer:
    """Observes one experiment: each look reads only data that is new since the last look."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._ends: dict[str, Ends] = {}
        """`SHARD.ATTEMPT` that workers reported done since the last look → first and last event."""
        # The callback refers to the dict, not to the observer: a cycle would hold megabytes for long.
        self._workers = WorkerRuns(experiment, partial(_hear, self._ends))
        self._order: list[str] = []
        self._done: dict[str, tuple[ShardState, ShardStatus]] = {}
        self._job_ends: dict[str, slurm.JobEnd] = {}

    def look(self, snapshot: slurm.Snapshot | None = None) -> ExperimentStatus:
        """The experiment's current status; queries Slurm no more often than `slurm.snapshot` does.

        Args:
            snapshot: Slurm's answer, if the caller has it already.
        """
        facts = self.facts(snapshot)
        return in_words(facts, self.state(facts))

    def shards(self, snapshot: slurm.Snapshot | None = None) -> list[ShardStatus]:
        """Every shard, in planned order."""
        return [shard for _, shard in self.facts(snapshot).shards]

    def facts(self, snapshot: slurm.Snapshot | None = None) -> Facts:
        """All current facts, see `look`."""
        now = time.time()
        run_state = _run_state(self.experiment, snapshot)
        workers, _ = self._workers.look()
        ended = run_state.outcome is not None
        enough = run_state.control.enough_tasks
        shards = [
            (state, shard)
            for state, shard in self._shards(workers, run_state, now)
            # Shards that are not needed any more count neither as left nor as lost.
            if state.state == "done" or state.shard.run_task not in enough
        ]
        last_runs = _last_runs(workers)
        living = [
            one
            for one in workers
            if not ended and one.restart >= last_runs[one.seat] and self._lives(one, run_state.jobs)
        ]
        if not ended:
            self._learn(_vanished(workers, living), run_state)
        return Facts(self.experiment, now, run_state, workers, living, shards, self._job_ends)

    def state(self, facts: Facts) -> State:
        """The state that follows from the facts."""
        run_state = facts.run_state
        last = max((worker.heard for worker in facts.workers), default=0.0)
        started = run_state.rounds[-1].started if run_state.rounds else 0.0
        works, news = is_news(last, facts.now), is_news(max(last, started), facts.now)
        if not (facts.ended or run_state.jobs.alive or news) and run_state.rounds:
            self._learn(run_state.rounds[-1].finalisers, run_state)
        return state_of(
            run_state,
            whole=all(state.state == "done" for state, _ in facts.shards),
            rests=_rests(facts),
            works=works,
            news=news,
            job_ends=self._job_ends,
            from_jobs=self.experiment.planned.submit_from_jobs,
        )

    def _shards(
        self, workers: Iterable[WorkerRun], run_state: RunState, now: float
    ) -> list[tuple[ShardState, ShardStatus]]:
        """Every shard in planned order; done shards are neither read nor judged again."""
        ends = dict(self._ends)
        self._ends.clear()  # from now on `_done` has these shards
        fresh = {
            state.shard.id: state
            for state in shard_states(
                self.experiment, _names(self.experiment), self._done.keys(), ends
            )
        }
        if not self._order:
            self._order = list(fresh)
        owners = self._owners(fresh, workers, run_state)
        ended, control = run_state.outcome is not None, run_state.control
        known = self._done | {
            key: (
                state,
                judge(
                    state,
                    owners.get(key),
                    now,
                    ended=ended,
                    cancelled=control.cancelled or state.shard.run_task in control.cancelled_tasks,
                ),
            )
            for key, state in fresh.items()
        }
        self._done |= {key: known[key] for key, state in fresh.items() if state.state == "done"}
        return [known[key] for key in self._order]

    def _owners(
        self, states: Mapping[str, ShardState], workers: Iterable[WorkerRun], run_state: RunState
    ) -> dict[str, OwnerFacts]:
        """The known facts about the owner of each claimed shard, by the shard's id."""
        by_id = {worker.id: worker for worker in workers}
        last_runs = _last_runs(by_id.values())
        held = {key: state for key, state in states.items() if state.state == "claimed"}
        lives = {
            key: own_jobs.life(
                self.experiment, state, run_state.jobs, last_runs.get(seat_of(state.owner), 0)
            )
            for key, state in held.items()
        }
        gone = {_job(state) for key, state in held.items() if lives[key] == "gone"}
        self._learn(sorted(gone), run_state)
        found = {}
        for key, state in held.items():
            said = state.owner or {}
            worker = by_id.get(id_of_owner(said))
            last = max(worker.heard if worker else 0.0, state.began)
            if worker and lives[key] != "gone":
                last = max(last, monitor_heard(self.experiment, worker))
            cause = (worker.ending if worker else "") or self._why(_job(state))
            node = str(said.get("node") or said.get("host") or "") or None
            found[key] = OwnerFacts(lives[key], last, cause, node)
        return found

    def _lives(self, worker: WorkerRun, jobs: Jobs) -> bool:
        if worker.over:
            return False
        if jobs.snapshot is None:
            here = own_jobs.process_lives_here(self.experiment, worker.host, worker.pid, jobs)
            return is_news(worker.heard, time.time()) if here is None else here
        if jobs.answered and worker.started > jobs.snapshot.time:
            return True  # it started after the query of Slurm
        job = jobs.find(worker.job)
        if job is None:
            return not jobs.answered and is_news(worker.heard, time.time())
        return job.state != "PENDING" and job.restarts <= worker.restart

    def _learn(self, gone: Sequence[str], run_state: RunState) -> None:
        """Ask Slurm for the ends of jobs that are gone, until it knows them: accounting may be late."""
        unknown = [
            job for job in gone if job and getattr(self._job_ends.get(job), "state", LOST) == LOST
        ]
        if not unknown or run_state.jobs.snapshot is None or not run_state.jobs.answered:
            return
        names = [
            job_name(self.experiment, step, one.number)
            for one in run_state.rounds
            for step in one.steps
        ]
        with contextlib.suppress(EnvironmentFault):  # then only files count, for now
            job_ends = slurm.job_ends(unknown, names, since=own_jobs.last_change(self.experiment))
            self._job_ends |= {job: job_ends[job] for job in unknown if job in job_ends}

    def _why(self, job: str) -> str:
        end = self._job_ends.get(job)
        return "" if end is None or end.alive else end.text


def status(experiment: Experiment) -> ExperimentStatus:
    """The status of an experiment; queries Slurm no more often than `slurm.snapshot` does."""
    return Observer(experiment).look()


def due(experiment: Experiment, now: ExperimentStatus | None = None) -> bool:
    """Whether the next step needs this login node: then call `hpcbench.finalise` here.

    This is so in three cases: no job lives and work or the end is left; workers wait because of a limit of
    Slurm and jobs of this site may not submit them; Slurm holds a job that it could not launch. It is not so
    for experiments that users paused, cancelled or ended by hand.
    """
    now = now or status(experiment)
    if now.executor != "slurm" or (now.slurm is not None and now.slurm.fault):
        return False
    from_jobs = experiment.planned.submit_from_jobs
    rest = bool(now.deferred) and not from_jobs and now.state in ("pending", "running")
    held = any(slurm.unlaunched(wait.reason) for wait in now.waits)
    return now.state == "stalled" or rest or held


def briefs(experiments: Iterable[Experiment]) -> list[Brief]:
    """Short statuses of many experiments, with one query of Slurm for all of them."""
    known = {experiment: _ended(experiment) for experiment in experiments}
    asking = [
        own_jobs.last_change(experiment)
        for experiment, ended in known.items()
        if ended is None and experiment.planned.executor == "slurm"
    ]
    asked = slurm.snapshot(newer_than=max(asking)) if asking else None
    return [_brief(experiment, ended, asked) for experiment, ended in known.items()]


def _ended(experiment: Experiment) -> State | Literal["unreadable"] | None:
    """How an experiment ended; None: it has not ended."""
    try:
        rounds, _ = rounds_now(experiment)
        ended = outcome_of(experiment, rounds, control_state(experiment))
        _ = experiment.work, ended == "done" or experiment.planned
        return ended
    except (OSError, ValueError, KeyError, TypeError):
        return "unreadable"  # one experiment of an older version must not hide the others


def _brief(
    experiment: Experiment,
    ended: State | Literal["unreadable"] | None,
    asked: slurm.Snapshot | None,
) -> Brief:
    if ended == "unreadable":
        path = str(experiment.path)
        return Brief(id=experiment.id, state=ended, path=path, run_tasks=0, samples=0, answered=0)
    cuts = experiment.work.cuts
    samples = answered = sum(cut.samples for cut in cuts)
    state: State = "done"
    if ended != "done":
        observer = Observer(experiment)
        facts = observer.facts(asked)
        answered = sum(shard.answered for _, shard in facts.shards)
        state = observer.state(facts)
    return Brief(
        id=experiment.id,
        state=state,
        path=str(experiment.path),
        run_tasks=len(cuts),
        samples=samples,
        answered=answered,
    )


def _rests(facts: Facts) -> bool:
    """Whether users paused all remaining work: the experiment, or all its unfinished run tasks."""
    control = facts.run_state.control
    if control.paused or not control.paused_tasks:
        return control.paused
    left = {one.shard.run_task for one, _ in facts.shards if one.state != "done"}
    return bool(left & control.paused_tasks) and all(map(control.rests, left))


def _run_state(experiment: Experiment, snapshot: slurm.Snapshot | None) -> RunState:
    rounds, busy = rounds_now(experiment)
    control = control_state(experiment)
    ended = outcome_of(experiment, rounds, control)
    jobs = Jobs() if ended else own_jobs.look(experiment, rounds, snapshot)
    said = outcome(experiment) if ended else None
    return RunState(
        rounds,
        busy,
        ended,
        control,
        jobs,
        (said.reason or None) if said else None,
        said.run_tasks if said else {},
    )


def _hear(ends: dict[str, Ends], run: WorkerRun, event: Mapping[str, Any]) -> None:
    if event["event"] == "shard_done" and run.owner:
        ends[f"{event.get('shard')}.{event.get('attempt')}"] = reported_ends(event, run.owner)


def _last_runs(workers: Iterable[WorkerRun]) -> dict[str, int]:
    """Seat → number of its last run. Slurm may have counted fewer runs, see `experiment/job_runs.py`."""
    found: dict[str, int] = {}
    for worker in workers:
        found[worker.seat] = max(worker.restart, found.get(worker.seat, 0))
    return found


def _vanished(workers: Iterable[WorkerRun], living: Sequence[WorkerRun]) -> list[str]:
    """Jobs of workers that are gone without a last event."""
    alive = {worker.id for worker in living}
    return [
        worker.job for worker in workers if worker.last_words is None and worker.id not in alive
    ]


def _names(experiment: Experiment) -> list[str]:
    return [run_task.name for run_task in experiment.planned.run_tasks]


def _job(state: ShardState) -> str:
    return str((state.owner or {}).get("job", ""))
