"""Corrected estimates from the verdicts of a judge, of which some samples have a human label as well.

A judge that errs gives a biased mean: with sensitivity s1 (right answers that it calls right), specificity s0
and a true share t its mean is t s1 + (1 - t) (1 - s0). Two corrections, both from labelled samples:

- `corrected_share` inverts that formula for verdicts of 0 or 1: t = (p + s0 - 1) / (s1 + s0 - 1) (Rogan &
  Gladen 1978, American Journal of Epidemiology 107:71; for judges: Lee et al. 2025, arXiv 2511.21140). It
  stays true where the labelled samples have another share of right answers than the others. Its limits are
  those of Lang & Reiczigel (2014, Preventive Veterinary Medicine 113:13), read in an R adaptation of the
  authors' script, with sizes of samples divided by their design effect;
- `prediction_powered` adds the mean error of the labelled samples to the mean verdict, for verdicts of any
  size (Angelopoulos et al. 2023, Science 382:669). Verdicts have the weight w = cov(label, verdict) /
  var(verdict), which is the regression estimator of double sampling (Cochran 1977, Sampling Techniques,
  section 12.6) and, but for our using the labelled samples in the first mean, too, the power tuning of PPI++
  (arXiv 2311.01453): a judge that says nothing has weight 0, and the labels alone decide. It assumes that
  the labelled samples are a random choice. Its limits join those of both means by the method of variance
  estimates recovery (Zou & Donner 2008, Statistics in Medicine 27:1693).

Samples come in documents: see `clusters`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import (
    NO_SPREAD,
    ONE_CLUSTER,
    Interval,
    as_values,
    check_level,
    codes_of,
    t_quantile,
)
from hpcbench.statistics.intervals import clustered_standard_error, mean_interval

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters, Values

ROGAN_GLADEN = "Rogan-Gladen, Lang-Reiczigel limits, clustered"
PREDICTION_POWERED = "prediction-powered, variance recovery, clustered"
NO_LABELS = "undefined: no labels"
ONE_KIND = "undefined: the labels are all right or all wrong"
BLIND = "undefined: the judge does not tell right from wrong"
FEW_LABELS = "undefined: labels of one document"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How verdicts of 0 or 1 agree with labels of 0 or 1."""

    sensitivity: Interval | None
    """Share of right answers that the judge calls right; None: no right answer has a label."""
    specificity: Interval | None
    """Share of wrong answers that the judge calls wrong; None: no wrong answer has a label."""
    labels: int
    """Samples with verdict and label."""


def agreement(
    verdicts: Values, labels: Values, clusters: Clusters = None, level: float = 0.95
) -> Agreement:
    """Sensitivity and specificity, with intervals by document.

    Args:
        verdicts: 0 or 1, one per sample.
        labels: 0 or 1; NaN: the sample has none.
        clusters: the document of each sample; None: each sample is one.
        level: confidence.

    Raises:
        ValueError: unequal lengths, no samples, or a number that is neither 0 nor 1.
    """
    said, human, codes = _checked(verdicts, labels, clusters, binary=True)
    known = _known(human)
    found = [
        mean_interval(right, codes[of], level, bounds=(0.0, 1.0)) if of.any() else None
        for of, right in (
            (known & (human == 1), said[known & (human == 1)]),
            (known & (human == 0), 1 - said[known & (human == 0)]),
        )
    ]
    return Agreement(found[0], found[1], int(known.sum()))


