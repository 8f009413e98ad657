"""Between two shards: an interim analysis of the arms, if one is due, in its own process.

Scoring needs modules that no worker imports. It runs while no answer is in flight, so it is in no block's
time.
"""

from __future__ import annotations

import asyncio
import contextlib

from hpcbench.experiment import interim
from hpcbench.experiment.layout import Experiment
from hpcbench.installed import this_python

LONGEST = 600.0
"""Seconds after which an analysis is abandoned; a later one has more data."""


async def look_if_due(experiment: Experiment, pair: str, stop: asyncio.Event) -> bool:
    """Analyse the arms of a run task if an analysis is due; returns whether it was.

    A failed analysis does not count: the next shard's end, or `finalise`, starts another.
    """
    if not await asyncio.to_thread(interim.due, experiment, pair):
        return False
    command = (*this_python(), "-m", "hpcbench.comparison.interim", str(experiment.path), pair)
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    ending = asyncio.ensure_future(process.wait())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({ending, stopping}, timeout=LONGEST, return_when="FIRST_COMPLETED")
    stopping.cancel()
    if not ending.done():
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await ending
    return True
