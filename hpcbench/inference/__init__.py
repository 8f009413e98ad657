"""Requests to a model: a client with accurate timing, and a driver of many requests.

`client` sends one request; `drive` sends many, at a concurrency or a rate; `adaptive` searches for the best
concurrency; `rate_limits` keeps to what a gateway allows; `health` reports whether the client kept up;
`compat` computes other kits' figures.
"""

from __future__ import annotations

from hpcbench.inference.adaptive import Adaptive
from hpcbench.inference.arrivals import constant, poisson
from hpcbench.inference.client import TRIES, Client, EngineGone, LoadFailed, load_body
from hpcbench.inference.client_health import Health
from hpcbench.inference.load_driver import drive, warm_up
from hpcbench.inference.rate_limits import RateLimits, Shared

__all__ = [
    "TRIES",
    "Adaptive",
    "Client",
    "EngineGone",
    "Health",
    "LoadFailed",
    "RateLimits",
    "Shared",
    "constant",
    "drive",
    "load_body",
    "poisson",
    "warm_up",
]
