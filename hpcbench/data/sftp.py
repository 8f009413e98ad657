"""SFTP: `sftp://[USER@]HOST[:PORT]/FOLDER`, over the `ssh` program of this machine.

So all of `~/.ssh/config` counts (ProxyJump, agents, hardware keys, Kerberos, a ControlMaster that has passed
two factors); a host that is not in `known_hosts` is refused. What is spoken is version 3 of the protocol
(draft-ietf-secsh-filexfer-02), which every server knows; many requests are under way at once, so that neither
latency nor a million small files cost much (docs/decisions/0015). `/~/` at the beginning of the folder is the
home over there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import select
import stat
import struct
import subprocess
import sys
import tempfile
import threading
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
from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import StoredFile

REQUEST = 32768
"""Bytes of one read or write that every server takes."""

LARGEST = 255 << 10
"""Most bytes of one read or write, of servers that say they take more."""

READ_AHEAD = 64 << 10
"""Bytes read beyond the answer that is waited for: many small ones come together."""

WINDOW = 64
"""Requests under way at once."""

SILENCE = 60.0
"""A server that does not answer for so many seconds is gone."""

# Kinds of packets: those of requests, and of replies.
INIT, OPEN, CLOSE, READ, WRITE, FSTAT, OPENDIR, READDIR, REMOVE, MKDIR, STAT, RENAME, EXTENDED = (
    1, 3, 4, 5, 6, 8, 11, 12, 13, 14, 17, 18, 200,
)  # fmt: skip
STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED_REPLY = 101, 102, 103, 104, 105, 201

FOR_READING, FOR_A_NEW_FILE = 0x01, 0x02 | 0x08 | 0x10  # WRITE | CREAT | TRUNC

AT_END = 1
REFUSED: Mapping[int, type[OSError]] = {2: FileNotFoundError, 3: PermissionError}
"""Of the codes of STATUS, those that trying again does not mend."""

ResultT = TypeVar("ResultT")


class SftpStorage:
    """Files of another machine."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 2

    class Options(BaseModel, extra="forbid", frozen=True):
        """What `~/.ssh/config` does not say."""

        key: str | None = None
        """File with the private key."""
        password: str | None = None
        """Password, or that of the key; a reference."""
        known_hosts: str | None = None
        """File with host keys beside `~/.ssh/known_hosts`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = self.Options.model_validate(dict(options))
        self._idle: dict[str, deque[_Channel]] = defaultdict(deque)
        self._ciphers: dict[str, Sequence[str]] = {}
        self._lock = threading.Lock()

    def list(self, url: str) -> Iterator[StoredFile]:
        """Every file below the folder; hidden ones left out, links to files followed."""
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
                            continue  # it may lead in a circle
                    if stat.S_ISDIR(found.mode):
                        waiting.append(f"{below}{name}/")
                    elif stat.S_IFMT(found.mode) in (
                        stat.S_IFREG,
                        0,
                    ):  # 0: the server does not tell
                        yield StoredFile(below + name, found.size, found.mark)
                    else:
                        raise PermissionError(f"{path} is no file, but a pipe, socket or device")

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        """Bytes of one file."""
        path = f"{_folder(url)}/{file.path}"
        with self._channel(url) as channel:
            handle = channel.one(_open(path, FOR_READING))
            step = channel.request
            wanted = (
                _read(path, handle, at, min(step, stop - at)) for at in range(start, stop, step)
            )
            early: dict[int, bytes] = {}
            last = b""
            # Closed before the channel is given back: what is still to be answered ends it.
            with contextlib.closing(channel.run(wanted)) as pieces:
                for at, piece in pieces:  # in any order
                    early[at] = piece
                    while start in early:
                        piece = early.pop(start)
                        start += len(piece)
                        if start < stop:
                            yield piece
                        else:
                            last = piece  # kept back until it is known to be the same file still
            channel.one(_end_reading(path, handle, file))
        yield last

    def many(self, url: str, files: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, bytes]]:
        """Many small files, whole, in any order."""
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
        """Write one file beside its place, then give it its name."""
        place = f"{_folder(url)}/{path}"
        parts = place.split("/")
        temporary = f"{'/'.join(parts[:-1])}/.{parts[-1]}.{secrets.token_hex(4)}.tmp"
        with self._channel(url) as channel:
            for depth in range(2, len(parts)):
                with contextlib.suppress(OSError):  # it is there, or the next step says why not
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
        """A connection to a host for this thread alone, while inside."""
        host = urlsplit(url).netloc
        channel = self._used_before(host) or _Channel(host, *self._command(urlsplit(url)))
        try:
            yield channel
        finally:
            if not channel.broken:
                self._idle[host].append(channel)

    def _used_before(self, host: str) -> _Channel | None:
        """A connection that nobody uses now, if one is left that lives."""
        while True:
            try:
                channel = self._idle[host].pop()
            except IndexError:
                return None
            if not channel.broken:
                return channel

    def _command(self, parts: SplitResult) -> tuple[Sequence[str], dict[str, str]]:
        """How `ssh` is called, and what is added to its environment."""
        host = parts.hostname or ""
        if not host or host.startswith("-"):
            raise PermissionError(f"{parts.netloc!r} is not a host")
        options, given = self._options, dict[str, str]()
        argv = ["ssh", "-T", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=20"]
        argv += ["-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no"]
        argv += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
        if parts.port:
            argv += ["-p", str(parts.port)]
        if parts.username:
            argv += ["-l", unquote(parts.username)]
        if options.key:
            argv += ["-o", "IdentitiesOnly=yes", "-i", str(Path(options.key).expanduser())]
        if options.known_hosts:
            more = str(Path(options.known_hosts).expanduser()).replace("%", "%%")
            known = f'~/.ssh/known_hosts ~/.ssh/known_hosts2 "{more}"'
            argv += ["-o", f"UserKnownHostsFile={known}"]
        if options.password:
            argv += ["-o", "NumberOfPasswordPrompts=1"]
            # The answer goes through the environment, which only we and root can read; never as an argument.
            given = {ANSWER: options.password, "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":"}
        else:
            argv += ["-o", "BatchMode=yes"]
        with self._lock:
            if host not in self._ciphers:
                self._ciphers[host] = _fast_ciphers_first(argv, host)
        return [*argv, *self._ciphers[host], "-s", "--", host, "sftp"], given


def _fast_ciphers_first(argv: Sequence[str], host: str) -> Sequence[str]:
    """Options that ask for AES-GCM first, where the processor has instructions for it and `ssh` may use it.

    The cipher bounds the rate, and this one takes half of the time of `ssh`'s first choice. None is added to
    those that the configuration allows.
    """
    try:
        if not re.search(
            r"^(flags|Features)\s*:.*\baes\b",
            Path("/proc/cpuinfo").read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            return ()
        settings = subprocess.run(
            [argv[0], "-G", *argv[1:], "--", host],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()  # what is wrong, the connection will tell
    allowed = re.search(r"^ciphers (\S+)$", settings.stdout, re.MULTILINE)
    names = allowed[1].split(",") if allowed else []
    fast = [name for name in names if name.startswith("aes") and "-gcm@" in name]
    return ["-c", ",".join(fast + [name for name in names if name not in fast])] if fast else ()


# --- requests ------------------------------------------------------------------------------------------
#
# A task is a generator: it yields requests, is sent the reply to each, and returns what came of them.

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
    """Close what was read, if it is still what was listed."""
    kind, body = yield FSTAT, handle
    found = _attributes(_expect(ATTRS, kind, body, path), 0)[0]
    yield from _close(handle)
    if file.mark not in ("", found.mark):
        raise OSError(f"{path} {CHANGED}")


def _read(path: str, handle: bytes, at: int, size: int, beyond: int = 0) -> Task[tuple[int, bytes]]:
    """A piece of a file, longer if there is more and `beyond` is asked for.

    Servers may give less than they are asked for.
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
    if file.size < REQUEST:  # one answer is no mixture, unless the file has grown
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
    """As POSIX does it, over what is there: OpenSSH's extension."""
    kind, body = yield EXTENDED, _text("posix-rename@openssh.com") + _text(path) + _text(place)
    _expect(STATUS, kind, body, place)


