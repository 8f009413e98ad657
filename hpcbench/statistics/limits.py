"""Confidence limits of a mean or ratio over clusters that hold where few clusters carry the spread.

Student's t fails where scores lie near a bound: where one of 100 documents is wrong, the data do not show how
bad the next wrong one would be. The *Bayesian bootstrap* (Rubin 1981, Annals of Statistics 9:130) gives each
cluster a random weight with an exponential distribution; the ratio of weighted sums is the value's
distribution. A *pseudo-cluster* at the bound represents values that the sample does not show. With a
pseudo-cluster of weight 1 the limits of right-or-wrong scores are Clopper and Pearson's (1934, Biometrika
26:404), and no known distribution of scores within bounds violates these limits (Gaffke 2005, Mathematical
Methods of Statistics 14:385; Learned-Miller & Thomas 2019, arXiv 1905.06208).

That pseudo-cluster widens intervals needlessly in other cases, so it shrinks as more clusters carry the
spread. Their number is k = (Σ r²)² / Σ r⁴ over the clusters' residuals r: if c of n clusters are wrong it is
about c.

- share h = min(1, (few / k)²);
- place: at h of the way from the farthest cluster seen to the bound;
- weight: floor + (1 - floor) h;
- size: the mean cluster.

`few` is 2. For the low side it is 20 if at least half of the scores are exactly 1 (for the high side,
exactly 0): there a loss is rare, and many slips of 0.03 (ANLS, TEDS) do not predict the next score of 0.

A side without a bound (CER may exceed any number) has its pseudo-cluster at up to three times the greatest
residual, with weight √(10 / G) for G clusters, at most 1.

The distribution function of the weighted ratio is that of a sum of gamma variables, Σ Γ(a) (u - x v) ≤ 0, by
the saddlepoint formula of Lugannani & Rice (1980, Adv. Appl. Prob. 12:475) in Barndorff-Nielsen's form. So
the method needs no random numbers, and tail probabilities have three correct digits.

The constants come from simulation (`benchmarks/calibration.py`). A limit of the method: an interval misses a
rare event that no document shows, where many other documents differ a little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import ROUNDING, Bounds, t_quantile

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array

CR1 = "t, clustered standard error CR1"
BAYESIAN = "Bayesian bootstrap of clusters, saddlepoint"
EXACT = "Clopper-Pearson"

OPEN_REACH = 3.0
"""For a side without a bound: the pseudo-cluster's residual over the greatest one seen."""
OPEN_CLUSTERS = 10.0
"""For a side without a bound: clusters up to which the pseudo-cluster has the weight of one."""
NORMAL_FROM = 1_000
"""From this number of clusters that carry the spread, the t limits are the same, and faster."""

_DIGITS = 10
"""Digits of a limit: the last bits depend on the processor's logarithm."""


@dataclass(frozen=True, slots=True)
class Caution:
    """Weight of unseen values."""

    few: float
    """Clusters that carry the spread, up to which the pseudo-cluster is at the bound with weight 1."""
    floor: float
    """Weight of the pseudo-cluster where many clusters carry the spread."""
    rare: float = 0.0
    """Like `few`, for the far side where at least half of the clusters are exactly at the other bound."""

    def of_rare_events(self) -> Caution:
        """The caution where a loss is rare, so that small losses say little about the size of the next."""
        return replace(self, few=max(self.few, self.rare))


VALUE = Caution(2.0, 0.5, rare=20.0)
"""For a value: both sides together contain the true value."""
CHANGE = Caution(10.0, 0.25)
"""For a difference between two bounded values: each side alone keeps its promise."""
OPEN_CHANGE = Caution(10.0, 0.5)
"""For a difference between two values without a bound, whose residuals are skewed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Both ends, and their method."""

    low: float
    high: float
    method: str


