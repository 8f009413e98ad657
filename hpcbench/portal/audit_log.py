"""What the portal writes down: who asked for what, what was changed, tracebacks; files of the user alone."""

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
"""Bytes of a log; then it is put aside, and the one before goes."""


class _Handler(logging.handlers.RotatingFileHandler):
    """Files that only the user may read, never behind a link."""

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
        folder: where they lie; None: nowhere (a portal in a test).
        host: part of their names: the folder may be on a file system of many hosts.
    """

    def __init__(self, folder: Path | None, host: str = "") -> None:
        self.log = folder / f"portal-{host}.log" if folder else None
        """Requests, warnings and tracebacks."""
        self.audit_log = folder / f"changes-{host}.jsonl" if folder else None
        """Changes and sign-ins."""
        self._log = _logger(self.log)
        self._audit = _logger(self.audit_log)

    def access(self, text: str) -> None:
        """A request."""
        self._log.info("%s %s", _stamp(), text)

    def warn(self, text: str) -> None:
        """Something that the user should know."""
        self._log.warning("%s warning: %s", _stamp(), secret.mask(printable(text)))

    def bug(self, identity: str, error: BaseException) -> None:
        """A traceback, under the id that the client was told."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._log.error("%s bug %s\n%s", _stamp(), identity, secret.mask(text))

    def change(self, **what: Any) -> None:
        """A change, or an attempt at one."""
        self._audit.info(json.dumps({"time": time.time(), **what}, ensure_ascii=True))

    def close(self) -> None:
        """Let go of the files."""
        for logger in (self._log, self._audit):
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()


def _logger(path: Path | None) -> logging.Logger:
    # Not below the root: nothing else may take these lines anywhere.
    logger = logging.Logger("hpcbench.portal", logging.INFO)
    handler = _Handler(path, maxBytes=LARGEST, backupCount=1) if path else logging.NullHandler()
    logger.addHandler(handler)
    return logger


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"


def printable(text: str, longest: int = 2000) -> str:
    """Text that keeps to its line and steers no terminal."""
    shown = "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text[:longest])
    return shown
