"""The process that runs tools: `python -m hpcbench.agents.tool_process`, in hpcbench's Python or in an image.

It constructs the tools once, then forks a child for each call. The child of a stateless tool stays for
further calls, until one of them ends badly. A worker speaks to it through its standard input and output
(`frames`): the job first, then calls; it answers with its tools, then with results.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from hpcbench.agents import confine, frames
from hpcbench.agents.tools import ResultKind, fitted
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.files.removal import remove_tree

CALLS_OF_A_CHILD = 200
"""Calls after which the child of a stateless tool is replaced: a small leak stays small."""

_POLL_SECONDS = 0.25
_NO_MEMORY = 71  # exit code of a child that has too little memory to say so


@dataclass(slots=True)
class _Child:
    pid: int
    socket: socket.socket
    folder: Path | None
    """Its folder on the disk; None: the kernel removes it."""
    heard: frames.Buffer = field(default_factory=frames.Buffer)
    calls: int = 0
    call: int | None = None
    """Number of the call that it runs; None: it waits."""
    deadline: float = 0.0
    since: float = 0.0

    def is_over(self) -> bool:
        """Whether it ended, and nothing that it sent is left to be read."""
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        try:
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


class _Result(NamedTuple):
    """A result as a child sent it; the tool may have written it itself, so no part of it is trusted."""

    kind: ResultKind
    text: str
    images: tuple[bytes, ...]
    stays: bool
    """Whether the child can run another call."""

    @classmethod
    def of(cls, message: tuple[dict[str, Any], Sequence[bytes]], call: int | None) -> _Result:
        """The result of a call.

        Raises:
            ValueError: it is none.
        """
        said, files = message
        kind, text = said.get("kind"), said.get("text")
        if said.get("call") != call or call is None:
            raise ValueError("of another call")
        if kind not in get_args(ResultKind) or not isinstance(text, str):
            raise ValueError("without a kind or text")
        return cls(*fitted(cast("ResultKind", kind), text, files), said.get("stays") is True)


class Host:
    """Runs calls in children, and gives their results."""

    def __init__(
        self,
        tools: Mapping[str, Any],
        folder: Path,
        memory: int,
        holds: confine.Confinement,
        out: int,
    ) -> None:
        self._tools, self._folder, self._memory, self._out = tools, folder, memory, out
        self._forks = confine.Forks(separated=holds.processes)
        self._separated = holds.processes
        self._choose = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._free: list[_Child] = []
        self._made = 0
        self._held = confine.MemoryUse.now()
        self._heard = frames.Buffer()

    def serve(self, calls: int) -> None:
        """Serve until `calls`, the descriptor that calls come from, ends."""
        self._choose.register(calls, selectors.EVENT_READ)
        while True:
            for key, _ in self._choose.select(self._rest()):
                child: _Child | None = key.data
                if child is not None:
                    if self._children.get(child.pid) is child:  # an event before may have ended it
                        self._read(child)
                elif not self._receive(calls):
                    self._end()
                    return
            self._time_out()

    def _receive(self, calls: int) -> bool:
        """Start the calls that came in; whether there can be more."""
        data = os.read(calls, 1 << 20)
        self._heard.add(data)
        while (message := self._heard.take()) is not None:
            asked, _ = message
            if "cancel" in asked:
                for child in [
                    one for one in self._children.values() if one.call == asked["cancel"]
                ]:
                    self._drop(child)
            else:
                self._start(asked)
        return bool(data)

    def _start(self, asked: Mapping[str, Any]) -> None:
        stateless = bool(getattr(self._tools[asked["tool"]], "stateless", False))
        try:
            child = self._free.pop() if stateless and self._free else self._fork()
        except OSError as error:
            why = f"no process for it: {error.strerror}"
            self._send({"call": asked["call"], "kind": "exited", "text": why, "seconds": 0.0})
            return
        child.call, child.since = asked["call"], time.monotonic()
        child.deadline = child.since + asked["seconds"]
        child.calls += 1
        try:
            child.socket.sendall(frames.pack(asked))
        except OSError:
            self._ended(child)

    def _fork(self) -> _Child:
        self._made += 1
        folder = None if self._separated else self._folder / str(self._made)
        if folder is not None:
            folder.mkdir()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = self._forks.fork()
            except OSError:
                ours.close()
                if folder is not None:
                    folder.rmdir()
                raise
            if pid == 0:
                self._become_child(theirs, folder)
        child = _Child(pid, ours, folder)
        self._children[pid] = child
        self._choose.register(ours, selectors.EVENT_READ, child)
        return child

    def _become_child(self, connection: socket.socket, folder: Path | None) -> None:
        """Run calls in this new process, then end it. Never returns."""
        code = 1
        try:
            os.setsid()
            if not self._separated:
                confine.die_with(None)
            kept = connection.fileno()
            os.closerange(3, kept)
            os.closerange(kept + 1, 1 << 16)
            confine.limit_processes()
            confine.limit_addresses(self._held.addresses + self._memory)
            if folder is None:
                confine.own_folder(self._folder)
                confine.give_up_rights()
            else:
                os.chdir(folder)
                most = confine.SCRATCH_MIB << 20
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            _run_calls(connection, self._tools, folder or self._folder, self._memory)
            code = 0
        except MemoryError:
            code = _NO_MEMORY
        except BaseException:  # noqa: BLE001 - the host must never go on in two processes
            code = 1
        finally:
            os._exit(code)

    def _read(self, child: _Child) -> None:
        try:
            data = child.socket.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._ended(child)
            return
        child.heard.add(data)
        try:
            message = child.heard.take()
            result = None if message is None else _Result.of(message, child.call)
        except frames.TooLarge as error:
            self._stop(child, "size", f"its process sent {error}")
            return
        except ValueError as error:
            self._stop(child, "exited", f"its process sent bytes that are no result: {error}")
            return
        if result is None:
            return
        self._answer(child, result.kind, result.text, result.images)
        if result.stays and child.calls < CALLS_OF_A_CHILD and not child.heard:
            self._free.append(child)
        else:
            self._drop(child)

    def _ended(self, child: _Child) -> None:
        """A child closed its connection before a result."""
        for _ in range(20):  # it may be about to end
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._died(child, status)
                return
            time.sleep(0.005)
        self._stop(child, "exited", "its process went on without a connection, and was killed")

    def _died(self, child: _Child, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        if code == _NO_MEMORY:
            kind, why = "memory", f"it needs more than {self._memory / 2**30:g} GiB of memory"
        elif code < 0:
            kind, why = "exited", f"its process was ended by {_signal(-code)}"
        else:
            kind, why = "exited", f"its process ended with exit code {code}"
        self._stop(child, kind, why, reaped=True)

    def _time_out(self) -> None:
        now = time.monotonic()
        for child in [*self._children.values()]:
            # A grandchild may hold the connection of a child that ended.
            if not self._separated and child.is_over():
                self._died(child, os.waitpid(child.pid, 0)[1])
                continue
            if child.call is not None and child.deadline <= now:
                seconds = child.deadline - child.since
                self._stop(child, "time", f"it did not end in {seconds:.3g} s, and was killed")

    def _rest(self) -> float | None:
        """Seconds until the next deadline."""
        due = [one.deadline for one in self._children.values() if one.call is not None]
        rest = max(0.0, min(due) - time.monotonic()) if due else None
        return rest if rest is None or self._separated else min(rest, _POLL_SECONDS)

    def _stop(self, child: _Child, kind: str, why: str, *, reaped: bool = False) -> None:
        if child.call is not None:
            self._answer(child, kind, why)
        self._drop(child, reaped=reaped)

    def _drop(self, child: _Child, *, reaped: bool = False) -> None:
        """Kill a child with all that it started."""
        self._choose.unregister(child.socket)
        child.socket.close()
        del self._children[child.pid]
        if child in self._free:
            self._free.remove(child)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        if not reaped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)  # before its setsid, it has no group of its own
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
        if not self._separated:
            self._kill_strays()
        if child.folder is not None:
            remove_tree(child.folder)

    def _kill_strays(self) -> None:
        """Kill processes whose parents ended: they became children of this one, and so do theirs."""
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        while strays := {int(one) for one in children.read_text().split()} - {*self._children}:
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _answer(self, child: _Child, kind: str, text: str, images: Sequence[bytes] = ()) -> None:
        """Give the result of the call that a child runs."""
        seconds = time.monotonic() - child.since
        self._send({"call": child.call, "kind": kind, "text": text, "seconds": seconds}, images)
        child.call = None

    def _send(self, message: Mapping[str, Any], files: Sequence[bytes] = ()) -> None:
        _write(self._out, frames.pack(message, files))

    def _end(self) -> None:
        for child in [*self._children.values()]:
            self._drop(child)


def _run_calls(
    connection: socket.socket, tools: Mapping[str, Any], folder: Path, memory: int
) -> None:
    """Run the calls that come in, in a child: one, or more if the tool is stateless."""
    heard = frames.Buffer()
    while True:
        while (message := heard.take()) is None:
            if not (data := connection.recv(1 << 18)):
                return
            heard.add(data)
        asked, _ = message
        tool = tools[asked["tool"]]
        kind, text, images = _outcome(tool, asked, folder, memory)
        sound = kind in ("ok", "error", "arguments") and not any(folder.iterdir())
        stays = sound and bool(getattr(tool, "stateless", False))
        reply = {"call": asked["call"], "kind": kind, "text": text, "stays": stays}
        connection.sendall(frames.pack(reply, images))
        if not stays:
            return


def _outcome(
    tool: Any, asked: Mapping[str, Any], folder: Path, memory: int
) -> tuple[ResultKind, str, Sequence[bytes]]:
    """How a call ends: kind, text, images."""
    from pydantic import ValidationError

    from hpcbench.plugins import ToolContext, ToolError

    images = tuple(Path(one) for one in asked["images"])
    context = ToolContext(images, folder, asked["seconds"], memory / 2**30)
    try:
        try:
            arguments = tool.Arguments.model_validate(asked["arguments"])
        except ValidationError as error:
            return "arguments", complaints(error), ()
        return result_of(tool.call(arguments, context))
    except ToolError as error:
        return "error", _cut(_words(error) or "it cannot do this"), ()
    except MemoryError:
        return "memory", f"it needs more than {memory / 2**30:g} GiB of memory", ()
    except SystemExit as error:
        return "exited", f"it called sys.exit({error.code!r})"[:200], ()
    except BaseException as error:  # noqa: BLE001 - foreign code: its failure is the result
        return "raised", _raised(error, tool), ()


def result_of(returned: object) -> tuple[ResultKind, str, Sequence[bytes]]:
    """Kind, text and images of what a tool returned."""
    parts = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    texts, images = list[str](), list[bytes]()
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, (bytes, bytearray)):
            images.append(bytes(part))
        else:
            what = type(part).__name__
            return "result", f"it returned {what}, not text or the bytes of an image", ()
    if not parts:
        return "result", "it returned an empty list, not text or the bytes of an image", ()
    return fitted("ok", "\n".join(texts), images)


def complaints(error: Any) -> str:
    """Each wrong argument in a few words."""
    from hpcbench.schema.forms import complaint

    lines = list[str]()
    for one in error.errors()[:10]:
        where = ".".join(str(part) for part in one["loc"])
        if one["type"] == "missing":
            lines.append(f"argument '{where}' is missing")
        elif one["type"] == "extra_forbidden":
            lines.append(f"there is no argument '{where}'")
        else:
            lines.append(
                f"argument '{where}': {complaint(dict(one))}" if where else str(one["msg"])
            )
    return _cut("; ".join(lines))


def _raised(error: BaseException, tool: Any) -> str:
    from hpcbench.plugins import place_in

    place = place_in(error, {type(tool).__module__.partition(".")[0]})
    where = f" ({place})" if place else ""
    return _cut(f"{type(error).__name__}: {_words(error)}"[:1000] + where)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - foreign code, too
        return "(its text cannot be read)"


def _cut(text: str) -> str:
    return text if len(text) <= 4000 else f"{text[:4000]} …"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _write(out: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(out, view) :]


def described(name: str, plugin: Any, entry: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Fields of a tool's `ToolSpec`.

    Raises:
        EnvironmentFault: its class does not say what a model needs.
    """
    description = inspect.cleandoc(plugin.__doc__ or "")
    if not description:
        raise EnvironmentFault(
            f"tool '{name}' ({origin}) has no docstring",
            remedy="write one: it tells the model what the tool does",
        )
    schema = plugin.Arguments.model_json_schema()
    stated = entry.get("idempotent")
    return {
        "name": name,
        "description": description,
        "schema": _untitled(schema),
        "idempotent": bool(plugin.idempotent if stated is None else stated),
        "origin": origin,
        "of_pages": bool(getattr(plugin, "of_pages", False)),
    }


