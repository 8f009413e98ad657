"""Datasets in the layouts they come in: each made here as its publisher or tool writes it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars
import pytest
from PIL import Image

from hpcbench import plugins
from hpcbench.data import transfer
from hpcbench.data.datasets import bad_rows, choose, draw, samples, unreadable
from hpcbench.data.detect import Detected, beside_or_above, find_table, known_layout
from hpcbench.data.layouts import MpDocVqa
from hpcbench.data.references import is_empty
from hpcbench.data.sync import SmartSync
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import DatasetIterator, DatasetSpec
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.records import Sample, StoredImage
from hpcbench.schema.run_task import RunTask, SampleOf


def detected(folder: Path) -> Detected:
    """The layout that `hpcbench data add` proposes for a folder without options."""
    known = known_layout(folder)
    if known is not None:
        return known
    table = find_table(folder)
    roles = table.propose() if table is not None else None
    if table is not None and roles is not None and roles.answers:
        return table.detected(roles)
    return beside_or_above(folder)


def opened(iterator: str, folder: Path, **more: Any) -> DatasetIterator:
    spec = DatasetSpec(folder, **{"annotations": "", **more})
    made: DatasetIterator = plugins.load("datasets", iterator)(spec)
    return made


def everything(iterator: DatasetIterator) -> list[Sample]:
    return list(iterator.iter(0, iterator.count()))


def picture(path: Path, colour: int = 200) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (40, 30), colour).save(path)


def a_pdf(path: Path, pages: int) -> None:
    first, *rest = [Image.new("RGB", (60, 80), (number * 40, 0, 0)) for number in range(pages)]
    path.parent.mkdir(parents=True, exist_ok=True)
    first.save(path, save_all=True, append_images=rest)


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


# --- layouts --------------------------------------------------------------------------------------------


def test_v01_questions_about_one_image_are_one_cluster(tmp_path: Path) -> None:
    (tmp_path / "annotation.csv").write_text(
        "data_index;split;image_path;question;answer;doc_class;question_type;answer_bbox\n"
        "1;test;images/1.png;Номер?;№ 7;invoice;number;[1, 2, 3, 4]\n"
        "1;test;images/1.png;Сумма?;12,50;invoice;sum;[1, 2, 3, 4]\n"
        "2;train;images/2.png;Дата?;1 мая;contract;date;[]\n",
        encoding="utf-8-sig",
    )
    first, second, third = everything(opened("v01", tmp_path))
    assert first.fields == {"question": "Номер?"}
    assert second.references == ("12,50",)
    assert first.document == second.document != third.document
    assert third.metadata == {"doc_class": "contract", "question_type": "date"}
    assert opened("v01", tmp_path, split="train").count() == 1


def test_docvqa_as_its_publisher_ships_it(tmp_path: Path) -> None:
    rows = [
        {
            "questionId": 337, "question": "what is the date?", "image": "documents/xnbl0037_1.png",
            "docId": 279, "ucsf_document_id": "xnbl0037", "ucsf_document_page_no": "1",
            "answers": ["1/8/93", "Jan 8"], "data_split": "val", "question_types": ["handwritten"],
        }
    ]  # fmt: skip
    write(tmp_path / "val_v1.0.json", {"dataset_name": "docvqa", "data": rows})
    (one,) = everything(opened("docvqa", tmp_path))
    assert (one.id, one.document, one.references) == ("337", "xnbl0037", ("1/8/93", "Jan 8"))
    assert one.images == (tmp_path / "documents/xnbl0037_1.png",)


def test_a_mapping_of_one_key_leaves_the_others_to_the_preset(tmp_path: Path) -> None:
    """InfographicVQA is DocVQA's form, but for the name of its images."""
    row = {"questionId": 1, "question": "?", "image_local_name": "1.jpeg", "answers": ["a"]}
    row["data_split"] = "val"
    write(tmp_path / "v.json", {"data": [row]})
    mapping = FieldMap(images="image_local_name")
    (one,) = everything(opened("docvqa", tmp_path, mapping=mapping, split="val"))
    assert (one.id, one.images, one.fields) == ("1", (tmp_path / "1.jpeg",), {"question": "?"})


V01_WITH_IDS = (
    "id;split;image_path;question;answer;doc_class;question_type\n"
    "q-17;test;1.png;?;7;invoice;number\n"
)


