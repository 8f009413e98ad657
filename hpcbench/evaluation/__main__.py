"""`python -m hpcbench.evaluation EXPERIMENT`: score all existing answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment


def main(argv: Sequence[str]) -> None:
    """Evaluate one experiment, if its plan has an evaluation stage."""
    experiment = Experiment(Path(argv[0]))
    experiment.use_packages()
    if "evaluation" in experiment.resolved.plan.stages:
        evaluate(experiment, lambda line: print(line, file=sys.stderr))  # noqa: T201 - the job's log


if __name__ == "__main__":
    main(sys.argv[1:])
