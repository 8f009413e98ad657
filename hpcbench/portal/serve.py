"""The portal's process: one worker with few resources of the login node, from start to end."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import ipaddress
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

import hpcbench
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.files.flock import locked
from hpcbench.portal import own_memory, peer_accounts, runtime_dir
from hpcbench.portal.access_tokens import Desk, Tokens, owner_token
from hpcbench.portal.addresses import how_to_reach, real_host, tunnel_line
from hpcbench.portal.app import build
from hpcbench.portal.audit_log import Journal
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.follower import Follower
from hpcbench.portal.guard import LARGEST_BODY, Access
from hpcbench.portal.index import IndexFault, open_index
from hpcbench.portal.local_client import Caller
from hpcbench.portal.protocol import guarded_http, web_socket_protocol
from hpcbench.schema.outputs import Database

MEMORY = 1_000_000_000
"""Bytes of memory at which the portal ends itself; it needs a third of that with ten million samples."""

CROWDED = 0.85
"""Share of its memory above which it accepts no more work until memory is free again."""

NICE = 10
"""Niceness: all other processes of the host go first."""

BACKLOG = 64
"""Connections that wait to be accepted."""

FIRST_SECONDS = 0.5
"""Delay of all other work after the start: the first page shows the index's entries at once."""

GRACE_SECONDS = 3
"""Requests in progress may take so long when the portal ends."""

REST_SECONDS = 5.0
"""Seconds without a request and without an experiment to read after which unused memory is returned."""

BUSY_SECONDS = 60.0
"""Seconds of constant work after which unused memory is returned, too."""


@dataclass(frozen=True)
class Settings:
    """Settings of the portal's process, from the user."""

    home: Path
    """Folder of experiments and caches."""
    options: Options
    """Options of the routes."""
    site: str = ""
    """Name of the cluster; empty: unknown."""
    index: str | None = None
    """Database of the index; None: SQLite on a local disk."""
    database: Database | None = None
    """Database of results; None: the site profile names none."""
    tcp: bool = False
    """Whether it listens on a port, too."""
    port: int | None = None
    """The port; None: a free one."""
    listen: str = "127.0.0.1"
    """Address of that port."""
    proxy_user: str | None = None
    """Account of a reverse proxy on this host."""
    proxy_addresses: tuple[str, ...] = ()
    """Addresses of reverse proxies on other hosts."""
    idle_hours: float = 8.0
    """Hours without a request after which it ends."""
    keep: bool = False
    """Whether the command line's token stays the same across starts."""


def run(settings: Settings, tell: Callable[[str], None]) -> int:
    """Serve until stopped, idle for too long, or too large.

    Args:
        settings: settings of the process.
        tell: prints a line for the user.

    Returns:
        The exit code.

    Raises:
        UserError, EnvironmentFault: it cannot start with these settings.
    """
    os.umask(0o077)
    check(settings)
    here = runtime_dir.find()
    if (why := runtime_dir.refused()) is not None:
        tell(f"{why}: the portal's socket is in {here.folder} instead")
    with locked(here.lock) as free:
        if not free:
            return 1 if _running_already(here, tell) is None else 0
        _be_modest()
        return _Process(settings, here, tell).run()


def check(settings: Settings) -> None:
    """Refuse settings that would let other users in.

    Raises:
        UserError: a setting is not valid, or would let other users in.
    """
    try:
        address = ipaddress.ip_address(settings.listen)
        for one in settings.proxy_addresses:
            ipaddress.ip_address(one)
    except ValueError as error:
        raise UserError(str(error), remedy="give an IP address, such as 127.0.0.1") from None
    if not address.is_loopback and not settings.proxy_addresses:
        raise UserError(
            f"--listen {settings.listen} would open the portal to the network",
            remedy="leave --listen out and use the ssh line; behind a proxy on another host (Open OnDemand) "
            "add --proxy-address, the only address that may then connect",
        )
    if (settings.port is not None or not address.is_loopback) and not settings.tcp:
        raise UserError("--port and --listen need --tcp", remedy="add --tcp")
    prefix = settings.options.root_path
    if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
        raise UserError(
            f"--root-path {prefix} is not a path", remedy="give a path such as /node/login03/8080"
        )


