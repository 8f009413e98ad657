"""The callable that submitit carries to the node: a module's name and strings, nothing else.

What crosses is a path and a group (`python -m hpcbench.worker EXPERIMENT GROUP` in other words), so the
pickle stays tiny and does not depend on the code's shape.
"""

from __future__ import annotations

import importlib
import os


class Element:
    """Calls `MODULE.main(ARGUMENTS)`; under the local executor with GPUs of its own."""

    def __init__(self, module: str, *arguments: str, gpus: str | None = None) -> None:
        self.module, self.arguments, self.gpus = module, arguments, gpus

    def __call__(self) -> None:
        if self.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus
        importlib.import_module(self.module).main(list(self.arguments))
