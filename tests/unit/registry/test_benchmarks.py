"""Public benchmarks: their layouts through iterator, prompt, parser and metric; their definitions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.benchmarks import page
from hpcbench.cli.main import main
from hpcbench.data.datasets import open_dataset
from hpcbench.errors import UserError
from hpcbench.evaluation.plan_metrics import load_metrics
from hpcbench.metrics.base import value_of
from hpcbench.parsers import reader
from hpcbench.prompts.task_prompt import TaskPrompt
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Sample
from hpcbench.schema.run_task import RunTask
from hpcbench.scorer.one import parts_of, takes_reading, takes_sample
from tests.conftest import ROOT
from tests.unit import benchmark_layouts
from tests.unit.command import Cli

SHIPPED = ROOT / "registries"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog([])


def resolved(name: str, folder: Path) -> ResolvedRunTask:
    """A shipped run task, its dataset in a folder."""
    plan = folder / "plan.yaml"
    plan.write_text(f"schema_version: 1\nname: one\nrun_tasks: [{name}]\n", encoding="utf-8")
    (run_task,) = load_plan(plan, mode="dev", locks=False).run_tasks
    dataset = run_task.dataset.model_copy(update={"source": str(folder)})
    return run_task.model_copy(update={"dataset": dataset})


@pytest.mark.parametrize("name", benchmark_layouts.names())
def test_a_benchmark_in_its_publishers_layout_is_read_asked_and_scored(
    name: str, tmp_path: Path
) -> None:
    expected = benchmark_layouts.write(name, tmp_path)
    run_task = resolved(name, tmp_path)
    iterator = open_dataset(run_task.dataset)
    samples = list(iterator.iter(0, iterator.count()))
    assert len({one.id for one in samples}) == len(samples)
    # Any sample alone is the same sample.
    assert [next(iter(iterator.iter(n, n + 1))).id for n in range(len(samples))] == [
        one.id for one in samples
    ]
    for sample, seen in zip(samples, expected, strict=True):
        check(run_task, sample, seen)


def check(run_task: ResolvedRunTask, sample: Sample, seen: Mapping[str, Any]) -> None:
    assert list(sample.references) == seen["references"]
    assert len(sample.images) == seen.get("images", 1)
    assert seen.get("document") in (None, sample.document)
    metadata = seen.get("metadata", {})
    assert {key: sample.metadata[key] for key in metadata} == metadata
    assert set(run_task.dataset.group_by) <= sample.metadata.keys()
    assert set(run_task.dataset.fields) <= sample.fields.keys()
    assert TaskPrompt(run_task).build(sample)[-1].text == seen["prompt"]
    read, metric = reader(run_task.ml_task), next(iter(load_metrics(run_task).values()))
    references = (sample,) if takes_sample(metric) else sample.references
    for answer, value in seen["scores"].items():
        reading = read(answer, sample, False)
        of = reading if takes_reading(metric) else reading.value
        found = value_of(metric, parts_of(metric, of, references))
        assert found == pytest.approx(value, abs=1e-4), answer


@pytest.mark.parametrize("name", benchmark_layouts.names(benchmark_layouts.UNSCORED))
def test_a_benchmark_that_nothing_here_scores_is_read_in_its_publishers_layout(
    name: str, catalog: Catalog, tmp_path: Path
) -> None:
    expected = benchmark_layouts.write(name, tmp_path, benchmark_layouts.UNSCORED)
    iterator = open_dataset(catalog.get(Dataset, name).model_copy(update={"source": str(tmp_path)}))
    samples = list(iterator.iter(0, iterator.count()))
    for sample, seen in zip(samples, expected, strict=True):
        assert (list(sample.references), sample.fields) == (seen["references"], seen["fields"])
        assert len(sample.images) == seen.get("images", 1)
        assert seen.get("document") in (None, sample.document)


def test_every_benchmark_has_a_layout_and_each_that_is_scored_a_run_task(catalog: Catalog) -> None:
    assert catalog.names("run_tasks") == benchmark_layouts.names()
    unscored = [
        name
        for name in catalog.names("datasets")
        if catalog.get(Dataset, name).scored_here == "nothing"
    ]
    assert unscored == benchmark_layouts.names(benchmark_layouts.UNSCORED)


def test_a_published_score_is_complete_or_says_that_it_is_not(catalog: Catalog) -> None:
    for name in catalog.names("datasets"):
        dataset = catalog.get(Dataset, name)
        assert bool(dataset.read) is not name.startswith("demo_")
        if not dataset.read:
            continue
        for one in dataset.published:
            assert re.search(r"[0-9a-f]{7}|arXiv \d{4}\.\d{5}", one.source), (name, one.source)
            if one.run_task is not None:
                task = catalog.get(RunTask, one.run_task)
                assert task.dataset == name
                assert one.metric in task.metrics


def without(facts: Mapping[str, object], unread: Sequence[str]) -> list[str]:
    """Facts that a definition neither has nor names as unread, each by a word of its own."""
    return [
        word for word, fact in facts.items() if not fact and not any(word in one for one in unread)
    ]


def test_each_dataset_has_each_fact_or_says_that_it_was_not_read(catalog: Catalog) -> None:
    """Revision, licence, splits, numbers, size, languages, scores; words and metric, or another scorer."""
    tasks = [catalog.get(RunTask, one) for one in catalog.names("run_tasks")]
    public = [catalog.get(Dataset, one) for one in catalog.names("datasets")]
    lacking = {}
    for one in (dataset for dataset in public if dataset.read):
        facts = {
            "revision": "@" in one.source or one.version, "licence": one.licence,
            "split": one.splits or one.split, "number of": one.samples, "page": one.pages,
            "size": one.size_gb, "language": one.languages, "published": one.published,
            "ML task": one.ml_task,
            "run task": one.scored_here == "nothing"
            or [task for task in tasks if task.dataset == one.name and task.prompt and task.metrics],
        }  # fmt: skip
        if lacks := without(facts, one.unread):
            lacking[one.name] = lacks
    assert lacking == {}


def test_the_page_of_benchmarks_is_that_of_the_definitions(catalog: Catalog) -> None:
    datasets = [catalog.get(Dataset, name) for name in catalog.names("datasets")]
    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == page(datasets)


# --- another version of a layout ------------------------------------------------------------------------


def renamed(content: Any, key: str) -> Any:
    """Rows, or an object, in which a key has another name."""
    if isinstance(content, list):
        return [renamed(one, key) for one in content]
    return {f"{name}_2" if name == key else name: value for name, value in content.items()}


def keys_of(content: Any) -> set[str]:
    rows = content if isinstance(content, list) else [content]
    return {key for row in rows if isinstance(row, dict) for key in row}


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        (name, folder)
        for folder in (benchmark_layouts.FOLDER, benchmark_layouts.UNSCORED)
        for name in benchmark_layouts.names(folder)
        # their rows go to the publisher's program as they are: it judges them
        if name not in ("olmocr_bench", "parsebench")
    ],
)
def test_a_key_that_a_new_version_renames_is_refused_or_changes_no_sample(
    name: str, layouts: Path, catalog: Catalog, tmp_path: Path
) -> None:
    scored = layouts is benchmark_layouts.FOLDER
    dataset = catalog.get(Dataset, catalog.get(RunTask, name).dataset if scored else name)
    layout = benchmark_layouts.read(name, layouts)
    expected = [(one["references"], one.get("images", 1)) for one in layout["samples"]]
    files = layout["files"].items()
    trials = [(file, key) for file, content in files for key in sorted(keys_of(content))]
    for number, (changed, key) in enumerate(trials):
        folder = tmp_path / str(number)
        for file, content in files:
            content = renamed(content, key) if file == changed else content
            benchmark_layouts.write_file(folder / file, content)
        try:
            iterator = open_dataset(dataset.model_copy(update={"source": str(folder)}))
            samples = list(iterator.iter(0, iterator.count()))
        except UserError:
            continue
        found = [(list(one.references), len(one.images)) for one in samples]
        assert found == expected, (changed, key)


# --- lists and refusals ---------------------------------------------------------------------------------


def listed(cli: Cli, *words: str) -> str:
    return cli("registry", "list", "datasets", *words)


def test_a_list_of_datasets_is_filtered_by_task_language_licence_and_size(cli: Cli) -> None:
    assert "mtvqa" in listed(cli, "--task", "vqa", "--language", "th", "--licence", "by-nc")
    assert "mtvqa" in listed(cli, "--max-gb", "5")
    assert "mtvqa" not in listed(cli, "--max-gb", "4")
    assert "mtvqa" not in listed(cli, "--language", "fi")
    assert "mtvqa" not in listed(cli, "--task", "kie")


def test_filters_are_for_datasets_alone(cli: Cli) -> None:
    assert "are for datasets" in cli.err("registry", "list", "models", "--task", "vqa")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("mtvq", "x"), "unknown dataset 'mtvq' (did you mean 'mtvqa'?)"),
        (("demo_vqa", "x"), "dataset 'demo_vqa' has no published score"),
        (("mtvqa", "tiny-vlm"), "unknown published score of model 'tiny-vlm'"),
        (("mtvqa", "openbmb/MiniCPM-Llama3-V-2_5"),
         "cannot be reproduced: no run task has its conditions"),
        (
            ("chartqa", "Qwen/Qwen2-VL-2B-Instruct"),  # of the very split that the dataset has
            "cannot be reproduced: no run task has its conditions (models that can: ",
        ),
        (("vcr_en_easy", "Qwen/Qwen2-VL-2B-Instruct"),
         "cannot be reproduced: no metric of hpcbench makes it, but spaCy's tokens in VLMEvalKit"),
    ],
)  # fmt: skip
def test_a_score_that_cannot_be_reproduced_is_refused_in_one_line(
    words: tuple[str, str], line: str, cli: Cli
) -> None:
    (said,) = cli.err("reproduce", words[0], "--model", words[1]).splitlines()
    assert line in said


def test_a_run_task_of_a_dataset_that_nothing_here_scores_is_refused(
    tmp_path: Path, cli: Cli
) -> None:
    plan = tmp_path / "plan.yaml"
    task = "{name: t, ml_task: vqa, model: tiny-vlm, dataset: charxiv_reasoning}"
    plan.write_text(f"name: one\nrun_tasks:\n  - {task}\n")
    (said,) = cli.err("validate", plan).splitlines()
    assert "plan.yaml:3:" in said
    assert "no metric of hpcbench scores dataset 'charxiv_reasoning': a judge" in said
    assert "add a run task with `judge: {of: t}`" in said


@pytest.mark.parametrize(
    "name", ["charxiv_reasoning", "charxiv_descriptive", "chartmuseum", "ocr_reasoning"]
)
def test_a_benchmark_that_its_publisher_lets_a_model_judge_is_run_with_a_judge(
    name: str, tmp_path: Path, catalog: Catalog
) -> None:
    assert "a judge" in catalog.get(Dataset, name).scorer
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"name: one\nrun_tasks:\n"
        f"  - {{name: t, ml_task: vqa, model: tiny-vlm, dataset: {name}, prompt: vqa_plain}}\n"
        f"  - {{name: j, ml_task: judge_binary, model: tiny-vlm, dataset: {name}, judge: {{of: t}}}}\n"
    )
    assert main(["validate", str(plan)]) == 0


@pytest.mark.long
def test_a_name_that_is_not_there_is_refused_at_its_place(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "datasets/own.yaml"
    path.parent.mkdir()
    path.write_text(
        "name: own\nsource: .\nannotations: a.jsonl\nml_task: vqaa\npublished:\n"
        "  - {model: a/b, value: 1, metric: nls, source: s, run_task: none}\n"
        "  - {model: a/b, value: 1, source: s}\n"
    )
    printed = cli.err("validate", "--registry", tmp_path)
    assert "own.yaml:7:5: published.1: name the `metric`" in printed
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    said = cli.err("validate", "--registry", tmp_path).splitlines()
    places = [line.rpartition("own.yaml:")[2].partition(" ")[0] for line in said]
    assert places == ["4:10:", "6:36:", "6:62:"]
    assert "unknown definition 'vqaa' of ml_tasks (did you mean 'vqa'?)" in said[0]


@pytest.mark.long
def test_a_published_score_of_another_datasets_run_task_is_refused(
    tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "datasets/own.yaml"
    path.parent.mkdir()
    model = "Qwen/Qwen2.5-VL-3B-Instruct"
    score = f"{{model: {model}, value: 1, metric: %s, source: s, run_task: %s}}"
    for name, metric, run_task, said in (
        ("own", "anls", "chartqa", "run task 'chartqa' is one of dataset 'chartqa', not 'own'"),
        ("own", "anls", "chartqaa", "unknown definition 'chartqaa' of run_tasks"),
        ("chartqa", "anls", "chartqa", "run task 'chartqa' does not have metric 'anls'"),
    ):
        path.write_text(f"name: {name}\nsource: .\npublished:\n  - {score % (metric, run_task)}\n")
        more = ("--registry", str(tmp_path))
        for words in (("validate", *more), ("reproduce", name, "--model", model, *more)):
            lines = [one for one in cli.err(*list(words)).splitlines() if "own.yaml:4:" in one]
            assert len(lines) == 1 and said in lines[0], lines
