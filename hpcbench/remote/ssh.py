"""A cluster reached from elsewhere: an SSH connection that runs commands there.

paramiko speaks the protocol; what a user has set up for `ssh` counts: the agent, keys and certificates,
`~/.ssh/config`, jump hosts one after the other, known_hosts (`ssh_config.py`). A host whose key is not known,
or is another one, is refused. Nothing secret is kept or sent on: codes of a second factor and passphrases are
asked for on a terminal only, and not stored; of this machine's environment nothing goes there.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hpcbench.errors import EnvironmentFault
from hpcbench.installed import install_hint
from hpcbench.remote.ssh_config import Hop, KnownHosts, Settings, settings_of
from hpcbench.remote.ssh_login import log_in
from hpcbench.schema.documents import SshSite

CONNECT_SECONDS = 20.0
"""A server that has not answered for so long is not there."""

KEEPALIVE_SECONDS = 15
"""How often an idle connection says that it lives: firewalls forget silent ones."""

DEAD_SECONDS = 60
"""A connection on which nothing that was sent is acknowledged for so long is gone."""

STEADY_SECONDS = 10.0
"""A connection that held for so long was a good one; what breaks after it is another matter."""

PATIENCE_SECONDS = 1800.0
"""How long a dropped connection is tried to be made again."""

WINDOW = 16 << 20
"""Bytes that may be under way on one channel: rate times round trip of a good line."""

MARK = b"\x1ehpcbench\x1e"
"""What a command's own output begins after: profiles of shells there may print what they like before."""

# A login shell's profile tells where `hpcbench` is; `~/` is the home over there.
_RUN = (
    'c=$1; shift; case "$c" in "~/"*) c="$HOME/${c#"~/"}";; esac; '
    'printf \'\\036hpcbench\\036\'; exec "$c" "$@"'
)

ResultT = TypeVar("ResultT")


class Dropped(EnvironmentFault):
    """The connection broke; what went on there may go on."""


class Unreachable(EnvironmentFault):
    """There was no way to the host."""


class NoCommand(EnvironmentFault):
    """The host does not have the command, or may not run it."""


def command_line(argv: Sequence[str]) -> str:
    """What the shell over there is given to run a command: every word quoted, none of it the shell's."""
    return " ".join(["exec", "bash", "-lc", shlex.quote(_RUN), "hpcbench", *map(shlex.quote, argv)])


