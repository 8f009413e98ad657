"""The label that the sentences of an answer name, by the words around it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from hpcbench.parsers import label_words as words
from hpcbench.parsers.label_text import AFTER, OPEN, folded

NONE = "no label of the list"
SEVERAL = "several labels"
NEGATED = "a negation beside the label"
DOUBTED = "a doubt beside the label"
CORRECTED = "a correction beside the label"
ASKED = "a question beside the label"
UNCLEAR = "the label in an unclear sentence"
REASONS = (NONE, SEVERAL, NEGATED, DOUBTED, CORRECTED, ASKED, UNCLEAR)
"""All reasons to refuse a label."""

NO_ONE = -1
"""The place of two labels named together: an option's letter before the name of another."""

ONE_LETTER_WORDS = frozenset("aeiouyавикосуяéèàó")
"""Letters that are also words."""

_FAR = 240
"""Characters before and after a label that count as its clause."""
_TRIED = 20
"""Most claims of an answer to examine if none settles it."""

_NOUN = "|".join(map(re.escape, sorted(words.NOUNS, key=len, reverse=True)))
_STOP = re.compile(
    rf"(?:[!?…؟]+|\.+)[\"')\]*]*(?=\s|$)|[!?]+[\"']*(?=[{OPEN}])|。+[\"']*"
    rf"|(?<!:)(?<!: )\n(?=[^\w\n]{{0,6}}"
    rf"(?:(?:[^\W\d_]{{1,20}} ){{0,3}}?(?:{_NOUN}) ?(?:[:—–-]|(?:is|ist|est|es|è)\b)"
    rf"|(?:最终)?(?:{words.CJK_NOUNS})(?:[:是为は])|{words.EXPLANATION.pattern}))",
    re.IGNORECASE,
)
"""Ends of sentences: punctuation, and lines before a line that announces the answer or its reasons."""
_LONE_MARK = re.compile(r"(?<!\w)(?:[^\W\d_]|\d{1,3})[\"')\]*]*\Z")
_CONCLUSION = re.compile(rf"(?<=[,;:—–-])\s{{0,9}}(?={words.CONCLUSION.pattern})")
_TOKEN = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*'?|\d+|\S")
_WHOLE_NAME = re.compile(
    r"[\"')\]}>]{0,4}\s{0,2}[.!?。…]*[\"')\]}>]{0,4}(?:\s*$|[ ]?\n)"
    rf"|[\"')\]}}>]{{0,4}}\s?(?:[;…]|,(?=\s|$|[{OPEN}])|\s[-–—(])(?!\s*[\d+\-.<>~≈])"
    r"|[\"')\]}>]{0,4}\s?\((?:[5-9]\d|100)(?:[.,]\d{1,9})?\s?%\)[.!]?(?:\s*$|[ ]?\n)"
)
"""Ends of a name: the end of the sentence or line, separating signs, or a high confidence."""
_TRAILS_OFF = re.compile(r"[\"')\]]{0,3}\s?\.{2,}[\"')\]]{0,3}[ ]*[^\W\d_A-ZА-ЯЁ]")
"""An ellipsis after which the sentence continues."""
_ENDS = re.compile(r"[\"')\]]{0,3}\s*(?:$|[.!,;。?\n])")
_IN_BRACKETS = re.compile(r" \([^()\n]{0,200}\)[.!]?\s*(?:$|\n)")
_LETTER = re.compile(r"\(?[^\W\d_]\)?")
_DASHED = re.compile(r"\s[-–—]\s")
_IT_IS = re.compile(r"\s+(?:it|this|that|there)\s+(?:is|was|does|has|are|do)\b")
_NUMBER_ENDS = re.compile(r"[)\]*]{0,3}(?:[.!]?(?:\s+\D|\s*$|\s*\n)|[,;]\s*\D)")


@dataclass(frozen=True, slots=True)
class Mention:
    """A place of a text that may name a label."""

    start: int
    end: int
    place: int
    """Place of the label in the list, or `NO_ONE`."""
    mark: str = ""
    """The letter or number, if the mention is one; for an option with its name: empty."""
    counts: bool = True
    """Whether the mention certainly means the label: the article `A` and plain numbers may not."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    start: int
    end: int
    concludes: bool
    """The sentence begins with `so`, `therefore` or the like."""
    asks: bool


@dataclass(frozen=True, slots=True)
class _Claim:
    """A mention in a sentence whose form says: this is the answer."""

    mention: Mention
    sentence: int
    clause: int
    """Start of the words that introduce it."""
    announced: bool
    """A noun such as `answer` or `class` introduces it."""
    final: bool
    """The final answer: `final answer`, or a conclusion."""
    settles: bool
    """Earlier statements do not count."""
    end: int
    """End of the name, including `, not another` after it."""


class _Spots:
    """Places of a pattern in a text."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places

    @classmethod
    def of(cls, pattern: re.Pattern[str], text: str) -> _Spots:
        return cls([one.start() for one in pattern.finditer(text)])

    def first(self, low: int, high: int) -> int | None:
        """The first place in [low, high)."""
        at = bisect_left(self.places, low)
        return self.places[at] if at < len(self.places) and self.places[at] < high else None

    def within(self, low: int, high: int) -> bool:
        return self.first(low, high) is not None


