"""Public datasets as their publishers ship them: tiny ones, right and broken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcbench import plugins
from hpcbench.data.datasets import bad_before, unreadable
from hpcbench.data.public_datasets import Funsd, OmniDocBench, PublicDataset, Sroie
from hpcbench.data.tree import content_hash
from hpcbench.errors import UserError
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.records import Sample


def put(path: Path, content: str | bytes | object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
    return path


def spec(
    folder: Path, annotations: str = "", split: str | None = None, **options: Any
) -> DatasetSpec:
    return DatasetSpec(folder, annotations, split, options=options)


def samples(dataset: PublicDataset) -> list[Sample]:
    return list(dataset.iter(0, dataset.count()))


def boxes(sample: Sample) -> list[tuple[tuple[float, ...], str]]:
    """Corners and labels of what its dataset marks."""
    assert sample.boxes is not None
    found = sample.boxes()
    return list(zip(found.corners, found.labels, strict=True))


def messages(dataset: PublicDataset) -> str:
    with pytest.raises(UserError) as caught:
        dataset.count()
    assert len(caught.value.problems) <= 20
    return str(caught.value)


@pytest.mark.parametrize("plugin", [Funsd, Sroie, OmniDocBench])
def test_fits_the_protocol_and_refuses_what_it_does_not_know(plugin: Any, tmp_path: Path) -> None:
    assert plugins.mismatch("datasets", plugin) is None
    with pytest.raises(UserError, match="unknown option 'colour'"):
        plugin(spec(tmp_path, colour="red"))
    with pytest.raises(UserError, match="leave 'mapping' out"):
        plugin(DatasetSpec(tmp_path, "a", mapping=FieldMap(id="x")))
    for outside in ("../a", "/etc"):
        with pytest.raises(UserError, match="outside"):
            plugin(spec(tmp_path, outside))
    messages(plugin(spec(tmp_path)))
    messages(plugin(spec(tmp_path, ".")))


# --- FUNSD --------------------------------------------------------------------------------------------


def entity(number: int, label: str, text: str, *links: tuple[int, int]) -> Mapping[str, Any]:
    words = [{"text": word, "box": [0, 0, 1, 1]} for word in text.split()]
    box = [0, 0, 9, 9]
    return {
        "id": number,
        "label": label,
        "text": text,
        "box": box,
        "words": words,
        "linking": links,
    }


FORM = [
    entity(0, "header", "ORDER FORM", (0, 1)),
    entity(1, "question", "Name:", (0, 1), (1, 2)),
    entity(2, "answer", "Ann Lee", (1, 2)),
    entity(3, "question", "Colours", (3, 4), (5, 3)),
    entity(4, "answer", "red", (3, 4)),
    entity(5, "answer", "blue", (5, 3)),
    entity(6, "question", "Signature"),
    entity(7, "other", ""),
    entity(8, "question", "Date:", (8, 7), (8, 9)),
    entity(9, "answer", "  ", (8, 9)),
]


def form(folder: Path, name: str, entities: object, image: str = ".png") -> Path:
    put(folder / "images" / f"{name}{image}", b"image")
    return put(folder / "annotations" / f"{name}.json", {"form": entities})


@pytest.fixture
def funsd(tmp_path: Path) -> Path:
    form(tmp_path / "training_data", "b", FORM[:3])
    form(tmp_path / "testing_data", "d", FORM[:3])
    form(tmp_path / "testing_data", "c", FORM)
    put(tmp_path / "testing_data" / "annotations" / "._c.json", b"\x00\x05")
    put(tmp_path / "testing_data" / "images" / "unlabelled.png", b"image")
    return tmp_path


def test_funsd_pairs_follow_the_links(funsd: Path) -> None:
    dataset = Funsd(spec(funsd, "annotations", "test"))
    assert dataset.count() == 2
    first, second = samples(dataset)
    assert first.id == first.document == "test/c"
    assert first.fields == {}
    assert first.metadata == {"split": "test"}
    assert first.images == (funsd / "testing_data/images/c.png",)
    assert first.references == ({"Name:": "Ann Lee", "Colours": ["red", "blue"]},)
    assert second.references == ({"Name:": "Ann Lee"},)
    assert [sample.id for sample in dataset.iter(1, 2)] == ["test/d"]


def test_funsd_text_is_an_entity_a_line(funsd: Path) -> None:
    first = samples(Funsd(spec(funsd, split="test", task="ocr")))[0]
    expected = "ORDER FORM\nName:\nAnn Lee\nColours\nred\nblue\nSignature\nDate:"
    assert first.references == (expected,)


def test_funsd_answers_and_words_have_boxes(tmp_path: Path) -> None:
    entities: list[Any] = [dict(one) for one in FORM[1:5]]
    entities[1]["box"] = [10, 20, 30, 40]
    entities[3]["box"] = "gone"
    entities[0]["words"] = [{"text": "Name:", "box": [4, 3, 2, 1]}, {"text": "x"}]
    form(tmp_path, "a", [*entities, entity(5, "answer", "blue", (5, 3)), FORM[0]])
    (kie,) = samples(Funsd(spec(tmp_path)))
    assert boxes(kie) == [((10, 20, 30, 40), "Name:"), ((0, 0, 9, 9), "Colours")]
    (ocr,) = samples(Funsd(spec(tmp_path, task="ocr")))
    assert boxes(ocr)[0] == ((2, 1, 4, 3), "Name:")
    labels = ["Name:", "Ann", "Lee", "Colours", "red", "blue", "ORDER", "FORM"]
    assert [label for _, label in boxes(ocr)] == labels


def test_funsd_splits_are_folders(funsd: Path) -> None:
    everything = Funsd(spec(funsd))
    assert [sample.id for sample in samples(everything)] == ["test/c", "test/d", "train/b"]
    files = list(everything.files())
    assert len(files) == len(set(files)) == 6
    assert content_hash(funsd, files).startswith("sha256:")
    assert [one.id for one in samples(Funsd(spec(funsd, split="train")))] == ["train/b"]
    whole = "testing_data/annotations"
    assert Funsd(spec(funsd, whole, "test")).count() == 2
    assert "expected testing_data/annotations" in messages(Funsd(spec(funsd, whole, "train")))
    assert "of split 'dev'" in messages(Funsd(spec(funsd, split="dev")))


def test_funsd_without_split_folders(tmp_path: Path) -> None:
    form(tmp_path, "a", FORM, image=".jpeg")
    (sample,) = samples(Funsd(spec(tmp_path)))
    assert sample.id == "a"
    assert sample.metadata == {}


def test_funsd_tells_all_that_is_wrong_at_its_place(funsd: Path) -> None:
    folder = funsd / "testing_data"
    (folder / "images" / "c.png").unlink()
    put(folder / "annotations" / "d.json", '{"form": [\n  {"id": 1,\n]}')
    form(folder, "e", [entity(0, "question", "Q", (0, 17))])
    form(folder, "f", [entity(0, "question", "Q"), entity(0, "answer", "A")])
    form(folder, "g", [{"id": "x", "text": "T", "label": "other", "words": []}])
    put(folder / "annotations" / "h.json", b'{"form": "\xff"}')
    put(folder / "annotations" / "i.json", "[" * 100_000)
    put(folder / "annotations" / "j.json", "{}")
    reported = messages(Funsd(spec(funsd)))
    assert f"c.json: no image c in {folder}/images" in reported
    assert "d.json:3:1: not JSON" in reported
    assert "e.json: a link to entity 17, which does not exist" in reported
    assert "f.json: two entities have the same id" in reported
    assert "g.json: form.0.id: Input should be a valid integer" in reported
    assert "g.json: form.0.linking: Field required" in reported
    for name in ("h", "i", "j"):
        assert f"{name}.json" in reported


def test_no_more_than_twenty_problems_are_reported(tmp_path: Path) -> None:
    for number in range(25):
        put(tmp_path / "annotations" / f"{number}.json", "{")
    messages(Funsd(spec(tmp_path)))


# --- SROIE --------------------------------------------------------------------------------------------

RECEIPT = {
    "company": "SHOP SDN BHD",
    "date": "01/02/2018",
    "address": " 1, JALAN A ",
    "total": "9.00",
}
BOX = "72,25,326,25,326,64,72,64,SHOP SDN BHD\r\n\r\n50,82,440,82,440,121,50,121,1, JALAN A,\r\n"


@pytest.fixture
def sroie(tmp_path: Path) -> Path:
    for split, name in (("train", "X1"), ("test", "X3"), ("test", "X2")):
        put(tmp_path / split / "img" / f"{name}.jpg", b"image")
        put(tmp_path / split / "entities" / f"{name}.txt", RECEIPT)
        put(tmp_path / split / "box" / f"{name}.txt", BOX)
    return tmp_path


def test_sroie_reads_entities_and_boxes(sroie: Path) -> None:
    put(sroie / "test" / "entities" / "X2.txt", {"company": "A", "total": ""})
    first, second = samples(Sroie(spec(sroie, split="test")))
    assert (first.id, second.id) == ("test/X2", "test/X3")
    assert first.images == (sroie / "test/img/X2.jpg",)
    assert first.references == ({"company": "A"},)
    assert second.references == ({**RECEIPT, "address": "1, JALAN A"},)
    text = Sroie(spec(sroie, split="train", task="ocr"))
    assert samples(text)[0].references == ("SHOP SDN BHD\n1, JALAN A,",)
    assert boxes(samples(text)[0]) == [
        ((72, 25, 326, 64), "SHOP SDN BHD"), ((50, 82, 440, 121), "1, JALAN A,"),
    ]  # fmt: skip
    assert boxes(first) == []
    assert sroie / "train/box/X1.txt" in set(text.files())
    assert Sroie(spec(sroie, "entities")).count() == 3


def test_sroie_drops_bytes_that_are_no_text(sroie: Path) -> None:
    put(sroie / "train" / "box" / "X1.txt", b"1,1,2,1,2,2,1,2,TOTAL\xff 9.00\n")
    (sample,) = samples(Sroie(spec(sroie, split="train", task="ocr")))
    assert sample.references == ("TOTAL 9.00",)


def test_sroie_tells_all_that_is_wrong_at_its_place(sroie: Path) -> None:
    (sroie / "test" / "img" / "X2.jpg").unlink()
    put(sroie / "test" / "entities" / "X3.txt", '{"company": "A",\n "date"}')
    put(sroie / "train" / "entities" / "X1.txt", {"shop": "A", "total": 9})
    reported = messages(Sroie(spec(sroie)))
    assert "X2.txt: no image X2 in" in reported
    assert "X3.txt:2:8: not JSON" in reported
    assert "X1.txt: shop" in reported
    assert "X1.txt: total: Input should be a valid string" in reported
    put(sroie / "train" / "box" / "X1.txt", BOX + "1,2,3,TOTAL\n")
    reported = messages(Sroie(spec(sroie, split="train", task="ocr")))
    assert "X1.txt:4: not x1,y1,…,x4,y4,text" in reported
    with pytest.raises(UserError, match="task"):
        Sroie(spec(sroie, task="vqa"))


# --- OmniDocBench -------------------------------------------------------------------------------------


def block(kind: str, order: int | None, **rest: Any) -> Mapping[str, Any]:
    return {
        "category_type": kind,
        "order": order,
        "ignore": False,
        "anno_id": 1,
        "poly": [0.0] * 8,
        **rest,
    }


def page(image: str, *blocks: Mapping[str, Any], **traits: Any) -> Mapping[str, Any]:
    info = {"page_no": 3, "height": 9, "width": 9, "image_path": image, "page_attribute": traits}
    return {"page_info": info, "layout_dets": blocks, "extra": {"relation": []}}


def omnidocbench(folder: Path, *pages: object) -> OmniDocBench:
    put(folder / "OmniDocBench.json", list(pages))
    return OmniDocBench(spec(folder, "OmniDocBench.json"))


def test_omnidocbench_is_markdown_in_reading_order(tmp_path: Path) -> None:
    put(tmp_path / "images" / "b_eng_page_003.png", b"image")
    put(tmp_path / "a.pdf_7.jpg", b"image")
    dataset = omnidocbench(
        tmp_path,
        page(
            "b_eng_page_003.png",
            block("text_block", 10, text="Last."),
            block("title", 0, text="# Results"),
            block("table", 2, html="<table></table>", latex="\\begin{tabular}"),
            block("text_block", 1, text="First.\n"),
            block("equation_isolated", 3, latex="$$x=5\\$$$"),
            block("equation_isolated", 4, latex="\\[ y \\]"),
            block("equation_isolated", 5, latex="z"),
            block("code_txt", 6, text="a = 1"),
            block(
                "text_block",
                7,
                merge_list=[block("text_block", 7, text="- x"), block("text_block", 8)],
            ),
            block("figure", 8, text=None),
            block("title", 9),
            block("header", 9, text="HEADER"),
            block("page_number", None, text="3"),
            block("text_mask", 9, text="MASK") | {"ignore": True},
            data_source="book",
            fuzzy_scan=False,
            special_issue=["watermark"],
        ),
        page("a.pdf_7.jpg", block("text_block", 0, text="Text")),
    )
    first, second = samples(dataset)
    assert (first.id, first.document, first.references) == ("a.pdf_7.jpg", "a", ("Text",))
    assert first.images == (tmp_path / "a.pdf_7.jpg",)
    assert second.document == "b_eng"
    assert second.metadata == {"data_source": "book", "fuzzy_scan": False}
    assert second.references[0].split("\n\n") == [
        "# Results", "First.", "<table></table>", "$$x=5\\$$$", "$$y$$", "$$z$$",
        "```\na = 1\n```", "- x", "Last.",
    ]  # fmt: skip
    assert content_hash(tmp_path, dataset.files()).startswith("sha256:")
    assert samples(OmniDocBench(spec(tmp_path))) == [first, second]


def test_omnidocbench_blocks_of_the_reference_have_boxes(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.png", b"image")
    poly = [1.5, 2, 7, 2, 7, 4, 1.5, 4]
    blocks = [
        block("title", 1, text="A", poly=poly), block("figure", 2, poly=poly),
        block("text_block", 3, text="B", poly=None), block("text_block", None, text="C", poly=poly),
    ]  # fmt: skip
    (one,) = samples(omnidocbench(tmp_path, page("a.png", *blocks)))
    assert boxes(one) == [((1.5, 2, 7, 4), "title")]
    assert one.boxes is not None
    assert one.boxes().size == (9, 9)


def test_omnidocbench_tells_what_is_wrong(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.png", b"image")
    put(tmp_path.parent / "secret.png", b"image")
    reported = messages(omnidocbench(tmp_path, page("a.png"), page("b.png"), page("../secret.png")))
    assert "OmniDocBench.json:2: no image b.png in" in reported
    assert "image ../secret.png lies outside" in reported
    assert "OmniDocBench.json:2: pages 1 and 2 share the image a.png" in messages(
        omnidocbench(tmp_path, page("a.png"), page("a.png"))
    )
    reported = messages(omnidocbench(tmp_path, {"layout_dets": []}, page("a.png", {"order": "x"})))
    assert "OmniDocBench.json:1: page_info.image_path: Field required" in reported
    assert "OmniDocBench.json:2: layout_dets.0.category_type: Field required" in reported
    put(tmp_path / "OmniDocBench.json", "[\n{]")
    assert "OmniDocBench.json:2:2: not JSON" in messages(OmniDocBench(spec(tmp_path)))
    put(tmp_path / "OmniDocBench.json", "null")
    assert "valid list" in messages(OmniDocBench(spec(tmp_path)))
    put(tmp_path / "OmniDocBench.json", "[]")
    assert "no sample" in messages(OmniDocBench(spec(tmp_path)))
    assert "has no splits" in messages(OmniDocBench(spec(tmp_path, split="test")))


# --- what is bad --------------------------------------------------------------------------------------


def kept_and_bad(plugin: Any, folder: Path, **options: Any) -> tuple[list[str], list[str]]:
    dataset = plugin(DatasetSpec(folder, "", on_bad="skip", options=options))
    reported = [str(one).replace(f"{folder}/", "") for one in dataset.bad()]
    return [sample.id for sample in samples(dataset)], reported


def test_pages_that_cannot_be_samples_are_skipped_where_that_is_wanted(
    funsd: Path, tmp_path: Path
) -> None:
    put(funsd / "testing_data/annotations/c.json", "{")
    form(funsd / "testing_data", "e", [entity(0, "question", "Q", (0, 17), (0, 18))])
    kept, reported = kept_and_bad(Funsd, funsd)
    assert kept == ["test/d", "train/b"]
    assert [one.partition(": ")[0] for one in reported] == [
        "testing_data/annotations/c.json:1:2", "testing_data/annotations/e.json",
    ]  # fmt: skip


def test_omnidocbench_skips_pages_too(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.png", b"image")
    right = page("a.png", block("text_block", 0, text="Text"))
    omnidocbench(tmp_path, {"layout_dets": []}, page("gone.png"), right, right)
    kept, reported = kept_and_bad(OmniDocBench, tmp_path)
    assert kept == ["a.png"]
    assert [one.partition(": ")[0] for one in reported] == [
        "OmniDocBench.json:1", "OmniDocBench.json:4", "OmniDocBench.json:2",
    ]  # fmt: skip


def test_a_broken_image_is_reported_with_its_annotations(sroie: Path) -> None:
    (first, *_) = unreadable(Sroie(spec(sroie, split="test")))
    assert f"{sroie}/test/entities/X2.txt: sample 'test/X2': " in str(first.problem)


def test_nothing_left_is_reported_even_where_all_is_skipped(sroie: Path) -> None:
    for file in sroie.glob("*/img/*"):
        file.unlink()
    with pytest.raises(UserError, match=r"no sample\n.*X2.txt: no image X2"):
        kept_and_bad(Sroie, sroie)


def test_a_page_of_which_there_is_nothing_to_score_is_bad(sroie: Path, tmp_path: Path) -> None:
    put(sroie / "test" / "entities" / "X2.txt", {"company": " "})
    put(sroie / "test" / "box" / "X3.txt", "\n")
    reported = messages(Sroie(spec(sroie)))
    assert "X2.txt: nothing to score: the reference is empty (`on_bad: skip`" in reported
    assert "X3.txt: nothing to score" in messages(Sroie(spec(sroie, task="ocr")))
    form(tmp_path / "forms", "f", FORM[6:8])
    assert "f.json: nothing to score" in messages(Funsd(spec(tmp_path / "forms")))
    put(tmp_path / "omni" / "images" / "a.png", b"image")
    assert "nothing to score" in messages(omnidocbench(tmp_path / "omni", page("a.png")))


def test_suffixes_may_be_in_capitals(sroie: Path) -> None:
    for file in (*sroie.glob("*/img/*"), *sroie.glob("*/entities/*")):
        file.rename(file.with_suffix(file.suffix.upper()))
    assert Sroie(spec(sroie)).count() == 3


def test_bad_pages_of_omnidocbench_stand_where_their_names_are_sorted(tmp_path: Path) -> None:
    """Samples come by the names of their images, so the line of a bad page does not give its place."""
    for name in "abz":
        put(tmp_path / "images" / f"{name}.png", b"image")
    good = (block("text_block", 0, text="x"),)
    pages = [page("z.png"), page("b.png", *good), page("0.png", *good), page("a.png", *good)]
    put(tmp_path / "OmniDocBench.json", pages)
    dataset = OmniDocBench(DatasetSpec(tmp_path, "", on_bad="skip"))
    assert [sample.id for sample in samples(dataset)] == ["a.png", "b.png"]
    assert [one.line for one in dataset.bad()] == [3, 1]
    for last in (0, 1):
        assert [one.line for one in bad_before(dataset, last)] == [3]
