"""The same again: from the experiment's folder alone, whatever became of plan, registries and settings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.cli.main import main
from hpcbench.comparison.differences import config_differences
from hpcbench.errors import UserError
from hpcbench.experiment.control import control_request
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.manifest import Manifest
from hpcbench.files.atomic import write_json
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.registry.source import Source
from hpcbench.reporting.provenance import reproduce
from hpcbench.schema.package import Package
from hpcbench.schema.spending import BudgetCaps
from hpcbench.submit import rerun
from hpcbench.submit.kept_files import keep, today
from hpcbench.submit.plan_packages import build, load_with_packages
from hpcbench.submit.prepare import prepare
from tests.help_examples import example
from tests.unit.command import Cli
from tests.unit.small import record, resolved, run_task, write_dataset

DOCUMENTS = {
    "models/tiny.yaml": "name: tiny\nsource: ../../weights\nengine: vllm\nchat_template: ../chat.jinja\n",
    "models/tiny.dev.yaml": "dtype: float16\n",
    "datasets/pages.yaml": "name: pages\nsource: ../../pages\nannotations: a.jsonl\nfields: [question]\n",
    "prompts/ask.yaml": "name: ask\ncollection: ../ask.csv\n",
    "sites/default.yaml": "name: default\ncache_gb: 7\n",
    "reports/short.yaml": "name: short\nplugin: markdown\noptions: {worst: 2}\n",
}

PLAN = """
name: first
executor: local
shard_size: 10
run_tasks:
  - {name: t, ml_task: vqa, model: tiny, dataset: pages, prompt: ask, metrics: [anls], reports: [short]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a plan, its overlay and its registry, beside data."""
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    here = tmp_path / "here"
    write_dataset(here / "pages", [record(number) for number in range(20)])
    for name in ("p.png", "../example.png"):
        Image.new("RGB", (4, 4)).save(here / "pages" / name)
    (here / "weights").mkdir()
    (here / "weights/config.json").write_text("{}")
    for name, text in DOCUMENTS.items():
        path = here / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (here / "mine/chat.jinja").write_text("{{ messages }}")
    (here / "mine/ask.csv").write_text("id;user\na;{{ question }}\n")
    (here / "plan.yaml").write_text(PLAN)
    (here / "plan.dev.yaml").write_text("seed: 5\n")
    monkeypatch.chdir(here)
    return here


def prepared(folder: Path, *settings: str) -> Experiment:
    """The first experiment: in dev, with a registry and settings of its own."""
    plan = folder / "plan.yaml"
    found, packages = load_with_packages(
        plan, [folder / "mine"], ["datasets/pages:version='2'", *settings], mode="dev"
    )
    return prepare(found, plan, packages=packages)


def prepared_again(first: Experiment, *sources: str) -> Experiment:
    found = rerun.load(first, sources)
    packages = build(found, lambda line: None, today(first))
    return prepare(found, first.plan_file, packages=packages)


def forget(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete plan and registry, and go elsewhere."""
    shutil.rmtree(folder / "mine")
    for name in ("plan.yaml", "plan.dev.yaml", "example.png"):
        (folder / name).unlink()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)


@pytest.mark.long
def test_a_rerun_is_the_same_plan_to_the_bit_without_its_registry(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(folder, "run_tasks.t.limit=15")
    forget(folder, monkeypatch)
    second = prepared_again(first)
    assert second.resolved_file.read_bytes() == first.resolved_file.read_bytes()
    assert second.manifest.plan_key == first.manifest.plan_key
    assert second.manifest.stage_keys == first.manifest.stage_keys
    assert rerun.not_as_it_was(first, second) == []
    reported = second.resolved
    assert (reported.mode, reported.plan.seed, reported.site.cache_gb) == ("dev", 5, 7)
    assert reported.run_tasks[0].model.dtype == "float16"
    # And again from that one's folder, moved.
    moved = first.path.parent.parent.parent / "moved"
    second.path.rename(moved)
    assert prepared_again(Experiment(moved)).resolved == reported


@pytest.mark.long
def test_the_command_that_a_report_names_runs_it_from_anywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    first = prepared(folder)
    forget(folder, monkeypatch)
    program, *words = reproduce(first).split()
    assert program == "hpcbench"
    assert "first: 1 run task, executor local" in cli(*words, "--dry-run")
    monkeypatch.chdir(first.path.parent)
    shutil.copytree(first.path, "copied")
    assert main(["rerun", "copied", "--dry-run"]) == 0
    # Its plan is as good a name; with settings it is a plan like any other, whose definitions are gone.
    for plan in (first.plan_file, "copied/plan.yaml"):
        shown = cli.both("submit", plan, "--dry-run")
        assert "first: 1 run task, executor local" in shown.out
        assert "using its stored definitions" in shown.err
        assert main(["submit", str(plan), "--estimate"]) == 0
    said = cli.err("submit", first.plan_file, "--set", "seed=6")
    assert f"`hpcbench rerun {first.path}` runs it" in said


@pytest.mark.long
def test_data_that_moved_is_named_with_the_option_that_says_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(folder)
    forget(folder, monkeypatch)
    (folder / "pages").rename(folder / "moved")
    with pytest.raises(UserError) as refused:
        prepared_again(first)
    assert str(refused.value) == (
        f"dataset 'pages' was in {folder / 'pages'}, which this machine does not have (give its folder: "
        "--source pages=FOLDER)"
    )
    for wrong in ("pages", "page=/x", "=x"):
        with pytest.raises(UserError, match="--source"):
            prepared_again(first, wrong)
    second = prepared_again(first, "datasets/pages=../here/moved")
    assert second.resolved.run_tasks[0].dataset.source == str(folder / "moved")
    own = {"EXPERIMENT": first.path, "demo_vqa=/data/pages": f"pages={folder / 'moved'}"}
    words = example("rerun EXPERIMENT --source demo_vqa=/data/pages", own)
    assert main([*words, "--dry-run"]) == 0
    assert rerun.not_as_it_was(first, second) == []


@pytest.mark.long
def test_a_rerun_has_the_budget_that_a_user_gave_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(folder, "max_requests=10", "max_tokens=900000")
    control_request(first, "resume", budget={"max_requests": 25})
    forget(folder, monkeypatch)
    second = prepared_again(first)
    assert second.resolved.plan.budget == BudgetCaps(max_requests=25, max_tokens=900_000)
    assert second.manifest.settings[-1] == "max_requests=25", "the report says so"


def test_figures_of_answers_are_no_change_since_then(folder: Path) -> None:
    first = prepared(folder)
    load = {"route": "proxied", "concurrency": 8}
    write_json(first.performance_file, {"version": 3, "run_tasks": {"t": {"load": load}}})
    assert {one.path for one in config_differences(first, prepared_again(first))} == {
        "run_tasks.t.concurrency", "run_tasks.t.route",
    }  # fmt: skip
    assert rerun.not_as_it_was(first, prepared_again(first)) == []


def test_other_data_than_then_is_said(folder: Path) -> None:
    first = prepared(folder)
    write_dataset(folder / "pages", [record(number, references=["?"]) for number in range(20)])
    Image.new("RGB", (4, 4)).save(folder / "pages/p.png")
    changes = rerun.not_as_it_was(first, prepared_again(first))
    assert [one.path for one in changes] == ["run_tasks.t.dataset.hash"]


@pytest.mark.long
def test_images_of_examples_are_those_of_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine/prompts/ask.yaml").write_text(
        'name: ask\nuser: "{{ question }}"\n'
        "examples: [{answer: a, fields: {question: q}, images: [../../example.png]}]\n"
    )
    first = prepared(folder)
    assert today(first) == {}
    assert prepared_again(first).resolved == first.resolved
    forget(folder, monkeypatch)
    second = prepared_again(first)
    (image,) = second.resolved.run_tasks[0].prompt.examples[0].images
    assert Path(image).is_relative_to(first.kept_dir)
    assert rerun.not_as_it_was(first, second) == []


