"""Images of samples, by number: what is shown was decoded as an image, whatever its name says.

Datasets are not trusted. A file is opened below the dataset's folder without following a link out of it; what
it holds decides what it is: PNG, JPEG, WebP and GIF are shown as they are, TIFF and BMP become PNG, and all
else (SVG and HTML above all) is no image. Small copies are always drawn anew. How much an image would take is
looked at before it is decoded: a small file can hold a picture of a terabyte.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcbench.data.pages import is_page, split_name
from hpcbench.errors import HpcbenchError
from hpcbench.portal.asked_samples import Gone
from hpcbench.portal.lru import Kept
from hpcbench.portal.safe_open import open_beneath
from hpcbench.schema.documents import Dataset
from hpcbench.schema.records import Image, StoredImage

Size = Literal["thumb", "full"]

SIDE = 360
"""Longest side of a small copy, pixels."""

MOST_BYTES = 64 << 20
"""Of an image file."""

MOST_PIXELS = 150_000_000
"""Of an image that a browser is given as it is."""

MOST_DECODED = 160 << 20
"""Bytes of an image when it is decoded here."""

KEPT_BYTES = 8 << 20
"""Of small copies."""

AT_ONCE = 2
"""Images that are decoded at once."""

MEASURED = 100
"""Images of a sample whose size is looked at."""

_FORMS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP")
"""What Pillow may read, and nothing else. JPEG that holds several images calls itself MPO once it is open."""

_AS_THEY_ARE = {
    "PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif",
}  # fmt: skip

_BANDS = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "I": 4, "F": 4}
"""Bytes of a pixel in memory, by Pillow's mode."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that a browser can show."""

    data: bytes
    """Its bytes."""
    kind: str
    """Media type."""

    @property
    def tag(self) -> str:
        """Changes with its bytes."""
        return hashlib.sha256(self.data).hexdigest()[:32]


@dataclass
class Pictures:
    """Makes small copies, a few at a time, and keeps some."""

    _small: Kept[Picture] = field(
        default_factory=lambda: Kept(KEPT_BYTES, lambda one: len(one.data))
    )
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))

    def of(self, dataset: Dataset, image: Image, size: Size) -> Picture:
        """An image of a sample, whole or small.

        Raises:
            Gone: it is not there, is no image, or is too large; says why.
        """
        data = _bytes_of(dataset, image)
        if size == "full":
            return self._full(data)
        stamp = hashlib.sha256(data).digest()
        return self._small.of(stamp, stamp, lambda: self._drawn(data))

    def _full(self, data: bytes) -> Picture:
        with _opened(data) as picture:
            kind = _AS_THEY_ARE.get(str(picture.format))
            if picture.width * picture.height > MOST_PIXELS:
                raise _too_large(picture)
            if kind is not None:
                return Picture(data, kind)
            with self._room:
                _check(picture)
                return _written(picture, "PNG")

    def _drawn(self, data: bytes) -> Picture:
        from PIL import ImageOps

        with self._room, _opened(data) as picture:
            picture.draft("RGB", (SIDE, SIDE))  # JPEG: decoded at a fraction of its size
            _check(picture)
            picture.thumbnail((SIDE, SIDE))
            return _written(ImageOps.exif_transpose(picture), "WEBP")


def described(dataset: Dataset, images: Sequence[Image]) -> Iterator[dict[str, Any]]:
    """What is told of each image without decoding it: `name`, `page`; where it is cheap `width`, `height`."""
    for number, image in enumerate(images):
        name = "image" if isinstance(image, bytes) else Path(_name_of(image)).name
        told: dict[str, Any] = {"name": name, "page": _page_of(image)}
        if number < MEASURED and not is_page(image):
            try:
                with _opened(_bytes_of(dataset, image)) as picture:
                    told |= dict(zip(("width", "height"), _upright(picture), strict=True))
            except Gone:
                pass  # whoever asks for it is told why
        yield told


def _name_of(image: Path | StoredImage) -> str:
    return image.name if isinstance(image, StoredImage) else str(image)


