"""Texts in the form in which labels are compared: without decoration."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

BEFORE, AFTER = " \t\n.¡\"'([{", " \t\n.,;:!\"')]}"
"""Signs around a name that are not part of it."""

OPEN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts without spaces between words, or with endings that touch the word, as ranges of a pattern."""

FENCE = re.compile(r"(?:```|~~~)[ \t]*[\w+-]*[ \t]*(?:\n|$)|```")
"""A line that opens or closes a code fence."""

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]"
)
_PILE = re.compile("([\u0300-\u036f]{20})[\u0300-\u036f]+")
_ORNAMENT = re.compile("[✅✔☑➜➡🧾😊✨\U0001f300-\U0001f44d\U0001f44f-\U0001f4ff]")
_SIGNS = str.maketrans(
    dict.fromkeys("“”„‟«»‹›「」『』＂", '"')
    | dict.fromkeys("‘’‚‛′ʼ´", "'")
    | {"、": ",", "№": "#", "İ": "I", "\u2028": "\n"}
    | dict(zip("٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹٫٬", "01234567890123456789.,", strict=True))
)
_RAISED = re.compile("(?<!\\w)[²³¹⁰⁴-⁹₀-₉]")
"""Digits of notes and exponents, which are not separate numbers."""
_SPACE = re.compile(r"[^\S\n]+")
_JOINED = re.compile(r"(?<=[^\W\d_])(?:_|-)(?=[^\W\d_])")
_POINT = re.compile(r"(?<!\.)\.\Z")
_UNIT = re.compile(r"[^\"']*\d[\"'][^\"']*\Z")
"""An inch or a foot: the only quotation mark, after a number."""
_END_OF_TURN = re.compile(r"(?:<\|\w{1,30}\|>|</s>|<(?:eos|end_of_turn)>)\s{0,9}\Z")
_TAG = re.compile(
    r"</?(?:b|i|em|strong|u|p|br|span|div|code|label|answer|result|final|class|category|type)\s{0,3}/?>",
    re.IGNORECASE,
)
_STARRED = re.compile(r"(?<![\w*])\*(?!\s)([^*\n]{1,300})(?<!\s)\*(?![\w*])")
_SCORED = re.compile(r"(?<!\w)_(?!\s)([^_\n]{1,300})(?<!\s)_(?!\w)")
_LATEX_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|tt)?|math(?:rm|bf|it|sf)|mbox|emph|underline)\s{0,3}\{([^{}\n]{0,300})\}"
)
_BOXED = re.compile(r"\\f?boxed\s{0,3}\{([^{}\n]{0,300})\}")
_LATEX_MATHS = re.compile(r"\\[()\[\]]")
_DOLLARS = re.compile(r"\${1,2}([^$\n]{1,300})\${1,2}")
_ONE_PAIR = re.compile(
    r"\{\s{0,9}([\"'])([\w -]{1,40})\1\s{0,9}:\s{0,9}([\"'])([^\"{}\n]{1,300})\3\s{0,9},?\s{0,9}\}"
)


def normalised(text: str, form: Literal["NFC", "NFKC"]) -> str:
    """A text in a Unicode form; a letter keeps at most twenty accents, as time grows with their square."""
    return unicodedata.normalize(form, _PILE.sub(r"\1", text))


def shown(text: str) -> str:
    """A text without invisible characters, marks of Markdown, HTML and LaTeX, in NFKC, with straight quotes.

    Letters keep their case. Its lower case, `folded`, has the same length. `\\boxed{B}` becomes `answer: B`,
    and `{"class": "B"}` becomes `class: B`.
    """
    text = _INVISIBLE.sub("", text.translate(_SIGNS))
    if not text.isascii():
        text = normalised(_RAISED.sub(r"^\g<0>", text), "NFKC").translate(_SIGNS)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("i\u0307", "i")
    if not text.isascii():
        text = _ORNAMENT.sub(" ", text)
        text = "".join(one if len(one.casefold()) == 1 else one.casefold() for one in text)
    if "`" in text or "~~~" in text:
        text = FENCE.sub("\n", text)
    if "<" in text:
        text = _TAG.sub("", _END_OF_TURN.sub("", text))
    if "\\" in text:
        text = _LATEX_TEXT.sub(r"\1", _LATEX_TEXT.sub(r"\1", text))
        text = text.replace("\\_", "_")
        text = _LATEX_MATHS.sub("", _BOXED.sub(r" answer: \1 ", text))
    if "$" in text:
        text = _DOLLARS.sub(_maths, text)
    if "*" in text or "_" in text or "`" in text:
        text = text.replace("**", "").replace("__", "").replace("`", "")
        text = _SCORED.sub(r"\1", _STARRED.sub(r"\1", text))
    if "{" in text:
        text = _ONE_PAIR.sub(r"\2: \4", text)
    return _SPACE.sub(" ", text)


def folded(text: str) -> str:
    """A shown text in lower case, of the same length."""
    return text.casefold().replace("ı", "i")


def name(text: str) -> str:
    """A shown text in the form compared with label names; empty: nothing but signs.

    `.5` keeps its point, `3"` and `3'` keep their unit.
    """
    whole = spaced(" ".join(folded(text).split()))
    bare = whole.lstrip(BEFORE)
    if bare[:1].isdigit() and _POINT.search(whole, 0, len(whole) - len(bare)):
        bare = "." + bare
    text = bare.rstrip(AFTER.replace('"', "").replace("'", "") if _UNIT.match(whole) else AFTER)
    return text[1:-1] if text.startswith("<") and text.endswith(">") else text


def spaced(text: str) -> str:
    """A text with words joined by `_` or a hyphen separated: `credit_note` is `credit note`.

    The length is the same; numbers such as `10-20` are unchanged.
    """
    return _JOINED.sub(" ", text)


def _maths(match: re.Match[str]) -> str:
    """The text between dollars, if it can be maths: `$B$`, but not `$2 or $`."""
    inner = match[1]
    if inner.startswith(" answer: ") or not any(one.isspace() for one in inner):
        return f" {inner} "
    return match.group()
