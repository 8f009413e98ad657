"""Whether intervals and verdicts keep the promises of docs/measuring.md and docs/gate.md, by simulation.

Each row is a cell of a stated design: a kind of score, a number of documents, one question a document or 1 to
20, a mean, and for verdicts the true drop beside the margin. Each cell has 2,500 replications. A cell is red
where it lies more than three Monte-Carlo errors on the wrong side of its promise:

- a 95 % interval of a mean holds the truth in at least 93 %, of a ratio (CER) or corpus metric in 90 %;
- a candidate that is worse by the margin, or by twice the margin, passes in at most 2.5 %; arms that differ
  by the margin are called equivalent in at most 2.5 %, over all looks;
- of two runs without a difference p is at most 0.05 in at most 5 %;
- the corrected 95 % interval of a judge's verdicts, with planted sensitivity and specificity and a random
  choice of labelled samples, holds the true share in at least 94 %; the naive interval's share is printed;
- at 300 documents the mean width is at most 1.15 times that of the narrowest candidate that covers: Student's
  t (CR1), Wilson's with an effective sample size, t on the log scale;
- at 300 documents a candidate that is no worse passes at least 0.9 times as often as by the one-sided test
  that knows the true variance. Where fewer than 28 questions differ the share is printed, not judged: the
  variance has to be estimated from few documents, and with less caution more than 2.5 % would pass.

Cells without a promise show the limits of the method. Finished cells are kept in build/calibration/, by a
hash of hpcbench/statistics and of this file: a run that was stopped goes on.

    python benchmarks/calibration.py [--quick] [--only WORD] [--table]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from hpcbench import statistics
from hpcbench.statistics import paired

ROUNDS = 2_500
ICC = 0.6
"""Correlation of a document's questions."""
SEED = 20261123
EVENTS = 28
"""Documents that differ, on average, from which the power of a verdict is judged."""
PLACE = Path(__file__).parent.parent / "build" / "calibration"

paired.PERMUTATIONS = 99  # p-values take no part here

Rng = np.random.Generator
Array = Any
Ends = tuple[float | None, float | None]


@dataclass(frozen=True)
class Cell:
    """A place of the design."""

    kind: str
    """mean, ratio, corpus, verdict, looks or judge."""
    score: str
    """Distribution of the scores."""
    documents: int
    """How many."""
    many: bool
    """1 to 20 questions a document instead of one."""
    mean: float
    """Mean of the baseline's true scores."""
    margin: float = 0.0
    """By how much a candidate may be worse."""
    drop: float = 0.0
    """By how much it truly is worse, in margins."""
    busy: float = 0.0
    """Share of questions at which the runs differ, where the candidate is no worse."""
    sensitivity: float = 1.0
    """Sensitivity of a judge."""
    specificity: float = 1.0
    labels: int = 0
    """Samples with a human label."""

    @property
    def name(self) -> str:
        questions = "1-20" if self.many else "1"
        if self.kind == "judge":
            return (
                f"judge {self.documents} x {questions} {self.mean:g} sensitivity {self.sensitivity:g} "
                f"specificity {self.specificity:g} labels {self.labels}"
            )
        place = f"{self.kind} {self.score} {self.documents} x {questions} {self.mean:g}"
        if self.kind in ("verdict", "looks"):
            place += f" margin {self.margin:g} drop {self.drop:g} differing {self.busy:g}"
        return place


@dataclass(frozen=True)
class Row:
    """One promise of a cell, or a figure without one."""

    what: str
    found: float
    error: float = 0.0
    promised: str = ""
    fine: bool = True


# --- design -------------------------------------------------------------------------------------------

