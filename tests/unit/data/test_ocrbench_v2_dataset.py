"""OCRBench v2's JSON as its publisher ships it: each reference says by which rule it is scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench import plugins
from hpcbench.data.datasets import bad_rows
from hpcbench.data.detect import known_layout
from hpcbench.data.ocrbench import _CATEGORIES
from hpcbench.errors import UserError
from hpcbench.metrics import ocrbench_v2
from hpcbench.plugins import DatasetIterator, DatasetSpec
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.records import Sample


def row(kind: str, answers: Any = ("x",), **more: Any) -> dict[str, Any]:
    return {
        "dataset_name": "made", "id": 0, "type": kind, "image_path": "EN_part/1.jpg", "question": "?",
        "answers": list(answers) if isinstance(answers, tuple) else answers, **more,
    }  # fmt: skip


def opened(folder: Path, rows: list[dict[str, Any]], **more: Any) -> DatasetIterator:
    (folder / "OCRBench_v2.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    spec = DatasetSpec(folder, **{"annotations": "", **more})
    made: DatasetIterator = plugins.load("datasets", "ocrbench_v2")(spec)
    return made


def read(folder: Path, *rows: dict[str, Any]) -> list[Sample]:
    iterator = opened(folder, list(rows))
    return list(iterator.iter(0, iterator.count()))


def test_a_reference_says_how_it_is_scored(tmp_path: Path) -> None:
    box = [10, 20, 30, 40]
    samples = read(
        tmp_path,
        row("cognition VQA en", ("12", "twelve")),
        row("reasoning VQA en", ("B",), eval="multiple choice"),
        row("APP agent en", ("Ok",), eval="case sensitive"),
        row("cognition VQA cn"),
        row("text counting en", ("3",), eval="exact match"),
        row("text counting en", (3,), eval="regression"),
        row("formula recognition en"),
        row("formula recognition cn"),
        row("full-page OCR cn"),
        row("handwritten answer extraction cn", ("AB",)),
        row("handwritten answer extraction cn", question="简答题"),
        row("table parsing en", question="As HTML, not Markdown"),
        row("table parsing en", question="in Markdown"),
        row("table parsing cn"),
        row("document parsing en"),
        row("text grounding en", ("1", 2, 3, 4)),
        row("VQA with position en", ("a", "b"), bbox=box),
        row("text spotting en", None, bbox=[[1, 2, 3, 4]], content=["w"]),
        row("chart parsing en", ({"a": 1},)),
        row("key information extraction en", ({"a": ["1", "2"]},)),
        row("key information extraction cn", ("{'a': 'б'}",)),
    )
    found = [
        [{k: v for k, v in one.items() if k != "answer"} for one in s.references] for s in samples
    ]
    kinds = [one[0]["kind"] for one in found]
    assert kinds == [
        "plain", "choice", "case", "cn", "count", "count_near", "formula", "formula_cn", "transcript",
        "spelled", "transcript", "table", "table_markdown", "table", "document", "grounding",
        "position", "spotting", "chart", "fields", "fields",
    ]  # fmt: skip
    assert [one["answer"] for one in samples[0].references] == ["12", "twelve"]
    assert samples[15].references == (
        {"answer": "[1, 2, 3, 4]", "kind": "grounding", "box": [1, 2, 3, 4]},
    )
    assert samples[16].references == tuple(
        {"answer": one, "kind": "position", "box": box} for one in "ab"
    )
    assert samples[17].references == ({"answer": ["w"], "kind": "spotting", "box": [[1, 2, 3, 4]]},)
    assert samples[20].references == ({"answer": {"a": "б"}, "kind": "fields"},)


def test_every_reference_is_one_that_the_metric_takes(tmp_path: Path) -> None:
    answers = {
        "chart parsing en": ({"a": 1},), "key information extraction cn": ("{'a': '1'}",),
        "key information extraction en": ({"a": ["1"]},), "text grounding en": (1, 2, 3, 4),
        "key information mapping en": ('{"a": "1"}',), "text counting en": ("3",),
    }  # fmt: skip
    more: dict[str, dict[str, Any]] = {
        "text spotting en": {"bbox": [[1, 2, 3, 4]], "content": ["w"]},
        "VQA with position en": {"bbox": [1, 2, 3, 4]}, "text counting en": {"eval": "regression"},
    }  # fmt: skip
    rows = [row(kind, answers.get(kind, ("x",)), **more.get(kind, {})) for kind in _CATEGORIES]
    for sample in read(tmp_path, *rows):
        assert 0 <= ocrbench_v2("[1, 2, 3, 4]", sample.references) <= 1
        ocrbench_v2("{'a': 1}", sample.references, compat="ocrbench-v2")


def test_languages_and_categories_are_there_to_group_by(tmp_path: Path) -> None:
    english, chinese = read(
        tmp_path, row("VQA with position en", bbox=[1, 2, 3, 4]), row("text translation cn")
    )
    assert (english.metadata["language"], english.metadata["category"]) == ("en", "text_detection")
    assert chinese.metadata == {
        "dataset": "made", "question_type": "text translation cn", "eval": None,
        "category": "knowledge_reasoning", "language": "cn",
    }  # fmt: skip
    of = {kind: [] for kind in ("en", "cn")}  # type: dict[str, list[str]]
    for kind, category in _CATEGORIES.items():
        of[kind[-2:]].append(category)
    assert (len(of["en"]), len(set(of["en"]))) == (21, 8)
    assert (len(of["cn"]), len(set(of["cn"]))) == (9, 5)


@pytest.mark.parametrize(
    ("bad", "reported"),
    [
        (row("poetry en"), "OCRBench v2 has no type 'poetry en'"),
        (row("math QA en", eval="by eye"), "type 'math QA en' cannot be scored by eval 'by eye'"),
        (row("math QA en", eval="regression"), "cannot be scored by"),
        (row("text counting en"), "cannot be scored by eval None"),
        (row("math QA en", ()), "'answers' is empty"),
        (row("text translation cn", ("",)), "'answers' is empty"),
        (row("math QA en", ("", " ")), "'answers' is empty"),
        (row(["math QA en"]), "OCRBench v2 has no type"),  # type: ignore[arg-type]
        (row("text grounding en", (1, 2, 3, 10**400)), "'answers' must be a box of four numbers"),
        (row("text grounding en", (1, 2, 3)), "'answers' must be a box of four numbers"),
        (row("VQA with position en"), "'bbox' must be a box of four numbers"),
        (
            row("text spotting en", bbox=[[1, 2, 3, 4]], content=[]),
            "must be lists of the same length",
        ),
        (row("chart parsing en", ("prose",)), "the answer must be an object"),
        (row("table parsing en", question=None), "'question' must be text"),
        (row("math QA en", image_path=None), "key 'image_path' is missing"),
    ],
)
def test_a_row_that_cannot_be_scored_is_reported_with_its_place(
    tmp_path: Path, bad: dict[str, Any], reported: str
) -> None:
    rows = [row("math QA en"), bad]
    with pytest.raises(UserError, match=reported) as refusal:
        opened(tmp_path, rows).count()
    assert refusal.value.problems[0].line == 2
    skipping = opened(tmp_path, rows, on_bad="skip")
    assert skipping.count() == 1
    assert len(bad_rows(skipping)) == 1


def test_parquet_of_the_same_columns(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    rows: list[dict[str, Any]] = [
        {"type": "text spotting en", "answers": [], "bbox": None, "bbox_list": [[1, 2, 3, 4]],
         "content": ["w"], "eval": "None"},
        {"type": "key information extraction en", "answers": ['{"a": ["1"]}'], "bbox": None,
         "bbox_list": None, "content": None, "eval": "None"},
        {"type": "math QA en", "answers": ["7"], "bbox": None, "bbox_list": None, "content": None,
         "eval": "None"},
    ]  # fmt: skip
    table = polars.DataFrame(
        [{**one, "dataset_name": "made", "question": "?", "image": b"x"} for one in rows]
    )
    table.write_parquet(tmp_path / "test.parquet")
    mapping = FieldMap(
        id="#", images="image", references="answers", document=None, split=None,
        fields={"question": "question"}, metadata={"dataset": "dataset_name"},
    )  # fmt: skip
    iterator = opened(tmp_path, [], annotations="test.parquet", mapping=mapping)
    spotting, fields, plain = iterator.iter(0, iterator.count())
    assert spotting.references == ({"answer": ["w"], "kind": "spotting", "box": [[1, 2, 3, 4]]},)
    assert fields.references == ({"answer": {"a": ["1"]}, "kind": "fields"},)
    assert plain.references == ({"answer": "7", "kind": "plain"},)


def test_the_folder_is_known_by_its_file(tmp_path: Path) -> None:
    opened(tmp_path, [row("math QA en")])
    found = known_layout(tmp_path)
    assert found is not None and found.iterator == "ocrbench_v2"
