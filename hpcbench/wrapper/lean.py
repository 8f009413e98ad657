"""Imports aiohttp without the certificates of this machine; to be imported before anything that imports it.

For TLS, which nobody speaks on a Unix socket, aiohttp reads all of them as soon as it is imported: 0.1 s of
every start.
"""

from __future__ import annotations

import os

_FILE = "SSL_CERT_FILE"

_before = os.environ.get(_FILE)
os.environ[_FILE] = os.devnull
try:
    import aiohttp  # noqa: F401
finally:
    if _before is None:
        del os.environ[_FILE]
    else:
        os.environ[_FILE] = _before
