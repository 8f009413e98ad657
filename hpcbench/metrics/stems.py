"""Stems of English words: Porter's suffix stripping, as METEOR of nltk uses it.

M. F. Porter 1980, "An algorithm for suffix stripping", Program 14(3), with the changes of nltk's
`PorterStemmer()` (3.10.4, its mode NLTK_EXTENSIONS): a dozen words with a stem of their own, words of two
letters as they are, "dies" and "died" give "die", y becomes i after a consonant alone, -alli goes before
-(a)bli, -fulli and -logi are suffixes too, and two letters vowel-consonant count as a short syllable.

Every step takes the first of its suffixes that a word has; if its condition does not hold, none of that step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

_OWN = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
    "innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing",
    "cannings": "canning", "canning": "canning", "howe": "howe", "proceed": "proceed",
    "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip

_Suffixes = Sequence[tuple[str, str]]

_PLURALS: _Suffixes = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
_SECOND: _Suffixes = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"),
    ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"),
    ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
    ("fulli", "ful"),
)  # fmt: skip
_THIRD: _Suffixes = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""),
    ("ness", ""),
)  # fmt: skip
_FOURTH = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
)  # fmt: skip


@functools.lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if word in _OWN:
        return _OWN[word]
    if len(word) <= 2:
        return word
    word = _without_ending(_without_plural(word))
    if word.endswith("y") and len(word) > 2 and _sounds(word[:-1])[-1] == "c":
        word = word[:-1] + "i"
    return _tidied(_fourth(_replaced(_second(word), _THIRD)))


def _sounds(text: str) -> str:
    """c or v for each character: y is a vowel after a consonant, and what is no letter a consonant."""
    found: list[str] = []
    for character in text:
        vowel = character in "aeiou" or (character == "y" and found[-1:] == ["c"])
        found.append("v" if vowel else "c")
    return "".join(found)


def _measure(text: str) -> int:
    """How often vowels are followed by consonants: m in [C](VC)^m[V]."""
    return _sounds(text).count("vc")


def _is_short(text: str) -> bool:
    """Ends in consonant, vowel, consonant, the last not w, x or y; or is vowel, consonant."""
    sounds = _sounds(text)
    return sounds == "vc" or (sounds.endswith("cvc") and text[-1] not in "wxy")


def _without_plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    for suffix, instead in _PLURALS:
        if word.endswith(suffix):
            return word.removesuffix(suffix) + instead
    return word


def _without_ending(word: str) -> str:
    """Without -ied, -eed, -ed, -ing, and what that leaves behind mended."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for suffix in ("ed", "ing"):
        rest = word.removesuffix(suffix)
        if rest != word and "v" in _sounds(rest):
            break
    else:
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) > 1 and rest[-1] == rest[-2] and _sounds(rest)[-1] == "c":
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _is_short(rest) else rest


def _replaced(word: str, suffixes: _Suffixes) -> str:
    for suffix, instead in suffixes:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            return rest + instead if _measure(rest) else word
    return word


def _second(word: str) -> str:
    while word.endswith("alli") and _measure(word[:-4]):
        word = word[:-2]
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) else word
    return _replaced(word, _SECOND)


def _fourth(word: str) -> str:
    for suffix in _FOURTH:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            gone = _measure(rest) > 1 and (suffix != "ion" or rest[-1] in "st")
            return rest if gone else word
    return word


def _tidied(word: str) -> str:
    """Without a last e, and with one l for two."""
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _is_short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
