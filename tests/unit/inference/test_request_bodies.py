"""Requests as bytes: images arrive as they lie, wherever they come from."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from pathlib import Path

import pytest
from PIL import Image, features

from hpcbench.inference.cache_busting import as_new, new_image
from hpcbench.inference.request_body import hash_and_encode, prepare
from hpcbench.schema.records import StoredImage
from tests.mock_openai import Script, image_hashes
from tests.unit.inference.talking import answer, request


def test_images_arrive_byte_for_byte_in_their_order(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    files[0].write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    files[1].write_bytes(b"\xff\xd8\xff" + b"\0" * 1_500_000)  # above aiohttp's limit for bytes
    response, server = answer(Script(), *files)
    hashes = tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    assert response.image_sha256 == hashes
    assert tuple(image_hashes(server.seen[0]["raw"])) == hashes
    content = json.loads(server.seen[0]["raw"])["messages"][1]["content"]
    assert [part["type"] for part in content] == ["image_url", "image_url", "text"]


@pytest.mark.parametrize(
    ("magic", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"II*\0", "image/tiff"),
        (b"MM\0*", "image/tiff"),
        (b"GIF89a", "image/gif"),
        (b"BM\0\0", "image/bmp"),
        (b"%PDF", "application/octet-stream"),
    ],
)
def test_the_kind_of_image_is_read_from_its_first_bytes(
    tmp_path: Path, magic: bytes, mime: str
) -> None:
    file = tmp_path / "page.xyz"
    file.write_bytes(magic)
    body, _ = prepare("tiny", request("s1", file))
    url = json.loads(body)["messages"][1]["content"][0]["image_url"]["url"]
    assert url.startswith(f"data:{mime};base64,")


def test_an_image_that_cannot_be_read_is_invalid_without_a_request(tmp_path: Path) -> None:
    empty = tmp_path / "empty.png"
    empty.touch()
    for path, why in (
        (tmp_path / "no.png", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (empty, "the image is empty"),
    ):
        response, server = answer(Script(), path)
        assert response.outcome == "invalid"
        assert response.error == f"image {path} cannot be read: {why}"
        assert (response.tries, server.seen, response.image_sha256) == (0, [], ())


def test_an_image_that_a_library_breaks_over_is_invalid_and_ends_nothing() -> None:
    for error, why in (
        (MemoryError(), "MemoryError"),
        (RuntimeError("Failed to load page."), "Failed to"),
    ):

        def read(error: Exception = error) -> bytes:
            raise error

        response, server = answer(Script(), StoredImage("d.pdf#page=2", read))
        assert response.outcome == "invalid"
        assert f"image d.pdf#page=2 cannot be read: {why}" in str(response.error)
        assert server.seen == []


def test_an_image_that_cannot_be_read_does_not_end_a_warm_up(tmp_path: Path) -> None:
    asked = request("s1", tmp_path / "no.png")
    assert as_new(asked).messages[1].images == (tmp_path / "no.png",)


def test_encoding_in_pieces_is_encoding() -> None:
    for size in (0, 1, 2, 3, 49_151, 49_152, 49_153, 200_000):
        data = bytes(range(251)) * (size // 251 + 1)
        digest, encoded = hash_and_encode(data[:size])
        assert b"".join(encoded) == base64.b64encode(data[:size])
        assert digest == hashlib.sha256(data[:size]).hexdigest()


def test_images_below_a_folder_the_engine_can_read_go_as_files(tmp_path: Path) -> None:
    root, other = tmp_path / "da ta", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    inside, outside, link = root / "ä 1.png", other / "b.png", root / "link.png"
    inside.write_bytes(b"\x89PNG\r\n\x1a\ninside")
    outside.write_bytes(b"\x89PNG\r\n\x1a\noutside")
    link.symlink_to(outside)
    response, server = answer(Script(), inside, outside, link, files_under=root)
    content = json.loads(server.seen[0]["raw"])["messages"][1]["content"]
    urls = [part["image_url"]["url"] for part in content[:3]]
    assert urls[0] == f"file://{tmp_path}/da%20ta/%C3%A4%201.png"
    assert all(url.startswith("data:image/png;base64,") for url in urls[1:])  # a link may lead out
    files = (inside, outside, link)
    assert response.image_sha256 == tuple(
        hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    )


KINDS = ["PNG", "JPEG", "GIF", "TIFF", "BMP"] + (["WEBP"] if features.check("webp") else [])


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_becomes_new_without_a_changed_pixel(kind: str) -> None:
    picture = Image.effect_noise((64, 48), 80).convert("L" if kind == "GIF" else "RGB")
    file = io.BytesIO()
    picture.save(file, kind)
    old = file.getvalue()
    new = new_image(old, b"nonce-of-this-run")
    assert new is not None
    assert hashlib.sha256(new).digest() != hashlib.sha256(old).digest()
    before, after = Image.open(io.BytesIO(old)), Image.open(io.BytesIO(new))
    assert (after.format, after.size, after.mode) == (before.format, before.size, before.mode)
    assert after.tobytes() == before.tobytes()


@pytest.mark.parametrize(
    "data", [b"%PDF-1.7", b"\xff\xd8\xffcut off", b"RIFF\1\0\0\0WEBPVP8 ", b""]
)
def test_an_image_that_might_look_different_is_left_alone(data: bytes) -> None:
    assert new_image(data, b"nonce") is None


def test_a_question_becomes_new_with_its_images(tmp_path: Path) -> None:
    page, text = tmp_path / "a.png", tmp_path / "b.pdf"
    Image.new("L", (8, 8)).save(page)
    text.write_bytes(b"%PDF")
    old = request("s1", page, text)
    one, two = as_new(old), as_new(old)
    images = [asked.messages[1].images for asked in (one, two)]
    assert images[0][0] != images[1][0] != page.read_bytes()
    assert images[0][1] == images[1][1] == b"%PDF"
    assert (one.sample_id, one.messages[0]) == (old.sample_id, old.messages[0])
