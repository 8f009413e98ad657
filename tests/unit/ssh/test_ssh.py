"""Arguments of `ssh`, the meaning of its refusals, and how words reach a shell of the host."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.errors import HpcbenchError, UserError
from hpcbench.ssh.login import Host, Login, Refused, Unreachable, fast_ciphers_first
from hpcbench.ssh.remote_command import MARK, command_line
from tests.campaign import examples
from tests.remote.ssh_home import give_ssh_a_home


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("login.example.org", Host("login.example.org")),
        ("me@login:2222", Host("login", "me", 2222)),
        ("ssh://me@login:22/", Host("login", "me", 22)),
        ("[::1]:2222", Host("::1", None, 2222)),
        ("me@fe80::1", Host("fe80::1", "me")),
        ("me@corp@login", None),
        ("-oProxyCommand=x", None),
        ("me@-x", None),
        ("host:99999", None),
        ("a b", None),
        ("", None),
    ],
)
def test_a_host_is_read_as_ssh_would(text: str, host: Host | None) -> None:
    if host is not None:
        assert Host.read(text) == host
        return
    with pytest.raises(UserError, match="is not a host"):
        Host.read(text)


def value_by_ssh(tmp_path: Path, host: Host, keyword: str) -> str:
    settings = Login.prepare(tmp_path, host, ask=False).settings
    return settings[keyword][0]


def test_the_profile_counts_over_the_configuration_and_strictness_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_ssh_a_home(tmp_path, monkeypatch)
    (tmp_path / ".ssh/config").write_text(
        "Host lab\n  HostName login.lab.org\n  User me\n  Port 2222\n  ProxyJump gate1,you@gate2:23\n"
        "  StrictHostKeyChecking no\n  ForwardAgent yes\n  SendEnv LANG\n  UserKnownHostsFile /mine\n"
    )

    def reported(keyword: str, **fields: str | int) -> str:
        return value_by_ssh(tmp_path, Host("lab", **fields), keyword)  # type: ignore[arg-type]

    assert reported("hostname") == "login.lab.org"
    assert reported("user") == "me"
    assert reported("user", user="you") == "you"
    assert reported("port", port=22) == "22"
    assert reported("proxyjump") == "gate1,you@gate2:23"
    assert reported("proxyjump", jump="other") == "other"
    assert reported("stricthostkeychecking") == "true"
    assert reported("forwardagent") == "no"
    assert reported("userknownhostsfile", known_hosts="/more") == "/mine"
    assert "/more" in reported("globalknownhostsfile", known_hosts="/more")
    jump_none = Login.prepare(tmp_path, Host("lab", jump="none"), ask=False)
    assert jump_none.settings.get("proxyjump", ["none"]) == ["none"]


CHANGED = """@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Someone could be eavesdropping on you right now (man-in-the-middle attack)!
The fingerprint for the ED25519 key sent by the remote host is
SHA256:abc.
Please contact your system administrator.
Host key for [lab]:2222 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("reported", "kind", "message"),
    [
        (CHANGED, Refused, r"key of \[lab\]:2222 has changed.* ED25519 SHA256:abc .*-p 2222 lab"),
        ("me@lab: Permission denied (publickey).", Refused, "refuses the login .*ssh-add"),
        ("root@gate: Permission denied (publickey).", Refused, "^root@gate: .*`ssh lab` goes through"),
        ("Permission denied (publickey,keyboard-interactive).", Refused, "terminal.* second factor"),
        ("Received disconnect: Too many authentication failures", Refused, "refuses the login"),
        ("ssh: connect to host lab port 22: Connection refused", Unreachable, "cannot reach lab: connect to"),
        ("ssh: Could not resolve hostname lab: Name or service not known", Unreachable, "Could not resolve"),
        ("", Unreachable, "without a message"),
        ("/h/config: line 3: Bad configuration option: x", UserError, "line 3.*correct ~/.ssh/config"),
    ],
)  # fmt: skip
def test_what_ssh_says_when_it_fails_is_a_kind_of_error_with_a_remedy(
    reported: str, kind: type[HpcbenchError], message: str
) -> None:
    fault = Login(
        Host("lab"), ("false",), {"batchmode": ["yes"], "user": ["me"], "hostname": ["lab"]}
    ).fault(reported)
    assert type(fault) is kind
    with pytest.raises(kind, match=message):
        raise fault


def test_the_fast_ciphers_come_first_and_none_is_added_to_those_allowed() -> None:
    allowed = "chacha20-poly1305@openssh.com,aes128-ctr,aes128-gcm@openssh.com"
    asked = fast_ciphers_first({"ciphers": [allowed]})
    if " aes" in Path("/proc/cpuinfo").read_text():
        assert asked[1].split(",")[0] == "aes128-gcm@openssh.com"
        assert sorted(asked[1].split(",")) == sorted(allowed.split(","))
    assert fast_ciphers_first({"ciphers": ["aes256-ctr"]}) == ()
    assert fast_ciphers_first({}) == ()


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
