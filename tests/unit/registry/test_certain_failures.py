"""Faults that every request or every score would meet are refused before submission, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from hpcbench import plugins
from hpcbench.cli.main import main
from hpcbench.engines.request_limits import count_of, positions
from hpcbench.errors import UserError
from hpcbench.evaluation.plan_metrics import load_metrics
from hpcbench.plugins import EngineSpec, Limits
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.engine_limits import beyond
from hpcbench.registry.fitting_metrics import JUDGE
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.submit.measure import measure
from tests.unit.small import record, resolved, run_task, write_dataset

OF_OUTPUT: Mapping[str, Any] = {
    "text": "Total 12,50", "label": "invoice", "object": {"total": "12,50", "items": [{"sku": "1"}]},
}  # fmt: skip
"""Output of an ML task → a reference of it."""


def refusals(
    folder: Path, references: Sequence[Any], plan: Mapping[str, Any] | None = None, **task: Any
) -> list[str]:
    """Messages about a run task over a dataset of these references."""
    records = [record(number, references=one) for number, one in enumerate(references)]
    data = write_dataset(folder / "data", records)
    try:
        measure(
            resolved(run_task(dataset={"source": str(data)}, **task), **plan or {}), hashes=False
        )
    except UserError as error:
        return [one.message for one in error.problems]
    return []


def of_kie(*metrics: str) -> dict[str, Any]:
    """A run task of key-information extraction."""
    return {"plugin": "kie", "metrics": metrics}


def test_a_metric_that_cannot_read_the_references_is_refused_with_one_of_them(
    tmp_path: Path,
) -> None:
    (reported,) = refusals(tmp_path, [["12,50"]] * 3, **of_kie("valid_json", "kie_f1_micro"))
    assert reported.startswith("metric 'kie_f1_micro' cannot read the references of dataset 'd': ")
    assert reported.endswith("""sample 's0' has "12,50\"""")


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("Text", "TypeError: score() returns a str; it returns Parts(numerator, denominator) at "),
        ("Broken", "RuntimeError: never well at "),
    ],
)
def test_a_metric_of_another_author_that_fails_always_is_named_with_its_line(
    tmp_path: Path, metric: str, why: str
) -> None:
    plugin = f"tests.unit.evaluation.strange.{metric}"
    (reported,) = refusals(tmp_path, [["12,50"]] * 3, metrics=(plugin,))
    assert reported.startswith(
        f"metric '{plugin}' fails on all checked references of dataset 'd': {why}"
    )


def test_metrics_of_one_place_are_one_line(tmp_path: Path) -> None:
    (reported,) = refusals(tmp_path, [["12,50"]], **of_kie("kie_f1_micro", "kie_f1_macro"))
    assert reported.startswith("metric 'kie_f1_micro', 'kie_f1_macro' cannot read")


@pytest.mark.parametrize(
    "references",
    [
        [[{"total": "12,50"}]] * 3,
        [["12,50"], [{"total": "12,50"}], ["7"]],  # coverage shows what is lost
    ],
    ids=["objects", "some objects"],
)
def test_what_may_be_scored_is_not_refused(tmp_path: Path, references: Sequence[Any]) -> None:
    assert refusals(tmp_path, references, **of_kie("kie_f1_micro")) == []


def test_where_nothing_is_evaluated_no_metric_is_asked(tmp_path: Path) -> None:
    plan = {"stages": ["inference"]}
    assert refusals(tmp_path, [["12,50"]], plan, **of_kie("kie_f1_micro")) == []


def ml_tasks() -> list[str]:
    catalog = Catalog([])
    found = (catalog.get(MLTask, name) for name in catalog.names("ml_tasks"))
    return sorted(
        one.name for one in found if one.plugin != JUDGE
    )  # its metrics read verdicts alone


@pytest.mark.parametrize("name", ml_tasks())
def test_every_shipped_metric_reads_references_of_its_ml_task(tmp_path: Path, name: str) -> None:
    catalog = Catalog([])
    ml_task = catalog.get(MLTask, name)
    reference = {"page_labels": ["0", "1"], "page_order": ["2", "1"]}.get(name)
    data = write_dataset(tmp_path, [record(0, references=[reference or OF_OUTPUT[ml_task.output]])])
    one = run_task(dataset={"source": str(data)}).model_copy(
        update={
            "ml_task": ml_task,
            "metrics": tuple(catalog.get(Metric, metric) for metric in ml_task.metrics),
        }
    )
    assert set(load_metrics(one)) == set(ml_task.metrics)
    assert measure(resolved(one), hashes=False).samples == {"rt": 1}


class Fussy:
    """A metric of somebody's own, with references of its own form."""

    accepts = ("text",)
    higher_is_better = True
    aggregation = "mean"
    bounds = (0.0, 1.0)
    signature = "fussy"

    def score(self, prediction: object, references: Sequence[Any]) -> Any:
        from hpcbench.metrics.base import Parts

        right = [one["answer"].lower() for one in references]
        return Parts(float(str(prediction).lower() in right), 1.0)

    def aggregate(self, parts: Sequence[Any]) -> float:
        return sum(one.numerator for one in parts) / len(parts)


@pytest.mark.parametrize(
    ("references", "wrong"), [([{"answer": "A"}], ""), (["A"], "TypeError: string indices")]
)
def test_a_metric_of_a_plugin_is_asked_as_evaluation_would_ask_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, references: Sequence[Any], wrong: str
) -> None:
    from hpcbench.submit import reference_check as asking

    monkeypatch.setattr(asking, "load_metrics", lambda run_task: {"fussy": Fussy()})
    reported = refusals(tmp_path, [references])
    assert [wrong in one for one in reported] == ([True] if wrong else [])


