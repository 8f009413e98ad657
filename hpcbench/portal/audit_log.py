"""The portal's logs: requests, changes and tracebacks, in files that only the user may read."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import time
import traceback
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from hpcbench import secret

LARGEST = 5_000_000
"""Largest log, bytes; the portal then rotates the log and deletes the previous one."""


class _Handler(logging.handlers.RotatingFileHandler):
    """Writes log files that only the user may read; never follows a link."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.baseFilename, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        file: IO[str] = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")
        assert isinstance(file, TextIOWrapper)
        return file


class Journal:
    """Logs of one portal.

    Args:
        folder: folder of the logs; None: no logs (a portal in a test).
        host: part of the logs' names: several hosts may share the folder.
    """

    def __init__(self, folder: Path | None, host: str = "") -> None:
        self.log = folder / f"portal-{host}.log" if folder else None
        """Requests, warnings and tracebacks."""
        self.audit_log = folder / f"changes-{host}.jsonl" if folder else None
        """Changes and sign-ins."""
        self._log = _logger(self.log)
        self._audit = _logger(self.audit_log)

    def access(self, text: str) -> None:
        """Log a request."""
        self._log.info("%s %s", _stamp(), text)

    def warn(self, text: str) -> None:
        """Log a warning to the user."""
        self._log.warning("%s warning: %s", _stamp(), secret.mask(printable(text)))

    def bug(self, identity: str, error: BaseException) -> None:
        """Log a traceback, under the id that the client got."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._log.error("%s bug %s\n%s", _stamp(), identity, secret.mask(text))

    def change(self, **what: Any) -> None:
        """Log a change, or an attempt at a change."""
        self._audit.info(json.dumps({"time": time.time(), **what}, ensure_ascii=True))

    def close(self) -> None:
        """Close the files."""
        for logger in (self._log, self._audit):
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()


def _logger(path: Path | None) -> logging.Logger:
    # Not below the root logger: no other handler may get these lines.
    logger = logging.Logger("hpcbench.portal", logging.INFO)
    handler = _Handler(path, maxBytes=LARGEST, backupCount=1) if path else logging.NullHandler()
    logger.addHandler(handler)
    return logger


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"


def printable(text: str, longest: int = 2000) -> str:
    """Text on one line, without control characters for a terminal."""
    shown = "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text[:longest])
    return shown
