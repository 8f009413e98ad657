"""Requests from the command line to the portal that runs on this host, through its socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.files.private import read_secret
from hpcbench.portal import runtime_dir
from hpcbench.unix_http import UnixConnection

_SECONDS = 10.0


@dataclass(frozen=True)
class Caller:
    """The portal that runs on this host."""

    here: runtime_dir.RuntimeDir
    """The folder of its files."""
    state: dict[str, Any]
    """Its own record of how to reach it."""

    @classmethod
    def find(cls, here: runtime_dir.RuntimeDir) -> Caller | None:
        """The portal of this user on this host; None: no portal runs."""
        state = runtime_dir.read_state(here)
        return cls(here, state) if state else None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of its API to a request below `/api/v1`.

        Raises:
            EnvironmentFault: the portal does not answer, or refuses.
        """
        token = (read_secret(self.here.token) or "").strip()
        headers = {
            "Authorization": f"Bearer {token}",
            "X-Hpcbench": "1",
            "Content-Type": "application/json",
        }
        content = None if body is None else json.dumps(body)
        try:
            with UnixConnection(self.here.socket, _SECONDS) as connection:
                connection.request(method, f"/api/v1{path}", content, headers)
                response = connection.getresponse()
                text = response.read()
        except (OSError, HTTPException) as error:
            raise EnvironmentFault(
                f"the portal (pid {self.state['pid']}) does not answer: {error}",
                remedy="run `hpcbench portal stop`, then `hpcbench portal`",
            ) from None
        found: Any = json.loads(text) if text else None
        if response.status >= 400:
            raise EnvironmentFault(
                f"the portal refused the request: {found['error']}", found["remedy"] or None
            )
        return found

    def code(self) -> str:
        """A fresh one-time code."""
        return str(self.ask("POST", "/session/codes")["code"])

    def stop(self, seconds: float = 15.0) -> bool:
        """Stop the portal; returns whether it ended.

        The signal goes to the process that listens on the socket, as the kernel reports it: a number in a
        file could belong to another process by now.
        """
        signalled = False
        deadline = time.monotonic() + seconds
        while runtime_dir.running(self.here):
            pid = None if signalled else self._listener()
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
                signalled = True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _listener(self) -> int | None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(_SECONDS)
            try:
                asked.connect(str(self.here.socket))
            except OSError:
                return None
            found = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int(struct.unpack("3i", found)[0])
