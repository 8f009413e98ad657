"""Makes a home of many experiments, for the portal's benchmarks and for looking at it; itself no benchmark.

    python benchmarks/portal_home.py FOLDER             100 experiments × 100 run tasks × 1,000 samples
    python benchmarks/portal_home.py FOLDER --experiments 3 --run-tasks 12 --samples 200 --running 1
    python benchmarks/portal_home.py --grow EXPERIMENT  works on the running one, answer by answer

FOLDER is then a `HPCBENCH_HOME`. Everything is in hpcbench's own formats and mostly written by its own code:
data sets with pages, plans, manifests, claims, folded shards, workers' events. A few answers to each sample
(right, nearly right, wrong, empty, none) are evaluated for real, with the real metrics; every run task is
then a draw from these rows, so scores and answers belong together, and `metrics.json` is made of them by the
evaluation's own code. Made up are the draws, and `performance.json`: one measured for real and scaled. The
same arguments give the same draws. Only the newest `--answers` experiments have their responses (42 MB each
at the default size); scores files have the answers anyway.

Answers get better over the weeks, but for a fall: from 60 % of the experiments on, the first model is worse
on the first data set. Without FOLDER a small home is made in a temporary folder, and thrown away.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # processes share the work

from hpcbench.evaluation.plan_metrics import load_metrics  # noqa: E402
from hpcbench.evaluation.score_tables import Scored  # noqa: E402
from hpcbench.evaluation.scores import KEYS, VERSION, ScoresFiles  # noqa: E402
from hpcbench.evaluation.stage import evaluate  # noqa: E402
from hpcbench.evaluation.summary import tabulate  # noqa: E402
from hpcbench.experiment.archiving import fold, fold_workers  # noqa: E402
from hpcbench.experiment.baselines import name_it  # noqa: E402
from hpcbench.experiment.claims import Owner, claim, shard_states  # noqa: E402
from hpcbench.experiment.event_log import EventLog  # noqa: E402
from hpcbench.experiment.layout import Experiment  # noqa: E402
from hpcbench.experiment.view.metrics_json import METRICS_VERSION  # noqa: E402
from hpcbench.experiment.view.performance_json import PERFORMANCE_VERSION  # noqa: E402
from hpcbench.files.atomic import write_atomic, write_json  # noqa: E402
from hpcbench.parsers import reading_of  # noqa: E402
from hpcbench.planning import plan_work  # noqa: E402
from hpcbench.schema.plan import Measured, ResolvedPlan, ResolvedRunTask  # noqa: E402
from hpcbench.schema.records import Response, Times  # noqa: E402
from tests.unit.small import resolved, run_task  # noqa: E402

KINDS = (("vqa", ("anls", "exact_match")), ("ocr", ("cer",)), ("classification", ("accuracy",)))
"""ML tasks of the data sets in turn, and their metrics."""

CLASSES = ("invoice", "receipt", "contract", "letter", "form")
VARIANTS = ("right", "near", "wrong", "empty", "failed")
PLANS = 5
QUESTIONS = 5
"""Samples of a document."""
PAGES = 20
"""Different pictures of pages in a data set."""
SHARD = 250
FIRST = 1_795_000_000.0 - 100 * 6 * 3600
"""When the first experiment was submitted; one follows every six hours."""
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
GIB = 1 << 30


@dataclass(frozen=True)
class Size:
    """Size of a home to make."""

    home: Path
    """Where."""
    experiments: int = 100
    """Experiments that have ended."""
    run_tasks: int = 100
    """Run tasks of each."""
    samples: int = 1_000
    """Samples of each run task."""
    answers: int = 10
    """How many of them, the newest ones, have their responses."""
    running: int = 0
    """Further experiments in the middle of their life."""
    seed: int = 7
    """Seed of all draws."""
    processes: int = 2
    """How many make them."""

    @property
    def datasets(self) -> int:
        """Data sets."""
        return min(10, self.run_tasks)

    @property
    def models(self) -> int:
        """Models; each is asked about each data set."""
        return -(-self.run_tasks // self.datasets)


def make(size: Size, tell: Any = print) -> list[Experiment]:
    """Make a home.

    Args:
        size: what to make.
        tell: gets the progress.

    Returns:
        Its experiments, oldest first, running ones last.
    """
    started = time.monotonic()
    size.home.mkdir(parents=True, exist_ok=True)
    for number in range(size.datasets):
        _dataset(size, number)
    _template(size)
    tell(f"pages, and answers evaluated for real: {time.monotonic() - started:.0f} s")
    numbers = range(size.experiments + size.running)
    made: list[Experiment] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(size.processes, len(numbers))) as pool:
        for path in pool.imap(_make_one, ((size, number) for number in numbers)):
            made.append(Experiment(path))
            if len(made) % 10 == 0:
                tell(
                    f"{len(made)} of {len(numbers)} experiments: {time.monotonic() - started:.0f} s"
                )
    shutil.rmtree(_template_of(size).path.parent.parent, ignore_errors=True)
    if size.experiments > 1:
        name_it(size.home, "good", made[size.experiments // 2].id, "made up")
    return made


def grow(
    experiment: Experiment,
    per_second: float,
    at_most: int | None = None,
    tell: Callable[[int, float], object] = lambda given, since: None,
) -> int:
    """Work on a running experiment as a worker does: claim, answer, acknowledge, tell.

    The command line of the process has to name the experiment's folder, as a worker's does; then `status`
    sees that it lives.

    Args:
        experiment: made with `running`.
        per_second: answers a second.
        at_most: answers; None: until all is done.
        tell: gets each acknowledgement: answers given by then, and when the last of them began to be
            written, seconds since the epoch.

    Returns:
        Answers given.
    """
    owner = Owner.here()
    names = [one.name for one in experiment.resolved.run_tasks]
    given = 0
    with EventLog(experiment.submission_file) as log:  # as if this process had been there all along
        log.write("submitted", step="supervise", job=f"{owner.host}:{owner.pid}")
    with EventLog(experiment.worker_events("g0", owner.id)) as news:
        news.write("started", owner=_owner(owner), hpcbench="0.1.0", gpus="0")
        for state in shard_states(experiment, names):
            held = claim(experiment, state, owner) if state.claimable else None
            if held is None:
                continue
            news.write("shard_claimed", shard=held.shard.id, attempt=held.attempt)
            reported = time.monotonic()
            for place in range(held.shard.start, held.shard.stop):
                if given == at_most:
                    held.acknowledge()
                    news.write("progress", shard=held.shard.id, answered=len(held.answered))
                    held.abandon()
                    return given
                time.sleep(1 / per_second)
                since = time.time()
                held.record(_answer(experiment, held.shard.run_task, place))
                given += 1
                if time.monotonic() - reported > 1.0:
                    held.acknowledge()
                    news.write("progress", shard=held.shard.id, answered=len(held.answered))
                    reported = time.monotonic()
                    tell(given, since)
            held.acknowledge()
            held.end("done")
        news.write("finished")
    write_json(
        experiment.outcome_file, {"version": 1, "round": 0, "state": "done", "shards_left": []}
    )
    return given


# --- data ---------------------------------------------------------------------------------------------------


def _dataset(size: Size, number: int) -> None:
    """A data set: records and pictures of pages."""
    from PIL import Image, ImageDraw

    folder = size.home / "data" / f"pages{number:02d}"
    if (folder / "a.jsonl").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for page in range(PAGES):
        image = Image.new("L", (640, 900), 250)
        draw = ImageDraw.Draw(image)
        draw.text((40, 40), f"{CLASSES[page % 5].upper()} {number:02d}-{page:02d}", fill=20)
        for line in range(30):
            draw.text(
                (40, 90 + 25 * line), f"{line:02d}  item {page * 31 + line}  {line * 7}.00", fill=60
            )
        image.save(folder / f"p{page:02d}.png")
    with (folder / "a.jsonl").open("w", encoding="utf-8") as file:
        for one in range(size.samples):
            file.write(json.dumps(_record(number, one)) + "\n")


def _record(dataset: int, number: int) -> dict[str, Any]:
    document = number // QUESTIONS
    return {
        "id": f"d{document:05d}-{number % QUESTIONS}",
        "document": f"d{document:05d}",
        "images": [f"p{document % PAGES:02d}.png"],
        "question": f"Text of line {number % 30} of page {document}?",
        "references": [_right(dataset, number)],
        "doc_type": CLASSES[document % 5],
    }


def _right(dataset: int, number: int) -> str:
    """The right answer."""
    chance = random.Random(dataset * 1_000_003 + number)  # noqa: S311 - a sample, no secret
    kind = KINDS[dataset % len(KINDS)][0]
    if kind == "classification":
        return CLASSES[number // QUESTIONS % 5]
    words = 12 if kind == "ocr" else 2
    return " ".join(f"item{chance.randrange(100, 10_000)}" for _ in range(words))


def _said(dataset: int, number: int, variant: str) -> str | None:
    """Answer of a model."""
    right = _right(dataset, number)
    if variant == "right":
        return right
    if variant == "near":
        return right[:-1] + "x" if len(right) > 8 else right.upper()
    if variant == "wrong":
        other = _right(dataset, number + 7 * QUESTIONS)
        return other if other != right else "none of these"
    return "" if variant == "empty" else None


_SEND_NS = 900_000
"""Time from the start of a request until it is sent."""


def _response(dataset: int, number: int, variant: str, pace: float = 1.0) -> Response:
    """An answer as a worker records it; `pace` stretches its times."""
    text = _said(dataset, number, variant)
    chance = random.Random(dataset * 7_919 + number)  # noqa: S311 - a sample, no secret
    started = number * 200_000_000
    first = started + int(pace * chance.uniform(60e6, 140e6))
    chunks = tuple(first + int(pace * one * chance.uniform(7e6, 9e6)) for one in range(6))
    done = chunks[-1] + 500_000
    return Response(
        sample_id=_record(dataset, number)["id"],
        outcome="failed" if text is None else "ok",
        text=text,
        finish_reason=None if text is None else "stop",
        usage=None if text is None else {"prompt_tokens": 812, "completion_tokens": 6},
        times=Times(started, started + _SEND_NS, started + 9_000_000, chunks if text else (), done),
        tries=3 if text is None else 1,
        image_sha256=(f"{dataset:032d}{number // QUESTIONS % PAGES:032d}",),
        error="the engine hung up" if text is None else None,
        prompt="ask",
    )


# --- plans --------------------------------------------------------------------------------------------------


def _model(number: int) -> str:
    return f"vl-{number:02d}-{(3, 7, 13, 34, 72)[number % 5]}b"


def _run_task(size: Size, model: str, dataset: int, name: str = "", **task: Any) -> ResolvedRunTask:
    kind, metrics = KINDS[dataset % len(KINDS)]
    mapping = {"metadata": {"doc_type": "doc_type"}, "fields": {"question": "question"}}
    return run_task(
        name or f"pages{dataset:02d}-{model}",
        model={"name": model, "gpus": 1},
        dataset={
            "name": f"pages{dataset:02d}", "source": str(size.home / "data" / f"pages{dataset:02d}"),
            "split": None, "group_by": ["doc_type"], "mapping": mapping,
        },
        prompt={"name": "ask"},
        plugin=kind,
        metrics=metrics,
        **{"concurrency": 8, "resources": {"cpus": 8, "memory_gb": 64, "time_limit": "02:00:00"}, **task},
    )  # fmt: skip


@cache
def _tasks(size: Size) -> tuple[ResolvedRunTask, ...]:
    pairs = [(model, dataset) for model in range(size.models) for dataset in range(size.datasets)]
    return tuple(
        _run_task(size, _model(model), dataset) for model, dataset in pairs[: size.run_tasks]
    )


def _submit(here: Experiment, plan: ResolvedPlan, size: Size, created: float) -> None:
    """Files that submit leaves."""
    names = [one.name for one in plan.run_tasks]
    found = Measured(
        samples=dict.fromkeys(names, size.samples),
        dataset_hashes={one.name: f"sha256:{one.dataset.name}" for one in plan.run_tasks},
        model_hashes={one.model.name: f"sha256:{one.model.name}" for one in plan.run_tasks},
        prompt_hashes=dict.fromkeys(names, "sha256:ask"),
    )
    here.path.mkdir(parents=True)
    work = plan_work(plan, found)
    lines = "".join(f"  - {name}\n" for name in names)
    here.plan_file.write_text(f"name: {plan.plan.name}\nrun_tasks:\n{lines}", encoding="utf-8")
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.chosen_file, {name: [(0, size.samples)] for name in names})
    manifest = {
        "version": 1, "id": here.id, "mode": plan.mode, "seed": plan.plan.seed, "hpcbench": "0.1.0",
        "created": time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(created)), "host": "login1",
        "python": "3.11.7", "executable": "/opt/hpcbench/bin/python", "settings": [], "baseline": None,
        "git": {"plan": {"commit": f"{abs(hash(here.id)) % 16**8:040x}", "dirty": False}},
        "environments": {"": {"kind": "venv", "digest": "sha256:0", "details": {}, "versions": {}}},
        "fingerprint": {"distributions": {
            f"package{number}": {"digest": f"{number:016x}", "place": "/opt/hpcbench/lib/site-packages",
                                 "version": f"1.{number}"} for number in range(190)}},
        "packages": {}, "plugin_packages": {}, "sources": {}, "host_packages": None, "snapshot": None,
        "measured": found.model_dump(mode="json", exclude={"chosen"}),
        "work": asdict(work),
        "stage_keys": {name: {"inference": f"{number:064x}", "evaluation": f"{number:064x}"}
                       for number, name in enumerate(names)},
    }  # fmt: skip
    write_json(here.manifest_file, manifest)
    with EventLog(here.submission_file) as log:
        groups = [asdict(group) for group in work.groups]
        log.write("round", round=0, groups=groups, excluded=[], answered=0)
        log.write("intent", step="supervise")
        log.write("submitted", step="supervise", job=f"{socket.gethostname()}:{os.getpid()}")
        log.write("handed", step="")


# --- what is evaluated for real -----------------------------------------------------------------------------


def _template_of(size: Size) -> Experiment:
    return Experiment(size.home / "template" / "experiments" / "20260101-0000-template-aaaa")


def _template(size: Size) -> None:
    """One experiment in which every sample of every data set has every variant of an answer."""
    here = _template_of(size)
    shutil.rmtree(here.path.parent.parent, ignore_errors=True)
    tasks = [
        _run_task(size, f"m{number}", dataset, f"{dataset}.{variant}", on_invalid="zero")
        for dataset in range(size.datasets)
        for number, variant in enumerate(VARIANTS)
    ]
    plan = resolved(*tasks, shard_size=size.samples, executor="local")
    _submit(here, plan, size, FIRST)
    for dataset in range(size.datasets):
        for variant in VARIANTS:
            answers = [_response(dataset, one, variant) for one in range(size.samples)]
            _attempt(here, f"{dataset}.{variant}", 0, FIRST, 60.0, answers, size.samples)
    evaluate(here)


# --- an experiment ------------------------------------------------------------------------------------------


def _make_one(asked: tuple[Size, int]) -> Path:
    size, number = asked
    os.fsync = lambda fd: None  # no reader needs it
    here, plan = _identity(size, number)
    shutil.rmtree(here.path, ignore_errors=True)
    created = FIRST + number * 6 * 3600
    running = number >= size.experiments
    _submit(here, plan, size, created)
    if running:
        _half(here, size, created)
        return here.path
    here.scores_dir.mkdir()
    metrics, performance = {}, {}
    for place, one in enumerate(plan.run_tasks):
        drawn = _draw(size, number, place)
        metrics[one.name] = _scores(here, one, size, drawn)
        pace = drawn["pace"]
        performance[one.name] = _performance(size, place, pace)
        _shards(here, size, number, place, drawn, created)
    write_json(here.metrics_file, {"version": METRICS_VERSION, "run_tasks": metrics})
    speed = {"version": PERFORMANCE_VERSION, "run_tasks": performance, "sweeps": {}}
    write_json(here.performance_file, speed)
    _workers(here, plan, created)
    write_json(here.usage_file, _usage(here, plan, size))
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": "done", "shards_left": []})
    for path in (here.manifest_file, here.submission_file):
        os.utime(path, (created, created))
    for path in (here.metrics_file, here.outcome_file, here.usage_file, here.performance_file):
        os.utime(path, (created + 7200, created + 7200))
    return here.path


def _identity(size: Size, number: int) -> tuple[Experiment, ResolvedPlan]:
    when = time.strftime("%Y%m%d-%H%M", time.gmtime(FIRST + number * 6 * 3600))
    name = f"nightly{number % PLANS}"
    tail = "".join(
        "abcdefghjkmnpqrstuvwxyz23456789"[number // 31**place % 31] for place in (3, 2, 1, 0)
    )
    plan = resolved(*_tasks(size), name=name, shard_size=min(SHARD, size.samples), executor="local")
    return Experiment(size.home / "experiments" / f"{when}-{name}-{tail}"), plan


def _draw(size: Size, number: int, place: int) -> dict[str, Any]:
    """Which variant each sample got, and how fast the model was."""
    import numpy as np

    dataset, model = place % size.datasets, place // size.datasets
    hard = np.random.default_rng([size.seed, dataset]).random(size.samples)
    own = np.random.default_rng([size.seed, number, place])
    skill = 0.5 + 0.4 * (model + 1) / size.models + 0.05 * number / max(1, size.experiments)
    if model == 0 and dataset == 0 and number >= 0.6 * size.experiments:
        skill -= 0.2
    right = (hard < skill) ^ (own.random(size.samples) < 0.02)
    wrong = own.choice([1, 2, 2, 2, 3, 4], size.samples, p=[0.3, 0.2, 0.2, 0.2, 0.08, 0.02])
    return {
        "variants": np.where(right, 0, wrong),
        "pace": float(0.5 + model / 4 + own.random() / 10),
    }


@cache
def _rows(size: Size, dataset: int) -> Any:
    """Scored rows of a data set: all samples with the first variant, with the second …"""
    import polars

    here = _template_of(size)
    return polars.concat(
        [polars.read_parquet(here.scores_file(f"{dataset}.{variant}")) for variant in VARIANTS],
        how="vertical_relaxed",
    ).rechunk()


def _scores(
    here: Experiment, one: ResolvedRunTask, size: Size, drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the scores of a run task; returns what `metrics.json` says of them."""
    import numpy as np
    import polars

    rows = _rows(size, int(one.dataset.name[5:]))
    picked = rows[drawn["variants"] * size.samples + np.arange(size.samples)].with_columns(
        (polars.col("e2e_ms") + _SEND_NS / 1e6) * drawn["pace"] - _SEND_NS / 1e6
    )
    metrics = load_metrics(one)
    keys = {
        "version": VERSION, "reading": reading_of(one.ml_task),
        "signatures": {name: metric.signature for name, metric in metrics.items()},
        "samples": f"{here.id}/{one.name}", "columns": ["doc_type"], "rows": size.samples,
        "fields": 0, "metrics": {metric.name: f"{one.dataset.name}/{metric.name}" for metric in one.metrics},
    }  # fmt: skip
    picked.write_parquet(
        here.scores_file(one.name), metadata={KEYS: json.dumps(keys, sort_keys=True)}
    )
    scored = Scored(one, metrics, ScoresFiles(here.scores_dir, one.name))
    return tabulate(scored).to_json()


