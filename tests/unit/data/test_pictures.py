"""Pictures and pages that are damaged, huge or hostile cost their sample alone; odd ones look right."""

from __future__ import annotations

import array
import io
import json
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench import plugins
from hpcbench.data import pages
from hpcbench.data.datasets import unreadable
from hpcbench.data.pictures import fault_of, flat, picture_of
from hpcbench.errors import UserError
from hpcbench.inference.request_body import read_image
from hpcbench.plugins import DatasetIterator, DatasetSpec
from hpcbench.schema.records import Sample, StoredImage


def table_of(folder: Path, *images: str, **more: Any) -> DatasetIterator:
    rows = [
        {"id": str(number), "images": [image], "references": ["x"]}
        for number, image in enumerate(images)
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = DatasetSpec(folder, "a.jsonl", **more)
    made: DatasetIterator = plugins.load("datasets", "table")(spec)
    return made


def everything(iterator: DatasetIterator) -> list[Sample]:
    return list(iterator.iter(0, iterator.count()))


def reported(iterator: DatasetIterator) -> dict[int, str]:
    return {one.index: str(one.problem) for one in unreadable(iterator)}


def pdf(*objects: str) -> bytes:
    """A PDF of these objects, the first of which is its catalogue."""
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{one}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{table}trailer\n"
    end += f"<< /Size {len(places) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + end.encode()


def pdf_of(kids: str, count: int, width: int = 72) -> bytes:
    return pdf(
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {width}] >>",
    )


def png_of(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and hardly takes any room."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(height * ((width + 7) // 8 + 1)), 1) if width < 20_000 else b""
    magic = b"\x89PNG\r\n\x1a\n"
    return magic + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def tiff_of(width: int, height: int) -> bytes:
    """A TIFF of one strip that says so, and has ten bytes of it."""
    tags = [
        (256, width), (257, height), (258, 1), (259, 1), (262, 1), (273, 8), (277, 1), (278, height),
        (279, 10),
    ]  # fmt: skip
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    start = struct.pack("<I", 8) + struct.pack("<H", len(tags))
    return b"II*\0" + start + body + struct.pack("<I", 0)


def noise(form: str, size: tuple[int, int] = (300, 300)) -> bytes:
    out = io.BytesIO()
    Image.effect_noise(size, 50).save(out, form)
    return out.getvalue()


# --- pages ----------------------------------------------------------------------------------------------


def test_pages_that_cannot_be_loaded_or_are_huge_are_reported_before_anything_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "half.pdf").write_bytes(pdf_of("3 0 R 9 0 R", 2))
    (tmp_path / "huge.pdf").write_bytes(pdf_of("3 0 R", 1, 200_000))
    table = table_of(tmp_path, "half.pdf#page=1", "half.pdf", "huge.pdf")
    found = reported(table)
    assert list(found) == [1, 2]
    assert "a.jsonl:2: sample '1': half.pdf#page=2: " in found[1]
    assert "page 2 cannot be read" in found[1]
    assert "416667x416667 pixels, more than 500 million (lower the option `dpi`: " in found[2]


@pytest.mark.parametrize("cached", [True, False])
def test_a_page_that_cannot_be_rendered_is_an_answer_and_no_end_of_the_worker(
    tmp_path: Path, cached: bool
) -> None:
    (tmp_path / "half.pdf").write_bytes(pdf_of("3 0 R 9 0 R", 2))
    (tmp_path / "huge.pdf").write_bytes(pdf_of("3 0 R", 1, 200_000))
    more = {"cache": tmp_path / "cache"} if cached else {}
    table = table_of(tmp_path, "half.pdf#page=2", "huge.pdf", "half.pdf#page=1", **more)
    *broken, good = everything(table)
    for sample in broken:
        with pytest.raises(OSError, match="cannot be read|more than 500 million"):
            read_image(sample.images[0])
    assert read_image(good.images[0])


