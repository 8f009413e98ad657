"""Experiments of another kit's results: `hpcbench compare`, `report` and `list` read them like any other.

The import writes a directory as submit and workers would leave it: definitions, manifest, shards with
answers, scores, tables. Data that the kit did not keep stays unknown: answers have no times (`tries` 0), a
model has no hash, a sample without a document is its own document. The manifest says `imported`, with the
hash of each file read, and is written last: without it there is no experiment.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.errors import Problem, UserError
from hpcbench.evaluation import stage
from hpcbench.evaluation.endings import endings
from hpcbench.experiment.access import ensure_folder, new_folder, use_umask
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.ending import experiment_end
from hpcbench.experiment.event_log import RECORD_VERSION, EventLog, event
from hpcbench.experiment.layout import (
    MANIFEST_VERSION,
    Experiment,
    all_experiments,
    experiments_dir,
    new_id,
)
from hpcbench.experiment.manifest import Manifest
from hpcbench.experiment.outcome import Outcome
from hpcbench.experiment.view.scores import OF_SAMPLES
from hpcbench.files.atomic import (
    Appender,
    create_exclusive,
    replacing,
    write_atomic,
    write_json,
)
from hpcbench.files.hashing import hash_file
from hpcbench.interchange.imported import RECORDED
from hpcbench.interchange.kit_results import (
    KitMetric,
    KitRun,
    KitSample,
    KitTask,
)
from hpcbench.planning import plan_work
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Measured, ResolvedPlan, ResolvedRunTask, WorkPlan
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import Response, Times
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site

ENGINE = "imported"
"""Engine of models with imported answers; no plugin has this name, and no process starts it."""

EXCELS_LONGEST = 32_767
"""Characters after which Excel cuts a cell, and so does VLMEvalKit."""

SHARD = 10_000
"""Samples in a shard of an imported task."""

_OF_SUBMIT = (
    "executable", "locks", "answer_bases", "prompts", "reuse", "tools", "site_of_machine", "fingerprint",
    "snapshot",
)  # fmt: skip
"""Members of the manifest that only submit writes."""

NO_TIMES = Times(start=0, send=0, headers=None, chunks=(), done=0)
"""Times of an answer that hpcbench did not request; `tries` is 0, and no reader derives a figure from it."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import."""

    ml_task: MLTask
    """Kind of work: how answers are read."""
    metrics: tuple[Metric, ...] = ()
    """Additional metrics of hpcbench to score by."""
    name: str | None = None
    """Name of the experiment; None: the model's."""
    model: str | None = None
    """Name of the model; None: the kit's."""
    dataset: str | None = None
    """Name of the hpcbench dataset of the samples; None: the kit's task."""
    mapping: Sequence[str] = ()
    """`--map`, as given."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other values that the result depends on, for the manifest."""


def make(
    run: KitRun, how: ImportOptions, root: Path, site: Site, say: Say = lambda line: None
) -> Experiment:
    """Convert a run into an experiment; return an existing one of the same files and options.

    Args:
        run: the kit's results.
        how: options of the import.
        root: folder of experiments.
        site: gives the group and umask of its files.
        say: receives remarks for the reader, a line each.

    Raises:
        UserError: a file is incomplete, or a sample is invalid; no file is left behind.
        EnvironmentFault: the folder cannot be written.
    """
    key, files = _key(run, how), {str(path): f"sha256:{hash_file(path)}" for path in run.files}
    identity = hashlib.sha256(json.dumps([key, files], sort_keys=True).encode()).hexdigest()
    for known in all_experiments(root):
        if _identity(known) == identity:
            say(f"already imported as {known.id}")
            return known
    use_umask(site)
    folder = experiments_dir(root)
    ensure_folder(folder, site)
    experiment = _new(folder, flat(how.name or how.model or run.model), site)
    try:
        _fill(experiment, run, how, site, {"identity": identity, "files": files}, say)
    except BaseException:
        shutil.rmtree(experiment.path, ignore_errors=True)
        raise
    return experiment


def flat(name: str) -> str:
    """A valid name for hpcbench's definitions: letters, digits, `.`, `_`, `-`."""
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:60]
    return found or "imported"


def _identity(experiment: Experiment) -> str | None:
    imported = experiment.manifest.imported
    return None if imported is None else str(imported.get("identity"))