SIZES = (10, 30, 60, 100, 300, 1000)
MEANS = (0.5, 0.8, 0.95, 0.981, 0.994, 1.0)
QUICK = 12
VERDICTS = (
    ("binary", 10, 0.9, 0.05, 0.06), ("binary", 30, 1.0, 0.02, 0.0), ("binary", 60, 0.98, 0.02, 0.02),
    ("binary", 100, 0.99, 0.01, 0.01), ("binary", 300, 0.9, 0.05, 0.1), ("binary", 300, 0.98, 0.01, 0.02),
    ("binary", 1000, 0.95, 0.02, 0.05), ("graded", 10, 0.9, 0.05, 0.06), ("graded", 30, 0.9, 0.1, 0.1),
    ("graded", 100, 0.99, 0.01, 0.01), ("graded", 300, 0.9, 0.05, 0.08), ("graded", 300, 0.9, 0.02, 0.08),
    ("edit-rate", 30, 0.1, 0.05, 0.0), ("edit-rate", 300, 0.1, 0.05, 0.0), ("count", 60, 0.5, 0.2, 0.0),
)  # fmt: skip
"""Score, documents, mean, margin, share of questions that differ."""
SLIPS = (
    (30, False, 0.95), (60, False, 0.981), (60, True, 0.95), (100, False, 0.981), (100, True, 0.981),
    (300, False, 0.95),
)  # fmt: skip
"""Documents, many questions of each, mean."""
LOOKS = (
    ("binary", 60, 0.05, 0.06), ("binary", 300, 0.05, 0.1), ("graded", 60, 0.05, 0.06),
    ("graded", 300, 0.02, 0.05),
)  # fmt: skip
JUDGES = (
    (300, False, 0.8, 0.9, 0.8, 50), (300, False, 0.8, 0.98, 0.98, 100), (300, False, 0.95, 0.95, 0.7, 100),
    (300, False, 0.5, 0.7, 0.9, 100), (300, False, 0.8, 0.75, 0.65, 100), (1000, False, 0.8, 0.9, 0.8, 200),
    (30, True, 0.8, 0.9, 0.8, 100), (100, True, 0.8, 0.9, 0.8, 100), (300, True, 0.8, 0.95, 0.9, 200),
)  # fmt: skip
"""Documents, many questions of each, true share, sensitivity, specificity, labels."""


def design() -> list[Cell]:
    """At most 160 cells: pairs of two factors' values occur, not every combination of all."""
    cells = []
    for score_at, score in enumerate(("binary", "graded", "smooth")):
        for size_at, size in enumerate(SIZES):
            for mean_at, mean in enumerate(MEANS):
                if mean == 1.0 and score == "smooth":
                    continue
                if (size_at + mean_at + score_at) % 3 == 0 or (size == 300 and mean != 0.8):
                    many = (size_at + mean_at) % 2 == 1
                    cells.append(Cell("mean", score, size, many, mean))
    cells += [
        Cell("mean", score, size, size in (10, 100), mean)
        for score, mean in (("count", 0.5), ("edit-rate", 0.05))
        for size in SIZES
    ]
    cells += [Cell("mean", "slips", size, many, mean) for size, many, mean in SLIPS]
    cells += [Cell("mean", "collapse", size, False, 0.95) for size in (100, 300)]
    cells += [Cell("corpus", "macro F1", size, size == 30, 0.9) for size in (10, 30, 300)]
    cells += [
        Cell("ratio", "edit-rate", size, many, mean)
        for size in (10, 15, 30, 300)
        for many, mean in ((False, 0.08), (True, 0.3))
    ]
    for at, (score, size, mean, margin, busy) in enumerate(VERDICTS):
        for many in (False, True):
            other = 0.0 if size == 300 else (2.0, 0.5)[at % 2]
            both = size == 300 or many is (at % 2 == 0)
            cells += [
                Cell("verdict", score, size, many, mean, margin, drop, busy)
                for drop in ((1.0, other) if both else (1.0,))
            ]
    cells += [
        Cell("looks", score, size, True, 0.9, margin, 1.0, busy)
        for score, size, margin, busy in LOOKS
    ]
    cells += [
        Cell("judge", "binary", size, many, share, 0.0, 0.0, 0.0, right, wrong, labels)
        for size, many, share, right, wrong, labels in JUDGES
    ]
    return cells


# --- scores -------------------------------------------------------------------------------------------


def sizes(chance: Rng, cell: Cell) -> Array:
    """Questions of each document."""
    count = cell.documents
    return chance.integers(1, 21, count) if cell.many else np.ones(count, dtype=np.int64)