@cache
def _measured(size: Size, dataset: int) -> dict[str, Any]:
    tables = json.loads(_template_of(size).performance_file.read_text())["run_tasks"]
    found: dict[str, Any] = tables[f"{dataset}.right"]
    return found


def _performance(size: Size, place: int, pace: float) -> dict[str, Any]:
    """Performance as measured, as if the model were slower by a factor."""
    dataset, model = place % size.datasets, place // size.datasets
    table = {
        key: _scaled(value, pace) if key.endswith("_ms") else value
        for key, value in _measured(size, dataset).items()
    }
    for key in ("answers_per_s", "tokens_per_s"):
        table[key] = _scaled(table[key], 1 / pace)
    peak = (10 + 6 * model) * GIB
    memory = {"gpus": 1, "gpu_peak": peak, "gpu_peak_source": "processes", "weights": peak // 2,
              "host_held_peak": 9 * GIB, "host_source": "job"}  # fmt: skip
    hardware = [{"gpus": ["NVIDIA H100 80GB HBM3"], "driver": "570.86", "cuda": "12.8", "cpu": "EPYC",
                 "nodes": [NODES[model % 4]], "workers": 1}]  # fmt: skip
    return {**table, "memory": memory, "hardware": hardware}


def _scaled(value: Any, by: float) -> Any:
    if isinstance(value, dict):
        return {
            key: one if key in ("n", "answers", "needs") else _scaled(one, by)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_scaled(one, by) for one in value]
    return round(value * by, 3) if isinstance(value, float) else value


