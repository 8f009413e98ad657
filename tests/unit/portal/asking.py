"""Experiments as the portal finds them, and a portal over them without an index of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import polars

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import KEYS
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.planning import plan_work
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.index.sql_index import Index
from hpcbench.portal.sample_flags import Flags
from hpcbench.portal.sample_table import SampleCache, sample_cache_of
from tests.unit.small import (
    experiment,
    measured,
    record,
    resolved,
    response,
    run_task,
    write_attempt,
)

KEPT = (
    "sample", "document", "outcome", "reason", "mistake", "invalid", "answer", "prediction",
    "references", "error",
)  # fmt: skip


class NoIndex:
    """An index that knows nothing."""

    row: Any = None
    """Its row of every run task."""

    def run_task(self, experiment: str, name: str) -> Any:
        """The row, if there is one."""
        return self.row

    def places(self, experiment: str, file: str) -> None:
        """No places."""


def portal_over(folder: Path) -> Portal:
    """A portal of the experiments in a folder; marks are kept beside them."""
    found = Portal(folder, Options(folder), cast(Index, NoIndex()), Hub())
    found.kept[sample_cache_of] = SampleCache(
        flags=Flags(folder / "state" / "portal" / "flags.jsonl")
    )
    return found


def scored(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    metrics: Sequence[str] = ("anls", "cer"),
    name: str = "20261120-1432-plan-aaaa",
    shard_size: int = 4,
) -> Experiment:
    """An experiment whose scores are these rows; columns that are not there are empty.

    Args:
        folder: the home.
        rows: cells of `scores`, metrics and `meta.NAME` among them.
        metrics: metrics, the leading one first.
        name: the experiment's id.
        shard_size: samples of a shard.
    """
    plan = resolved(
        run_task(dataset={"source": "/nowhere"}, metrics=metrics), shard_size=shard_size
    )
    found = measured(plan, len(rows))
    here = Experiment(folder / "experiments" / name)
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.chosen_file, {"rt": [(0, len(rows))]})
    reported = found.model_dump(mode="json", exclude={"chosen"})
    write_json(
        here.manifest_file,
        {"work": asdict(plan_work(plan, found)), "measured": reported},
    )
    metas = sorted({key for row in rows for key in row if key.startswith("meta.")})
    text, number = polars.String, polars.Float64
    schema: dict[str, Any] = {
        **dict.fromkeys(KEPT, text), "invalid": polars.Boolean, "references": polars.List(text),
        "e2e_ms": number, "completion_tokens": polars.Int64,
        **dict.fromkeys(metas, text),
    }  # fmt: skip
    for metric in metrics:
        own = dict.fromkeys((metric, f"{metric}.numerator", f"{metric}.denominator"), number)
        schema |= {**own, f"{metric}.fault": text}
    here.scores_dir.mkdir(parents=True, exist_ok=True)
    plain = {"document": "d", "outcome": "ok", "invalid": False, "references": []}
    cells = {
        column: [
            {**plain, "sample": f"s{place}", **row}.get(column) for place, row in enumerate(rows)
        ]
        for column in schema
    }
    keys = json.dumps({"rows": len(rows)})
    polars.DataFrame(cells, schema=schema).write_parquet(
        here.scores_file("rt"), metadata={KEYS: keys}
    )
    return here


def png(width: int = 40, height: int = 30, form: str = "PNG", **more: Any) -> bytes:
    """A picture."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(out, form, **more)
    return out.getvalue()


def evaluated(
    folder: Path,
    answers: Sequence[str | None],
    records: Sequence[Mapping[str, Any]] | None = None,
    **task: Any,
) -> Experiment:
    """An experiment in which sample n was answered so, evaluated; the right answer is n. None: it failed."""
    here = running(folder, answers, records, **task)
    evaluate(here)
    return Experiment(here.path)


def running(
    folder: Path,
    answers: Sequence[str | None],
    records: Sequence[Mapping[str, Any]] | None = None,
    asked: int | None = None,
    **task: Any,
) -> Experiment:
    """The same, not evaluated; only the first `asked` samples were asked."""
    lines = records or [record(number) for number in range(len(answers))]
    here = experiment(folder, lines, 4, **task)
    (folder / "data" / "p.png").write_bytes(png())
    count = len(answers) if asked is None else asked
    for shard in here.work.shards:
        stop = min(shard.stop, count)
        if shard.start < stop:
            some = [
                response(str(lines[place]["id"]), answers[place])
                for place in range(shard.start, stop)
            ]
            write_attempt(here, shard.index, 1, some, "done" if stop == shard.stop else "drained")
    return here