def shares(chance: Rng, mean: float, cell: Cell) -> Array:
    """Each document's chance; questions of one document go together."""
    if mean in (0.0, 1.0) or not cell.many:
        return np.full(cell.documents, mean)
    spread = (1 - ICC) / ICC
    return chance.beta(mean * spread, (1 - mean) * spread, cell.documents)


def happens(chance: Rng, mean: float, cell: Cell, documents: Array) -> Array:
    """Whether something happens at each question."""
    return chance.random(len(documents)) < shares(chance, mean, cell)[documents]


def values(chance: Rng, cell: Cell, documents: Array) -> Array:
    """A run's scores, one a question."""
    n = len(documents)
    if cell.score == "binary":
        return happens(chance, cell.mean, cell, documents).astype(float)
    if cell.score == "graded":  # an answer that is not right scores anything from 0 to 1
        return np.where(happens(chance, 2 * cell.mean - 1, cell, documents), 1.0, chance.random(n))
    if cell.score == "smooth":
        own = chance.beta(cell.mean * 8, (1 - cell.mean) * 8, cell.documents)[documents]
        other = chance.beta(cell.mean * 8, (1 - cell.mean) * 8, n)
        return np.where(chance.random(n) < math.sqrt(ICC), own, other)
    if cell.score == "slips":  # for an answer that is worth 0, five that are worth nearly 1
        lost = happens(chance, 0.8 * (1 - cell.mean), cell, documents)
        slipped = happens(chance, 4 * (1 - cell.mean), cell, documents)
        nearly = np.where(slipped, chance.uniform(0.9, 1.0, n), 1.0)
        return np.where(lost, 0.0, nearly)
    if cell.score == "collapse":  # one document of a hundred scores 0, the others nearly the same
        usual = chance.beta(cell.mean / 0.99 * 60, (1 - cell.mean / 0.99) * 60, n)
        return np.where(chance.random(n) < 0.01, 0.0, usual)
    if cell.score == "count":
        rates = chance.gamma(0.5, cell.mean / 0.5, cell.documents)
        return chance.poisson(rates[documents]).astype(float)
    return np.minimum(lognormal(chance, cell)[documents], 1.0)


def lognormal(chance: Rng, cell: Cell) -> Array:
    """Error rates of documents, sigma 1."""
    return cell.mean * np.exp(chance.normal(-0.5, 1.0, cell.documents))


def capped_mean(mean: float) -> float:
    """Mean of min(1, X) for X lognormal of that mean and sigma 1."""
    edge = -math.log(mean) + 0.5
    return float(mean * ndtr(edge - 1) + ndtr(-edge))


def pages(chance: Rng, cell: Cell, documents: Array) -> tuple[Array, Array]:
    """Errors and lengths of pages."""
    lengths = np.ceil(chance.lognormal(5, 0.8, len(documents)))
    rates = lognormal(chance, cell)[documents]
    return chance.poisson(rates * lengths).astype(float), lengths


def two_runs(chance: Rng, cell: Cell, documents: Array) -> tuple[Array, Array]:
    """Baseline and candidate whose mean is worse by the true drop."""
    drop = cell.drop * cell.margin
    if cell.score == "edit-rate":
        errors, lengths = pages(chance, cell, documents)
        extra = chance.poisson((lognormal(chance, cell) * drop / cell.mean)[documents] * lengths)
        away = chance.binomial(errors.astype(np.int64), 0.2)
        other = errors - away + chance.poisson(away) + extra
        return np.stack([errors, lengths], axis=1), np.stack([other, lengths], axis=1)
    one = values(chance, cell, documents)
    if cell.score == "count":  # fewer is better
        more = chance.gamma(0.5, drop / 0.5, cell.documents) if drop else np.zeros(cell.documents)
        return one, one + chance.poisson(more[documents])
    scale = 2.0 if cell.score == "graded" else 1.0  # a graded answer that changes moves half way

    def part() -> Array:
        return chance.random(len(one)) if cell.score == "graded" else np.ones(len(one))

    differing = max(cell.busy, drop)
    falling = scale * (differing + drop) / 2 / cell.mean
    rising = 0.0
    if differing > drop:
        rising = scale * (differing - drop) / 2 / (1 - cell.mean) / (1 - falling)
    assert max(falling, rising) <= 1, "no such drop among scores of that mean"
    falls = happens(chance, falling, cell, documents)
    rises = happens(chance, rising, cell, documents) & ~falls
    other = np.where(falls, one * (1 - part()), one)
    return one, np.where(rises, one + (1 - one) * part(), other)


