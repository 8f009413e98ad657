"""Whether 5 % is 5 %: false alarms of comparisons and coverage of intervals on simulated documents.

1,000 pairs of runs without a true difference: documents with several questions whose answers go together
within a document. Printed: how often hpcbench's comparison sees a difference, beside a paired t-test over
samples, which takes questions for independent. Then how often intervals hold the truth, which the simulation
knows. Fails where a share of false alarms exceeds 5 % by more than chance explains.

    python benchmarks/calibration.py [--rounds 1000]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from scipy import special, stats

from hpcbench import statistics
from hpcbench.statistics import Interval

QUESTIONS = 5
"""A document, on average: between 2 and 8."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1000)
    rounds = parser.parse_args().rounds
    begun = time.process_time()
    noise = 2.58 * math.sqrt(0.05 * 0.95 / rounds)
    one, other, _ = scores(np.random.default_rng(0), 60)
    assert math.isclose(plain_test(one, other), stats.ttest_rel(one, other).pvalue)
    print(f"{rounds} pairs of runs without a true difference; 5 % of false alarms ± {noise:.1%}\n")
    print(f"{'':<44}{'hpcbench':>10}{'verdicts':>10}{'paired t':>10}")
    fine = True
    for name, pairs in (
        ("right or wrong, 60 documents", lambda chance: shares(chance, 60)),
        ("right or wrong, 15 documents", lambda chance: shares(chance, 15)),
        ("scores in [0, 1], 60 documents", lambda chance: scores(chance, 60)),
        ("CER (ratio of sums), 60 documents", lambda chance: errors(chance, 60)),
    ):
        ours, verdicts, plain = false_alarms(pairs, rounds)
        print(f"{name:<44}{ours:>10.1%}{verdicts:>10.1%}{plain:>10.1%}")
        fine &= max(ours, verdicts) <= 0.05 + noise
        assert plain > 0.05 + noise, "the peer's test is the one that takes clusters for samples"
    print(f"\n{'intervals of 95 % that hold the truth':<44}{'hpcbench':>10}{'peer':>10}")
    for name, peer, cases in (
        ("mean, CR1, 60 documents", "t of samples", means(60)),
        ("mean, CR1, 15 documents", "t of samples", means(15)),
        ("share 0.97, 100 documents, Wilson", "CR1", rare(100)),
        ("share 0.97, 30 documents, Wilson", "CR1", rare(30)),
        ("CER, BCa, 60 documents", "percentile", ratios(60)),
        ("CER, BCa, 15 documents", "percentile", ratios(15)),
    ):
        ours, other = coverage(cases, rounds)
        print(f"{name:<44}{ours:>10.1%}{other:>10.1%}  ({peer})")
    print(f"\n{time.process_time() - begun:.0f} s of one core")
    assert fine, "more false alarms than 5 % and chance explain"


# --- comparisons --------------------------------------------------------------------------------------


def false_alarms(
    pairs: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]], rounds: int
) -> tuple[float, float, float]:
    """Shares of p <= 0.05, of verdicts `better` and `worse`, and of p <= 0.05 of a t-test over samples."""
    chance = np.random.default_rng(20261122)
    found = np.zeros(3)
    for _ in range(rounds):
        one, other, documents = pairs(chance)
        compared = statistics.compare(one, other, documents, resamples=500)
        own = [run if run.ndim == 1 else run[:, 0] / run[:, 1] for run in (one, other)]
        found += (
            compared.p_value <= 0.05,
            compared.verdict in ("better", "worse"),
            plain_test(*own) <= 0.05,
        )
    return tuple(float(share) for share in found / rounds)


def plain_test(one: np.ndarray, other: np.ndarray) -> float:
    """P-value of the paired t-test over samples: scipy's, without its 5 ms of looking at arguments."""
    differences = other - one
    error = differences.std(ddof=1) / math.sqrt(len(differences))
    return float(2 * special.stdtr(len(differences) - 1, -abs(differences.mean() / error)))


def documents_of(chance: np.random.Generator, count: int) -> np.ndarray:
    """The document of each question, in order."""
    return np.repeat(np.arange(count), chance.integers(2, 2 * QUESTIONS - 1, count))


