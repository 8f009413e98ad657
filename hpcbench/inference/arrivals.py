"""Send times at a given rate: offsets in seconds from the start, without end.

Gaps are independent of each other and of the number of requests. (Some load generators stretch them so that
the last arrival is at count ÷ rate; the result is no Poisson process any more.)
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator


def constant(rate: float) -> Iterator[float]:
    """`rate` requests a second, evenly spaced, from 0 on."""
    return (number / rate for number in itertools.count())


def poisson(rate: float, seed: int) -> Iterator[float]:
    """`rate` requests a second on average, with exponential gaps; a seed always gives the same times."""
    chance = random.Random(seed)
    return itertools.accumulate(chance.expovariate(rate) for _ in itertools.count())
