"""SFTP: `sftp://[USER@]HOST[:PORT]/FOLDER`, over the `ssh` program of this machine.

Each channel logs in separately, so that several encrypt in parallel, unless the user has a ControlMaster for
the host. The protocol is version 3 (draft-ietf-secsh-filexfer-02), which every server supports. Many requests
are in flight at once, so neither latency nor a million small files cost much (docs/decisions/0015). `/~/`
at the start of the folder is the home folder on the server.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import stat
import struct
import subprocess
import sys
import tempfile
import weakref
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BaseModel

from hpcbench import secret
from hpcbench.data.storage import CHANGED
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import StoredFile
from hpcbench.ssh.login import Host, Refused, subsystem

REQUEST = 32768
"""Bytes of one read or write that every server accepts."""

LARGEST = 255 << 10
"""Most bytes of one read or write, for servers that announce a higher limit."""

READ_AHEAD = 64 << 10
"""Bytes read beyond the awaited reply: many small replies come together."""

WINDOW = 64
"""Number of requests in flight at once."""

SILENCE = 60.0
"""A server that does not reply for this many seconds counts as gone."""

# Kinds of packets: of requests, then of replies.
INIT, OPEN, CLOSE, READ, WRITE, FSTAT, OPENDIR, READDIR, REMOVE, MKDIR, STAT, RENAME, EXTENDED = (
    1, 3, 4, 5, 6, 8, 11, 12, 13, 14, 17, 18, 200,
)  # fmt: skip
STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED_REPLY = 101, 102, 103, 104, 105, 201

FOR_READING, FOR_A_NEW_FILE = 0x01, 0x02 | 0x08 | 0x10  # WRITE | CREAT | TRUNC

AT_END = 1
REFUSED: Mapping[int, type[OSError]] = {2: FileNotFoundError, 3: PermissionError}
"""Codes of STATUS for errors that a retry does not solve."""

ResultT = TypeVar("ResultT")


class SftpStorage:
    """Files of another machine."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 2

    class Options(BaseModel, extra="forbid", frozen=True):
        """Settings that `~/.ssh/config` does not have."""

        key: str | None = None
        """File with the private key."""
        password: str | None = None
        """Password, or that of the key; a reference."""
        known_hosts: str | None = None
        """File with host keys beside `~/.ssh/known_hosts`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = self.Options.model_validate(dict(options))
        self._idle: dict[str, deque[_Channel]] = defaultdict(deque)

    def list(self, url: str) -> Iterator[StoredFile]:
        """Yield every file below the folder, without hidden ones; links to files are followed."""
        top, waiting = _folder(url), [""]
        with self._channel(url) as channel:
            while waiting:
                below = waiting.pop()
                for name, found in channel.one(_listing(f"{top}/{below}")):
                    path = f"{top}/{below}{name}"
                    if name.startswith("."):
                        continue
                    if stat.S_ISLNK(found.mode):
                        found = channel.one(_stat(path))
                        if stat.S_ISDIR(found.mode):
                            continue  # it may be circular
                    if stat.S_ISDIR(found.mode):
                        waiting.append(f"{below}{name}/")
                    elif stat.S_IFMT(found.mode) in (
                        stat.S_IFREG,
                        0,
                    ):  # 0: the server sends none
                        yield StoredFile(below + name, found.size, found.mark)
                    else:
                        raise PermissionError(f"{path} is not a file, but a pipe, socket or device")

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        """Yield bytes of one file."""
        path = f"{_folder(url)}/{file.path}"
        with self._channel(url) as channel:
            handle = channel.one(_open(path, FOR_READING))
            step = channel.request
            wanted = (
                _read(path, handle, at, min(step, stop - at)) for at in range(start, stop, step)
            )
            early: dict[int, bytes] = {}
            last = b""
            # Closed before the channel is given back: unanswered requests end the channel.
            with contextlib.closing(channel.run(wanted)) as pieces:
                for at, piece in pieces:  # in any order
                    early[at] = piece
                    while start in early:
                        piece = early.pop(start)
                        start += len(piece)
                        if start < stop:
                            yield piece
                        else:
                            last = piece  # held back until the file is known to be unchanged
            channel.one(_end_reading(path, handle, file))
        yield last

    def many(self, url: str, files: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, bytes]]:
        """Yield many small files, whole, in any order."""
        top = _folder(url)
        with self._channel(url) as channel:
            for window, low, high in (
                (4 * WINDOW, -1, REQUEST),
                (WINDOW // 4, REQUEST, sys.maxsize),
            ):
                chosen = (file for file in files if low < file.size <= high)
                yield from channel.run(
                    (_whole(f"{top}/{file.path}", file) for file in chosen), window
                )

    def put(self, source: Path, url: str, path: str) -> None:
        """Write one file under a temporary name beside its place, then rename it."""
        place = f"{_folder(url)}/{path}"
        parts = place.split("/")
        temporary = f"{'/'.join(parts[:-1])}/.{parts[-1]}.{secrets.token_hex(4)}.tmp"
        with self._channel(url) as channel:
            for depth in range(2, len(parts)):
                with contextlib.suppress(OSError):  # it exists, or the next step reports the error
                    channel.one(_mkdir("/".join(parts[:depth])))
            try:
                handle = channel.one(_open(temporary, FOR_A_NEW_FILE))
                with source.open("rb") as opened:
                    step = channel.request
                    pieces = enumerate(iter(lambda: opened.read(step), b""))
                    writes = (_write(handle, number * step, piece) for number, piece in pieces)
                    for _ in channel.run(writes):
                        pass
                channel.one(_close(handle))
                channel.one((_rename if channel.renames_over else _replace)(temporary, place))
            except BaseException:
                with contextlib.suppress(OSError):
                    channel.one(_remove(temporary))
                raise

    @contextlib.contextmanager
    def _channel(self, url: str) -> Iterator[_Channel]:
        """Yield a connection to a host, exclusive to this thread while inside."""
        host = urlsplit(url).netloc
        channel = self._used_before(host) or _Channel(
            self._host(urlsplit(url)), self._options.password
        )
        try:
            yield channel
        finally:
            if not channel.broken:
                self._idle[host].append(channel)

    def _used_before(self, host: str) -> _Channel | None:
        """An idle connection that still works, if there is one."""
        while True:
            try:
                channel = self._idle[host].pop()
            except IndexError:
                return None
            if not channel.broken:
                return channel

    def _host(self, parts: SplitResult) -> Host:
        """The host of a URL, with its options."""
        name, user = parts.hostname or "", parts.username
        if not name or name.startswith("-"):
            raise PermissionError(f"{parts.netloc!r} is not a host name")
        return Host(
            name,
            unquote(user) if user else None,
            parts.port,
            identity=self._options.key,
            known_hosts=self._options.known_hosts,
        )


# --- requests ------------------------------------------------------------------------------------------
#
# A task is a generator: it yields requests, receives the reply to each, and returns a result.

Request = tuple[int, bytes]
Reply = tuple[int, memoryview]
Task = Generator[Request, Reply, ResultT]


@dataclass(frozen=True, slots=True)
class _Attributes:
    size: int
    mode: int
    mtime: int

    @property
    def mark(self) -> str:
        return f"{self.mtime}-{self.size}"


def _open(path: str, flags: int) -> Task[bytes]:
    kind, body = yield OPEN, _text(path) + struct.pack(">II", flags, 0)
    return _expect(HANDLE, kind, body, path).tobytes()


def _close(handle: bytes) -> Task[None]:
    kind, body = yield CLOSE, handle
    _expect(STATUS, kind, body, "closing")


def _end_reading(path: str, handle: bytes, file: StoredFile) -> Task[None]:
    """Close a file after reading, and check that it is unchanged since the listing."""
    kind, body = yield FSTAT, handle
    found = _attributes(_expect(ATTRS, kind, body, path), 0)[0]
    yield from _close(handle)
    if file.mark not in ("", found.mark):
        raise OSError(f"{path} {CHANGED}")


def _read(path: str, handle: bytes, at: int, size: int, beyond: int = 0) -> Task[tuple[int, bytes]]:
    """Read a piece of a file; up to `beyond` bytes more if the file has them.

    Servers may give fewer bytes than requested.
    """
    pieces, got = [], 0
    while got < size:
        kind, body = yield READ, handle + struct.pack(">QI", at + got, size - got + beyond)
        if kind == STATUS and _code(body) == AT_END:
            raise OSError(f"{path} became shorter")
        pieces.append(_expect(DATA, kind, body, path)[4:].tobytes())
        got += len(pieces[-1])
    return at, pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _whole(path: str, file: StoredFile) -> Task[tuple[StoredFile, bytes]]:
    handle = yield from _open(path, FOR_READING)
    if file.size < REQUEST:  # one reply has one state of the file, unless it has grown
        _, data = yield from _read(path, handle, 0, file.size, beyond=1)
        yield from _close(handle)
        if len(data) > file.size:
            raise OSError(f"{path} {CHANGED}")
        return file, data
    pieces = []
    for at in range(0, file.size, REQUEST):
        _, piece = yield from _read(path, handle, at, min(REQUEST, file.size - at))
        pieces.append(piece)
    yield from _end_reading(path, handle, file)
    return file, b"".join(pieces)


def _write(handle: bytes, at: int, data: bytes) -> Task[None]:
    kind, body = yield WRITE, handle + struct.pack(">QI", at, len(data)) + data
    _expect(STATUS, kind, body, "writing")


def _stat(path: str) -> Task[_Attributes]:
    kind, body = yield STAT, _text(path)
    return _attributes(_expect(ATTRS, kind, body, path), 0)[0]


def _mkdir(path: str) -> Task[None]:
    kind, body = yield MKDIR, _text(path) + struct.pack(">I", 0)
    _expect(STATUS, kind, body, path)


def _remove(path: str) -> Task[None]:
    kind, body = yield REMOVE, _text(path)
    _expect(STATUS, kind, body, path)


def _rename(path: str, place: str) -> Task[None]:
    """Rename over an existing file, as in POSIX: OpenSSH's extension."""
    kind, body = yield EXTENDED, _text("posix-rename@openssh.com") + _text(path) + _text(place)
    _expect(STATUS, kind, body, place)