@pytest.mark.parametrize("change", ["gone", "changed", "more"])
def test_packages_and_recipes_are_kept_with_what_they_need(tmp_path: Path, change: str) -> None:
    package, recipe = tmp_path / "plugin", tmp_path / "Dockerfile"
    (package / "src/__pycache__").mkdir(parents=True)
    for name in ("pyproject.toml", "src/a.py", "src/__pycache__/a.pyc"):
        (package / name).write_text("x")
    digest = "0" * 64
    recipe.write_text(
        f"FROM docker.io/library/debian:13@sha256:{digest}\nCOPY list.txt /list.txt\n"
    )
    (tmp_path / "list.txt").write_text("y")
    written: dict[str, Any] = {"name": "plugin", "source": {"type": "local", "path": str(package)}}
    definition = Package.model_validate(written)
    placed = with_absolute_paths(definition, Source(tmp_path / "p.yaml", written))
    plan = resolved(run_task(model={"image": str(recipe)}))
    plan = plan.model_copy(update={"packages": {"plugin": placed}})
    experiment = Experiment(tmp_path / "experiment")
    (package / "src/a.py").chmod(0o755)
    before = os.umask(0o007)  # a site's
    try:
        keep(experiment, plan, print)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in experiment.kept_dir.rglob("*.*")}
    assert (modes["a.py"], modes["list.txt"]) == (0o750, 0o640), "who is no colleague reads nothing"
    assert today(experiment) == {}
    if change == "gone":
        shutil.rmtree(package)
        recipe.unlink()
    elif change == "changed":
        (package / "src/a.py").write_text("z")
        (tmp_path / "list.txt").write_text("z")
    else:
        (package / "src/b.py").write_text("z")
        recipe.write_text("FROM scratch\n")
    kept = today(experiment)
    assert set(kept) == {str(package), str(recipe)}
    names = sorted(
        path.relative_to(kept[str(package)]).as_posix() for path in kept[str(package)].rglob("*.*")
    )
    assert names == ["pyproject.toml", "src/a.py"]
    assert (kept[str(recipe)].parent / "list.txt").read_text() == "y"


def test_an_imported_experiment_cannot_be_asked_again(tmp_path: Path) -> None:
    experiment = Experiment(tmp_path / "imported-one")
    vars(experiment)["manifest"] = Manifest(imported={"kit": "inspect"})
    assert reproduce(experiment) == "# imported: there is no plan to run again"
    with pytest.raises(UserError, match="imported-one was imported: it has no plan to run again"):
        rerun.load(experiment)


def test_a_rerun_takes_the_versions_that_were_installed() -> None:
    lines = {"Pillow": "Pillow", "timm": "timm[extra]>=1", "two": "two<3", "there": "there"}
    packages = {
        name: {"source": {"type": "requirement", "line": line}} for name, line in lines.items()
    }
    packages["mine"] = {"source": {"type": "pypi", "name": "pillow", "version": "1"}}
    rerun.as_locked(packages, {
        "": ["pillow==11.0.0 --hash=sha256:0", "two==2.0"],
        "scoring: image + timm": ["timm==1.2+cpu --hash=sha256:1", "two==2.1", "mine @ file:///m.whl"],
    })  # fmt: skip
    assert {name: one["source"].get("line") for name, one in packages.items()} == {
        "Pillow": "Pillow==11.0.0", "timm": "timm[extra]==1.2+cpu", "two": "two<3", "there": "there",
        "mine": None,
    }  # fmt: skip
