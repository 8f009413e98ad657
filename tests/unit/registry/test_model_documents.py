"""Models: what their definitions say of kinds of work, and what every shipped definition must say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.registry import model_table
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.prompt import Prompt
from tests.conftest import ROOT

MODEL = """\
name: org/reader
source: ../weights
engine: vllm
reasoning_parsers: {vllm: qwen3, sglang: other}
tasks:
  ocr:
    prompt: ocr_markdown
    parser: doctags
    generation: {temperature: 0.1, max_tokens: 4096, extra: {top_k: 1, min_p: 0.5}}
"""
PAGES = "name: pages\nsource: ../pages\nlanguage: ru\n"


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    for name, text in {"models/reader.yaml": MODEL, "datasets/pages.yaml": PAGES}.items():
        file = tmp_path / "registries" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def run_task(registry: Path, own: str = "", ml_task: str = "ocr") -> ResolvedRunTask:
    plan = registry / "plan.yaml"
    plan.write_text(
        "name: plan\nrun_tasks:\n"
        f"  - {{name: a, ml_task: {ml_task}, model: org/reader, dataset: pages{own}}}\n"
    )
    return load_plan(plan, [registry / "registries"]).run_tasks[0]


def test_a_model_is_asked_as_its_authors_do(registry: Path) -> None:
    found = run_task(registry)
    assert (found.prompt.name, found.ml_task.parser) == ("ocr_markdown", "doctags")
    assert found.task.generation.temperature == 0.1
    assert found.task.generation.max_tokens == 4096
    assert found.task.generation.extra == {"top_k": 1, "min_p": 0.5}


def test_what_a_run_task_sets_precedes_the_authors(registry: Path) -> None:
    own = ", prompt: ocr_text, generation: {temperature: 0, extra: {top_k: 5}}"
    found = run_task(registry, own)
    assert (found.prompt.name, found.ml_task.parser) == ("ocr_text", "doctags")
    assert found.task.generation.temperature == 0
    assert found.task.generation.max_tokens == 4096
    assert found.task.generation.extra == {"top_k": 5, "min_p": 0.5}


def test_another_ml_task_and_an_ml_tasks_own_parser_stay(registry: Path) -> None:
    assert run_task(registry, ml_task="ocr_deepseek").ml_task.parser == "deepseek_ocr"
    text = (registry / "registries/models/reader.yaml").read_text()
    file = registry / "registries/models/reader.yaml"
    file.write_text(text.replace("  ocr:", "  ocr_deepseek:"))
    found = run_task(registry, ml_task="ocr_deepseek")
    assert (found.prompt.name, found.ml_task.parser) == ("ocr_markdown", "deepseek_ocr")
    assert run_task(registry).task.generation.temperature == 0


def test_the_engine_gets_its_own_parser_of_thoughts(registry: Path) -> None:
    options = run_task(registry).model.engine_options
    assert options == {"reasoning_parser": "qwen3"}
    file = registry / "registries/models/reader.yaml"
    file.write_text(MODEL + "engine_options: {reasoning-parser: mine}\n")
    assert run_task(registry).model.engine_options == {"reasoning-parser": "mine"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("served_by: {vllm: not a requirement}", "10:19: 'not a requirement' is not a requirement"),
        ("unread: [licens]", "10:10: unknown key 'licens' of a model's definition"),
        ("sources: {name: card}\nunread: [name]", "11:10: 'name' is in 'sources' and in 'unread'"),
        ("tasks: {vqaa: {}}", "unknown ML task 'vqaa'"),
        ("tasks: {vqa: {parser: nothing}}", "nothing"),
        ("tasks: {vqa: {prompt: vqa_shor}}", "unknown prompt 'vqa_shor' (did you mean 'vqa_short'"),
    ],
)
def test_a_wrong_fact_is_one_line(registry: Path, line: str, said: str) -> None:
    file = registry / "registries/models/reader.yaml"
    base = MODEL if not line.startswith("tasks") else MODEL.partition("tasks:")[0] + "\n" * 6
    file.write_text(base + line + "\n")
    with pytest.raises(UserError) as refused:
        run_task(registry)
    assert any(said in str(problem) for problem in refused.value.problems), refused.value


@pytest.mark.parametrize(
    ("billions", "each", "gpus", "memory", "card"),
    [(0.9, 2, 1, 10, 16), (8.8, 2, 1, 27, 32), (8.8, 1, 1, 18, 24), (235.7, 2, 8, 73, 80),
     (700, 2, 8, 201, None)],
)  # fmt: skip
def test_memory_follows_from_parameters(
    billions: float, each: float, gpus: int, memory: int, card: int | None
) -> None:
    need = model_table.gpu_memory(billions, each, gpus)
    assert (need, model_table.smallest_card(need)) == (memory, card)


CATALOG = Catalog()
SHIPPED = model_table.shipped()
FACTS = ("licence", "served_by", "context_length", "parameters_b", "min_pixels", "max_pixels", "tasks",
         "tool_parsers", "reasoning_parsers")  # fmt: skip


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_each_shipped_model_says_where_its_facts_are_from(model: Model) -> None:
    given = [name for name in FACTS if getattr(model, name)]
    assert [one for one in given if one not in model.sources and one not in model.unread] == []
    assert all(text.strip() for text in model.sources.values())
    assert [one for one in model.sources if not getattr(model, one)] == []
    # `unread` names a missing fact, too
    must = ("licence", "context_length", "parameters_b", "served_by", "max_pixels")
    assert [one for one in must if not getattr(model, one) and one not in model.unread] == []
    if model.parameters_b is not None:
        assert model_table.smallest_card(model.gpu_memory_gb or 0), "no GPU is large enough"


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_a_fact_is_one_of_the_weights(model: Model) -> None:
    """Licences of projects and defaults of libraries were wrong where the weights' files were read."""
    assert "project" not in model.sources.get("licence", "").partition(";")[0]
    limits = [model.sources.get(name, "") for name in ("min_pixels", "max_pixels")]
    assert [one for one in limits if "default" in one] == []


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_each_shipped_model_fits_itself(model: Model) -> None:
    billions = model.parameters_b
    need = None if billions is None else model_table.gpu_memory(billions, 2, model.gpus)
    assert model.gpu_memory_gb == need
    assert model.source == f"hf://{model.name}"
    limits = model.context_length
    for name, own in model.tasks.items():
        assert CATALOG.get(MLTask, name)
        if own.prompt is not None:
            assert CATALOG.get(Prompt, own.prompt)
        assert own.output, "users see the form of its answers"
        assert limits is None or own.generation.max_tokens < limits
    options = {name.replace("-", "_") for name in model.engine_options}
    assert not options & {"limit_mm_per_prompt", "limit_mm_data_per_request"}


def test_each_shipped_model_runs_with_its_authors_prompt_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_MODE", "dev")  # no definition is locked to a commit
    tasks = [
        f"  - {{name: r{number}-{name}, ml_task: {name}, model: {model.name}, dataset: {dataset}}}"
        for number, model in enumerate(SHIPPED)
        for name, dataset in (
            {one: "demo_ocr" for one in model.tasks} or {"vqa": "demo_vqa"}
        ).items()
    ]
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: all\nrun_tasks:\n" + "\n".join(tasks) + "\n")
    found = load_plan(plan).run_tasks
    assert len(found) == len(tasks)
    for one in found:
        own = one.model.tasks.get(one.ml_task.name)
        if own is not None:
            assert one.prompt.name == own.prompt
            assert one.task.generation.max_tokens == own.generation.max_tokens


def test_the_page_of_models_is_theirs() -> None:
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    assert text == model_table.page(SHIPPED), (
        "run: python -m hpcbench.registry.model_table > docs/models.md"
    )