def _replace(path: str, place: str) -> Task[None]:
    """`_rename` for servers without the extension: for a moment no file exists, but never half a file."""
    with contextlib.suppress(FileNotFoundError):
        yield from _remove(place)
    kind, body = yield RENAME, _text(path) + _text(place)
    _expect(STATUS, kind, body, place)


def _limits() -> Task[tuple[int, int]]:
    """Most bytes of a read and of a write: OpenSSH's extension."""
    kind, body = yield EXTENDED, _text("limits@openssh.com")
    _, read, write, _ = struct.unpack(">QQQQ", _expect(EXTENDED_REPLY, kind, body, "limits")[:32])
    return read or REQUEST, write or REQUEST


def _listing(path: str) -> Task[list[tuple[str, _Attributes]]]:
    kind, body = yield OPENDIR, _text(path)
    handle = _expect(HANDLE, kind, body, path).tobytes()
    found: list[tuple[str, _Attributes]] = []
    while True:
        kind, body = yield READDIR, handle
        if kind == STATUS and _code(body) == AT_END:
            break
        body = _expect(NAME, kind, body, path)
        at = 4
        for _ in range(_number(body, 0)):
            name, at = _string(body, at)
            _, at = _string(body, at)  # the line of `ls -l`
            attributes, at = _attributes(body, at)
            found.append((os.fsdecode(name), attributes))
    yield from _close(handle)
    return found