def test_a_page_that_is_opened_alone_is_rendered_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.pdf").write_bytes(pdf_of("3 0 R 3 0 R 3 0 R", 3))
    (sample,) = everything(table_of(tmp_path, "d.pdf", cache=tmp_path / "cache"))
    page = pages.page_of(sample.images[1])
    assert page is not None
    rendered: list[int] = []
    whole = pages._Pdf.picture
    monkeypatch.setattr(
        pages._Pdf,
        "picture",
        lambda self, number, dpi: rendered.append(number) or whole(self, number, dpi),  # type: ignore[func-returns-value]
    )
    assert page.alone() == page.pages.png(tmp_path / "d.pdf", 2)
    assert rendered == [2, 2]
    assert not (tmp_path / "cache").exists()


def test_a_document_is_read_once_whose_pages_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.pdf").write_bytes(pdf_of("3 0 R 3 0 R", 2))
    (sample,) = everything(table_of(tmp_path, "d.pdf", cache=tmp_path / "cache"))
    first = [read_image(image) for image in sample.images]
    tree = pages.page_of(sample.images[0]).pages.tree  # type: ignore[union-attr]
    monkeypatch.setattr(tree, "read", lambda path: pytest.fail(f"{path} was read again"))
    assert [read_image(image) for image in sample.images] == first


def test_another_version_of_pdfium_renders_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.pdf").write_bytes(pdf_of("3 0 R", 1))
    (sample,) = everything(table_of(tmp_path, "d.pdf", cache=tmp_path / "cache"))
    read_image(sample.images[0])
    monkeypatch.setattr(pages.importlib.metadata, "version", lambda name: "99")
    pages.pdfium_version.cache_clear()
    read_image(sample.images[0])
    pages.pdfium_version.cache_clear()
    assert len(list((tmp_path / "cache").glob("*.zip"))) == 2


def test_a_cache_of_pages_that_is_damaged_or_full_costs_time_alone(tmp_path: Path) -> None:
    (tmp_path / "d.pdf").write_bytes(pdf_of("3 0 R", 1))
    (tmp_path / "file").touch()
    for cache in (tmp_path / "cache", tmp_path / "file"):
        (sample,) = everything(table_of(tmp_path, "d.pdf", cache=cache))
        good = read_image(sample.images[0])
        for archive in cache.glob("*.zip") if cache.is_dir() else ():
            archive.write_bytes(b"PK")
        assert read_image(sample.images[0]) == good


def test_a_large_scan_is_a_page_and_one_too_large_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a0.tif").write_bytes(tiff_of(14_000, 14_000))
    (tmp_path / "wall.tif").write_bytes(tiff_of(40_000, 40_000))
    Image.new("L", (8, 8)).save(tmp_path / "good.tif")
    table = table_of(tmp_path, "a0.tif", "wall.tif", "good.tif")
    assert len(everything(table)) == 3
    found = reported(table)
    assert list(found) == [1]
    assert "more than 500 million pixels (scale it down)" in found[1]


def test_a_tiff_that_is_cut_off_is_a_bad_row(tmp_path: Path) -> None:
    whole = noise("TIFF")
    (tmp_path / "whole.tif").write_bytes(whole)
    (tmp_path / "cut.tif").write_bytes(whole[:-100])
    (tmp_path / "junk.tif").write_bytes(whole[:40])
    found = reported(table_of(tmp_path, "whole.tif", "cut.tif", "junk.tif"))
    assert list(found) == [1, 2]
    assert "cut.tif: page 1 cannot be read: image file is truncated" in found[1]


# --- pictures -------------------------------------------------------------------------------------------


