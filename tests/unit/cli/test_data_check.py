"""Findings of a look at a dataset: damage in the middle, rows that come twice, pages turned upright."""

from __future__ import annotations

import array
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench import plugins
from hpcbench.data.check import Card, Survey, sheet_html, sheet_png, survey
from hpcbench.plugins import DatasetSpec
from tests.unit.command import Cli


def examined(folder: Path, *rows: dict[str, Any], **more: Any) -> tuple[Survey, list[Card]]:
    written = [{"id": str(number), "references": ["x"], **row} for number, row in enumerate(rows)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    return survey(plugins.load("datasets", "table")(DatasetSpec(folder, "a.jsonl", **more)))


def picture(path: Path, colour: int = 200) -> None:
    Image.new("L", (40, 30), colour).save(path)


def damaged(path: Path) -> None:
    """A PNG with a wrong byte in its middle: its beginning and its end are as they should be."""
    out = io.BytesIO()
    Image.effect_noise((300, 300), 50).save(out, "PNG")
    data = bytearray(out.getvalue())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def test_an_image_that_is_damaged_in_its_middle_is_reported(tmp_path: Path) -> None:
    picture(tmp_path / "good.png")
    damaged(tmp_path / "bad.png")
    found, cards = examined(tmp_path, {"images": ["good.png"]}, {"images": ["good.png", "bad.png"]})
    (one,) = found.bad
    assert one["message"].startswith(f"sample '1': {tmp_path}/bad.png: it is damaged")
    assert (one["file"], one["line"]) == (str(tmp_path / "a.jsonl"), 2)
    assert [card.thumbnail is None for card in cards] == [False, True]


def test_the_same_question_about_the_same_image_is_a_duplicate(tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        picture(tmp_path / f"{name}.png", min(number, 1))
    rows = [("b.png", "total?"), ("c.png", "total?"), ("b.png", "date?"), ("a.png", "total?")]
    found, _ = examined(
        tmp_path, *({"images": [image], "fields": {"question": asked}} for image, asked in rows)
    )
    assert found.same_samples == [["0", "1"]]
    assert found.same_images == [["0", "1"]]


def test_images_behind_the_first_and_pages_of_documents_are_compared_too(tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        picture(tmp_path / f"{name}.png", number)
    pages = [Image.new("RGB", (60, 80), (number, 0, 0)) for number in range(2)]
    for name in ("d", "copy"):
        pages[0].save(tmp_path / f"{name}.tif", save_all=True, append_images=pages[1:])
    found, _ = examined(
        tmp_path, {"images": ["a.png", "c.png"]}, {"images": ["b.png", "c.png"]},
        {"images": ["d.tif#page=2"]}, {"images": ["copy.tif"]},
    )  # fmt: skip
    assert found.same_images == [["0", "1"], ["2", "3"]]
    assert found.same_samples == []


def shown(card: Card) -> Any:
    assert card.thumbnail is not None
    return Image.open(io.BytesIO(card.thumbnail))


def test_the_sheet_shows_images_upright_and_with_their_greys(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[274] = 6
    Image.new("RGB", (40, 20), "red").save(tmp_path / "turned.jpg", exif=turned)
    grey = array.array("H", [32_768] * 64).tobytes()
    Image.frombytes("I;16", (8, 8), grey).save(tmp_path / "deep.png")
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    names = ("turned.jpg", "deep.png", "clear.png")
    _, cards = examined(tmp_path, *({"images": [name]} for name in names))
    upright, deep, clear = map(shown, cards)
    assert upright.size == (20, 40)
    assert deep.getpixel((0, 0)) == (128, 128, 128)
    assert clear.getpixel((0, 0)) == (255, 255, 255)


def test_half_a_character_is_shown_as_none(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    row = {
        "id": "\ud83d", "images": ["a.png"], "references": ["\ud800"], "document": "\ud83d",
        "fields": {"question": "\udfff?", "\ud83d": 1}, "metadata": {"\ud83d": "\ud83d"},
    }  # fmt: skip
    gone = {**row, "id": "\ud83e", "images": ["\ud83d.png"]}
    found, cards = examined(tmp_path, row, {**row, "id": "\ud83f"}, gone)
    assert len(found.same_samples) == len(found.bad) == 1
    json.dumps(asdict(found), ensure_ascii=False).encode()
    assert "?" in sheet_html("d", found, cards)
    sheet_html("d", found, cards).encode()
    assert sheet_png(cards)


def test_what_is_bad_is_printed_with_its_file_where_it_has_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    data, registry = tmp_path / "data", tmp_path / "registry"
    (data / "test/img").mkdir(parents=True)
    (data / "test/entities").mkdir()
    (registry / "datasets").mkdir(parents=True)
    for name in "ab":
        (data / f"test/entities/{name}.txt").write_text(json.dumps({"company": name}))
    picture(data / "test/img/a.jpg")
    document = {"schema_version": 1, "name": "bills", "source": str(data), "iterator": "sroie"}
    (registry / "datasets/bills.yaml").write_text(json.dumps(document))
    out = str(tmp_path / "out")
    printed = cli("data", "check", "bills", "--registry", registry, "--out", out, code=1)
    assert f"{data}/test/entities/b.txt: no image b in" in printed
    assert (tmp_path / "out/sheet.png").exists()
