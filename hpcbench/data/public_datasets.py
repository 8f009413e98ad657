"""Public document datasets in their publishers' layouts: FUNSD, XFUND, SROIE, CORD, OmniDocBench.

    funsd/{training_data,testing_data}/{annotations/*.json,images/*.png}
    xfund/{zh.val.json,zh.val/*.jpg}
    sroie/{train,test}/{entities/*.txt,box/*.txt,img/*.jpg}
    cord/{train,dev,test}/{json/*.json,image/*.png}
    omnidocbench/{OmniDocBench.json,images/*}

Each page is a sample, sorted by name, without fields, with boxes of its reference. `annotations` may be
omitted. For FUNSD and SROIE it is a folder, searched in the folder of each split (`annotations`, `entities`,
`box`), then in the dataset's folder (`testing_data/annotations`); an image without annotations is no sample.
The first use reports all bad pages, including pages with an empty reference; `on_bad: skip` leaves them out.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import AliasPath, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from hpcbench.data.box_annotations import (
    Marks,
    boxes,
    joined,
    packed,
    quad,
)
from hpcbench.data.references import is_empty
from hpcbench.data.sibling_files import SiblingFiles
from hpcbench.data.table import is_outside
from hpcbench.data.tree import Tree
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import DatasetSpec, check_options
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.records import Boxes, Sample

T = TypeVar("T")


class Page(NamedTuple):
    """A page that is a sample."""

    annotations: Path
    image: Path
    sample: Sample
    number: int | None = None
    """Its place in the annotations, from 1; None: the annotations are of this page alone."""


_EMPTY = "nothing to score: the reference is empty"
_SKIP = "`on_bad: skip` in the dataset's definition leaves it out"


class NoOptions(BaseModel, extra="forbid", frozen=True):
    """There are none."""


class PageOptions(BaseModel, extra="forbid", frozen=True):
    """Options of `Funsd` and `Sroie`."""

    task: Literal["kie", "ocr"] = "kie"
    """Kind of the reference: an object of keys and values, or the page's text."""


class PublicDataset(ABC):
    """Base of these datasets: options, counting, files."""

    api: ClassVar[int] = 1
    packs: ClassVar[bool] = True
    Options: ClassVar[type[BaseModel]] = NoOptions

    def __init__(self, spec: DatasetSpec) -> None:
        wrong = [message for _, message in check_options(type(self), spec.options)]
        if spec.mapping != FieldMap():
            wrong.append("this iterator knows its publisher's layout: leave 'mapping' out")
        if is_outside(spec.annotations):
            wrong.append(f"annotations '{spec.annotations}' lie outside the dataset's folder")
        if wrong:
            raise UserError(*wrong)
        self.spec, self.ocr = spec, spec.options.get("task") == "ocr"
        self.tree = Tree(spec.folder)

    def count(self) -> int:
        """Number of samples of the split."""
        return len(self._pages)

    def iter(self, start: int, stop: int) -> Iterator[Sample]:
        """Yield samples `start` to `stop` (exclusive) of the split, sorted by name."""
        for page in self._pages[start:stop]:
            yield replace(page.sample, images=(self.tree.image(page.image),))

    def files(self) -> Iterable[Path]:
        """Files of annotations and images of the split, each once."""
        return sorted({file for page in self._pages for file in (page.annotations, page.image)})

    def bad(self) -> list[Problem]:
        """Pages left out because they cannot be samples, one problem for each."""
        return [problem for _, problem in self._looked[1]]

    def bad_before(self, index: int) -> list[Problem]:
        """Left-out pages before a sample."""
        return [problem for place, problem in self._looked[1] if place <= index]

    def place(self, index: int) -> tuple[Path, int | None]:
        """File of a sample's annotations, and the sample's place in it."""
        return self._pages[index].annotations, self._pages[index].number

    @property
    def _pages(self) -> list[Page]:
        return self._looked[0]

    @cached_property
    def _looked(self) -> tuple[list[Page], list[tuple[int, Problem]]]:
        """Every good page of the split; the problem of each bad page with the index of the page after it.

        Raises:
            UserError: there are bad pages and they are not skipped, or there is no good page.
        """
        pages, problems, bad = [], list[Problem](), list[tuple[int, Problem]]()
        for loader in self._loaders():
            try:
                page = loader()
                if all(map(is_empty, page.sample.references)):
                    raise UserError(
                        Problem(_EMPTY, str(page.annotations), page.number, None, _SKIP)
                    )
                pages.append(page)
            except UserError as error:
                problems += error.problems
                bad.append((len(pages), error.problems[0]))
        if problems and self.spec.on_bad == "fail":
            raise UserError(*problems[:20])
        if not pages:
            none = Problem("no sample", str(self.spec.folder / self.spec.annotations))
            raise UserError(none, *problems[:20])
        return pages, bad

    @abstractmethod
    def _loaders(self) -> Iterable[Callable[[], Page]]:
        """A reader of each page, in order."""


