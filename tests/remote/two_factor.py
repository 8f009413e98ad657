"""A fake: an SSH server that wants a key and then a code, and runs nothing; a real one needs PAM for it."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import paramiko


class TwoFactor(paramiko.ServerInterface):
    """Lets in who has any key and knows the code; answers every command with `in`."""

    def __init__(self, host_key: Path, code: str) -> None:
        self._key, self._code = paramiko.PKey.from_path(host_key), code
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.asked = 0
        self._transports: list[paramiko.Transport] = []

    def __enter__(self) -> TwoFactor:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.close()
        for transport in self._transports:
            transport.close()

    def _serve(self) -> None:
        while True:
            try:
                wire, _ = self._listening.accept()
            except OSError:
                return
            transport = paramiko.Transport(wire)
            self._transports.append(transport)
            transport.add_server_key(self._key)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=self)

    # -- what paramiko asks ------------------------------------------------------------------

    def get_allowed_auths(self, username: str) -> str:
        return "publickey" if not self._has_key else "keyboard-interactive"

    _has_key = False

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._has_key = True
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_interactive(
        self, username: str, submethods: str
    ) -> paramiko.server.InteractiveQuery:
        self.asked += 1
        return paramiko.server.InteractiveQuery("Second factor", "", ("Code:", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        right = responses == [self._code]
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        def answer() -> None:
            channel.sendall(b"\x1ehpcbench\x1ein")
            channel.send_exit_status(0)
            channel.shutdown_write()
            channel.close()

        threading.Timer(0.2, answer).start()
        return True
