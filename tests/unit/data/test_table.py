"""The table dataset: any table as it lies, through a mapping; mistakes at their line."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest

from hpcbench.data import annotations as rows_of_files
from hpcbench.data import table as table_reader
from hpcbench.data.copies import Cache
from hpcbench.data.datasets import bad_rows, samples
from hpcbench.data.table import TableDataset
from hpcbench.data.tree import content_hash
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import DatasetSpec, check_options
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.site import Site

MAPPING = FieldMap(
    id="questionId", images="image", references="answers", document="docId", split="data_split",
    fields={"question": "question", "lang": "meta.language"}, metadata={"kind": "meta.kind"},
)  # fmt: skip
PLAIN = FieldMap(id="#", images="image", references="answer", document=None, split=None, fields={})
"""A page and an answer in each row, and nothing else."""


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
    ("name", "text", "reported"),
    [
        ("a.csv", "questionId,image,answers\n1,a.png\n",
         "a.csv:2: the header has 3 columns, this row has 2 ("),
        ("a.csv", "questionId,image\n1,a.png\n", "a.csv:2: key 'answers' is missing"),
        ("a.json", "[1]", "a.json:1: not a JSON object"),
        ("a.json", "{}", "a.json:1:1: not a list of records (set the option `records`)"),
        ("a.json", '[{"a": 1},\n', "a.json:2:1: not JSON: "),
        ("a.ods", "x",
         "a.ods: annotations must end in one of .jsonl, .json, .csv, .tsv, .xlsx, .parquet"),
        ("a.jsonl", '{"questionId": 1, "image": "a", "answers": []}\n',
         "a.jsonl:1: 'answers' is empty"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_at_its_line(
    tmp_path: Path, name: str, text: str, reported: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        opened(tmp_path, name).count()
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(reported)


def test_a_column_that_parquet_lacks_is_reported_with_those_there_are(tmp_path: Path) -> None:
    polars.DataFrame([{"picture": "a", "answers": "b"}]).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        UserError, match=r"no column 'image', 'questionId' \(there are: picture, answers\)"
    ):
        opened(tmp_path, "a.parquet").count()


def test_a_missing_file_and_missing_annotations_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        opened(tmp_path, "none.jsonl").count()
    with pytest.raises(UserError, match="needs 'annotations'"):
        opened(tmp_path, "")


# --- with images and without ----------------------------------------------------------------------------

PATHS = [f"p{number // 2}.png" for number in range(6)]
EMBEDDED = [{"bytes": b"png%d" % number, "path": path} for number, path in enumerate(PATHS)]
BY_PATH = [{"bytes": None, "path": path} for path in PATHS]
MIXED = [EMBEDDED[0], *BY_PATH[1:4], *EMBEDDED[4:]]
IMAGE = polars.Struct({"bytes": polars.Binary, "path": polars.String})
OWN_ROW = [str(number + 1) for number in range(6)]
SHAPES: dict[str, tuple[list[Any], Any, list[str]]] = {
    "paths": (PATHS, polars.String, PATHS),
    "lists of paths": ([[path, "other.png"] for path in PATHS], polars.List(polars.String), PATHS),
    "bytes": ([b"png"] * 6, polars.Binary, OWN_ROW),
    "images": (EMBEDDED, IMAGE, OWN_ROW),
    "images by path": (BY_PATH, IMAGE, PATHS),
    "some of them by path": (MIXED, IMAGE, ["1", *PATHS[1:4], "5", "6"]),
    "lists of images": ([[one, one] for one in EMBEDDED], polars.List(IMAGE), OWN_ROW),
    "lists by path": ([[one] for one in MIXED], polars.List(IMAGE), ["1", *PATHS[1:4], "5", "6"]),
}


def in_parquet(folder: Path, rows: list[dict[str, Any]], kinds: dict[str, Any]) -> str:
    polars.DataFrame(rows, schema=kinds).write_parquet(folder / "a.parquet", row_group_size=4)
    return "a.parquet"


def in_arrow(folder: Path, rows: list[dict[str, Any]], kinds: dict[str, Any]) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    table = polars.DataFrame(rows, schema=kinds).to_arrow(compat_level=polars.CompatLevel.oldest())
    with (
        pyarrow.OSFile(str(folder / "a.arrow"), "wb") as file,
        pyarrow.ipc.new_stream(file, table.schema) as stream,
    ):
        stream.write_table(table, max_chunksize=4)
    return "a.arrow"


def in_jsonl(folder: Path, rows: list[dict[str, Any]], kinds: dict[str, Any]) -> str:
    (folder / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return "a.jsonl"


def in_json(folder: Path, rows: list[dict[str, Any]], kinds: dict[str, Any]) -> str:
    (folder / "a.json").write_text(json.dumps(rows))
    return "a.json"


def in_csv(folder: Path, rows: list[dict[str, Any]], kinds: dict[str, Any]) -> str:
    lines = [",".join(json.dumps(value).replace('"', "") for value in row.values()) for row in rows]
    (folder / "a.csv").write_text("\n".join([",".join(rows[0]), *lines]))
    return "a.csv"


FORMS = [
    (form, shape)
    for form in (in_parquet, in_arrow, in_jsonl, in_json, in_csv)
    for shape in SHAPES
    if form in (in_parquet, in_arrow) or shape == "paths" or (shape == "lists of paths" and form != in_csv)
]  # fmt: skip


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("write", "shape"), FORMS)
def test_a_sample_without_images_is_the_same_but_for_them(
    tmp_path: Path, write: Any, shape: str, nested: bool
) -> None:
    """Document above all: intervals cluster by it, and evaluation reads without images."""
    if nested and write is in_csv:
        pytest.skip("CSV has no objects")
    values, kind, documents = SHAPES[shape]
    rows = [
        {"image": value, "answer": f"a{number}", "question": f"q{number}"}
        for number, value in enumerate(values)
    ]
    kinds = {"image": kind, "answer": polars.String, "question": polars.String}
    if nested:
        rows, kinds = [{"row": row} for row in rows], {"row": polars.Struct(kinds)}
    before = "row." if nested else ""
    mapping = FieldMap(
        id="#", images=f"{before}image", references=f"{before}answer", document=None, split=None,
        fields={"question": f"{before}question"}, metadata={},
    )  # fmt: skip
    table = opened(tmp_path, write(tmp_path, rows, kinds), mapping=mapping)
    whole, light = list(table.iter(0, 6)), list(table.iter(0, 6, images=False))
    assert [one.document for one in whole] == documents
    assert all(one.images for one in whole)
    assert [replace(one, images=()) for one in light] == [replace(one, images=()) for one in whole]
    scattered = [(1, 2), (4, 6)]
    assert list(samples(table, scattered, 0, 3)) == [whole[1], *whole[4:]]
    assert list(samples(table, scattered, 1, 3, images=False)) == light[4:]


def test_rows_that_lie_apart_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"image": polars.Binary, "answers": polars.String}
    name = in_parquet(tmp_path, [{"image": b"x", "answers": "y"}] * 600, kinds)
    mapping = FieldMap(
        id="#", images="image", references="answers", document=None, split=None, fields={}
    )
    table = opened(tmp_path, name, mapping=mapping)
    table.count()
    read: list[Any] = []
    collected = rows_of_files.ParquetRows._collected
    monkeypatch.setattr(
        rows_of_files.ParquetRows, "_collected", lambda rows, plan: read.append(1) or collected(rows, plan)
    )  # fmt: skip
    scattered = [(place, place + 1) for place in range(0, 600, 7)]
    assert [one.id for one in samples(table, scattered, 0, 99)] == [
        str(place + 1) for place in range(0, 600, 7)
    ]
    assert len(read) < 6


def test_blocks_of_heavy_rows_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_of_files, "BLOCK_BYTES", 100_000)
    rows = [{"image": os.urandom(20_000), "answers": "y"} for _ in range(20)]
    name = in_parquet(tmp_path, rows, {"image": polars.Binary, "answers": polars.String})
    assert 1 <= rows_of_files.ParquetRows([tmp_path / name])._block <= 5


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_images_inside_a_big_table_are_not_read_to_open_it(tmp_path: Path) -> None:
    values = [{"bytes": os.urandom(20_000), "path": f"{number}.png"} for number in range(400)]
    rows = [{"image": value, "answer": "x"} for value in values]
    name = in_parquet(tmp_path, rows, {"image": IMAGE, "answer": polars.String})

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    table, before = opened(tmp_path, name, mapping=PLAIN), read()
    assert sum(1 for _ in table.iter(0, table.count(), images=False)) == 400
    assert read() - before < 4_000_000 < (tmp_path / name).stat().st_size


# --- images that are not there --------------------------------------------------------------------------


@pytest.mark.parametrize("write", [in_parquet, in_arrow])
@pytest.mark.parametrize(
    ("shape", "empty"),
    [
        ("paths", None), ("paths", ""), ("bytes", None), ("images", None),
        ("images", {"bytes": None, "path": None}), ("lists of paths", []), ("lists of images", []),
        ("lists of images", None), ("lists of paths", ["a.png", None]),
        ("lists of images", [{"bytes": b"x", "path": None}, {"bytes": None, "path": None}]),
    ],
)  # fmt: skip
def test_a_row_of_a_big_table_without_an_image_is_bad(
    tmp_path: Path, write: Any, shape: str, empty: Any
) -> None:
    values, kind, _ = SHAPES[shape]
    rows = [{"image": value, "answer": "x"} for value in [*values[:2], empty, *values[2:]]]
    name = write(tmp_path, rows, {"image": kind, "answer": polars.String})
    spec = DatasetSpec(tmp_path, name, None, PLAIN, {}, on_bad="skip")
    assert [one.line for one in bad_rows(TableDataset(spec))] == [3]
    with pytest.raises(UserError, match=":3: .*image' (is|has)"):
        TableDataset(replace(spec, on_bad="fail")).count()


@pytest.mark.parametrize("empty", ["[]", '""', "null", "[null]", '[""]'])
def test_a_record_without_an_image_is_bad(tmp_path: Path, empty: str) -> None:
    (tmp_path / "a.json").write_text(f'[{{"id": 1, "images": {empty}, "references": ["x"]}}]')
    with pytest.raises(UserError, match="a.json:1: .*'images' (is|has)"):
        opened(tmp_path, "a.json", mapping=FieldMap()).count()


@pytest.mark.parametrize("nothing", ['[""]', '[" "]', "[null]", "[[]]", "{}"])
def test_a_record_with_nothing_to_score_is_bad(tmp_path: Path, nothing: str) -> None:
    for name, (start, end) in {"a.json": ("[", "]"), "a.jsonl": ("", "")}.items():
        record = f'{{"id": "1", "images": ["a.png"], "references": {nothing}}}'
        (tmp_path / name).write_text(start + record + end)
        with pytest.raises(UserError, match=r"1: 'references' (is empty|must be a list)"):
            opened(tmp_path, name, mapping=FieldMap()).count()


def test_an_empty_cell_is_no_image_and_no_document(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,images,references,document\n1,a.png,x,\n2,b.png,x,\n3,,x,\n"
    )
    spec = DatasetSpec(tmp_path, "a.csv", on_bad="skip")
    table = TableDataset(spec)
    assert [one.document for one in table.iter(0, 9)] == ["a.png", "b.png"]
    assert [str(one).partition(": ")[2] for one in bad_rows(table)] == ["'images' is empty"]


@pytest.mark.parametrize("name", ["../secret.png", "/etc/hostname", "/abs/*.png", "a/../../b.pdf"])
def test_an_image_outside_the_folder_is_a_bad_row(tmp_path: Path, name: str) -> None:
    record = {"id": "1", "images": [name], "references": ["x"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    with pytest.raises(
        UserError, match=r"a.jsonl:1: image '.*' .*lies outside the dataset's folder"
    ):
        opened(tmp_path, "a.jsonl", mapping=FieldMap()).count()


@pytest.mark.parametrize("copied", [False, True], ids=["in place", "a copy on the node's disk"])
@pytest.mark.parametrize("images", ["path", "{folder}/1.png"])
def test_an_absolute_path_into_the_folder_is_the_one_in_there(
    tmp_path: Path, images: str, copied: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    row = {"id": "1", "path": f"{data}/pages/1.png", "folder": f"{data}/pages", "answer": "x"}
    (data / "a.jsonl").write_text(json.dumps(row))
    here = data.rename(tmp_path / "near") if copied else data
    mapping = FieldMap(images=images, references="answer", document=None)
    spec = DatasetSpec(here, f"{data}/a.jsonl", mapping=mapping, origin=data if copied else None)
    (one,) = TableDataset(spec).iter(0, 1)
    assert (one.images, one.document) == ((here / "pages/1.png",), "pages/1.png")


@pytest.mark.parametrize("name", ["/etc/x.jsonl", "../a.jsonl"])
def test_annotations_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="lie outside the dataset's folder"):
        opened(tmp_path, name)


@pytest.mark.parametrize("shape", ["paths", "lists of paths", "images by path", "lists by path"])
def test_images_that_a_big_table_names_are_of_its_hash(tmp_path: Path, shape: str) -> None:
    values, kind, _ = SHAPES[shape]
    rows = [{"image": value, "answer": "x"} for value in values]
    name = in_parquet(tmp_path, rows, {"image": kind, "answer": polars.String})
    for path in {*PATHS, "other.png"}:
        (tmp_path / path).write_bytes(b"first")
    before = content_hash(tmp_path, opened(tmp_path, name, mapping=PLAIN).files())
    (tmp_path / "p1.png").write_bytes(b"second")
    assert content_hash(tmp_path, opened(tmp_path, name, mapping=PLAIN).files()) != before


def test_images_inside_a_big_table_are_hashed_with_it_alone(tmp_path: Path) -> None:
    rows = [{"image": value, "answer": "x"} for value in EMBEDDED]
    name = in_parquet(tmp_path, rows, {"image": IMAGE, "answer": polars.String})
    assert opened(tmp_path, name, mapping=PLAIN).files() == [tmp_path / name]


def test_page_10_comes_after_page_2(tmp_path: Path) -> None:
    for number in range(1, 12):
        (tmp_path / f"7-{number}.png").touch()
    record = {"id": "1", "images": ["7-*.png"], "references": ["x"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    (one,) = opened(tmp_path, "a.jsonl", mapping=FieldMap()).iter(0, 1)
    assert list(one.images) == [tmp_path / f"7-{number}.png" for number in range(1, 12)]


def test_a_list_in_a_path_is_a_page_for_each_of_it(tmp_path: Path) -> None:
    rows = [{"doc": "d", "pages": [3, 4], "text": "x"}, {"doc": "d", "pages": [], "text": "y"}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    mapping = FieldMap(
        id="#", images="{doc}/{pages}.png", references="text", document=None, split=None, fields={}
    )
    table = TableDataset(DatasetSpec(tmp_path, "a.json", None, mapping, on_bad="skip"))
    (one,) = table.iter(0, 9)
    assert one.images == (tmp_path / "d/3.png", tmp_path / "d/4.png")
    assert len(table.bad()) == 1
    (tmp_path / "a.json").write_text(json.dumps([{**rows[0], "doc": ["a", "b", "c"]}]))
    with pytest.raises(UserError, match="are of different lengths"):
        opened(tmp_path, "a.json", mapping=mapping).count()


# --- what the mapping names -----------------------------------------------------------------------------


@pytest.mark.parametrize("write", [in_parquet, in_arrow, in_jsonl, in_json, in_csv])
@pytest.mark.parametrize(
    "more",
    [
        {"fields": {"question": "quesiton"}}, {"metadata": {"kind": "knid"}}, {"document": "dco"},
        {"split": "splti"}, {"where": {"knid": 1}},
    ],
)  # fmt: skip
def test_a_column_that_no_row_has_is_reported(
    tmp_path: Path, write: Any, more: dict[str, Any]
) -> None:
    rows = [{"image": "a.png", "answer": "x", "question": "?", "kind": "k"}] * 2
    name = write(tmp_path, rows, dict.fromkeys(rows[0], polars.String))
    where = {name: more[name] for name in more if name == "where"}
    keys = {key: more[key] for key in more if key != "where"}
    mapping = PLAIN.model_copy(update=keys)
    with pytest.raises(
        UserError, match=r"no column '.*' \(there are: image, answer, question, kind\)|no sample"
    ):
        opened(tmp_path, name, mapping=mapping, **where).count()


@pytest.mark.parametrize("meta", [{"kind": {"of": "bill"}}, '{"kind": {"of": "bill"}}'])
def test_an_object_that_is_null_in_the_first_rows_does_not_hide_its_keys(
    tmp_path: Path, meta: Any
) -> None:
    more = [None] * table_reader.LOOKED_INTO + [meta]
    rows = [{"image": "a.png", "answer": "x", "meta": one} for one in more]
    polars.DataFrame(rows, infer_schema_length=None).write_parquet(tmp_path / "a.parquet")
    mapping = FieldMap(
        id="#", images="image", references="answer", document=None, split=None, fields={},
        metadata={"kind": "meta.kind.of"},
    )  # fmt: skip
    found = list(opened(tmp_path, "a.parquet", mapping=mapping).iter(0, len(rows)))
    assert found[-1].metadata == {"kind": "bill"}
    assert found[0].metadata == {"kind": None}


def test_one_object_among_nulls_tells_that_a_key_is_mistyped(tmp_path: Path) -> None:
    rows = [{"image": "a.png", "answer": "x", "meta": one} for one in (None, {"kind": None})]
    polars.DataFrame(rows, infer_schema_length=None).write_parquet(tmp_path / "a.parquet")
    for key in ("meta.kidn", "meta.kidn.of"):
        wrong = PLAIN.model_copy(update={"metadata": {"kind": key}})
        with pytest.raises(UserError, match=f"no column '{key}'"):
            opened(tmp_path, "a.parquet", mapping=wrong).count()


@pytest.mark.parametrize("write", [in_parquet, in_arrow, in_jsonl, in_csv])
def test_columns_may_have_dots_in_their_names(tmp_path: Path, write: Any) -> None:
    rows = [
        {"id": "1", "page.image": "a.png", "answer": "x", "meta.type": "bill", "in.split": "test"},
        {"id": "2", "page.image": "b.png", "answer": "y", "meta.type": "form", "in.split": "val"},
    ]
    name = write(tmp_path, rows, dict.fromkeys(rows[0], polars.String))
    mapping = FieldMap(
        images="page.image", references="answer", document=None, split="in.split", fields={},
        metadata={"type": "meta.type"},
    )  # fmt: skip
    (one,) = opened(tmp_path, name, "val", mapping=mapping).iter(0, 1, images=False)
    assert (one.id, one.metadata, one.images) == ("2", {"type": "form"}, (tmp_path / "b.png",))
    chosen = opened(tmp_path, name, mapping=mapping, where={"meta.type": "bill"})
    assert [sample.id for sample in chosen.iter(0, 1)] == ["1"]


def test_a_column_inside_another_may_be_mistyped_too(tmp_path: Path) -> None:
    rows = [{"image": "a.png", "row": {"answer": "x", "question": None}}]
    polars.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    mapping = FieldMap(
        id="#", images="image", references="row.answer", document=None, split=None,
        fields={"question": "row.question"},
    )  # fmt: skip
    assert opened(tmp_path, "a.parquet", mapping=mapping).count() == 1
    wrong = mapping.model_copy(update={"fields": {"question": "row.quesiton"}})
    with pytest.raises(UserError, match="no column 'row.quesiton'"):
        opened(tmp_path, "a.parquet", mapping=wrong).count()
    text = [{"image": "a.png", "row": '{"answer": "x"}'}]
    polars.DataFrame(text).write_parquet(tmp_path / "a.parquet")
    assert opened(tmp_path, "a.parquet", mapping=wrong).count() == 1  # another row may have it


def test_a_split_may_stand_inside_a_column_of_a_big_table(tmp_path: Path) -> None:
    rows = [
        {"image": "a.png", "answer": "x", "meta": {"split": "test" if number % 2 else "train"}}
        for number in range(5)
    ]
    polars.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    mapping = FieldMap(
        id="#", images="image", references="answer", document=None, split="meta.split", fields={}
    )
    assert opened(tmp_path, "a.parquet", "test", mapping=mapping).count() == 2


def test_where_takes_a_number_as_csv_writes_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,images,references,k,ok\n1,a.png,x,1,true\n2,a.png,x,2,false\n"
    )
    for where in ({"k": 1}, {"k": "1"}, {"ok": True}):
        assert opened(tmp_path, "a.csv", mapping=FieldMap(), where=where).count() == 1


# --- how files are written ------------------------------------------------------------------------------


def table_of(folder: Path, text: str, **options: Any) -> TableDataset:
    (folder / "a.csv").write_text(text, newline="")
    return TableDataset(DatasetSpec(folder, "a.csv", options=options, on_bad="skip"))


def test_a_cell_may_hold_what_some_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    for strange in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e":
        table = table_of(tmp_path, f"id,images,references\n1,a.png,one{strange}two\n2,b.png,x\n")
        assert [one.references for one in table.iter(0, 9)] == [(f"one{strange}two",), ("x",)]
        line = {"id": "1", "images": ["a.png"], "references": [f"one{strange}two"]}
        (tmp_path / "a.jsonl").write_text(json.dumps(line, ensure_ascii=False), encoding="utf-8")
        (one,) = opened(tmp_path, "a.jsonl", mapping=FieldMap()).iter(0, 9)
        assert one.references == (f"one{strange}two",)


def test_rows_after_one_that_is_no_csv_are_read(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, 'id,images,references\n1,a.png,x\n2,b.png,"x"y\n3,c.png,x\n4,d.png,x\n'
    )
    assert [one.id for one in table.iter(0, 9)] == ["1", "3", "4"]
    assert [one.line for one in table.bad()] == [3]


def test_two_unread_columns_of_one_name_do_no_harm(tmp_path: Path) -> None:
    text = "id,images,references,note,note\n1,a.png,x,y,z\n"
    assert table_of(tmp_path, text).count() == 1
    with pytest.raises(UserError, match=r"a.csv:1: more than one column is named 'note'"):
        table_of(tmp_path, text, where={"note": "z"}).count()


def test_a_record_of_json_that_is_no_object_has_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": "1", "images": "a.png", "references": "x"},\n\n7]')
    table = TableDataset(DatasetSpec(tmp_path, "a.json", on_bad="skip"))
    assert [one.line for one in table.bad()] == [2]


def test_a_quote_that_hides_rows_is_never_skipped(tmp_path: Path) -> None:
    for row in ('2,b.png,"x\n3,c.png,x\n4,d.png,x\n', '2,b.png,"x\n3,c.png,"x"\n4,d.png,x\n'):
        with pytest.raises(UserError, match="a.csv:3: not CSV"):
            table_of(tmp_path, f"id,images,references\n1,a.png,x\n{row}").count()


def test_a_cell_may_be_long_and_a_row_is_reported_by_its_first_line(tmp_path: Path) -> None:
    long = "x" * 200_000
    table = table_of(
        tmp_path, f'id,images,references\n1,a.png,"{long}\ny"\n2,b.png,"a\nb"\n2,c.png,"a\nb"\n'
    )
    assert [one.id for one in table.iter(0, 9)] == ["1", "2"]
    assert table.place(1) == (tmp_path / "a.csv", 4)
    assert [one.line for one in table.bad()] == [6]


@pytest.mark.parametrize(
    ("data", "options", "reported"),
    [
        (b"id,images,id\n", {}, "a.csv:1: more than one column is named 'id'"),
        ("ид,images\n".encode("cp1251"), {}, "a.csv:1: not utf-8: byte 0xe8"),
        ("id,images\n".encode("utf-16") + b"b", {"encoding": "utf-16"}, "a.csv: not utf-16: truncated data"),
        (b"id,images\n", {"encoding": "utf-61"}, "a.csv: unknown encoding 'utf-61'"),
        (b"id,images\n", {"encoding": "utf\0"}, "a.csv: unknown encoding 'utf\\u0000'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_whole_file_is_never_skipped(
    tmp_path: Path, data: bytes, options: dict[str, str], reported: str
) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(UserError) as caught:
        TableDataset(DatasetSpec(tmp_path, "a.csv", options=options, on_bad="skip")).count()
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(reported)


def test_utf_16_of_a_stated_order_may_have_a_mark_of_it(tmp_path: Path) -> None:
    text = "\ufeffid,images,references\n1,a.png,x\n"
    (tmp_path / "a.csv").write_bytes(text.encode("utf-16-le"))
    assert opened(tmp_path, "a.csv", mapping=FieldMap(), encoding="utf-16-le").count() == 1


def test_a_tab_may_be_written_as_in_yaml(tmp_path: Path) -> None:
    assert table_of(tmp_path, "id\timages\treferences\n1\ta.png\tx\n", delimiter="\\t").count() == 1
    assert check_options(TableDataset, {"delimiter": "||"})
    assert check_options(TableDataset, {"delimiter": '"'})


def test_a_number_of_thousands_of_digits_is_no_bug(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id":' + "1" * 5000 + "}]")
    with pytest.raises(UserError, match="too many digits"):
        opened(tmp_path, "a.json").count()


def test_the_file_of_several_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    row = {"id": "1", "images": "a.png", "references": "x"}
    polars.DataFrame([row]).write_parquet(tmp_path / "t-0.parquet")
    polars.DataFrame([{**row, "more": 1}]).write_parquet(tmp_path / "t-1.parquet")
    with pytest.raises(UserError, match=r"t-1.parquet: column 'more' differs from t-0.parquet"):
        opened(tmp_path, "t-*.parquet", mapping=FieldMap()).count()
    (tmp_path / "t-1.parquet").write_bytes(b"PAR1nothing")
    with pytest.raises(UserError, match=r"t-1.parquet: not a Parquet file"):
        opened(tmp_path, "t-*.parquet", mapping=FieldMap()).count()


def test_a_file_whose_name_looks_like_a_pattern_is_taken_by_its_name(tmp_path: Path) -> None:
    as_jsonl(tmp_path)
    (tmp_path / "a.jsonl").rename(tmp_path / "a[1].jsonl")
    assert opened(tmp_path, "a[1].jsonl").count() == 4


# --- datasets that lie elsewhere ------------------------------------------------------------------------


def test_a_dataset_of_a_storage_is_fetched_once(tmp_path: Path) -> None:
    source = tmp_path / "far away"
    source.mkdir()
    as_jsonl(source)
    dataset = Dataset(
        name="d", source=f"file://{str(source).replace(' ', '%20')}", annotations="a.jsonl"
    )
    reported: list[str] = []
    cache = Cache(tmp_path / "cache", Site(name="s"), lambda moved: reported.append(moved.what))
    with pytest.raises(UserError, match="is not on this machine yet"):
        cache.local(dataset, fetch=False)
    here = cache.local(dataset)
    assert cache.local(dataset) == cache.local(dataset, fetch=False) == here
    assert (Path(here.source) / "a.jsonl").read_bytes() == (source / "a.jsonl").read_bytes()
    assert {"fetching"} == {what for what in reported if not what.startswith("listing")}
    with pytest.raises(UserError, match="no such folder"):
        cache.local(dataset.model_copy(update={"source": f"file://{tmp_path}/nothing"}))


def test_a_dataset_of_the_hub_is_found_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # no server listens there
    dataset = Dataset(name="d", source="hf://datasets/org/name", annotations="a.jsonl")
    with pytest.raises(
        EnvironmentFault,
        match=r"not on this machine, and cannot list .* or run `hf download org/name --repo-type",
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


def test_lists_of_one_length_in_an_arrow_table_hold_images_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    values = [[b"a1", b"a2"], None, [b"c1", b"c2"]]
    images = pyarrow.array(values, pyarrow.list_(pyarrow.binary(), 2))
    parts = pyarrow.array([[("k", b"v")]] * 3, pyarrow.map_(pyarrow.string(), pyarrow.binary()))
    table = pyarrow.table(
        {"id": ["1", "2", "3"], "images": images, "references": ["x"] * 3, "parts": parts}
    )
    with pyarrow.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as stream:
        stream.write_table(table)
    mapping = FieldMap(document=None, split=None, fields={}, metadata={"parts": "parts"})
    spec = DatasetSpec(tmp_path, "a.arrow", mapping=mapping, on_bad="skip")
    found = TableDataset(spec)
    assert [one.images for one in found.iter(0, 9)] == [(b"a1", b"a2"), (b"c1", b"c2")]
    assert [one.line for one in found.bad()] == [2]


# --- answers of several columns, spreadsheets -----------------------------------------------------------


def test_several_columns_make_one_object_and_empty_cells_are_left_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "sep=;\nid;image;total;Date\n1;1.png;1.234,50;\n;;;\n2;2.png;;2024\n"
    )
    mapping = FieldMap(id="id", images="image", references={"total": "total", "date": "Date"})
    iterator = opened(tmp_path, "a.csv", mapping=mapping)
    assert [one.references for one in iterator.iter(0, 9)] == [
        ({"total": "1.234,50"},), ({"date": "2024"},),
    ]  # fmt: skip
    assert iterator.place(1)[1] == 5


def test_a_row_of_which_no_answer_column_has_a_value_is_bad(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,image,total,date\n1,1.png,,\n")
    mapping = FieldMap(images="image", references={"total": "total", "date": "date"})
    with pytest.raises(UserError, match="a.csv:2: 'total', 'date' is empty"):
        opened(tmp_path, "a.csv", mapping=mapping).count()


def test_a_spreadsheet_is_read_as_it_shows_its_cells(tmp_path: Path) -> None:
    import datetime

    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["id", "image", "total", "day", None])
    sheet.append([1, "1.png", 12.5, datetime.datetime(2024, 5, 1)])  # noqa: DTZ001 - as Excel has it
    sheet["C2"].number_format = "#,##0.00"
    sheet.append([2, "2.png", "1.234,50", None])
    book.save(tmp_path / "a.xlsx")
    mapping = FieldMap(images="image", references={"total": "total", "day": "day"})
    iterator = opened(tmp_path, "a.xlsx", mapping=mapping)
    assert [(one.id, *one.references) for one in iterator.iter(0, 9)] == [
        ("1", {"total": "12.50", "day": "2024-05-01"}), ("2", {"total": "1.234,50"}),
    ]  # fmt: skip
    with pytest.raises(UserError, match="no sheet 'B' \\(there are: Sheet\\)"):
        opened(tmp_path, "a.xlsx", mapping=mapping, records="B").count()
    (tmp_path / "b.xlsx").write_text("id,image")
    with pytest.raises(UserError, match="b.xlsx: not a readable spreadsheet"):
        opened(tmp_path, "b.xlsx", mapping=mapping).count()
