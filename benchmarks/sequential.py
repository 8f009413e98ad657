"""Looks at two arms while they run: are false alarms still 5 %, and what does stopping early save?

Simulated runs of 400 samples in documents of 2 to 8 questions whose answers go together, two arms, looks at
eighths from a quarter on, each exactly hpcbench's: `statistics.compare` at the level that
`statistics.nominal_levels` leaves it. Printed, of many runs: how often a difference is seen where there is
none, beside a look at 5 % every time, which is what people do who watch a table; then, with a difference,
how often it is found and how many of the samples that took, beside the fixed test at the end of the same
runs. Fails where false alarms exceed 5 % by more than chance explains, or where little power is left.

    python benchmarks/sequential.py [--rounds 300]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np

from hpcbench import statistics

DOCUMENTS = 80
"""Documents of 2 to 8 questions each: about 400 samples."""

FRACTIONS = [number / 8 for number in range(2, 9)]

Runs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Scores of arm a and of arm b, and the document of each sample."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    started = time.process_time()
    levels = statistics.nominal_levels(FRACTIONS)
    noise = 2.58 * math.sqrt(0.05 * 0.95 / rounds)
    print(f"{rounds} runs each, {len(FRACTIONS)} looks; a look decides at p of")
    print("  " + ", ".join(f"{level:.2g}" for level in levels) + "\n")
    fine = True
    print(f"{'false alarms, no difference':<42}{'hpcbench':>10}{'5 % a look':>12}")
    for name, draw in (
        ("right or wrong", binary),
        ("scores in [0, 1]", scores),
        ("rarely differ", rare),
    ):
        ours, naive = np.mean(
            [
                (stopped(runs, levels)[0], stopped(runs, [0.05] * len(levels))[0])
                for runs in drawn(draw, 0.0, rounds)
            ],
            axis=0,
        )
        print(f"{name:<42}{ours:>10.1%}{naive:>12.1%}")
        fine &= ours <= 0.05 + noise
    print(f"\n{'a true difference':<42}{'found':>10}{'fixed test':>12}{'samples':>10}")
    for name, draw, effect in (
        ("right or wrong, small", binary, 0.4),
        ("right or wrong, large", binary, 0.9),
        ("scores in [0, 1], small", scores, 0.04),
        ("scores in [0, 1], large", scores, 0.1),
    ):
        found = [
            (*stopped(runs, levels), verdict(runs, 1.0, 0.05) == "better")
            for runs in drawn(draw, effect, rounds // 2)
        ]
        ours, seen, fixed = np.mean(found, axis=0)
        print(f"{name:<42}{ours:>10.1%}{fixed:>12.1%}{seen:>10.0%}")
        fine &= ours >= fixed - 0.05
    margins = [
        stopped(runs, levels, margin=0.12, wanted=("equivalent",))
        for runs in drawn(scores, 0.0, rounds // 2)
    ]
    share, seen = np.mean(margins, axis=0)
    print(f"{'no difference, margin 0.12: equivalent':<42}{share:>10.1%}{'':>12}{seen:>10.0%}")
    print(f"\nratio: {1 / seen:.2f} times fewer samples than the fixed test where nothing differs")
    print(f"{time.process_time() - started:.0f} s of one core")
    assert fine, "more false alarms than 5 % and chance explain, or power lost"


def drawn(
    draw: Callable[[np.random.Generator, np.ndarray, float], tuple[np.ndarray, np.ndarray]],
    effect: float,
    rounds: int,
) -> list[Runs]:
    """Runs of one kind, the same for every look."""
    chance = np.random.default_rng(20261122)
    found = []
    for _ in range(rounds):
        documents = np.repeat(np.arange(DOCUMENTS), chance.integers(2, 9, DOCUMENTS))
        one, other = draw(chance, documents, effect)
        found.append((one, other, documents))
    return found


def stopped(
    runs: Runs,
    levels: list[float],
    margin: float | None = None,
    wanted: tuple[str, ...] = ("better", "worse"),
) -> tuple[bool, float]:
    """Whether any look decides, and the share of the samples that was seen by then."""
    for fraction, level in zip(FRACTIONS, levels, strict=True):
        if verdict(runs, fraction, level, margin) in wanted:
            return True, fraction
    return False, 1.0


def verdict(runs: Runs, fraction: float, level: float, margin: float | None = None) -> str:
    """Verdict of a look at so many samples."""
    one, other, documents = runs
    seen = int(len(documents) * fraction)
    return statistics.compare(
        one[:seen], other[:seen], documents[:seen], level=1 - level, margin=margin, bounds=(0, 1)
    ).verdict


def binary(
    chance: np.random.Generator, documents: np.ndarray, effect: float
) -> tuple[np.ndarray, np.ndarray]:
    """Questions have their difficulty; each arm reads a document well or badly as a whole."""
    difficulty = chance.normal(0.8, 1.0, len(documents))

    def right(gain: float) -> np.ndarray:
        skill = difficulty + chance.normal(0, 1.0, DOCUMENTS)[documents] + gain
        return (skill > chance.logistic(size=len(documents))).astype(float)

    return right(0.0), right(effect)


def scores(
    chance: np.random.Generator, documents: np.ndarray, effect: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same with partial scores."""
    difficulty = chance.normal(0.5, 0.2, len(documents))

    def read(gain: float) -> np.ndarray:
        own = chance.normal(0, 0.15, DOCUMENTS)[documents]
        return np.clip(difficulty + own + chance.normal(gain, 0.15, len(documents)), 0, 1)

    return read(0.0), read(effect)


def rare(
    chance: np.random.Generator, documents: np.ndarray, effect: float
) -> tuple[np.ndarray, np.ndarray]:
    """Arms that answer alike but in one of thirty samples: what a normal limit is worst at."""
    same = (chance.random(len(documents)) < 0.8).astype(float)
    flips = chance.random((2, len(documents))) < 1 / 60
    return np.abs(same - flips[0]), np.abs(same - flips[1])


if __name__ == "__main__":
    main()