@pytest.mark.parametrize("again", [False, True], ids=["as written", "from resolved.json"])
def test_a_key_that_the_definition_writes_goes_before_the_preset_whatever_it_is(
    tmp_path: Path, again: bool
) -> None:
    (tmp_path / "annotation.csv").write_text(V01_WITH_IDS)
    said = {"id": "id", "metadata": {}}
    definition = Dataset.model_validate({"name": "a", "source": str(tmp_path), "mapping": said})
    if again:
        definition = Dataset.model_validate_json(definition.model_dump_json())
    (one,) = everything(opened("v01", tmp_path, mapping=definition.mapping))
    assert (one.id, one.fields, one.metadata) == ("q-17", {"question": "?"}, {})


@pytest.mark.parametrize("said", [{}, {"id": "#", "document": None}])
def test_of_all_keys_in_resolved_json_those_are_said_that_are_not_usual(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    """So it has always had them, also of definitions without a mapping."""
    (tmp_path / "annotation.csv").write_text(V01_WITH_IDS)
    written = FieldMap(**said).model_dump_json()
    assert json.loads(written).keys() == FieldMap.usual().keys()
    mapping = FieldMap.model_validate_json(written)
    (one,) = everything(opened("v01", tmp_path, mapping=mapping))
    assert (one.id, one.document) == ("1", "1.png")


@pytest.mark.parametrize("again", [False, True], ids=["as written", "from resolved.json"])
def test_a_definition_may_write_every_key(tmp_path: Path, again: bool) -> None:
    (tmp_path / "annotation.csv").write_text(V01_WITH_IDS)
    mapping = FieldMap(**{**FieldMap.usual(), "images": "image_path", "references": "answer"})
    if again:
        mapping = FieldMap.model_validate_json(mapping.model_dump_json())
    (one,) = everything(opened("v01", tmp_path, mapping=mapping))
    assert (one.id, one.fields) == ("q-17", {})


def test_a_split_without_answers_is_reported_by_name(tmp_path: Path) -> None:
    row = {
        "questionId": 1,
        "question": "?",
        "image": "1.png",
        "answers": ["a"],
        "data_split": "val",
    }
    write(tmp_path / "val_v1.0.json", {"data": [row]})
    secret = {key: value for key, value in row.items() if key != "answers"}
    write(tmp_path / "test_v1.0.json", {"data": [{**secret, "data_split": "test"}]})
    with pytest.raises(
        UserError,
        match=r"no row of split 'test' is usable \(splits: test, val\) \(set `split: NAME`",
    ):
        opened("docvqa", tmp_path).count()
    assert opened("docvqa", tmp_path, split="val").count() == 1


def test_mp_docvqa_has_a_page_for_each_of_its_ids(tmp_path: Path) -> None:
    row = {
        "questionId": 49153, "question": "What is the 'actual' value?", "doc_id": "pybv0228",
        "page_ids": ["pybv0228_p80", "pybv0228_p81"], "answers": ["0.28"], "answer_page_idx": 1,
        "data_split": "val",
    }  # fmt: skip
    write(tmp_path / "val.json", {"dataset_name": "MP-DocVQA", "data": [row]})
    (one,) = everything(MpDocVqa(DatasetSpec(tmp_path, "")))
    assert (one.id, one.document, one.references) == ("49153", "pybv0228", ("0.28",))
    assert one.images == tuple(tmp_path / f"images/pybv0228_p{page}.jpg" for page in (80, 81))
    assert one.metadata == {"answer_page_idx": 1}
    assert detected(tmp_path).iterator == "mp_docvqa"


def test_ocrbench_takes_an_answer_or_a_list_of_them(tmp_path: Path) -> None:
    rows = [
        {"dataset_name": "IIIT5K", "type": "Regular Text", "question": "?",
         "image_path": "1.png", "answers": "UP"},
        {"dataset_name": "ESTVQA", "type": "VQA", "question": "?",
         "image_path": "2.jpg", "answers": ["x", "y"]},
    ]  # fmt: skip
    write(tmp_path / "OCRBench.json", rows)
    one, two = everything(opened("ocrbench", tmp_path))
    assert (one.references, two.references) == (("UP",), ("x", "y"))
    assert two.metadata == {"dataset": "ESTVQA", "question_type": "VQA"}


def test_formulas_of_ocrbench_are_scored_by_the_rule_for_formulas(tmp_path: Path) -> None:
    """With spaces, and with case, as the benchmark does; metrics that know no kinds see the text."""
    from hpcbench.metrics import anls, ocrbench

    row = {"dataset_name": "HME100k", "type": "Handwritten Mathematical Expression Recognition",
           "question": "?", "image_path": "1.png", "answers": ["a ^ 2 + B"]}  # fmt: skip
    write(tmp_path / "OCRBench.json", [row])
    (sample,) = everything(opened("ocrbench", tmp_path))
    assert ocrbench("it is a^2+B", sample.references) == 1
    assert ocrbench("it is a^2+b", sample.references) == 0
    assert anls("a ^ 2 + b", sample.references) == 1


def test_formulas_are_known_by_the_metadata_that_the_mapping_names(tmp_path: Path) -> None:
    import polars

    row = {"dataset": "HME100k", "question": "?", "answer": ["a ^ 2"], "image": "1.png"}
    polars.DataFrame([row]).write_parquet(tmp_path / "a.parquet")
    mapping = FieldMap(
        id="#", images="image", references="answer", document=None, split=None,
        fields={"question": "question"}, metadata={"dataset": "dataset"},
    )  # fmt: skip
    (one,) = everything(opened("ocrbench", tmp_path, annotations="a.parquet", mapping=mapping))
    assert one.references == ({"answer": "a ^ 2", "kind": "formula"},)


@pytest.mark.parametrize("splits", [True, False])
def test_what_hugging_face_saved_to_disk(tmp_path: Path, splits: bool) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    folder = tmp_path / "test" if splits else tmp_path
    folder.mkdir(exist_ok=True)
    if splits:
        write(tmp_path / "dataset_dict.json", {"splits": ["train", "test"]})
    rows = [
        {"image": {"bytes": bytes([number]), "path": None}, "label": number % 3 - 1, "key": f"k{number}"}
        for number in range(7)
    ]  # fmt: skip
    for part, some in enumerate((rows[:5], rows[5:])):
        table = pyarrow.Table.from_pylist(some)
        path = str(folder / f"data-0000{part}-of-00002.arrow")
        with (
            pyarrow.OSFile(path, "wb") as file,
            pyarrow.ipc.new_stream(file, table.schema) as stream,
        ):
            stream.write_table(table, max_chunksize=2)
    names = [f"data-0000{part}-of-00002.arrow" for part in (0, 1)]
    write(folder / "state.json", {"_data_files": [{"filename": name} for name in names]})
    features = {"label": {"names": ["form", "letter"], "_type": "ClassLabel"}}
    write(folder / "dataset_info.json", {"features": features})
    mapping = FieldMap(id="key", images="image", references="label", document=None, fields={})
    more: Mapping[str, Any] = {"mapping": mapping, "split": "test" if splits else None}
    with pytest.raises(UserError, match="'label' is empty|key 'label' is missing"):
        opened("hf_disk", tmp_path, **more).count()
    table = opened("hf_disk", tmp_path, on_bad="skip", **more)
    found = everything(table)
    assert [one.id for one in found] == ["k1", "k2", "k4", "k5"]
    assert [one.references[0] for one in found] == ["form", "letter", "form", "letter"]
    assert found[3].images == (b"\x05",)
    assert [(one.line, Path(one.file or "").name) for one in bad_rows(table)] == [
        (1, names[0]), (4, names[0]), (2, names[1]),
    ]  # fmt: skip
    assert [one.images for one in samples(table, [(0, 4)], 0, 4, images=False)] == [()] * 4
    if splits:
        with pytest.raises(UserError, match="it has the splits train, test"):
            opened("hf_disk", tmp_path, mapping=mapping, split="tset")


def saved(folder: Path, rows: list[dict[str, Any]], **state: Any) -> None:
    """Files that `datasets.save_to_disk` writes."""
    pyarrow = pytest.importorskip("pyarrow")
    folder.mkdir(parents=True, exist_ok=True)
    table = pyarrow.Table.from_pylist(rows)
    with (
        pyarrow.OSFile(str(folder / "data.arrow"), "wb") as file,
        pyarrow.ipc.new_stream(file, table.schema) as stream,
    ):
        stream.write_table(table)
    write(folder / "state.json", {"_data_files": [{"filename": "data.arrow"}], **state})
    write(folder / "dataset_info.json", {"features": {}})


SAVED = FieldMap(
    id="id", images="image", references="answer", document=None, split=None, fields={}, metadata={}
)


def test_the_files_of_all_splits_are_those_of_each(tmp_path: Path) -> None:
    """`content_hash` of a dataset's definition is over all splits."""
    write(tmp_path / "dataset_dict.json", {"splits": ["train", "test"]})
    for split in ("train", "test"):
        saved(tmp_path / split, [{"id": split, "image": b"x", "answer": "y"}])
    whole = opened("hf_disk", tmp_path, mapping=SAVED)
    assert set(whole.files()) == {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(
        UserError, match="it has the splits train, test, and the dataset's definition names None"
    ):
        whole.count()


def test_rows_chosen_by_a_file_of_indices_are_refused(tmp_path: Path) -> None:
    rows = [{"id": "1", "image": b"x", "answer": "y"}]
    saved(tmp_path, rows, _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(UserError, match="flatten_indices"):
        opened("hf_disk", tmp_path, mapping=SAVED).count()


def coco(folder: Path) -> None:
    picture(folder / "images/a.png")
    images = [{"id": 1, "file_name": "a.png", "width": 40, "height": 30}]
    categories = [{"id": 5, "name": "total"}, {"id": 6, "name": "item"}]
    boxes = [
        {"id": 1, "image_id": 1, "category_id": 6, "bbox": [0, 20, 5, 5], "text": "bread"},
        {"id": 2, "image_id": 1, "category_id": 5, "bbox": [0, 25, 5, 5], "text": "7.00"},
        {"id": 3, "image_id": 1, "category_id": 6, "bbox": [0, 10, 5, 5], "text": "milk"},
    ]
    write(
        folder / "annotations/all.json",
        {"images": images, "annotations": boxes, "categories": categories},
    )


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("label", ("item", "total")),
        ("text", ("milk\nbread\n7.00",)),
        ("fields", ({"item": ["milk", "bread"], "total": "7.00"},)),
    ],
)
def test_coco_boxes_are_labels_text_or_fields(
    tmp_path: Path, reference: str, expected: tuple[Any, ...]
) -> None:
    coco(tmp_path)
    (one,) = everything(opened("coco", tmp_path, options={"reference": reference}))
    assert one.references == expected
    assert one.images == (tmp_path / "images/a.png",)


@pytest.mark.parametrize(
    ("reference", "labels"),
    [
        ("label", ("item", "total", "item")),
        ("text", ("bread", "7.00", "milk")),
        ("fields", ("item", "total", "item")),
    ],
)
def test_coco_boxes_go_with_the_sample(
    tmp_path: Path, reference: str, labels: tuple[str, ...]
) -> None:
    coco(tmp_path)
    (one,) = everything(opened("coco", tmp_path, options={"reference": reference}))
    assert one.boxes is not None
    found = one.boxes()
    assert (found.labels, found.size) == (labels, (40, 30))
    assert found.corners == ((0, 20, 5, 25), (0, 25, 5, 30), (0, 10, 5, 15))
    assert one.boxes() == found


@pytest.mark.parametrize("bbox", [None, [1, 2, 3], [1, 2, "x", 4], [0, 0, 1e400, 1], 7, {}])
def test_coco_boxes_that_are_none_are_left_out(tmp_path: Path, bbox: Any) -> None:
    picture(tmp_path / "images/a.png")
    images = [{"id": 1, "file_name": "a.png", "width": "wide"}]
    marks = [{"image_id": 1, "caption": "a", "bbox": bbox, "category_id": []}] * 2
    write(tmp_path / "annotations/all.json", {"images": images, "annotations": marks})
    (one,) = everything(opened("coco", tmp_path, options={"reference": "caption"}))
    assert (one.references, one.boxes) == (("a", "a"), None)


def test_a_split_of_coco_is_in_the_name_of_its_file(tmp_path: Path) -> None:
    for split, text in (("train", "one"), ("val", "two")):
        picture(tmp_path / f"images/{split}.png")
        images = [{"id": 1, "file_name": f"{split}.png"}]
        marks = [{"image_id": 1, "caption": text}]
        write(
            tmp_path / f"annotations/captions_{split}2017.json",
            {"images": images, "annotations": marks},
        )
    more: dict[str, Any] = {"options": {"reference": "caption"}}
    assert [one.references for one in everything(opened("coco", tmp_path, **more))] == [
        ("one",), ("two",),
    ]  # fmt: skip
    for split in ("val", "val2017", "captions_val2017"):
        (one,) = everything(opened("coco", tmp_path, split=split, **more))
        assert one.references == ("two",)
    with pytest.raises(UserError, match="no sample of split 'test'"):
        opened("coco", tmp_path, split="test", **more).count()


def test_two_images_of_one_id_share_no_annotations(tmp_path: Path) -> None:
    coco(tmp_path)
    file = tmp_path / "annotations/all.json"
    data = json.loads(file.read_text())
    data["images"].append({"id": 1, "file_name": "b.png"})
    write(file, data)
    with pytest.raises(UserError, match=r"all.json:2: images 1 and 2 have the same id, 1"):
        opened("coco", tmp_path).count()
    assert len(everything(opened("coco", tmp_path, on_bad="skip"))) == 1


@pytest.mark.parametrize("text", ['{"images": null, "annotations": []}', "[]", "1" * 5000, "{"])
def test_what_is_no_coco_file_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations/a.json").write_text(text)
    with pytest.raises(UserError, match=r"a.json.*: not (JSON|a COCO file)"):
        opened("coco", tmp_path).count()


def test_pages_in_a_folder_of_their_own_are_found_by_the_whole_path(tmp_path: Path) -> None:
    for name in ("keys/a/1", "keys/b/1", "keys/b/2"):
        write(tmp_path / f"{name}.json", {"of": name})
    for name in ("keys/a/1", "b/1", "1", "2"):
        picture(tmp_path / f"pages/{name}.png")
    more: dict[str, Any] = {"annotations": "keys/**/*.json", "options": {"images": "pages"}}
    found = {
        one.references[0]["of"]: one.images for one in everything(opened("pairs", tmp_path, **more))
    }
    assert found == {
        "keys/a/1": (tmp_path / "pages/keys/a/1.png",),
        "keys/b/1": (tmp_path / "pages/b/1.png",),
        "keys/b/2": (tmp_path / "pages/2.png",),
    }
    (tmp_path / "pages/b/1.png").unlink()
    with pytest.raises(UserError, match=r"keys/b/1.json: no page pages/keys/b/1.png"):
        opened("pairs", tmp_path, **more).count()


def test_suffixes_may_be_in_capitals(tmp_path: Path) -> None:
    picture(tmp_path / "1.PNG")
    (tmp_path / "1.txt").write_text("x")
    (one,) = everything(opened("pairs", tmp_path))
    assert one.images == (tmp_path / "1.PNG",)


@pytest.mark.parametrize("reference", ["", " \n", None, [], [""], [[], [" "]], {}, float("nan")])
def test_what_is_no_reference(reference: Any) -> None:
    assert is_empty(reference)


@pytest.mark.parametrize("reference", ["0", 0, False, ["", "x"], {"total": None}])
def test_what_is_one(reference: Any) -> None:
    assert not is_empty(reference)


@pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png"])
def test_an_image_that_coco_names_outside_its_folder_is_bad(tmp_path: Path, name: str) -> None:
    coco(tmp_path / "data")
    picture(tmp_path / "secret.png")
    file = tmp_path / "data/annotations/all.json"
    file.write_text(file.read_text().replace("a.png", name))
    with pytest.raises(UserError, match=f"image '{name}' .*lies outside the dataset's folder"):
        opened("coco", tmp_path / "data").count()


def test_an_image_that_coco_names_outside_a_packed_set_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MANY", 1)
    coco(tmp_path / "data")
    file = tmp_path / "data/annotations/all.json"
    file.write_text(file.read_text().replace("a.png", "/etc/secret.png"))
    version = SmartSync(tmp_path / "cache").bring(f"file://{tmp_path}/data", pack=True)
    with pytest.raises(UserError, match="image '/etc/secret.png' is absolute"):
        opened("coco", version.files).count()


def test_pages_with_a_file_beside_each(tmp_path: Path) -> None:
    picture(tmp_path / "test/1.png")
    (tmp_path / "test/1.txt").write_text("Привет\n", encoding="utf-8")
    picture(tmp_path / "train/2.jpg")
    (tmp_path / "train/2.txt").write_text("two")
    (tmp_path / "train/3.txt").write_text("no page")
    with pytest.raises(UserError, match=r"no page train/3.png"):
        opened("pairs", tmp_path).count()
    table = opened("pairs", tmp_path, on_bad="skip")
    assert [(one.id, one.references[0]) for one in everything(table)] == [
        ("test/1", "Привет"), ("train/2", "two"),
    ]  # fmt: skip
    assert len(bad_rows(table)) == 1
    assert opened("pairs", tmp_path, split="test").count() == 1
    write(tmp_path / "keys/2.json", {"total": "7"})
    (kie,) = everything(
        opened("pairs", tmp_path, annotations="keys/*.json", options={"images": "train"})
    )
    assert kie.references == ({"total": "7"},)
    assert set(opened("pairs", tmp_path, annotations="keys/*.json", options={"images": "train"}).files()) == {
        tmp_path / "keys/2.json", tmp_path / "train/2.jpg",
    }  # fmt: skip


def test_cord_lines_become_nested_keys(tmp_path: Path) -> None:
    picture(tmp_path / "test/image/r.png")
    lines = [
        ("menu.nm", 3, ["Iced", "Tea"]), ("menu.price", 3, ["10,000"]), ("menu.nm", 4, ["Rice"]),
        ("total.total_price", 5, ["12,000"]),
    ]  # fmt: skip
    valid = [
        {"category": kind, "group_id": group, "words": [{"text": word} for word in words]}
        for kind, group, words in lines
    ]
    write(tmp_path / "test/json/r.json", {"valid_line": valid, "meta": {}})
    (one,) = everything(opened("cord", tmp_path, split="test"))
    assert one.references == (
        {"menu": [{"nm": "Iced Tea", "price": "10,000"}, {"nm": "Rice"}], "total": {"total_price": "12,000"}},
    )  # fmt: skip
    (text,) = everything(opened("cord", tmp_path, options={"task": "ocr"}))
    assert text.references == ("Iced Tea\n10,000\nRice\n12,000",)


def test_cord_lines_and_words_have_boxes(tmp_path: Path) -> None:
    picture(tmp_path / "test/image/r.png")
    first = {"x1": 1, "y1": 2, "x2": 5, "y2": 2, "x3": 5, "y3": 4, "x4": 1, "y4": 4}
    second = {name: value + 10 for name, value in first.items()}
    words = [{"text": "Iced", "quad": first}, {"text": "Tea", "quad": second}, {"text": "!"}]
    lines = [
        {"category": "menu.nm", "words": words},
        {"category": "menu.price", "words": words[2:]},
    ]
    write(tmp_path / "test/json/r.json", {"valid_line": lines})
    (one,) = everything(opened("cord", tmp_path))
    assert one.boxes is not None
    assert (one.boxes().corners, one.boxes().labels) == (((1, 2, 15, 14),), ("menu.nm",))
    (text,) = everything(opened("cord", tmp_path, options={"task": "ocr"}))
    assert text.boxes is not None
    assert text.boxes().corners == ((1, 2, 5, 4), (11, 12, 15, 14))
    assert text.boxes().labels == ("Iced", "Tea")


# --- pages ----------------------------------------------------------------------------------------------


def table_of(folder: Path, *images: Any, **more: Any) -> DatasetIterator:
    rows = [
        {"id": str(number), "images": [image], "references": ["x"]}
        for number, image in enumerate(images)
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return opened("table", folder, annotations="a.jsonl", **more)


def test_a_pdf_is_its_pages_and_they_are_rendered_once(tmp_path: Path) -> None:
    a_pdf(tmp_path / "d.pdf", 3)
    more = {"cache": tmp_path / "pages", "options": {"dpi": 72}}
    table = table_of(tmp_path, "d.pdf", "d.pdf#page=2", "d.pdf#page=2-3", **more)
    whole, second, two = everything(table)
    assert [len(one.images) for one in (whole, second, two)] == [3, 1, 2]
    image = second.images[0]
    assert isinstance(image, StoredImage)
    data = image.read()
    with Image.open(io.BytesIO(data)) as page:
        assert page.size == (60, 80)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "pages").iterdir()}
    assert image.read() == data
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "pages").iterdir()} == kept
    assert list(table.files()) == [tmp_path / "a.jsonl", tmp_path / "d.pdf"]
    larger = table_of(tmp_path, "d.pdf", cache=tmp_path / "pages", options={"dpi": 144})
    page_of_larger = everything(larger)[0].images[0]
    assert isinstance(page_of_larger, StoredImage)
    with Image.open(io.BytesIO(page_of_larger.read())) as page:
        assert page.size == (120, 160)


