"""A token server: django-oauth-toolkit on SQLite, `python -m tests.remote.oauth_toolkit FOLDER PORT`.

Refresh tokens rotate, and a second use of one ends the whole chain.
"""

from __future__ import annotations

import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

LIFETIME = 2
CLIENT, SECRET, USER, PASSWORD = "service", "service-secret", "bench", "user-password"


class Server(ThreadingMixIn, WSGIServer):
    """One thread a request."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """See `http.server`."""


def main(folder: Path, port: int) -> None:
    """Serve until the process is killed; an existing database is kept."""
    import django
    from django.conf import settings

    settings.configure(
        SECRET_KEY="of a test",
        DEBUG=False,
        ALLOWED_HOSTS=["localhost"],
        USE_TZ=True,
        ROOT_URLCONF=__name__,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(folder / "tokens.sqlite"),
                "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
            }
        },
        INSTALLED_APPS=[
            "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
            "oauth2_provider",
        ],
        AUTHENTICATION_BACKENDS=["django.contrib.auth.backends.ModelBackend"],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        OAUTH2_PROVIDER={
            "ACCESS_TOKEN_EXPIRE_SECONDS": LIFETIME,
            "SCOPES": {"inference": "ask models"},
            "ROTATE_REFRESH_TOKEN": True,
            "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
            "REFRESH_TOKEN_REUSE_PROTECTION": True,
            "ALLOWED_REDIRECT_URI_SCHEMES": ["https"],
        },
    )  # fmt: skip
    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.urls import include, path
    from oauth2_provider.models import get_application_model

    globals()["urlpatterns"] = [
        path("o/", include("oauth2_provider.urls", namespace="oauth2_provider"))
    ]
    call_command("migrate", verbosity=0, interactive=False)
    users, applications = get_user_model().objects, get_application_model().objects
    if not users.exists():
        user = users.create_user(USER, password=PASSWORD)
        for grant in ("client-credentials", "password"):
            applications.create(
                client_id=f"{CLIENT}-{grant}", client_secret=SECRET, user=user, name=grant,
                client_type="confidential", authorization_grant_type=grant,
            )  # fmt: skip
    application = get_wsgi_application()
    with Server(("localhost", port), Quiet) as server:
        server.set_app(application)
        server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
