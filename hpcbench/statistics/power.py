"""How many samples and documents a comparison needs, and what a given number of them can show.

Two runs answer the same samples; a sample's two scores correlate with rho, so their difference has variance
2 sd² (1 - rho). Samples of a document go together: m of them, whose differences correlate with icc, are
worth m / (1 + (m - 1) icc) independent ones (Kish 1965, *Survey Sampling*, section 5.4). With that design
effect D a two-sided test finds a difference d with the power wanted from

    n = (z(1 - alpha / 2) + z(power))² 2 sd² (1 - rho) D / d²

samples on (Miller 2024, arXiv 2411.00640, section 5). Normal quantiles: below about 30 documents this
promises a little too much.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from hpcbench.statistics.clusters import check_share


def samples_needed(
    effect: float,
    sd: float = 0.5,
    rho: float = 0.5,
    *,
    cluster_size: float = 1.0,
    icc: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
) -> int:
    """Fewest samples with which a paired comparison finds a true difference.

    Args:
        effect: the true difference, in the metric's unit; its sign does not matter.
        sd: standard deviation of one run's scores over samples; 0.5 is the most of shares in [0, 1].
        rho: correlation of the two runs' scores of a sample, usually 0.3 to 0.7.
        cluster_size: samples a document, on average.
        icc: correlation of differences within a document, 0 to 1.
        alpha: share of false alarms that is allowed, two-sided.
        power: chance to find the difference.

    Returns:
        Samples; documents are this over `cluster_size`.

    Raises:
        ValueError: an argument out of its range.
    """
    if not effect or not math.isfinite(effect):
        raise ValueError(f"effect is {effect}; it is a number other than 0")
    one = _one_sample(sd, rho, cluster_size, icc)
    # The formula's last digit is rounding: 100 is not to become 101.
    return max(2, math.ceil((_reach(alpha, power) * one / effect) ** 2 - 1e-9))


def detectable(
    samples: float,
    sd: float = 0.5,
    rho: float = 0.5,
    *,
    cluster_size: float = 1.0,
    icc: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """Smallest true difference that a paired comparison of so many samples finds.

    Args:
        samples: how many there are.
        sd: standard deviation of one run's scores over samples.
        rho: correlation of the two runs' scores of a sample.
        cluster_size: samples a document, on average.
        icc: correlation of differences within a document, 0 to 1.
        alpha: share of false alarms that is allowed, two-sided.
        power: chance to find the difference.

    Returns:
        In the metric's unit.

    Raises:
        ValueError: an argument out of its range.
    """
    if not samples >= 2 or not math.isfinite(samples):
        raise ValueError(f"samples are {samples}; 2 or more are wanted")
    return _reach(alpha, power) * _one_sample(sd, rho, cluster_size, icc) / math.sqrt(samples)


def design_effect(cluster_size: float, icc: float) -> float:
    """Variance of a mean of clustered samples over that of as many independent ones: 1 + (m - 1) icc.

    Raises:
        ValueError: less than one sample a cluster, or a correlation out of [0, 1].
    """
    if not cluster_size >= 1 or not math.isfinite(cluster_size):
        raise ValueError(f"cluster_size is {cluster_size}; it is 1 or more")
    if not 0 <= icc <= 1:
        raise ValueError(f"icc is {icc}; it lies between 0 and 1")
    return 1 + (cluster_size - 1) * icc


def _one_sample(sd: float, rho: float, cluster_size: float, icc: float) -> float:
    """Standard error of the difference that one sample would leave."""
    if not sd > 0 or not math.isfinite(sd):
        raise ValueError(f"sd is {sd}; it is above 0")
    if not -1 <= rho < 1:
        raise ValueError(f"rho is {rho}; it lies between -1 and 1, and below 1")
    return sd * math.sqrt(2 * (1 - rho) * design_effect(cluster_size, icc))


def _reach(alpha: float, power: float) -> float:
    """How many standard errors a difference must be to be found."""
    check_share(alpha, "alpha")
    check_share(power, "power")
    found = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)
    if found <= 0:
        raise ValueError(f"power is {power}, less than the false alarms alone give")
    return found