def corrected_share(
    verdicts: Values, labels: Values, clusters: Clusters = None, level: float = 0.95
) -> Interval:
    """True share of right answers, from verdicts of 0 or 1 whose errors labelled samples show.

    Args:
        verdicts: 0 or 1, one per sample.
        labels: 0 or 1; NaN: the sample has none.
        clusters: the document of each sample; None: each sample is one.
        level: confidence.

    Returns:
        The estimate is cut to 0 … 1. Where labels do not suffice, it is the mean verdict without ends, and
        `method` says why.

    Raises:
        ValueError: as `agreement`.
    """
    check_level(level)
    said, human, codes = _checked(verdicts, labels, clusters, binary=True)
    known = _known(human)
    n, groups = len(said), len({*codes.tolist()})
    naive = float(said.mean())

    def none(why: str) -> Interval:
        return Interval(naive, None, None, n, groups, why, level)

    if not known.any():
        return none(NO_LABELS)
    right, wrong = known & (human == 1), known & (human == 0)
    if not right.any() or not wrong.any():
        return none(ONE_KIND)
    labelled = len({*codes[known].tolist()})
    if labelled < 2:
        return none(FEW_LABELS)
    t = t_quantile((1 + level) / 2, labelled - 1)
    size, share = _effective(said, codes)
    share, size = (size * share + t * t / 2) / (size + t * t), size + t * t
    sure1, of1 = _plus_two(said[right], codes[right])
    sure0, of0 = _plus_two(1 - said[wrong], codes[wrong])
    youden = sure1 + sure0 - 1
    plain = float(said[right].mean() + (1 - said[wrong]).mean() - 1)
    if youden <= 0 or plain <= 0:
        return none(BLIND)
    estimate = (naive + float((1 - said[wrong]).mean()) - 1) / plain
    middle = (share + sure0 - 1) / youden
    of_sure1, of_sure0 = sure1 * (1 - sure1) / of1, sure0 * (1 - sure0) / of0
    error = math.sqrt(
        share * (1 - share) / size + middle**2 * of_sure1 + (1 - middle) ** 2 * of_sure0
    )
    shift = 2 * t * t * (middle * of_sure1 - (1 - middle) * of_sure0)
    half = t * error / youden
    estimate = min(1.0, max(0.0, estimate))
    low = min(estimate, max(0.0, middle + shift - half))
    high = max(estimate, min(1.0, middle + shift + half))
    return Interval(estimate, low, high, n, groups, ROGAN_GLADEN, level)


def prediction_powered(
    verdicts: Values, labels: Values, clusters: Clusters = None, level: float = 0.95
) -> Interval:
    """Mean of the labels that all samples would have, from the labels of some and the verdicts on all.

    Args:
        verdicts: from 0 to 1, one per sample.
        labels: from 0 to 1; NaN: the sample has none.
        clusters: the document of each sample; None: each sample is one.
        level: confidence.

    Returns:
        The estimate is cut to 0 … 1. Where labels do not suffice, it is the mean verdict without ends, and
        `method` says why.

    Raises:
        ValueError: as `agreement`, of numbers outside 0 … 1.
    """
    check_level(level)
    said, human, codes = _checked(verdicts, labels, clusters)
    known = _known(human)
    n, groups = len(said), len({*codes.tolist()})
    mean = float(said.mean())
    if not known.any():
        return Interval(mean, None, None, n, groups, NO_LABELS, level)
    if len({*codes[known].tolist()}) < 2:
        return Interval(mean, None, None, n, groups, FEW_LABELS, level)
    own, right = said[known], human[known]
    spread = float(((own - own.mean()) ** 2).sum())
    shared = float(((own - own.mean()) * (right - right.mean())).sum())
    weight = min(1.0, max(0.0, shared / spread)) if spread > 1e-12 else 0.0
    rest = mean_interval(right - weight * own, codes[known], level, bounds=(-weight, 1.0))
    estimate, below, above = rest.estimate, 0.0, 0.0
    assert rest.low is not None and rest.high is not None  # both bounds are known
    below, above = rest.estimate - rest.low, rest.high - rest.estimate
    if weight:
        every = mean_interval(said, codes, level, bounds=(0.0, 1.0))
        assert every.low is not None and every.high is not None
        estimate += weight * every.estimate
        below = math.hypot(below, weight * (every.estimate - every.low))
        above = math.hypot(above, weight * (every.high - every.estimate))
    low, high = max(0.0, estimate - below), min(1.0, estimate + above)
    estimate = min(1.0, max(0.0, estimate))
    return Interval(
        estimate, min(low, estimate), max(high, estimate), n, groups, PREDICTION_POWERED, level
    )


