"""Two runs over the same samples: is the second better, worse, equivalent, or is this undecided?

Scores of one sample correlate between runs, so differences are taken sample by sample (Miller 2024, arXiv
2411.00640, section 4); samples of one document are dependent, so documents are the sampling unit. A
difference is candidate - baseline.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from hpcbench.statistics.clusters import (
    MANY_CLUSTERS,
    ROUNDING,
    Bounds,
    Interval,
    as_sums,
    check_level,
    codes_of,
    exact_sum,
    exact_sums,
    sorted_clusters,
    t_quantile,
)
from hpcbench.statistics.intervals import mean_interval
from hpcbench.statistics.limits import CHANGE, OPEN_CHANGE
from hpcbench.statistics.sums import ratio, sums_interval, values_of

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters
    from hpcbench.statistics.sums import Combine

Verdict = Literal["better", "worse", "equivalent", "inconclusive"]

POWER = 0.8
"""Chance to find the difference `detectable`."""
FEWEST_CHANGES = 8
"""Mean number of changed clusters needed to find a difference in 80 %: p is below 5 % from six clusters that
all change the same way, and a Poisson number of mean 8 is six or more in 80 %.
"""
EXACT_FLIPS = 13
"""Most differing clusters for which all 2^G ways to swap them are tried; else `PERMUTATIONS` random ones."""
PERMUTATIONS = 9_999
NOTHING_DIFFERS = "no sample differs"
"""`p_method` of two runs with the same values."""

_BLOCK = 1_000_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate compared with a baseline."""

    n: int
    """Common samples."""
    clusters: int
    """Clusters of these samples."""
    only_baseline: int
    """Samples that only the baseline has; they do not count."""
    only_candidate: int
    """Samples that only the candidate has; they do not count."""
    baseline: float
    """The baseline's value over the common samples."""
    candidate: float
    """The candidate's."""
    interval: Interval
    """Interval of the difference candidate - baseline."""
    wins: int
    """Samples where the candidate is better."""
    losses: int
    """Samples where the candidate is worse."""
    ties: int
    """The other samples."""
    p_value: float
    """Two-sided p-value of the hypothesis that the runs could be swapped document by document."""
    p_method: str
    """Method of the p-value."""
    p_adjusted: float | None
    """P-value after Holm over the joint comparisons; None for a single comparison."""
    effect_size: float | None
    """Cohen's d of paired samples: mean over standard deviation of differences; None without spread."""
    effective_n: float | None
    """Independent samples that would leave the same standard error of a mean; None where undefined."""
    odds: float | None
    """Wins over losses of a right-or-wrong metric; None for other metrics and without losses."""
    detectable: float | None
    """Smallest true difference that a comparison like this finds in 80 % of cases; None where undefined.
    Changes as large as those seen need at least `FEWEST_CHANGES` clusters.
    """
    reach: float | None
    """Greatest difference that one sample can make: the metric's range; without bounds the greatest value
    seen, and at least 1 for a ratio. None: all values are 0."""
    margin: float | None
    """Differences below it do not matter; None: none was given."""
    higher_is_better: bool
    """Direction of the metric."""
    non_inferior: bool | None
    """Whether the interval excludes that the candidate is worse by the margin; None without a margin."""
    verdict: Verdict
    """See `compare`."""


