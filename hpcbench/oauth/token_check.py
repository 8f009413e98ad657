"""Asks token servers from the command line: before a plan is submitted, and at `hpcbench auth login`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.oauth.keeper import GrantedToken, TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions

Say = Callable[[str], None]


def credential(engine: str, engine_options: Mapping[str, Any]) -> AuthOptions | None:
    """The credential of a model that asks a token server; None: it asks none.

    Args:
        engine: the model's engine.
        engine_options: its options, valid.
    """
    given = engine_options.get("auth")
    if engine != "remote" or not isinstance(given, Mapping):
        return None
    options = AuthOptions(**given)
    return options if options.type == "jwt" else None


def check(models: Iterable[tuple[str, str, Mapping[str, Any]]], say: Say) -> int:
    """Get a token for each credential, so that a wrong one is found before anything is submitted.

    The tokens go into the user's file: workers begin with them.

    Args:
        models: name, engine and engine options of each model.
        say: receives why a server could not be asked from here; workers try it themselves.

    Returns:
        How many credentials have a token.

    Raises:
        UserError: a server refuses a credential, or a secret is missing.
    """
    asked: set[tuple[str, ...]] = set()
    problems, good = [], 0
    for name, engine, engine_options in models:
        options = credential(engine, engine_options)
        if options is None or (who := (options.key, *options.secrets)) in asked:
            continue
        asked.add(who)
        try:
            get(options, say, allow_http=bool(engine_options.get("allow_http")))
            good += 1
        except TokenRefused as error:
            what = f"no token for model '{name}': {error}"
            problems.append(Problem(what, remedy="correct `auth` in the model's engine_options"))
        except TokenFailed as error:
            say(f"! no token for model '{name}' from here, so its workers will ask: {error}")
        except EnvironmentFault as error:
            problems.append(
                Problem(f"no token for model '{name}': {error.message}", remedy=error.remedy)
            )
    if problems:
        raise UserError(*problems)
    return good


def get(
    options: AuthOptions,
    say: Say,
    *,
    allow_http: bool = False,
    renew: bool = False,
    refresh: str = "",
) -> GrantedToken:
    """A token: that of the user's file, or a new one.

    Args:
        options: the credential.
        say: receives why there is no file.
        allow_http: whether a discovered address may be plain HTTP.
        renew: whether the file's token does not count.
        refresh: a new refresh token to begin with.

    Raises:
        TokenFailed: there is none.
        EnvironmentFault: a secret is missing.
    """
    from hpcbench.oauth.token_server import source_of

    source = source_of(options, allow_http=allow_http, say=say)

    async def asking() -> GrantedToken:
        if renew:
            return await source.login(refresh or None)
        return await source.obtain(None, full=False)

    return asyncio.run(asking())


def probe(options: AuthOptions, say: Say, *, allow_http: bool = False) -> GrantedToken:
    """A token that the server gives now, to see that it does; the user's file stays as it is.

    The grant `refresh_token` is the exception: a refresh token may work only once, so the file's token
    counts, and a new one replaces it.

    Raises:
        TokenFailed: there is none.
        EnvironmentFault: a secret is missing.
    """
    from hpcbench.oauth.token_server import TokenServer, source_of

    source = source_of(options, allow_http=allow_http, say=say)
    if options.grant_type != "refresh_token":
        source = TokenServer(options, None, allow_http=allow_http)
    return asyncio.run(source.obtain(None, full=False))
