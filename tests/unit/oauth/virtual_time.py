"""An event loop whose time passes only while it waits, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now = 1000.0
        loop = self

        class Jumping(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                if timeout is None:
                    raise AssertionError("every task waits for ever")
                loop.now += max(timeout, 0.0)
                return super().select(0)

        super().__init__(Jumping())

    def time(self) -> float:
        return self.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