def compare(
    baseline: Array,
    candidate: Array,
    clusters: Clusters = None,
    *,
    combine: Combine | None = None,
    values: tuple[Array, Array] | None = None,
    higher_is_better: bool = True,
    margin: float | None = None,
    level: float = 0.95,
    bounds: Bounds | None = None,
    seed: int = 0,
    only_baseline: int = 0,
    only_candidate: int = 0,
) -> Comparison:
    """Compare two runs, paired by sample and clustered by document.

    The limits of the difference are those of `hpcbench.statistics.limits` for a change: each side alone
    misses the true difference in at most (1 - level) / 2 of comparisons, also where few or no samples differ.
    A document outside the sample may differ by as much as `Comparison.reach`.

    The p-value is McNemar's exact one (1947, Psychometrika 12:153) for values 0 and 1 whose clusters are
    single samples. Else it comes from swapping the two runs in whole clusters (sign flips): all 2^G ways for
    up to 13 differing clusters; 9,999 random ways and the observed one for more (Phipson & Smyth 2010, Stat.
    Appl. Genet. Mol. Biol. 9:39); the normal distribution, their limit, from 5,000 differing clusters.

    The verdict, in the direction in which the metric is better:

    - `equivalent`: the whole interval is within ± margin, so that any remaining difference does not matter
      (two one-sided tests at half the usual error, Schuirmann 1987; the level's interval is used);
    - `better`, `worse`: the p-value is at most 1 - level. The interval is more cautious than that test where
      few clusters carry the difference, and may contain 0;
    - `inconclusive`: else. `detectable` gives the difference that would have been found.

    Args:
        baseline: one row per sample: (n,) values of a mean metric; (n, 2) numerators and denominators of a
            ratio metric; (n, K) the input of `combine`.
        candidate: the same of the other run, samples in the same order.
        clusters: the cluster of each sample; None: each sample is a cluster.
        combine: values (R,) of rows of K sums, for (n, K); None: a mean or a ratio.
        values: each sample's own value in either run, for wins and losses; None: `combine` of its row.
            Samples without one (NaN) are ties.
        higher_is_better: direction of the metric.
        margin: differences below it do not matter, above 0, in the metric's unit; None: `equivalent` cannot
            be a verdict.
        level: confidence of the interval.
        bounds: the metric's least and greatest value.
        seed: seed of the random swaps.
        only_baseline: samples left out because the candidate lacks them, for the report; see `pair`.
        only_candidate: the same of the baseline.

    Raises:
        ValueError: there are no samples, shapes that do not fit, a value that is not finite, no value of all
            sums, or a level or margin out of range.
    """
    check_level(level)
    if margin is not None and not (margin > 0 and math.isfinite(margin)):
        raise ValueError(f"margin is {margin}; it must be above 0")
    runs = _Runs.of(baseline, candidate, clusters, combine)
    own = runs.own_values(values)
    reach = runs.reach(own, bounds)
    interval = runs.interval(level, reach, bounded=_range(bounds) is not None)
    gains = (own[1] - own[0]) * (1 if higher_is_better else -1)
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    binary = runs.mean and bool(((own == 0) | (own == 1)).all())
    if not (runs.swapped != 0).any():
        p_value, p_method = 1.0, NOTHING_DIFFERS
    elif binary and runs.groups == runs.n:
        p_value, p_method = mcnemar(wins, losses), "McNemar, exact"
    else:
        p_value, p_method = runs.p_value(interval, seed)
    size, effective = _effect(own[1] - own[0], interval, mean=runs.mean)
    degrees = runs.groups - 1
    errors = (
        t_quantile((1 + level) / 2, degrees) + t_quantile(POWER, degrees) if degrees else math.nan
    )
    differing = int((runs.swapped != 0).any(axis=1).sum())
    few = math.sqrt(max(1.0, FEWEST_CHANGES / differing)) if differing else 1.0
    compared = Comparison(
        n=runs.n,
        clusters=runs.groups,
        only_baseline=only_baseline,
        only_candidate=only_candidate,
        baseline=runs.value(0),
        candidate=runs.value(1),
        interval=interval,
        wins=wins,
        losses=losses,
        ties=runs.n - wins - losses,
        p_value=p_value,
        p_method=p_method,
        p_adjusted=None,
        effect_size=size,
        effective_n=effective,
        odds=wins / losses if binary and losses else None,
        detectable=errors * interval.error * few if interval.error else None,
        reach=reach,
        margin=margin,
        higher_is_better=higher_is_better,
        non_inferior=None,
        verdict="inconclusive",
    )
    return judged(compared)