class FolderDataset(PublicDataset):
    """One annotation file for each page, images of the same name in a neighbouring folder."""

    Options = PageOptions
    splits: ClassVar[Mapping[str, str]]  # its folder → split
    layout: ClassVar[tuple[str, ...]]  # folders for kie, ocr, images; suffix of annotations

    @abstractmethod
    def _reference(self, path: Path) -> str | dict[str, Any]:
        """The reference in a page's annotations."""

    @abstractmethod
    def _marks(self, path: Path) -> Marks:
        """Polygons of the reference on the page."""

    def _boxes(self, path: Path) -> Boxes:
        return boxes(self._marks(path))

    def _loaders(self) -> Iterable[Callable[[], Page]]:
        folder, wanted = self.spec.folder, self.spec.split
        annotations = self.spec.annotations or self.layout[self.ocr]
        found = [(folder / name / annotations, self.splits[name]) for name in sorted(self.splits)]
        if not any(self.tree.listing(path) for path, _ in found):
            found = [(folder / annotations, self.splits.get(annotations.split("/")[0], ""))]
        found = [one for one in found if self.tree.listing(one[0]) and wanted in (None, one[1])]
        if not found:
            what = f"no folder '{annotations}'" + (f" of split '{wanted}'" if wanted else "")
            layout = " or ".join(f"{name}/{self.layout[self.ocr]}" for name in sorted(self.splits))
            raise UserError(Problem(what, str(folder), remedy=f"expected {layout}"))
        for parent, split in found:
            for path in self.tree.listing(parent):
                if path.suffix.lower() == self.layout[3]:
                    yield partial(self._page, path, split)

    @cached_property
    def _siblings(self) -> SiblingFiles:
        return SiblingFiles(self.tree, (".png", ".jpg", ".jpeg"))

    def _page(self, path: Path, split: str) -> Page:
        stem = path.parent.parent / self.layout[2] / path.stem
        image = self._siblings.find(stem)
        if image is None:
            raise UserError(Problem(f"no image {stem.name} in {stem.parent}", str(path)))
        name = f"{split}/{path.stem}" if split else path.stem
        metadata = {"split": split} if split else {}
        references, marked = (self._reference(path),), partial(self._boxes, path)
        return Page(path, image, Sample(name, (image,), {}, references, name, metadata, marked))


class _Entity(BaseModel):
    id: int
    text: str
    label: str
    box: Any = None
    words: tuple[dict[str, str | list[float]], ...]
    linking: tuple[tuple[int, int], ...]


class _Form(BaseModel):
    form: tuple[_Entity, ...]


class Funsd(FolderDataset):
    """FUNSD (Jaume et al. 2019): scanned forms.

    `kie`: text of a question → text of the answer it is linked to, or a list of them in the file's order;
    questions without answer are left out. `ocr`: one line for each entity, not always in reading order.
    """

    splits: ClassVar[Mapping[str, str]] = {"training_data": "train", "testing_data": "test"}
    layout = ("annotations", "annotations", "images", ".json")

    def _reference(self, path: Path) -> str | dict[str, Any]:
        form = _parsed(self.tree, path, _Form).form
        if wrong := _wrong_links(form):
            raise UserError(*(Problem(message, str(path)) for message in wrong))
        if self.ocr:
            texts = ([str(word.get("text", "")) for word in one.words] for one in form)
            return _joined("\n", (_joined(" ", words) for words in texts))
        return _answers(form)

    def _marks(self, path: Path) -> Marks:
        form = _parsed(self.tree, path, _Form).form
        if self.ocr:
            return (
                (word.get("box"), str(word.get("text", ""))) for one in form for word in one.words
            )
        return ((answer.box, question.text.strip()) for question, answer in _answered(form))


