r"""Code fences and `\boxed{…}` around a text answer, removed where they only wrap it.

    ```markdown … ```, the whole answer          its content
    \boxed{42}, the whole answer                 42
    So it comes to $\boxed{\text{42 EUR}}$.      42 EUR; not of a transcription
    Answer:\n```\n42\n```                        42; not of a transcription

Within a page they belong to the page: a transcription of code or of a proof keeps its fences and boxes.
"""

from __future__ import annotations

import re

FENCE = "code fence"
BOX = "\\boxed"
SEVERAL_BOXES = "several boxes, the last kept"

_FENCE_LINE = re.compile(r"[ \t]{0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<words>[^`\n]*)")
_NESTED = 5
"""Most nested boxes that are removed."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_WORDS = re.compile(
    r"\s*\\(?:text(?:bf|it|rm|tt|sf|normal)?|mathrm|mathbf|mathsf|mathtt|mbox|hbox)\s*\{"
)
_ESCAPED = re.compile(r"\\([%$&#_{}])")
_MATHS = (("$$", "$$"), ("$", "$"), (r"\[", r"\]"), (r"\(", r"\)"))
_AFTER_BOX = re.compile(r"[\s$.。!)\]*]*(?:\\[\])][\s.。*]*)?\Z")
_CONCLUSION = re.compile(
    r"\b(?:answer|result|conclusion|therefore|thus|hence|ответ|итого|antwort|ergebnis|r[ée]ponse"
    r"|résultat|respuesta|resultado|risposta|resposta|cevap)\b|答案|答え|回答|الجواب|الإجابة",
    re.IGNORECASE,
)
_ANSWER_LINE = re.compile(
    r"\W*(?:(?:the|my|final|correct)\s+){0,3}(?:answer|result)(?:\s+is)?\W*"
    r"|\W*(?:окончательный\s+)?ответ\W*|\W*(?:antwort|réponse|respuesta|risposta|resposta)\W*"
    r"|\W*(?:最终)?答案是?\W*|\W*答え\W*",
    re.IGNORECASE,
)


def unwrapped(text: str, *, transcript: bool = False) -> tuple[str, tuple[str, ...]]:
    """A text answer without wrapping; and the names of the removed wrapping.

    Args:
        text: an answer without white space around it.
        transcript: it is the text of a page: only wrapping around all of it is removed.
    """
    if "```" not in text and "~~~" not in text and "\\" not in text:
        return text, ()
    marks: dict[str, None] = {}
    fenced = _fenced(text) if transcript else _fenced(text) or _fenced_at_end(text)
    if fenced is not None:
        text, marks[FENCE] = fenced.strip(), None
    for _ in range(_NESTED):
        boxed = _boxed(text, transcript=transcript)
        if boxed is None:
            break
        text, several = boxed
        marks[BOX] = None
        if several:
            marks[SEVERAL_BOXES] = None
        if not _BOX.match(text):
            break
    return text, tuple(marks)


# --- fences ---------------------------------------------------------------------------------------------


def _fenced(text: str) -> str | None:
    """The content of one fence around a whole text; an unclosed fence ends with the text."""
    lines = text.split("\n")
    opening = _FENCE_LINE.fullmatch(lines[0].rstrip())
    if opening is None:
        return _fenced_in_a_line(text)
    depth = 1
    for number, line in enumerate(lines[1:], 1):
        match = _FENCE_LINE.fullmatch(line.rstrip())
        if match is None or match["marks"][0] != opening["marks"][0]:
            continue
        if match["words"].strip():
            depth += 1
        elif len(match["marks"]) >= len(opening["marks"]) or depth > 1:
            depth -= 1
        if not depth:
            return "\n".join(lines[1:number]) if number == len(lines) - 1 else None
    return "\n".join(lines[1:])


_IN_A_LINE = re.compile(r"```(?:[A-Za-z]{1,12}[ \t]+)?([^`\n]*[^`\s][^`\n]*)```")


def _fenced_in_a_line(text: str) -> str | None:
    match = _IN_A_LINE.fullmatch(text)
    return None if match is None else match[1]


def _fenced_at_end(text: str) -> str | None:
    """The content of the fence that follows a line such as `Answer:` and ends the text."""
    begin = re.search(r"(?:\A|\n)[ \t]{0,3}(?:```|~~~)", text)
    if begin is None:
        return None
    before = text[: begin.start()].rstrip().rpartition("\n")[2]
    concluded = before and len(before) < 80 and _ANSWER_LINE.fullmatch(before)
    return _fenced(text[begin.start() :].strip()) if concluded else None


# --- boxes ----------------------------------------------------------------------------------------------


def _boxed(text: str, *, transcript: bool) -> tuple[str, bool] | None:
    """The content of the box with the answer, and whether other boxes differ; None: there is no such box."""
    boxes = _boxes(text)
    if not boxes:
        return None
    start, end, content = boxes[-1]
    whole = _is_whole(text, start, end, formulas=not transcript)
    if not whole and (transcript or not (_ends(text, end) or _concludes(text, start))):
        return None
    said = _said(content)
    if not said:
        return None
    if start and len(boxes) > 1:
        return said, len({_said(one) for _, _, one in boxes}) > 1
    return said, False


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of the outermost boxes; an unclosed box ends with the text."""
    found: list[tuple[int, int, str]] = []
    match = _BOX.search(text)
    while match is not None:
        depth, end = 1, len(text)
        for brace in _BRACES.finditer(text, match.end()):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if not depth:
                end = brace.end()
                break
        found.append((match.start(), end, text[match.end() : end - (depth == 0)]))
        match = _BOX.search(text, end)
    return found


def _is_whole(text: str, start: int, end: int, *, formulas: bool) -> bool:
    """Whether a box is all of a text, ignoring a full stop and marks of a formula."""
    rest = text.rstrip(" .。")
    if start == 0 and end >= len(rest):
        return True
    before, behind = text[:start].strip(), rest[end:].strip()
    return formulas and (before, behind.rstrip(" .。")) in _MATHS


def _ends(text: str, end: int) -> bool:
    """Whether only punctuation follows."""
    return len(text) - end < 20 and _AFTER_BOX.match(text, end) is not None


def _concludes(text: str, start: int) -> bool:
    """Whether the words before a box on its line announce the answer."""
    line = text[text.rfind("\n", 0, start) + 1 : start][-60:]
    return _CONCLUSION.search(line) is not None


def _said(content: str) -> str:
    r"""The content of a box, without `\text{…}` around it and with `%` for `\%`."""
    words = _WORDS.match(content)
    if words is not None:
        inner = content.rstrip()
        depth = 1
        for brace in _BRACES.finditer(inner, words.end()):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if not depth:
                if brace.end() == len(inner):
                    content = inner[words.end() : -1]
                break
    return _ESCAPED.sub(r"\1", content.replace("{,}", ",")).strip()
