"""An answer becomes a value for metrics, or the reason why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from hpcbench.parsers import loose_forms
from hpcbench.parsers.find_json import Candidate, Search, find
from hpcbench.parsers.json_repair import EQUAL_KEYS, FoundJson
from hpcbench.parsers.reasoning import UNFINISHED, Answer, answer_in, strip_reasoning
from hpcbench.parsers.schemas import Judgement, Schema
from hpcbench.parsers.wrapping import unwrapped
from hpcbench.schema.records import Fault, Reading

Output = Literal["text", "label", "object"]

IN_A_LIST = "object in a list"
IN_A_TEXT = "object in a text"
NO_LIST = "objects not in a list"
HALF_CHARACTER = "half a character"
SEVERAL_OBJECTS = "several objects, one kept"
TAKEN_BACK = "words behind it take it back"
OUTSIDE_TAGS = "an object outside the answer's tags"
NO_JSON = {"table": "a table, not JSON", "lines": "lines, not JSON"}

_BLANK = "\ufeff\u200b \t\r\n"
_HALF = re.compile(r"[\ud800-\udfff]")


class DataParser:
    """Reads the answers of one ML task. `read` is a pure function: no state, no guess, no exception.

    The object of an answer is its JSON that departs least from the schema. Criteria, in this order: it is not
    empty, has the fewest faults and fields that the schema does not name, is complete, has no slips, is not
    within prose, is the last. Where the schema does not decide between several, the reading marks it. Unsound
    JSON is mended first (`mend`), and without JSON, a table or lines of `key: value` are read: `repair` says
    whether this is allowed. A table is read if its keys are fields of the schema, or its header names keys
    and values. An object that breaks its schema gives no value.

    A text loses the code fence or `\\boxed{}` around it (`wrapping`). The reading's `repairs` name every
    change of the text.
    """

    def __init__(
        self,
        output: Output = "text",
        schema: Mapping[str, Any] | None = None,
        model: Any = None,
        *,
        labels: Sequence[str] = (),
        repair: Literal["mark", "refuse"] = "mark",
        reasoning: Literal["strip", "keep"] = "strip",
        transcript: bool = False,
    ) -> None:
        """Prepare for an ML task.

        Args:
            output: kind of value to read.
            schema: JSON Schema of objects, or of a list of them; `enum` of labels.
            model: pydantic model class of objects, beside or instead of a schema.
            labels: the possible labels; empty: those of the schema's enum, or any.
            repair: whether JSON with slips is mended and marked, or refused.
            reasoning: whether thoughts and marks around the answer are removed.
            transcript: texts are page transcriptions: only wrapping around the whole answer is removed.
        """
        self.output, self.repair, self.reasoning = output, repair, reasoning
        self.transcript = transcript
        self.schema = Schema(schema, model)
        self.labels = tuple(labels) or self.schema.labels
        self.lists = "array" in self.schema.wants and "object" not in self.schema.wants
        self.noun = "list" if self.lists else "object"

    def read(self, text: str, truncated: bool = False, labels: Sequence[str] = ()) -> Reading:
        """Read one answer.

        Args:
            text: the raw answer.
            truncated: it was cut at max_tokens.
            labels: of this sample, instead of the task's.
        """
        answer = self._answer(whole_characters(text))
        if answer is None:
            return self._nothing(UNFINISHED, truncated)
        if self.output == "text":
            found, marks = unwrapped(answer.text.strip().strip(_BLANK), transcript=self.transcript)
            reading = Reading(found, form="text", repairs=marks, truncated=truncated)
        elif self.output == "label":
            reading = self._label(answer.text, tuple(labels) or self.labels, truncated)
        else:
            reading = self._object(answer.text.strip(_BLANK), truncated)
            if not reading.form and answer.around:
                whole = self._object(answer.around.strip(_BLANK), truncated)
                if whole.form:
                    reading = replace(whole, repairs=(OUTSIDE_TAGS, *whole.repairs))
        if answer.marks and reading.value is not None:
            reading = replace(reading, repairs=(*answer.marks, *reading.repairs))
        return reading

    def _answer(self, text: str) -> Answer | None:
        """An answer without its thoughts; None: it is all thoughts."""
        if self.reasoning == "keep":
            return Answer(text)
        if not self.transcript:
            return answer_in(text)
        stripped = strip_reasoning(text)
        return None if stripped is None else Answer(stripped)

    def judged(self, value: object, truncated: bool = False) -> Reading:
        """A value read by another parser, checked against the schema."""
        if self.output != "object" or not self.schema.definition:
            return Reading(value, form="parser", truncated=truncated)
        judgement = self.schema.judge(value)
        return self._reading(value, judgement, "parser", (), truncated)

    # --- labels ---------------------------------------------------------------------------------------

    def _label(self, text: str, labels: tuple[str, ...], truncated: bool) -> Reading:
        if not labels:
            bare = text.strip().strip(".\"'").casefold()
            return Reading(bare, form="text", truncated=truncated)
        from hpcbench.parsers.class_label import (
            read_label,  # compiles the words of a dozen languages
        )

        found, reason = read_label(text, labels)
        return Reading(found, reason, "text" if found is not None else "", truncated=truncated)

    # --- objects --------------------------------------------------------------------------------------

    def _object(self, text: str, truncated: bool) -> Reading:
        inner = _text_of(text)
        search = find(inner or text, lists=self.lists, truncated=truncated)
        if search.given_up:
            return self._nothing(search.given_up, truncated)
        candidates = [self._suited(one) for one in self._joined(search)]
        if inner:
            candidates = [(one, (*slips, IN_A_TEXT)) for one, slips in candidates]
        if not candidates:
            return self._otherwise(text, search, truncated)
        candidate, slips, judgement, several = self._best(candidates)
        found = candidate.found
        value: object = found.value
        if "\\u" in text and (mended := _with_whole_characters(value)) is not value:
            value, slips = mended, (*slips, HALF_CHARACTER)
        if several or search.broken:
            slips = (*slips, SEVERAL_OBJECTS)
        elif _taken_back((inner or text)[found.end :]):
            slips = (*slips, TAKEN_BACK)
        if slips and self.repair == "refuse":
            reason = "JSON broken off" if found.cut else f"JSON not sound: {slips[0]}"
            reason = f"several {self.noun}s" if slips[0] == SEVERAL_OBJECTS else reason
            return self._reading(None, judgement, candidate.form, slips, truncated, reason)
        reason = ""
        if judgement.faults and len(candidates) > 1:
            reason = f"several {self.noun}s, none fits the schema"
        elif judgement.faults and found.cut:
            reason = "JSON broken off"
        elif not judgement.faults and isinstance(found.value, list) != self.lists:
            reason = "one object, not a list" if self.lists else "a list, not one object"
        return self._reading(value, judgement, candidate.form, slips, truncated, reason)

    def _joined(self, search: Search) -> Iterable[Candidate]:
        """Successive objects as a list, where a list is requested and there is none."""
        found = [one for one in search.candidates if isinstance(one.found.value, dict)]
        if not self.lists or len(found) < 2 or len(found) < len(search.candidates):
            return search.candidates
        first, last = found[0].found, found[-1].found
        slips = dict.fromkeys(slip for one in found for slip in one.found.repairs)
        listed = [one.found.value for one in found]
        whole = FoundJson(listed, first.start, last.end, (*slips, NO_LIST), last.cut)
        return [Candidate(whole, found[0].form)]

    def _suited(self, candidate: Candidate) -> tuple[Candidate, tuple[str, ...]]:
        """A candidate with its slips; a list of one object becomes that object where one is requested."""
        found = candidate.found
        value, slips = found.value, found.repairs
        if (
            not self.lists
            and isinstance(value, list)
            and len(value) == 1
            and isinstance(value[0], dict)
        ):
            found = FoundJson(value[0], found.start, found.end, slips, found.cut)
            return Candidate(found, candidate.form), (*slips, IN_A_LIST)
        return candidate, slips

    def _best(
        self, candidates: Sequence[tuple[Candidate, tuple[str, ...]]]
    ) -> tuple[Candidate, tuple[str, ...], Judgement, bool]:
        """The best candidate, and whether another may be meant.

        Another may be meant if it fits as well, is cut off, or comes later with fields of the schema.
        """
        judged = [(one, slips, self.schema.judge(one.found.value)) for one, slips in candidates]

        def fit(entry: tuple[Candidate, tuple[str, ...], Judgement]) -> tuple[Any, ...]:
            one, _, judgement = entry
            return (
                isinstance(one.found.value, list) != self.lists,
                not one.found.value,
                len(judgement.faults) + judgement.extra,
            )

        def badness(
            entry: tuple[int, tuple[Candidate, tuple[str, ...], Judgement]],
        ) -> tuple[Any, ...]:
            place, (one, slips, _) = entry
            return *fit(entry[1]), one.found.cut, bool(slips), one.form == "prose", -place

        chosen, best = min(enumerate(judged), key=badness)
        known = self.schema.properties.keys()

        def is_rival(place: int, entry: tuple[Candidate, tuple[str, ...], Judgement]) -> bool:
            found = entry[0].found
            if found.value == best[0].found.value:
                return False
            later = place > chosen and isinstance(found.value, dict)
            corrects = later and not known.isdisjoint(found.value)
            return found.cut or corrects or fit(entry) == fit(best)

        several = any(is_rival(place, entry) for place, entry in enumerate(judged))
        return *best, several

    def _otherwise(self, text: str, search: Search, truncated: bool) -> Reading:
        """Read an answer without JSON."""
        value, form, twice = (None, "", False) if search.broken else self._shaped(text)
        if search.broken:
            return self._nothing("JSON broken", truncated)
        if form and (value is None or self.repair == "refuse"):
            return self._nothing(f"no JSON {self.noun}, but a {form}", truncated)
        if value is None:
            return self._nothing(f"no JSON {self.noun}", truncated)
        slips = () if self.schema.properties else (NO_JSON[form],)
        if twice:
            slips = (*slips, EQUAL_KEYS)
        return self._reading(value, self.schema.judge(value), form, slips, truncated)

    def _shaped(self, text: str) -> tuple[object | None, str, bool]:
        """The value of a table or lines, the form, and whether a key repeats."""
        properties = self.schema.properties
        known = tuple(properties)
        tables = loose_forms.tables(text)
        if self.lists:
            rows = [row for table in tables for row in loose_forms.rows_of(table, known)]
            fitted = [loose_forms.fitted(row, properties) for row in rows]
            return fitted or None, "table" if tables else "", False
        if tables:
            said = loose_forms.pairs_of(tables[0], known) if len(tables) == 1 else None
        else:
            said = loose_forms.lines(text, known)
        form = "table" if tables else "lines" if said else ""
        if said is None:
            return None, form, False
        return loose_forms.fitted(said[0], properties), form, said[1]

    # --- readings -------------------------------------------------------------------------------------

    def _reading(
        self,
        value: object | None,
        judgement: Judgement,
        form: str,
        slips: tuple[str, ...],
        truncated: bool,
        reason: str = "",
    ) -> Reading:
        if judgement.faults and not reason:
            reason = _in_words(judgement.faults)
        return Reading(
            None if reason else value, reason, form, slips, judgement.faults,
            required=judgement.required, found=judgement.found, extra=judgement.extra,
            truncated=truncated,
        )  # fmt: skip

    def _nothing(self, reason: str, truncated: bool) -> Reading:
        demanded = self.schema.demanded if self.output == "object" else 0
        return Reading(None, reason, required=demanded, truncated=truncated)


def _taken_back(rest: str) -> bool:
    """Whether the text after an object withdraws it."""
    if not rest.strip():
        return False
    from hpcbench.parsers.label_words import TAKEN_BACK  # compiles the words of a dozen languages

    return TAKEN_BACK.search(rest.casefold()) is not None


def whole_characters(text: str) -> str:
    """A text that can be written as UTF-8: half a surrogate pair becomes `�`."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _with_whole_characters(value: object) -> object:
    """The same inside a value, whose texts may come from escapes."""
    written = json.dumps(value, ensure_ascii=False)
    return json.loads(whole_characters(written)) if _HALF.search(written) else value


def _text_of(text: str) -> str | None:
    """The inner text, if an answer is one JSON string with an object or list in it."""
    if not (text.startswith('"') and text.endswith('"') and "{" in text):
        return None
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return inner if isinstance(inner, str) else None


_INDEX = re.compile(r"\[\d+\]")
_WORDS = {
    "missing": "schema: missing field {}",
    "mistyped": "schema: field {} {}",
    "extra": "schema: extra field {}",
    "value": "schema: value of {}",
}


def _in_words(faults: Sequence[Fault]) -> str:
    """The most serious fault as a reason, without parts that differ from answer to answer."""
    order = list(_WORDS)
    first = min(faults, key=lambda one: (bool(one.path), order.index(one.kind)))
    if not first.path and first.kind == "mistyped":
        return f"schema: the whole {first.message}"
    return _WORDS[first.kind].format(_INDEX.sub("[]", first.path) or "the whole", first.message)
