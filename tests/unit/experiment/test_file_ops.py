"""Calls to the file system for a shard, held to a bound; `benchmarks/file_ops.py` counts them with strace."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.archiving import fold
from hpcbench.experiment.claim_store import ClaimStore
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.files.archive import FOLDED
from tests.unit import small

SAMPLES = 4

RUN_CALLS = 8 + SAMPLES
"""Most calls about names, from claim to end, of a shard whose answers are acknowledged one by one: looking
whether it is claimed, opening (4), linking, unlinking, a look for a folded file, and one for a successor at
each acknowledgement."""

RUN_SYNCS = 4 + SAMPLES
"""Its fsyncs: the claim, its folder, each acknowledgement, the answers' and the events' end."""

FOLD_CALLS = 9
"""Most calls about names when it is folded: each of two files is examined, read twice and removed, and its
state read before that."""

NAMES = (
    "open", "link", "unlink", "rename", "replace", "mkdir", "listdir", "scandir", "stat", "lstat",
)  # fmt: skip


def run(here: Experiment) -> None:
    """The work of a worker on all shards, but for the engine."""
    ledger = ClaimStore(here, "g0", Owner("1_0", 0, "n1", 1))
    for shard in here.work.shards:
        taken = ledger.claim(shard, 1)
        assert taken is not None
        for number in range(shard.start, shard.stop):
            taken.record(small.response(f"s{number}"))
            taken.acknowledge()
        taken.end("done")


def fold_all(here: Experiment) -> None:
    """Fold the run task."""
    assert fold(here, "rt")


def counted(work: Callable[[Experiment], None], here: Experiment) -> Counter[str]:
    """Calls that work makes."""
    calls = Counter[str]()

    def counting(name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            # Of an open file it is no question to the file system's server.
            if not (name == "stat" and isinstance(arguments[0], int)):
                calls["fsync" if name == "fsync" else "names"] += 1
            return real(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in (*NAMES, "fsync"):
            patch.setattr(os, name, counting(name, getattr(os, name)))
        patch.setattr(io, "open", counting("open", io.open))
        work(here)
    return calls


@pytest.mark.parametrize(
    ("work", "names", "syncs"), [(run, RUN_CALLS, RUN_SYNCS), (fold_all, FOLD_CALLS, 0)]
)
def test_a_shard_costs_so_many_calls_and_no_more(
    tmp_path: Path, work: Callable[[Experiment], None], names: int, syncs: int
) -> None:
    few, many = 10, 40
    calls = []
    for shards in (few, many):
        records = [small.record(number) for number in range(shards * SAMPLES)]
        here = small.experiment(tmp_path / str(shards), records, SAMPLES)
        assert len(here.work.shards) == shards
        if work is fold_all:
            run(here)
        calls.append(counted(work, here))
    assert (calls[1]["names"] - calls[0]["names"]) / (many - few) <= names
    assert (calls[1]["fsync"] - calls[0]["fsync"]) / (many - few) <= syncs


def test_a_shard_has_two_files_while_it_runs_and_a_run_task_one_in_the_end(tmp_path: Path) -> None:
    here = small.experiment(tmp_path, [small.record(number) for number in range(12)], SAMPLES)
    run(here)
    assert len(list(here.shards_dir("rt").iterdir())) == 2 * len(here.work.shards)
    fold_all(here)
    assert [path.name for path in here.shards_dir("rt").iterdir()] == [FOLDED]