def _wrong_links(form: Sequence[_Entity]) -> list[str]:
    known = {entity.id for entity in form}
    links = {frozenset(link) for entity in form for link in entity.linking}
    wrong = [f"a link to entity {end}, which does not exist" for end in {*chain(*links)} - known]
    if len(known) < len(form):
        wrong.append("two entities have the same id")
    return sorted(wrong)


def _answers(form: Sequence[_Entity]) -> dict[str, Any]:
    """Text of a question → text of its answer, or a list of its answers' texts."""
    pairs: dict[str, Any] = {}
    for question, answer in _answered(form):
        pairs.setdefault(question.text.strip(), []).append(answer.text.strip())
    return {key: found if len(found) > 1 else found[0] for key, found in pairs.items()}


class _Filled(BaseModel):
    id: str
    image: str = Field(validation_alias=AliasPath("img", "fname"))
    document: tuple[_Entity, ...]


class _Filed(BaseModel):
    lang: str = ""
    documents: tuple[dict[str, Any], ...]


class Xfund(PublicDataset):
    """XFUND (Xu et al. 2021): forms in seven languages, `LANGUAGE.SPLIT.json` with many forms each.

    Images are in a folder of the file's name without ending, where its zip file was unpacked, or beside it.
    `kie` and `ocr` as for FUNSD; the text of an entity is one line.
    """

    Options = PageOptions

    def _loaders(self) -> Iterable[Callable[[], Page]]:
        folder, split = self.spec.folder, self.spec.split
        pattern = self.spec.annotations or f"*.{split or '*'}.json"
        files = sorted(self.tree.glob(pattern))
        if not files:
            raise UserError(Problem(f"no file {pattern}", str(folder)))
        for path in files:
            filed = _parsed(self.tree, path, _Filed)
            language = filed.lang or path.name.partition(".")[0]
            for number, record in enumerate(filed.documents, 1):
                yield partial(self._page, path, language, record, number)

    def _page(self, path: Path, language: str, record: Mapping[str, Any], number: int) -> Page:
        filled = _checked(record, _Filled, path, number)
        if is_outside(filled.image):
            what = f"image {filled.image} lies outside the dataset's folder"
            raise UserError(Problem(what, str(path), number))
        choices = (path.with_suffix("") / filled.image, path.parent / filled.image)
        image = next(filter(self.tree.has, choices), None)
        if image is None:
            raise UserError(Problem(f"no image {choices[0]}", str(path), number))
        if wrong := _wrong_links(filled.document):
            raise UserError(*(Problem(message, str(path), number) for message in wrong))
        lines = _joined("\n", (one.text for one in filled.document))
        reference: str | dict[str, Any] = lines if self.ocr else _answers(filled.document)
        metadata = {"language": language}
        return Page(
            path, image, Sample(filled.id, (image,), {}, (reference,), filled.id, metadata), number
        )


def _answered(form: Sequence[_Entity]) -> Iterator[tuple[_Entity, _Entity]]:
    """Yield pairs of a question and its answer, both with a text."""
    entities = [one for one in form if one.text.strip()]
    links = {frozenset(link) for entity in form for link in entity.linking}
    for question in (one for one in entities if one.label == "question"):
        for answer in (one for one in entities if one.label == "answer"):
            if frozenset((question.id, answer.id)) in links:
                yield question, answer