def confusions(chance: Rng, cell: Cell, documents: Array) -> Array:
    """Right pairs, predictions and references of three classes, one row a sample."""
    truth = chance.choice(3, size=len(documents), p=CLASSES)
    right = happens(chance, cell.mean, cell, documents)
    said = np.where(right, truth, (truth + 1) % 3)
    own = np.eye(3)
    return np.concatenate([own[truth] * right[:, None], own[said], own[truth]], axis=1)


CLASSES = np.array([0.5, 0.3, 0.2])


def macro_f1(sums: Array) -> Array:
    right, said, there = sums[:, :3], sums[:, 3:6], sums[:, 6:]
    known = said + there > 0
    scores = np.where(known, 2 * right / np.maximum(said + there, 1e-300), 0)
    return scores.sum(axis=1) / known.sum(axis=1)


def true_macro_f1(mean: float) -> float:
    right, said = CLASSES * mean, CLASSES * mean + np.roll(CLASSES, 1) * (1 - mean)
    return float(macro_f1(np.concatenate([right, said, CLASSES])[None, :])[0])


# --- cells --------------------------------------------------------------------------------------------


def rows_of(cell: Cell) -> Iterator[Row]:
    """Simulate a cell."""
    seed = int.from_bytes(hashlib.sha256(cell.name.encode()).digest()[:8], "big")
    chance = np.random.Generator(np.random.PCG64([SEED, seed]))
    simulate = {"verdict": verdicts, "looks": looks, "judge": judges}.get(cell.kind, intervals)
    yield from simulate(chance, cell)


def intervals(chance: Rng, cell: Cell) -> Iterator[Row]:
    """Coverage, and at 300 documents the width beside that of others that cover."""
    truth = cell.mean
    if cell.score == "slips":
        truth = (1 - 0.8 * (1 - cell.mean)) * (1 - 0.2 * (1 - cell.mean))
    elif (cell.kind, cell.score) == ("mean", "edit-rate"):
        truth = capped_mean(cell.mean)
    elif cell.kind == "corpus":
        truth = true_macro_f1(cell.mean)
    names = ("hpcbench", "t", "Wilson", "log t")
    covered, width = np.zeros(4), np.zeros(4)
    for _ in range(ROUNDS):
        documents = np.repeat(np.arange(cell.documents), sizes(chance, cell))
        for at, (low, high) in enumerate(ends_of(chance, cell, documents)):
            if low is not None and high is not None:
                covered[at] += low - 1e-9 <= truth <= high + 1e-9
                width[at] += high - low
    covered, width = covered / ROUNDS, width / ROUNDS
    least = 0.93 if cell.kind == "mean" else 0.90
    error = math.sqrt(least * (1 - least) / ROUNDS)
    if cell.score == "collapse":
        yield Row("coverage, a limit", covered[0], error)
    else:
        yield Row("coverage", covered[0], error, f">= {least:g}", covered[0] >= least - 3 * error)
    if cell.kind != "corpus":
        yield Row("coverage of t", covered[1], error)
    others = [at for at in (1, 2, 3) if covered[at] >= least and width[at] > 0]
    if cell.documents == 300 and others:
        best = min(others, key=lambda at: width[at])
        ratio = width[0] / width[best]
        yield Row(f"width / {names[best]}", ratio, 0.0, "<= 1.15", bool(ratio <= 1.15))


