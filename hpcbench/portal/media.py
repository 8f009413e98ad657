"""Images of samples, by number: a file is shown only if Pillow opens it as an image, whatever its name.

Datasets are not trusted. A file is opened below the dataset's folder without following a link out of it. Its
content decides its type: PNG, JPEG, WebP and GIF are sent unchanged, TIFF and BMP become PNG, and everything
else (SVG and HTML above all) is no image. Small copies are always drawn here. The memory that an image needs
is checked before it is decoded: a small file can hold an image of a terabyte.
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
from hpcbench.errors import HpcbenchError, first_line
from hpcbench.portal.asked_samples import Gone
from hpcbench.portal.context import once
from hpcbench.portal.lru import LruCache
from hpcbench.portal.safe_open import open_beneath
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.records import Image, StoredImage

Size = Literal["thumb", "full"]

SIDE = 360
"""Longest side of a small copy, pixels."""

MOST_BYTES = 64 << 20
"""Largest image file, bytes."""

MOST_PIXELS = 150_000_000
"""Largest image that is sent to a browser unchanged, pixels."""

MOST_DECODED = 160 << 20
"""Most bytes of an image that is decoded here."""

KEPT_BYTES = 8 << 20
"""Bytes of small copies that are kept."""

AT_ONCE = 2
"""Images that are decoded at the same time."""

MEASURED = 100
"""Images of a sample whose size is determined."""

_FORMS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP")
"""The only formats that Pillow may read. A JPEG of several images has the format MPO once it is open."""

_AS_THEY_ARE = {
    "PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif",
}  # fmt: skip

_BANDS = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "I": 4, "F": 4}
"""Bytes of a pixel in memory, by Pillow's mode; a mode that is not listed counts 8."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that a browser can show."""

    data: bytes
    """The encoded image."""
    kind: str
    """Media type."""

    @property
    def tag(self) -> str:
        """Entity tag: the hash of its bytes."""
        return hashlib.sha256(self.data).hexdigest()[:32]


@dataclass
class Pictures:
    """Draws small copies, a few at a time, and keeps some."""

    _small: LruCache[Picture] = field(
        default_factory=lambda: LruCache(KEPT_BYTES, lambda one: len(one.data))
    )
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))

    def of(self, dataset: Dataset, image: Image, size: Size) -> Picture:
        """An image of a sample, whole or small.

        Raises:
            Gone: it does not exist, is no image, or is too large; the message gives the reason.
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


pictures_of = once(lambda _: Pictures())
"""The portal's pictures."""


def described(dataset: Dataset, images: Sequence[Image]) -> Iterator[dict[str, Any]]:
    """Facts of each image without decoding it: `name`, `page`; `width` and `height` where they are cheap."""
    for number, image in enumerate(images):
        name = "image" if isinstance(image, bytes) else Path(_name_of(image)).name
        facts: dict[str, Any] = {"name": name, "page": _page_of(image)}
        if number < MEASURED and not is_page(image):
            try:
                with _opened(_bytes_of(dataset, image)) as picture:
                    facts |= dict(zip(("width", "height"), _upright(picture), strict=True))
            except Gone:
                pass  # a request for this image gets the reason
        yield facts


def _name_of(image: Path | StoredImage) -> str:
    return image.name if isinstance(image, StoredImage) else str(image)


def _page_of(image: Image) -> int | None:
    return split_name(image.name)[1] if isinstance(image, StoredImage) else None


def _upright(picture: Any) -> tuple[int, int]:
    """Width and height as displayed: cameras store images rotated, with a note of the rotation."""
    from PIL.Image import Image as AnyImage

    # A PNG is decoded to find a note after its pixels, which browsers do not read either: not here.
    turned = AnyImage.getexif(picture).get(0x0112, 1) in (5, 6, 7, 8)
    return (picture.height, picture.width) if turned else (picture.width, picture.height)


# --- bytes ------------------------------------------------------------------------------------------------


def _bytes_of(dataset: Dataset, image: Image) -> bytes:
    """The bytes of an image, wherever the dataset keeps it.

    Raises:
        Gone: the bytes are not available.
    """
    if isinstance(image, bytes):
        data = image
    elif isinstance(image, Path):
        data = _file(Path(dataset.source), image)
    else:
        lies = getattr(image.read, "path", None)  # path of the document that the image is a page of
        if is_page(image) and isinstance(lies, Path):
            os.close(_open(Path(dataset.source), lies))
        try:
            data = image.read()
        except HpcbenchError as error:
            raise Gone(first_line(error)) from error
        except Exception as error:  # plugin code, or a library that reads a hostile file
            raise Gone(f"{image.name} cannot be read") from error
    if len(data) > MOST_BYTES:
        raise Gone(f"the image has {len(data) >> 20} MiB, the limit is {MOST_BYTES >> 20} MiB")
    return data


def _file(root: Path, path: Path) -> bytes:
    descriptor = _open(root, path)
    try:
        size = os.fstat(descriptor).st_size
        if size > MOST_BYTES:
            raise Gone(f"{path.name} has {size >> 20} MiB, the limit is {MOST_BYTES >> 20} MiB")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Gone(f"{path.name} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _open(root: Path, path: Path) -> int:
    """Open a file of a dataset; links within the dataset's folder are followed, but none out of it.

    Raises:
        Gone: the file does not exist, or is outside the folder.
    """
    try:
        real = os.path.realpath(root)
        inside = Path(os.path.realpath(path)).relative_to(real)
        # The resolved path is opened without following links: replacing a link meanwhile has no effect.
        return open_beneath(Path(real), *inside.parts)
    except ValueError:
        raise Gone(f"{path.name} is outside the dataset's folder") from None
    except FileNotFoundError:
        raise Gone(f"{path.name} does not exist") from None
    except OSError as error:
        raise Gone(f"{path.name} cannot be opened: {error.strerror}") from None


# --- pictures -----------------------------------------------------------------------------------------------


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    """The Pillow image, not decoded; faults inside the context become `Gone`, too.

    Raises:
        Gone: the data is no image, or cannot be decoded.
    """
    import warnings

    from PIL import Image as Pillow
    from PIL import ImageFile

    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    try:
        with warnings.catch_warnings():
            # The warning concerns sizes: they are checked below, before anything is decoded.
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            with Pillow.open(io.BytesIO(data), formats=_FORMS) as picture:
                yield picture
    except Gone:
        raise
    except Pillow.DecompressionBombError:
        raise Gone("the image is too large to show") from None
    except Exception as error:  # any exception of Pillow over a hostile file
        raise Gone("the file is damaged or no image (PNG, JPEG, WebP, GIF, TIFF, BMP)") from error


def _check(picture: Any) -> None:
    if picture.width * picture.height * _BANDS.get(picture.mode, 8) > MOST_DECODED:
        raise _too_large(picture)


def _too_large(picture: Any) -> Gone:
    return Gone(f"the image is too large to show: {picture.width} × {picture.height} pixels")


def _written(picture: Any, form: Literal["PNG", "WEBP"]) -> Picture:
    known = ("L", "RGB", "RGBA") if form == "WEBP" else ("1", "L", "LA", "P", "RGB", "RGBA")
    whole = picture if picture.mode in known else picture.convert("RGB")
    out = io.BytesIO()
    more = {"quality": 75, "method": 2} if form == "WEBP" else {"compress_level": 1}
    whole.save(out, form, **more)
    return Picture(out.getvalue(), f"image/{form.lower()}")
