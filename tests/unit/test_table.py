"""The table dataset: any table as it lies, through a mapping; mistakes at their line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pytest

from hpcbench.data.cache import Cache
from hpcbench.data.table import TableDataset
from hpcbench.errors import UserError
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.documents import Dataset, Site
from hpcbench.schema.records import FieldMap

MAPPING = FieldMap(
    id="questionId", images="image", references="answers", document="docId", split="data_split",
    fields={"question": "question", "lang": "meta.language"}, metadata={"kind": "meta.kind"},
)  # fmt: skip


def records(count: int = 4) -> list[dict[str, Any]]:
    return [
        {
            "questionId": number, "image": f"{number}.png", "answers": [str(number), "x"],
            "docId": number // 2, "data_split": "val" if number % 2 else "train",
            "question": f"№ {number}?", "meta": {"language": "ru", "kind": "form"}, "else": 1,
        }
        for number in range(count)
    ]  # fmt: skip


def opened(folder: Path, name: str, split: str | None = None, **options: Any) -> TableDataset:
    mapping = options.pop("mapping", MAPPING)
    return TableDataset(DatasetSpec(folder, name, split, mapping, options))


def as_csv(folder: Path) -> str:
    head = "questionId;image;answers;docId;data_split;question;meta\n"
    rows = [
        f"{one['questionId']};{one['image']};{one['answers'][0]};{one['docId']};{one['data_split']};"
        f'"{one["question"]}";"{{""language"": ""ru"", ""kind"": ""form""}}"\n'
        for one in records()
    ]
    (folder / "a.csv").write_text(head + "".join(rows), encoding="utf-8-sig")
    return "a.csv"


def as_jsonl(folder: Path) -> str:
    (folder / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records()))
    return "a.jsonl"


def as_json(folder: Path) -> str:
    (folder / "a.json").write_text(json.dumps({"data": {"rows": records()}}))
    return "a.json"


def as_parquet(folder: Path) -> str:
    for part in (0, 1):
        rows = records()[2 * part : 2 * part + 2]
        for row in rows:
            row["image"] = {"bytes": b"\x89PNG" + bytes([row["questionId"]]), "path": row["image"]}
        polars.DataFrame(rows).write_parquet(folder / f"val-0000{part}.parquet")
    return "val-*.parquet"


@pytest.mark.parametrize(
    ("write", "options"),
    [
        (as_csv, {"delimiter": ";"}),
        (as_jsonl, {}),
        (as_json, {"records": "data.rows"}),
        (as_parquet, {}),
    ],
)
def test_every_form_of_table_gives_the_same_samples(
    tmp_path: Path, write: Any, options: dict[str, str]
) -> None:
    name = write(tmp_path)
    table = opened(tmp_path, name, **options)
    assert table.count() == 4
    samples = list(table.iter(0, 4))
    assert [sample.id for sample in samples] == ["0", "1", "2", "3"]
    assert [sample.document for sample in samples] == ["0", "0", "1", "1"]
    assert samples[3].references[0] == "3"
    assert samples[3].fields == {"question": "№ 3?", "lang": "ru"}
    assert samples[3].metadata == {"kind": "form"}
    assert list(table.iter(1, 3)) == samples[1:3]
    only = opened(tmp_path, name, "val", **options)
    assert [sample.id for sample in only.iter(0, only.count())] == ["1", "3"]
    expected = b"\x89PNG\x03" if write is as_parquet else tmp_path / "3.png"
    assert samples[3].images == (expected,)


def test_where_keeps_records_of_a_value(tmp_path: Path) -> None:
    name = as_csv(tmp_path)
    table = opened(tmp_path, name, delimiter=";", where={"docId": "1", "data_split": "val"})
    assert [sample.id for sample in table.iter(0, 9)] == ["3"]


def test_records_without_an_id_are_named_by_their_number(tmp_path: Path) -> None:
    as_jsonl(tmp_path)
    mapping = FieldMap(id="#", images="image", references="answers", document=None, split=None)
    samples = list(opened(tmp_path, "a.jsonl", mapping=mapping).iter(0, 2))
    assert [(sample.id, sample.document) for sample in samples] == [("1", "0.png"), ("2", "1.png")]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "a.csv",
            "questionId,image,answers\n1,a.png\n",
            "a.csv:2: 3 columns are named, this row has others",
        ),
        ("a.csv", "questionId,image\n1,a.png\n", "a.csv:2: key 'answers' is missing"),
        ("a.json", "[1]", "a.json: record 1 is not a JSON object"),
        ("a.json", "{}", "a.json:1:1: not a list of records (see the option `records`)"),
        ("a.json", '[{"a": 1},\n', "a.json:2:1: not JSON: "),
        ("a.xlsx", "x", "a.xlsx: annotations end in one of .jsonl, .json, .csv, .tsv, .parquet"),
        (
            "a.jsonl",
            '{"questionId": 1, "image": "a", "answers": []}\n',
            "a.jsonl:1: 'answers' is empty",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        opened(tmp_path, name).count()
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(told)


def test_a_column_that_parquet_lacks_is_told_with_those_there_are(tmp_path: Path) -> None:
    polars.DataFrame([{"picture": "a", "answers": "b"}]).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"no column 'image' \(there are: picture, answers\)"):
        opened(tmp_path, "a.parquet").count()


def test_a_missing_file_and_missing_annotations_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        opened(tmp_path, "none.jsonl").count()
    with pytest.raises(UserError, match="needs 'annotations'"):
        opened(tmp_path, "")


# --- datasets that lie elsewhere ------------------------------------------------------------------------


def test_a_dataset_of_a_storage_is_fetched_once(tmp_path: Path) -> None:
    source = tmp_path / "far away"
    source.mkdir()
    as_jsonl(source)
    dataset = Dataset(
        name="d", source=f"file://{str(source).replace(' ', '%20')}", annotations="a.jsonl"
    )
    told: list[str] = []
    cache = Cache(tmp_path / "cache", Site(name="s"), lambda moved: told.append(moved.what))
    with pytest.raises(UserError, match="is not here yet"):
        cache.local(dataset, fetch=False)
    here = cache.local(dataset)
    assert cache.local(dataset) == cache.local(dataset, fetch=False) == here
    assert (Path(here.source) / "a.jsonl").read_bytes() == (source / "a.jsonl").read_bytes()
    assert {"fetching"} == {what for what in told if not what.startswith("listing")}
    with pytest.raises(UserError, match="no such folder"):
        cache.local(dataset.model_copy(update={"source": f"file://{tmp_path}/nothing"}))


def test_a_dataset_of_the_hub_is_found_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    dataset = Dataset(name="d", source="hf://datasets/org/name", annotations="a.jsonl")
    with pytest.raises(
        UserError,
        match=r"not on this machine, and cannot list .* \(`hf download org/name --repo-type dataset`",
    ):
        Cache(tmp_path, Site(name="s")).local(dataset)
    snapshot = tmp_path / "hub/datasets--org--name/snapshots/abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "hub/datasets--org--name/refs").mkdir()
    (tmp_path / "hub/datasets--org--name/refs/main").write_text("abc")
    assert Cache(tmp_path, Site(name="s")).local(dataset).source == str(snapshot)
    (tmp_path / "models/datasets/org/name").mkdir(parents=True)
    site = Site(name="s", models=(str(tmp_path / "models"),))
    found = Cache(tmp_path, site).local(dataset)
    assert found.source == str(tmp_path / "models/datasets/org/name")