def _key(run: KitRun, how: ImportOptions) -> dict[str, Any]:
    """All that the experiment depends on in addition to the files."""
    return {
        "hpcbench": hpcbench.__version__,
        "kit": run.kit,
        "tasks": [task.name for task in run.tasks],
        "ml_task": how.ml_task.model_dump(mode="json"),
        "metrics": [metric.model_dump(mode="json") for metric in how.metrics],
        "name": how.name,
        "model": how.model,
        "dataset": how.dataset,
        "map": list(how.mapping),
    }


def _new(folder: Path, name: str, site: Site) -> Experiment:
    while True:
        experiment = Experiment(folder / new_id(name))
        try:
            new_folder(experiment.path, site)
        except FileExistsError:
            continue
        return experiment


# --- filling the directory ----------------------------------------------------------------------------


@dataclass
class _Read:
    """Results of one pass over a task's samples."""

    task: KitTask
    run_task: str
    samples: int = 0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)
    lowest: float = 0.0
    highest: float = 1.0
    failed: int = 0
    """Answers that are the kit's text for a failed request."""
    missing: int = 0
    """Samples without an answer."""
    lone: int = 0
    """Samples without a known document."""
    without: int = 0
    """Samples without a reference."""
    cut: int = 0
    """Answers of the largest length of a spreadsheet's cell."""


def _fill(
    experiment: Experiment,
    run: KitRun,
    how: ImportOptions,
    site: Site,
    origin: Mapping[str, Any],
    say: Say,
) -> None:
    names = _names(run)
    found = [_copy(experiment, task, names[task.name]) for task in run.tasks]
    tasks = tuple(_run_task(experiment, run, how, one) for one in found)
    plan = ExperimentPlan(
        name=flat(how.name or how.model or run.model),
        description=f"results of {run.kit}",
        run_tasks=tuple(one.name for one in tasks),
        shard_size=SHARD,
        executor="local",
        min_coverage=0,  # the other kit required none
    )
    resolved = ResolvedPlan(plan=plan, site=site, run_tasks=tasks)
    measured = _measured(experiment, found, tasks)
    work = plan_work(resolved, measured)
    write_atomic(experiment.plan_file, _plan_text(run, how))
    write_atomic(experiment.resolved_file, resolved.model_dump_json(indent=2) + "\n")
    write_json(experiment.chosen_file, {one.run_task: [[0, one.samples]] for one in found})
    manifest = _manifest(experiment, resolved, measured, run, how, found, origin, work)
    # The following code reads the manifest, which must be written last: without it there is no experiment.
    vars(experiment)["manifest"] = manifest
    for one in found:
        _write_answers(experiment, one)
    stage.evaluate(experiment)
    with EventLog(experiment.submission_file) as log:  # a finished round without jobs
        log.write("round", round=0, groups=[], excluded=[], answered=0)
        log.write("handed", sync=True)
    ended = endings(experiment)
    state, reason = experiment_end(ended)
    run_tasks = {name: one.to_json() for name, one in ended.items()}
    Outcome(0, state, reason, run_tasks).write(experiment)
    write_json(experiment.manifest_file, manifest.to_json(left_out=_OF_SUBMIT))
    for line in _remarks(run, found):
        say(line)


def _names(run: KitRun) -> dict[str, str]:
    """Task → name of its run task."""
    found: dict[str, str] = {}
    for task in run.tasks:
        name, number = flat(task.name), 1
        while name in found.values():
            number += 1
            name = f"{flat(task.name)}-{number}"
        found[task.name] = name
    return found


def _folder(experiment: Experiment) -> Path:
    """Folder of the samples in the kit's form."""
    return experiment.path / "imported"


def _copy(experiment: Experiment, task: KitTask, run_task: str) -> _Read:
    """Write a task's samples and its answers into the experiment, in one pass."""
    folder, found = _folder(experiment), _Read(task, run_task)
    folder.mkdir(exist_ok=True)
    with (
        replacing(folder / f"{run_task}.jsonl") as samples,
        replacing(folder / f"{run_task}.answers.jsonl") as answers,
        samples.open("w", encoding="utf-8") as first,
        answers.open("w", encoding="utf-8") as second,
    ):
        for sample in task.samples():
            _count(found, sample)
            first.write(_line(_record(sample)))
            second.write(_line([sample.id, sample.outcome, sample.answer]))
    if not found.samples:
        raise UserError(Problem(f"task '{task.name}' has no samples"))
    return found