# --- what fits into a request -------------------------------------------------------------------------


def write_config(folder: Path, config: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"text_config": {"max_position_embeddings": 4096}, "vision_config": {}}, 4096),
        ({"max_position_embeddings": 2048, "rope_scaling": {"factor": 4.0}}, 8192),
        ({"model_type": "x"}, None),
        (["no", "config"], None),
    ],
)
def test_a_config_is_read_in_its_most_generous_sense(
    tmp_path: Path, config: object, expected: int | None
) -> None:
    assert positions(write_config(tmp_path, config)) == expected
    assert positions(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"image": 2}, 2), ('{"image": 3}', 3), ({"image": {"count": 4, "width": 9}}, 4),
        ({"video": 1}, None), (None, None), ("no JSON", None), ({"image": True}, None),
    ],
)  # fmt: skip
def test_a_limit_of_images_is_read_in_every_form(limits: object, count: int | None) -> None:
    assert count_of(limits) == count


@pytest.mark.parametrize(
    ("engine", "said", "options", "expected"),
    [
        ("vllm", None, {}, Limits(2048)),
        ("vllm", 512, {"limit-mm-per-prompt": {"image": 2}}, Limits(512, 2)),
        ("vllm", None, {"hf_overrides": {"max_position_embeddings": 9999}}, Limits()),
        ("vllm", None, {"limit_mm_per_prompt.image": 3}, Limits(2048, 3)),
        ("sglang", None, {"limit_mm_data_per_request": {"image": 1}}, Limits(2048, 1)),
        ("sglang", 512, {"allow_auto_truncate": True}, Limits()),
        ("huggingface", None, {}, Limits(2048)),
        ("huggingface", None, {"model": {"max_position_embeddings": 9999}}, Limits()),
        ("deepseek_ocr", None, {}, Limits(2048, 1)),
        ("deepseek_ocr_sglang", 512, {}, Limits(512, 1)),
    ],
)
def test_engines_say_what_they_refuse(
    tmp_path: Path, engine: str, said: int | None, options: Mapping[str, Any], expected: Limits
) -> None:
    folder = write_config(tmp_path, {"max_position_embeddings": 2048})
    spec = EngineSpec(folder, "m", "/s", context_length=said, options=options)
    assert plugins.load("engines", engine)().limits(spec) == expected


@pytest.mark.parametrize(
    ("context", "max_tokens", "refused"),
    [(1024, 1024, True), (1024, 1023, False), (None, 10**6, False)],
)
def test_answers_that_leave_no_room_for_a_prompt_are_refused(
    context: int | None, max_tokens: int, refused: bool
) -> None:
    one = run_task(model={"context_length": context}, generation={"max_tokens": max_tokens})
    found = list(beyond(one, plugins.load("engines", "vllm")))
    assert [key for key, _, _ in found] == (["max_tokens"] if refused else [])


def test_an_engine_that_says_nothing_refuses_nothing() -> None:
    one = run_task(model={"context_length": 8}, generation={"max_tokens": 4096})
    assert list(beyond(one, plugins.load("engines", "remote"), images=100)) == []
    assert list(beyond(one, None, images=100)) == []


# --- as a user meets it ---------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with a dataset of three pages a sample and a model of 2048 tokens."""
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    pages = ["p.png", "p.png", "p.png"]
    data = write_dataset(tmp_path / "data", [record(number, images=pages) for number in range(4)])
    Image.new("RGB", (8, 8)).save(data / "p.png")
    write_config(tmp_path / "weights", {"max_position_embeddings": 2048})
    for name, definition in {
        "models/m.yaml": {"source": "../../weights", "engine": "vllm"},
        "models/two.yaml": {
            "source": "../../weights", "engine": "vllm",
            "engine_options": {"limit_mm_per_prompt": {"image": 2}},
        },
        "datasets/d.yaml": {
            "source": "../../data", "annotations": "a.jsonl", "fields": ["question"],
        },
        "prompts/p.yaml": {"user": "{{ question }}"},
    }.items():  # fmt: skip
        path = tmp_path / "registries" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"name": path.stem, **definition}))
    return tmp_path


@pytest.mark.parametrize(
    ("task", "reported"),
    [
        ("ml_task: kie, model: m, metrics: [valid_json, kie_f1_micro]", ":3:97: metric 'kie_f1_micro'"),
        ("ml_task: kie, model: m", ":3:60: metric 'kie_f1_micro', 'kie_f1_macro' cannot read"),
        ("ml_task: vqa, model: m, generation: {max_tokens: 2048}", ":3:100: max_tokens 2048 leaves no"),
        ("ml_task: vqa, model: two", ":3:72: requests about dataset 'd' have up to 3 images"),
        ("ml_task: vqa, model: m", None),
    ],
)  # fmt: skip
def test_a_plan_that_can_only_fail_is_one_line_with_its_place(
    files: Path, capsys: pytest.CaptureFixture[str], task: str, reported: str | None
) -> None:
    (files / "plan.yaml").write_text(
        f"name: plan\nrun_tasks:\n  - {{name: a, dataset: d, prompt: p, priority: 0, {task}}}\n"
    )
    code = main(["submit", "plan.yaml", "--dry-run", "--registry", "registries"])
    said = capsys.readouterr().err
    assert code == (0 if reported is None else 2), said
    if reported is not None:
        assert len(said.splitlines()) == 1
        assert f"plan.yaml{reported}" in said