def _untitled(schema: Any) -> Any:
    """A JSON Schema without the titles that pydantic makes of names: they cost a model tokens."""
    if isinstance(schema, list):
        return [_untitled(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _untitled(one) for name, one in value.items()}
        if key in ("properties", "$defs") and isinstance(value, dict)
        else _untitled(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def built(entries: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The tools of some entries, constructed, and the fields of their `ToolSpec`s.

    Raises:
        HpcbenchError: a plugin is not here, does not fit, or cannot be constructed.
    """
    from hpcbench import plugins

    tools, specs = dict[str, Any](), list[dict[str, Any]]()
    for entry in entries:
        plugin = plugins.load("tools", entry["plugin"])
        point = plugins.find("tools", entry["plugin"])
        origin = plugins.origin(point) if point is not None else entry["plugin"]
        try:
            tools[entry["name"]] = plugin(entry["options"])
        except HpcbenchError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"tool '{entry['name']}' ({origin}) cannot be constructed: "
                f"{type(error).__name__}: {error}"
            ) from error
        specs.append(described(entry["name"], plugin, entry, origin))
    return tools, specs


def main() -> None:
    """Read the job, build the tools, serve."""
    calls, out = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)  # what tools print while they are constructed goes to the log
    head = _exactly(calls, frames.HEAD.size)
    text, files = frames.lengths(head)
    job, _ = frames.unpack(_exactly(calls, text), _exactly(calls, files))
    folder = Path(job["folder"])
    holds = _confined(job, folder)
    try:
        tools, specs = built(job["tools"])
        missing = "" if job["contained"] else holds.missing
        notes = [missing] if missing else []
        name = _untrusted(tools)
        if name is not None and missing:
            raise EnvironmentFault(
                f"tool '{name}' runs code of the model, and {missing}",
                remedy="give the tool an `image`",
            )
    except HpcbenchError as fault:
        said = {"fault": str(fault), "remedy": getattr(fault, "remedy", None)}
        _write(out, frames.pack(said))
        return
    if name is not None and not job["contained"]:
        what = "it can read all files that you can read, the references of samples, too"
        notes.append(f"tool '{name}' runs code of the model without an image: {what}")
    _write(out, frames.pack({"tools": specs, "notes": notes}))
    # What children print is dropped: they may print anything, and any amount.
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    gc.collect()
    gc.freeze()
    gc.disable()
    Host(tools, folder, int(job["memory_gb"] * 2**30), holds, out).serve(calls)


def _confined(job: Mapping[str, Any], folder: Path) -> confine.Confinement:
    """Separate this process as far as the machine permits; a container does the rest."""
    confine.die_with(job["parent"])
    holds = confine.separate(network=job["network"] or job["contained"])
    why = ""
    if holds.processes:
        why = confine.read_only(folder)
        holds = confine.Confinement(holds.network, not why, True, why)
    else:
        confine.adopt_orphans()
    os.chdir(folder)
    return holds


def _untrusted(tools: Mapping[str, Any]) -> str | None:
    return next((name for name, tool in tools.items() if getattr(tool, "untrusted", False)), None)


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(descriptor, size - len(data))
        if not piece:
            sys.exit(0)  # the worker is gone
        data += piece
    return data


if __name__ == "__main__":
    main()