def _page_of(image: Image) -> int | None:
    return split_name(image.name)[1] if isinstance(image, StoredImage) else None


def _upright(picture: Any) -> tuple[int, int]:
    """Width and height as it is shown: cameras lie images on their side and say so."""
    turned = picture.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    return (picture.height, picture.width) if turned else (picture.width, picture.height)


# --- bytes ------------------------------------------------------------------------------------------------


def _bytes_of(dataset: Dataset, image: Image) -> bytes:
    """The bytes of an image, wherever the dataset keeps it.

    Raises:
        Gone: they cannot be had.
    """
    if isinstance(image, bytes):
        data = image
    elif isinstance(image, Path):
        data = _file(Path(dataset.source), image)
    else:
        lies = getattr(image.read, "path", None)  # of the document that it is a page of
        if is_page(image) and isinstance(lies, Path):
            os.close(_open(Path(dataset.source), lies))
        try:
            data = image.read()
        except HpcbenchError as error:
            raise Gone(str(error).splitlines()[0]) from error
        except Exception as error:  # foreign code, or a library over a hostile file
            raise Gone(f"{image.name} cannot be read") from error
    if len(data) > MOST_BYTES:
        raise Gone(f"the image has {len(data) >> 20} MiB, more than {MOST_BYTES >> 20}")
    return data


def _file(root: Path, path: Path) -> bytes:
    descriptor = _open(root, path)
    try:
        size = os.fstat(descriptor).st_size
        if size > MOST_BYTES:
            raise Gone(f"{path.name} has {size >> 20} MiB, more than {MOST_BYTES >> 20}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Gone(f"{path.name} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _open(root: Path, path: Path) -> int:
    """Open a file of a dataset; links within its folder are followed, none leads out of it.

    Raises:
        Gone: it is not there, or lies elsewhere.
    """
    try:
        real = os.path.realpath(root)
        inside = Path(os.path.realpath(path)).relative_to(real)
        # What was followed is opened without following: exchanging a link meanwhile changes nothing.
        return open_beneath(Path(real), *inside.parts)
    except ValueError:
        raise Gone(f"{path.name} lies outside the dataset's folder") from None
    except FileNotFoundError:
        raise Gone(f"{path.name} is not there") from None
    except OSError as error:
        raise Gone(f"{path.name} cannot be opened: {error.strerror}") from None


# --- pictures -----------------------------------------------------------------------------------------------


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    """The Pillow image, not decoded; what goes wrong inside is told as well.

    Raises:
        Gone: it is none, or cannot be decoded.
    """
    import warnings

    from PIL import Image as Pillow
    from PIL import ImageFile

    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    try:
        with warnings.catch_warnings():
            # Of sizes: they are looked at below, before anything is decoded.
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            with Pillow.open(io.BytesIO(data), formats=_FORMS) as picture:
                yield picture
    except Gone:
        raise
    except Pillow.DecompressionBombError:
        raise Gone("the image is too large to be shown") from None
    except Exception as error:  # whatever Pillow raises over a hostile file
        raise Gone("it is no image that can be shown (PNG, JPEG, WebP, GIF, TIFF, BMP)") from error


def _check(picture: Any) -> None:
    if picture.width * picture.height * _BANDS.get(picture.mode, 8) > MOST_DECODED:
        raise _too_large(picture)


def _too_large(picture: Any) -> Gone:
    return Gone(f"the image is too large to be shown: {picture.width} × {picture.height} pixels")


def _written(picture: Any, form: Literal["PNG", "WEBP"]) -> Picture:
    known = ("L", "RGB", "RGBA") if form == "WEBP" else ("1", "L", "LA", "P", "RGB", "RGBA")
    whole = picture if picture.mode in known else picture.convert("RGB")
    out = io.BytesIO()
    more = {"quality": 75, "method": 2} if form == "WEBP" else {"compress_level": 1}
    whole.save(out, form, **more)
    return Picture(out.getvalue(), f"image/{form.lower()}")