def test_a_tiff_has_pages_too(tmp_path: Path) -> None:
    first, second = Image.new("L", (8, 8), 1), Image.new("L", (9, 9), 2)
    first.save(tmp_path / "d.tif", save_all=True, append_images=[second])
    (one,) = everything(table_of(tmp_path, "d.tif"))
    sizes = [Image.open(io.BytesIO(image.read())).size for image in one.images]  # type: ignore[union-attr]
    assert sizes == [(8, 8), (9, 9)]


def test_a_page_that_is_not_there_spoils_its_sample_alone(tmp_path: Path) -> None:
    a_pdf(tmp_path / "d.pdf", 1)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    table = table_of(tmp_path, "d.pdf", "d.pdf#page=7", "broken.pdf")
    assert [one.id for one in everything(table)] == ["0", "1", "2"]
    reported = [str(one.problem) for one in unreadable(table)]
    assert [one.index for one in unreadable(table)] == [1, 2]
    assert "a.jsonl:2: sample '1': d.pdf#page=7" in reported[0]
    assert "the document has 1 pages" in reported[0]
    assert "not a readable PDF" in reported[1]


def test_a_pattern_is_every_page_that_matches(tmp_path: Path) -> None:
    for number in (2, 1):
        picture(tmp_path / f"p/7-{number}.png")
    (one,) = everything(table_of(tmp_path, "p/7-*.png"))
    assert one.images == (tmp_path / "p/7-1.png", tmp_path / "p/7-2.png")


