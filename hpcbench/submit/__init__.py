"""From a plan to the jobs that run it."""

from collections.abc import Callable

Say = Callable[[str], None]
"""Reports progress to the user, one line at a time."""
