"""lmms-eval's results: `MODEL/DATE_results.json` with `MODEL/DATE_samples_TASK.jsonl` beside it.

The format is that of lmms-eval 0.5 to 0.7 (`--log_samples`): aggregates under `METRIC,none`, one line per
sample with `doc_id`, `input`, `target`, `filtered_resps` and its metrics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import replacing, write_json
from hpcbench.interchange.log_records import (
    Logged,
    RunTaskLog,
    flat,
)


def write(
    experiment: Experiment, logs: Sequence[RunTaskLog], out: Path
) -> Iterator[tuple[Path, int]]:
    """Write the results of an experiment, one folder per model; yields each file with its new samples."""
    date = experiment.created.strftime("%Y%m%d_%H%M%S")
    models: dict[str, list[RunTaskLog]] = {}
    for log in logs:
        models.setdefault(log.run_task.model.name, []).append(log)
    for model, own in models.items():
        folder = out / flat(f"{model}__{experiment.id}")
        counts, hashes = {}, {}
        for log in own:
            path = folder / f"{date}_samples_{log.run_task.name}.jsonl"
            total = hashlib.sha256()
            with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
                count = 0
                for one in log.samples:
                    line = _sample(log, one)
                    total.update(str(line["doc_hash"]).encode())
                    file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
                    count += 1
            counts[log.run_task.name], hashes[log.run_task.name] = count, total.hexdigest()
            yield path, count
        # Last: a viewer looks for it first.
        path = folder / f"{date}_results.json"
        write_json(path, _results(experiment, model, own, date, counts, hashes))
        yield path, 0


def _sample(log: RunTaskLog, one: Logged) -> dict[str, Any]:
    """A sample's record; a sample that was never sent has no answer and no metric."""
    sample = one.sample
    targets = [
        reference if isinstance(reference, str) else json.dumps(reference, ensure_ascii=False)
        for reference in sample.references
    ]
    known = {"id": sample.id, **sample.fields}
    scores = {name: one.scores[name] for name in log.names if one.scores.get(name) is not None}
    return {
        "doc_id": one.number,
        "target": targets[0] if len(targets) == 1 else json.dumps(targets, ensure_ascii=False),
        "filtered_resps": [one.text] if one.response is not None else [],
        "doc_hash": hashlib.sha256(
            json.dumps(known, sort_keys=True, ensure_ascii=False, default=str).encode(
                "utf-8", "backslashreplace"
            )
        ).hexdigest(),
        "input": one.messages[-1].text if one.messages else "",
        "sample_id": sample.id,
        "outcome": one.response.outcome if one.response is not None else "missing",
        **scores,
    }


def _results(
    experiment: Experiment,
    model: str,
    logs: Sequence[RunTaskLog],
    date: str,
    counts: Mapping[str, int],
    hashes: Mapping[str, str],
) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    for log in logs:
        table = results[log.run_task.name] = {"alias": log.run_task.name}
        for name, entry in log.metrics.items():
            if entry is not None:
                table[f"{name},none"] = entry.value
                table[f"{name}_stderr,none"] = "N/A"  # hpcbench gives intervals instead
                table[f"{name}_low,none"], table[f"{name}_high,none"] = entry.low, entry.high
    run_task = logs[0].run_task
    return {
        "results": results,
        "configs": {
            log.run_task.name: {
                "task": log.run_task.name,
                "dataset_path": log.run_task.dataset.source,
                "dataset_name": log.run_task.dataset.name,
                "test_split": log.run_task.dataset.split,
            }
            for log in logs
        },
        "versions": {
            log.run_task.name: ";".join(entry.signature for entry in log.metrics.values() if entry)
            for log in logs
        },
        "n-samples": {
            log.run_task.name: {
                "original": counts[log.run_task.name],
                "effective": counts[log.run_task.name],
            }
            for log in logs
        },
        "higher_is_better": {
            log.run_task.name: {
                name: one.higher_is_better for name, one in log.metrics.items() if one
            }
            for log in logs
        },
        "config": {
            "model": run_task.model.engine,
            "model_args": f"pretrained={run_task.model.source or model}",
            "batch_size": run_task.in_flight,
            "limit": run_task.task.limit,
        },
        "date": date,
        "task_hashes": dict(hashes),
        "model_source": run_task.model.engine,
        "model_name": model,
        "model_name_sanitized": flat(model),
        "hpcbench": {"experiment": experiment.id, "version": hpcbench.__version__},
    }