def test_columns_may_be_put_into_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("doc,page,text\nd,1,x\n")
    mapping = FieldMap(
        id="#", images="scans/{doc}_{page}.png", references="text", document="doc", split=None
    )
    (one,) = everything(opened("table", tmp_path, annotations="a.csv", mapping=mapping))
    assert one.images == (tmp_path / "scans/d_1.png",)


# --- what is bad ----------------------------------------------------------------------------------------


def test_bad_images_are_reported_with_file_and_row(tmp_path: Path) -> None:
    picture(tmp_path / "good.png")
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("no image")
    table = table_of(tmp_path, "good.png", "empty.png", "text.png", "gone.png")
    reported = [str(one.problem).replace(f"{tmp_path}/", "") for one in unreadable(table)]
    assert reported == [
        "a.jsonl:2: sample '1': empty.png: not a readable image",
        "a.jsonl:3: sample '2': text.png: not a readable image",
        "a.jsonl:4: sample '3': gone.png: No such file or directory",
    ]


def test_wrong_encoding_is_a_bad_row_or_an_option(tmp_path: Path) -> None:
    text = "id,images,references\n1,a.png,ok\n2,b.png,Привет\n"
    (tmp_path / "a.csv").write_bytes(text.encode("cp1251"))
    with pytest.raises(
        UserError,
        match=r"a.csv:3: not utf-8: byte 0xcf \(save it as UTF-8, or set the option `encoding`\)",
    ):
        opened("table", tmp_path, annotations="a.csv").count()
    assert opened("table", tmp_path, annotations="a.csv", on_bad="skip").count() == 1
    table = opened("table", tmp_path, annotations="a.csv", options={"encoding": "cp1251"})
    assert everything(table)[1].references == ("Привет",)


