"""The callable in pickles of version 0.1, see `hpcbench.submit.array_task`."""

from hpcbench.submit.array_task import ArrayTask as Element

__all__ = ["Element"]
