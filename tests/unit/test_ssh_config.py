"""What `~/.ssh/config` and known_hosts say, and how words reach a shell over there."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.remote.ssh import MARK, command_line
from hpcbench.remote.ssh_config import Hop, KnownHosts, settings_of
from hpcbench.schema.documents import SshSite
from tests.campaign import examples

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJUGGn/2NHCWYKqr5Yp4Xb6SmoEVyVd1nTkHRgnkDoBt"
OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIF2mmTxpEzZM7BYVXyvAF5aZiAB0MlM7fjTrOSXUjUbD"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh"


@pytest.mark.parametrize(
    ("text", "hop"),
    [
        ("login.example.org", Hop("login.example.org")),
        ("me@login:2222", Hop("login", "me", 2222)),
        ("ssh://me@login:22/", Hop("login", "me", 22)),
        ("[::1]:2222", Hop("::1", None, 2222)),
        ("me@fe80::1", Hop("fe80::1", "me")),
        ("me@corp@login", None),
        ("-oProxyCommand=x", None),
        ("me@-x", None),
        ("host:99999", None),
        ("a b", None),
        ("", None),
    ],
)
def test_a_host_is_read_as_ssh_would(text: str, hop: Hop | None) -> None:
    if hop is not None:
        assert Hop.read(text) == hop
        return
    with pytest.raises(UserError, match="is no host"):
        Hop.read(text)


def test_the_profile_counts_over_the_configuration(ssh: Path) -> None:
    (ssh / "config").write_text(
        "Host lab\n  HostName login.lab.org\n  User me\n  Port 2222\n  IdentityFile ~/.ssh/lab\n"
        "  ProxyJump gate1,you@gate2:23\n"
    )
    found = settings_of(Hop("lab"))
    assert (found.host, found.user, found.port) == ("login.lab.org", "me", 2222)
    assert found.keys == (ssh / "lab",)
    assert found.jumps == (Hop("gate1"), Hop("gate2", "you", 23))
    assert found.name == "[login.lab.org]:2222"

    given = SshSite(host="lab", jump="other", identity="~/k", known_hosts="~/known")
    over = settings_of(Hop("lab", "her", 22), given)
    assert (over.user, over.port, over.name) == ("her", 22, "login.lab.org")
    assert over.jumps == (Hop("other"),)
    assert over.keys[0] == ssh.parent / "k"
    assert over.only_keys
    assert over.known_hosts[-1] == ssh.parent / "known"


def test_no_configuration_is_no_error_and_the_usual_keys_are_tried(ssh: Path) -> None:
    found = settings_of(Hop("lab"))
    assert (found.host, found.port, found.name) == ("lab", 22, "lab")
    assert found.keys[0] == ssh / "id_ed25519"
    assert found.jumps == ()


def test_an_included_file_counts_where_it_stands_and_the_block_goes_on_after_it(ssh: Path) -> None:
    (ssh / "config.d").mkdir()
    (ssh / "config.d/a").write_text("Host lab\n  HostName lab.org\nHost other\n  User nobody\n")
    (ssh / "config").write_text(
        "Include config.d/*\nPort 2200\nHost lab\n  Include none-such\n  User me\n"
    )
    found = settings_of(Hop("lab"))
    assert (found.host, found.user, found.port) == ("lab.org", "me", 2200)


def test_files_that_include_each_other_and_nonsense_are_told_at_the_file(ssh: Path) -> None:
    (ssh / "config").write_text("Include config\n")
    with pytest.raises(UserError, match="config: .*include each other"):
        settings_of(Hop("lab"))
    (ssh / "config").write_text("Host lab\n  Port many\n")
    with pytest.raises(UserError, match=r"config: cannot be read"):
        settings_of(Hop("lab"))


@pytest.mark.parametrize(
    ("hosts", "name", "known"),
    [
        ("lab.org", "lab.org", True),
        ("lab.org,10.0.0.1", "10.0.0.1", True),
        ("*.lab.org,!bad.lab.org", "login.lab.org", True),
        ("*.lab.org,!bad.lab.org", "bad.lab.org", False),
        ("[lab.org]:2222", "[lab.org]:2222", True),
        ("[lab.org]:2222", "lab.org", False),
        ("lab.org", "[lab.org]:2222", True),
        ("login?.lab.org", "login2.lab.org", True),
        ("lab", "lab.org", False),
    ],
)
def test_names_of_known_hosts_mean_what_they_mean_to_ssh(
    tmp_path: Path, hosts: str, name: str, known: bool
) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"# a comment\n\nnonsense\n{hosts} ssh-ed25519 {KEY} me@home\n")
    assert bool(KnownHosts([file]).keys(name)) is known


def test_hashed_names_are_found_as_ssh_keygen_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"lab.org ssh-ed25519 {KEY}\n[lab.org]:22222 ssh-ed25519 {OTHER}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "lab.org" not in file.read_text()
    known = KnownHosts([file, tmp_path / "none"])
    assert [kind for kind, _ in known.keys("lab.org")] == ["ssh-ed25519"]
    assert known.keys("lab.org") != known.keys("[lab.org]:22222") != []
    assert known.keys("other.org") == []


def test_a_certificate_authority_makes_no_host_known_and_a_revoked_key_is_known_as_such(
    tmp_path: Path,
) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(
        f"@cert-authority *.org ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {OTHER}\n"
        f"lab.org ssh-ed25519 {OTHER}\n"
    )
    known = KnownHosts([file])
    assert known.keys("any.org") == []
    ((_, key),) = known.keys("lab.org")
    assert known.revoked(key)


@pytest.mark.long
@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_no_word_is_taken_apart_by_a_shell(words: list[str]) -> None:
    script = 'for word; do printf "%s\\0" "$word"; done'
    line = command_line(["sh", "-c", script, "sh", *words])
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=True)
    assert done.stdout.partition(MARK)[2].decode().split("\0") == [*words, ""]


def test_a_path_below_the_home_over_there_is_found_there(tmp_path: Path) -> None:
    command = tmp_path / "with space" / "hpcbench"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho found $1\n")
    command.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command_line(["~/with space/hpcbench", "it"])],
        capture_output=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert done.stdout == MARK + b"found it\n"
    assert shlex.split(command_line(["a"]))[:3] == ["exec", "bash", "-lc"]
