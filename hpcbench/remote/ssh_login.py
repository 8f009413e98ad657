"""Logging in: by the agent's keys, those of files, and what a server asks on a terminal."""

from __future__ import annotations

import base64
import binascii
import contextlib
import getpass
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.remote.ssh_config import Settings


def log_in(transport: Any, wanted: Settings, *, terminal: bool, name: str) -> None:
    """Log in.

    Args:
        transport: paramiko's, after the host's key was checked.
        wanted: user and keys.
        terminal: whether somebody can be asked.
        name: how `ssh` would be told the host.

    Raises:
        EnvironmentFault: the server refuses all.
        paramiko.SSHException: it ended the login.
    """
    from paramiko import AuthenticationException, BadAuthenticationType

    allowed: Sequence[str] = ("publickey", "keyboard-interactive")
    locked: list[Path] = []
    try:
        allowed = transport.auth_none(wanted.user)
    except BadAuthenticationType as told:
        allowed = told.allowed_types
    except AuthenticationException:
        pass
    if "publickey" in allowed:
        with contextlib.closing(_keys(wanted, locked, terminal=terminal)) as keys:
            allowed = _by_key(transport, wanted.user, keys, allowed)
    if "keyboard-interactive" in allowed and terminal:
        with contextlib.suppress(AuthenticationException):
            allowed = transport.auth_interactive(wanted.user, _ask)
    if transport.is_authenticated():
        return
    remedy = f"does `ssh {name}` work? keys are taken from the agent (`ssh-add`) and ~/.ssh"
    if "keyboard-interactive" in allowed and not terminal:
        remedy = "it asks for a second factor, which needs a terminal"
    elif locked:
        remedy = f"`ssh-add {locked[0]}`: the key has a passphrase"
    raise EnvironmentFault(f"{wanted.user}@{wanted.host}: the login is refused", remedy=remedy)


def _by_key(
    transport: Any, user: str, keys: Iterator[Any], allowed: Sequence[str]
) -> Sequence[str]:
    """Offer keys one by one until one is taken; returns the ways that are left to go."""
    from paramiko import AuthenticationException, BadAuthenticationType, SSHException

    for key in keys:
        try:
            further: Sequence[str] = transport.auth_publickey(user, key)
        except BadAuthenticationType as told:
            allowed = told.allowed_types
        except AuthenticationException:
            pass
        except SSHException:
            if not transport.is_active():
                raise
            # The agent would not sign, or the server does not know this kind of key.
        else:
            return further
    return allowed


def _keys(wanted: Settings, locked: list[Path], *, terminal: bool) -> Generator[Any, None, None]:
    """Keys to try; those with a passphrase that nobody can be asked for are added to `locked`."""
    from paramiko import Agent, PasswordRequiredException, PKey, SSHException

    public = [_public(path) for path in wanted.keys]
    seen: set[bytes] = set()
    with contextlib.suppress(SSHException, OSError), contextlib.closing(Agent()) as agent:
        offered = sorted(agent.get_keys(), key=lambda key: key.asbytes() not in public)
        for key in offered:
            if not wanted.only_keys or key.asbytes() in public:
                seen.add(key.asbytes())
                yield key
    for path, blob in zip(wanted.keys, public, strict=True):
        if blob in seen or not path.is_file():
            continue
        try:
            key = PKey.from_path(path)
        except (PasswordRequiredException, TypeError):
            # TypeError is what the cryptography below says of a passphrase that is missing.
            if not terminal:
                locked.append(path)
                continue
            phrase = getpass.getpass(f"Passphrase of {path} (once in an agent, it is not asked): ")
            try:
                key = PKey.from_path(path, phrase.encode())
            except (SSHException, ValueError, OSError):
                continue
        except (SSHException, ValueError, OSError):
            continue
        yield key  # with the certificate beside it, if there is one


def _public(path: Path) -> bytes | None:
    """The public part of a key, of the file beside it."""
    try:
        words = path.with_name(path.name + ".pub").read_text(encoding="utf-8").split()
        return base64.b64decode(words[1])
    except (OSError, UnicodeDecodeError, IndexError, binascii.Error):
        return None


def _ask(title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
    """What the server asks, on the terminal; hidden where it says so."""
    for line in (title, instructions):
        if line.strip():
            print(line.strip(), file=sys.stderr)  # noqa: T201 - a dialogue of the terminal
    return [
        input(prompt) if echo else getpass.getpass(prompt.strip() + " ") for prompt, echo in prompts
    ]