def _shards(
    here: Experiment, size: Size, number: int, place: int, drawn: Mapping[str, Any], at: float
) -> None:
    """Attempts at a run task's shards, folded."""
    name = here.resolved.run_tasks[place].name
    with_answers = number >= size.experiments - size.answers
    dataset = place % size.datasets
    for index, start in enumerate(range(0, size.samples, SHARD)):
        stop = min(size.samples, start + SHARD)
        answers = [
            _response(dataset, one, VARIANTS[drawn["variants"][one]], drawn["pace"])
            for one in (range(start, stop) if with_answers else ())
        ]
        _attempt(here, name, index, at + 60 + 20 * index, 18.0, answers, stop - start)
    fold(here, name)


def _attempt(
    here: Experiment,
    name: str,
    index: int,
    at: float,
    took: float,
    answers: list[Response],
    answered: int,
) -> None:
    """A shard's only attempt; written in one go, there are so many."""
    owner = _owner(Owner("17_0", 0, NODES[0], 4711, NODES[0]))
    lines = [
        {"event": "claimed", "seq": 1, "time": at, "version": 1, "owner": owner},
        {"event": "done", "seq": 2, "time": at + took, "answered": answered},
    ]
    here.shards_dir(name).mkdir(parents=True, exist_ok=True)
    _write(here.shard_events(name, index, 1), lines)
    if answers:
        _write(here.shard_responses(name, index, 1), [one.to_json() for one in answers])


