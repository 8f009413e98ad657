"""Imports aiohttp without this machine's certificates; import it before any module that imports aiohttp.

For TLS, which a Unix socket does not use, aiohttp reads all certificates at import: 0.1 s of every start.
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
