"""The account at the other end of a connection; unknown accounts are dropped before HTTP is read."""

from __future__ import annotations

import ipaddress
import pwd
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = "01"
_UCRED = struct.Struct("3i")

# Of linux/sock_diag.h and linux/inet_diag.h: a query for one connection by its ends, and the answer.
_SOCK_DIAG = 4
_BY_FAMILY = 20
_QUESTION = struct.Struct("=IHHII BBBxI 4s16s16sIII")
_ANSWER = struct.Struct("=IHHII BBxx 4s16s16s24sII")

End = tuple[str, int]
"""Address and port of one end of a connection."""

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The kernel's tables of connections: each end with the account of its process."""


class Unavailable(Exception):
    """This system does not report the account at the other end."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection."""

    uid: int | None
    """Account; None: on another machine, or the system does not report it."""
    address: str
    """Origin: `socket`, or an IP address."""
    proxy: bool = False
    """Whether it is the proxy that the user named: `X-Forwarded-*` headers count only from this proxy."""


@dataclass(frozen=True)
class Doorkeeper:
    """Accepts or drops connections."""

    uid: int
    """Our own account."""
    proxy_uid: int | None = None
    """Account of a reverse proxy on this machine."""
    proxy_addresses: frozenset[str] = frozenset()
    """Addresses of reverse proxies on other machines."""
    warn: Callable[[str], None] = lambda _: None
    """Receives a warning where the check is impossible."""
    tables: tuple[Path, ...] = TABLES
    """The kernel's tables of connections."""

    def judge(self, connection: socket.socket) -> Peer | None:
        """The peer of a connection; None: the connection must be dropped."""
        if connection.family == socket.AF_UNIX:
            return self._known(uid_of_socket(connection), "socket")
        try:
            here, there = connection.getsockname()[:2], connection.getpeername()[:2]
        except OSError:
            return None  # closed already
        address = plain_address(there[0])
        local = ipaddress.ip_address(address).is_loopback or address == plain_address(here[0])
        if not local:
            return Peer(None, address, proxy=True) if address in self.proxy_addresses else None
        try:
            uid = uid_of_loopback(here, there, self.tables)
        except Unavailable as error:
            self.warn(
                f"cannot determine the account of a connection ({error}): only "
                "codes and tokens protect the portal from other users of this host"
            )
            return Peer(None, address)
        return None if uid is None else self._known(uid, address)

    def _known(self, uid: int, address: str) -> Peer | None:
        proxy = uid == self.proxy_uid
        return Peer(uid, address, proxy) if proxy or uid == self.uid else None


def uid_of_socket(connection: socket.socket) -> int:
    """Account of the process that connected to a Unix socket."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(found)[1])


def uid_of_loopback(here: End, there: End, tables: tuple[Path, ...] = TABLES) -> int | None:
    """Account of the process at the other end of a TCP connection within this machine.

    The kernel is queried for this one connection first, which takes 0.03 ms: reading the table of all
    connections takes milliseconds, and strangers could cause a read as often as they can connect.

    Args:
        here: our end.
        there: the other end.
        tables: the kernel's tables of connections.

    Returns:
        The account; None: no process holds the other end any more.

    Raises:
        Unavailable: the tables cannot be read.
    """
    uid = _asked_for(here, there) if tables is TABLES else None
    return _looked_up(here, there, tables) if uid is None else uid


def _asked_for(here: End, there: End) -> int | None:
    """The account, if the kernel answers a query for a single connection; None: read the tables."""
    mine, other = (ipaddress.ip_address(end[0].split("%")[0]) for end in (here, there))
    if mine.version != other.version:
        return None
    family = socket.AF_INET if other.version == 4 else socket.AF_INET6
    ends = (other.packed.ljust(16, b"\0"), mine.packed.ljust(16, b"\0"))
    question = _QUESTION.pack(
        _QUESTION.size, _BY_FAMILY, 1, 0, 0, family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF,
        struct.pack("!HH", there[1], here[1]), *ends, 0, 0xFFFFFFFF, 0xFFFFFFFF,
    )  # fmt: skip
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(0.5)
            kernel.send(question)
            reply = kernel.recv(4096)
    except OSError:
        return None
    if len(reply) < _ANSWER.size:
        return None
    _, kind, _, _, _, _, state, ports, *found, _, uid, inode = _ANSWER.unpack_from(reply)
    same = kind == _BY_FAMILY and ports == struct.pack("!HH", there[1], here[1])
    # Without a match, the kernel may report a listener; a connection that its process closed has no inode.
    if not same or tuple(found) != ends or state != int(_ESTABLISHED) or inode == 0:
        return None
    return int(uid)


def _looked_up(here: End, there: End, tables: tuple[Path, ...]) -> int | None:
    wanted = {
        (_in_table(there, six), _in_table(here, six)) for six in (False, True)
        if six or ":" not in there[0]
    }  # fmt: skip
    texts = []
    for table in tables:
        try:
            texts.append(table.read_text(encoding="ascii", errors="replace"))
        except OSError as error:
            if table == tables[0]:
                raise Unavailable(f"{table}: {error.strerror}") from None
    for text in texts:
        for line in text.splitlines()[1:]:
            fields = line.split(maxsplit=10)
            if len(fields) < 10 or (fields[1], fields[2]) not in wanted:
                continue
            # The table shows a connection that its process has closed (inode 0) as root's.
            if fields[3] == _ESTABLISHED and fields[9] != "0":
                return int(fields[7])
    return None


def plain_address(address: str) -> str:
    """An address without its zone; an IPv4-mapped IPv6 address as IPv4."""
    found = ipaddress.ip_address(address.split("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def _in_table(end: End, six: bool) -> str:
    """An end in the notation of the tables: 32-bit words in the machine's order, the port in hexadecimal."""
    packed = ipaddress.ip_address(end[0].split("%")[0]).packed
    if six and len(packed) == 4:
        packed = b"\0" * 10 + b"\xff\xff" + packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"


def account(name: str) -> int:
    """The number of an account, from its name or number.

    Raises:
        KeyError: no account has this name.
    """
    return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
