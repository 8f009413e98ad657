"""Pages of documents as images: PDF through pypdfium2, multi-page TIFF through Pillow.

    invoice.pdf            all its pages
    invoice.pdf#page=3     one page
    invoice.pdf#page=2-4   a range of pages

Pages are rendered to PNG once: the requested pages of a document are in one uncompressed ZIP below
`cache/pages`, named after the document's hash, the pages, the dpi and the renderer. Rendering a page takes
about 0.1 s, so every worker and every run task after the first only reads.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hpcbench.data.pictures import check_size, flat, guarded, opened
from hpcbench.data.tree import Tree
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.files.lease import make_once
from hpcbench.installed import install_hint
from hpcbench.schema.records import Image, StoredImage

DOCUMENTS = (".pdf", ".tif", ".tiff")
"""Suffixes of files with pages."""

_FORM = 2
"""Changed whenever the same page gets other bytes: cached pages are then rendered again."""

_NAME = re.compile(r"(?P<file>.*?)(#page=(?P<first>\d+)(-(?P<last>\d+))?)?")

_PDFIUM = threading.Lock()
"""PDFium takes one call at a time, even for different documents."""


def has_pages(name: str) -> bool:
    """Whether a name is that of a document with pages, or of a range of its pages."""
    return name.partition("#page=")[0].lower().endswith(DOCUMENTS)


def is_page(image: Image) -> bool:
    """Whether an image is a page of a document, to be rendered."""
    return page_of(image) is not None


def page_of(image: Image) -> Page | None:
    """The document page behind an image; None: it is no page of a document."""
    read = image.read if isinstance(image, StoredImage) else None
    return read if isinstance(read, Page) else None


def split_name(name: str) -> tuple[str, int | None, int | None]:
    """File, first and last page of a name; None for pages if it names none."""
    match = _NAME.fullmatch(name)
    if match is None or match["first"] is None:
        return name, None, None
    return match["file"], int(match["first"]), int(match["last"] or match["first"])


@dataclass
class Pages:
    """Yields pages of the documents of a dataset."""

    tree: Tree
    """Folder of the documents."""
    dpi: int
    """Resolution of PDF pages, dots per inch."""
    cache: Path | None = None
    """Folder of rendered pages; None: rendered at every use."""
    _counts: dict[Path, int] = field(default_factory=dict)
    _faults: dict[Path, Mapping[int, str]] = field(default_factory=dict)
    _digests: dict[tuple[Path, int, int], str] = field(default_factory=dict)
    _locks: dict[Path, threading.RLock] = field(default_factory=dict)
    """A lock for each document: one thread reads it, others wait for the result."""

    def images(self, folder: Path, name: str) -> tuple[StoredImage, ...]:
        """The pages that a name denotes, not rendered yet.

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
            StoredImage(f"{file}#page={page}", Page(self, path, pages, place))
            for place, page in enumerate(pages)
        )

    def count(self, path: Path) -> int:
        """Number of pages of a document."""
        with self._lock(path):
            if path not in self._counts:
                with closing(_opened(path, self.tree.read(path))) as document:
                    self._counts[path] = document.count()
            return self._counts[path]

    def faults(self, path: Path) -> Mapping[int, str]:
        """Page → reason, for pages of a document that fail to load and so cannot be rendered."""
        with self._lock(path):
            if path not in self._faults:
                with closing(_opened(path, self.tree.read(path))) as document:
                    pages = range(1, self.count(path) + 1)
                    reasons = {page: document.fault(page, self.dpi) for page in pages}
                self._faults[path] = {page: why for page, why in reasons.items() if why is not None}
            return self._faults[path]

    def digest(self, path: Path) -> str:
        """SHA-256 of a document, read once."""
        if known := self.tree.sha256(path):
            return known
        try:
            stat = path.stat()
        except OSError as error:
            raise UserError(Problem(f"cannot be read: {error.strerror}", str(path))) from error
        key = (path, stat.st_size, stat.st_mtime_ns)
        with self._lock(path):
            if key not in self._digests:
                self._digests[key] = hashlib.sha256(self.tree.read(path)).hexdigest()
            return self._digests[key]

    def _lock(self, path: Path) -> threading.RLock:
        return self._locks.setdefault(path, threading.RLock())

    def read(self, path: Path, pages: Sequence[int], place: int) -> bytes:
        """The page `pages[place]` as PNG; with a cache, all of `pages` are rendered and kept.

        Raises:
            UserError: the document or the page cannot be read.
        """
        if self.cache is None:
            return self.png(path, pages[place])
        form = _form_of(path)
        key = f"{self.digest(path)[:24]}-{pages[0]}-{pages[-1]}-{self.dpi}-{form}"
        archive = self.cache / f"{key}.zip"
        try:
            if not archive.exists():
                self.cache.mkdir(parents=True, exist_ok=True)
                make_once(archive, lambda target: self._render(target, path, pages))
            with zipfile.ZipFile(archive) as kept:
                return kept.read(f"{pages[place]}.png")
        except (
            OSError,
            zipfile.BadZipFile,
            KeyError,
        ):  # no space, or damaged: this only costs time
            return self.png(path, pages[place])

    def png(self, path: Path, page: int) -> bytes:
        """A page as PNG, rendered alone and not cached."""
        with closing(_opened(path, self.tree.read(path))) as document:
            return _png(document.picture(page, self.dpi))

    def _render(self, target: Path, path: Path, pages: Sequence[int]) -> None:
        with (
            closing(_opened(path, self.tree.read(path))) as document,
            zipfile.ZipFile(target, "w") as archive,
        ):
            for page in pages:
                archive.writestr(f"{page}.png", _png(document.picture(page, self.dpi)))


