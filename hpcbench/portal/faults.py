"""The exception with which any part of the portal refuses a request."""

from __future__ import annotations


class PortalFault(Exception):
    """Refuses a request; clients get `models.Fault`.

    Args:
        status: HTTP status.
        code: a stable word for programs.
        error: what is wrong, in one line.
        remedy: what to do about it.
        progress: finished share of a computation that still runs, if known.
    """

    def __init__(
        self, status: int, code: str, error: str, remedy: str = "", progress: float | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.code, self.error, self.remedy = status, code, error, remedy
        self.progress = progress


def missing(error: str, remedy: str = "") -> PortalFault:
    """A fault: there is no such thing."""
    return PortalFault(404, "not_found", error, remedy)


def bad_request(error: str, remedy: str = "") -> PortalFault:
    """A fault: the request itself is wrong."""
    return PortalFault(400, "bad_request", error, remedy)


def refused(error: str, remedy: str = "") -> PortalFault:
    """A fault: the request is not permitted."""
    return PortalFault(403, "refused", error, remedy)
