"""Quotas, from the output of both programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.files.quotas import Quota, lustre_quotas, parsed, quotas

RAW = """\
Disk quotas for user ada (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
 home:/export/ada 1048576* 1000000 2000000       0    5000       0       0       0
 /dev/none        100        0       0       0      10       0       0       0
"""
"""Output of `quota -w -p`."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (RAW, [Quota("home:/export/ada", 1048576, 1000000, 5000, 0)]),
        ("/lustre 120 0 500 - 30 0 100 -", [Quota("/lustre", 120, 500, 30, 100)]),
        ("/lustre 120* 100 0 6d 30 0 0 -", [Quota("/lustre", 120, 100, 30, 0)]),
        ("/a/very/long/path\n   2048  0 4096   -  12  0 1000   -\n",
         [Quota("/a/very/long/path", 2048, 4096, 12, 1000)]),
        ("  /dev/sda1  400 500 600  12  0  0", [Quota("/dev/sda1", 400, 500, 12, 0)]),
        ("  /dev/sda1  400 500 600  12*  10  0 6days", [Quota("/dev/sda1", 400, 500, 12, 10)]),
        ("Disk quotas for user me (uid 1000): none", []),
        ("", []),
    ],
)  # fmt: skip
def test_limits_are_read_with_and_without_a_grace_period(text: str, found: list[Quota]) -> None:
    assert list(parsed(text)) == found


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_an_exceeded_quota_is_known_although_the_program_fails_then(program: Path) -> None:
    script = program / "quota"
    script.write_text("#!/bin/sh\necho '/dev/sda1 7* 5 6 6days 12 0 0'\nexit 1\n")
    script.chmod(0o755)
    assert quotas("-f", "/") == [Quota("/dev/sda1", 7, 5, 12, 0)]


def test_without_the_program_there_are_none(program: Path) -> None:
    assert lustre_quotas(Path("/")) == []
