"""`python -m hpcbench.scorer ASKED FOLDER`: score samples, see `exchange`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcbench.errors import HpcbenchError
from hpcbench.scorer import handover
from hpcbench.scorer.description import facts_of, load
from hpcbench.scorer.isolate import Guard, error_line
from hpcbench.scorer.one import Scorer


def main(argv: Sequence[str]) -> None:
    """Score by each metric that can be loaded, one after the other."""
    threading.Thread(target=_end_with_the_host, daemon=True).start()
    here, there = Path(argv[0]), Path(argv[1])
    os.environ["TMPDIR"] = str(there)  # a container's own /tmp may hold megabytes alone
    wanted, seconds = handover.read_metrics(here)
    metrics: dict[int, Any] = {}
    for number, one in enumerate(wanted):
        try:
            metric = load(one)
            if hasattr(metric, "check_here"):
                metric.check_here()
            said = facts_of(metric).model_dump(mode="json")
            metrics[number] = metric
        except HpcbenchError as error:
            said = {"error": " ".join(str(error).split())}
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            said = {"error": error_line(error)}
        handover.write_whole(handover.facts_file(there, number), [json.dumps(said)])
    if not (here / handover.SAMPLES).exists():
        return
    asked = handover.read_asked(here)
    for number, metric in metrics.items():
        lines = _scores(Scorer(metric), asked, seconds)
        handover.write_whole(handover.scores_file(there, number), lines)


def _scores(
    scorer: Scorer, asked: Sequence[handover.Asked | None], seconds: float
) -> Iterator[str]:
    """Lines of scores, in the order of the samples."""
    if hasattr(scorer.metric, "score_all"):
        scores = iter(scorer.score_all([one for one in asked if one is not None], seconds))
        for one in asked:
            yield handover.score_line(*((None, "") if one is None else next(scores)))
        return
    guard = Guard(seconds)
    with guard:
        for one in asked:
            if one is None:
                yield handover.score_line(None, "")
                continue
            found, fault = guard.call(scorer.score, *one)
            yield handover.score_line(found, fault)


def _end_with_the_host() -> None:
    """End when the pipe to the host ends: it does so even if the host is killed."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