class Answer:
    """An answer in sentences.

    Args:
        text: the result of `label_text.shown`.
        mentions: places that may name a label, in order.
    """

    def __init__(self, text: str, mentions: Sequence[Mention]) -> None:
        self.text, self.low, self.size = text, folded(text), len(text) + 1
        self.mentions = mentions
        self.counted = [one for one in mentions if one.counts]
        self.starts = [one.start for one in self.counted]
        self.begins = [one.start for one in mentions]

    def read(self) -> tuple[int | None, str]:
        """Place of the label that the sentences name, else None and one of `REASONS`."""
        claims = list(self._claims())
        settled = [one for one in claims if one.settles]
        if settled:
            last = settled[-1]
            reason = SEVERAL if self._rivals(last, settled) else self._spoilt(last)
            return (None, reason) if reason else (last.mention.place, "")
        reason = ""
        for claim in islice(claims, _TRIED):
            reason = self._spoilt(claim)
            if not reason:
                return claim.mention.place, ""
        return None, reason or self.why()

    def why(self) -> str:
        """Why no label is read."""
        places = {one.place for one in self.counted}
        if not places:
            return NONE
        if len(places) > 1 or NO_ONE in places:
            return SEVERAL
        for reason in (NEGATED, ASKED, DOUBTED, CORRECTED):
            if self._spots[reason].within(0, self.size):
                return reason
        return UNCLEAR

    @property
    def is_neutral(self) -> bool:
        """Whether the answer says nothing for or against any label."""
        return not self.counted and not any(
            self._spots[reason].within(0, self.size) for reason in (NEGATED, DOUBTED, CORRECTED)
        )

    # --- its parts ------------------------------------------------------------------------------------

    @cached_property
    def sentences(self) -> list[_Sentence]:
        """All sentences, in order; a conclusion within a sentence begins another."""
        cuts = [0]
        for stop in _STOP.finditer(self.text):
            if not (
                stop.group().startswith(".") and self._is_initial(stop)
            ) and not self._is_inside(stop):
                cuts.append(stop.end())
        cuts.append(len(self.text))
        conditions = _Spots.of(words.CONDITION, self.low)
        found = []
        for start, end in zip(cuts, cuts[1:], strict=False):
            inner = [start]
            for cut in _CONCLUSION.finditer(self.low, start, end):
                if not conditions.within(inner[-1], cut.start()):
                    inner.append(cut.end())
            tail = self.text[max(start, end - 8) : end]
            for low, high in zip(inner, [*inner[1:], end], strict=True):
                if self.text[low:high].strip():
                    concludes = (
                        low != start or words.CONCLUDED.match(self.low, low, high) is not None
                    )
                    found.append(_Sentence(low, high, concludes, "?" in tail or "؟" in tail))
        return found

    def _is_inside(self, stop: re.Match[str]) -> bool:
        """Whether a mark is part of the name of a label: `Dr. Who`."""
        at = bisect_left(self.begins, stop.start()) - 1
        return at >= 0 and stop.end() < self.mentions[at].end

    def _is_initial(self, stop: re.Match[str]) -> bool:
        """Whether a full stop ends no sentence, as in `A. Smith`, `ca. 3` and `No. of pages`."""
        if words.LEADING.search(self.low, max(0, stop.start() - 8), stop.start()):
            return True
        if words.NUMBER_OF.match(self.text, max(0, stop.start() - 2)):
            return True
        trailing = words.TRAILING.search(self.low, max(0, stop.start() - 8), stop.start())
        if not trailing and not _LONE_MARK.search(
            self.text, max(0, stop.start() - 6), stop.start()
        ):
            return False
        rest = self.low[stop.end() : stop.end() + 60]
        following = rest.lstrip()
        if not following or "\n" in rest[: len(rest) - len(following)]:
            return False
        if trailing and not self.text[stop.end() :].lstrip()[:1].isupper():
            return True
        token = _TOKEN.match(following)
        begins = (words.CONCLUDED, words.EXPLANATION, words.COURTESY)
        starts_sentence = any(one.match(following) for one in begins)
        carries = token and is_carrier(token.group()) and len(following.strip(AFTER)) > 1
        return not (starts_sentence or carries)

    @cached_property
    def _bare(self) -> str:
        """The text in lower case without its labels and without offers of further help."""
        pieces, at = [], 0
        for one in self.counted:
            if one.start >= at:
                pieces += [self.low[at : one.start], "\ufffc" * (one.end - one.start)]
                at = one.end
        bare = "".join([*pieces, self.low[at:]])
        for one_sentence in self.sentences:
            low, high = one_sentence.start, one_sentence.end
            if words.COURTESY.match(bare, low, high):
                bare = bare[:low] + " " * (high - low) + bare[high:]
        return bare

    @cached_property
    def _spots(self) -> dict[str, _Spots]:
        """Places of denials, corrections, doubts and questions, by the reason that they give."""
        asking = [
            one for one in self.sentences if one.asks and self._bare[one.start : one.end].strip()
        ]
        return {
            NEGATED: _Spots.of(words.NEGATION, self._bare),
            CORRECTED: _Spots.of(words.CORRECTION, self._bare),
            DOUBTED: _Spots.of(words.DOUBT, self._bare),
            ASKED: _Spots([one.end for one in asking]),
        }

    @cached_property
    def _explained(self) -> _Spots:
        """Places where reasons for the answer begin."""
        return _Spots.of(words.EXPLANATION, self.low)

    @cached_property
    def _truths(self) -> _Spots:
        """Places of words about the answer itself: `right`, `sure`."""
        return _Spots.of(words.TRUTH, self._bare)

    def _counted_in(self, low: int, high: int) -> Iterator[Mention]:
        for at in range(bisect_left(self.starts, low), len(self.starts)):
            if self.starts[at] >= high:
                return
            yield self.counted[at]

    # --- reasons against a claim ----------------------------------------------------------------------

    def _rivals(self, last: _Claim, settled: Sequence[_Claim]) -> bool:
        """Whether other claims name another label; a final answer (`final answer` or `so`) has no rivals."""
        return any(
            one.mention.place != last.mention.place
            and not (last.announced and last.final and not (one.announced and one.final))
            for one in settled
        )

    def _spoilt(self, claim: _Claim) -> str:
        """Why a claim's label is not the answer; empty: it is."""
        mention, sentence = claim.mention, self.sentences[claim.sentence]
        if mention.place == NO_ONE:
            return SEVERAL
        start = sentence.start if claim.settles else 0
        reasons, rest = self._reasons(claim)
        parts = [(start, claim.clause), (claim.end, reasons), (rest, self.size)]
        for low, high in ((start, mention.start), *parts[1:]):
            if any(one.place != mention.place for one in self._counted_in(low, high)):
                return SEVERAL
        denial = self.low[mention.start : mention.end] in words.NOES
        if denial and words.REFUSED.match(self.low, mention.end):
            return NEGATED
        for low, high in parts:
            for reason in (NEGATED, CORRECTED, DOUBTED):
                if self._spots[reason].within(low, high) and not (
                    reason == NEGATED and denial and not self._truths.within(claim.end, self.size)
                ):
                    return reason
        if sentence.asks or self._spots[ASKED].within(claim.end, self.size):
            return ASKED
        before = self.sentences[claim.sentence - 1] if claim.sentence else None
        if before is not None and words.SUPPOSITION.match(self.low, before.start, before.end):
            return DOUBTED
        if self._spots[CORRECTED].within(reasons, sentence.end):
            return CORRECTED
        return self._taken_back(mention.place, reasons, rest)

    def _reasons(self, claim: _Claim) -> tuple[int, int]:
        """Start and end of an answer's reasons, in which other labels and negations may occur."""
        marked = self._explained.first(claim.end, self.size)
        because = words.BECAUSE.match(self.low, claim.end)
        if because is None:
            return (self.size, self.size) if marked is None else (marked, self.size)
        end = self.sentences[claim.sentence].end
        return because.start(), self.size if marked is not None and marked <= end + 3 else end

    def _taken_back(self, place: int, low: int, high: int) -> str:
        """Why reasons take back or deny the answer that they support; empty: they do not."""
        if words.TAKEN_BACK.search(self._bare, low, high):
            return CORRECTED
        for one in self.sentences:
            start, end = max(one.start, low), min(one.end, high)
            if self._spots[NEGATED].within(start, end) and any(
                one.place == place for one in self._counted_in(start, end)
            ):
                return NEGATED
        return ""

    # --- claims ---------------------------------------------------------------------------------------

    def _claims(self) -> Iterator[_Claim]:
        at = 0
        for mention in self.mentions:
            while at < len(self.sentences) and self.sentences[at].end <= mention.start:
                at += 1
            if at == len(self.sentences):
                return
            claim = self._claim(mention, at)
            if claim is not None:
                yield claim

    def _claim(self, mention: Mention, at: int) -> _Claim | None:
        """The claim of a sentence about a mention, if its form says that this is the answer."""
        sentence = self.sentences[at]
        introduction = self._introduction(mention, sentence)
        if introduction is None:
            return None
        clause, tokens, verb = introduction
        lead = (
            self.low[sentence.start : min(clause, sentence.start + _FAR)]
            .rstrip(" ,")
            .lstrip(" \n#>")
        )
        announced = any(is_noun(one) or one in words.LETTERS for one in tokens)
        bare = not lead or words.CONCLUDED.fullmatch(lead) or _is_evidence(lead)
        brief = bare and all(
            one in words.ADVERBS or words.CONCLUDED.fullmatch(one) for one in tokens
        )
        if not (announced or verb or brief) or lead and not words.LEAD_IN.match(lead):
            return None
        if mention.mark and not verb and tokens and tokens[-1] in words.SORTS:
            return None
        if not self._is_whole_number(mention, announced) or not self._is_letter(mention, announced):
            return None
        end = self._end(mention, sentence, announced or verb)
        if end is None or not (announced or verb or self._stops(mention, tokens)):
            return None
        if tokens and tokens[-1] in words.HEADINGS and not self._is_all(clause, end):
            return None
        alone = not lead and not tokens and not self.text[mention.end : sentence.end].strip(AFTER)
        last = alone and at == len(self.sentences) - 1 and self._begins_line(mention.start)
        final = sentence.concludes or any(one in words.FINAL for one in tokens)
        settles = announced or sentence.concludes or last
        return _Claim(mention, at, clause, announced, final, settles, end)

    def _introduction(
        self, mention: Mention, sentence: _Sentence
    ) -> tuple[int, list[str], bool] | None:
        """Start of a mention's clause, the words before the mention, and whether one is a verb.

        None: some of the words may change the meaning.
        """
        floor = max(sentence.start, mention.start - _FAR)
        left = words.ASIDE.sub(_blank, self.low[floor : mention.start]).rstrip('"([{<')
        if left.endswith("'") and left[-2:-1] in ("", " ", "\n", ":"):
            left = left[:-1]
        if left and not re.search(rf"[\s:='{OPEN}]\Z", left[-1]):
            return None
        cut = 1 + max(map(left.rfind, ",;("))
        if floor > sentence.start and not cut:
            return None
        clause, wording = floor + cut, words.SAME.sub(_simpler, left[cut:])
        tokens = [one for one in _TOKEN.findall(wording) if one not in ":=-–—#|*"]
        asks = words.INVERTED.match(left[cut:].lstrip(" -–—#*\n"))
        hangs = clause == sentence.start and words.HANGING.match(wording)
        lettered = words.LETTERS if _LETTER.fullmatch(self.low, mention.start, mention.end) else ()
        known = all(one in lettered or is_carrier(one) for one in tokens)
        if asks or hangs or not known or words.DOUBT.search(wording):
            return None
        if left.rstrip().endswith("=") and (not tokens or tokens[-1] in words.ADVERBS):
            return None
        verb = any(one in words.VERBS or re.search(words.CJK_VERBS, one) for one in tokens)
        return (
            clause,
            tokens,
            verb or bool(tokens) and wording.rstrip().endswith((":", "=", " -", " –", " —")),
        )

    def _is_whole_number(self, mention: Mention, announced: bool) -> bool:
        """Whether digits are a separate number, and an option's number is announced."""
        if not self.text[mention.start].isdigit():
            return True
        before, after = self._just_before(mention), self.text[mention.end : mention.end + 2]
        signed = before in ("-", "–", "−", "+") or before == "<" and after[:1] != ">"
        unit = after[:1] in ("'", '"') and after[0] not in self._line_before(mention)
        if signed or unit or not mention.mark:
            return not (signed or unit)
        quote = self.text[mention.start - 1 : mention.start]
        end = mention.end + (quote in ("'", '"') and self.text.startswith(quote, mention.end))
        return announced and _NUMBER_ENDS.match(self.text[end : end + 9]) is not None

    def _is_letter(self, mention: Mention, announced: bool) -> bool:
        """Whether a letter means an option or a label, and is no article or other word of one letter."""
        letters = self.low[mention.start : mention.end].strip("()[]")
        if letters not in ONE_LETTER_WORDS:
            return mention.mark.isupper() or not mention.mark.islower() or announced
        after = self.text[mention.end : mention.end + 1]
        if after == "," and not words.BECAUSE.match(self.low, mention.end) and not announced:
            return False
        if not mention.mark or mention.mark.isupper() or not self.text[mention.end - 1].isalpha():
            return True
        return announced and (self._just_before(mention) == ":" or after == ".")

    def _line_before(self, mention: Mention) -> str:
        low = max(0, mention.start - _FAR)
        return self.text[max(low, self.text.rfind("\n", low, mention.start)) : mention.start]

    def _just_before(self, mention: Mention) -> str:
        """The character before a mention, ignoring white space, quotes and brackets."""
        return self.low[max(0, mention.start - 9) : mention.start].rstrip(" \"'([\n")[-1:]

    def _end(self, mention: Mention, sentence: _Sentence, verb: bool) -> int | None:
        """The end of a name, if the next words let it be the whole name; None: they do not."""
        if _TRAILS_OFF.match(self.text, mention.end):
            return None
        contrast = words.CONTRAST.match(self.low, mention.end)
        if contrast is not None:
            for other in self._counted_in(contrast.end() - 1, contrast.end() + 1):
                if other.place != mention.place and _ENDS.match(self.low, other.end):
                    return other.end
        rest = self.low[mention.end : min(sentence.end, mention.end + _FAR)]
        if re.match(r"\s{0,2}[.:]\s*\d", self.low[mention.end : mention.end + 9]):
            return None
        if mention.mark and _DASHED.match(rest):
            return None
        whole = _WHOLE_NAME.match(rest)
        if whole is not None and not (
            whole.group().endswith("\n")
            and self.text[mention.end + whole.end() :].lstrip()[:1].islower()
        ):
            return mention.end
        if rest[:1] == ":" and not rest[1:].strip() or words.BECAUSE.match(rest):
            return mention.end
        closed = rest.lstrip("\"')]}>")
        verdict = words.VERDICT.match(closed)
        if verdict is not None and _ENDS.match(closed, verdict.end()):
            return mention.end + len(rest) - len(closed) + verdict.end()
        if self.low[mention.start : mention.end] in ("yes", "no") and _IT_IS.match(rest):
            return None if verb or mention.start - sentence.start > 3 else mention.end
        if verb and not mention.mark and words.CONNECTOR.match(closed.replace("\n", " ")):
            return mention.end
        return None

    def _stops(self, mention: Mention, tokens: list[str]) -> bool:
        """Whether a name without a verb is the whole statement, and not the beginning of a sentence.

        `An invoice, as we know, lists items` is not about the document.
        """
        rest = self.low[mention.end : mention.end + _FAR].lstrip("\"')]}>")
        if words.BECAUSE.match(rest) or words.CONTRAST.match(rest):
            return True
        if rest.startswith(","):
            following = _TOKEN.findall(rest[1:].split(".")[0])
            reply = self.low[mention.start : mention.end] in words.REPLIES
            return reply or all(one in words.ADVERBS for one in following)
        if rest.startswith(" ("):
            return _IN_BRACKETS.match(rest) is not None
        return not tokens or not _DASHED.match(rest)

    def _is_all(self, start: int, end: int) -> bool:
        """Whether a part of the text has nothing but reasons outside it."""
        rest = self.low[end:].strip(AFTER)
        return not self.text[:start].strip() and (not rest or bool(words.EXPLANATION.match(rest)))

    def _begins_line(self, at: int) -> bool:
        before = self.text[:at].rstrip(" \"'([")
        return not before or before.endswith("\n")


def is_carrier(word: str) -> bool:
    """Whether a word before a label changes nothing."""
    return word in words.CARRIERS or words.CJK_CARRIERS.fullmatch(word) is not None


def is_noun(word: str) -> bool:
    """Whether a word announces a label."""
    return word in words.NOUNS or re.search(words.CJK_NOUNS, word) is not None


def _is_evidence(lead: str) -> bool:
    """Whether a clause names the evidence: `Based on the image`."""
    return "," not in lead and words.EVIDENCE.match(lead) is not None


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


def _simpler(match: re.Match[str]) -> str:
    """The simpler word for a phrase of `words.SAME`."""
    return {"verb": " shows ", "noun": " answer "}.get(match.lastgroup or "", " ")