def _replace(path: str, place: str) -> Task[None]:
    """The same where the server does not know how: for a moment there is nothing, and never half of it."""
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
            _, at = _string(body, at)  # as `ls -l` would show it
            attributes, at = _attributes(body, at)
            found.append((os.fsdecode(name), attributes))
    yield from _close(handle)
    return found


def _expect(wanted: int, kind: int, body: memoryview, what: str) -> memoryview:
    """The body of a reply of the kind that should come.

    Raises:
        OSError: it is a refusal, or something else.
    """
    code = _code(body) if kind == STATUS else -1
    if kind == wanted and code <= 0:
        return body
    if kind != STATUS:
        raise OSError(f"{what}: the server does not speak SFTP as it should")
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

ANSWER = "HPCBENCH_SSH_ANSWER"
ASKPASS = f"#!/bin/sh\nprintf '%s\\n' \"${ANSWER}\"\n"


class _Channel:
    """An `ssh` process that speaks SFTP; used by one thread."""

    def __init__(self, host: str, argv: Sequence[str], given: Mapping[str, str]) -> None:
        self._host = host
        self._told: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
        with contextlib.ExitStack() as stack:
            environment = {**os.environ, **given}
            if given:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                (folder / "answer").write_text(ASKPASS, encoding="ascii")
                (folder / "answer").chmod(0o700)
                environment["SSH_ASKPASS"] = str(folder / "answer")
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._told,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is ours to handle; no terminal to ask on
                )
            except FileNotFoundError as error:
                self._told.close()
                raise EnvironmentFault(
                    "sftp:// needs the `ssh` program", remedy="install the OpenSSH client"
                ) from error
            assert process.stdin is not None
            assert process.stdout is not None
            self._process, self._out = process, process.stdin
            self._in = process.stdout.fileno()
            self._end = weakref.finalize(self, _end, process, self._told)
            self._poll = select.poll()
            self._poll.register(self._in, select.POLLIN)
            with contextlib.suppress(OSError):  # more than one large answer at a time
                fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, 1 << 20)
            self._ahead = memoryview(b"")
            self._asked = 0
            self._send(struct.pack(">BI", INIT, 3))
            _, _, told = self._packet()  # `ssh` has asked all it wants to know
            self.request = REQUEST
            self.renames_over = b"posix-rename@openssh.com" in told.tobytes()
            if b"limits@openssh.com" in told.tobytes():
                self.request = min(LARGEST, *self.one(_limits()))

    @property
    def broken(self) -> bool:
        """Whether it can no longer be used."""
        return not self._end.alive or self._process.poll() is not None

    def one(self, task: Task[ResultT]) -> ResultT:
        """What becomes of one task.

        Raises:
            OSError: the server refuses, or the connection broke.
        """
        return next(self.run([task]))

    def run(
        self, tasks: Iterable[Task[ResultT]], window: int = WINDOW
    ) -> Generator[ResultT, None, None]:
        """What becomes of tasks, so many of them under way at once; in the order in which they end.

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
            if running:  # answers are still to come that nobody waits for
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
            raise OSError(f"{self._host} does not speak SFTP: does its shell print something?")
        packet = self._take(size)
        return packet[0], int.from_bytes(packet[1:5], "big"), packet[5:]

    def _take(self, size: int) -> memoryview:
        """The next bytes of the answers; large ones are copied once."""
        ahead = len(self._ahead)
        if ahead >= size:
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        taken = memoryview(bytearray(size))
        taken[:ahead] = self._ahead
        more = memoryview(bytearray(READ_AHEAD))
        while ahead < size:
            with self._wire():
                self._out.flush()  # what is asked goes out together, when nothing is left to be read
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
        """Inside, a broken pipe becomes what `ssh` says of it."""
        try:
            yield
        except (BrokenPipeError, ValueError) as error:  # ValueError: the file is closed
            if not self._end.alive:
                raise OSError(f"{self._host}: the connection broke") from error
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
            self._told.seek(0)
            told = self._told.read().decode("utf-8", "replace")
            self._end()
            kind, why = _explain(told)
            raise kind(f"{self._host}: {secret.mask(why) or error}") from error


def _end(process: subprocess.Popen[bytes], told: IO[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    process.wait()
    told.close()


def _explain(told: str) -> tuple[type[OSError], str]:
    """What `ssh` says when it ends, for people."""
    if "IDENTIFICATION HAS CHANGED" in told:
        return PermissionError, "the host's key is not the known one"
    if "Host key verification failed" in told or "host key is known" in told:
        return PermissionError, "the host is not in known_hosts: `ssh` to it once"
    if "Permission denied" in told:
        return PermissionError, "the server refuses the login (does `ssh` to it work?)"
    lines = [line for line in told.splitlines() if line.strip()]
    return OSError, lines[-1].strip() if lines else "the connection broke"


def _folder(url: str) -> str:
    """The path of a URL, in which `?` and `#` are letters like others."""
    path = unquote("/" + url.partition("://")[2].partition("/")[2]).rstrip("/")
    return f".{path[2:]}" if path.startswith("/~") else path