class Running:
    """A command over there, on a channel of its own; use as a context manager."""

    def __init__(self, channel: Any, argv: Sequence[str], host: str, terminal: bool) -> None:
        """
        Args:
            channel: paramiko's, open and unused.
            argv: the command.
            host: what messages call the machine.
            terminal: whether it gets a terminal there, as large as ours; then errors come with the output.
        """
        self._channel, self._host, self._ahead = channel, host, b""
        self._told = b""
        with self._wire():
            self._size = _terminal_size() if terminal else {}
            if terminal:
                channel.get_pty(term="xterm-256color", **self._size)
            channel.exec_command(command_line(argv))
        self._begun = False

    def write(self, data: bytes) -> None:
        """Send bytes to its standard input.

        Raises:
            Dropped: the connection broke, or the command ended.
        """
        with self._wire():
            self._channel.sendall(data)

    def end_input(self) -> None:
        """Nothing more comes; raises as `write`."""
        with self._wire():
            self._channel.shutdown_write()

    def read(self, size: int = 1 << 16) -> bytes:
        """Up to so many bytes of its output, at least one; none: it has ended.

        Raises:
            Dropped: the connection broke.
        """
        self._begin()
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        with self._wire():
            data = bytes(self._channel.recv(size))
        if not data:
            self._ended()
        return data

    def readline(self) -> bytes:
        """One line of its output, or what is left of it; raises as `read`."""
        pieces: list[bytes] = []
        while piece := self.read():
            line, newline, rest = piece.partition(b"\n")
            pieces += [line, newline]
            if newline:
                self._ahead = rest + self._ahead
                break
        return b"".join(pieces)

    def errors(self) -> bytes:
        """What has come from its standard error since the last call; does not wait."""
        told = b""
        with self._wire():
            while self._channel.recv_stderr_ready() and (
                piece := self._channel.recv_stderr(1 << 16)
            ):
                told += piece
        return told

    def ready(self, seconds: float) -> bool:
        """Whether `read` has something or the end; waits for so long at most."""
        if self._ahead:
            return True
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._channel.recv_ready() or self._channel.closed or self._channel.eof_received:
                return True
            if self._channel.recv_stderr_ready():
                return False
            time.sleep(0.02)
        return False

    def resize(self) -> None:
        """Tell a terminal there how large ours is, if that has changed."""
        if self._size and self._size != (now := _terminal_size()):
            self._size = now
            with self._wire():
                self._channel.resize_pty(**now)

    def verdict(self) -> int | None:
        """Its exit code if it has ended by itself, also with an error; None: the connection broke."""
        self._channel.status_event.wait(2.0)
        if not self._channel.exit_status_ready() or self._channel.exit_status == -1:
            return None
        return self.code()

    def code(self) -> int:
        """Its exit code, once it has ended; 255 if a signal ended it.

        Raises:
            Dropped: the connection broke before.
            NoCommand: there is no such command.
        """
        code = int(self._channel.recv_exit_status())
        if code == -1:
            transport = self._channel.get_transport()
            if not transport.is_active() or not self._channel.eof_received:
                raise Dropped(f"{self._host}: the connection broke")
            return 255
        if code in (126, 127):
            raise NoCommand(
                f"{self._host} cannot run hpcbench: {_last_line(self._told + self.errors())}",
                remedy="install hpcbench-vlm there, and set `ssh.hpcbench` of the site profile to its path",
            )
        return code

    def close(self) -> None:
        """Let it go; it is told by a hang-up where it has a terminal."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ended(self) -> None:
        """See whether the end of the output was the command's, or the connection's."""
        if not self._channel.eof_received and self.verdict() is None:
            raise Dropped(f"{self._host}: the connection broke")

    def _begin(self) -> None:
        """Pass over what profiles print before the command begins."""
        if self._begun:
            return
        seen = b""
        while MARK not in seen:
            with self._wire():
                piece = self._channel.recv(1 << 16)
            if not piece:
                self._ended()
                self._told = seen  # it did not come to the command: `code` tells
                self._begun = True
                return
            seen = (seen + piece)[-(1 << 20) :]
        self._ahead = seen.partition(MARK)[2]
        self._begun = True

    @contextlib.contextmanager
    def _wire(self) -> Iterator[None]:
        """Inside, what paramiko raises becomes one of ours."""
        from paramiko import SSHException

        try:
            yield
        except (SSHException, OSError, EOFError) as error:
            raise Dropped(f"{self._host}: the connection broke: {_told(error)}") from error


class Connection:
    """A login node, connected when first needed and again when the connection broke."""

    def __init__(self, site: SshSite, *, terminal: bool | None = None) -> None:
        """
        Args:
            site: where it is.
            terminal: whether somebody can be asked; none: whether this process has a terminal.
        """
        self.site = site
        self.host = site.host
        self._terminal = (
            sys.stdin.isatty() and sys.stderr.isatty() if terminal is None else terminal
        )
        self._transports: list[Any] = []

    def start(self, argv: Sequence[str], *, terminal: bool = False) -> Running:
        """Start a command there: a word list, which no shell takes apart.

        Raises:
            EnvironmentFault: the host is not reached, not known, or refuses us.
        """
        from paramiko import SSHException

        transport = self._transport()
        try:
            channel = transport.open_session(window_size=WINDOW, timeout=CONNECT_SECONDS)
        except (SSHException, OSError, EOFError) as error:
            self.close()
            raise Dropped(f"{self.host}: the connection broke: {_told(error)}") from error
        return Running(channel, argv, self.host, terminal)

    def hpcbench(self, *words: str, terminal: bool = False) -> Running:
        """Start the cluster's own hpcbench; raises as `start`."""
        return self.start([self.site.hpcbench, *words], terminal=terminal)

    def persist(
        self, work: Callable[[], ResultT], say: Callable[[str], None], patience: float | None = None
    ) -> ResultT:
        """Do something that goes on where it was when it is done again, through dropped connections.

        Args:
            work: what to do; called again after the connection broke.
            say: told of it.
            patience: seconds to try for after each time it broke.

        Raises:
            EnvironmentFault: whatever `work` raises but `Dropped`; the way there stays broken.
        """
        broke, pause = 0.0, 0.0
        while True:
            begun = time.monotonic()
            try:
                return work()
            except (Dropped, Unreachable) as error:
                self.close()
                if isinstance(error, Unreachable) and not broke:
                    raise  # it never worked
                now = time.monotonic()
                if not broke or now - begun > STEADY_SECONDS:
                    broke, pause = now, 0.5
                if now - broke > (PATIENCE_SECONDS if patience is None else patience):
                    raise
                say(f"{error.message}; trying again")
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads, hides nothing
                pause = min(30.0, 2 * pause)

    def close(self) -> None:
        """End the connection."""
        while self._transports:
            with contextlib.suppress(OSError, EOFError):
                self._transports.pop().close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- connecting ---------------------------------------------------------------------------------

    def _transport(self) -> Any:
        if self._transports and self._transports[-1].is_active():
            return self._transports[-1]
        self.close()
        _need_paramiko()
        first = Hop.read(self.site.host)
        hop = Hop(first.host, self.site.user or first.user, self.site.port or first.port)
        try:
            return self._reach(settings_of(hop, self.site), None)
        except BaseException:
            self.close()
            raise

    def _reach(self, wanted: Settings, through: Any) -> Any:
        """A host, through those before it; `through` is where its first jump is reached from."""
        for jump in wanted.jumps:
            there = settings_of(jump)
            if (
                through is not None
            ):  # the configuration of the first one alone says how it is reached
                there = replace(there, jumps=(), command=None)
            through = self._reach(there, through)
        wire = self._wire(wanted, through)
        transport = self._handshake(wire, wanted)
        self._transports.append(transport)
        return transport

    def _wire(self, wanted: Settings, through: Any) -> Any:
        """Something that carries bytes to the host."""
        from paramiko import ProxyCommand, SSHException

        place = f"{wanted.host}:{wanted.port}"
        try:
            if through is not None:
                return through.open_channel(
                    "direct-tcpip",
                    (wanted.host, wanted.port),
                    ("127.0.0.1", 0),
                    window_size=WINDOW,
                    timeout=CONNECT_SECONDS,
                )
            if wanted.command:
                return ProxyCommand(wanted.command)
            wire = socket.create_connection((wanted.host, wanted.port), timeout=CONNECT_SECONDS)
        except (SSHException, OSError, EOFError) as error:
            raise Unreachable(
                f"cannot reach {place}: {_told(error)}", remedy=f"does `ssh {self.host}` work?"
            ) from error
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_SECONDS)
        return wire

    def _handshake(self, wire: Any, wanted: Settings) -> Any:
        """SSH over that: keys exchanged, the host known, us let in."""
        import paramiko

        known = KnownHosts(wanted.known_hosts)
        keys = known.keys(wanted.name)
        try:
            transport = paramiko.Transport(wire, default_window_size=WINDOW)
            transport.banner_timeout = transport.auth_timeout = CONNECT_SECONDS
            _prefer(transport, [kind for kind, _ in keys])
            transport.start_client(timeout=CONNECT_SECONDS)
            given = transport.get_remote_server_key()
        except (paramiko.SSHException, OSError, EOFError) as error:
            with contextlib.suppress(OSError):
                wire.close()
            raise Unreachable(
                f"{wanted.host}:{wanted.port} does not speak SSH with us: {_told(error)}",
                remedy=f"does `ssh {self.host}` work?",
            ) from error
        try:
            _check_key(wanted, keys, known, given)
            log_in(transport, wanted, terminal=self._terminal, name=self.host)
        except (paramiko.SSHException, OSError, EOFError) as error:
            transport.close()
            raise Unreachable(f"{wanted.host}: login broke off: {_told(error)}") from error
        except BaseException:
            transport.close()
            raise
        transport.set_keepalive(KEEPALIVE_SECONDS)
        return transport


