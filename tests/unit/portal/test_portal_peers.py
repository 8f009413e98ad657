"""Rule 3: other accounts are dropped before HTTP, on the socket and on the port. A second Unix user tries."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.portal import peer_accounts
from hpcbench.portal.peer_accounts import Doorkeeper, Peer
from tests.unit.portal.served import served

STRANGER = 65534
"""Number of the account `nobody`."""

OURS = os.geteuid()

CALL = """
import socket, sys
where = sys.argv[1]
if where.startswith("/"):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(where)
else:
    host, port = where.rsplit(":", 1)
    line = socket.create_connection((host, int(port)))
line.settimeout(20)
got = b""
try:
    line.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    while part := line.recv(65536):
        got += part
except (ConnectionResetError, BrokenPipeError):
    pass
sys.stdout.buffer.write(got)
"""

as_root = pytest.mark.skipif(OURS != 0, reason="only root can be somebody else")


def call(where: str, uid: int = OURS) -> bytes:
    """Answer of the portal to an account."""
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid != OURS else []
    found = subprocess.run(
        [*user, sys.executable, "-I", "-c", CALL, where], cwd="/", capture_output=True, timeout=60
    )
    assert found.returncode == 0, found.stderr.decode()
    return found.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can enter; pytest closes its own again when a further pytest starts."""
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


READ = tuple(list(peer_accounts.TABLES))
"""The same tables, but read: the kernel is not asked for one connection first."""


@as_root
@pytest.mark.parametrize("tables", [peer_accounts.TABLES, READ])
def test_a_stranger_gets_not_one_byte(open_folder: Path, tables: tuple[Path, ...]) -> None:
    with served(open_folder, doorkeeper=Doorkeeper(OURS, tables=tables)) as portal:
        portal.socket.chmod(0o777)  # the check of the peer is left
        for where in (str(portal.socket), f"127.0.0.1:{portal.port}"):
            assert call(where, STRANGER) == b"", where
            assert call(where).startswith(b"HTTP/1.1 200 OK"), "the user himself gets in"


@as_root
def test_the_proxys_account_gets_in_where_the_user_named_it(open_folder: Path) -> None:
    with served(open_folder, doorkeeper=Doorkeeper(OURS, proxy_uid=STRANGER)) as portal:
        portal.socket.chmod(0o777)  # the check of the peer is left
        for where in (str(portal.socket), f"127.0.0.1:{portal.port}"):
            assert call(where, STRANGER).startswith(b"HTTP/1.1 200 OK"), where
            assert call(where, STRANGER - 1) == b"", "and no third one"


def test_the_other_end_of_a_connection_is_found_by_either_protocol() -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            server = socket.create_server((address, 0), family=family)
        except OSError:
            continue  # a machine without IPv6
        with server, socket.create_connection(server.getsockname()[:2]):
            taken, _ = server.accept()
            with taken:
                ends = taken.getsockname()[:2], taken.getpeername()[:2]
                assert peer_accounts._looked_up(*ends, peer_accounts.TABLES) == OURS
                assert peer_accounts._asked_for(*ends) in {OURS, None}, (
                    "where the kernel answers, the same"
                )
                assert Doorkeeper(OURS).judge(taken) == Peer(OURS, address)
                assert Doorkeeper(OURS + 1).judge(taken) is None


def test_an_end_that_no_process_has_is_not_its_listeners() -> None:
    """Asked for a connection that is none, the kernel may tell of who listens on that port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here, there = server.getsockname(), ("127.0.0.1", 1)
        assert peer_accounts.uid_of_loopback(there, here) is None
        assert peer_accounts.uid_of_loopback(here, there) is None


def test_answers_leave_at_once(tmp_path: Path) -> None:
    """Without it each answer waits 40 ms for the receipt of the one before."""

    class Spy(Doorkeeper):
        def judge(self, connection: socket.socket) -> Peer | None:
            seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            return super().judge(connection)

    seen: list[int] = []
    with served(tmp_path, doorkeeper=Spy(OURS)) as portal:
        portal.get("/healthz")
    assert seen
    assert all(seen)


def test_ipv4_through_ipv6_is_found_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as line:
            try:
                line.connect(("::ffff:127.0.0.1", port))
            except OSError:
                pytest.skip("no IPv6 here")
            taken, _ = server.accept()
            with taken:
                assert Doorkeeper(OURS).judge(taken) == Peer(OURS, "127.0.0.1")


def test_a_client_that_has_hung_up_already_is_no_user() -> None:
    """The kernel shows such an end as root's: a portal of root's must not believe it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = socket.create_connection(server.getsockname())
        taken, _ = server.accept()
        with taken:
            line.close()
            assert Doorkeeper(OURS).judge(taken) is None
            assert Doorkeeper(0).judge(taken) is None


