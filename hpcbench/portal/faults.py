"""How a request is refused, in every room of the portal."""

from __future__ import annotations


class PortalFault(Exception):
    """A request that cannot be answered; clients get `models.Fault`.

    Args:
        status: HTTP status.
        code: a stable word for programs.
        error: what is wrong, in one line.
        remedy: what to do about it.
        progress: share that is done of what is still being made, where that is known.
    """

    def __init__(
        self, status: int, code: str, error: str, remedy: str = "", progress: float | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.code, self.error, self.remedy = status, code, error, remedy
        self.progress = progress