# --- choosing -------------------------------------------------------------------------------------------


def invoices(folder: Path) -> DatasetIterator:
    rows = [
        {
            "id": str(number), "images": ["p.png"], "references": ["x"], "fields": {"pages": number % 4},
            "metadata": {"doc_type": "invoice" if number % 3 else "letter"},
        }
        for number in range(30)
    ]  # fmt: skip
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return opened("table", folder, annotations="a.jsonl")


def task(**more: Any) -> RunTask:
    return RunTask(name="t", ml_task="vqa", model="m", dataset="d", **more)


def test_where_sample_and_limit_choose_in_this_order(tmp_path: Path) -> None:
    table = invoices(tmp_path)
    ranges = choose(table, task(where="doc_type == 'invoice' and pages < 2", limit=5), 0)
    found = list(samples(table, ranges, 0, 99))
    assert [one.id for one in found] == ["1", "4", "5", "8", "13"]
    assert [one.id for one in samples(table, ranges, 1, 3)] == ["4", "5"]
    stratified = choose(table, task(sample=SampleOf(size=9, by="doc_type")), 7)
    kinds = [one.metadata["doc_type"] for one in samples(table, stratified, 0, 99)]
    assert (kinds.count("invoice"), kinds.count("letter")) == (6, 3)
    assert choose(table, task(sample=SampleOf(size=9, by="doc_type")), 7) == stratified
    assert choose(table, task(sample=SampleOf(size=9, by="doc_type")), 8) != stratified
    assert choose(table, task(limit=3), 0, bad=[1]) == [(0, 1), (2, 4)]