def rendered(name: str, data: bytes, page: int, dpi: int) -> tuple[bytes, int]:
    """A page of a document as PNG, and the number of its pages.

    Args:
        name: name of the document, for its kind and for messages.
        data: the document.
        page: number of the page, from 1.
        dpi: resolution, dots per inch.

    Raises:
        UserError: the document or the page cannot be read.
        EnvironmentFault: the renderer of PDF is not installed.
    """
    with closing(_opened(Path(name), data)) as document:
        count = document.count()
        if not 1 <= page <= count:
            raise UserError(f"{name} has {count} pages, not {page}")
        return _png(document.picture(page, dpi)), count


@dataclass(frozen=True, slots=True)
class Page:
    """Reads a page of a document."""

    pages: Pages
    path: Path
    """The document."""
    numbers: tuple[int, ...]
    """Pages of the document in the sample."""
    place: int
    """Index of this page in `numbers`, from 0."""

    def __call__(self) -> bytes:
        return self.pages.read(self.path, self.numbers, self.place)

    @property
    def key(self) -> str:
        """A key that equal pages share."""
        return f"{self.pages.digest(self.path)}#{self.numbers[self.place]}"

    def alone(self) -> bytes:
        """The page without the other pages of its sample, for callers that need only one."""
        return self.pages.png(self.path, self.numbers[self.place])

    def fault(self) -> str | None:
        """Why the page cannot be rendered, as far as loading it shows; None: it loads."""
        return self.pages.faults(self.path).get(self.numbers[self.place])


def _opened(path: Path, data: bytes) -> _Pdf | _Tiff:
    return _Pdf(path, data) if _is_pdf(path) else _Tiff(path, data)


def _is_pdf(path: Path) -> bool:
    return path.suffix.lower() == ".pdf"


def _form_of(path: Path) -> str:
    """The inputs of a page's bytes besides document and resolution."""
    return f"{_FORM}-{pdfium_version()}" if _is_pdf(path) else str(_FORM)


@cache
def pdfium_version() -> str:
    """Version of the PDF renderer; the lookup takes half a millisecond."""
    return importlib.metadata.version("pypdfium2")


class _Pdf:
    def __init__(self, path: Path, data: bytes) -> None:
        try:
            import pypdfium2
        except ImportError as error:
            raise EnvironmentFault(
                "PDF files need pypdfium2", remedy=install_hint("pdf")
            ) from error
        self._path = path
        with _PDFIUM, guarded("not a readable PDF", path):
            self._document = pypdfium2.PdfDocument(data)

    def count(self) -> int:
        with _PDFIUM:
            return len(self._document)

    def close(self) -> None:
        with _PDFIUM:
            self._document.close()

    def fault(self, number: int, dpi: int) -> str | None:
        try:
            with self._page(number, dpi):
                return None
        except UserError as error:
            return str(error)

    def picture(self, number: int, dpi: int) -> Any:
        with self._page(number, dpi) as page:
            bitmap = page.render(scale=dpi / 72)
            try:
                return bitmap.to_pil()
            finally:
                bitmap.close()

    @contextmanager
    def _page(self, number: int, dpi: int) -> Iterator[Any]:
        with _PDFIUM, guarded(f"page {number} cannot be read", self._path):
            page = self._document[number - 1]
            try:
                width, height = (side * dpi / 72 for side in page.get_size())  # from 1/72 inch
                remedy = f"lower the option `dpi`: this is page {number} at {dpi} dpi"
                check_size(width, height, self._path, remedy=remedy)
                yield page
            finally:
                page.close()


class _Tiff:
    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._size = path, len(data)
        self._image = opened(io.BytesIO(data), "not a readable TIFF", path)

    def count(self) -> int:
        with guarded("not a readable TIFF", self._path):
            return int(getattr(self._image, "n_frames", 1))

    def close(self) -> None:
        self._image.close()

    def fault(self, number: int, dpi: int) -> str | None:
        try:
            with self._page(number):
                tags = getattr(self._image, "tag_v2", {})
                for places, sizes in ((273, 279), (324, 325)):  # tags of strips and of tiles
                    ends = zip(tags.get(places, ()), tags.get(sizes, ()), strict=False)
                    if any(place + size > self._size for place, size in ends):
                        self._image.load()  # some writers' sizes are wrong: a decodable page is whole
                return None
        except UserError as error:
            return str(error)

    def picture(self, number: int, dpi: int) -> Any:
        with self._page(number):
            self._image.load()  # Pillow reads some pictures only on use
            return flat(self._image)

    @contextmanager
    def _page(self, number: int) -> Iterator[None]:
        with guarded(f"page {number} cannot be read", self._path):
            self._image.seek(number - 1)
            width, height = self._image.size
            check_size(width, height, self._path)
            yield


def _png(picture: Any) -> bytes:
    out = io.BytesIO()
    with guarded("cannot be written as PNG"):
        (picture if picture.mode in ("1", "L", "RGB") else picture.convert("RGB")).save(out, "PNG")
    return out.getvalue()
