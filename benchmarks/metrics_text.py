"""Text metrics beside the packages they follow, on one core; equal values are asserted first.

Answers have 1 to 5 words, sentences 25, pages 430 (3 kB): English words, English and Russian ones (mixed), or
Chinese characters. In each round both sides get the same texts, which neither has seen before, so that no
cache helps; they take turns in going first. Packages are used as meant: one `sacrebleu.BLEU` and one
`RougeScorer` for all texts. Prints processor time per pair, and theirs over ours: the median of the rounds,
the least and the greatest. Ends with status 1 if a median is below 1. rouge-score finds no word in a text
without a to z and compares nothing; our default is not compared there.

Then what one short answer costs, scored and valued: an evaluation of a million answers pays that a million
times.

    python benchmarks/metrics_text.py [--rounds 7] [--answers 1000]

Trees and tables: metrics_anls_star.py, metrics_teds.py.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcbench.metrics import metric
from hpcbench.metrics.base import value_of

ENGLISH = [
    "invoice", "total", "amount", "due", "date", "12,500.00", "No.", "2024-11-30", "Acme", "Ltd", "the", "of",
    "and", "net", "gross", "tax", "20%", "1", "234,56", "(VAT)",
]  # fmt: skip
RUSSIAN = [
    "итого", "к", "оплате", "счёт", "№", "от", "ООО", "Ромашка", "Москва", "дом", "НДС", "руб.", "сумма",
]  # fmt: skip
WORDS = {
    "English": (ENGLISH, " "),
    "mixed": (ENGLISH + RUSSIAN, " "),
    "Chinese": ([*"今天气很好发票合计金额日期元月年，。、", "2024"], ""),
}
"""Words of a language, and what is between them."""

KINDS = {"answers": (1, 5), "sentences": (25, 25), "pages": (430, 430)}
"""Fewest and most words."""
FEWER = {"answers": 1, "sentences": 5, "pages": 100}
"""A round has so many times fewer of a kind than answers."""

Pair = tuple[str, str]
Side = Callable[[Sequence[Pair]], Sequence[float]]
"""Values of pairs (prediction, reference): of each, or one of them all."""


@dataclass(frozen=True)
class Row:
    """A metric beside a package, over texts of some kinds and languages."""

    name: str
    peer: str
    theirs: Side
    kinds: Sequence[str] = tuple(KINDS)
    languages: Sequence[str] = ("English", "mixed")
    options: dict[str, str] = field(default_factory=dict)
    of_set: bool = False
    """The value of all pairs, not of each."""
    slow: int = 1
    """The package is so slow that it gets so many times fewer pairs."""
    equal: bool = True
    """Do both have the same values."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--answers", type=int, default=1000, help="in each round")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"{'metric':<18} {'beside':<12} {'texts':<18} {'ours':>10} {'theirs':>11}  times as fast")
    ratios = [
        compare(row, kind, language, arguments.rounds, arguments.answers)
        for row in rows()
        for kind in row.kinds
        for language in row.languages
    ]
    cost_of_one()
    print(f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} are slower than the package")
    return int(min(ratios) < 1)


def rows() -> Iterator[Row]:
    """All comparisons; the dialects first, then our defaults."""
    import anls
    import jiwer
    from nltk.metrics.distance import edit_distance
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu import BLEU, CHRF

    scorer = RougeScorer(["rougeL"])

    def package(made: Any) -> Side:
        return each(lambda said, right: float(made.sentence_score(said, [right]).score))

    def corpus(made: Any) -> Side:
        def value(pairs: Sequence[Pair]) -> Sequence[float]:
            said, right = zip(*pairs, strict=True)
            return [float(made.corpus_score(said, [right]).score)]

        return value

    rate = each(lambda said, right: float(anls.anls_score(said, [right], 0.5)))
    rouge = each(lambda said, right: float(scorer.score(right, said)["rougeL"].fmeasure))
    cer = each(lambda said, right: float(jiwer.cer(right, said)))
    wer = each(lambda said, right: float(jiwer.wer(right, said)))
    ned = each(lambda said, right: edit_distance(said, right) / max(len(said), len(right)))
    english = ("English",)

    yield Row("anls", "anls-0.0.2", rate, ("answers",), slow=4)
    yield Row("cer", "jiwer", cer)
    yield Row("wer", "jiwer", wer)
    plain = {"unicode": "none", "whitespace": "keep"}
    yield Row("ned", "nltk", ned, ("answers",), options=plain, slow=10)
    yield Row("bleu", "sacrebleu", package(BLEU(effective_order=True)))
    yield Row("bleu", "sacrebleu", corpus(BLEU()), of_set=True)
    yield Row("chrf", "sacrebleu", package(CHRF()), slow=2)
    yield Row("chrf", "sacrebleu", corpus(CHRF()), slow=2, of_set=True)
    yield Row("rouge_l", "rouge-score", rouge, ("answers", "sentences"), slow=2)
    yield Row("rouge_l", "rouge-score", rouge, ("pages",), slow=5)
    made = BLEU(effective_order=True)
    yield Row("bleu", "sacrebleu", package(made), options={"tokenize": "script"})
    made = BLEU(effective_order=True, tokenize="zh")
    in_chinese = {"tokenize": "script"}
    yield Row("bleu", "sacrebleu", package(made), languages=("Chinese",), options=in_chinese)
    made = {"words": "script"}
    yield Row("rouge_l", "rouge-score", rouge, ("answers", "sentences"), english, made, slow=2)
    yield Row("rouge_l", "rouge-score", rouge, ("pages",), english, made, slow=5)
    # Their words are those of a to z alone.
    yield Row("rouge_l", "rouge-score", rouge, ("answers",), ("mixed",), made, equal=False)