def limits(
    over: Array, under: Array, bounds: Bounds, level: float, caution: Caution = VALUE
) -> Limits:
    """Confidence limits of sum(over) / sum(under).

    Args:
        over: (G,) sums of the numerator by cluster, G at least 2.
        under: (G,) sums of the denominator by cluster, 0 or more, not all 0; counts of samples for a mean.
        bounds: least and greatest value; None: no limit. At least one is a number.
        level: confidence of both sides together.
        caution: weight of unseen values.
    """
    import numpy

    theta = float(over.sum() / under.sum())
    order = numpy.lexsort((under, over))
    rows = numpy.stack([over[order], under[order]], axis=1)
    new = numpy.ones(len(rows), dtype=bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    firsts = numpy.flatnonzero(new)
    counts = numpy.diff(numpy.append(firsts, len(rows))).astype(numpy.float64)
    sample = _Sample(rows[firsts, 0], rows[firsts, 1], counts, theta)
    carrying = sample.carrying()
    tail = (1 - level) / 2
    if len(over) > NORMAL_FROM and carrying >= NORMAL_FROM:
        half = t_quantile(1 - tail, len(over) - 1) * sample.error()
        return Limits(theta - half, theta + half, CR1)
    ends = []
    exact = True
    least, greatest = bounds
    for side, bound, other in ((-1, least, greatest), (1, greatest, least)):
        end = sample.exact(side, bound, tail)
        if end is None:
            exact = False
            cautious = caution if sample.at(other) < 0.5 else caution.of_rare_events()
            end = sample.limit(side, bound, tail, carrying, cautious)
        ends.append(float(f"{end:.{_DIGITS}g}"))
    low, high = ends
    return Limits(min(low, theta), max(high, theta), EXACT if exact else BAYESIAN)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Clusters, with counts of equal ones."""

    over: Array
    under: Array
    counts: Array
    theta: float

    @property
    def residuals(self) -> Array:
        import numpy

        found = self.over - self.theta * self.under
        size = numpy.abs(self.over).max() + abs(self.theta) * self.under.max()
        return numpy.where(numpy.abs(found) <= ROUNDING * size, 0.0, found)

    @property
    def groups(self) -> float:
        return float(self.counts.sum())

    @property
    def size(self) -> float:
        """Size of the mean cluster."""
        return float((self.counts * self.under).sum()) / self.groups

    def at(self, bound: float | None) -> float:
        """Share of clusters that are exactly at a bound."""
        if bound is None:
            return 0.0
        return float(self.counts[self.over == bound * self.under].sum()) / self.groups

    def carrying(self) -> float:
        """Number of clusters that carry the spread."""
        squares = self.residuals**2
        fourth = float((self.counts * squares**2).sum())
        return float((self.counts * squares).sum()) ** 2 / fourth if fourth else 0.0

    def error(self) -> float:
        squares = float((self.counts * self.residuals**2).sum())
        return math.sqrt(squares / (self.groups * (self.groups - 1))) / self.size

    def exact(self, side: int, bound: float | None, tail: float) -> float | None:
        """Clopper and Pearson's limit; None where two values differ from the bound, or sizes differ."""
        from scipy.special import betaincinv

        if bound is None or len(self.over) > 2 or (self.under != self.under[0]).any():
            return None
        values = (self.over / self.under[0]).tolist()
        others = [place for place, value in enumerate(values) if value != bound]
        if not others:
            return bound
        if len(others) == 2:
            return None
        away = float(self.counts[others[0]])
        share = float(betaincinv(away, self.groups - away + 1, tail))
        return bound + (float(values[others[0]]) - bound) * share

    def limit(
        self, side: int, bound: float | None, tail: float, carrying: float, caution: Caution
    ) -> float:
        """The limit with a pseudo-cluster on the same side."""
        import numpy

        farthest = max(float((side * self.residuals).max()) / self.size, 0.0)
        if bound is None:
            weight = min(1.0, math.sqrt(OPEN_CLUSTERS / self.groups))
            away = farthest * (1 + (OPEN_REACH - 1) * weight)
        else:
            share = min(1.0, (caution.few / carrying) ** 2) if carrying else 1.0
            weight = caution.floor + (1 - caution.floor) * share
            whole = max(side * (bound - self.theta), 0.0)
            away = whole * share + min(whole, farthest) * (1 - share)
        return weighted_quantile(
            numpy.append(self.over, self.size * (self.theta + side * away)),
            numpy.append(self.under, self.size),
            numpy.append(self.counts, weight),
            side * NormalDist().inv_cdf(1 - tail),
        )


def weighted_quantile(over: Array, under: Array, shapes: Array, z: float) -> float:
    """The x at which Σ Γ over / Σ Γ under, with Γ independent gamma weights, is below x with chance Φ(z).

    Args:
        over: (K,).
        under: (K,), 0 or more, not all 0.
        shapes: (K,) shapes of the gamma weights, above 0.
        z: quantile of the normal distribution, not 0.
    """
    import numpy

    rates = over[under > 0] / under[under > 0]
    low, high = float(rates.min()), float(rates.max())
    centre = float((shapes * over).sum() / (shapes * under).sum())
    aside = (under == 0) & (over != 0)
    if aside.any():  # a numerator without a denominator moves the ratio beyond any rate
        far = float(numpy.abs(over).sum() / (shapes * under).sum()) * 1e3
        low = min(low, centre - far) if (over[aside] < 0).any() else low
        high = max(high, centre + far) if (over[aside] > 0).any() else high
    if high - low <= 1e-14 * max(abs(low), abs(high)):
        return centre
    error = math.sqrt(float((shapes * (over - centre * under) ** 2).sum())) / float(
        (shapes * under).sum()
    )
    x, tilt = centre + z * error, 0.0
    if not low < x < high:
        x = ((low if z < 0 else high) + centre) / 2
    for _ in range(100):
        tilt, root, found, slope = _tail(over - x * under, under, shapes, tilt)
        if abs(found - z) < 1e-11:
            return x
        if found < z:
            low = x
        else:
            high = x
        nearer = x + (z - found) / slope if slope > 0 else math.inf
        nearer = nearer if low < nearer < high else (low + high) / 2
        if abs(nearer - x) <= 1e-14 * max(abs(low), abs(high)):
            return nearer
        x = nearer
    return x


def _tail(
    terms: Array, under: Array, shapes: Array, start: float
) -> tuple[float, float, float, float]:
    """For Y = Σ Γ terms: the saddlepoint, r, r* with P(Y <= 0) = Φ(r*), and the growth rate of r with x."""
    import numpy

    least, most = float(terms.min()), float(terms.max())
    if most <= 0 or least >= 0:
        return 0.0, 0.0, math.inf if most <= 0 else -math.inf, 0.0
    tilt = _saddlepoint(terms, shapes, 1 / least, 1 / most, start)
    left = 1 - tilt * terms
    scaled = terms / left
    variance = float((shapes * scaled**2).sum())
    root = math.copysign(math.sqrt(max(0.0, 2 * float((shapes * numpy.log(left)).sum()))), tilt)
    if abs(root) < 1e-4:
        plain = float((shapes * terms**2).sum())
        third = 2 * float((shapes * terms**3).sum())
        deviation = math.sqrt(plain)
        found = third / (6 * plain * deviation) - float((shapes * terms).sum()) / deviation
        return tilt, root, found, float((shapes * under).sum()) / deviation
    found = root + math.log(tilt * math.sqrt(variance) / root) / root
    return tilt, root, found, tilt * float((shapes * under / left).sum()) / root


def _saddlepoint(terms: Array, shapes: Array, low: float, high: float, start: float) -> float:
    """The t between low < 0 < high where Σ shapes terms / (1 - t terms) = 0, by bracketed Newton steps."""
    import numpy

    at = start if low < start < high else 0.0
    for _ in range(200):
        scaled = terms / (1 - at * terms)
        weighed = shapes * scaled
        slope = float(weighed.sum())
        if abs(slope) <= 1e-14 * float(numpy.abs(weighed).sum()):
            return at
        if slope > 0:
            high = at
        else:
            low = at
        nearer = at - slope / float((weighed * scaled).sum())
        nearer = nearer if low < nearer < high else (low + high) / 2
        if abs(nearer - at) <= 1e-15 * abs(nearer):
            return nearer
        at = nearer
    return at