def difference_of_means(
    values: Values, second: Values, clusters: Clusters = None, level: float = 0.95
) -> Interval:
    """Mean of some values minus the mean of the others; a document may have values of both kinds.

    Args:
        values: one per sample.
        second: 1 for a sample of the second kind, whose mean counts positive; 0 for one of the first.
        clusters: the document of each sample; None: each sample is one.
        level: confidence of Student's t with the clustered error of the linearised difference.

    Returns:
        Ends are None for fewer than two documents, and where documents show no spread.

    Raises:
        ValueError: unequal lengths, or only values of one kind.
    """
    check_level(level)
    import numpy

    found, kind = as_values(values), as_values(second)
    if len(found) != len(kind):
        raise ValueError(f"{len(found)} values do not fit {len(kind)} kinds")
    codes, groups = codes_of(clusters, len(found))
    of = kind > 0
    if of.all() or not of.any():
        raise ValueError("a difference of means needs values of both kinds")
    means = float(found[~of].mean()), float(found[of].mean())
    difference, n = means[1] - means[0], len(found)
    if groups < 2:
        return Interval(difference, None, None, n, groups, ONE_CLUSTER, level)
    influence = numpy.where(of, (found - means[1]) / of.sum(), -(found - means[0]) / (~of).sum())
    sums = numpy.bincount(codes, influence, groups)
    error = math.sqrt(groups / (groups - 1) * float((sums**2).sum()))
    if error <= 1e-12:
        return Interval(difference, None, None, n, groups, NO_SPREAD, level)
    half = t_quantile((1 + level) / 2, groups - 1) * error
    method = "t, clustered standard error CR1"
    return Interval(
        difference, difference - half, difference + half, n, groups, method, level, error
    )


def _checked(
    verdicts: Values, labels: Values, clusters: Clusters, *, binary: bool = False
) -> tuple[Array, Array, Array]:
    """Verdicts, labels and codes of clusters as arrays.

    Raises:
        ValueError: see the callers.
    """
    import numpy

    said = as_values(verdicts)
    human = numpy.asarray(labels, dtype=numpy.float64)
    if human.shape != said.shape:
        raise ValueError(f"{len(said)} verdicts do not fit {human.size} labels")
    given = human[~numpy.isnan(human)]
    for what, some in (("verdict", said), ("label", given)):
        if binary and not numpy.isin(some, (0.0, 1.0)).all():
            raise ValueError(f"a {what} is neither 0 nor 1")
        if len(some) and (some.min() < 0 or some.max() > 1):
            raise ValueError(f"a {what} is not between 0 and 1")
    return said, human, codes_of(clusters, len(said))[0]


def _known(labels: Array) -> Array:
    import numpy

    known: Array = ~numpy.isnan(labels)
    return known


def _effective(values: Array, codes: Array) -> tuple[float, float]:
    """Number of independent values of 0 or 1 that give the same error as these, and their share of 1.

    Values that all agree show no spread: then each document counts once.
    """
    n, share = len(values), float(values.mean())
    groups = len({*codes.tolist()})
    if groups < 2 or not 0 < share < 1:
        return float(groups), share
    error = clustered_standard_error(values, codes)
    assert error is not None
    alone = share * (1 - share)
    return (min(float(n), alone / error**2) if error else float(n)), share


def _plus_two(values: Array, codes: Array) -> tuple[float, float]:
    """Share and effective number with one value more of either kind, as in Agresti and Coull's interval."""
    size, share = _effective(values, codes)
    return (size * share + 1) / (size + 2), size + 2