def _line(data: Any) -> str:
    """A line of JSON; half a surrogate pair keeps its JSON escape."""
    text = json.dumps(data, ensure_ascii=False, default=str)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _record(sample: KitSample) -> dict[str, Any]:
    """A sample as `ImportedDataset` reads it."""
    return {
        "id": sample.id,
        "document": sample.document if sample.document is not None else sample.id,
        "fields": {"question": sample.question, RECORDED: dict(sample.scores)},
        "references": list(sample.references),
        "metadata": dict(sample.metadata),
    }


def _count(found: _Read, sample: KitSample) -> None:
    found.samples += 1
    found.failed += sample.outcome != "ok" and sample.answer is not None
    found.missing += sample.answer is None
    found.lone += sample.document is None
    found.without += not sample.references
    found.cut += sample.answer is not None and len(sample.answer) == EXCELS_LONGEST
    for name, number in sample.scores.items():
        found.sums[name] += number
        found.counts[name] += 1
        found.lowest, found.highest = min(found.lowest, number), max(found.highest, number)


def _run_task(
    experiment: Experiment, run: KitRun, how: ImportOptions, one: _Read
) -> ResolvedRunTask:
    task = one.task
    model = Model(
        name=_definition(how.model or run.model),
        engine=ENGINE,
        notes=f"answers of {run.kit}; the settings that generated them are unknown",
    )
    dataset = Dataset(
        name=_definition(how.dataset or task.name),
        version=task.version,
        source=str(_folder(experiment)),
        annotations=f"{one.run_task}.jsonl",
        iterator="hpcbench.interchange.imported.ImportedDataset",
        fields=("question",),
        group_by=_group_by(experiment, one),
    )
    ours = {metric.name for metric in how.metrics}
    recorded = [
        _recorded(run, one, metric, ours) for metric in task.metrics if one.counts[metric.name]
    ]
    metrics = (*recorded, *how.metrics)
    return ResolvedRunTask(
        task=RunTask(
            name=one.run_task,
            ml_task=how.ml_task.name,
            model=model.name,
            dataset=dataset.name,
            metrics=tuple(metric.name for metric in metrics),
            concurrency=1,
            notes=f"imported from {run.kit}; its prompts are unknown",
        ),
        ml_task=how.ml_task,
        model=model,
        dataset=dataset,
        prompt=Prompt(name=f"imported/{run.kit}", user="{{ question }}"),
        metrics=metrics,
    )


def _definition(name: str) -> str:
    """A valid name of a definition; folders are kept, as in `Qwen/Qwen2-VL-2B`."""
    return "/".join(flat(part) for part in name.split("/") if flat(part))[:120]


def _recorded(run: KitRun, one: _Read, metric: KitMetric, ours: set[str]) -> Metric:
    """The definition of a kit's own metric, under its own name unless hpcbench or a column has it."""
    name = flat(metric.name)
    if name in ours or name in OF_SAMPLES:
        name = f"{run.kit}-{name}"
    return Metric(
        name=name,
        plugin="hpcbench.interchange.imported.RecordedMetric",
        options={
            "metric": metric.name,
            "kit": run.kit,
            "task": one.task.name,
            "task_version": one.task.version,
            "higher_is_better": metric.higher_is_better,
            "low": one.lowest,
            "high": one.highest if one.highest <= 1 else None,
        },
    )


def _group_by(experiment: Experiment, one: _Read) -> tuple[str, ...]:
    """Metadata that its samples have."""
    path = _folder(experiment) / f"{one.run_task}.jsonl"
    found: dict[str, None] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            found |= dict.fromkeys(json.loads(line)["metadata"])
    return tuple(found)


def _measured(
    experiment: Experiment, found: Sequence[_Read], tasks: Sequence[ResolvedRunTask]
) -> Measured:
    folder = _folder(experiment)
    return Measured(
        samples={one.run_task: one.samples for one in found},
        dataset_hashes={
            one.run_task: f"sha256:{hash_file(folder / f'{one.run_task}.jsonl')}" for one in found
        },
        model_hashes={one.model.name: "not known" for one in tasks},
    )


def _write_answers(experiment: Experiment, one: _Read) -> None:
    """Write shards as workers would leave them, each with one finished attempt."""
    owner = Owner.here()
    shards = iter(experiment.work.shards_of((one.run_task,)))
    for shard, answers in zip(shards, _slices(experiment, one), strict=True):
        place = (one.run_task, shard.index, 1)
        holder = {"job": "import", "restart": 0, "host": owner.host, "pid": owner.pid}
        claimed = event("claimed", version=RECORD_VERSION, owner=holder)
        create_exclusive(experiment.shard_events(*place), claimed)
        with Appender(experiment.shard_responses(*place)) as file:
            for answer in answers:
                file.write(answer.to_json())
        # The times are equal: the time of a copy is no speed of a model.
        done = event("done", 2, answered=shard.stop - shard.start)
        with Appender(experiment.shard_events(*place)) as file:
            file.write({**done, "time": claimed["time"]})
    (_folder(experiment) / f"{one.run_task}.answers.jsonl").unlink()


