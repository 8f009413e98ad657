"""Edit distance between ordered trees, exact, and quick for the flat trees that tables are.

The least number of edits that turn one tree into the other: a node is deleted (its children move up),
inserted, both at cost 1, or renamed at a cost given. Zhang and Shasha 1989, "Simple fast algorithms for the
editing distance between trees and related problems", SIAM J. Comput. 18(6); APTED (Pawlik and Augsten 2016)
computes the same number. (The package `apted` 1.0.3 does so for tables; for irregular trees with costs of
renaming between 0 and 1 it gives now and then a little more than the least.)

What is done here to be quick, and why the result stays exact:

- *Pruning.* Two trees with equal roots: the roots may be mapped onto each other, and the forests below them
  are compared. Two forests that begin (or end) with the same tree: it can be left out on both sides. A
  mapping that does otherwise can be changed at no cost: order makes each node of one copy that is mapped
  elsewhere, followed from copy to copy, end at a node without a partner, which pays for the change.
  Both need that insertion and deletion cost 1 and equal labels cost 0, nothing else of the costs.
- *Whole rows.* In Zhang and Shasha's recurrence only insertion looks at the element just before; keeping
  each distance less the number of columns before it makes that a running minimum, so that numpy does one
  node of the first tree against all columns of the second at once.
- *Leaves and flat nodes.* A leaf against any tree is one minimum. Nodes whose children are all leaves (rows
  of a table) are compared as sequences, all pairs of equal widths at once. Only nodes above those need
  passes of their own, and a table cleaned of its sections has none.

Time grows with the product of the numbers of nodes for flat trees; for deep ones as Zhang and Shasha's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Costs = NDArray[Any]
    """Floats, one per pair of nodes (nodes of the first tree, nodes of the second)."""
    Numbers = NDArray[Any]
    """Whole numbers: nodes, places."""

Label = Hashable
Rename = Callable[[Sequence[Label], Sequence[Label]], "Costs"]
"""Costs in [0, 1] of renaming each of the first labels to each of the second; 0 for equal labels."""

ELEMENTS = 500_000
"""Most cells of a working array for rows against rows, so that memory stays small."""


@dataclass(frozen=True, slots=True)
class Tree:
    """An ordered tree (or forest), its nodes in postorder: children before their parent, left to right."""

    labels: Sequence[Label]
    """Label of a node; equal labels are free to rename."""
    starts: Sequence[int]
    """Position of the first node of each node's subtree: its leftmost leaf; its own position for a leaf."""


def tree_distance(first: Tree, second: Tree, rename: Rename) -> float:
    """Least cost of edits from one tree to the other; insertion and deletion cost 1.

    Args:
        first: n nodes.
        second: m nodes.
        rename: called at most once, with the different labels on each side.
    """
    (low, high), (below, above) = _differing(first, second)
    if low == high or below == above:
        return float(high - low + above - below)
    import numpy

    codes, labels = _codes(first.labels[low:high])
    others, other_labels = _codes(second.labels[below:above])
    costs = numpy.asarray(rename(labels, other_labels), dtype=float)[numpy.ix_(codes, others)]
    left = _Side.of([start - low for start in first.starts[low:high]])
    right = _Side.of([start - below for start in second.starts[below:above]])
    return _Comparison.of(left, right, costs).distance()


def _codes(labels: Sequence[Label]) -> tuple[list[int], list[Label]]:
    """A number for each label, and the labels by number."""
    number: dict[Label, int] = {}
    return [number.setdefault(label, len(number)) for label in labels], list(number)


def _differing(first: Tree, second: Tree) -> tuple[tuple[int, int], tuple[int, int]]:
    """The part left to compare after pruning: a range of nodes on each side, forests both."""
    known: dict[Hashable, int] = {}
    ids, other_ids = _identities(first, known), _identities(second, known)
    low, high, below, above = 0, len(ids), 0, len(other_ids)
    while True:
        roots = list(_roots(first.starts, low, high))
        other_roots = list(_roots(second.starts, below, above))
        while roots and other_roots and ids[roots[0]] == other_ids[other_roots[0]]:
            high, above = first.starts[roots.pop(0)], second.starts[other_roots.pop(0)]
        while roots and other_roots and ids[roots[-1]] == other_ids[other_roots[-1]]:
            low, below = roots.pop() + 1, other_roots.pop() + 1
        single = len(roots) == len(other_roots) == 1
        if not single or first.labels[roots[0]] != second.labels[other_roots[0]]:
            return (low, high), (below, above)
        high, above = high - 1, above - 1  # below the roots


