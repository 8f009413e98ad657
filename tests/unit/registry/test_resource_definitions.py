"""Resource metrics in definitions: any ML task takes them, mistakes are named at their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.comparison.interim import endpoints
from hpcbench.metrics.resources import MEASURED
from hpcbench.registry.ab import side_by_side
from hpcbench.registry.catalog import Catalog
from hpcbench.schema.metric import Metric
from hpcbench.schema.plan import Arms
from hpcbench.submit.reference_check import check_references
from tests.unit.command import Cli
from tests.unit.registries import PLAN, Files

IMAGE = "docker://scorer@sha256:" + "0" * 64


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.delenv("RUN_MODE", raising=False)
    return Files(tmp_path)


def test_every_shipped_resource_metric_has_a_definition_with_its_unit() -> None:
    catalog = Catalog([])
    names = [
        name
        for name in plugins.available("metrics")
        if MEASURED in plugins.load("metrics", name).accepts
    ]
    assert len(names) == 15
    for name in names:
        definition, kind = catalog.get(Metric, name), plugins.load("metrics", name)
        assert (definition.plugin, kind.name) == (name, name)
        assert kind().signature == f"{name}|v1"
        unit = kind.unit.partition(" ")[0].removeprefix("{")
        assert unit.removesuffix("}").lower() in definition.description.lower().replace(
            "per second", "tokens/s"
        ).replace("per hour", "documents/h"), (unit, definition.description)


def test_metrics_of_answers_come_first(files: Files) -> None:
    named = "    metrics: [peak_gpu_memory, tpot, anls, ttft_p50, exact_match]\n"
    (run_task,) = files.resolved(PLAN + named).run_tasks
    assert [one.name for one in run_task.metrics] == [
        "anls", "exact_match", "tpot", "ttft_p50", "peak_gpu_memory",
    ]  # fmt: skip
    assert run_task.task.metrics[0] == "anls"


def test_any_form_of_answers_takes_them_unless_a_list_narrows(files: Files) -> None:
    for task in ("kie", "classification", "ocr"):
        files.write("datasets/pages.yaml", "name: pages\nsource: ../pages\nannotations: a.jsonl\n"
                    "fields: [question, labels]\n")  # fmt: skip
        text = PLAN.replace("ml_task: vqa", f"ml_task: {task}") + "    metrics: [ttft_p50]\n"
        assert files.resolved(text).run_tasks[0].metrics[0].name == "ttft_p50"
    files.write("ml_tasks/mine.yaml", "name: mine\nplugin: vqa\nmetrics: [anls]\n")
    text = PLAN.replace("ml_task: vqa", "ml_task: mine") + "    metrics: [ttft_p50]\n"
    (reported,) = files.refusal(text)
    assert reported.startswith("p.yaml:8:15: ML task 'mine' lists anls and no metric 'ttft_p50'")


def test_no_image_scores_them(files: Files) -> None:
    plan = f"{PLAN}    metrics: [anls, tpot]\nevaluation: {{image: '{IMAGE}'}}\n"
    (run_task,) = files.resolved(plan).run_tasks
    assert {one.name: one.image for one in run_task.metrics} == {"anls": IMAGE, "tpot": None}
    files.write("metrics/mine.yaml", f"name: mine\nplugin: tpot\nimage: {IMAGE}\n")
    (reported,) = files.refusal(f"{PLAN}    metrics: [mine]\n")
    assert reported.startswith("registry/metrics/mine.yaml:3:8: metric 'mine' reads no answer")


@pytest.mark.parametrize(
    ("metric", "reported"),
    [
        ("name: mine\nplugin: tpot\noptions: {tau: 1}\n", "mine.yaml:3:11: unknown option 'tau'"),
        (
            "name: mine\nplugin: ttft_p51\n",
            "mine.yaml:2:9: unknown metric plugin 'ttft_p51' (did you",
        ),
        ("name: mine\nplugin: tpot\nversion: '2'\n", "metric 'mine' has version 1 here, not 2"),
    ],
)
def test_mistakes_are_named_at_their_place(files: Files, metric: str, reported: str) -> None:
    files.write("metrics/mine.yaml", metric)
    (found, *_) = files.refusal(f"{PLAN}    metrics: [mine]\n")
    assert reported in found


def test_an_unknown_name_is_named_in_plans_and_gates(files: Files, cli: Cli) -> None:
    (reported,) = files.refusal(f"{PLAN}    metrics: [ttft_p51]\n")
    assert reported.startswith("p.yaml:8:15: ") and "did you mean 'ttft_p50'?" in reported
    files.write("gates/g.yaml", "name: g\nmetrics: {ttft_p51: {relative: 0.1}}\n")
    said = cli.err("validate", "--registry", files.registry)
    assert "gates/g.yaml:2:21: unknown metric 'ttft_p51'" in said


def test_references_are_not_read_by_them(tmp_path: Path) -> None:
    """A dataset that no metric of answers can read may still be measured."""
    from tests.unit.small import run_task, write_dataset

    data = write_dataset(tmp_path / "data", [])
    task = run_task(metrics=["tpot", "cost"], dataset={"source": str(data)})

    class Unread:
        def count(self) -> int:
            raise AssertionError("nothing needs to be read")

    check_references(task, Unread(), [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metrics", "decide"), [("[tpot, anls]", ("anls",)), ("[tpot]", ()), ("[anls, cer]", ("anls",))]
)
def test_no_resource_metric_decides_between_arms(
    files: Files, metrics: str, decide: tuple[str, ...]
) -> None:
    text = f"{PLAN}    metrics: {metrics}\n"
    sides = [files.resolved(text, f"models/org/tiny:dtype={one}") for one in ("float16", "float32")]
    both = side_by_side(sides[0], sides[1], Arms(), ())
    assert endpoints(both, next(iter(both.pairs))) == decide


def test_arms_with_resource_metrics_alone_need_a_figure(files: Files, cli: Cli) -> None:
    plan = files.plan(f"{PLAN}    metrics: [tpot, cost]\n")
    words = ["ab", str(plan), "--registry", str(files.registry), "--dry-run"]
    said = cli.err(*words, "--a", "model.dtype=float16", "--b", "model.dtype=float32")
    assert "names only metrics of resources" in said
