"""Images of samples: what is no image is never sent, what is huge is never decoded, no link leads out."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest

from hpcbench.portal.asked_samples import DatasetReader, Gone
from hpcbench.portal.headers import finish
from hpcbench.portal.media import SIDE, Picture, Pictures, described
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.records import Image, StoredImage
from tests.unit.portal.asking import evaluated, png, portal_over
from tests.unit.portal.unguarded import unguarded
from tests.unit.small import record

ID = "20261120-1432-plan-aaaa"

SVG = (
    b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
)
HTML = b"<!doctype html><script>alert(1)</script>"


def dataset(folder: Path) -> Dataset:
    return Dataset(name="d", source=str(folder), annotations="a.jsonl")


def shown(folder: Path, image: Image, size: Any = "full") -> Picture:
    return Pictures().of(dataset(folder), image, size)


def opened(picture: Picture) -> Any:
    from PIL import Image as Pillow

    return Pillow.open(io.BytesIO(picture.data))


def put(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("form", "kind"), [("PNG", "png"), ("JPEG", "jpeg"), ("WEBP", "webp"), ("GIF", "gif")]
)
def test_forms_that_browsers_know_are_sent_as_they_are(
    tmp_path: Path, form: str, kind: str
) -> None:
    # The name says something else: what is in the file decides.
    found = shown(tmp_path, put(tmp_path, "page.html", png(form=form)))
    assert (found.data, found.kind) == (png(form=form), f"image/{kind}")


@pytest.mark.parametrize("form", ["TIFF", "BMP"])
def test_other_forms_become_png(tmp_path: Path, form: str) -> None:
    found = shown(tmp_path, put(tmp_path, "p.tif", png(form=form)))
    assert found.kind == "image/png"
    assert opened(found).format == "PNG"


@pytest.mark.parametrize("size", ["full", "thumb"])
@pytest.mark.parametrize(
    "data",
    [
        SVG, HTML, b"", b"\x89PNG\r\n\x1a\n", b"%PDF-1.4", b"GIF89a" + HTML, png()[:60],
        b"\xff\xd8\xff" + b"x" * 90, b"%!PS-Adobe-3.0 EPSF-3.0\n", b"P6 9 9 255\n",
    ],
)  # fmt: skip
def test_what_is_no_image_is_never_sent(tmp_path: Path, data: bytes, size: Any) -> None:
    try:
        found = shown(tmp_path, put(tmp_path, "p.png", data), size)
    except Gone:
        return
    # A file that is an image for a decoder may go to a browser, which takes it for nothing else.
    assert size == "full"
    assert found.kind in ("image/png", "image/gif", "image/jpeg")


def test_a_small_copy_is_drawn_again_and_keeps_nothing_of_the_file(tmp_path: Path) -> None:
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text("comment", "<script>alert(1)</script>")
    data = png(2000, 1000, pnginfo=about) + HTML
    found = shown(tmp_path, put(tmp_path, "p.png", data), "thumb")
    assert (found.kind, max(opened(found).size)) == ("image/webp", SIDE)
    assert b"script" not in found.data


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it has so many pixels, in few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1_000_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", ["full", "thumb"])
@pytest.mark.parametrize(
    ("width", "height"), [(60_000, 60_000), (2**31 - 1, 2**31 - 1), (200_000, 1_000)]
)
def test_a_picture_of_too_many_pixels_is_never_decoded(
    tmp_path: Path, width: int, height: int, size: Any
) -> None:
    path = put(tmp_path, "p.png", bomb(width, height))
    with pytest.raises(Gone, match="too large"):
        shown(tmp_path, path, size)
    assert len(list(described(dataset(tmp_path), [path]))) == 1


@pytest.mark.long
def test_a_small_copy_of_much_is_refused_where_it_would_not_fit_and_made_where_jpeg_can_be_scaled(
    tmp_path: Path,
) -> None:
    with pytest.raises(Gone, match="too large"):
        shown(tmp_path, put(tmp_path, "p.png", bomb(9_000, 9_000)), "thumb")
    large = shown(tmp_path, put(tmp_path, "p.jpg", png(9_000, 9_000, "JPEG")), "thumb")
    assert opened(large).size == (SIDE, SIDE)


def test_a_file_of_too_many_bytes_is_not_read(tmp_path: Path) -> None:
    path = put(tmp_path, "p.png", png())
    os.truncate(path, 65 << 20)
    with pytest.raises(Gone, match="65 MiB, the limit is 64 MiB"):
        shown(tmp_path, path)


# --- where files lie ---------------------------------------------------------------------------------------


def test_a_link_within_the_dataset_is_followed_and_none_out_of_it(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    inside, outside = put(data / "real", "p.png", png()), put(elsewhere, "secret.png", png())
    (data / "link.png").symlink_to(inside)
    (data / "folder").symlink_to(data / "real")
    (data / "out.png").symlink_to(outside)
    (data / "outside").symlink_to(elsewhere)
    assert shown(data, data / "link.png").kind == "image/png"
    assert shown(data, data / "folder" / "p.png").kind == "image/png"
    for path in (
        data / "out.png",
        data / "outside" / "secret.png",
        data / ".." / "elsewhere" / "secret.png",
        outside,
        Path("/etc/passwd"),
    ):
        with pytest.raises(Gone, match="outside"):
            shown(data, path)


def test_a_dataset_whose_folder_is_itself_a_link_is_shown(tmp_path: Path) -> None:
    put(tmp_path / "real", "p.png", png())
    (tmp_path / "data").symlink_to(tmp_path / "real")
    assert shown(tmp_path / "data", tmp_path / "data" / "p.png").kind == "image/png"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def nothing(path: Path) -> None:
    """It is not there."""


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, folder, nothing, device])
def test_what_is_no_file_holds_no_reader_up(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "p.png"
    make(path)
    with pytest.raises(Gone):
        shown(tmp_path, path)


def test_a_page_of_a_document_outside_the_dataset_is_not_rendered(tmp_path: Path) -> None:
    from PIL import Image as Pillow

    from hpcbench.data.pages import Pages
    from hpcbench.data.tree import Tree

    data = tmp_path / "data"
    data.mkdir()
    pages = [Pillow.new("L", (50, 60), shade) for shade in (10, 200)]
    for place in (data, tmp_path):
        pages[0].save(place / "two.tiff", save_all=True, append_images=pages[1:])
    inside = Pages(Tree(data), 72).images(data, "two.tiff")
    assert [one["page"] for one in described(dataset(data), inside)] == [1, 2]
    assert opened(shown(data, inside[1])).getpixel((5, 5)) == 200
    outside = Pages(Tree(data), 72).images(data, "../two.tiff")
    with pytest.raises(Gone, match="outside"):
        shown(data, outside[0])


def test_what_reads_an_image_may_fail_in_any_way(tmp_path: Path) -> None:
    def read() -> bytes:
        raise RuntimeError("/home/user/.ssh/id_rsa: secret")

    with pytest.raises(Gone, match="^page one cannot be read$"):
        shown(tmp_path, StoredImage("page one", read))


def test_a_picture_on_its_side_has_the_size_it_is_shown_with(tmp_path: Path) -> None:
    from PIL import Image as Pillow

    turned = Pillow.Exif()
    turned[0x0112] = 6
    path = put(tmp_path, "p.jpg", png(40, 30, "JPEG", exif=turned))
    (reported,) = described(dataset(tmp_path), [path])
    assert (reported["width"], reported["height"]) == (30, 40)
    assert opened(shown(tmp_path, path, "thumb")).size == (30, 40)


# --- over HTTP, and of all sorts of datasets ---------------------------------------------------------------


def test_images_come_by_place_and_number_with_what_keeps_them_harmless(tmp_path: Path) -> None:
    records = [record(0, images=["p.png", "q.svg"]), record(1, images=["out.png"])]
    evaluated(tmp_path, ["0", "1"], records)
    put(tmp_path / "data", "q.svg", SVG)
    (tmp_path / "data/out.png").symlink_to(put(tmp_path, "out.png", png()))
    below = f"experiments/{ID}/run-tasks/rt/samples"
    with unguarded(portal_over(tmp_path)) as api:
        detail = api.ask("GET", f"{below}/0").body
        assert [one["url"] for one in detail["images"]] == [
            f"{below}/0/images/0",
            f"{below}/0/images/1",
        ]
        assert [(one["width"], one["height"]) for one in detail["images"]] == [
            (40, 30),
            (None, None),
        ]
        first = api.raw("GET", f"{below}/0/images/0")
        assert (first.status, first.headers["content-type"]) == (200, "image/png")
        assert first.headers["cache-control"].startswith("private")
        kept = api.raw("GET", f"{below}/0/images/0", If_None_Match=first.headers["etag"])
        assert (kept.status, kept.body) == (304, b"")
        small = api.raw("GET", f"{below}/0/images/0?size=thumb")
        assert small.headers["content-type"] == "image/webp"
        for path in (f"{below}/0/images/1", f"{below}/1/images/0"):
            refused = api.ask("GET", path)
            assert (refused.status, refused.body["code"]) == (404, "not_found")
        assert api.ask("GET", f"{below}/0/images/0?size=huge").status == 422
        assert api.ask("GET", f"{below}/0/images/-1").status == 404


@pytest.mark.parametrize(
    ("kind", "wanted", "kept"),
    [
        (b"image/png", b"private, max-age=3600", "private, max-age=3600"),
        (b"image/png", b"public, max-age=3600", "no-store"),
        (b"application/json", b"private, max-age=3600", "no-store"),
    ],
)
def test_of_the_api_only_images_may_be_kept_and_by_the_browser_alone(
    kind: bytes, wanted: bytes, kept: str
) -> None:
    given = [(b"content-type", kind), (b"cache-control", wanted)]
    sent = dict(finish(given, api=True, identity="1"))
    assert sent[b"cache-control"] == kept.encode()
    assert sent[b"x-content-type-options"] == b"nosniff"


def test_images_inside_a_table_are_shown(tmp_path: Path) -> None:
    evaluated(tmp_path, ["0", "1"])
    table = {"id": ["s0", "s1"], "images": [png(), SVG], "references": [["0"], ["1"]]}
    polars.DataFrame(table).write_parquet(tmp_path / "data" / "a.parquet")
    changed(tmp_path, annotations="a.parquet")
    with unguarded(portal_over(tmp_path)) as api:
        below = f"experiments/{ID}/run-tasks/rt/samples"
        assert api.raw("GET", f"{below}/0/images/0").headers["content-type"] == "image/png"
        assert api.ask("GET", f"{below}/1/images/0").status == 404


def changed(home: Path, **dataset_has: Any) -> None:
    """Have the experiment's dataset be another one."""
    from hpcbench.experiment.layout import Experiment

    here = Experiment(home / "experiments" / ID)
    plan = here.resolved
    (one,) = plan.run_tasks
    other = one.model_copy(update={"dataset": one.dataset.model_copy(update=dataset_has)})
    here.resolved_file.write_text(plan.model_copy(update={"run_tasks": (other,)}).model_dump_json())


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: (data / "a.jsonl").unlink(), "no such file"),
        (lambda data: data.rename(data.with_name("moved")), "does not exist"),
        (lambda data: (data / "a.jsonl").write_text("{}\n"), "is missing"),
        (lambda data: (data / "a.jsonl").write_text('{"id": "s9"'), "not JSON"),
        (lambda data: swapped(data / "a.jsonl"), "another sample is at this place"),
        (lambda data: os.truncate(data / "a.jsonl", 40 << 20), "have 40 MiB, the limit is 32 MiB"),
    ],
)
def test_a_dataset_that_is_gone_or_changed_leaves_the_rest_of_the_sample(
    tmp_path: Path, damage: Callable[[Path], Any], why: str
) -> None:
    evaluated(tmp_path, ["0", "no"])
    damage(tmp_path / "data")
    with unguarded(portal_over(tmp_path)) as api:
        found = api.ask("GET", f"experiments/{ID}/run-tasks/rt/samples/1").body
        assert why in found["missing_images"]
        assert (found["images"], found["answer"], found["references"]) == ([], "no", ["1"])
        image = api.ask("GET", f"experiments/{ID}/run-tasks/rt/samples/1/images/0")
        assert (image.status, why in image.body["error"]) == (404, True)


def swapped(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(reversed(lines)) + "\n")


def test_a_dataset_is_opened_once_and_again_when_it_changes(tmp_path: Path) -> None:
    here = evaluated(tmp_path, ["0", "1"])
    asked, (run_task,) = DatasetReader(), here.resolved.run_tasks
    assert asked.sample(here, run_task, 1).id == "s1"
    lines = (tmp_path / "data" / "a.jsonl").read_text()
    (tmp_path / "data" / "a.jsonl").write_text(lines.replace('"s1"', '"changed"'))
    assert asked.sample(here, run_task, 1).id == "changed"
    with pytest.raises(Gone, match="fewer samples"):
        asked.sample(here, run_task, 5)