def _roots(starts: Sequence[int], low: int, high: int) -> Iterator[int]:
    """Roots of the trees in a range of nodes, from the right."""
    root = high - 1
    while root >= low:
        yield root
        root = starts[root] - 1


def _identities(tree: Tree, known: dict[Hashable, int]) -> list[int]:
    """A number per node, the same for equal subtrees."""
    ids: list[int] = []
    for node, (label, start) in enumerate(zip(tree.labels, tree.starts, strict=True)):
        children = tuple(ids[child] for child in _roots(tree.starts, start, node))
        ids.append(known.setdefault((label, children), len(known)))
    return ids


@dataclass(frozen=True, slots=True)
class _Side:
    """One forest of a comparison and what its nodes are."""

    starts: list[int]
    leaves: list[int]
    inner: list[int]
    """All nodes with children."""
    flat: dict[int, Numbers]
    """Nodes whose children are all leaves, by how many they have."""
    deep: list[int]
    """Other nodes with children, of each path of first children the highest."""

    @classmethod
    def of(cls, starts: list[int]) -> _Side:
        import numpy

        leaves: list[int] = []
        inner: list[int] = []
        flat: dict[int, list[int]] = {}
        deep: dict[int, int] = {}
        for node, start in enumerate(starts):
            if start == node:
                leaves.append(node)
                continue
            if inner and inner[-1] >= start:
                deep[start] = node
            else:
                flat.setdefault(node - start, []).append(node)
            inner.append(node)
        rows = {width: numpy.array(nodes) for width, nodes in flat.items()}
        return cls(starts, leaves, inner, rows, sorted(deep.values()))

    def flat_columns(self) -> list[_Columns]:
        """The flat nodes with their children, a block per width."""
        import numpy

        return [
            _Columns.of(self, nodes[:, None] + numpy.arange(-width, 1))
            for width, nodes in self.flat.items()
        ]

    def columns(self, low: int, high: int) -> _Columns:
        """A range of nodes as one block."""
        import numpy

        return _Columns.of(self, numpy.arange(low, high)[None])