def _workers(here: Experiment, plan: ResolvedPlan, at: float) -> None:
    """A worker for each model, folded; and what engines printed."""
    here.workers_dir.mkdir()
    for number, model in enumerate(dict.fromkeys(one.model.name for one in plan.run_tasks)):
        owner = Owner(f"17_{number}", 0, NODES[number % 4], 4711, NODES[number % 4])
        reported: list[dict[str, Any]] = [
            {"event": "started", "owner": _owner(owner), "hpcbench": "0.1.0", "gpus": "0"},
            {"event": "model_loading", "model": model},
            {"event": "model_ready", "model": model, "seconds": 41.0, "hardware": {"gpus": ["H100"]}},
            *({"event": "shard_claimed", "shard": f"{one.name}/00000", "attempt": 1}
              for one in plan.run_tasks if one.model.name == model),
            *([{"event": "engine_died", "model": model, "message": "out of memory"}] if number == 3 else []),
            {"event": "finished"},
        ]  # fmt: skip
        lines = [
            {"seq": place + 1, "time": at + 30 * place, **line}
            for place, line in enumerate(reported)
        ]
        _write(here.worker_events("g0", owner.id), lines)
        gpu = {"gpu": 0, "utilisation": 87.0, "used": 38 * GIB, "total": 80 * GIB, "power": 410.0}
        own: dict[str, Any] = {
            "phase": "start",
            "host": 9 * GIB,
            "held": 8 * GIB,
            "cpu": 3.1,
            "gpus": [gpu],
        }
        readings = [{"time": at + 5 * one, "at": 5.0 * one, **own} for one in range(60)]
        _write(here.worker_monitor("g0", owner.id), readings)
        text = "".join(f"INFO {model} step {one}: 812 tokens\n" for one in range(200))
        here.worker_log("g0", owner.id).write_text(
            text + "ERROR a line that looks like one\n", encoding="utf-8"
        )
    fold_workers(here)