class Sroie(FolderDataset):
    """SROIE (Huang et al., ICDAR 2019): scanned receipts.

    `kie`: company, date, address, total, if they have text; `entities` has no boxes. `ocr`: a line of text
    for each line of `box`; bytes that are not UTF-8 are dropped: one published file has some, where the image
    has no text.
    """

    splits: ClassVar[Mapping[str, str]] = {"train": "train", "test": "test"}
    layout = ("entities", "box", "img", ".txt")

    def _reference(self, path: Path) -> str | dict[str, Any]:
        if not self.ocr:
            keys = dict[Literal["company", "date", "address", "total"], str]
            return {
                key: text.strip()
                for key, text in _parsed(self.tree, path, keys).items()
                if text.strip()
            }
        lines = self._lines(path)
        wrong = [place for place, (line, found) in enumerate(lines, 1) if line and not found]
        if wrong:
            what = "not x1,y1,…,x4,y4,text"
            raise UserError(*(Problem(what, str(path), place) for place in wrong))
        return _joined("\n", (found[2] for _, found in lines if found))

    def _lines(self, path: Path) -> list[tuple[str, re.Match[str] | None]]:
        """Each line, and a match of its polygon and text."""
        lines = [line.strip() for line in self.tree.text(path, errors="ignore").split("\n")]
        return [(line, re.fullmatch(r"((?:\s*-?[\d.]+\s*,){8})(.*)", line)) for line in lines]

    def _marks(self, path: Path) -> Marks:
        found = (match for _, match in self._lines(path) if match) if self.ocr else ()
        return ((match[1].split(",")[:8], match[2].strip()) for match in found)


class _Word(BaseModel):
    text: str
    quad: Any = None


class _Line(BaseModel):
    category: str
    group_id: int = 0
    words: tuple[_Word, ...]


class _Receipt(BaseModel):
    valid_line: tuple[_Line, ...] = ()
    gt_parse: dict[str, Any] | None = None


class Cord(FolderDataset):
    """CORD v1 (Park et al. 2019): receipts, each line with a category (`menu.nm`) and a group.

    `kie`: part of the category before the dot → part after it → text; if several groups have lines of one
    kind, as menu items do, a list in the file's order. `ocr`: one line of text for each line of the file.
    """

    splits: ClassVar[Mapping[str, str]] = {"train": "train", "dev": "dev", "test": "test"}
    layout = ("json", "json", "image", ".json")

    def _reference(self, path: Path) -> str | dict[str, Any]:
        receipt = _parsed(self.tree, path, _Receipt)
        lines = [
            (line, _joined(" ", (word.text for word in line.words))) for line in receipt.valid_line
        ]
        if self.ocr:
            return _joined("\n", (text for _, text in lines))
        if receipt.gt_parse is not None:
            return receipt.gt_parse
        groups: dict[str, dict[int, dict[str, str]]] = {}
        for line, text in lines:
            kind, _, key = line.category.partition(".")
            fields = groups.setdefault(kind, {}).setdefault(line.group_id, {})
            fields[key] = _joined(" ", (fields.get(key, ""), text))
        listed = {kind: list(found.values()) for kind, found in groups.items()}
        return {
            kind: found if len(found) > 1 and kind == "menu" else _merged(found)
            for kind, found in listed.items()
        }

    def _marks(self, path: Path) -> Marks:
        lines = _parsed(self.tree, path, _Receipt).valid_line
        if self.ocr:
            return ((quad(word.quad), word.text) for line in lines for word in line.words)
        return ((joined(quad(word.quad) for word in line.words), line.category) for line in lines)