@pytest.mark.parametrize(
    ("where", "reported"),
    [
        ("doc_type = 1", "is not a valid expression"),
        ("kind == 'x'", r"'kind' is undefined \(there are: doc_type, document, id, pages\)"),
        ("pages < 'x'", "not supported between"),
        ("pages > 9", "no sample is left"),
        ("''.__class__.__mro__", "unsafe"),
        ("'{0}{1}'.format(id)", "out of range"),
        ("doc_type | random == 'x'", "No filter named 'random'"),
    ],
)
def test_a_wrong_where_is_one_clear_line(tmp_path: Path, where: str, reported: str) -> None:
    with pytest.raises(UserError, match=reported):
        choose(invoices(tmp_path), task(where=where), 0)


def test_nothing_left_is_an_error_without_where_too(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no sample is left of 30: none can be read"):
        choose(invoices(tmp_path), task(limit=5), 0, bad=range(30))


def test_a_stratum_gets_its_share_and_all_shares_are_the_size() -> None:
    strata = {"a": range(7), "b": range(7, 10), "c": range(10, 11)}
    found = draw(strata, 5, 1)
    assert len(found) == 5
    assert found == sorted(found)
    assert draw(strata, 99, 1) == list(range(11))


# --- guessing -------------------------------------------------------------------------------------------


def test_a_big_table_is_guessed_by_its_first_row_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars.DataFrame({"id": ["1"], "image": [b"x"], "answer": ["y"]}).write_parquet(
        tmp_path / "a.parquet"
    )
    monkeypatch.delattr("hpcbench.data.annotations.ParquetRows.light")
    assert detected(tmp_path).definition["mapping"]["references"] == "answer"


# --- packed ---------------------------------------------------------------------------------------------


def test_a_packed_dataset_gives_the_same_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MANY", 2)
    source = tmp_path / "source"
    for number in range(5):
        picture(source / f"test/{number}.png", number)
        (source / f"test/{number}.txt").write_text(f"text {number}")
    version = SmartSync(tmp_path / "cache").bring(f"file://{source}", pack=True)
    assert not (version.files / "test").exists()
    loose, packed = (everything(opened("pairs", folder)) for folder in (source, version.files))
    assert [(one.id, one.references) for one in loose] == [
        (one.id, one.references) for one in packed
    ]
    for one, other in zip(loose, packed, strict=True):
        image = other.images[0]
        assert isinstance(image, StoredImage)
        assert image.read() == Path(str(one.images[0])).read_bytes()
    assert detected(version.files) == detected(source)
    with (version.folder / "pack.tar").open("r+b") as pack:
        pack.seek(next(kept.offset or 0 for kept in version.kept()))
        pack.write(b"!")
    with pytest.raises(EnvironmentFault, match="is damaged"):
        [image.read() for one in packed for image in one.images]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("annotation.csv", "split;image_path;question;answer;doc_class;question_type\nt;1.png;q;a;c;t\n"),
        ("a.csv", "id;image;answer\n1;1.png;a\n"),
        ("a.json", '[{"id": 1, "image": "1.png", "answer": "a"}]'),
    ],
)  # fmt: skip
def test_what_is_packed_is_guessed_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setattr(transfer, "MANY", 1)
    source = tmp_path / "source"
    picture(source / "1.png")
    (source / name).write_text(text)
    version = SmartSync(tmp_path / "cache").bring(f"file://{source}", pack=True)
    assert not (version.files / name).exists()
    assert detected(version.files) == detected(source)
