"""Python searches for cyclic garbage neither while modules load nor when a process of ours ends."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench import garbage

CYCLE = """
from hpcbench import garbage
class Cycle:
    def __del__(self):
        print("collected")
one = Cycle()
one.itself = one
del one
file = open({path!r}, "w")
file.write("kept")
"""


@pytest.mark.parametrize(
    ("more", "said"), [("", "collected\n"), ("garbage.skip_last_collection()", "")]
)
def test_a_process_ends_without_a_last_search_but_writes_its_files(
    tmp_path: Path, more: str, said: str
) -> None:
    path = tmp_path / "file"
    code = CYCLE.format(path=str(path)) + more
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == said
    assert path.read_text() == "kept"


def test_modules_load_without_collections() -> None:
    with garbage.loading():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_collects_nothing_collects_nothing_after_loading() -> None:
    gc.disable()
    try:
        with garbage.loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