@dataclass(frozen=True, slots=True)
class _Columns:
    """Subtrees of one size, or one forest, side by side: what the nodes of the other side run against."""

    nodes: Numbers
    """Shape (subtrees, nodes of each)."""
    sizes: Numbers
    """Nodes of the subtree of each node, same shape."""
    before: Numbers
    """Per node, where in a flattened row of distances the one before its subtree lies, same shape."""
    open: Numbers
    """Where in the flattened nodes those with children lie whose subtree begins the block."""

    @classmethod
    def of(cls, side: _Side, nodes: Numbers) -> _Columns:
        import numpy

        starts = numpy.array(side.starts)
        count, width = nodes.shape
        own = starts[nodes]
        places = own - nodes[:, :1] + numpy.arange(count)[:, None] * (width + 1)
        begins = (own == nodes[:, :1]) & (own != nodes)
        return cls(nodes, nodes - own + 1, places, numpy.flatnonzero(begins))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Distances between the subtrees of two forests, filled from small to large."""

    first: _Side
    second: _Side
    distances: Costs
    """Between the subtrees of two nodes; at first what renaming the one to the other costs."""
    inner: Costs
    """Renaming among nodes with children: the one cost still asked for later."""
    place: Numbers
    """Row of `inner` of a node of the first side."""
    other_place: Numbers
    """Its column of a node of the second."""

    @classmethod
    def of(cls, first: _Side, second: _Side, costs: Costs) -> _Comparison:
        import numpy

        inner = costs[numpy.ix_(first.inner, second.inner)]
        place, other_place = (numpy.zeros(len(side.starts), dtype=int) for side in (first, second))
        place[first.inner] = range(len(first.inner))
        other_place[second.inner] = range(len(second.inner))
        return cls(first, second, costs, inner, place, other_place)

    def turned(self) -> _Comparison:
        """The same distances, seen from the other side."""
        return _Comparison(
            self.second, self.first, self.distances.T, self.inner.T, self.other_place, self.place
        )

    def distance(self) -> float:
        turned = self.turned()
        self._compare_leaves()
        turned._compare_leaves()
        self._compare_flat()
        for one in (self, turned):
            blocks = one.second.flat_columns() if one.first.deep else []
            for root in one.first.deep:
                for block in blocks:
                    one._run(one.first.starts[root], root + 1, block)
        starts = self.second.starts
        deep = [self.second.columns(starts[root], root + 1) for root in self.second.deep]
        for root in self.first.deep:
            for block in deep:
                self._run(self.first.starts[root], root + 1, block)
        return float(self._run(0, len(self.first.starts), self.second.columns(0, len(starts))))

    def _compare_leaves(self) -> None:
        """Leaves of the first side against trees: all but the best partner is inserted.

        Leaving the leaf without a partner costs 2 more, renaming at most 1.
        """
        import numpy

        leaves, starts = self.first.leaves, self.second.starts
        flat = {node for nodes in self.second.flat.values() for node in nodes.tolist()}
        least: dict[
            int, Costs
        ] = {}  # cheapest renaming to any node of a subtree, per node with children
        for node in self.second.inner:
            costs = self.distances[:, node].copy()
            if node in flat:
                numpy.minimum(costs, self.distances[:, starts[node] : node].min(axis=1), out=costs)
            else:
                for child in _roots(starts, starts[node], node):
                    below = least.pop(child, None)
                    below = self.distances[:, child] if below is None else below
                    numpy.minimum(costs, below, out=costs)
            least[node] = costs
            self.distances[leaves, node] = costs[leaves] + (node - starts[node])

    def _compare_flat(self) -> None:
        """Nodes over leaves only: the edit distance of the two sequences of leaves, and the renaming.

        To map a parent onto a leaf of the other costs at least as much, because renaming costs 1 at most.
        """
        for width, nodes in self.first.flat.items():
            for other_width, others in self.second.flat.items():
                step = max(1, ELEMENTS // (len(others) * (other_width + 1)))
                for at in range(0, len(nodes), step):
                    self._compare_rows(nodes[at : at + step], width, others, other_width)

    def _compare_rows(self, nodes: Numbers, width: int, others: Numbers, other_width: int) -> None:
        import numpy

        leaves = others[:, None] - other_width + numpy.arange(other_width)
        before = numpy.zeros((len(nodes), len(others), other_width + 1))
        for step in range(width):
            costs = self.distances[(nodes - width + step)[:, None, None], leaves] - 1
            row = numpy.empty_like(before)
            row[..., 0] = step + 1
            numpy.minimum(before[..., 1:] + 1, before[..., :-1] + costs, out=row[..., 1:])
            before = numpy.minimum.accumulate(row, axis=-1)
        renamed = self.inner[self.place[nodes][:, None], self.other_place[others]]
        self.distances[nodes[:, None], others] = renamed + before[..., -1] + other_width

    def _run(self, low: int, high: int, columns: _Columns) -> float:
        """Zhang and Shasha's recurrence for the nodes from `low` to `high` against each subtree of a block.

        Fills in the distances between subtrees that begin both; all others must be there. A row holds per
        subtree of the block the distances to its prefixes, each less the number of nodes in the prefix.

        Returns:
            The distance between the range and the last subtree of the block.
        """
        import numpy

        starts = self.first.starts
        count, width = columns.nodes.shape
        last_use = {starts[node]: node for node in range(low, high)}
        row = numpy.zeros((count, width + 1))
        kept = {low: row}
        open_nodes = columns.nodes.reshape(-1)[columns.open]
        open_sizes = columns.sizes.reshape(-1)[columns.open]
        one_before = columns.open + columns.open // width  # in rows that are one longer
        for node in range(low, high):
            start = starts[node]
            base = row if start == node else kept[start]
            fit = self.distances[node].take(columns.nodes) - columns.sizes
            fit += base.reshape(-1).take(columns.before)
            opens = start == low and start != node
            if opens:
                renamed = self.inner[self.place[node], self.other_place[open_nodes]]
                fit.reshape(-1)[columns.open] = row.reshape(-1)[one_before] + renamed - 1
            following = numpy.empty_like(row)
            following[:, 0] = node - low + 1
            numpy.minimum(row[:, 1:] + 1, fit, out=following[:, 1:])
            row = numpy.minimum.accumulate(following, axis=1)
            if opens:
                self.distances[node, open_nodes] = row.reshape(-1)[one_before + 1] + open_sizes
            if last_use[start] == node:
                kept.pop(start, None)
            if last_use.get(node + 1, node + 1) != node + 1:
                kept[node + 1] = row
        return float(row[-1, -1] + width)
