"""Rows that hold several questions, images in several columns or as text: what benchmarks do."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.data.datasets import bad_rows
from hpcbench.data.table import TableDataset
from hpcbench.data.vlmevalkit import VlmEvalKit
from hpcbench.errors import UserError
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.field_map import FieldMap

MAPPING = FieldMap(
    id="#", images="image", references="pairs.a", document=None, split=None,
    fields={"question": "pairs.q"}, metadata={},
)  # fmt: skip


def opened(
    folder: Path,
    rows: list[dict[str, Any]],
    mapping: FieldMap = MAPPING,
    on_bad: str = "fail",
    **options: Any,
) -> TableDataset:
    (folder / "p.png").write_bytes(b"x")
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    spec = DatasetSpec(folder, "a.jsonl", mapping=mapping, options=options, on_bad=on_bad)  # type: ignore[arg-type]
    return TableDataset(spec)


def test_each_entry_of_a_list_is_a_sample(tmp_path: Path) -> None:
    rows = [
        {"image": "p.png", "pairs": [{"q": "1?", "a": "1"}, {"q": "2?", "a": "2"}]},
        {"image": "p.png", "pairs": "[{'q': '3?', 'a': '3'}]"},
        {"image": "p.png", "pairs": '[{"q": "4?", "a": "4"}]'},
    ]
    dataset = opened(tmp_path, rows, each=["pairs"])
    assert [one.references for one in dataset.iter(0, 9)] == [("1",), ("2",), ("3",), ("4",)]
    assert [one.fields["question"] for one in dataset.at([1, 3])] == ["2?", "4?"]
    assert [dataset.place(index)[1] for index in range(4)] == [1, 1, 2, 3]
    assert len({one.id for one in dataset.iter(0, 9)}) == 4


@pytest.mark.parametrize("pairs", ["no list", [], None, 5, "[1"])
def test_a_row_without_such_a_list_is_named_at_its_line(tmp_path: Path, pairs: Any) -> None:
    rows = [
        {"image": "p.png", "pairs": [{"q": "1?", "a": "1"}]},
        {"image": "p.png", "pairs": pairs},
    ]
    with pytest.raises(UserError, match=r"a\.jsonl:2: 'pairs': no lists of equal length"):
        opened(tmp_path, rows, each=["pairs"]).count()
    skipped = opened(tmp_path, rows, each=["pairs"], on_bad="skip")
    assert (skipped.count(), len(bad_rows(skipped))) == (1, 1)


def test_lists_of_unequal_length_are_named(tmp_path: Path) -> None:
    mapping = MAPPING.model_copy(update={"references": "a", "fields": {"question": "q"}})
    rows = [{"image": "p.png", "q": ["1?", "2?"], "a": ["1"]}]
    with pytest.raises(UserError, match="'q', 'a': no lists of equal length"):
        opened(tmp_path, rows, mapping, each=["q", "a"]).count()


def test_letters_are_made_of_numbers_alone(tmp_path: Path) -> None:
    mapping = MAPPING.model_copy(update={"references": "a", "fields": {}})
    rows = [{"image": "p.png", "a": one} for one in (0, "3", "B", "26", [1, 2])]
    dataset = opened(tmp_path, rows, mapping, as_letters=True)
    found = [one.references for one in dataset.iter(0, 9)]
    assert found == [("A",), ("D",), ("B",), ("26",), ("B", "C")]


def test_text_that_is_no_base64_is_no_image(tmp_path: Path) -> None:
    mapping = MAPPING.model_copy(update={"references": "a", "fields": {}})
    whole = base64.b64encode(b"bytes").decode()
    rows = [{"image": one, "a": "1"} for one in (whole, f"data:image/png;base64,{whole}", "p.png")]
    dataset = opened(tmp_path, rows, mapping, base64=True)
    assert [one.images[0] for one in dataset.iter(0, 9)] == [b"bytes", b"bytes", b"not base64"]


def test_a_tsv_file_of_vlmevalkit_shares_images_by_index(tmp_path: Path) -> None:
    image = base64.b64encode(b"an image that is longer than an index can be, " * 2).decode()
    table = f"index\timage\tquestion\tanswer\n1\t{image}\tA?\tx\n2\t1\tB?\t\"['y', 'z']\"\n"
    (tmp_path / "T.tsv").write_text(table, encoding="utf-8")
    dataset = VlmEvalKit(DatasetSpec(tmp_path, "T.tsv"))
    one, two = dataset.iter(0, 2)
    assert one.images == two.images
    assert (one.id, two.id, two.references) == ("1", "2", ("y", "z"))
