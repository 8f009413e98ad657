"""The settings that `hpcbench tune` tries by itself, and the overlay that it writes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from hpcbench.cli import tune
from hpcbench.comparison.tuning import REPLICAS, Duel, Knob
from hpcbench.experiment.layout import Experiment
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.starter import plan_text
from hpcbench.schema.model import Model
from hpcbench.schema.site import Site
from tests.unit.command import Cli
from tests.unit.small import resolved, run_task

BATCH = "model.engine_options.max_batch"


def test_the_engines_options_and_the_requests_in_flight_are_tried(cli: Cli) -> None:
    printed = cli("tune", "tiny-vlm", "--dataset", "demo_vqa", "--dry-run")
    assert printed.splitlines() == [
        "concurrency: [1], 2, 4, 8, 16, 32, 64, 128, 256",
        f"{BATCH}: 1, 2, 4, [8], 16, 32",
    ]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["tiny-vlm"], "model 'tiny-vlm' needs a dataset (--dataset NAME, or name a plan)"),
        (["Tiny-VLM"], "model 'Tiny-VLM' needs a dataset (--dataset NAME, or name a plan)"),
        (["gone.yaml"], "gone.yaml: no such file"),
        (["tiny-vlmm"], "tiny-vlmm: no such file, and no plan of this name"),
        (["p.yaml", "--dataset", "demo_vqa"], "p.yaml: --dataset belongs to a model's name"),
        (
            ["tiny-vlm", "--dataset", "demo_vqa", "--try", "concurrency"],
            "PATH=VALUE,VALUE is expected",
        ),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], reported: str, cli: Cli) -> None:
    assert reported in cli.err("tune", *arguments)


def test_a_plan_is_found_by_its_name(tmp_path: Path, cli: Cli) -> None:
    plan = plan_text("Быстрее 2026", ml_task="vqa", model="tiny-vlm", dataset="demo_vqa")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/faster.yaml").write_text(plan)
    for named in (["быстрее 2026"], ["faster"], ["Tiny-VLM", "--dataset", "demo_vqa"]):
        assert BATCH in cli("tune", *named, "--registry", tmp_path, "--dry-run")


def test_the_overlay_has_the_options_and_their_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_MODE", "dev")
    model = {"name": "org/m", "source": "/nowhere", "engine": "huggingface"}
    plan = resolved(run_task(model=model))
    best = {"concurrency": 16, BATCH: 32}
    duel = Duel(best, {"concurrency": 16}, "20261129-1200-tune-abcd", "better", 1.2, 1.1, 1.3, 8)
    path = tune._write(tmp_path, plan, best, [duel])
    assert path == tmp_path / "models" / "org" / "m.dev.yaml"
    assert yaml.safe_load(path.read_text()) == {"engine_options": {"max_batch": 32}}
    line = "× 1.200 [1.100, 1.300], better (20261129-1200-tune-abcd)"
    assert f"# concurrency=16 {BATCH}=32 against concurrency=16: {line}" in path.read_text()
    (tmp_path / "models/org/m.yaml").write_text(yaml.safe_dump(model))
    assert Catalog([tmp_path]).get(Model, "org/m").engine_options == {"max_batch": 32}
    assert tune._write(tmp_path, plan, {"concurrency": 16}, []) is None
    tune._write(tmp_path, plan, {REPLICAS: 2, BATCH: 4}, [])
    found = Catalog([tmp_path]).get(Model, "org/m")
    assert (found.replicas_per_node, found.engine_options) == (2, {"max_batch": 4})


def test_numbers_of_engines_are_tried_where_jobs_get_whole_nodes() -> None:
    model = {
        "name": "org/m",
        "source": "/nowhere",
        "engine": "vllm",
        "gpus": 1,
        "replicas_per_node": 6,
    }
    own = run_task(model=model, resources={"cpus": 2, "memory_gb": 8})
    node = {"gpus": {"h100": 6}, "cpus": 96, "memory_gb": 960, "whole_nodes": True}
    site = Site.model_validate(
        {
            "name": "s",
            "executor": "slurm",
            "slurm": {"partition": "gpu", "partitions": {"gpu": node}},
        }
    )
    knobs = tune._knobs(resolved(own, executor="slurm").model_copy(update={"site": site}), [])
    assert [knob for knob in knobs if knob.path == REPLICAS] == [Knob(REPLICAS, (1, 2, 4, 6), 3)]
    assert REPLICAS not in [knob.path for knob in tune._knobs(resolved(own), [])]


def test_a_duel_that_a_budget_ended_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "the rest is not asked: budget (9 of 9 requests spent)"
    over = SimpleNamespace(state="incomplete", reason=why)
    monkeypatch.setattr(tune, "submit_first", lambda experiment: None)
    monkeypatch.setattr(tune, "follow", lambda *_, **__: over)
    duels = tune.Duels(Namespace(budget=1), Path("plan.yaml"))
    assert duels._ended(Experiment(Path("20261201-1200-x")))
    assert f"20261201-1200-x is incomplete: {why}" in capsys.readouterr().err