def _merged(groups: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Merge objects into one; keys of several objects get a list."""
    found: dict[str, list[str]] = {}
    for group in groups:
        for key, text in group.items():
            found.setdefault(key, []).append(text)
    return {key: texts if len(texts) > 1 else texts[0] for key, texts in found.items()}


Text = Annotated[str, BeforeValidator(lambda value: value or "")]  # null counts as empty


class _Block(BaseModel):
    category_type: str
    poly: Any = None
    order: float | None = None
    ignore: bool = False
    text: Text = ""
    latex: Text = ""
    html: Text = ""
    merge_list: tuple[_Block, ...] = ()

    def markdown(self) -> str:
        """The block as Markdown; empty if it has no text or is not in the reading order."""
        html, latex, kind = self.html.strip(), self.latex.strip(), self.category_type
        text = self.text.strip() or _joined("\n", (one.text for one in self.merge_list))
        if self.ignore or kind in ("abandon", "figure", "header", "footer", "page_number"):
            return ""
        if kind == "table":
            return html or latex or text
        if kind == "equation_isolated" and latex:
            bare = re.fullmatch(r"(\$\$?)(.*)\1|\\\[(.*)\\\]", latex, re.DOTALL)
            return f"$${(bare[2] or bare[3] or '').strip() if bare else latex}$$"
        if kind in ("title", "code_txt") and text:
            return f"# {text.lstrip('# ')}" if kind == "title" else f"```\n{text}\n```"
        return text or html or latex


class _Page(BaseModel):
    image: str = Field(validation_alias=AliasPath("page_info", "image_path"))
    traits: dict[str, Any] = Field({}, validation_alias=AliasPath("page_info", "page_attribute"))
    width: Any = Field(None, validation_alias=AliasPath("page_info", "width"))
    height: Any = Field(None, validation_alias=AliasPath("page_info", "height"))
    layout_dets: tuple[_Block, ...]

    def boxes(self) -> Boxes:
        """Boxes of the blocks in the reading order, labelled by kind."""
        shown = (
            one for one in self.layout_dets if one.order is not None and one.markdown().strip()
        )
        return boxes(((one.poly, one.category_type) for one in shown), self.width, self.height)


class OmniDocBench(PublicDataset):
    """OmniDocBench (Ouyang et al. 2024): pages of many kinds with their text, tables and formulas.

    The reference is the page as Markdown: blocks in their `order`, separated by a blank line; titles after
    `# ` (levels are not annotated), tables as HTML, formulas in `$$`, code fenced. It leaves out ignored
    blocks, blocks without order, figures, headers, footers and page numbers. A paragraph split across columns
    stays two paragraphs. Metadata are the page's attributes; the document is the image's name without page
    number.
    """

    def _loaders(self) -> Iterable[Callable[[], Page]]:
        if self.spec.split is not None:
            raise UserError("OmniDocBench has no splits", remedy="leave `split` out")
        path = self.spec.folder / (self.spec.annotations or "OmniDocBench.json")
        records = enumerate(_parsed(self.tree, path, list[dict[str, Any]]), 1)
        seen: dict[str, int] = {}
        return [
            partial(self._page, path, record, number, seen)
            for number, record in sorted(records, key=lambda one: _image_of(one[1]))
        ]

    def _page(
        self, path: Path, record: Mapping[str, Any], number: int, seen: dict[str, int]
    ) -> Page:
        page = _checked(record, _Page, path, number)
        name = page.image
        if first := seen.get(name):
            what = f"pages {first} and {number} share the image {name}"
            raise UserError(Problem(what, str(path), number))
        seen[name] = number
        if is_outside(name):
            what = f"image {name} lies outside the dataset's folder"
            raise UserError(Problem(what, str(path), number))
        choices = (path.parent / "images" / name, path.parent / name)
        image = next(filter(self.tree.has, choices), None)
        if image is None:
            what = f"no image {choices[0].name} in {choices[0].parent}"
            raise UserError(Problem(what, str(path), number))
        placed = [(one.order, one.markdown()) for one in page.layout_dets if one.order is not None]
        text = _joined("\n\n", (text for _, text in sorted(placed, key=itemgetter(0))))
        document = re.sub(r"(\.pdf|_page)_\d+$", "", PurePosixPath(name).stem)
        traits = page.traits.items()
        metadata = {label: value for label, value in traits if not isinstance(value, list | dict)}
        marked = packed(page.boxes())
        sample = Sample(name, (image,), {}, (text,), document, metadata, marked)
        return Page(path, image, sample, number)


def _joined(between: str, texts: Iterable[str]) -> str:
    return between.join(text.strip() for text in texts if text.strip())


def _image_of(record: Mapping[str, Any]) -> str:
    """The sort key of a page of OmniDocBench, even of a bad page."""
    info = record.get("page_info")
    return str(info.get("image_path", "")) if isinstance(info, Mapping) else ""


def _parsed(tree: Tree, path: Path, model: type[T]) -> T:
    return _checked(tree.parsed(path), model, path)


def _checked(data: Any, model: type[T], path: Path, number: int | None = None) -> T:
    try:
        return TypeAdapter(model).validate_python(data)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise UserError(*(Problem(message, str(path), number) for message in wrong)) from error
    except RecursionError as error:
        raise UserError(Problem("JSON nested too deeply", str(path), number)) from error