def documents_needed(found: Comparison, margin: float) -> int | None:
    """Documents needed to show in 80 % of cases that an equally good candidate is within the margin.

    The spread of differences is taken from the comparison. The limit of n documents is below the estimate by
    z s / √n plus the share of the pseudo-cluster of `hpcbench.statistics.limits`: up to 3.7 reach / n where
    no document differs, with 3.7 = -ln(0.025) as in Clopper and Pearson's limit.

    Args:
        found: the inconclusive comparison.
        margin: above 0, in the metric's unit.

    Returns:
        The number, rounded up to two digits; None where the comparison has no reach.

    Raises:
        ValueError: the margin is not above 0.
    """
    if not margin > 0:
        raise ValueError(f"margin is {margin}; it must be above 0")
    if not found.reach or found.clusters < 2:
        return None
    normal = NormalDist()
    tail = (1 - found.interval.level) / 2
    errors = normal.inv_cdf(1 - tail) + normal.inv_cdf(POWER)
    reach = found.reach
    spread = (found.interval.error or 0.0) * math.sqrt(found.clusters)
    carrying = (spread / reach) ** 2

    def short(count: float) -> bool:
        few = min(1.0, (CHANGE.few / (carrying * count)) ** 2) if carrying else 1.0
        unseen = CHANGE.floor + (-math.log(tail) - CHANGE.floor) * few
        return errors * spread / math.sqrt(count) + unseen * reach / count > margin

    most = 2.0
    while short(most):
        most *= 2
    least = most / 2
    while most - least > 0.5:
        middle = (least + most) / 2
        least, most = (middle, most) if short(middle) else (least, middle)
    needed = math.ceil(most)
    digits: int = 10 ** max(0, len(str(needed)) - 2)
    return math.ceil(needed / digits) * digits


