"""TEDS on one core beside PubTabNet's definition computed with `apted`.

The peer is written here from the published definition: the tree that lxml reads, apted's tree edit distance
with normalised Levenshtein (rapidfuzz's) between cells. First both must agree to 1e-9 on generated pairs of
tables, ours in that dialect and by default (for plain tables both are defined alike). Then processor time,
parsing included, for a prediction with a tenth of its cells and a column wrong, for one that agrees nowhere,
and for the structure alone.

    python benchmarks/metrics_teds.py
"""

from __future__ import annotations

import os

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"

import random  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from apted import APTED, Config  # noqa: E402
from lxml import html  # noqa: E402
from rapidfuzz.distance import Levenshtein  # noqa: E402

from hpcbench.metrics.base import value_of  # noqa: E402
from hpcbench.metrics.table_similarity import Teds, TedsS  # noqa: E402

PAIRS = 300
"""Pairs of small tables on which both must agree."""
WANTED = 3.0
"""How many times as fast ours has to be on 20 × 8 tables."""

Rows = list[list[str]]


class Node:
    """A node as apted takes it."""

    def __init__(self, tag: str, spans: tuple[int, int], text: str, children: list[Node]) -> None:
        self.tag, self.spans, self.text, self.children = tag, spans, text, children


class Costs(Config):  # type: ignore[misc]
    """Renaming as published; deletion and insertion cost 1."""

    def rename(self, node1: Node, node2: Node) -> float:
        if (node1.tag, node1.spans) != (node2.tag, node2.spans):
            return 1.0
        longest = max(len(node1.text), len(node2.text))
        return Levenshtein.distance(node1.text, node2.text) / longest if longest else 0.0


def published(prediction: str, reference: str, structure: bool = False) -> float:
    """TEDS of two plain tables."""
    tables = [html.fromstring(text).xpath("body/table")[0] for text in (prediction, reference)]
    nodes = max(len(table.xpath(".//*")) for table in tables)
    first, second = (read(table, structure) for table in tables)
    return 1.0 - float(APTED(first, second, Costs()).compute_edit_distance()) / nodes


def read(element: Any, structure: bool) -> Node:
    if element.tag == "td":
        spans = int(element.get("colspan", 1)), int(element.get("rowspan", 1))
        return Node("td", spans, "" if structure else element.text or "", [])
    return Node(element.tag, (1, 1), "", [read(child, structure) for child in element])


def page(rows: Rows, rng: random.Random | None = None) -> str:
    """A table; with `rng` some cells cover two columns."""

    def cell(text: str) -> str:
        wide = rng is not None and rng.random() < 0.1
        return f"<td{' colspan=2' if wide else ''}>{text}</td>"

    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<html><body><table>{body}</table></body></html>"


def table(rng: random.Random, rows: int, columns: int) -> Rows:
    return [
        ["".join(rng.choices("0123456789.абвгд", k=rng.randint(1, 9))) for _ in range(columns)]
        for _ in range(rows)
    ]


def misread(rng: random.Random, rows: Rows) -> Rows:
    """A tenth of the cells and one row wrong, a column split in two."""
    split = rng.randrange(len(rows[0]))
    wrong = [[text[:-1] + "8" if rng.random() < 0.1 else text for text in row] for row in rows]
    wrong = [[*row[:split], row[split][:2], *row[split:]] for row in wrong]
    del wrong[rng.randrange(len(wrong))]
    return wrong


def agree(rng: random.Random) -> None:
    dialect, ours = Teds(compat="pubtabnet"), Teds()
    dialect_s, ours_s = TedsS(compat="pubtabnet"), TedsS()
    for _ in range(PAIRS):
        rows = table(rng, rng.randint(1, 6), rng.randint(1, 4))
        other = rng.choice((rows, misread(rng, rows), table(rng, rng.randint(1, 5), 3)))
        pair = page(other, rng), page(rows, rng)
        for structure, metrics in ((False, (dialect, ours)), (True, (dialect_s, ours_s))):
            expected = published(*pair, structure)
            for metric in metrics:
                value = value_of(metric, metric.score(pair[0], [pair[1]]))
                bound = expected if metric.compat else max(0.0, expected)
                assert abs(value - bound) < 1e-9, (metric.signature, value, expected, pair)


def seconds(work: Callable[[], object], least: float = 0.3) -> float:
    """Processor time of one call: the shortest of three rounds."""
    work()
    rounds = []
    for _ in range(3):
        calls, started = 0, time.process_time()
        while time.process_time() - started < least or not calls:
            work()
            calls += 1
        rounds.append((time.process_time() - started) / calls)
    return min(rounds)


def main() -> None:
    rng = random.Random(8)
    agree(rng)
    print(f"equal to 1e-9 on {PAIRS} pairs of tables, TEDS and TEDS-S, both dialects")
    print(f"{'tables':<28}{'apted':>12}{'hpcbench':>12}{'ratio':>9}")
    for rows, columns in ((4, 3), (20, 8)):
        right = table(rng, rows, columns)
        for reported, wrong in (
            ("misread", misread(rng, right)),
            ("unlike", table(rng, rows, columns)),
        ):
            for structure, metric in ((False, Teds()), (True, TedsS())):
                if structure and reported == "unlike":  # the same structure: nothing to compute
                    continue
                pair = page(wrong), page(right)
                expected = published(*pair, structure)
                assert abs(metric.score(pair[0], [pair[1]]).numerator - expected) < 1e-9
                theirs = seconds(lambda: published(*pair, structure))  # noqa: B023
                ours = seconds(lambda: metric.score(pair[0], [pair[1]]))  # noqa: B023
                name = f"{rows} × {columns} {reported}, {metric.name}"
                print(
                    f"{name:<28}{theirs * 1e3:>9.2f} ms{ours * 1e3:>9.2f} ms{theirs / ours:>8.1f}×"
                )
                assert (rows, columns) != (20, 8) or theirs / ours >= WANTED, "slower than wanted"


if __name__ == "__main__":
    main()
