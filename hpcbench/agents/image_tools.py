"""Tools that look again: a part of an image, larger, turned, and other pages.

Boxes are whole numbers from 0 to 1000, shares of width and height: many models were trained so, and the same
box fits an image of any size.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import ToolContext, ToolError, ToolReturn

WHOLE = 1000
"""The number in a box that stands for the full width or height."""

MOST_SIDE = 4096
"""Pixels of a side of a made image, at most."""

_PASSED_ON = ("PNG", "JPEG", "WEBP")


class _Options(BaseModel):
    """These tools have no options."""

    model_config = ConfigDict(extra="forbid")


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    image: int = Field(default=1, ge=1)
    """Number of the image: 1 is the first one that you saw. Images that tools made count on."""


class _Box(_Arguments):
    box: list[int] = Field(min_length=4, max_length=4)
    """left, top, right, bottom: whole numbers from 0 to 1000, in thousandths of the image's width and height;
    0, 0 is its upper left corner."""


class _ImageTool:
    api: ClassVar[int] = 1
    idempotent: ClassVar[bool] = True
    stateless: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("PIL",)
    extra: ClassVar[str] = "agents"
    Options: ClassVar[Any] = _Options
    Arguments: ClassVar[Any] = _Arguments

    def __init__(self, options: Mapping[str, Any]) -> None:
        try:
            from PIL import Image, ImageOps, TiffImagePlugin, WebPImagePlugin  # noqa: F401

            Image.preinit()  # the usual formats, before the first call
        except ModuleNotFoundError:
            from hpcbench.installed import install_hint

            what = f"the tool {type(self).__name__.lower()} needs Pillow"
            raise EnvironmentFault(what, remedy=install_hint(self.extra)) from None
        self._image, self._ops = Image, ImageOps

    def _opened(self, path: Path) -> Any:
        """The image, turned as its camera says, in colours that PNG knows.

        Raises:
            ToolError: it cannot be read.
        """
        try:
            with self._image.open(path) as opened:
                turned = self._ops.exif_transpose(opened)
                if turned.mode in ("L", "RGB"):
                    turned.load()
                    return turned
                if turned.mode in ("RGBA", "LA", "PA") or "transparency" in turned.info:
                    shown = turned.convert("RGBA")
                    white = self._image.new("RGBA", shown.size, "white")
                    return self._image.alpha_composite(white, shown).convert("RGB")
                return turned.convert("L" if turned.mode == "1" else "RGB")
        except (OSError, SyntaxError, ValueError, self._image.DecompressionBombError) as error:
            raise ToolError(f"the image cannot be read: {str(error)[:200]}") from error

    def _written(self, image: Any) -> bytes:
        kept = io.BytesIO()
        image.save(kept, "PNG", compress_level=1)
        return kept.getvalue()


class Crop(_ImageTool):
    """Cuts a part out of an image and shows it as a new image, in its full resolution.

    Use it to read small print: name the part by its box.
    """

    Arguments: ClassVar[Any] = _Box

    def call(self, arguments: Any, context: ToolContext) -> ToolReturn:
        """The part, and its size."""
        image = self._opened(context.image(arguments.image))
        part = image.crop(pixels(arguments.box, *image.size))
        return f"Part of image {arguments.image}, {_size(part)}.", self._written(part)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """An image and arguments for the contract tests."""
        return _example(folder, {"box": [0, 0, 500, 500]})


class Zoom(_ImageTool):
    """Cuts a part out of an image and shows it enlarged as a new image.

    Use it where print is too small to read even in full resolution.
    """

    class Arguments(_Box):
        factor: float = Field(default=2, ge=1, le=8)
        """How many times larger."""

    def call(self, arguments: Any, context: ToolContext) -> ToolReturn:
        """The part, larger, and its size."""
        image = self._opened(context.image(arguments.image))
        left, top, right, bottom = pixels(arguments.box, *image.size)
        width, height = (
            round((right - left) * arguments.factor),
            round((bottom - top) * arguments.factor),
        )
        if max(width, height) > MOST_SIDE:
            raise ToolError(
                f"the new image would have {width} × {height} pixels; at most {MOST_SIDE} a side are "
                "possible: use a smaller box or factor"
            )
        part = image.resize(
            (width, height), self._image.Resampling.LANCZOS, box=(left, top, right, bottom)
        )
        text = (
            f"Part of image {arguments.image}, enlarged {arguments.factor:g} times, {_size(part)}."
        )
        return text, self._written(part)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """An image and arguments for the contract tests."""
        return _example(folder, {"box": [250, 250, 750, 750], "factor": 3})


class Rotate(_ImageTool):
    """Turns an image clockwise and shows it as a new image. Use it if text is sideways or upside down."""

    class Arguments(_Arguments):
        degrees: float = Field(ge=-360, le=360)
        """Degrees clockwise; 90 brings the left edge to the top."""

    def call(self, arguments: Any, context: ToolContext) -> ToolReturn:
        """The turned image, and its size."""
        image = self._opened(context.image(arguments.image))
        degrees = arguments.degrees % 360
        if degrees in (90, 180, 270):
            turn = getattr(self._image.Transpose, f"ROTATE_{360 - int(degrees)}")
            image = image.transpose(turn)
        elif degrees:
            image = image.rotate(
                -degrees, self._image.Resampling.BICUBIC, expand=True,
                fillcolor="white" if image.mode == "RGB" else 255,
            )  # fmt: skip
        text = f"Image {arguments.image} turned by {arguments.degrees:g} degrees, {_size(image)}."
        return text, self._written(image)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """An image and arguments for the contract tests."""
        return _example(folder, {"degrees": 90})


class Page(_ImageTool):
    """Shows a page of the document as a new image. Use it for pages that you have not seen yet."""

    of_pages: ClassVar[bool] = True

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

        number: int = Field(ge=1)
        """Number of the page; the first one is 1."""

    def call(self, arguments: Any, context: ToolContext) -> ToolReturn:
        """The page as it is, and its size."""
        if arguments.number > len(context.images):
            last = len(context.images)
            raise ToolError(f"there is no page {arguments.number}; the last one is {last}")
        path = context.image(arguments.number)
        try:
            with self._image.open(path) as opened:
                passed, size = opened.format in _PASSED_ON, opened.size
        except (OSError, SyntaxError, ValueError, self._image.DecompressionBombError) as error:
            raise ToolError(f"the page cannot be read: {str(error)[:200]}") from error
        text = f"Page {arguments.number}, {size[0]} × {size[1]} pixels."
        return text, path.read_bytes() if passed else self._written(self._opened(path))

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """An image and arguments for the contract tests."""
        return _example(folder, {"number": 1})


def pixels(box: list[int], width: int, height: int) -> tuple[int, int, int, int]:
    """A box in pixels of an image; each pixel that it touches is in it.

    Raises:
        ToolError: it is no box.
    """
    left, top, right, bottom = box
    if not (min(box) >= 0 and max(box) <= WHOLE):
        raise ToolError(
            "a box has numbers from 0 to 1000: thousandths of width and height, not pixels"
        )
    if left >= right or top >= bottom:
        raise ToolError(
            "the box is empty: write left, top, right, bottom with left < right, top < bottom"
        )
    return (
        left * width // WHOLE,
        top * height // WHOLE,
        -(-right * width // WHOLE),
        -(-bottom * height // WHOLE),
    )


def _size(image: Any) -> str:
    return f"{image.width} × {image.height} pixels"


def _example(folder: Path, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    from PIL import Image

    path = folder / "page.png"
    Image.linear_gradient("L").save(path)
    return {"images": [path], "arguments": arguments}
