"""A home for `ssh`: the real one reads the files of the account, whatever HOME says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PROGRAM = """#!/bin/sh
# The real ssh, with a configuration in which `~` is a folder of the test; jump hosts get it as well.
before=
for word; do
    shift
    if [ "$before" = -F ] && [ "$word" != none ]; then
        sed 's|~/|{home}/|' "$word" >"$word.home"
        cat >>"$word.home" <<END
Host *
UserKnownHostsFile {home}/.ssh/known_hosts
IdentityFile {home}/.ssh/id_ed25519
END
        word=$word.home
    fi
    set -- "$@" "$word"
    before=$word
done
exec {ssh} "$@"
"""


def path_with_ssh(home: Path) -> str:
    """A PATH whose `ssh` takes a folder for the account's home: its configuration, keys, known hosts."""
    real = shutil.which("ssh")
    assert real is not None, "no ssh on this machine"
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    program = home / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(home=home, ssh=real))
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def give_ssh_a_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and its `ssh` have a home."""
    monkeypatch.setenv("PATH", path_with_ssh(home))
    monkeypatch.setenv("HOME", str(home))