def table(tmp_path: Path, line: str) -> tuple[Path, ...]:
    path = tmp_path / "tcp"
    path.write_text("  sl  local_address rem_address   st\n" + line + "\n")
    return (path,)


@pytest.mark.parametrize(
    ("state", "inode", "found"), [("01", "4711", 1234), ("06", "4711", None), ("01", "0", None)]
)
def test_only_a_live_end_counts(tmp_path: Path, state: str, inode: str, found: int | None) -> None:
    def end(port: int) -> str:
        return f"{struct.unpack('=I', socket.inet_aton('127.0.0.1'))[0]:08X}:{port:04X}"

    line = (
        f"0: {end(5000)} {end(80)} {state} 00000000:00000000 00:00000000 00000000 1234 0 {inode} 1"
    )
    uid = peer_accounts.uid_of_loopback(
        ("127.0.0.1", 80), ("127.0.0.1", 5000), table(tmp_path, line)
    )
    assert uid == found
    other = peer_accounts.uid_of_loopback(
        ("127.0.0.1", 81), ("127.0.0.1", 5000), table(tmp_path, line)
    )
    assert other is None, "another connection of the same port"


@pytest.mark.long
def test_where_the_system_does_not_tell_there_is_a_warning_and_the_token(tmp_path: Path) -> None:
    warned: list[str] = []
    doorkeeper = Doorkeeper(OURS, warn=warned.append, tables=(tmp_path / "none",))
    with served(tmp_path, doorkeeper=doorkeeper) as portal:
        assert portal.ask("GET", "/api/v1/session").status == 401
        assert portal.get("/api/v1/session").status == 200
    assert "cannot determine the account of a connection" in warned[0]


def test_a_table_without_the_connection_closes_the_door(tmp_path: Path) -> None:
    doorkeeper = Doorkeeper(OURS, tables=table(tmp_path, ""))
    with served(tmp_path, doorkeeper=doorkeeper) as portal:
        assert portal.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""


def own_address() -> str | None:
    """An address of this machine other than the loopback's; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(line.getsockname()[0])


class _Line:
    """A connection from another machine, as the doorkeeper sees it."""

    family = socket.AF_INET

    def __init__(self, there: str) -> None:
        self._there = there

    def getsockname(self) -> tuple[str, int]:
        return ("10.0.0.5", 8080)

    def getpeername(self) -> tuple[str, int]:
        return (self._there, 40000)


def test_of_other_machines_only_the_named_proxy_gets_in() -> None:
    doorkeeper = Doorkeeper(OURS, proxy_addresses=frozenset({"10.0.0.7"}))
    assert doorkeeper.judge(_Line("10.0.0.7")) == Peer(None, "10.0.0.7", proxy=True)  # type: ignore[arg-type]
    assert doorkeeper.judge(_Line("10.0.0.8")) is None  # type: ignore[arg-type]
    assert Doorkeeper(OURS).judge(_Line("10.0.0.7")) is None  # type: ignore[arg-type]


def test_this_machine_by_its_own_address_is_asked_for_its_account() -> None:
    address = own_address()
    if address is None:
        pytest.skip("no network here")
    with (
        socket.create_server((address, 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        taken, _ = server.accept()
        with taken:
            doorkeeper = Doorkeeper(OURS, proxy_addresses=frozenset({address}))
            assert doorkeeper.judge(taken) == Peer(OURS, address), "not taken for the proxy"
            assert Doorkeeper(OURS + 1).judge(taken) is None
