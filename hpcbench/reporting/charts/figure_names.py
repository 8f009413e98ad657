"""Names of figures."""

from __future__ import annotations

from hpcbench.schema.names import id_of


def stem(*parts: str) -> str:
    """Parts of a name as the stem of a file."""
    return id_of("-".join(part for part in parts if part))