def _running_already(here: runtime_dir.RuntimeDir, tell: Callable[[str], None]) -> int:
    caller = Caller.find(here)
    if caller is None:
        tell("your portal is starting or ending on this host; try again in a moment")
        return 1
    tell(f"your portal already runs on this host (pid {caller.state['pid']}):")
    tell(how_to_reach(caller.state, caller.code()))
    return 0


def _be_modest() -> None:
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) < NICE:
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
    own_memory.share_heaps()
    # polars reads this at its first import: by default it takes one thread for each core of the login node.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")


class _Process:
    """State of one start of the portal."""

    def __init__(
        self, settings: Settings, here: runtime_dir.RuntimeDir, tell: Callable[[str], None]
    ) -> None:
        self.settings, self.here, self.tell = settings, here, tell
        records = runtime_dir.records()
        self.host = socket.gethostname()
        self.journal = Journal(records, re.sub(r"[^A-Za-z0-9.-]", "_", self.host))
        self.desk = Desk(
            owner_token(here.token, keep=settings.keep), Tokens(records / "tokens.json")
        )
        self.access = Access(self.desk, self.journal, self._hosts())
        self.why: EnvironmentFault | None = None

    def run(self) -> int:
        """Serve; returns the exit code."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.journal.close)
            sockets = [stack.enter_context(listening(self.here))]
            port = None
            if self.settings.tcp:
                sockets.append(tcp := listening_tcp(self.settings.listen, self.settings.port))
                stack.callback(tcp.close)
                port = tcp.getsockname()[1]
            state = self._state(port)
            portal = self._portal(stack, str(state["tunnel"]))
            app = build(portal, self.access)
            server = _Server(self._config(app), portal.hub)
            follower = Follower(portal, self.tell)
            stack.callback(follower.stop)
            runtime_dir.write_state(self.here, state)
            stack.callback(self.here.state.unlink, missing_ok=True)
            self.tell(how_to_reach(state, self.desk.sessions.code()))
            own_memory.collect_little()
            asyncio.run(self._serve(server, portal, follower, sockets))
        if self.why is not None:
            raise self.why
        self.tell("the portal has ended")
        return 0

    def _portal(self, stack: contextlib.ExitStack, tunnel: str) -> Portal:
        try:
            index = open_index(self.settings.index, self.settings.home)
        except IndexFault as fault:
            raise EnvironmentFault(
                f"the index cannot be opened: {fault}", remedy="leave --index out"
            ) from None
        stack.callback(index.close)
        return Portal(
            self.settings.home, self.settings.options, index, Hub(), tunnel, self.settings.database
        )

    def _hosts(self) -> frozenset[str]:
        """Host names that a proxy may send; without a proxy, only names of the loopback are valid."""
        if not (self.settings.proxy_user or self.settings.proxy_addresses):
            return frozenset()
        names = {self.host, self.host.split(".")[0], real_host(), self.settings.listen}
        return frozenset(name.lower() for name in names)

    def _state(self, port: int | None) -> dict[str, Any]:
        settings = self.settings
        state = {
            "pid": os.getpid(),
            "host": real_host(),
            "user": getpass.getuser(),
            "site": settings.site,
            "version": hpcbench.__version__,
            "home": str(settings.home),
            "started": time.time(),
            "socket": str(self.here.socket),
            "port": port,
            "listen": settings.listen,
            "root_path": settings.options.root_path,
            "may_edit": settings.options.may_edit,
            "may_submit": settings.options.may_submit,
            "idle_hours": settings.idle_hours,
            "log": str(self.journal.log),
        }
        return {**state, "tunnel": tunnel_line(state)}

    def _config(self, app: Any) -> uvicorn.Config:
        user = self.settings.proxy_user
        doorkeeper = peer_accounts.Doorkeeper(
            uid=os.geteuid(),
            proxy_uid=_account(user) if user else None,
            proxy_addresses=frozenset(
                map(peer_accounts.plain_address, self.settings.proxy_addresses)
            ),
            warn=_once(self.journal.warn, self.tell),
        )
        for name in ("uvicorn", "hpcbench", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [_ToJournal(self.journal)]
            logger.setLevel(logging.WARNING)
            logger.propagate = False
        return uvicorn.Config(
            app,
            http=guarded_http(doorkeeper),
            ws=web_socket_protocol(),  # type: ignore[arg-type]
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            workers=1,
            backlog=BACKLOG,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ws_max_size=LARGEST_BODY,
            ws_max_queue=4,
        )

    async def _serve(
        self, server: _Server, portal: Portal, follower: Follower, sockets: list[socket.socket]
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # `nohup` requests that the process survives the end of its terminal.
            if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
                loop.add_signal_handler(number, server.stop)
        watching = asyncio.ensure_future(self._watch(server, portal, follower))
        try:
            await server.serve(sockets=sockets)
        finally:
            watching.cancel()

    async def _watch(self, server: _Server, portal: Portal, follower: Follower) -> None:
        """Start the follower after the portal; end a portal that is unused, or that has grown too large."""
        idle = self.settings.idle_hours * 3600
        await asyncio.sleep(min(FIRST_SECONDS, idle))
        follower.start()
        given = portal.used
        while not server.should_exit:
            await asyncio.sleep(min(1.0, idle))
            now = time.monotonic()
            worked = max(portal.used, follower.worked)
            if given < worked and (worked < now - REST_SECONDS or given < now - BUSY_SECONDS):
                own_memory.give_back()
                given = now
            used = own_memory.resident()
            if used > CROWDED * MEMORY:
                own_memory.give_back(thoroughly=True)
                used = own_memory.resident()
            self.access.crowded = used > CROWDED * MEMORY
            if used > MEMORY:
                text = f"the portal stopped itself: it used {used / 1e9:.1f} GB of memory"
                self.why = EnvironmentFault(
                    text, remedy=f"start it again, and report this with {self.journal.log}"
                )
                self.journal.warn(text)
                server.stop()
            if time.monotonic() - portal.used > idle:
                self.tell(f"the portal stops: it got no request for {self.settings.idle_hours:g} h")
                server.stop()


class _Server(uvicorn.Server):
    """uvicorn's server; it ends its streams first, and leaves signals to us."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    def stop(self) -> None:
        """Shut down in order; at a second call, at once."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Our handlers are set; uvicorn's would end the process by the signal, before the clean-up."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all streams, then everything else."""
        self._hub.close()
        await super().shutdown(sockets)


