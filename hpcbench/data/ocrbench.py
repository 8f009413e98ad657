"""OCRBench v2 as its publisher ships it: a list of questions, each with a type and a scoring rule.

Fu et al., "OCRBench v2" (arXiv 2501.00321): `OCRBench_v2.json`, a list of

    {"id": 0, "type": "text grounding en", "dataset_name": "…", "image_path": "EN_part/0.jpg",
     "question": "…", "answers": […], "eval": "multiple choice", "bbox": […], "content": […]}

where `eval`, `bbox` and `content` are present if the type needs them; or Parquet with the same columns, in
which objects are JSON texts and the boxes of spotting are `bbox_list`. `eval.py` (commit 671a3f8) defines the
rule of a type, `get_score.py` (c53f027) its category; both in `eval_scripts` of Yuliang-Liu/MultimodalOCR.
References have the form of the metric `ocrbench_v2`: `{"answer": …, "kind": …, "box": …}`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpcbench.data.annotations import Record
from hpcbench.data.references import is_empty
from hpcbench.data.table import TableDataset
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.records import Sample

_CATEGORIES = {
    "text recognition en": "text_recognition", "fine-grained text recognition en": "text_recognition",
    "full-page OCR en": "text_recognition", "text grounding en": "text_detection",
    "VQA with position en": "text_detection", "text spotting en": "text_spotting",
    "key information extraction en": "relationship_extraction",
    "key information mapping en": "relationship_extraction", "document parsing en": "element_parsing",
    "chart parsing en": "element_parsing", "table parsing en": "element_parsing",
    "formula recognition en": "element_parsing", "math QA en": "mathematical_calculation",
    "text counting en": "mathematical_calculation",
    "document classification en": "visual_text_understanding",
    "cognition VQA en": "visual_text_understanding", "diagram QA en": "visual_text_understanding",
    "reasoning VQA en": "knowledge_reasoning", "science QA en": "knowledge_reasoning",
    "APP agent en": "knowledge_reasoning", "ASCII art classification en": "knowledge_reasoning",
    "full-page OCR cn": "text_recognition", "key information extraction cn": "relationship_extraction",
    "handwritten answer extraction cn": "relationship_extraction",
    "document parsing cn": "element_parsing", "table parsing cn": "element_parsing",
    "formula recognition cn": "element_parsing", "cognition VQA cn": "visual_text_understanding",
    "reasoning VQA cn": "knowledge_reasoning", "text translation cn": "knowledge_reasoning",
}  # fmt: skip
"""Type → category; the languages have categories of their own."""

_KINDS = {
    "fine-grained text recognition en": "transcript", "full-page OCR en": "transcript",
    "full-page OCR cn": "transcript", "text translation cn": "transcript",
    "text grounding en": "grounding", "VQA with position en": "position",
    "text spotting en": "spotting", "key information extraction en": "fields",
    "key information mapping en": "fields", "key information extraction cn": "fields",
    "document parsing en": "document", "document parsing cn": "document",
    "chart parsing en": "chart", "table parsing cn": "table", "formula recognition en": "formula",
    "formula recognition cn": "formula_cn",
}  # fmt: skip
"""Type → kind of question, for types whose kind depends on neither question nor `eval`."""

_ASKED = {
    "multiple choice": "choice",
    "case sensitive": "case",
    "exact match": "count",
    "regression": "count_near",
}
"""`eval` → kind of question."""

_SHORT_ANSWER = "简答"
"""Text that asks for a sentence, in questions of "handwritten answer extraction cn"."""


class OcrBenchV2(TableDataset):
    """OCRBench v2's JSON; each reference names its scoring rule."""

    annotations = "OCRBench_v2.json"
    preset = FieldMap(
        id="#", images="image_path", references="answers", document="image_path", split=None,
        fields={"question": "question"},
        metadata={"dataset": "dataset_name", "question_type": "type", "eval": "eval"},
    )  # fmt: skip

    def _light_columns(self) -> set[str] | None:
        columns = super()._light_columns()
        if columns is None:
            return None
        more = {"type", "eval", "question", "bbox", "bbox_list", "content"}
        return columns | (more & set(self._rows.names() or ()))

    def _complaint(self, index: int, record: Record) -> str | None:
        # Text spotting has its reference in `content`.
        needed = [key for key in self._needed if key != self.mapping.references]
        missing = [key for key in needed if record.get(key) is None]
        if missing:
            return f"key {', '.join(map(repr, missing))} is missing"
        try:
            self._scored(record)
        except ValueError as error:
            return str(error)
        return None

    def _sample(self, index: int, record: Record, *, images: bool) -> Sample:
        kind = str(record["type"])
        about = {"category": _CATEGORIES[kind], "language": kind.rpartition(" ")[2]}
        sample = super()._sample(index, record, images=images)
        references = tuple(self._scored(record))
        return replace(sample, references=references, metadata={**sample.metadata, **about})

    def _scored(self, record: Record) -> list[dict[str, Any]]:
        """The references of a record.

        Raises:
            ValueError: the record lacks a part; the message names it.
        """
        kind = _kind(record)
        answers = self._answer(record)
        if kind == "spotting":
            boxes = record.get("bbox_list") or record.get("bbox")
            texts = record.get("content")
            if not (isinstance(boxes, list) and isinstance(texts, list)) or len(boxes) != len(
                texts
            ):
                raise ValueError("'bbox' and 'content' must be lists of the same length")
            return [{"answer": [str(text) for text in texts], "kind": kind, "box": boxes}]
        if not isinstance(answers, list):
            answers = [] if answers is None else [answers]
        if kind == "grounding":
            box = _box("answers", answers)
            return [{"answer": str(box), "kind": kind, "box": box}]
        if is_empty(answers) or (record["type"] == "text translation cn" and not answers[0]):
            raise ValueError(f"'{self.mapping.references}' is empty")
        if kind in ("chart", "fields"):
            return [{"answer": _object(answers[0]), "kind": kind}]
        place = {"box": _box("bbox", record.get("bbox"))} if kind == "position" else {}
        return [{"answer": str(answer), "kind": kind, **place} for answer in answers]


