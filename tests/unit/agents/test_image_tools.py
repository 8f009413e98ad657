"""Tools that make images: boxes, sizes, turns, and images that cannot be read."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hpcbench.agents.image_tools import MOST_SIDE, Crop, Page, Rotate, Zoom, pixels
from hpcbench.plugins import ToolContext, ToolError
from hpcbench.testing import check


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 × 50 pixels; each pixel has its place as its colour."""
    image = Image.new("RGB", (100, 50))
    image.putdata([(x, y, 7) for y in range(50) for x in range(100)])
    path = tmp_path_factory.mktemp("page") / "page.png"
    image.save(path)
    return path


def called(tool: Any, path: Path, **arguments: Any) -> tuple[str, Image.Image]:
    cls = type(tool)
    text, data = tool.call(cls.Arguments.model_validate(arguments), ToolContext((path,)))
    return text, Image.open(io.BytesIO(data))


@pytest.mark.parametrize("cls", [Crop, Zoom, Rotate, Page])
def test_the_contract_of_tools(cls: Any, tmp_path: Path) -> None:
    check("tools", cls, tmp_path)


def test_a_part_has_the_pixels_of_its_box(page: Path) -> None:
    text, part = called(Crop({}), page, box=[100, 200, 300, 600])
    assert text == "Part of image 1, 20 × 20 pixels."
    assert (part.size, part.getpixel((0, 0)), part.getpixel((19, 19))) == (
        (20, 20), (10, 10, 7), (29, 29, 7),
    )  # fmt: skip


def test_an_enlarged_part_says_its_size(page: Path) -> None:
    text, part = called(Zoom({}), page, box=[0, 0, 500, 1000], factor=3)
    assert (text, part.size) == ("Part of image 1, enlarged 3 times, 150 × 150 pixels.", (150, 150))


def test_a_part_that_would_be_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.png"
    Image.new("L", (MOST_SIDE, 1)).save(path)
    with pytest.raises(ToolError, match="use a smaller box or factor"):
        called(Zoom({}), path, box=[0, 0, 1000, 1000], factor=2)


@pytest.mark.parametrize(
    ("degrees", "corner"),
    [(0, (0, 0)), (90, (0, 49)), (180, (99, 49)), (270, (99, 0)), (-90, (99, 0))],
)
def test_a_quarter_turn_is_exact_and_clockwise(
    page: Path, degrees: int, corner: tuple[int, int]
) -> None:
    text, turned = called(Rotate({}), page, degrees=degrees)
    assert turned.size == ((100, 50) if degrees % 180 == 0 else (50, 100))
    assert turned.getpixel((0, 0)) == (*corner, 7)
    assert text.startswith(f"Image 1 turned by {degrees} degrees, ")


def test_any_other_turn_keeps_the_whole_image(page: Path) -> None:
    _, turned = called(Rotate({}), page, degrees=45)
    assert turned.width > 100 and turned.height > 100
    assert turned.getpixel((0, 0)) == (255, 255, 255)


def test_a_page_is_given_as_its_file_is(page: Path) -> None:
    text, data = Page({}).call(Page.Arguments(number=1), ToolContext((page,)))
    assert (text, data) == ("Page 1, 100 × 50 pixels.", page.read_bytes())


def test_a_page_that_engines_do_not_read_becomes_png(tmp_path: Path) -> None:
    path = tmp_path / "page.tif"
    Image.new("1", (10, 20), 1).save(path)
    _, data = Page({}).call(Page.Arguments(number=1), ToolContext((path,)))
    assert Image.open(io.BytesIO(data)).format == "PNG"


def test_a_photo_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    path, exif = tmp_path / "photo.jpg", Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (100, 50)).save(path, exif=exif)
    _, part = called(Crop({}), path, box=[0, 0, 1000, 1000])
    assert part.size == (50, 100)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"])
def test_every_mode_of_colours_can_be_shown(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("page.tif" if mode in ("CMYK", "F") else "page.png")
    Image.new(mode, (10, 10)).save(path)
    for tool, more in ((Crop({}), {"box": [0, 0, 500, 500]}), (Rotate({}), {"degrees": 30})):
        _, part = called(tool, path, **more)
        assert part.mode in ("L", "RGB")


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\nshort"])
def test_what_is_no_image_is_reported(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "page.png"
    path.write_bytes(data)
    with pytest.raises(ToolError, match="the image cannot be read"):
        called(Crop({}), path, box=[0, 0, 9, 9])
    with pytest.raises(ToolError, match="the page cannot be read"):
        called(Page({}), path, number=1)


def test_an_image_that_fills_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Image, "MAX_IMAGE_PIXELS", 89_478_485
    )  # Pillow's own, as in a tool's process
    path = tmp_path / "bomb.png"
    Image.new("1", (30, 30)).save(path)
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack(
        ">2I", 30_000, 30_000
    )  # its width and height, as the header states them
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    path.write_bytes(data)
    with pytest.raises(ToolError, match="the image cannot be read: .* exceeds limit"):
        called(Crop({}), path, box=[0, 0, 9, 9])


@pytest.mark.parametrize(
    ("box", "reported"),
    [
        ([0, 0, 1200, 800], "thousandths of width and height, not pixels"),
        ([-1, 0, 5, 5], "thousandths"),
        ([5, 0, 5, 5], "the box is empty"),
        ([5, 6, 9, 5], "the box is empty"),
    ],
)
def test_a_wrong_box_is_reported(page: Path, box: list[int], reported: str) -> None:
    with pytest.raises(ToolError, match=reported):
        called(Crop({}), page, box=box)


sides = st.integers(1, 20_000)
places = st.integers(0, 1000)


@given(sides, sides, places, places, places, places)
def test_a_box_is_inside_the_image_and_covers_its_share(
    width: int, height: int, a: int, b: int, c: int, d: int
) -> None:
    if a == c or b == d:
        return
    box = [min(a, c), min(b, d), max(a, c), max(b, d)]
    left, top, right, bottom = pixels(box, width, height)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert left <= box[0] * width / 1000 and right >= box[2] * width / 1000
    assert right - left < (box[2] - box[0]) * width / 1000 + 2
    assert pixels([0, 0, 1000, 1000], width, height) == (0, 0, width, height)


def test_a_page_that_is_not_there_is_called_a_page(page: Path) -> None:
    with pytest.raises(ToolError, match="there is no page 2; the last one is 1"):
        called(Page({}), page, number=2)