def mcnemar(won: int, lost: int) -> float:
    """Exact two-sided p-value of McNemar's test: `won` of `won + lost` discordant samples, at even odds.

    Raises:
        ValueError: a count is negative.
    """
    if won < 0 or lost < 0:
        raise ValueError(f"{won} won and {lost} lost samples are impossible")
    from scipy.special import bdtr  # the binomial's distribution function

    return min(1.0, 2 * float(bdtr(float(min(won, lost)), won + lost, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for multiple comparisons (Holm 1979, Scand. J. Statist. 6:65).

    The i-th smallest of m is multiplied by m - i + 1, and is never below a smaller one's. Whichever
    hypotheses are true, the chance of any false alarm at `adjusted <= alpha` stays below alpha.

    Raises:
        ValueError: a p-value is out of [0, 1].
    """
    for one in p_values:
        if not 0 <= one <= 1:
            raise ValueError(f"a p-value is {one}; it must be between 0 and 1")
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted


def with_holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Joint comparisons: p-values adjusted, and `better` and `worse` only where they still hold."""
    adjusted = holm([one.p_value for one in comparisons])
    return [
        judged(dataclasses.replace(one, p_adjusted=value))
        for one, value in zip(comparisons, adjusted, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Pairs:
    """The common samples of two runs."""

    baseline: Array
    """Places of the common samples in the baseline, rising."""
    candidate: Array
    """Their places in the candidate."""
    only_baseline: tuple[Hashable, ...]
    """Samples that the candidate lacks."""
    only_candidate: tuple[Hashable, ...]
    """Samples that the baseline lacks."""


def pair(baseline: Sequence[Hashable], candidate: Sequence[Hashable]) -> Pairs:
    """Find each sample of the baseline in the candidate by its id.

    Raises:
        ValueError: an id occurs twice in a run.
    """
    import numpy

    places: dict[Hashable, int] = {one: place for place, one in enumerate(candidate)}
    known = set(baseline)
    for run, ids, distinct in (
        ("baseline", baseline, known), ("candidate", candidate, places)
    ):  # fmt: skip
        if len(distinct) < len(ids):
            raise ValueError(f"{len(ids) - len(distinct)} samples occur twice in the {run}")
    both = [(place, places[one]) for place, one in enumerate(baseline) if one in places]
    found = numpy.array(both, dtype=numpy.int64).reshape(-1, 2)
    return Pairs(
        found[:, 0],
        found[:, 1],
        tuple(one for one in baseline if one not in places),
        tuple(one for one in candidate if one not in known),
    )


@dataclass(frozen=True, slots=True)
class _Runs:
    """Both runs as arrays, and their sums by cluster."""

    parts: tuple[Array, Array]
    """Parts of either run, (n, K)."""
    codes: Array
    groups: int
    mean: bool
    combine: Combine
    sums: Array
    """(G, 2 K), the baseline's first."""

    @classmethod
    def of(
        cls, baseline: Array, candidate: Array, clusters: Clusters, combine: Combine | None
    ) -> _Runs:
        import numpy

        parts = as_sums(baseline), as_sums(candidate)
        if parts[0].shape != parts[1].shape:
            raise ValueError(f"samples {parts[0].shape} do not pair with {parts[1].shape}")
        n, width = parts[0].shape
        mean = combine is None and width == 1
        if combine is None and width > 2:
            raise ValueError(f"{width} parts per sample need a function that combines their sums")
        codes, groups = codes_of(clusters, n)
        both = numpy.concatenate(parts, axis=1)
        sums = numpy.stack([exact_sums(column, codes, groups) for column in both.T], axis=1)
        over_n: Combine = lambda rows: rows[:, 0] / n  # noqa: E731
        return cls(parts, codes, groups, mean, combine or (over_n if mean else ratio), sums)

    @property
    def n(self) -> int:
        return len(self.parts[0])

    @property
    def swapped(self) -> Array:
        """(G, K), the sums that swapping a cluster adds to the baseline and takes from the candidate."""
        width = self.sums.shape[1] // 2
        found: Array = self.sums[:, width:] - self.sums[:, :width]
        return found

    def value(self, run: int) -> float:
        import numpy

        total = [exact_sum(column) for column in self.parts[run].T]
        return float(values_of(self.combine, numpy.array([total]))[0])

    def own_values(self, given: tuple[Array, Array] | None) -> Array:
        """Values of samples in either run, (2, n); NaN for a sample without its own value."""
        import numpy

        if given is not None:
            found = numpy.asarray(given, dtype=numpy.float64)
            if found.shape != (2, self.n):
                raise ValueError(f"values of shape {found.shape} do not fit {self.n} samples")
            return found
        if self.mean:
            return numpy.stack([part[:, 0] for part in self.parts])
        return numpy.stack([values_of(self.combine, part) for part in self.parts])

    def reach(self, own: Array, bounds: Bounds | None) -> float | None:
        """The greatest difference that one sample can make; None where all values are 0."""
        import numpy

        if (width := _range(bounds)) is not None:
            return width
        seen = own[numpy.isfinite(own)]
        greatest = float(numpy.abs(seen).max()) if len(seen) else 0.0
        return max(greatest, 0.0 if self.mean else 1.0) or None

    def interval(self, level: float, reach: float | None, *, bounded: bool) -> Interval:
        """Interval of the difference."""
        import numpy

        around = None if reach is None else (-reach, reach)
        caution = CHANGE if bounded else OPEN_CHANGE
        if self.mean:
            differences = (self.parts[1] - self.parts[0])[:, 0]
            return mean_interval(differences, self.codes, level, bounds=around, caution=caution)
        scale = max(abs(self.value(0)), abs(self.value(1)))
        half = self.sums.shape[1] // 2

        def difference(rows: Array) -> Array:
            found: Array = self.combine(rows[:, half:]) - self.combine(rows[:, :half])
            return found

        sums: Array = self.sums
        combine: Combine = difference
        if self.combine is ratio and (sums[:, 1] == sums[:, 3]).all():
            # Equal references: the difference is one ratio, not two.
            sums, combine = numpy.stack([self.swapped[:, 0], sums[:, 1]], axis=1), ratio
        return sums_interval(
            sums, combine, level, bounds=around, n=self.n, scale=scale, caution=caution
        )  # fmt: skip

    def p_value(self, interval: Interval, seed: int) -> tuple[float, str]:
        """P-value of swapping the runs in whole clusters."""
        import numpy

        differ = (self.swapped != 0).any(axis=1)
        count = int(differ.sum())
        if count >= MANY_CLUSTERS and interval.error:
            p_value = math.erfc(abs(interval.estimate) / interval.error / math.sqrt(2))
            return p_value, "swapped clusters, normal limit"
        width = self.sums.shape[1] // 2
        total = numpy.array([float(exact_sums(column)[0]) for column in self.sums.T])
        ordered = sorted_clusters(self.sums[differ])
        swapped = ordered[:, width:] - ordered[:, :width]
        exact = count <= EXACT_FLIPS
        least = abs(float(self._differences(total, numpy.zeros((1, width)))[0]))
        least -= 1e-9 * max(least, ROUNDING)
        extreme = tried = 0
        for swaps in _all_swaps(count) if exact else _random_swaps(count, seed):
            found = numpy.abs(self._differences(total, swaps @ swapped))
            # A swap without a value is no evidence against the hypothesis.
            extreme += int((~(found < least)).sum())
            tried += len(found)
        if exact:
            return extreme / tried, "swapped clusters, all ways"
        return (extreme + 1) / (tried + 1), f"swapped clusters, {tried} random ways"

    def _differences(self, total: Array, moved: Array) -> Array:
        width = len(total) // 2
        baseline, candidate = total[:width] + moved, total[width:] - moved
        found: Array = values_of(self.combine, candidate) - values_of(self.combine, baseline)
        return found


def _all_swaps(count: int) -> Iterator[Array]:
    """Every choice of clusters to swap, (2^count, count) of 0 and 1."""
    import numpy

    yield ((numpy.arange(2**count)[:, None] >> numpy.arange(count)) & 1).astype(numpy.float64)


def _random_swaps(count: int, seed: int) -> Iterator[Array]:
    """Random choices of clusters to swap, in blocks of rows of 0 and 1."""
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    octets = -(-count // 8)
    most = max(1, _BLOCK // count)
    for start in range(0, PERMUTATIONS, most):
        rows = min(most, PERMUTATIONS - start)
        drawn = numpy.frombuffer(generator.bytes(rows * octets), numpy.uint8)
        bits = numpy.unpackbits(drawn.reshape(rows, octets), axis=1, count=count)
        yield bits.astype(numpy.float64)


def _range(bounds: Bounds | None) -> float | None:
    """The distance from a metric's least value to its greatest; None without both."""
    least, greatest = bounds or (None, None)
    return None if least is None or greatest is None else greatest - least


def _effect(
    differences: Array, interval: Interval, *, mean: bool
) -> tuple[float | None, float | None]:
    """Cohen's d of paired differences, and the effective number of samples behind a mean's error."""
    import numpy

    known = differences[numpy.isfinite(differences)]
    if len(known) < 2:
        return None, None
    middle = exact_sum(known) / len(known)
    deviation = math.sqrt(float(exact_sums((known - middle) ** 2)[0]) / (len(known) - 1))
    if deviation <= ROUNDING * float(numpy.abs(known).max()):
        return None, None
    effective = (deviation / interval.error) ** 2 if mean and interval.error else None
    return middle / deviation, effective


def judged(one: Comparison) -> Comparison:
    """The comparison with its verdict, as `compare` defines it."""
    low, high, margin = one.interval.low, one.interval.high, one.margin
    p_value = one.p_value if one.p_adjusted is None else one.p_adjusted
    sure = p_value <= 1 - one.interval.level + 1e-12
    if low is None or high is None:
        return dataclasses.replace(one, verdict="inconclusive", non_inferior=None)
    if not one.higher_is_better:
        low, high = -high, -low
    verdict: Verdict = "inconclusive"
    if margin is not None and -margin < low and high < margin:
        verdict = "equivalent"
    elif sure:
        verdict = "better" if (one.interval.estimate > 0) == one.higher_is_better else "worse"
    return dataclasses.replace(
        one, verdict=verdict, non_inferior=None if margin is None else low > -margin
    )
