"""Pictures: opened within a size limit, checked cheaply, and converted as a model should see them.

Any error of a library over a damaged or hostile file becomes a UserError: one bad picture costs its sample,
never the run.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.files.user import refuse_pipes
from hpcbench.schema.records import Image

MOST_PIXELS = 500_000_000
"""Most pixels of a decoded or rendered picture: A0 at 400 dpi has half as many. As RGB they take 1.5 GB."""

_MILLIONS = f"{MOST_PIXELS // 10**6} million"

_ENDS = {
    "PNG": b"IEND\xaeB`\x82",
    "JPEG": b"\xff\xd9",
    "MPO": b"\xff\xd9",
    "GIF": b"\x3b",
}
"""Format → last bytes of a whole file, as a rule."""


@contextmanager
def guarded(what: str, path: Path | None = None) -> Iterator[None]:
    """Inside, a library's error over a file becomes a UserError that begins with `what`.

    Raises:
        UserError: the library raised an error.
        OSError: the file cannot be opened or read.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except HpcbenchError:
        raise
    except UnidentifiedImageError as error:  # its text is only a buffer's address
        raise UserError(Problem(what, _file(path))) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(f"more than {_MILLIONS} pixels", path) from error
    except Exception as error:  # the file may contain any bytes
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(Problem(f"{what}: {why}", _file(path))) from error


def check_size(
    width: float, height: float, path: Path | None = None, remedy: str = "scale it down"
) -> None:
    """Refuse a picture with more than `MOST_PIXELS` pixels.

    Raises:
        UserError: it has more.
    """
    if width * height > MOST_PIXELS:
        what = f"{width:.0f}x{height:.0f} pixels, more than {_MILLIONS}"
        raise _too_large(what, path, remedy)


def opened(source: Path | io.BytesIO, what: str, path: Path | None = None) -> Any:
    """A Pillow image, not decoded, whose first frame is not too large.

    Raises:
        UserError: the file is no image (then the message begins with `what`), or the image is too large.
        OSError: the file cannot be opened.
    """
    from PIL import Image as Pillow

    # Pages of documents are large on purpose; Pillow refuses images of twice this number.
    Pillow.MAX_IMAGE_PIXELS = MOST_PIXELS
    if isinstance(source, Path):
        refuse_pipes(source)
    with guarded(what, path):
        picture = Pillow.open(source)
    width, height = picture.size
    try:
        check_size(width, height, path)
    except UserError:
        picture.close()
        raise
    return picture


def picture_of(image: Image) -> Any:
    """The Pillow image of a sample's image, opened and not decoded.

    Raises:
        OSError: there is no such file.
        HpcbenchError: the file is no image, or the image is too large.
    """
    what = "not a readable image"
    if isinstance(image, Path):
        return opened(image, what)
    with guarded(what):
        data = image if isinstance(image, bytes) else image.read()
    return opened(io.BytesIO(data), what)


def fault_of(image: Image) -> str | None:
    """Why an image cannot be read, as far as its beginning and its end show; None: it seems whole.

    An image without the usual end of its format is decoded: many of these are whole.
    """
    try:
        with picture_of(image) as picture:
            if not _ends_well(picture):
                decode(picture)
    except OSError as error:
        return error.strerror or str(error)
    except HpcbenchError as error:
        return str(error)
    return None


def decode(picture: Any) -> None:
    """Read all of a picture.

    Raises:
        UserError: the picture is damaged.
    """
    with guarded("it is damaged"):
        picture.load()


def flat(picture: Any) -> Any:
    """A picture as a model should see it: at most eight bits per channel, transparent areas on white."""
    from PIL import Image as Pillow

    mode = str(picture.mode)
    if mode.startswith("I"):  # 16 bits a pixel, where Pillow itself would cut off all above 255
        wide = picture.convert("I")
        if mode != "I" or wide.getextrema()[1] > 255:
            wide = wide.point(lambda value: value * (1 / 256))
        return wide.convert("L")
    if mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        white = Pillow.new("RGB", clear.size, "white")
        white.paste(clear, mask=clear.getchannel("A"))
        return white
    return picture if mode in ("1", "L", "RGB") else picture.convert("RGB")


def name_of(image: Image) -> str:
    """Name of an image for messages."""
    if isinstance(image, bytes):
        return "the image in the table"
    return str(image) if isinstance(image, Path) else image.name


def _ends_well(picture: Any) -> bool:
    """Whether a file has the usual end of its format; keeps Pillow's position in the file."""
    file, kind = picture.fp, picture.format
    before = file.tell()
    try:
        size = file.seek(0, io.SEEK_END)
        if kind in ("WEBP", "BMP"):
            file.seek(4 if kind == "WEBP" else 2)
            length = int.from_bytes(file.read(4), "little")
            return bool(0 < length <= size - (8 if kind == "WEBP" else 0))
        end = _ENDS.get(kind)
        if end is None:
            return False
        file.seek(max(0, size - len(end)))
        return bool(file.read() == end)
    finally:
        file.seek(before)


def _too_large(what: str, path: Path | None, remedy: str = "scale it down") -> UserError:
    return UserError(Problem(what, _file(path), remedy=remedy))


def _file(path: Path | None) -> str | None:
    return None if path is None else str(path)