class _ToJournal(logging.Handler):
    """Writes messages of uvicorn and of our own packages to the portal's log."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record; never raises."""
        self._journal.warn(f"{record.name}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            self._journal.bug(record.name, record.exc_info[1])


@contextlib.contextmanager
def listening(here: runtime_dir.RuntimeDir) -> Iterator[socket.socket]:
    """The portal's Unix socket, which only its user may open; it is removed at the end.

    The lock must be held: an existing socket is then a leftover.
    """
    here.socket.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        made.bind(str(here.socket))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise EnvironmentFault(f"{here.socket}: {error.strerror}") from None
    finally:
        os.umask(before)
    try:
        yield made
    finally:
        made.close()
        here.socket.unlink(missing_ok=True)


def listening_tcp(address: str, port: int | None) -> socket.socket:
    """A socket on a port; a busy port is never replaced by another: the user's tunnel leads to it.

    Raises:
        EnvironmentFault: it is busy, or not permitted.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # With an explicit protocol asyncio disables Nagle's algorithm, which delays an answer by 40 ms.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address, port or 0))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise EnvironmentFault(
            f"port {port} of {address}: {(error.strerror or str(error)).lower()}",
            remedy="another user may listen there: do not open it; leave --port out to get a free port",
        ) from None
    return made


def _account(name: str) -> int:
    try:
        return peer_accounts.account(name)
    except KeyError:
        raise UserError(
            f"--proxy-user {name}: there is no such account",
            remedy="give an account of this host",
        ) from None


def _once(*receivers: Callable[[str], None]) -> Callable[[str], None]:
    """Passes each text on once."""
    seen: set[str] = set()

    def tell(text: str) -> None:
        if text not in seen:
            seen.add(text)
            for one in receivers:
                one(text)

    return tell
