"""Python's garbage collection: none while modules load, and none when a process ends.

A command or a job loads hundreds of modules. Objects of modules are no garbage, but collections on the way,
and the last one at the end, look at all of them: a fifth of the CPU time of `hpcbench status`, and of that of
a worker without work.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
from _io import _IOBase  # not `io.IOBase`: an ABC, which is five times as slow to ask
from collections.abc import Iterator


def skip_last_collection() -> None:
    """Let this process end without a search for cycles; what is written to open files is kept."""
    atexit.register(_end)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Collect nothing inside the block, which loads modules."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _end() -> None:
    for one in gc.get_objects():
        # A plugin may have left it open, and only the search would find it. `isinstance` would ask the object
        # for its class, and some of torch's then warn.
        if issubclass(type(one), _IOBase):
            with contextlib.suppress(Exception):
                one.flush()
    gc.freeze()
