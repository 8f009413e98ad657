"""Text metrics beside the packages they follow, on one core; equal values are asserted first.

Short answers for ANLS, ROUGE-L and edit distance, pages of 3 kB for CER and WER, sentences for BLEU and chrF.
Prints CPU seconds of both and the ratio; goals: ANLS 10 or more times as fast as the package `anls`, CER no
slower than jiwer. Then what one short answer costs, scored and valued: an evaluation of a million answers
pays that a million times.

    python benchmarks/metrics_text.py [--pairs 100000] [--pages 100]
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from hpcbench.metrics import metric
from hpcbench.metrics.base import value_of

WORDS = [
    "invoice", "total", "amount", "due", "date", "12,500.00", "No.", "2024-11-30", "Acme", "Ltd", "the", "of",
    "and", "net", "gross", "tax", "итого", "к", "оплате", "счёт", "№", "от", "ООО", "Ромашка", "Москва",
    "дом", "НДС", "20%", "руб.", "сумма", "1", "234,56",
]  # fmt: skip

Pair = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--pages", type=int, default=100)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    chance = random.Random(1)
    answers = [pair(chance, chance.randint(1, 5)) for _ in range(arguments.pairs)]
    pages = [pair(chance, 430) for _ in range(arguments.pages)]
    sentences = [pair(chance, 25) for _ in range(max(arguments.pairs // 100, 1))]
    size = sum(len(reference.encode()) for _, reference in pages) // len(pages)
    print(f"{len(answers)} answers, {len(pages)} pages of {size} bytes, {len(sentences)} sentences")
    print(f"{'metric':<10} {'beside':<12} {'ours':>9} {'theirs':>9}   times as fast")
    few = answers[: max(len(answers) // 20, 1)]
    compare("anls", "anls-0.0.2", answers, their_anls())
    compare("cer", "jiwer", pages, their_error_rate("cer"))
    compare("wer", "jiwer", pages, their_error_rate("wer"))
    compare("ned", "nltk", few, their_ned(), unicode="none", whitespace="keep")
    compare("rouge_l", "rouge-score", few, their_rouge_l())
    compare_set("bleu", sentences)
    compare_set("chrf", sentences)
    cost_of_one(answers)


def pair(chance: random.Random, words: int) -> Pair:
    """(prediction, reference): every second is right, the others are damaged or something else."""
    reference = " ".join(chance.choices(WORDS, k=words))
    kind = chance.random()
    if kind < 0.5:
        return reference, reference
    if kind < 0.8:
        return "".join(one if chance.random() > 0.1 else "x" for one in reference), reference
    return " ".join(chance.choices(WORDS, k=words)), reference


def compare(
    name: str, peer: str, pairs: Sequence[Pair], theirs: Callable[[str, str], float], **options: Any
) -> None:
    """Each pair by itself."""
    made = metric(name, **(options or {"compat": peer}))

    def ours(prediction: str, reference: str) -> float:
        return value_of(made, made.score(prediction, [reference]))

    began = time.process_time()
    expected = [theirs(*one) for one in pairs]
    spent = time.process_time() - began
    for one, value in zip(pairs, expected, strict=True):
        assert abs(ours(*one) - value) < 1e-9, one
    tell(name, peer, seconds(lambda: [ours(*one) for one in pairs]), spent)


def compare_set(name: str, pairs: Sequence[Pair]) -> None:
    """A set as a whole, by objects that have seen none of the texts."""
    import sacrebleu

    predictions = [prediction for prediction, _ in pairs]
    references = [[reference for _, reference in pairs]]
    made = metric(name, compat="sacrebleu")

    def ours() -> float:
        return made.aggregate([made.score(prediction, [one]) for prediction, one in pairs])

    def theirs() -> float:
        kinds = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF}
        return float(kinds[name]().corpus_score(predictions, references).score)

    began = time.process_time()
    value = ours()
    spent = time.process_time() - began
    began = time.process_time()
    assert abs(value - theirs()) < 1e-9
    tell(name, "sacrebleu", spent, time.process_time() - began)


def cost_of_one(pairs: Sequence[Pair]) -> None:
    """Microseconds for a short ASCII answer."""
    plain = [(said, [right]) for said, right in pairs if said.isascii() and right.isascii()]
    plain = plain or [("12.50", ["12.50"])]
    for name in ("exact_match", "anls", "contains", "cer", "ned"):
        made: Any = metric(name)

        def run(made: Any = made) -> None:
            for prediction, references in plain:
                value_of(made, made.score(prediction, references))

        print(f"{name}: {seconds(run) / len(plain) * 1e6:.2f} µs a short answer")


def their_anls() -> Callable[[str, str], float]:
    import anls

    return lambda prediction, reference: float(anls.anls_score(prediction, [reference], 0.5))


def their_error_rate(name: str) -> Callable[[str, str], float]:
    import jiwer

    rate: Any = getattr(jiwer, name)
    return lambda prediction, reference: float(rate(reference, prediction))


def their_ned() -> Callable[[str, str], float]:
    from nltk.metrics.distance import edit_distance

    return lambda one, other: edit_distance(one, other) / max(len(one), len(other))


def their_rouge_l() -> Callable[[str, str], float]:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    return lambda prediction, reference: float(
        scorer.score(reference, prediction)["rougeL"].fmeasure
    )


def seconds(run: Callable[[], object]) -> float:
    """Fewest CPU seconds of three runs."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        run()
        spent.append(time.process_time() - began)
    return min(spent)


def tell(name: str, peer: str, ours: float, theirs: float) -> None:
    print(f"{name:<10} {peer:<12} {ours:>7.3f} s {theirs:>7.3f} s {theirs / ours:>10.1f}")


if __name__ == "__main__":
    main()
