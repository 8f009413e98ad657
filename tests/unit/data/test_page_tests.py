"""Benchmarks of tests instead of texts, in their publishers' layouts: a page or a document is a sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.data.page_tests import PageTests
from hpcbench.errors import UserError
from hpcbench.metrics.publishers import ONE_PAGE
from hpcbench.plugins import DatasetSpec


def lines(path: Path, *rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def opened(folder: Path, **fields: Any) -> PageTests:
    return PageTests(DatasetSpec(folder=folder, **fields))


@pytest.fixture
def olmocr(tmp_path: Path) -> Path:
    """Two pages in the layout of allenai/olmOCR-bench (olmocr/bench/README.md, benchmark.py at 0.4.27)."""
    data = tmp_path / "bench_data"
    (data / "pdfs/math").mkdir(parents=True)
    for name in ("a", "b"):
        (data / f"pdfs/math/{name}.pdf").write_bytes(ONE_PAGE)
    lines(
        data / "arxiv_math.jsonl",
        {"pdf": "math/a.pdf", "page": 1, "id": "1", "type": "math", "math": "x"},
        {"pdf": "math/b.pdf", "page": 1, "id": "2", "type": "math", "math": "y"},
    )
    lines(
        data / "tables.jsonl",
        {"pdf": "math/a.pdf", "page": 1, "id": "3", "type": "table", "cell": "1"},
    )
    return tmp_path


def test_the_tests_of_all_files_about_a_page_are_one_sample(olmocr: Path) -> None:
    dataset = opened(olmocr, annotations="bench_data/*.jsonl")
    one, other = dataset.iter(0, dataset.count())
    assert (one.id, one.document, one.metadata) == (
        "math/a.pdf#1", "math/a.pdf", {"part": "arxiv_math+tables"},
    )  # fmt: skip
    assert [getattr(image, "name", image) for image in one.images] == [
        "bench_data/pdfs/math/a.pdf#page=1"
    ]
    files = json.loads(one.references[0])
    assert {file: [row["id"] for row in rows] for file, rows in files.items()} == {
        "arxiv_math.jsonl": ["1"], "tables.jsonl": ["3"],
    }  # fmt: skip
    assert other.id == "math/b.pdf#1"


def test_a_document_of_parse_bench_is_one_sample_with_its_expected_tables(tmp_path: Path) -> None:
    """The layout of llamaindex/ParseBench as parse-bench 1.0.4 reads it (`test_cases/loader.py`)."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.pdf").write_bytes(ONE_PAGE)
    row = {"pdf": "docs/a.pdf", "category": "table", "type": "expected_markdown", "rule": "{}"}
    lines(tmp_path / "table.jsonl", {**row, "page": 1, "id": "1"}, {**row, "page": 2, "id": "2"})
    (tmp_path / "expected_markdown.json").write_text('{"docs/a.pdf": "<table></table>"}')
    dataset = opened(tmp_path, annotations="table.jsonl", options={"unit": "document"})
    (sample,) = dataset.iter(0, dataset.count())
    assert sample.id == "docs/a.pdf"
    rows = json.loads(sample.references[0])["table.jsonl"]
    assert [one.get("expected_markdown") for one in rows] == ["<table></table>", None]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"page": 1}, "'pdf' is missing; it has to be the name of a file"),
        ({"pdf": "a.pdf", "page": "1"}, "'page' is '1'; it has to be a number"),
        ({"question": "of another version"}, "'pdf' is missing"),
    ],
)
def test_lines_of_another_version_are_named_by_file_and_line(
    olmocr: Path, row: dict[str, Any], said: str
) -> None:
    lines(olmocr / "bench_data/wrong.jsonl", row)
    with pytest.raises(UserError) as raised:
        opened(olmocr, annotations="bench_data/*.jsonl").count()
    assert said in str(raised.value)
    assert "wrong.jsonl:1" in str(raised.value)
