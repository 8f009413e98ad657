"""The callable that submitit carries to the node: a module's name and strings, nothing else.

What crosses is a path and a group (`python -m hpcbench.worker EXPERIMENT GROUP` in other words), so the
pickle stays tiny and does not depend on the code's shape.
"""

from __future__ import annotations

import importlib


class Element:
    """Calls `MODULE.main(ARGUMENTS)`."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.module, self.arguments = module, arguments

    def __call__(self) -> None:
        importlib.import_module(self.module).main(list(self.arguments))