def _need_paramiko() -> None:
    try:
        import paramiko  # noqa: F401
    except ImportError as error:
        raise EnvironmentFault(
            "a cluster over SSH needs paramiko", remedy=install_hint("ssh")
        ) from error
    # What it logs of dropped connections, we tell; without a handler it would go to standard error.
    logging.getLogger("paramiko").addHandler(logging.NullHandler())


def _prefer(transport: Any, kinds: Sequence[str]) -> None:
    """Ask for the kinds of keys that are known of the host: servers have several."""
    options = transport.get_security_options()
    wanted: list[str] = []
    for kind in kinds:
        wanted += ["rsa-sha2-512", "rsa-sha2-256"] if kind == "ssh-rsa" else [kind]
    offered = [kind for kind in wanted if kind in options.key_types]
    options.key_types = [*offered, *(kind for kind in options.key_types if kind not in offered)]


def _check_key(
    wanted: Settings, keys: Sequence[tuple[str, bytes]], known: KnownHosts, given: Any
) -> None:
    """Whether the host is who it should be."""
    key = given.asbytes()
    plain = wanted.name[1:].partition("]")[0] if wanted.name.startswith("[") else wanted.name
    port = f"-p {wanted.port} " if wanted.port != 22 else ""
    if known.revoked(key):
        raise EnvironmentFault(f"the key of {wanted.name} is revoked: it is not to be trusted")
    if any(key == one for _, one in keys):
        return
    if keys:
        raise EnvironmentFault(
            f"the key of {wanted.name} is not the known one: the host was set up anew, or somebody is in "
            f"between; it is now {given.get_name()} {given.fingerprint}",
            remedy=f"ask its support, then `ssh-keygen -R '{wanted.name}'` and `ssh {port}{plain}` once",
        )
    raise EnvironmentFault(
        f"{wanted.name} is not in known_hosts; its key is {given.get_name()} {given.fingerprint}",
        remedy=f"compare it with what your cluster publishes: `ssh {port}{plain}` once, or "
        f"`ssh-keyscan {port}{plain}`",
    )


def _terminal_size() -> dict[str, int]:
    size = shutil.get_terminal_size()
    return {"width": size.columns, "height": size.lines}


def _told(error: BaseException) -> str:
    """An exception in one line."""
    text = getattr(error, "strerror", None) or str(error) or "it ended"
    return " ".join(str(text).split())


def _last_line(told: bytes) -> str:
    lines = told.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:200] if lines else "it is not there"
