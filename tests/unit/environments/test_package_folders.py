"""The folder of packages beside an environment: when it is built, and with which bytecode."""

from __future__ import annotations

import compileall
import sys
import zipfile
from pathlib import Path

import pytest

from hpcbench import errors
from hpcbench.environments.packages import packages_for, probe


def wheel_line(cache: Path) -> str:
    """The requirement line of a wheel in the cache; the wheel is made if it is not there."""
    wheel = cache / "wheels/0123abcd/own-1-py3-none-any.whl"
    if not wheel.exists():
        wheel.parent.mkdir(parents=True)
        with zipfile.ZipFile(wheel, "w") as made:
            about = "Metadata-Version: 2.1\nName: own\nVersion: 1\n"
            made.writestr("own.py", "")
            made.writestr("own-1.dist-info/METADATA", about)
            made.writestr("own-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            made.writestr("own-1.dist-info/RECORD", "")
    return f"own @ {wheel.as_uri()}"


@pytest.mark.long
def test_a_cache_that_moves_keeps_its_folders_whose_bytecode_is_our_own(tmp_path: Path) -> None:
    compileall.compile_file(errors.__file__, quiet=2)
    here = probe([sys.executable], "test")
    before, after = tmp_path / "before", tmp_path / "after"
    first = packages_for(here, before, [wheel_line(before)])
    assert (first / "own.py").exists()
    made = first.stat().st_mtime_ns
    # Bytecode that is compiled there would hold the name of the folder.
    own = Path(errors.__cached__)
    assert (first / "hpcbench/__pycache__" / own.name).read_bytes() == own.read_bytes()
    assert not list(first.rglob("share"))
    before.rename(after)
    second = packages_for(here, after, [wheel_line(after)])
    assert second.relative_to(after) == first.relative_to(before)
    assert second.stat().st_mtime_ns == made
    assert packages_for(here, after, [wheel_line(after), "packaging"]) != second
