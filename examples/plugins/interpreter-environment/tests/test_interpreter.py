"""Interpreters that are good, old, lacking, talkative or none; hpcbench itself is not needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hpcbench_example_interpreter import ask, command, identity, unfit

GOOD = {"version": [3, 11, 2], "missing": {}, "installed": {"torch": "2.4", "pillow": "10"}}


def script(folder: Path, text: str) -> str:
    """A program that stands for an interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_tells_its_version_what_it_has_and_what_it_lacks() -> None:
    found = ask(sys.executable, ["json", "no_such_module_at_all"])
    assert tuple(found["version"]) == sys.version_info[:3]
    assert list(found["missing"]) == ["no_such_module_at_all"]
    assert "ModuleNotFoundError" in found["missing"]["no_such_module_at_all"]
    assert "pytest" in found["installed"]


def test_a_folder_where_we_stand_is_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "just_a_folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "just_a_folder" in ask(sys.executable, ["just_a_folder"])["missing"]


def test_what_a_site_prints_is_passed_over(tmp_path: Path) -> None:
    python = script(tmp_path, f'printf motd; {sys.executable} "$@"; echo bye')
    assert ask(python, ["json"])["missing"] == {}


@pytest.mark.parametrize("python", ["/bin/false", "/bin/true", "/no/such/python", "/"])
def test_what_is_no_python_is_an_error(python: str) -> None:
    with pytest.raises(OSError, match="does not run|No such file|Permission denied"):
        ask(python)


def test_the_reason_why_it_does_not_run_is_reported(tmp_path: Path) -> None:
    python = script(tmp_path, "echo libpython3.so: cannot open shared object file >&2; exit 127")
    with pytest.raises(OSError, match=r"does not run: libpython3.so"):
        ask(python)


def test_an_old_or_lacking_one_is_unfit() -> None:
    assert unfit(GOOD) is None
    assert unfit({**GOOD, "version": [3, 9, 21]}) == (
        "is Python 3.9.21",
        "name a Python 3.10 or newer",
    )
    lacking = unfit(
        {**GOOD, "missing": {"uvicorn": "ModuleNotFoundError: No module named 'uvicorn'"}}
    )
    assert lacking is not None
    assert lacking[0].startswith("cannot import uvicorn (ModuleNotFoundError")


def test_equal_interpreters_have_one_identity() -> None:
    turned = {**GOOD, "installed": dict(reversed(GOOD["installed"].items()))}  # type: ignore[attr-defined]
    assert identity(GOOD) == identity(turned)
    assert identity(GOOD) != identity({**GOOD, "version": [3, 11, 3]})
    assert identity(GOOD) != identity({**GOOD, "installed": {"torch": "2.5", "pillow": "10"}})
    assert identity(GOOD).startswith("sha256:")


def test_the_first_word_becomes_the_interpreter() -> None:
    python = Path("/opt/x/bin/python3")
    words, added = command(python, ["python", "-m", "python"], {"A": "b"}, 0, {"PATH": "/bin"})
    assert words == ["/opt/x/bin/python3", "-m", "python"]
    assert added["PATH"] == "/opt/x/bin:/bin"
    assert (added["A"], added["CUDA_VISIBLE_DEVICES"]) == ("b", "")
    words, added = command(python, ["nvidia-smi"], {}, 2, {})
    assert words == ["nvidia-smi"]
    assert "CUDA_VISIBLE_DEVICES" not in added
