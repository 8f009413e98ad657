"""Inspect's log, version 2: https://inspect.aisi.org.uk/eval-logs.html

A log is one run task. `.eval` is a zip archive: `header.json`, `summaries.json`, one file per sample; `.json`
holds the same in one object. Scores of a sample are hpcbench's by metric, with the scored prediction;
aggregates come from `metrics.json`, with the ends of their intervals as separate metrics. Samples of agents
have their turns as messages and events, see `inspect_turns`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.files.atomic import replacing
from hpcbench.interchange import inspect_turns
from hpcbench.interchange.log_records import (
    Logged,
    RunTaskLog,
    as_json,
    flat,
    identity,
)
from hpcbench.schema.records import Message

VERSION = 2

STOP_REASONS: Mapping[str, str] = {
    "ok": "stop", "truncated": "max_tokens", "refused": "content_filter",
}  # fmt: skip
"""Outcome → Inspect's stop reason; others are `unknown`."""

SUMMARY = 1_000
"""Characters of the input in a summary."""


def write(log: RunTaskLog, out: Path, *, as_zip: bool) -> tuple[Path, int]:
    """Write the log of a run task; return its path and its number of samples."""
    stamp = log.created.strftime("%Y-%m-%dT%H-%M-%S%z")
    task = flat(log.run_task.name, "-").replace("_", "-")
    name = f"{stamp[:-2]}-{stamp[-2:]}_{task}_{_id(log, 'task')}"
    path = out / f"{name}.{'eval' if as_zip else 'json'}"
    with replacing(path) as temporary:
        count = _write_zip(log, temporary) if as_zip else _write_json(log, temporary)
    return path, count


def _write_json(log: RunTaskLog, path: Path) -> int:
    """Write the samples last, one per line; readers of headers stop before them."""
    header, count = as_json(_header(log)), 0
    with path.open("w", encoding="utf-8") as file:
        file.write(header[:-1] + ', "samples": [')
        for sample in _samples(log):
            file.write(("," if count else "") + "\n" + as_json(sample))
            count += 1
        file.write("\n]}\n")
    return count


def _write_zip(log: RunTaskLog, path: Path) -> int:
    summaries: list[dict[str, Any]] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        header = _header(log)
        start = {"version": VERSION, "eval": header["eval"], "plan": header["plan"]}
        archive.writestr("_journal/start.json", as_json(start))
        for sample in _samples(log):
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", as_json(sample))
            summaries.append(_summary(sample))
        archive.writestr("summaries.json", as_json(summaries))
        archive.writestr("header.json", as_json(header))
    return len(summaries)


def _id(log: RunTaskLog, what: str) -> str:
    return identity(what, log.experiment.id, log.run_task.name)


def _model(log: RunTaskLog, agent: str = "") -> str:
    model = log.model(agent)
    return f"{model.engine}/{model.name}"


def _header(log: RunTaskLog) -> dict[str, Any]:
    """The log without the samples."""
    created = log.created.isoformat()
    return {
        "version": VERSION,
        "status": "success",
        "eval": _spec(log, created),
        "plan": {
            "name": "plan",
            "steps": [{"solver": "hpcbench", "params": {"prompt": log.run_task.prompt.name}}],
            "config": _config(log),
        },
        "results": _results(log),
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
    }


def _spec(log: RunTaskLog, created: str) -> dict[str, Any]:
    run_task, dataset = log.run_task, log.run_task.dataset
    return {
        "run_id": identity("run", log.experiment.id),
        "eval_id": _id(log, "eval"),
        "created": created,
        "task": run_task.name,
        "task_id": _id(log, "task"),
        "task_version": 0,
        "task_attribs": {},
        "task_args": {},
        "dataset": {"name": dataset.name, "location": dataset.source, "shuffled": False},
        "model": _model(log),
        "model_generate_config": _config(log),
        "model_args": {},
        "config": {"epochs": 1, "limit": run_task.task.limit},
        "packages": {"hpcbench": log.experiment.manifest.hpcbench or hpcbench.__version__},
        "metadata": {
            "experiment": log.experiment.id,
            "ml_task": run_task.ml_task.name,
            "signatures": {name: entry.signature for name, entry in log.metrics.items() if entry},
        },
        "scorers": [{"name": name} for name in log.names],
    }


