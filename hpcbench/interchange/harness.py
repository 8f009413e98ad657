"""Results of lm-evaluation-harness, and of lmms-eval, which grew out of it.

    lm-eval      MODEL/results_DATE.json     MODEL/samples_TASK_DATE.jsonl
    lmms-eval    MODEL/DATE_results.json     MODEL/DATE_samples_TASK.jsonl

Written with `--log_samples` (lm-eval 0.4, lmms-eval 0.2.4 and later). A line holds one sample and, for
lm-eval, one filter: `doc_id`, `target`, raw `resps`, scored `filtered_resps`, one number per metric.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hpcbench.errors import Problem, UserError
from hpcbench.files.user import read_json
from hpcbench.interchange.kit_results import (
    Keys,
    Kit,
    KitMetric,
    KitRun,
    KitSample,
    KitTask,
    json_lines,
    number_of,
    outcome_of,
    references_of,
)

_NO_FILTER = "none"

_SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)

_ARGUMENT = re.compile(r"([\w-]*(?:key|token|secret|password)[\w-]*)=[^,\s]+", re.IGNORECASE)
"""`api_key=…` among the arguments of a model."""

_CONFIG = ("config", "date", "git_hash", "n-shot", "chat_template_sha", "system_instruction")
"""Kept fields of a run's own description."""


def read(place: Path, kit: Kit, keys: Keys) -> KitRun:
    """Read one run.

    Raises:
        UserError: no run, or several; no samples were logged.
    """
    path = _results_file(place, kit)
    results = read_json(path)
    tables = results.get("results") if isinstance(results, dict) else None
    if not isinstance(tables, dict):
        raise UserError(Problem(f"not results of {kit}: the file has no 'results'", str(path)))
    found: list[KitTask] = []
    files = [path]
    for name, table in tables.items():
        samples = _samples_file(path, kit, name)
        if samples is None:
            continue  # a group of tasks, which has no own samples
        files.append(samples)
        found.append(_task(name, table, samples, results, kit, keys))
    if not found:
        remedy = "run the kit with --log_samples: a comparison needs every sample"
        raise UserError(Problem("no file of samples beside this file", str(path), remedy=remedy))
    return KitRun(
        kit,
        str(
            results.get("lm_eval_version")
            or results.get("lmms_eval_version")
            or results.get("git_hash")
            or ""
        ),
        _model(results, path),
        tuple(found),
        tuple(files),
        {key: _harmless(results[key]) for key in _CONFIG if results.get(key) is not None},
    )