def _kind(record: Record) -> str:
    """The kind of question of a record, which defines its scoring.

    Raises:
        ValueError: the record does not define it, or it is unknown.
    """
    name, asked, question = (record.get(key) for key in ("type", "eval", "question"))
    if not isinstance(name, str) or name not in _CATEGORIES:
        raise ValueError(f"OCRBench v2 has no type {name!r}")
    if not isinstance(question, str):
        raise ValueError("'question' must be text")
    if name in _KINDS:
        return _KINDS[name]
    if name == "table parsing en":
        markdown = "markdown" in question.lower() and "html" not in question.lower()
        return "table_markdown" if markdown else "table"
    if name == "handwritten answer extraction cn":
        return "transcript" if _SHORT_ANSWER in question else "spelled"
    counts = name == "text counting en"
    if asked in (None, "", "None") and not counts:
        return "cn" if str(name).endswith(" cn") else "plain"
    kind = _ASKED.get(str(asked), "")
    if not kind or kind.startswith("count") != counts:
        raise ValueError(f"type {name!r} cannot be scored by eval {asked!r}")
    return kind


def _box(key: str, value: Any) -> list[float]:
    """A box from a list of four numbers, or of texts of numbers.

    Raises:
        ValueError: the value is no such list.
    """
    try:
        numbers = [float(one) for one in value]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if len(numbers) != 4:
        raise ValueError(f"'{key}' must be a box of four numbers")
    return [int(one) if one.is_integer() else one for one in numbers]


def _object(value: Any) -> Mapping[str, Any]:
    """An object, given as such or as its text in JSON or Python.

    Raises:
        ValueError: the value is no object.
    """
    if isinstance(value, str):
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(value)
                break
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    if not isinstance(value, Mapping):
        raise ValueError("the answer must be an object")
    return value