def _usage(here: Experiment, plan: ResolvedPlan, size: Size) -> dict[str, Any]:
    hours = [
        {"run_task": one.name, "model": one.model.name, "unit": "GPU", "allocated": 0.12, "used": 0.1,
         "loading": 0.01, "starting": 0.0, "idle": 0.005, "after_last_answer": 0.002, "failed_loads": 0.0,
         "lost": 0.003} for one in plan.run_tasks
    ]  # fmt: skip
    return {
        "version": 1, "experiment": here.id, "month": "2026-11", "source": "workers", "jobs": size.models,
        "hours": hours, "waited": None, "energy_wh": None, "energy_source": None, "complete": True,
        "gpu_utilisation": {one.name: 87.0 for one in plan.run_tasks},
    }  # fmt: skip


# --- one that runs ------------------------------------------------------------------------------------------


def _half(here: Experiment, size: Size, at: float) -> None:
    """A third of the run tasks done and folded, one started; no worker works on it until `grow` does."""
    whole = replace(size, answers=0)
    for place in range(max(1, size.run_tasks // 3)):
        _shards(here, whole, 0, place, _draw(size, 0, place), at)


def _answer(experiment: Experiment, name: str, place: int) -> Response:
    dataset = int(experiment.resolved.run_task(name).dataset.name[5:])
    return _response(dataset, place, VARIANTS[0 if place % 4 else 2])


def _owner(owner: Owner) -> dict[str, Any]:
    return {"job": owner.job, "restart": owner.restart, "host": owner.host, "pid": owner.pid,
            "node": owner.node, "round": owner.round}  # fmt: skip


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Make a home, or let an experiment of one grow."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--experiments", type=int, default=100)
    parser.add_argument("--run-tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--answers", type=int, default=10, help="newest experiments with responses")
    parser.add_argument("--running", type=int, default=0, help="more, in the middle of their life")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--grow", type=Path, metavar="EXPERIMENT", help="work on a running one")
    parser.add_argument("--per-second", type=float, default=20.0, help="answers, with --grow")
    asked = parser.parse_args()
    if asked.grow:
        print(f"{grow(Experiment(asked.grow.resolve()), asked.per_second):,} answers")
        return
    with tempfile.TemporaryDirectory() as temporary:
        size = Size(
            (asked.folder or Path(temporary)).resolve(), asked.experiments, asked.run_tasks, asked.samples,
            asked.answers, asked.running, asked.seed, asked.processes,
        )  # fmt: skip
        if asked.folder is None:
            size = replace(size, experiments=3, run_tasks=6, samples=50, answers=1)
        started = time.monotonic()
        made = make(size)
        took, files = time.monotonic() - started, sum(1 for _ in _files(size.home))
        print(
            f"{len(made)} experiments × {size.run_tasks} run tasks × {size.samples:,} samples = "
            f"{len(made) * size.run_tasks * size.samples:,} samples: "
            f"{_bytes(size.home) / 1e6:,.0f} MB in {files:,} files, {took:.0f} s"
        )


if __name__ == "__main__":
    main()