def _harmless(data: Any) -> Any:
    """A run's own description without keys and passwords, which arguments of models hold now and then."""
    if isinstance(data, Mapping):
        return {
            key: "…" if _SECRET.search(str(key)) and isinstance(value, str) else _harmless(value)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [_harmless(one) for one in data]
    return _ARGUMENT.sub(r"\1=…", data) if isinstance(data, str) else data


def _results_file(place: Path, kit: Kit) -> Path:
    if place.is_file():
        return place
    pattern = "*_results.json" if kit == "lmms-eval" else "results_*.json"
    found = sorted(place.rglob(pattern))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(Problem(f"no results of {kit}: the folder has no {pattern}", str(place)))
    listed = ", ".join(str(path.relative_to(place)) for path in found[-5:])
    raise UserError(
        Problem(f"{len(found)} runs: {listed}", str(place), remedy="name one of these files")
    )


def _samples_file(results: Path, kit: Kit, task: str) -> Path | None:
    """The samples of a task, of the same date."""
    if kit == "lmms-eval":
        name = f"{results.name.removesuffix('_results.json')}_samples_{task}.jsonl"
    else:
        date = results.stem.removeprefix("results_")
        name = f"samples_{task}_{date}.jsonl"
    path = results.with_name(name)
    return path if path.is_file() else None


def _model(results: Mapping[str, Any], path: Path) -> str:
    name = results.get("model_name") or results.get("model_name_sanitized")
    return str(name or path.parent.name)


def _task(
    name: str,
    table: Mapping[str, Any],
    samples: Path,
    results: Mapping[str, Any],
    kit: Kit,
    keys: Keys,
) -> KitTask:
    aggregates = {
        key: value
        for key, value in table.items()
        if key not in ("alias", "samples") and "_stderr" not in key
    }
    # `exact_match,strict-match`: the metric, and the filter of its answers.
    pairs = [
        tuple(key.rpartition(",")[::2]) if "," in key else (key, _NO_FILTER) for key in aggregates
    ]
    filters = list(dict.fromkeys(filter_name for _, filter_name in pairs))
    higher = (results.get("higher_is_better") or {}).get(name) or {}
    with_numbers = _with_numbers(samples)
    metrics = {
        (metric, one): KitMetric(
            metric if len(filters) == 1 else f"{metric}-{one}",
            bool(higher.get(metric, True)),
            number_of(aggregates.get(f"{metric},{one}", aggregates.get(metric))),
        )
        for metric, one in pairs
        if metric in with_numbers
    }
    version = str((results.get("versions") or {}).get(name, ""))
    return KitTask(
        name,
        partial(_samples, samples, metrics, keys),
        tuple(metrics.values()),
        version,
        aggregates,
    )


def _with_numbers(path: Path) -> set[str]:
    """Names of a sample's fields with a number, from the first samples."""
    found: set[str] = set()
    for count, (_, record) in enumerate(json_lines(path)):
        found |= {key for key, value in record.items() if number_of(value) is not None}
        if count >= 100:
            break
    return found - {"doc_id"}


def _samples(
    path: Path, metrics: Mapping[tuple[str, str], KitMetric], keys: Keys
) -> Iterator[KitSample]:
    """Samples in the file's order. The lines of one sample, one per filter, are merged.

    Filters follow each other in the file, so a sample may be spread over it: memory holds only the numbers of
    further filters.
    """
    further = _further(path, metrics)
    seen: dict[str, int] = {}
    first = None
    for place, record in json_lines(path):
        if (name := record.get("doc_id")) is None:
            raise UserError(Problem("a sample has no 'doc_id'", place.file, place.line))
        one = str(record.get("filter", _NO_FILTER))
        first = one if first is None else first
        if one != first:
            continue
        sample_id = str(keys.of(record, "id", name, place))
        if sample_id in seen:
            what = f"sample '{sample_id}' occurs twice, first in line {seen[sample_id]}"
            raise UserError(
                Problem(
                    what, place.file, place.line, remedy="--map id=KEY with a key that is unique"
                )
            )
        assert place.line is not None
        seen[sample_id] = place.line
        answer = keys.of(record, "answer", _answer(record), place)
        answer = None if answer is None else str(answer)
        document = keys.of(record, "document", None, place)
        yield KitSample(
            id=sample_id,
            answer=answer,
            references=references_of(keys.of(record, "references", record.get("target"), place)),
            question=str(keys.of(record, "question", _question(record), place) or ""),
            document=None if document is None else str(document),
            outcome=outcome_of(answer),
            scores={**_numbers(record, one, metrics), **further.get(str(name), {})},
            metadata=keys.metadata(record),
        )


def _further(
    path: Path, metrics: Mapping[tuple[str, str], KitMetric]
) -> dict[str, dict[str, float]]:
    """Numbers of filters other than the file's first, by sample."""
    filters = {one for _, one in metrics}
    if len(filters) < 2:
        return {}
    found: dict[str, dict[str, float]] = {}
    for _, record in json_lines(path):
        one = str(record.get("filter", _NO_FILTER))
        found.setdefault(str(record.get("doc_id")), {}).update(_numbers(record, one, metrics))
    return found


def _numbers(
    record: Mapping[str, Any], one: str, metrics: Mapping[tuple[str, str], KitMetric]
) -> dict[str, float]:
    alone = len({filter_name for _, filter_name in metrics}) == 1
    return {
        metric.name: number
        for (key, filter_name), metric in metrics.items()
        if (alone or filter_name == one) and (number := number_of(record.get(key))) is not None
    }


def _answer(record: Mapping[str, Any]) -> str | None:
    """The raw answer, else the scored one; for log-likelihoods, which are no text, their JSON."""
    for key in ("resps", "filtered_resps"):
        found = record.get(key)
        whole = found
        while isinstance(found, list) and found:
            found = found[0]
        if isinstance(found, str):
            return found
        if isinstance(whole, list) and whole and found not in (None, []):
            return json.dumps(whole, ensure_ascii=False)
    return None


def _question(record: Mapping[str, Any]) -> str:
    found = record.get("input")
    if found is None:
        arguments = record.get("arguments")
        first = arguments.get("gen_args_0") if isinstance(arguments, Mapping) else None
        found = first.get("arg_0") if isinstance(first, Mapping) else None
    if isinstance(found, list) and found:
        found = found[0]
    return found if isinstance(found, str) else ""
