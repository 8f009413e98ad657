"""The answers of a run task as tables."""

from __future__ import annotations

from typing import Any

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answers import answer_frames

_OF_TIMES = ("sample", "shard", "outcome", "e2e_ms", "completion_tokens")


def times_of(experiment: Experiment, run_task: str) -> Any:
    """One row per answer of a run task: `sample`, `shard`, `outcome`, `latency` (s), `output_tokens`."""
    import polars

    frames = [
        frame.select(
            "sample",
            "shard",
            "outcome",
            (polars.col("e2e_ms") / 1000).round(9).alias("latency"),
            polars.col("completion_tokens").alias("output_tokens"),
        )
        for frame in answer_frames(experiment, run_task, columns=_OF_TIMES)
    ]
    if frames:
        return polars.concat(frames)
    texts, whole = dict.fromkeys(("sample", "outcome"), polars.String), polars.Int64
    return polars.DataFrame(
        schema={**texts, "shard": whole, "latency": polars.Float64, "output_tokens": whole}
    ).select("sample", "shard", "outcome", "latency", "output_tokens")


def samples_saying(experiment: Experiment, run_task: str, pattern: str) -> Any:
    """Ids of samples whose answer matches a regular expression, as a series."""
    import polars

    says = polars.col("answer").str.contains(pattern).fill_null(value=False)
    found = [
        frame.filter(says)["sample"]
        for frame in answer_frames(experiment, run_task, columns=("sample", "answer"))
    ]
    return polars.concat(found) if found else polars.Series("sample", [], dtype=polars.String)