def _config(log: RunTaskLog) -> dict[str, Any]:
    """Sampling settings in Inspect's terms; empty for imported results."""
    if log.experiment.manifest.imported is not None:
        return {}
    asked = log.run_task.task.generation
    found = {
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "seed": asked.seed,
        "stop_seqs": list(asked.stop) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _results(log: RunTaskLog) -> dict[str, Any]:
    scores = []
    for name, entry in log.metrics.items():
        if entry is None:
            continue
        ends = {"value": entry.value, "low": entry.low, "high": entry.high}
        scores.append(
            {
                "name": name,
                "scorer": name,
                "scored_samples": entry.n,
                "params": {"signature": entry.signature},
                "metrics": {
                    key: {"name": key, "value": value, "params": {}}
                    for key, value in ends.items()
                    if value is not None
                },
            }
        )
    count = sum(
        cut.samples for cut in log.experiment.work.cuts if cut.run_task == log.run_task.name
    )
    return {"total_samples": count, "completed_samples": count, "scores": scores}


def _samples(log: RunTaskLog) -> Iterator[dict[str, Any]]:
    """The samples of the run task."""
    for one in log.samples:
        if one.response is not None:
            yield _sample(log, one)


def _sample(log: RunTaskLog, one: Logged) -> dict[str, Any]:
    response, model = one.response, _model(log)
    assert response is not None
    sent = [_message(message) for message in one.messages]
    usage = _usage(response.usage)
    times, trajectory = response.times, one.trajectory
    seconds = None
    if response.tries or trajectory is not None:
        seconds = (times.done - times.start) / 1e9
    work = (
        inspect_turns.of(trajectory, partial(_model, log), log.created)
        if trajectory is not None
        else None
    )
    said = {"role": "assistant", "content": one.text, "source": "generate"}
    stop = STOP_REASONS.get(response.outcome, "unknown")
    targets = [_target(reference) for reference in one.sample.references]
    found: dict[str, Any] = {
        "id": one.sample.id,
        "epoch": 1,
        "input": sent,
        "target": targets[0] if len(targets) == 1 else targets,
        "messages": [*sent, *(work.messages if work is not None else [said])],
        "output": {
            "model": model,
            "choices": [{"message": said, "stop_reason": stop}] if one.answered else [],
            "usage": usage,
            "time": seconds,
            "error": response.error,
        },
        "scores": dict(_scores(log, one)),
        "metadata": {
            "document": one.sample.document,
            "outcome": response.outcome,
            **({"trajectory": dict(response.trajectory)} if response.trajectory else {}),
            **one.sample.metadata,
        },
        "store": {},
        "events": work.events if work is not None else [],
        "attachments": work.attachments if work is not None else {},
        "model_usage": {model: usage} if usage else {},
        "total_time": seconds,
        "working_time": seconds,
        "uuid": identity("sample", log.experiment.id, log.run_task.name, one.sample.id),
    }
    if not one.answered:
        why = response.error or response.outcome
        found["error"] = {"message": why, "traceback": "", "traceback_ansi": ""}
    if seconds is not None:
        started = log.created
        found["started_at"] = started.isoformat()
        found["completed_at"] = (started + timedelta(seconds=seconds)).isoformat()
    return found


def _summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a sample that a viewer lists."""
    texts = [
        part["text"]
        for message in sample["input"]
        for part in (
            message["content"]
            if isinstance(message["content"], list)
            else [{"type": "text", "text": message["content"]}]
        )
        if part["type"] == "text"
    ]
    keys = (
        "id",
        "epoch",
        "target",
        "scores",
        "metadata",
        "model_usage",
        "total_time",
        "working_time",
        "uuid",
    )
    error = sample.get("error")
    return {
        **{key: sample[key] for key in keys},
        "input": "\n".join(texts)[:SUMMARY],
        "error": error["message"] if error else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _message(message: Message) -> dict[str, Any]:
    """A message; images by their paths, or by name where they have no file."""
    if not message.images:
        return {"role": message.role, "content": message.text}
    parts: list[dict[str, Any]] = []
    for image in message.images:
        if isinstance(image, Path):
            parts.append({"type": "image", "image": str(image)})
        else:
            name = "in the table" if isinstance(image, bytes) else image.name
            parts.append({"type": "text", "text": f"[image {name}]"})
    return {"role": message.role, "content": [*parts, {"type": "text", "text": message.text}]}


def _usage(usage: Mapping[str, int] | None) -> dict[str, int] | None:
    if not usage:
        return None
    sent, came = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return {"input_tokens": sent, "output_tokens": came, "total_tokens": sent + came}


def _target(reference: Any) -> str:
    return reference if isinstance(reference, str) else json.dumps(reference, ensure_ascii=False)


def _scores(log: RunTaskLog, one: Logged) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in log.names:
        if (value := one.scores.get(name)) is not None:
            why = one.scores.get("reason") or one.scores.get("faults")
            yield name, {"value": value, "answer": one.scores.get("prediction"), "explanation": why}