def ends_of(chance: Rng, cell: Cell, documents: Array) -> list[Ends]:
    """Ends of ours, then of t with CR1, of Wilson (right or wrong), of t on the log scale (ratios)."""
    if cell.kind == "corpus":
        sums = statistics.cluster_sums(confusions(chance, cell, documents), documents)
        found = statistics.sums_interval(sums, macro_f1, bounds=(0, 1))
        return [(found.low, found.high)]
    if cell.kind == "ratio":
        over, under = pages(chance, cell, documents)
        found = statistics.ratio_interval(over, under, documents, bounds=(0, None))
    else:
        over, under = values(chance, cell, documents), np.ones(len(documents))
        bounds = (0.0, None) if cell.score == "count" else (0.0, 1.0)
        found = statistics.mean_interval(over, documents, bounds=bounds)
    groups = cell.documents
    sums, whole = np.bincount(documents, over, groups), np.bincount(documents, under, groups)
    mean = float(sums.sum() / whole.sum())
    squares = float(((sums - mean * whole) ** 2).sum())
    error = math.sqrt(groups / (groups - 1) * squares) / float(whole.sum())
    half = float(stdtrit(groups - 1, 0.975)) * error
    low, high = max(0.0, mean - half), mean + half
    if cell.kind == "mean" and cell.score != "count":
        high = min(1.0, high)
    wilson: Ends = (None, None)
    if cell.score == "binary":
        n = mean * (1 - mean) / error**2 if 0 < mean < 1 and error else float(groups)
        z = float(ndtri(0.975))
        middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
        reach = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
        wilson = middle - reach, middle + reach
    logs: Ends = (None, None)
    if cell.kind == "ratio":
        logs = mean * math.exp(-half / mean), mean * math.exp(half / mean)
    return [(found.low, found.high), (low, high), wilson, logs]


def verdicts(chance: Rng, cell: Cell) -> Iterator[Row]:
    """How often a candidate passes, and how often it is called equivalent."""
    lower = cell.score in ("edit-rate", "count")
    bounds = (0.0, None) if lower else (0.0, 1.0)
    passed = equivalent = alarms = 0
    worse = np.zeros(ROUNDS)
    for number in range(ROUNDS):
        documents = np.repeat(np.arange(cell.documents), sizes(chance, cell))
        one, other = two_runs(chance, cell, documents)
        found = statistics.compare(
            one, other, documents, margin=cell.margin, bounds=bounds, higher_is_better=not lower
        )
        passed += bool(found.non_inferior)
        equivalent += found.verdict == "equivalent"
        alarms += found.p_value <= 0.05
        worse[number] = (found.candidate - found.baseline) * (1 if lower else -1)
    share = passed / ROUNDS
    if cell.drop >= 1:
        yield promise("passes", share)
        yield promise("equivalent", equivalent / ROUNDS)
        return
    error = math.sqrt(max(share * (1 - share), 1e-4) / ROUNDS)
    if cell.drop > 0 or cell.documents != 300:
        yield Row("passes", share, error)
        return
    known = float(np.mean(worse + float(ndtri(0.975)) * worse.std() < cell.margin))
    judged = cell.score not in ("binary", "graded") or cell.busy * cell.documents >= EVENTS
    text = f"{'>= ' if judged else ''}0.9 x {known:.3f}"
    yield Row("passes", share, error, text, not judged or share + 3 * error >= 0.9 * known)
    noise = math.sqrt(0.05 * 0.95 / ROUNDS)
    yield Row("p <= 0.05", alarms / ROUNDS, noise, "<= 0.05", alarms / ROUNDS <= 0.05 + 3 * noise)


def looks(chance: Rng, cell: Cell) -> Iterator[Row]:
    """How often any of seven looks, at documents in a random order, calls two arms equivalent."""
    fractions = [eighths / 8 for eighths in range(2, 9)]
    levels = statistics.nominal_levels(fractions)
    found = 0
    for _ in range(ROUNDS):
        documents = np.repeat(np.arange(cell.documents), sizes(chance, cell))
        one, other = two_runs(chance, cell, documents)
        order = chance.permutation(cell.documents)
        for fraction, level in zip(fractions, levels, strict=True):
            seen = np.isin(documents, order[: max(2, round(fraction * cell.documents))])
            look = statistics.compare(
                one[seen], other[seen], documents[seen],
                margin=cell.margin, level=1 - level, bounds=(0.0, 1.0),
            )  # fmt: skip
            if look.verdict == "equivalent":
                found += 1
                break
    yield promise("equivalent at any look", found / ROUNDS)


