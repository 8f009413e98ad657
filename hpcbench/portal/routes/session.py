"""Routes for signing in and out, and for tokens of scripts."""

from __future__ import annotations

import getpass
import os
import socket
from typing import cast

from fastapi import Request, Response
from fastapi.requests import HTTPConnection

import hpcbench
from hpcbench.portal.access_tokens import CODE_SECONDS, Keys, Requester
from hpcbench.portal.context import Here, Portal
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.guard import PEER, WHO, Access
from hpcbench.portal.models.sessions import (
    NewToken,
    Session,
    SignIn,
    SignInCode,
    TokenMade,
    TokenRow,
)
from hpcbench.portal.routes import new_router

router = new_router("session")


def access_of(request: HTTPConnection) -> Access:
    """The access rules of a request's portal."""
    return cast(Access, request.app.state.access)


def who_of(request: HTTPConnection) -> Requester:
    """The client of a request, which the guard has admitted."""
    return cast(Requester, request.scope[WHO])


@router.post("/session", operation_id="signIn")
async def sign_in(body: SignIn, request: Request, response: Response, portal: Here) -> Session:
    """Exchange a one-time code for a session, which comes as cookies."""
    keys = exchange(request, body.code, plain=False)
    set_cookies(request, response, portal, keys)
    return _session(portal, keys.expires)


@router.post("/session/refresh", operation_id="renewSession")
async def renew(request: Request, response: Response, portal: Here) -> Session:
    """Renew the session for another 15 minutes, with new cookies."""
    desk = access_of(request).desk
    shown = request.cookies.get(desk.refresh_cookie, "")
    keys = desk.sessions.renew(shown) if shown else None
    if keys is None:
        raise PortalFault(
            401, "not_signed_in", "the session has ended", "get a new link: `hpcbench portal url`"
        )
    set_cookies(request, response, portal, keys)
    return _session(portal, keys.expires)


@router.get("/session", operation_id="session")
async def session(request: Request, portal: Here) -> Session:
    """The current session."""
    return _session(portal, who_of(request).expires)


@router.delete("/session", operation_id="signOut", status_code=204, response_class=Response)
async def sign_out(request: Request, portal: Here) -> Response:
    """End the session, here and in all tabs."""
    desk = access_of(request).desk
    who = who_of(request)
    if who.kind == "session":
        desk.sessions.leave(who.id)
    response = Response(status_code=204)
    for name in (desk.access_cookie, desk.refresh_cookie):
        response.delete_cookie(name, path=_path(portal, name == desk.refresh_cookie))
    return response


@router.post("/session/codes", operation_id="newCode")
async def new_code(request: Request) -> SignInCode:
    """A fresh one-time code; for the command line alone."""
    return SignInCode(code=access_of(request).desk.sessions.code(), seconds=CODE_SECONDS)


@router.get("/tokens", operation_id="tokens")
def tokens(request: Request) -> tuple[TokenRow, ...]:
    """Valid tokens of scripts."""
    return access_of(request).desk.tokens.rows()


@router.post("/tokens", operation_id="newToken", status_code=201)
def new_token(body: NewToken, request: Request) -> TokenMade:
    """Create a token; only this answer has its secret."""
    return access_of(request).desk.tokens.create(body)


@router.delete("/tokens/{id}", operation_id="revokeToken", status_code=204, response_class=Response)
def revoke_token(id: str, request: Request) -> Response:
    """Revoke a token."""
    if not access_of(request).desk.tokens.revoke(id):
        raise missing("there is no such token")
    return Response(status_code=204)


def exchange(request: Request, code: str, *, plain: bool) -> Keys:
    """Keys in exchange for a one-time code.

    Raises:
        PortalFault: the code is wrong, or there were too many wrong codes just now.
    """
    desk = access_of(request).desk
    peer = request.scope.get(PEER)
    one = f"code:{getattr(peer, 'uid', None)}"
    wait = desk.backoff.wait(one)
    if wait > 0:
        raise PortalFault(429, "busy", "too many wrong codes", f"try again in {int(wait) + 1} s")
    keys = desk.sessions.sign_in(code, plain=plain)
    if keys is None:
        desk.backoff.failed(one)
        raise PortalFault(
            401,
            "not_signed_in",
            "the link was used already, or is too old",
            "get a new link: `hpcbench portal url`",
        )
    return keys


def set_cookies(request: Request, response: Response, portal: Portal, keys: Keys) -> None:
    """Give a browser its keys, as cookies that no script can read and no other site can use."""
    desk = access_of(request).desk
    if keys.access is not None:
        give_cookie(request, response, desk.access_cookie, keys.access, _path(portal, False))
    if keys.refresh is not None:
        give_cookie(request, response, desk.refresh_cookie, keys.refresh, _path(portal, True))


def give_cookie(request: Request, response: Response, name: str, value: str, path: str) -> None:
    """Set one protected cookie; it lasts until the browser closes, and the portal limits its key's time."""
    response.set_cookie(
        name,
        value,
        path=path,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _path(portal: Portal, renewing: bool) -> str:
    # Browsers send the renewal key only to the routes of the session.
    return (
        f"{portal.options.root_path}/api/v1/session" if renewing else f"{portal.options.root_path}/"
    )


def _session(portal: Portal, expires: float) -> Session:
    return Session(
        user=getpass.getuser(),
        host=socket.gethostname(),
        version=hpcbench.__version__,
        home=str(portal.home),
        mode=os.environ.get("RUN_MODE", "prod"),
        may_edit=portal.options.may_edit,
        may_submit=portal.options.may_submit,
        expires=expires,
        tunnel=portal.tunnel,
        news=portal.hub.seq,
    )
