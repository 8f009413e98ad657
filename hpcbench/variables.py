"""Environment variables: set for a moment, and the ones that keep a node's proxy out of the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process inside the block: for modules that read it when they are imported."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def past_proxies(hosts: str) -> dict[str, str]:
    """Variables by which programs reach hosts, `127.0.0.1,::1`, without the node's proxy.

    `*` stays alone: programs read it only so.
    """
    known = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    return {
        name: value if value == "*" else f"{value},{hosts}" if value else hosts
        for name, value in known.items()
    }