def judges(chance: Rng, cell: Cell) -> Iterator[Row]:
    """Coverage and width of the corrected intervals of a judge with planted errors, and of the naive one."""
    names = ("Rogan-Gladen", "prediction-powered", "naive")
    covered, width, defined = np.zeros(3), np.zeros(3), np.zeros(3)
    for _ in range(ROUNDS):
        documents = np.repeat(np.arange(cell.documents), sizes(chance, cell))
        right = happens(chance, cell.mean, cell, documents)
        sees = happens(chance, cell.sensitivity, cell, documents)
        refuses = happens(chance, cell.specificity, cell, documents)
        said = np.where(right, sees, ~refuses).astype(float)
        labels = np.full(len(documents), np.nan)
        some = chance.choice(len(documents), min(cell.labels, len(documents)), replace=False)
        labels[some] = right[some]
        for at, found in enumerate(
            (
                statistics.corrected_share(said, labels, documents),
                statistics.prediction_powered(said, labels, documents),
                statistics.mean_interval(said, documents, bounds=(0.0, 1.0)),
            )
        ):
            if found.low is not None and found.high is not None:
                defined[at] += 1
                covered[at] += found.low - 1e-9 <= cell.mean <= found.high + 1e-9
                width[at] += found.high - found.low
    for at, name in enumerate(names):
        share, count = covered[at] / max(1, defined[at]), max(1, defined[at])
        error = math.sqrt(0.94 * 0.06 / count)
        if name == "naive":
            yield Row(f"coverage, {name}", share, error)
        else:
            fine = bool(share >= 0.94 - 3 * error)
            yield Row(f"coverage, {name}", share, error, ">= 0.94", fine)
        yield Row(f"width, {name}", width[at] / count)
    yield Row("Rogan-Gladen is defined", defined[0] / ROUNDS)


def promise(what: str, share: float) -> Row:
    """A share of wrong verdicts."""
    error = math.sqrt(0.025 * 0.975 / ROUNDS)
    return Row(what, share, error, "<= 0.025", share <= 0.025 + 3 * error)


# --- running ------------------------------------------------------------------------------------------


def version() -> str:
    """Hash of what the figures depend on."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(statistics.__file__).parent.glob("*.py")), Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} cells of the design")
    parser.add_argument("--only", default="", help="cells whose name holds this word")
    parser.add_argument("--table", action="store_true", help="as Markdown")
    arguments = parser.parse_args()
    cells = [one for one in design() if arguments.only in one.name]
    if arguments.quick:
        cells = cells[:: max(1, len(cells) // QUICK)][:QUICK]
    kept = PLACE / f"cells-{version()}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, list[dict[str, Any]]] = {}
    if kept.exists():
        for line in kept.read_text().splitlines():
            entry = json.loads(line)
            known[entry["cell"]] = entry["rows"]
    started, red = time.monotonic(), 0
    print(f"{len(cells)} cells of {len(design())}, {ROUNDS} replications each\n")
    if arguments.table:
        print("| cell | found ± Monte-Carlo error (promised) |\n|---|---|")
    for cell in cells:
        if cell.name not in known:
            known[cell.name] = [
                {**vars(row), "found": float(row.found), "fine": bool(row.fine)}
                for row in rows_of(cell)
            ]
            with kept.open("a") as file:
                file.write(json.dumps({"cell": cell.name, "rows": known[cell.name]}) + "\n")
        show = [figure(row) for row in known[cell.name]]
        if arguments.table:
            print(f"| {cell.name} | {' · '.join(show)} |", flush=True)
        else:
            print(*(f"{cell.name:<66} {one}" for one in show), sep="\n", flush=True)
        red += sum(not row["fine"] for row in known[cell.name])
    print(f"\n{red} red, {time.monotonic() - started:.0f} s")
    sys.exit(1 if red else 0)


def figure(row: dict[str, Any]) -> str:
    """Result of a cell, beside its promise."""
    found = f"{row['what']} {row['found']:.3f}" + (f" ± {row['error']:.3f}" if row["error"] else "")
    found += f" ({row['promised']})" if row["promised"] else ""
    return found if row["fine"] else f"{found} RED"


if __name__ == "__main__":
    main()
