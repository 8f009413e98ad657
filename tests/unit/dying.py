"""A process that dies between two system calls: fault injection for whatever writes through `os`.

It is a double: the process that dies is this one, and comes back to life when the `with` block ends. From
the moment of death on none of its calls reaches the disk, so that no clean-up code tidies what a kill leaves.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

CALLS = ("open", "write", "fsync", "link", "unlink", "rename", "replace", "ftruncate", "mkdir")
"""Calls that count as a step. Reading does not: it leaves the disk as it was."""

_ACCESSOR = getattr(pathlib, "_NormalAccessor", None)
"""Where Python 3.10 keeps the calls of paths."""


class Killed(BaseException):
    """It is dead."""


class Dying:
    """Counts the steps of what runs inside it, and dies before the step of a number."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.calls: list[str] = []
        """Steps that were made."""

    @property
    def dead(self) -> bool:
        """Whether it died."""
        return self.at is not None and len(self.calls) >= self.at

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            for name in CALLS:
                real = getattr(os, name)
                step = self._step(name, real)
                patch.setattr(os, name, step)
                if getattr(_ACCESSOR, name, None) is real:
                    patch.setattr(_ACCESSOR, name, staticmethod(step))
            yield

    def _step(self, name: str, real: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                if name == "write" and len(self.calls) == self.at:
                    # Half of it reached the disk.
                    self.calls.append("torn")
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise Killed
            self.calls.append(name)
            return real(*arguments, **options)

        return step
