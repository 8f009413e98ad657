"""Partners for the elements of two lists: the assignment problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Costs = Sequence[Sequence[Any]]
"""Cost of each pair (row, column), in numbers of one kind; of any shape."""


def cheapest_pairs(costs: Costs) -> list[tuple[int, int]]:
    """Pairs (row, column), by row, of the matching with the least sum of costs.

    Every row has a partner, or every column where there are fewer. Exact for whole numbers of any size. Takes
    rows² x columns steps at worst, and hardly more than rows x columns where most rows have a cheapest column
    of their own.
    """
    return _pairs(costs, _augment)


def pairs_as_munkres(costs: Costs) -> list[tuple[int, int]]:
    """The same, and of equally cheap matchings the one that munkres 3.0.0 finds; for floats.

    Sums that only rounding makes unequal can lead elsewhere: in 1 of 800 drawn tables of tenths.
    """
    return _pairs(costs, _as_munkres)


def _pairs(costs: Costs, finish: Callable[[Costs, list[int]], list[int]]) -> list[tuple[int, int]]:
    """
    Args:
        costs: of any shape.
        finish: gives the rows without a column (-1) one; gets no more rows than columns.
    """
    if not costs or not costs[0]:
        return []
    if len(costs) > len(costs[0]):
        turned = _pairs(list(zip(*costs, strict=True)), finish)
        return sorted((row, column) for column, row in turned)
    columns: list[int] = []
    taken: set[int] = set()
    for row in costs:  # each its cheapest column, if one is free
        least = min(row)
        column = next((c for c, cost in enumerate(row) if cost == least and c not in taken), -1)
        taken.add(column)
        columns.append(column)
    return list(enumerate(finish(costs, columns) if -1 in taken else columns))


def _augment(costs: Costs, columns: list[int]) -> list[int]:
    """Give the rows without a column one, by shortest augmenting paths (Jonker and Volgenant 1987).

    Prices of rows and columns keep all reduced costs >= 0, and those of matched pairs 0. The order of
    operations decides ties: columns are visited from the first, the first of the cheapest is taken.
    """
    width = len(costs[0])
    row_price = [min(row) for row in costs]
    column_price: list[Any] = [0] * width
    row_of = [-1] * width
    for row, column in enumerate(columns):
        if column >= 0:
            row_of[column] = row
    for start in (row for row, column in enumerate(columns) if column < 0):
        reach: list[Any] = [math.inf] * width  # reduced cost of the cheapest path to a column
        before = [-1] * width  # the column a path comes from
        untouched = list(range(width))
        visited: list[int] = []
        row, last = start, -1
        while True:
            costs_of_row, price = costs[row], row_price[row]
            for column in untouched:
                cost = costs_of_row[column] - price - column_price[column]
                if cost < reach[column]:
                    reach[column], before[column] = cost, last
            nearest = min(untouched, key=reach.__getitem__)
            step = reach[nearest]
            row_price[start] += step
            for column in visited:
                row_price[row_of[column]] += step
                column_price[column] -= step
            for column in untouched:
                reach[column] -= step
            if row_of[nearest] < 0:
                break
            visited.append(nearest)
            untouched.remove(nearest)
            row, last = row_of[nearest], nearest
        while nearest >= 0:  # flip the path: each column takes the row of the one before
            previous = before[nearest]
            row_of[nearest] = row_of[previous] if previous >= 0 else start
            nearest = previous
    found = [-1] * len(costs)
    for column, row in enumerate(row_of):
        if row >= 0:
            found[row] = column
    return found


_SMALL = 16
"""Cells from which munkres 3.0.0 leaves Python for C, where ties fall otherwise."""


def _as_munkres(costs: Costs, columns: list[int]) -> list[int]:
    if len(costs) * len(costs[0]) < _SMALL:
        return _augment(costs, columns)
    from scipy.optimize import linear_sum_assignment

    # Its C code is scipy's algorithm (Crouse 2016) started with the rows that found a column: so these come
    # first, and the others with their cheapest cell at 0.
    order = sorted(range(len(costs)), key=lambda row: columns[row] < 0)
    rows = [costs[row] if columns[row] >= 0 else _reduced(costs[row]) for row in order]
    found = columns.copy()
    for row, column in zip(order, linear_sum_assignment(rows)[1].tolist(), strict=True):
        found[row] = column
    return found


def _reduced(row: Sequence[float]) -> list[float]:
    least = min(row)
    return [cost - least for cost in row]
