"""Asking a model: a client that keeps the time truthfully, and what drives many requests through it.

`client` asks one question; `drive` asks many, at a concurrency or a rate; `adaptive` looks for the best
concurrency; `health` says whether the client kept up; `compat` speaks other kits' names.
"""

from __future__ import annotations

from hpcbench.inference.adaptive import Adaptive
from hpcbench.inference.arrivals import constant, poisson
from hpcbench.inference.client import TRIES, Client, EngineGone, LoadFailed, load_body
from hpcbench.inference.client_health import Health
from hpcbench.inference.load_driver import drive, warm_up

__all__ = [
    "TRIES",
    "Adaptive",
    "Client",
    "EngineGone",
    "Health",
    "LoadFailed",
    "constant",
    "drive",
    "load_body",
    "poisson",
    "warm_up",
]