def shares(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Questions have their difficulty; each run reads a document well or badly as a whole."""
    documents = documents_of(chance, count)
    difficulty = chance.normal(0.8, 1.0, len(documents))
    runs = (
        (
            difficulty + chance.normal(0, 1.5, count)[documents]
            > chance.logistic(size=len(documents))
        )
        for _ in range(2)
    )
    one, other = (run.astype(float) for run in runs)
    return one, other, documents


def scores(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same with partial scores."""
    documents = documents_of(chance, count)
    difficulty = chance.normal(0.5, 0.2, len(documents))
    one, other = (
        np.clip(
            difficulty
            + chance.normal(0, 0.2, count)[documents]
            + chance.normal(0, 0.2, len(documents)),
            0,
            1,
        )
        for _ in range(2)
    )
    return one, other, documents


def errors(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Wrong characters and lengths of pages; a run reads a document well or badly as a whole."""
    documents = documents_of(chance, count)
    lengths = np.ceil(chance.lognormal(5, 0.8, len(documents)))
    one, other = (np.stack([wrong(chance, documents, lengths), lengths], axis=1) for _ in range(2))
    return one, other, documents


def wrong(chance: np.random.Generator, documents: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Wrong characters of each page: a rate of 5 % on average."""
    rates = chance.gamma(0.7, 0.05 / 0.7, documents[-1] + 1)[documents]
    return chance.poisson(rates * lengths).astype(float)


# --- intervals ----------------------------------------------------------------------------------------

Case = tuple[float, Interval, Interval]
"""The truth, hpcbench's interval and a peer's."""


def coverage(cases: Callable[[np.random.Generator], Case], rounds: int) -> tuple[float, float]:
    """Shares of intervals that hold the truth."""
    chance = np.random.default_rng(7)
    found = np.zeros(2)
    for _ in range(rounds):
        truth, *intervals = cases(chance)
        found += [one.low is not None and one.low <= truth <= one.high for one in intervals]
    return tuple(float(share) for share in found / rounds)


def means(count: int) -> Callable[[np.random.Generator], Case]:
    """Normal values, two thirds of whose variance lies between documents."""

    def case(chance: np.random.Generator) -> Case:
        documents = documents_of(chance, count)
        values = chance.normal(0, 1, count)[documents] + chance.normal(0, 0.7, len(documents))
        return 0.0, statistics.mean_interval(values, documents), statistics.mean_interval(values)

    return case


def rare(count: int) -> Callable[[np.random.Generator], Case]:
    """Answers of which 97 % are right; of a document's wrong ones many come together."""

    def case(chance: np.random.Generator) -> Case:
        documents = documents_of(chance, count)
        right = chance.beta(0.97 * 2.3, 0.03 * 2.3, count)[documents]  # correlation 0.3
        values = (chance.random(len(documents)) < right).astype(float)
        ours = statistics.mean_interval(values, documents, bounds=(0, 1))
        return 0.97, ours, statistics.mean_interval(values, documents)

    return case


def ratios(count: int) -> Callable[[np.random.Generator], Case]:
    """Character error rates."""

    def case(chance: np.random.Generator) -> Case:
        documents = documents_of(chance, count)
        lengths = np.ceil(chance.lognormal(5, 0.8, len(documents)))
        over = wrong(chance, documents, lengths)
        ours = statistics.ratio_interval(over, lengths, documents, resamples=1000)
        return 0.05, ours, percentile(over, lengths, documents)

    return case


def percentile(over: np.ndarray, under: np.ndarray, documents: np.ndarray) -> Interval:
    """The plain percentile bootstrap of documents."""
    sums = statistics.cluster_sums(np.stack([over, under], axis=1), documents)
    drawn = np.random.default_rng(0).integers(len(sums), size=(1000, len(sums)))
    found = sums[drawn].sum(axis=1)
    low, high = np.quantile(found[:, 0] / found[:, 1], [0.025, 0.975])
    return Interval(over.sum() / under.sum(), low, high, len(over), len(sums), "percentile")


if __name__ == "__main__":
    main()
