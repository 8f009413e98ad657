"""What the last job of a round runs: take over what dead workers left, submit it again, or report.

It is the only place that decides whether an experiment has ended; `outcome.json` is its word.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hpcbench import evaluation
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.files import write_json
from hpcbench.experiment.layout import Experiment
from hpcbench.launch.status import model_never_loaded
from hpcbench.launch.submit import cancelled, release_dead, remaining, rounds, submit_round
from hpcbench.launch.uploading import upload_results
from hpcbench.reporting import report
from hpcbench.reporting.telling import tell


def main(argv: Sequence[str]) -> None:
    """Finalise one experiment: `hpcbench.finalise EXPERIMENT`."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    finalise(experiment)


def finalise(experiment: Experiment) -> None:
    """Release dead claims; submit what is left, within the plan's bound, or evaluate and report."""
    release_dead(experiment)
    number = rounds(experiment)[-1].number
    allowed = experiment.resolved.plan.max_resubmits
    if not cancelled(experiment) and number < allowed and _worth_another(experiment):
        try:
            submit_round(experiment)
        except HpcbenchError as error:
            print(f"could not submit what is left: {error}", file=sys.stderr)  # noqa: T201 - the job's log
        else:
            return
    conclude(experiment)


def conclude(experiment: Experiment) -> None:
    """Evaluate what is there, report, and say how the experiment ended."""
    stages = experiment.resolved.plan.stages
    if "evaluation" in stages:
        evaluation.evaluate(experiment)
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    left = [one for one in shard_states(experiment, names) if one.state != "done"]
    tables = report(experiment) if "reporting" in stages else None
    state = "incomplete" if left else "done"
    write_json(
        experiment.path / "outcome.json",
        {
            "version": 1,
            "round": rounds(experiment)[-1].number,
            "state": state,
            "shards_left": [one.shard.id for one in left],
        },
    )
    for one in upload_results(experiment):
        if "error" in one:
            print(f"could not upload: {one['error']}", file=sys.stderr)  # noqa: T201 - the job's log
    for failure in tell(experiment, state, tables):
        print(f"could not tell: {failure}", file=sys.stderr)  # noqa: T201 - the job's log


def _worth_another(experiment: Experiment) -> bool:
    """Whether any shard is left whose model was ever seen to load, or was never tried."""
    broken = model_never_loaded(experiment)
    resolved = experiment.resolved
    return any(
        resolved.run_task(state.shard.run_task).model.name not in broken
        for state in remaining(experiment)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
