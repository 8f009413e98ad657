"""Imports aiohttp without this machine's certificates; import it before any module that imports aiohttp.

For TLS, which a Unix socket does not use, aiohttp reads all certificates at import: 0.1 s of every start.
"""

from __future__ import annotations

import os

from hpcbench.variables import variable

with variable("SSL_CERT_FILE", os.devnull):
    import aiohttp  # noqa: F401