def each(value: Callable[[str, str], float]) -> Side:
    return lambda pairs: [value(*pair) for pair in pairs]


def ours(row: Row) -> Side:
    made: Any = metric(row.name, **(row.options or {"compat": row.peer}))
    if row.of_set:
        return lambda pairs: [made.aggregate([made.score(one, [other]) for one, other in pairs])]
    return each(lambda said, right: value_of(made, made.score(said, [right])))


def compare(row: Row, kind: str, language: str, rounds: int, answers: int) -> float:
    """Print a line, with the options if it is no dialect; gives the median ratio."""
    mine = ours(row)
    chance = random.Random(f"{row.name} {row.options} {row.of_set} {kind} {language}")
    count = max(answers // FEWER[kind] // row.slow, 2)
    first = some_pairs(chance, kind, language, max(count // 4, 2))
    for pair, value, expected in zip(first, mine(first), row.theirs(first), strict=False):
        assert not row.equal or abs(value - expected) < 1e-9, (pair, value, expected)
    spent: list[tuple[float, float]] = []
    for turn in range(rounds):
        pairs = some_pairs(chance, kind, language, count)
        sides = (mine, row.theirs)
        times = [seconds(side, pairs) / count for side in sides[:: 1 if turn % 2 else -1]]
        spent.append((times[0], times[1]) if turn % 2 else (times[1], times[0]))
    ratios = sorted(theirs / mine for mine, theirs in spent)
    own, other = (statistics.median(times) * 1e6 for times in zip(*spent, strict=True))
    name = f"{row.name}{' of a set' if row.of_set else ''} {' '.join(row.options.values())}"
    print(
        f"{name:<18} {row.peer:<12} {f'{kind}, {language}':<18} {own:>7.1f} µs {other:>8.1f} µs"
        f"  {statistics.median(ratios):>6.1f} [{ratios[0]:.1f}, {ratios[-1]:.1f}]"
    )
    return statistics.median(ratios)


def some_pairs(chance: random.Random, kind: str, language: str, count: int) -> list[Pair]:
    """(prediction, reference): every second is right, the others are damaged or something else."""
    words, between = WORDS[language]
    fewest, most = KINDS[kind]

    def text() -> str:
        return between.join(chance.choices(words, k=chance.randint(fewest, most)))

    def pair() -> Pair:
        reference, fate = text(), chance.random()
        if fate < 0.5:
            return reference, reference
        if fate < 0.8:
            return "".join(one if chance.random() > 0.1 else "x" for one in reference), reference
        return text(), reference

    return [pair() for _ in range(count)]


def seconds(side: Side, pairs: Sequence[Pair]) -> float:
    """Processor time of one run."""
    gc.collect()
    began = time.process_time()
    side(pairs)
    return time.process_time() - began


def cost_of_one() -> None:
    """Microseconds for a short answer in English."""
    pairs = some_pairs(random.Random(1), "answers", "English", 20_000)
    for name in ("exact_match", "anls", "contains", "cer", "ned", "rouge_l", "bleu", "chrf"):
        made: Any = metric(name)
        side = each(lambda said, right, made=made: value_of(made, made.score(said, [right])))
        spent = min(seconds(side, pairs) for _ in range(3))
        print(f"{name}: {spent / len(pairs) * 1e6:.2f} µs a short answer")


if __name__ == "__main__":
    raise SystemExit(main())