def _expect(wanted: int, kind: int, body: memoryview, what: str) -> memoryview:
    """The body of a reply of the expected kind.

    Raises:
        OSError: the reply is a refusal, or of another kind.
    """
    code = _code(body) if kind == STATUS else -1
    if kind == wanted and code <= 0:
        return body
    if kind != STATUS:
        raise OSError(f"{what}: the server's answer is not valid SFTP")
    message = bytes(_string(body, 4)[0]).decode("utf-8", "replace") or f"code {code}"
    raise REFUSED.get(code, OSError)(f"{what}: {message}")


def _code(body: memoryview) -> int:
    return _number(body, 0)


def _number(body: memoryview, at: int) -> int:
    return int.from_bytes(body[at : at + 4], "big")


def _string(body: memoryview, at: int) -> tuple[bytes, int]:
    end = at + 4 + _number(body, at)
    return body[at + 4 : end].tobytes(), end


def _text(text: str) -> bytes:
    data = os.fsencode(text)
    return struct.pack(">I", len(data)) + data


def _attributes(body: memoryview, at: int) -> tuple[_Attributes, int]:
    flags, at = _number(body, at), at + 4
    size = mode = mtime = 0
    if flags & 0x1:
        size, at = int.from_bytes(body[at : at + 8], "big"), at + 8
    if flags & 0x2:  # owner and group
        at += 8
    if flags & 0x4:
        mode, at = _number(body, at), at + 4
    if flags & 0x8:  # times of access and change
        mtime, at = _number(body, at + 4), at + 8
    if flags & 0x80000000:
        count, at = _number(body, at), at + 4
        for _ in range(2 * count):
            _, at = _string(body, at)
    return _Attributes(size, mode, mtime), at


# --- the connection ------------------------------------------------------------------------------------


