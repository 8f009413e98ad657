"""The wrapper's gRPC plane in this process, before a scripted engine."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.wrapper import grpc_server, grpc_wire
from hpcbench.wrapper.__main__ import _listen
from hpcbench.wrapper.app import Wrapper
from hpcbench.wrapper.bodies import Bodies
from hpcbench.wrapper.masking import Mask
from hpcbench.wrapper.memory import Peaks
from hpcbench.wrapper.supervisor import Load, Route, Supervisor, engine_session
from tests.mock_openai import Script, Server
from tests.scripted_engine import ScriptedEngine
from tests.unit.wrapper.running import KEY

PLAIN = Bodies({}, checked=False, media_root=None)


class ReadingEngine(ScriptedEngine):
    """A scripted engine that takes images as files."""

    reads_files: ClassVar[bool] = True


class Plane:
    """The server, and the engine behind it."""

    def __init__(self, folder: Path, supervisor: Supervisor, engine: Path) -> None:
        self.socket, self.supervisor, self.engine_socket = folder / "g", supervisor, engine
        self.worker_socket = folder / "w"
        """Socket of the server for the worker's own client."""


@contextlib.asynccontextmanager
async def before(
    engine: Path,
    limit: int = 2**20,
    hidden: Sequence[str] = (),
    bodies: Bodies = PLAIN,
    model: str = "tiny",
    images: Path | None = None,
    **address: Any,
) -> AsyncIterator[Plane]:
    """The plane before an engine that serves on this socket."""
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        folder = Path(name)
        supervisor = Supervisor(folder, folder / "log")
        async with engine_session(engine) as to_engine:
            supervisor.state = "ready"
            supervisor.route = Route(to_engine, bodies, Peaks(), Mask(hidden), engine, images)
            supervisor._ask = Load(engine="scripted", model_path="/w", model_name=model)
            where = grpc_server.Address(**{"socket": folder / "g", **address})
            admits = Wrapper(supervisor, KEY).admits
            with _listen(folder / "w") as listener:
                async with (
                    grpc_server.serving(admits, supervisor, where, limit),
                    grpc_wire.serving(admits, supervisor, listener, limit),
                ):
                    yield Plane(folder, supervisor, engine)


@contextlib.asynccontextmanager
async def scripted(
    script: Script | None = None, **options: Any
) -> AsyncIterator[tuple[Plane, Server]]:
    """The plane before a scripted engine."""
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        socket = Path(name) / "e"
        async with Server(socket, script) as engine, before(socket, **options) as plane:
            yield plane, engine
