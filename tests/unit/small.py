"""A small experiment on disk, without a model and without a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, create_exclusive, write_atomic, write_json
from hpcbench.planning import plan_work
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Measured, ResolvedPlan, ResolvedRunTask
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import Response, Sample, Times
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site

if TYPE_CHECKING:
    import pytest


def run_task(
    name: str = "rt",
    *,
    model: Mapping[str, Any] | None = None,
    dataset: Mapping[str, Any] | None = None,
    prompt: Mapping[str, Any] | None = None,
    plugin: str = "vqa",
    metrics: Sequence[str] = ("exact_match",),
    **task: Any,
) -> ResolvedRunTask:
    """A resolved run task; what is not given has a plain default."""
    return ResolvedRunTask(
        task=RunTask.model_validate(
            {
                "name": name,
                "ml_task": plugin,
                "model": "m",
                "dataset": "d",
                "concurrency": 1,
                **task,
            }
        ),
        ml_task=MLTask(name=plugin, plugin=plugin, metrics=tuple(metrics)),
        model=Model.model_validate(
            {"name": "m", "source": "/nowhere/m", "engine": "vllm", **(model or {})}
        ),
        dataset=Dataset.model_validate(
            {"name": "d", "source": "/nowhere/d", "annotations": "a.jsonl", **(dataset or {})}
        ),
        prompt=Prompt.model_validate({"name": "p", "user": "{{ question }}", **(prompt or {})}),
        metrics=tuple(Metric(name=metric, plugin=metric) for metric in metrics),
    )


def resolved(*run_tasks: ResolvedRunTask, **plan: Any) -> ResolvedPlan:
    """A resolved plan of these run tasks."""
    names = [run_task.name for run_task in run_tasks]
    return ResolvedPlan(
        plan=ExperimentPlan.model_validate({"name": "plan", "run_tasks": names, **plan}),
        site=Site(name="default"),
        run_tasks=run_tasks,
    )


def measured(plan: ResolvedPlan, samples: int | Mapping[str, int] = 10) -> Measured:
    """Measures that preparation would have found."""
    names = [run_task.name for run_task in plan.run_tasks]
    counts = samples if isinstance(samples, Mapping) else dict.fromkeys(names, samples)
    return Measured(
        samples=counts,
        dataset_hashes=dict.fromkeys(names, "sha256:d"),
        model_hashes={run_task.model.name: "sha256:m" for run_task in plan.run_tasks},
    )


def write_dataset(folder: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """A JSONL dataset with one byte as its image."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "p.png").write_bytes(b"x")
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    (folder / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def record(number: int, **more: Any) -> dict[str, Any]:
    """A record of the dataset: sample `s<number>`, right answer `<number>`."""
    return {
        "id": f"s{number}",
        "images": ["p.png"],
        "document": f"doc{number}",
        "fields": {"question": f"number {number}?"},
        "references": [str(number)],
        **more,
    }


def experiment(
    folder: Path, records: Sequence[Mapping[str, Any]], shard_size: int = 4, **task: Any
) -> Experiment:
    """An experiment of one run task `rt`, submitted and not started."""
    data = write_dataset(folder / "data", records)
    plan = resolved(run_task(dataset={"source": str(data)}, **task), shard_size=shard_size)
    return submitted(folder, plan, len(records))


def submitted(
    folder: Path, plan: ResolvedPlan, samples: int, name: str = "20261120-1432-plan-aaaa"
) -> Experiment:
    """An experiment of a plan, not started; each of its run tasks has so many samples."""
    work = plan_work(plan, measured(plan, samples))
    here = Experiment(folder / "experiments" / name)
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.manifest_file, {"work": asdict(work), "measured": {}})
    write_json(
        here.chosen_file, {name: [(0, samples)] for name in {one.run_task for one in work.shards}}
    )
    return here


def sample(**more: Any) -> Sample:
    """A sample with a question."""
    values: dict[str, Any] = {
        "id": "s1",
        "images": (Path("p.png"),),
        "fields": {"question": "Total?"},
        "references": ("1",),
        "document": "d1",
        **more,
    }
    return Sample(**values)


def response(sample_id: str, text: str | None = "1", **more: Any) -> Response:
    """An answer that came in one chunk after 1 ms."""
    values: dict[str, Any] = {
        "sample_id": sample_id,
        "outcome": "ok" if text is not None else "failed",
        "text": text,
        "finish_reason": "stop" if text is not None else None,
        "usage": {"prompt_tokens": 5, "completion_tokens": 1} if text is not None else None,
        "times": Times(0, 0, 500_000, (1_000_000,), 1_100_000),
        "tries": 1,
        "image_sha256": ("0" * 64,),
        "error": None if text is not None else "the engine hung up",
        **more,
    }
    return Response(**values)


def write_attempt(
    here: Experiment,
    index: int,
    attempt: int,
    responses: Sequence[Response],
    end: str = "done",
    run_task: str = "rt",
) -> None:
    """An attempt as a worker leaves it."""
    events = here.shard_events(run_task, index, attempt)
    create_exclusive(events, {"event": "claimed", "time": 0, "owner": {"job": "1_0"}})
    with Appender(here.shard_responses(run_task, index, attempt)) as file:
        for one in responses:
            file.write(one.to_json())
    with Appender(events) as file:
        file.write({"event": end, "time": 1})


def plan_without_weights(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A plan file over 100 samples whose model is an empty folder: what looks no further takes it."""
    monkeypatch.setenv("HPCBENCH_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)
    write_dataset(folder / "pages", [record(number) for number in range(100)])
    (folder / "weights").mkdir()
    for name, definition in {
        "models/tiny.yaml": "name: tiny\nsource: ../../weights\nengine: vllm\n",
        "datasets/pages.yaml": "name: pages\nsource: ../../pages\nannotations: a.jsonl\nfields: [question]\n",
        "prompts/ask.yaml": 'name: ask\nuser: "{{ question }}"\n',
    }.items():
        path = folder / "registries" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(definition)
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


def describe(here: Experiment) -> None:
    """Write into the manifest what `submit` writes of versions and machines, which reports show."""
    manifest = json.loads(here.manifest_file.read_text()) | {
        "hpcbench": "0.1.0", "python": "3.11.2", "created": "2026-11-20T14:32:00+0000",
        "host": "login1", "plan_key": "f" * 64, "seed": 0, "packages": {},
        "git": {"plan": None, "hpcbench": None}, "environments": {"": {"digest": None}},
        "measured": {"model_hashes": {}, "dataset_hashes": {}},
    }  # fmt: skip
    write_json(here.manifest_file, manifest)