def test_a_picture_may_be_as_large_as_documents_are(tmp_path: Path) -> None:
    assert fault_of(png_of(14_000, 14_000)) is None
    found = fault_of(png_of(40_000, 40_000))
    assert found is not None
    assert "more than 500 million" in found
    with pytest.raises(UserError, match="more than 500 million"):
        picture_of(png_of(25_000, 25_000))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_an_image_that_is_cut_off_is_found(form: str, tmp_path: Path) -> None:
    whole = noise(form)
    file = tmp_path / "page"
    assert fault_of(whole) is None
    file.write_bytes(whole)
    assert fault_of(file) is None
    for part in (0.9, 0.5, 0.1):
        cut = whole[: int(len(whole) * part)]
        file.write_bytes(cut)
        assert fault_of(cut) is not None, part
        assert fault_of(file) is not None, part


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF"])
def test_bytes_behind_an_image_are_no_damage(form: str) -> None:
    assert fault_of(noise(form) + b"\0made by a scanner") is None


def test_whatever_an_image_raises_is_its_sample_s_fault() -> None:
    def foreign() -> bytes:
        raise MemoryError

    for image in (StoredImage("p", foreign), b"", b"BM", b"II*\0" + bytes(9), Path("/")):
        assert fault_of(image) is not None


# --- colours --------------------------------------------------------------------------------------------


def values(picture: Any) -> Sequence[int]:
    return list(picture.convert("L").tobytes())


def a_ramp(mode: str) -> Any:
    """From black to white in 16 steps of 16 bits."""
    numbers = array.array("H", [step * 4369 for step in range(16)])
    if mode == "I;16B":
        numbers.byteswap()
    return Image.frombytes(mode, (16, 1), numbers.tobytes())


@pytest.mark.parametrize("mode", ["I;16", "I;16B"])
def test_a_scan_of_sixteen_bits_keeps_its_greys(mode: str, tmp_path: Path) -> None:
    assert values(flat(a_ramp(mode))) == [step * 17 for step in range(16)]
    a_ramp("I;16").save(tmp_path / "s.tif")
    (sample,) = everything(table_of(tmp_path, "s.tif"))
    with Image.open(io.BytesIO(read_image(sample.images[0]))) as page:
        assert values(page) == [step * 17 for step in range(16)]


def test_thirty_two_bits_of_small_numbers_stay_what_they_are() -> None:
    assert values(flat(Image.new("I", (1, 1), 200))) == [200]
    assert values(flat(Image.new("I", (1, 1), 200 * 256))) == [200]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white(mode: str, tmp_path: Path) -> None:
    clear = Image.new(mode, (2, 2), (0,) * len(mode))
    clear.save(tmp_path / "t.tif")
    (sample,) = everything(table_of(tmp_path, "t.tif"))
    with Image.open(io.BytesIO(read_image(sample.images[0]))) as page:
        assert values(page) == [255] * 4
    assert values(flat(Image.new("1", (1, 1), 1))) == [255]


def test_threads_that_ask_of_one_document_open_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.pdf").write_bytes(pdf_of("3 0 R 3 0 R", 2))
    table = table_of(tmp_path, *(["d.pdf"] * 8))
    everything(table)  # pages are counted here
    whole, times = pages._opened, list[Path]()

    def slowly(path: Path, data: bytes) -> Any:
        times.append(path)
        time.sleep(0.05)
        return whole(path, data)

    monkeypatch.setattr(pages, "_opened", slowly)
    assert list(unreadable(table)) == []
    assert len(times) == 1


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_tiff_that_is_damaged_in_its_middle_is_reported_with_its_page(
    mode: str, tmp_path: Path
) -> None:
    out = io.BytesIO()
    noisy = Image.effect_noise((400, 400), 90)
    picture = noisy if mode == "L" else Image.merge(mode, [noisy] * len(mode))
    picture.save(out, "TIFF", compression="tiff_lzw")
    data = bytearray(out.getvalue())
    data[2000:2400] = bytes(255 - one for one in data[2000:2400])
    (tmp_path / "d.tif").write_bytes(data)
    (sample,) = everything(table_of(tmp_path, "d.tif"))
    with pytest.raises(UserError, match=r"d\.tif: page 1 cannot be read: "):
        pages.page_of(sample.images[0]).alone()  # type: ignore[union-attr]
