"""Pages of documents as images: PDF through pypdfium2, multi-page TIFF through Pillow.

    invoice.pdf            all its pages
    invoice.pdf#page=3     one
    invoice.pdf#page=2-4   some

Pages become PNG once: those of a document that are asked for lie in one uncompressed ZIP below
`cache/pages`, named after the document's hash, the pages and the dpi. A page costs about 0.1 s to render, so
that every worker and every run task after the first only reads.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcbench.data.tree import Tree
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.once import make_once
from hpcbench.schema.records import Image, StoredImage

DOCUMENTS = (".pdf", ".tif", ".tiff")
"""What has pages."""

_NAME = re.compile(r"(?P<file>.*?)(#page=(?P<first>\d+)(-(?P<last>\d+))?)?")


def has_pages(name: str) -> bool:
    """Whether a name is that of a document with pages, or of some of them."""
    return name.partition("#page=")[0].lower().endswith(DOCUMENTS)


def is_page(image: Image) -> bool:
    """Whether an image is a page that has to be rendered."""
    return isinstance(image, StoredImage) and isinstance(image.read, _Read)


def split_name(name: str) -> tuple[str, int | None, int | None]:
    """File, first and last page; None where it says none."""
    match = _NAME.fullmatch(name)
    if match is None or match["first"] is None:
        return name, None, None
    return match["file"], int(match["first"]), int(match["last"] or match["first"])


@dataclass
class Pages:
    """Gives pages of the documents of a dataset."""

    tree: Tree
    """Where the documents are."""
    dpi: int
    """Resolution of PDF pages, dots per inch."""
    cache: Path | None = None
    """Folder of rendered pages; None: rendered at every use."""
    _counts: dict[Path, int] = field(default_factory=dict)

    def images(self, folder: Path, name: str) -> tuple[StoredImage, ...]:
        """The pages that a name stands for, not rendered yet.

        Raises:
            UserError: there is no such document or page.
        """
        file, first, last = split_name(name)
        path = folder / file
        count = self.count(path)
        first, last = first or 1, last or count
        if not 1 <= first <= last <= count:
            raise UserError(Problem(f"{name}: the document has {count} pages", str(path)))
        pages = tuple(range(first, last + 1))
        return tuple(
            StoredImage(f"{file}#page={page}", _Read(self, path, pages, place))
            for place, page in enumerate(pages)
        )

    def count(self, path: Path) -> int:
        """Pages of a document."""
        if path not in self._counts:
            self._counts[path] = _opened(path, self.tree.read(path)).count
        return self._counts[path]

    def read(self, path: Path, pages: Sequence[int], place: int) -> bytes:
        """One of some pages of a document as PNG."""
        data = self.tree.read(path)
        if self.cache is None:
            return _opened(path, data).render(pages[place], self.dpi)
        key = hashlib.sha256(data).hexdigest()[:24]
        archive = self.cache / f"{key}-{pages[0]}-{pages[-1]}-{self.dpi}.zip"
        self.cache.mkdir(parents=True, exist_ok=True)
        if not archive.exists():
            make_once(archive, lambda target: self._render(target, path, data, pages))
        with zipfile.ZipFile(archive) as opened:
            return opened.read(f"{pages[place]}.png")

    def _render(self, target: Path, path: Path, data: bytes, pages: Sequence[int]) -> None:
        document = _opened(path, data)
        with zipfile.ZipFile(target, "w") as archive:
            for page in pages:
                archive.writestr(f"{page}.png", document.render(page, self.dpi))


@dataclass(frozen=True, slots=True)
class _Read:
    pages: Pages
    path: Path
    numbers: tuple[int, ...]
    place: int

    def __call__(self) -> bytes:
        return self.pages.read(self.path, self.numbers, self.place)


def _opened(path: Path, data: bytes) -> _Pdf | _Tiff:
    return _Pdf(path, data) if path.suffix.lower() == ".pdf" else _Tiff(path, data)


class _Pdf:
    def __init__(self, path: Path, data: bytes) -> None:
        try:
            import pypdfium2
        except ImportError as error:
            raise EnvironmentFault(
                "PDF files need pypdfium2", remedy="pip install 'hpcbench[pdf]'"
            ) from error
        try:
            self._document = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as error:
            raise UserError(Problem(f"no PDF that can be read: {error}", str(path))) from error

    @property
    def count(self) -> int:
        return len(self._document)

    def render(self, page: int, dpi: int) -> bytes:
        bitmap = self._document[page - 1].render(scale=dpi / 72)  # a PDF's unit is 1/72 inch
        return _png(bitmap.to_pil())


class _Tiff:
    def __init__(self, path: Path, data: bytes) -> None:
        from PIL import Image as Pillow

        try:
            self._image = Pillow.open(io.BytesIO(data))
        except OSError as error:
            raise UserError(Problem(f"no TIFF that can be read: {error}", str(path))) from error

    @cached_property
    def count(self) -> int:
        return int(getattr(self._image, "n_frames", 1))

    def render(self, page: int, dpi: int) -> bytes:
        self._image.seek(page - 1)
        return _png(self._image)


def _png(image: Any) -> bytes:
    out = io.BytesIO()
    (image if image.mode in ("L", "RGB") else image.convert("RGB")).save(out, "PNG")
    return out.getvalue()
