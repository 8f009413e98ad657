"""Numbers of samples and documents that a comparison needs, and the difference that given numbers can show.

Two runs answer the same samples; a sample's two scores correlate with rho, so their difference has variance
2 sd² (1 - rho). Samples of a document are dependent. With sizes of mean m and coefficient of variation cv,
and differences that correlate with icc within a document, a mean over the samples has the variance of
independent ones times the design effect

    D = 1 + ((1 + cv²) m - 1) icc

(Kish 1965, *Survey Sampling*, section 5.4; unequal sizes: Eldridge, Ashby & Kerry 2006, Int. J. Epidemiol.
35:1292). n samples in G = n / m documents find a difference d with the power of a two-sided t-test, the
noncentral t's with

    noncentrality (d - s / n) / (sd √(2 (1 - rho) D / n)), G - 3 degrees of freedom

(Miller 2024, arXiv 2411.00640, section 5, with normal quantiles, which are too optimistic below about 30
documents). The t-test of G documents has G - 1 degrees of freedom. Two fewer, and s / n, account for the
second requirement of `compare`: McNemar's p-value, or that of swapping the runs document by document, must
also be small. These p-values have steps where scores have steps s (the usual correction for continuity).
Below 10 documents this is rough, and up to 5 documents can never show a difference at 5 %: there are only 2^5
ways to swap.
"""

from __future__ import annotations

import math

from hpcbench.statistics.clusters import check_share


def samples_needed(
    effect: float,
    sd: float = 0.5,
    rho: float = 0.5,
    *,
    cluster_size: float = 1.0,
    cluster_cv: float | None = None,
    icc: float = 0.0,
    step: float = 1.0,
    alpha: float = 0.05,
    power: float = 0.8,
) -> int:
    """Fewest samples with which a paired comparison finds a true difference.

    Args:
        effect: the true difference, in the metric's unit; its sign does not matter.
        sd: standard deviation of one run's scores over samples; 0.5 is the maximum for shares in [0, 1].
        rho: correlation of the two runs' scores of a sample, usually 0.3 to 0.7.
        cluster_size: samples per document, on average.
        cluster_cv: standard deviation of documents' sizes over their mean; None: `usual_cv`.
        icc: correlation of differences within a document, 0 to 1.
        step: step between a sample's possible scores: 1 for right or wrong, the safe choice; 0 for graded
            scores.
        alpha: allowed share of false alarms, two-sided.
        power: chance to find the difference.

    Returns:
        The number of samples; documents are this over `cluster_size`.

    Raises:
        ValueError: an argument is out of its range.
    """
    if not effect or not math.isfinite(effect):
        raise ValueError(f"effect is {effect}; it must be a number other than 0")
    one = _one_sample(sd, rho, cluster_size, cluster_cv, icc)
    _check_step(step)

    def enough(samples: int) -> bool:
        found = (
            _reach(alpha, power, samples / cluster_size) * one / math.sqrt(samples) + step / samples
        )
        return found <= abs(effect) * (1 + 1e-12)

    # The test's own least number of documents, and then the first number that is enough.
    most = max(2, math.ceil(fewest_documents(alpha) * cluster_size - 1e-9))
    if enough(most):
        return most
    least = most
    while not enough(most):
        least, most = most, 2 * most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return most


