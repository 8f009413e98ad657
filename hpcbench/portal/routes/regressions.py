"""Routes of results over months: trends, their changes, and notes on changes."""

from __future__ import annotations

import getpass
from typing import Annotated

from fastapi import Query, Response

from hpcbench.portal.context import Here, Portal, once
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.models.regressions import AcknowledgeRequest, Regression, Trends
from hpcbench.portal.regressions import History, note
from hpcbench.portal.routes import new_router

router = new_router("regressions")


history_of = once(lambda portal: History(portal.home))
"""The history of the portal's home."""


@router.get("/regressions", operation_id="regressions", response_model=Trends)
def get_trends(
    here: Here,
    name: Annotated[str | None, Query(max_length=200, description="Metric or figure.")] = None,
    plan: Annotated[
        str | None, Query(max_length=200, description="Only trends of this plan.")
    ] = None,
    since: Annotated[
        float,
        Query(
            allow_inf_nan=False,
            description="Only experiments since this time, seconds since the epoch.",
        ),
    ] = 0.0,
) -> Response:
    """Rows of the heat map, the most recent regression first; without a name, all metrics of quality."""
    return Response(history_of(here).answer(name, plan, since), media_type="application/json")


@router.put("/regressions/{regression}/acknowledgement", operation_id="acknowledge")
def acknowledge(here: Here, regression: str, body: AcknowledgeRequest) -> Regression:
    """Acknowledge a change: it is no alarm any more, without an end or until a time."""
    return _noted(here, regression, body.reason, body.until)


@router.delete("/regressions/{regression}/acknowledgement", operation_id="unacknowledge")
def unacknowledge(here: Here, regression: str) -> Regression:
    """Withdraw an acknowledgement."""
    return _noted(here, regression, None, None)


def _noted(portal: Portal, identity: str, reason: str | None, until: float | None) -> Regression:
    try:
        found = note(history_of(portal), identity, reason, getpass.getuser(), until)
    except OSError as error:
        what = f"the note cannot be written: {error.strerror or error}"
        raise PortalFault(
            503, "busy", what, "check free space and permissions of HOME/results"
        ) from None
    if found is None:
        raise missing(f"no change '{identity[:40]}'", "fetch the trends again")
    return found
