"""ANLS* of receipts: `anls_star` of ours beside the authors' package, on one core.

Receipts of 20 to 70 values with 5 to 20 line items, read with mistakes: characters, fields and lines wrong,
missing or in another order. Equal values first, then how many receipts a second.

    python benchmarks/metrics_anls_star.py [--receipts 60]
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from typing import Any

WORDS = (
    "tea",
    "salt",
    "bread",
    "milk",
    "butter",
    "cheese",
    "juice",
    "coffee",
    "water",
    "молоко",
    "хлеб",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--receipts", type=int, default=60)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    import anls_star as package

    from hpcbench.metrics import AnlsStar

    rng = random.Random(0)
    references = [receipt(rng) for _ in range(arguments.receipts)]
    pairs = [(reference, misread(rng, reference)) for reference in references]
    sizes = sorted(values(reference) for reference in references)
    print(f"{len(pairs)} receipts of {sizes[0]} to {sizes[-1]} values")

    def theirs(reference: Any, prediction: Any) -> float:
        return float(package.anls_score(reference, prediction))

    def ours(**options: Any) -> Callable[[Any, Any], float]:
        metric = AnlsStar(**options)
        return lambda reference, prediction: metric.score(prediction, [reference]).numerator

    ours()(*pairs[0])  # loads rapidfuzz and scipy
    expected, slow = measured(theirs, pairs)
    print(f"{'anls_star 1.0.1':<34} {len(pairs) / slow:>7.1f} receipts/s")
    for options in ({}, {"compat": "anls_star-1.0.1"}, {"ties": "best"}):
        found, fast = min(
            (measured(ours(**options), pairs) for _ in range(3)), key=lambda one: one[1]
        )
        worst = max(abs(one - other) for one, other in zip(found, expected, strict=True))
        assert worst < 1e-9, f"{options}: {worst}"
        reported = "hpcbench" + "".join(f", {name} {value}" for name, value in options.items())
        print(f"{reported:<34} {len(pairs) / fast:>7.1f} receipts/s {slow / fast:>7.1f} x")


def measured(score: Callable[[Any, Any], float], pairs: list[Any]) -> tuple[list[float], float]:
    """Values, and seconds for all."""
    started = time.perf_counter()
    found = [score(reference, prediction) for reference, prediction in pairs]
    return found, time.perf_counter() - started


def receipt(rng: random.Random) -> dict[str, Any]:
    def line() -> dict[str, str]:
        price = f"{rng.randint(1, 40)}.{rng.choice(['00', '50', '99'])}"
        return {
            "name": " ".join(rng.sample(WORDS, 2)),
            "quantity": str(rng.randint(1, 3)),
            "price": price,
        }

    return {
        "seller": {"name": f"{rng.choice(WORDS)} Ltd", "tax_id": str(rng.randint(10**9, 10**10))},
        "date": f"2024-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
        "total": f"{rng.randint(10, 999)}.50",
        "phone": None,
        "items": [line() for _ in range(rng.randint(5, 20))],
    }


def misread(rng: random.Random, value: Any) -> Any:
    """The same with mistakes."""
    if isinstance(value, dict):
        return {key: misread(rng, one) for key, one in value.items() if rng.random() > 0.03}
    if isinstance(value, list):
        kept = [misread(rng, one) for one in value if rng.random() > 0.05]
        return rng.sample(kept, len(kept)) if rng.random() < 0.3 else kept
    if not value or rng.random() < 0.7:
        return value
    place = rng.randrange(len(value))
    return value[:place] + rng.choice("abcdef0123") + value[place + 1 :]


def values(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(values, value.values()))
    return sum(map(values, value)) if isinstance(value, list) else 1


if __name__ == "__main__":
    main()