def detectable(
    samples: float,
    sd: float = 0.5,
    rho: float = 0.5,
    *,
    cluster_size: float = 1.0,
    cluster_cv: float | None = None,
    icc: float = 0.0,
    step: float = 1.0,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """Smallest true difference that a paired comparison of this many samples finds.

    Args:
        samples: number of samples.
        sd: standard deviation of one run's scores over samples.
        rho: correlation of the two runs' scores of a sample.
        cluster_size: samples per document, on average.
        cluster_cv: standard deviation of documents' sizes over their mean; None: `usual_cv`.
        icc: correlation of differences within a document, 0 to 1.
        step: step between a sample's possible scores: 1 for right or wrong, the safe choice; 0 for graded
            scores.
        alpha: allowed share of false alarms, two-sided.
        power: chance to find the difference.

    Returns:
        The difference in the metric's unit.

    Raises:
        ValueError: an argument is out of its range, or there are fewer documents than `fewest_documents`.
    """
    if not samples >= 2 or not math.isfinite(samples):
        raise ValueError(f"samples are {samples}; they must be 2 or more")
    one = _one_sample(sd, rho, cluster_size, cluster_cv, icc)
    _check_step(step)
    return _reach(alpha, power, samples / cluster_size) * one / math.sqrt(samples) + step / samples


def fewest_documents(alpha: float = 0.05) -> int:
    """Fewest documents with which a comparison can show any difference.

    All of them point the same way in 2 of the 2^G ways to swap two runs, so 2^(1 - G) is the least p-value.

    Raises:
        ValueError: alpha is out of its range.
    """
    check_share(alpha, "alpha")
    return math.ceil(1 - math.log2(alpha) - 1e-9)


def usual_cv(cluster_size: float) -> float:
    """Assumed coefficient of variation of documents' sizes where the sizes are unknown.

    It belongs to documents of 1 to 2 m - 1 samples with equal frequencies: √((m - 1) / (3 m)).

    Raises:
        ValueError: there is less than one sample per document.
    """
    _check_size(cluster_size)
    return math.sqrt((cluster_size - 1) / (3 * cluster_size))


def design_effect(cluster_size: float, icc: float, cluster_cv: float | None = None) -> float:
    """Variance of a mean of clustered samples over that of equally many independent ones.

    Args:
        cluster_size: samples per document, on average.
        icc: correlation within a document, 0 to 1.
        cluster_cv: standard deviation of documents' sizes over their mean; None: `usual_cv`.

    Returns:
        1 + ((1 + cv²) m - 1) icc.

    Raises:
        ValueError: there is less than one sample per document, or a negative spread, or a correlation
            out of [0, 1].
    """
    _check_size(cluster_size)
    cv = usual_cv(cluster_size) if cluster_cv is None else cluster_cv
    if not 0 <= cv < math.inf:
        raise ValueError(f"cluster_cv is {cv}; it must be 0 or more")
    if not 0 <= icc <= 1:
        raise ValueError(f"icc is {icc}; it must be between 0 and 1")
    return 1 + ((1 + cv * cv) * cluster_size - 1) * icc


def _check_step(step: float) -> None:
    if not 0 <= step < math.inf:
        raise ValueError(f"step is {step}; it must be 0 or more")


def _check_size(cluster_size: float) -> None:
    if not cluster_size >= 1 or not math.isfinite(cluster_size):
        raise ValueError(f"cluster_size is {cluster_size}; it must be 1 or more")


def _one_sample(
    sd: float, rho: float, cluster_size: float, cluster_cv: float | None, icc: float
) -> float:
    """Standard error of the difference, if there were one sample."""
    if not sd > 0 or not math.isfinite(sd):
        raise ValueError(f"sd is {sd}; it must be above 0")
    if not -1 <= rho < 1:
        raise ValueError(f"rho is {rho}; it must be at least -1 and below 1")
    return sd * math.sqrt(2 * (1 - rho) * design_effect(cluster_size, icc, cluster_cv))


def _reach(alpha: float, power: float, documents: float) -> float:
    """Size of a difference in standard errors that is found with this number of documents."""
    from scipy.special import nctdtr, stdtrit

    check_share(alpha, "alpha")
    check_share(power, "power")
    if power <= alpha / 2:
        raise ValueError(f"power is {power}; it must be above alpha / 2, the share of false alarms")
    fewest = fewest_documents(alpha)
    if documents < fewest * (1 - 1e-9):
        raise ValueError(
            f"{documents:.4g} documents can show no difference at alpha {alpha:g}; "
            f"at least {fewest} are needed"
        )
    degrees = max(1.0, documents - 3)
    wanted = float(stdtrit(degrees, 1 - alpha / 2))
    low, high = 0.0, 2 * wanted + 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if nctdtr(degrees, middle, wanted) > 1 - power else (low, middle)
    return high
