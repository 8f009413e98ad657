"""The syntax of source files, for tests that read code."""

from __future__ import annotations

import ast

from hpcbench import garbage


def parsed(source: str) -> ast.Module:
    """The tree of a source text.

    Without a collection of garbage: its callbacks let other threads parse, too, and before 3.11.5 Python then
    fails with a SystemError (https://github.com/python/cpython/issues/106905).
    """
    with garbage.loading():
        return ast.parse(source)
