"""How far our metrics of tables, text and order are from those of publishers' packages, a row each.

Run it beside the packages of a recipe in `recipes/scorers`, with hpcbench and what its metrics need: in the
image, or in a virtual environment of the recipe's lock.

    python3.11 -m venv theirs
    theirs/bin/pip install -r recipes/scorers/omnidocbench/requirements.lock
    theirs/bin/pip install pydantic rapidfuzz
    PYTHONPATH=. theirs/bin/python benchmarks/publishers.py

Pages are drawn: paragraphs and a table. Answers lack some of them, have others in another order, damaged, or
with hostile text (tests/publishers.py). The official values are those of a page, by `omnidocbench.evaluate`
or `GritsEvaluator`. Rows of a package that is not installed are left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hpcbench.metrics import metric
from hpcbench.metrics.base import value_of
from hpcbench.metrics.publishers import tables_of
from tests.publishers import WORDS, html, predictions, table

PAGES = 200
OURS: Sequence[tuple[str, dict[str, Any], str]] = (
    ("teds", {}, "table.teds"),
    ("teds_s", {}, "table.s_teds"),
    ("teds", {}, "grits_con"),
    ("teds_s", {}, "grits_top"),
    ("ned", {}, "text.edit_ratio"),
    ("markdown_edit", {"tables": "drop"}, "text.edit_ratio"),
    ("reading_order", {}, "reading_order.edit_ratio"),
)
"""Metric of ours, options, and the official figure that it is beside."""


def main() -> None:
    """Print the table."""
    rng = random.Random("omnidocbench")
    pages, texts = [], []
    for _ in range(PAGES):
        blocks = [
            " ".join(rng.choices(WORDS, k=rng.randint(5, 30))) for _ in range(rng.randint(2, 6))
        ]
        blocks.insert(
            rng.randrange(len(blocks)), html(table(rng, rng.randint(2, 4), rng.randint(2, 4)))
        )
        pages.append(blocks)
    texts = predictions(rng, pages)
    official = [_official(blocks, text) for blocks, text in zip(pages, texts, strict=True)]
    print(
        "| ours | official | both have a value | ours, mean | official, mean | equal | largest difference |"
    )
    print("|---|---|--:|--:|--:|--:|--:|")
    for name, options, figure in OURS:
        made: Any = metric(name, **options)
        score: Callable[..., Any] = made.score
        pairs = []
        for blocks, text, values in zip(pages, texts, official, strict=True):
            theirs = values.get(figure)
            if theirs is not None:
                pairs.append((value_of(made, score(text, ["\n\n".join(blocks)])), theirs))
        if not pairs:
            continue
        gaps = [abs(ours - theirs) for ours, theirs in pairs]
        means = [sum(one[side] for one in pairs) / len(pairs) for side in (0, 1)]
        same = sum(gap < 1e-9 for gap in gaps) / len(pairs)
        cells = f"{len(pairs)} | {means[0]:.3f} | {means[1]:.3f} | {same:.0%} | {max(gaps):.3f}"
        print(f"| `{made.signature}` | `{figure}` | {cells} |")


def _official(blocks: Sequence[str], text: str) -> dict[str, float | None]:
    """Figures of a page by the packages that are here; none where one raises."""
    found: dict[str, float | None] = {}
    for figures in (_omnidocbench, _grits):
        with suppress(Exception, SystemExit):  # foreign code, which also exits
            found |= figures(blocks, text)
    return found


def _omnidocbench(blocks: Sequence[str], text: str) -> dict[str, float | None]:
    from omnidocbench.evaluate import evaluate_page  # type: ignore[import-not-found]

    right = {
        "blocks": [
            {"type": "table" if one.startswith("<table") else "text", "content": one, "html": one}
            for one in blocks
        ],
        "relations": [],
    }
    found = evaluate_page(text, right, "", disable_cdm=True)
    return {f"{part}.{name}": value for part, values in found.items() for name, value in values.items()
            if not isinstance(value, list)}  # fmt: skip


def _grits(blocks: Sequence[str], text: str) -> dict[str, float | None]:
    from grits import GritsEvaluator  # type: ignore[import-not-found]

    evaluator = GritsEvaluator()
    evaluator.eval_htmls(tables_of("\n\n".join(blocks)), tables_of(text))
    return dict(evaluator.compute_grits())


if __name__ == "__main__":
    main()