def _slices(experiment: Experiment, one: _Read) -> Iterator[list[Response]]:
    path = _folder(experiment) / f"{one.run_task}.answers.jsonl"
    batch: list[Response] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            batch.append(_response(*json.loads(line)))
            if len(batch) == SHARD:
                yield batch
                batch = []
    if batch:
        yield batch


def _response(sample_id: str, outcome: Any, answer: str | None) -> Response:
    failed = outcome != "ok"
    return Response(
        sample_id=sample_id,
        outcome=outcome,
        text=None if failed else answer,
        finish_reason=None,
        usage=None,
        times=NO_TIMES,
        tries=0,
        image_sha256=(),
        error=(answer or "the kit recorded no answer")[:500] if failed else None,
    )


def _plan_text(run: KitRun, how: ImportOptions) -> str:
    """The text in place of a plan."""
    import yaml

    imported = {
        "kit": run.kit,
        "kit_version": run.version,
        "model": run.model,
        "tasks": [task.name for task in run.tasks],
        "metrics": [metric.name for metric in how.metrics],
        "map": list(how.mapping),
    }
    head = "# Imported: this experiment was never submitted, and no plan can repeat it.\n"
    return head + yaml.safe_dump({"imported": imported}, allow_unicode=True, sort_keys=False)


def _manifest(
    experiment: Experiment,
    resolved: ResolvedPlan,
    measured: Measured,
    run: KitRun,
    how: ImportOptions,
    found: Sequence[_Read],
    origin: Mapping[str, Any],
    work: WorkPlan,
) -> Manifest:
    """The manifest as submit writes it, as far as known; `imported` gives the source of the data."""
    return Manifest(
        version=MANIFEST_VERSION,
        id=experiment.id,
        created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        host=socket.gethostname(),
        hpcbench=hpcbench.__version__,
        python=platform.python_version(),
        plan_key=origin["identity"],
        seed=resolved.plan.seed,
        mode=resolved.mode,
        measured=measured.model_dump(exclude={"chosen"}),
        work=asdict(work),
        imported={
            "identity": origin["identity"],
            "kit": run.kit,
            "kit_version": run.version,
            "model": run.model,
            "files": dict(origin["files"]),
            "map": list(how.mapping),
            "tasks": {
                one.run_task: {
                    "name": one.task.name,
                    "version": one.task.version,
                    "aggregates": dict(one.task.aggregates),
                }
                for one in found
            },
            "details": dict(run.details),
            "not_known": ["times", "tokens", "prompt", "generation", "images", "hardware"],
        },
    )


def _remarks(run: KitRun, found: Sequence[_Read]) -> Iterator[str]:
    """Remarks for a reader of the numbers."""
    for one in found:
        where = f"{one.run_task}: "
        if one.failed:
            what = f"answers are {run.kit}'s text for a failed request, and count as failed"
            yield f"{where}{one.failed} {what}"
        if one.missing:
            yield f"{where}{one.missing} samples have no answer, and count as failed"
        if one.lone:
            what = "samples name no document: for intervals each one counts as a document"
            yield f"{where}{one.lone} {what} (--map document=…)"
        if one.without:
            yield f"{where}{one.without} samples have no reference: hpcbench's metrics cannot score them"
        if one.cut:
            yield f"{where}{one.cut} answers have 32,767 characters: a spreadsheet cuts longer ones"
        for metric in one.task.metrics:
            if not (count := one.counts[metric.name]):
                yield f"{where}no sample has a value of {metric.name}"
                continue
            mean, aggregate = one.sums[metric.name] / count, metric.aggregate
            if aggregate is not None and abs(mean - aggregate) > 1e-6 * max(1, abs(mean)):
                what = f"{metric.name} is {aggregate:g} as {run.kit} aggregates it"
                yield f"{where}{what}, {mean:g} as the mean of samples: tables show the mean"
        if not one.task.metrics and run.kit != "v01":  # v0.1's answers come without scores
            what = "recorded no value for any sample: only hpcbench's metrics can be compared"
            yield f"{where}{run.kit} {what}"