class _Channel:
    """An `ssh` process with an SFTP connection, used by one thread."""

    def __init__(self, host: Host, password: str | None) -> None:
        self._host = host.name
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
        with contextlib.ExitStack() as stack:
            try:
                process, self._login = stack.enter_context(
                    subsystem(host, "sftp", password, self._errors)
                )
            except EnvironmentFault:
                self._errors.close()
                raise
            assert process.stdin is not None
            assert process.stdout is not None
            self._process, self._out = process, process.stdin
            self._in = process.stdout.fileno()
            self._end = weakref.finalize(self, _end, process, self._errors)
            self._poll = select.poll()
            self._poll.register(self._in, select.POLLIN)
            with contextlib.suppress(OSError):  # for several large replies at once
                fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, 1 << 20)
            self._ahead = memoryview(b"")
            self._asked = 0
            self._ready = False
            self._send(struct.pack(">BI", INIT, 3))
            _, _, extensions = self._packet()  # after this `ssh` asks no more questions
            self._ready = True
            self.request = REQUEST
            self.renames_over = b"posix-rename@openssh.com" in extensions.tobytes()
            if b"limits@openssh.com" in extensions.tobytes():
                self.request = min(LARGEST, *self.one(_limits()))

    @property
    def broken(self) -> bool:
        """Whether the channel can no longer be used."""
        return not self._end.alive or self._process.poll() is not None

    def one(self, task: Task[ResultT]) -> ResultT:
        """Run one task and return its result.

        Raises:
            OSError: the server refuses, or the connection broke.
        """
        return next(self.run([task]))

    def run(
        self, tasks: Iterable[Task[ResultT]], window: int = WINDOW
    ) -> Generator[ResultT, None, None]:
        """Yield the results of tasks, `window` of them in flight at once, in the order in which they end.

        Raises:
            OSError: the server refuses one, or the connection broke.
        """
        waiting, running = iter(tasks), dict[int, Task[ResultT]]()
        try:
            while True:
                while len(running) < window and (task := next(waiting, None)) is not None:
                    running[self._ask(next(task))] = task
                if not running:
                    return
                kind, number, body = self._packet()
                task = running.pop(number)
                try:
                    running[self._ask(task.send((kind, body)))] = task
                except StopIteration as end:
                    yield end.value
        finally:
            if running:  # replies are outstanding that no task waits for
                self._end()

    def _ask(self, request: Request) -> int:
        kind, body = request
        self._asked = (self._asked + 1) & 0xFFFFFFFF
        self._send(struct.pack(">BI", kind, self._asked) + body)
        return self._asked

    def _send(self, packet: bytes) -> None:
        with self._wire():
            self._out.write(struct.pack(">I", len(packet)) + packet)

    def _packet(self) -> tuple[int, int, memoryview]:
        """Kind, number of the request and body of the next reply."""
        size = int.from_bytes(self._take(4), "big")
        if not 5 <= size <= 1 << 20:
            self._end()
            raise OSError(
                f"{self._host} does not speak SFTP: check that its shell prints nothing at login"
            )
        packet = self._take(size)
        return packet[0], int.from_bytes(packet[1:5], "big"), packet[5:]

    def _take(self, size: int) -> memoryview:
        """The next bytes of the replies; large ones are copied once."""
        ahead = len(self._ahead)
        if ahead >= size:
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        taken = memoryview(bytearray(size))
        taken[:ahead] = self._ahead
        more = memoryview(bytearray(READ_AHEAD))
        while ahead < size:
            with self._wire():
                self._out.flush()  # requests go out together, when no reply is left to read
                if not self._poll.poll(SILENCE * 1000):
                    raise BrokenPipeError("no answer")
                count = os.readv(self._in, [taken[ahead:], more])
                if not count:
                    raise BrokenPipeError("it ended")
            ahead += count
        self._ahead = more[: ahead - size]
        return taken

    @contextlib.contextmanager
    def _wire(self) -> Iterator[None]:
        """Inside, a broken pipe becomes an error with the message of `ssh`."""
        try:
            yield
        except (BrokenPipeError, ValueError) as error:  # ValueError: the file is closed
            if not self._end.alive:
                raise OSError(f"{self._host}: the connection broke") from error
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
            self._errors.seek(0)
            text = self._errors.read().decode("utf-8", "replace")
            self._end()
            fault = self._login.fault(text) if not self._ready else None
            if isinstance(fault, Refused | UserError):
                raise PermissionError(secret.mask(str(fault))) from error
            why = text.strip().splitlines()[-1:] or ["the connection broke"]
            raise OSError(secret.mask(f"{self._host}: {why[0].strip()}")) from error


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    process.wait()
    errors.close()


def _folder(url: str) -> str:
    """The path of a URL, in which `?` and `#` are ordinary letters."""
    path = unquote("/" + url.partition("://")[2].partition("/")[2]).rstrip("/")
    return f".{path[2:]}" if path.startswith("/~") else path
