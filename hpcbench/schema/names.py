"""Names that people give, and the ids that stand for them in paths.

A name is one line of text in any script. Paths of experiments and of figures need more: no spaces, few bytes,
the same bytes on every file system. `id_of` is the only rule that makes such an id from a name:

- letters, digits and `. _ -` with a letter or digit first, at most 80 of them: the id is the name itself;
- any other name: up to 40 of these characters for people (Cyrillic letters as Latin ones), then `+` and 10
  hexadecimal digits of the name's SHA-256.

`+` is in no name of the first form, so no two names of different form have the same id, and the digits keep
those of the second form apart. Names that only differ in how Unicode composes their letters are one name.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

LONGEST = 120
"""Longest name, characters."""

LONGEST_PLAIN = 80
"""Longest name that is its own id, characters."""

LONGEST_HEAD = 40
"""Most characters for people in any other id."""

_PLAIN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_PLAIN - 1}}}")

_HIDDEN = r"\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Controls, breaks of lines, and characters that are not seen."""


def _pattern(not_inside: str) -> str:
    never = rf"\\{not_inside}{_HIDDEN}"
    return rf"^[^\s./~@+\-{never}](?:[^{never}]*[^\s{never}])?$"


NAME = _pattern("")
"""Regular expression of a name; `/` separates folders. Rust, Python and JavaScript read it alike."""

FLAT_NAME = _pattern("/")
"""Regular expression of a name without `/`."""

_LATIN = {
    "а": "a", "б": "b", "в": "v", "г": "g", "д": "d", "е": "e", "ё": "e", "ж": "zh", "з": "z", "и": "i",
    "й": "y", "к": "k", "л": "l", "м": "m", "н": "n", "о": "o", "п": "p", "р": "r", "с": "s", "т": "t",
    "у": "u", "ф": "f", "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "", "ы": "y",
    "ь": "", "э": "e", "ю": "yu", "я": "ya",
}  # fmt: skip
_LATIN |= {letter.upper(): latin.capitalize() for letter, latin in _LATIN.items()}


def is_name(text: str, *, flat: bool = False) -> bool:
    """Whether a definition can have this name; `flat`: also a plan or run task."""
    return len(text) <= LONGEST and re.fullmatch(FLAT_NAME if flat else NAME, text) is not None


def id_of(name: str) -> str:
    """The id that stands for a name in paths; ASCII, at most 80 characters, never empty."""
    if _PLAIN.fullmatch(name):
        return name
    whole = unicodedata.normalize("NFC", name)
    latin = "".join(_LATIN.get(letter, letter) for letter in whole)
    letters = unicodedata.normalize("NFKD", latin).encode("ascii", "ignore").decode()
    head = re.sub(r"[^A-Za-z0-9._]+", "-", letters).strip("-._")[:LONGEST_HEAD].rstrip("-._")
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{head or 'name'}+{digest}"


def spelling(name: str) -> str:
    """The name in the one composition of its letters that comparisons use."""
    return unicodedata.normalize("NFC", name)


def case_blind(name: str) -> str:
    """Key that is equal for names that differ only in case or composition."""
    return spelling(spelling(name).casefold())


def names_in(text: str) -> list[str]:
    """Names that commas separate: `cer, wer`."""
    return [name for name in map(str.strip, text.split(",")) if name]
