"""Tables in tokens, as PubTabNet and FinTabNet keep them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.data.datasets import open_dataset
from hpcbench.data.table_tokens import html_of
from hpcbench.errors import UserError
from hpcbench.schema.dataset import Dataset

STRUCTURE = ["<thead>", "<tr>", "<td", ' rowspan="2"', ">", "</td>", "</tr>", "</thead>"]


def test_cells_go_into_the_structure_and_single_characters_are_escaped() -> None:
    cells = [{"tokens": ["a", "<", "<sup>", "2", "</sup>"]}]
    expected = '<table><thead><tr><td rowspan="2">a&lt;<sup>2</sup></td></tr></thead></table>'
    assert html_of(STRUCTURE, cells) == expected
    assert html_of(STRUCTURE, [cells]) == expected


def test_the_publishers_lines_are_read_and_a_line_of_two_tables_is_named(tmp_path: Path) -> None:
    rows = [
        {"filename": "val/1.png", "split": "val", "imgid": 1,
         "html": {"structure": {"tokens": STRUCTURE}, "cells": cells}}
        for cells in ([{"tokens": ["x"]}], [{"tokens": []}, {"tokens": []}])
    ]  # fmt: skip
    rows[1]["filename"] = "val/2.png"
    (tmp_path / "val").mkdir()
    for row in rows:
        (tmp_path / str(row["filename"])).write_bytes(b"")
    file = tmp_path / "PubTabNet_2.0.0.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"name": "tables", "source": str(tmp_path), "iterator": "table_tokens",
             "annotations": file.name, "split": "val"}  # fmt: skip
    iterator = open_dataset(Dataset.model_validate({**given, "on_bad": "skip"}))
    (sample,) = iterator.iter(0, iterator.count())
    assert sample.id == "val/1.png"
    assert sample.references == (html_of(STRUCTURE, [{"tokens": ["x"]}]),)
    with pytest.raises(UserError) as refused:
        open_dataset(Dataset.model_validate(given)).count()
    assert "jsonl:2: the table's structure has 1 cells, and its contents 2" in str(refused.value)
