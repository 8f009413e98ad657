"""Whether `history` and `power` keep what docs/gate.md and docs/measuring.md promise, by simulation.

History: flat series are read after every night, and at most 5 % may ever show a change; series with one step
have to show it as often as the docs say. Planning: experiments get as many documents as `samples_needed`
asks for, and 80 % of their comparisons have to say `better`, without more documents than 85 % takes.

A row a cell: what is promised, what was found with its Monte-Carlo error, and whether it holds. It ends red
where a cell lies more than three errors on the wrong side. Rows without a promise show where it ends.
Finished cells are kept in build/calibration/series.jsonl by the code they were found with, so that a run can
be broken off and taken up again.

    python benchmarks/calibration_series.py [--quick] [--only WORDS]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr

from hpcbench import statistics

HOME = Path(__file__).resolve().parent.parent
KEPT = HOME / "build" / "calibration" / "series.jsonl"
FULL, QUICK = 2_500, 250
"""Series or comparisons a cell."""

Chance = np.random.Generator


@dataclass(frozen=True)
class Cell:
    """One row."""

    name: str
    found: Callable[[Chance, int], float]
    """The share that so many rounds come to."""
    least: float = 0.0
    """Promised: at least."""
    most: float = 1.0
    """Promised: at most."""
    quick: bool = False
    """Whether `--quick` has it."""

    @property
    def promised(self) -> str:
        """In words."""
        if (self.least, self.most) == (0, 1):
            return "–"
        if self.most == 1:
            return f"≥ {self.least:.0%}"
        return f"≤ {self.most:.0%}" if self.least == 0 else f"{self.least:.0%} to {self.most:.0%}"

    def holds(self, share: float, rounds: int) -> bool:
        """Whether it lies within three errors of what is promised, the promise being true."""
        low, high = (math.sqrt(p * (1 - p) / rounds) for p in (self.least, self.most))
        return self.least - 3 * low <= share <= self.most + 3 * high


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="cells with these words in their names")
    arguments = parser.parse_args()
    rounds = QUICK if arguments.quick else FULL
    known, version = remembered(), code()
    fine = True
    print(f"{rounds} rounds a cell\n\n| cell | promised | found ± error | ok |\n|---|---|---|---|")
    for cell in (*history_cells(), *power_cells()):
        if (arguments.quick and not cell.quick) or arguments.only not in cell.name:
            continue
        key = f"{cell.name} {rounds} {version}"
        if key not in known:
            started = time.perf_counter()
            seed = int.from_bytes(hashlib.sha256(cell.name.encode()).digest()[:8], "big")
            known[key] = cell.found(np.random.default_rng(seed), rounds)
            remember(key, known[key], time.perf_counter() - started)
        share = known[key]
        holds = cell.holds(share, rounds)
        fine &= holds
        error = math.sqrt(max(share * (1 - share), 1 / rounds) / rounds)
        sign = "" if cell.promised == "–" else "yes" if holds else "NO"
        print(f"| {cell.name} | {cell.promised} | {share:.1%} ± {error:.1%} | {sign} |", flush=True)
    print(f"\n200 series of 365 nights: {speed():.1f} s")
    return 0 if fine else 1


def code() -> str:
    """Hash of the code that finds the cells: the statistics and this file."""
    files = [*sorted((HOME / "hpcbench" / "statistics").glob("*.py")), Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def remembered() -> dict[str, float]:
    """Finished cells; a line that was broken off is none."""
    found = {}
    for line in KEPT.read_text().splitlines() if KEPT.exists() else ():
        try:
            entry = json.loads(line)
            found[entry["key"]] = float(entry["found"])
        except (ValueError, KeyError):
            continue
    return found


def remember(key: str, found: float, seconds: float) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with KEPT.open("a") as out:
        out.write(json.dumps({"key": key, "found": found, "seconds": round(seconds, 1)}) + "\n")


def speed() -> float:
    """Seconds for the change points of 200 flat series of a year."""
    series = correlated(np.random.default_rng(0), 200, 365, 0.3)
    started = time.perf_counter()
    for one in series:
        statistics.changes(one.tolist())
    return time.perf_counter() - started


# --- history -------------------------------------------------------------------------------------------

Nights = Callable[[Chance, int, int], np.ndarray]
"""(rounds, nights) of flat series."""


def correlated(
    chance: Chance,
    rounds: int,
    nights: int,
    share: float,
    shocks: Callable[[Chance, tuple[int, int]], np.ndarray] = Chance.standard_normal,
) -> np.ndarray:
    """AR(1): each night is `share` of the one before and a shock; of deviation 1 with normal ones."""
    found = shocks(chance, (rounds, nights + 50))
    for night in range(1, nights + 50):
        found[:, night] = share * found[:, night - 1] + math.sqrt(1 - share**2) * found[:, night]
    flat: np.ndarray = found[:, 50:]
    return flat


def sticky(chance: Chance, rounds: int, nights: int, share: float, often: float) -> np.ndarray:
    """Right or wrong, with an autocorrelation of `share`: bad nights come in runs."""
    found = np.empty((rounds, nights))
    found[:, 0] = chance.random(rounds) < often
    for night in range(1, nights):
        chances = often + share * (found[:, night - 1] - often)
        found[:, night] = chance.random(rounds) < chances
    return found


def repeated(chance: Chance, rounds: int, nights: int, share: float) -> np.ndarray:
    """Each night repeats the one before to the bit with a chance of `share`."""
    found = chance.standard_normal((rounds, nights))
    for night in range(1, nights):
        same = chance.random(rounds) < share
        found[same, night] = found[same, night - 1]
    return found


def outliers(chance: Chance, rounds: int, nights: int) -> np.ndarray:
    """Two nights in a hundred are off by eight deviations, in either direction."""
    off = (chance.random((rounds, nights)) < 0.02) * chance.choice([-8.0, 8.0], (rounds, nights))
    found: np.ndarray = correlated(chance, rounds, nights, 0.3) + off
    return found


def of_normal(change: Callable[[np.ndarray], np.ndarray]) -> Nights:
    """Something made of normal nights with an autocorrelation of 0.3."""
    return lambda chance, rounds, nights: change(correlated(chance, rounds, nights, 0.3))


FLAT: dict[str, Nights] = {
    "normal": partial(correlated, share=0.3),
    "normal, autocorrelation 0": partial(correlated, share=0.0),
    "normal, autocorrelation 0.15": partial(correlated, share=0.15),
    "exponential shocks": partial(correlated, share=0.3, shocks=Chance.standard_exponential),
    "t shocks, 3 degrees": partial(
        correlated, share=0.3, shocks=lambda chance, size: chance.standard_t(3, size)
    ),
    "Cauchy shocks": partial(correlated, share=0.3, shocks=Chance.standard_cauchy),
    "lognormal, σ 1": of_normal(np.exp),
    "uniform": of_normal(ndtr),
    "near 1, cut at 1": of_normal(lambda nights: np.minimum(1, 0.99 + 0.01 * nights)),
    "mostly 1": of_normal(lambda nights: np.minimum(1, 1.01 + 0.01 * nights)),
    "shares of 50 samples": of_normal(lambda nights: np.round(50 * ndtr(2 + 0.3 * nights)) / 50),
    "three values": of_normal(lambda nights: np.clip(np.round(nights * 0.7), -1, 1)),
    "right or wrong, 10 %": of_normal(lambda nights: (nights > 1.28).astype(float)),
    "2 % outliers": outliers,
}
"""Cells that the promise is about; an autocorrelation of 0.3 unless they say otherwise."""

BEYOND: dict[str, Nights] = {
    "right or wrong, 5 %, in runs": partial(sticky, share=0.3, often=0.05),
    "normal, autocorrelation 0.4": partial(correlated, share=0.4),
    "normal, autocorrelation 0.5": partial(correlated, share=0.5),
    "3 nights of 10 repeat the last": partial(repeated, share=0.3),
}
"""Cells that it is not about."""

SHOWN = {
    (20, 1, 60): 0.15, (20, 2, 30): 0.80, (20, 3, 12): 0.85, (20, 5, 6): 0.90,
    (30, 1, 60): 0.25, (30, 2, 22): 0.80, (30, 3, 10): 0.85, (30, 5, 6): 0.90,
    (60, 1, 60): 0.50, (60, 2, 15): 0.80, (60, 3, 9): 0.85, (60, 5, 5): 0.90,
}  # fmt: skip
"""(flat nights, step in deviations, nights after it) → share of series that show it by then."""


def history_cells() -> Iterator[Cell]:
    for nights in (90, 180, 730):
        yield Cell(f"flat, normal, {nights} nights", _alarms(FLAT["normal"], nights), most=0.05)
    for name, draw in FLAT.items():
        yield Cell(
            f"flat, {name}, 365 nights", _alarms(draw, 365), most=0.05,
            quick=name in ("normal", "exponential shocks", "near 1, cut at 1"),
        )  # fmt: skip
    for name, draw in BEYOND.items():
        yield Cell(f"flat, {name}, 365 nights", _alarms(draw, 365))
    yield Cell("step of 3 after 60 nights, a second change in 180 more", _second, most=0.05)
    for (flat, step, within), least in SHOWN.items():
        name = f"step of {step} after {flat} nights, shown within {within}"
        yield Cell(name, _shown(flat, step, within, 0.0), least=least, quick=flat == 30)
    for flat, step, within in SHOWN:
        name = f"step of {step} after {flat} nights, shown within {within}, autocorrelation 0.3"
        yield Cell(name, _shown(flat, step, within, 0.3))


def _alarms(draw: Nights, nights: int) -> Callable[[Chance, int], float]:
    """Share of flat series that ever show a change when they are read every night."""

    def found(chance: Chance, rounds: int) -> float:
        series = draw(chance, rounds, nights)
        return sum(bool(statistics.changes(one.tolist())) for one in series) / rounds

    return found


def _shown(flat: int, step: float, within: int, share: float) -> Callable[[Chance, int], float]:
    """Share of series that show a step by so many nights after it, and not before it."""

    def found(chance: Chance, rounds: int) -> float:
        series = correlated(chance, rounds, flat + within, share)
        series[:, flat:] += step
        reported = [statistics.changes(one.tolist()) for one in series]
        return sum(any(one.seen >= flat for one in changes) for changes in reported) / rounds

    return found


def _second(chance: Chance, rounds: int) -> float:
    """Share of series with one step that show another change after it."""
    series = correlated(chance, rounds, 240, 0.3)
    series[:, 60:] += 3
    reported = [statistics.changes(one.tolist()) for one in series]
    return sum(sum(one.seen >= 60 for one in changes) > 1 for changes in reported) / rounds


# --- planning ------------------------------------------------------------------------------------------

Sizes = Callable[[Chance, int], np.ndarray]

SIZES: dict[str, Sizes] = {
    "1 to 20 questions": lambda chance, count: chance.integers(1, 21, count),
    "8 questions": lambda chance, count: np.full(count, 8),
    "1 question": lambda chance, count: np.ones(count, dtype=int),
    "geometric, 4 questions": lambda chance, count: chance.geometric(0.25, count),
}

LARGE = 40_000
"""Documents from which a kind of scores is measured before it is planned with."""


@dataclass(frozen=True)
class Scores:
    """Two runs over the same documents: a sample's scores share its difficulty."""

    kind: str
    """binary, graded (cut to [0, 1]) or normal"""
    sizes: str
    together: float
    """Share of what is a run's own that goes together within a document."""
    mean: float = 0.7
    """Mean of the baseline, about."""

    def drawn(
        self, chance: Chance, documents: int, step: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Baseline, candidate and the document of each sample."""
        sizes = SIZES[self.sizes](chance, documents)
        of = np.repeat(np.arange(documents), sizes)
        common = math.sqrt(0.5) * chance.standard_normal(len(of))
        runs = []
        for shift in (0.0, step):
            own = math.sqrt(self.together) * chance.standard_normal(documents)[of]
            own += math.sqrt(1 - self.together) * chance.standard_normal(len(of))
            runs.append(self._scored(common + math.sqrt(0.5) * own + shift))
        return runs[0], runs[1], of

    def _scored(self, latent: np.ndarray) -> np.ndarray:
        if self.kind == "binary":
            latent = (latent > -NormalDist().inv_cdf(self.mean)).astype(float)
        return np.clip(self.mean + 0.25 * latent, 0, 1) if self.kind == "graded" else latent

    def planned(self, step: float) -> int:
        """Documents that it takes to find a step in the latent score."""
        chance = np.random.default_rng(1)
        one, other, of = self.drawn(chance, LARGE, step)
        latent = chance.standard_normal(len(of))
        effect = float((self._scored(latent + step) - self._scored(latent)).mean())
        spread = math.sqrt((one.var() + other.var()) / 2)
        sizes = np.bincount(of)
        samples = statistics.samples_needed(
            effect, spread, 1 - float((other - one).var()) / (2 * spread**2),
            cluster_size=float(sizes.mean()), cluster_cv=float(sizes.std() / sizes.mean()),
            icc=max(0.0, statistics.intraclass_correlation(other - one, of) or 0.0),
            step=float(self.kind == "binary"),
        )  # fmt: skip
        return math.ceil(samples / float(sizes.mean()) - 1e-9)


def power_cells() -> Iterator[Cell]:
    for scores, documents, quick in (
        (Scores("normal", "1 to 20 questions", 0.1), 10, True),
        (Scores("normal", "1 to 20 questions", 0.6), 10, False),
        (Scores("normal", "1 to 20 questions", 0.3), 30, False),
        (Scores("normal", "1 to 20 questions", 0.6), 100, False),
        (Scores("normal", "1 question", 0.0), 12, False),
        (Scores("normal", "8 questions", 0.3), 15, False),
        (Scores("normal", "geometric, 4 questions", 0.6), 20, False),
        (Scores("graded", "1 to 20 questions", 0.1), 15, False),
        (Scores("graded", "1 question", 0.0), 20, False),
        (Scores("graded", "1 to 20 questions", 0.6), 40, True),
        (Scores("graded", "geometric, 4 questions", 0.3), 100, False),
        (Scores("binary", "1 to 20 questions", 0.1), 12, False),
        (Scores("binary", "1 to 20 questions", 0.3), 30, True),
        (Scores("binary", "1 to 20 questions", 0.6), 100, False),
        (Scores("binary", "1 to 20 questions", 0.6, 0.9), 60, False),
        (Scores("binary", "1 question", 0.0), 60, False),
    ):
        name = f"power, {scores.kind} about {scores.mean:g}, {scores.sizes}, {scores.together:g} together"
        yield Cell(f"{name}, {documents} documents", _power(scores, documents), 0.80, 0.85, quick)


def _power(scores: Scores, about: int) -> Callable[[Chance, int], float]:
    """Share of comparisons with as many documents as planned that say `better`."""

    def found(chance: Chance, rounds: int) -> float:
        low, high = 0.0, 4.0
        for _ in range(14):  # the least step that this number is enough for: no document too many
            middle = (low + high) / 2
            low, high = (low, middle) if scores.planned(middle) <= about else (middle, high)
        hits = 0
        for _ in range(rounds):
            one, other, of = scores.drawn(chance, about, high)
            hits += statistics.compare(one, other, of).verdict == "better"
        return hits / rounds

    return found


if __name__ == "__main__":
    raise SystemExit(main())
