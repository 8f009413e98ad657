"""No network is a matter of the machine: one line that names host, reason and remedy, exit code 3."""

from __future__ import annotations

import argparse
import errno
import http.client
import smtplib
import socket
import ssl
import urllib.error
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.cli import main as command
from hpcbench.errors import UserError, unreached

NO_NAME = socket.gaierror(-3, "Temporary failure in name resolution")


class ConnectError(Exception):
    """As clients without an OSError call it: httpx, botocore."""


NO_TRUST = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer"
NOT_TRUSTED = (
    "its certificate is not trusted (`SSL_CERT_FILE` names the file of your site's authority)"
)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NO_NAME, "unknown host name"),
        (urllib.error.URLError(NO_NAME), "unknown host name"),
        (caused(RuntimeError("download failed"), NO_NAME), "unknown host name"),
        (ConnectError("[Errno -2] Name or service not known"), "unknown host name"),
        (OSError("ssh: Could not resolve hostname h: unknown"), "unknown host name"),
        (OSError("Generic HTTP error: client error (Connect): dns error"), "unknown host name"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
         "it refused the connection"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "no route to it"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no route to it"),
        (OSError(errno.ETIMEDOUT, "Connection timed out"), "no answer in time"),
        (urllib.error.URLError(TimeoutError("timed out")), "no answer in time"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
         "the connection broke"),
        (http.client.RemoteDisconnected("Remote end closed connection"), "the connection broke"),
        (OSError("Generic S3 error: HTTP error: error sending request"), "no connection"),
        (urllib.error.URLError(ssl.SSLCertVerificationError(1, NO_TRUST)), NOT_TRUSTED),
        (OSError("error sending request: invalid peer certificate: UnknownIssuer"), NOT_TRUSTED),
    ],
)  # fmt: skip
def test_a_host_that_does_not_answer_is_reported_by_any_clients_error(
    error: Exception, why: str
) -> None:
    assert unreached(error) == why


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad value"),
        FileNotFoundError(errno.ENOENT, "No such file", "timeout.yaml"),
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.ENOSPC, "No space left on device"),
        TimeoutError(),
        smtplib.SMTPAuthenticationError(535, b"no"),
        UserError("connection refused"),
        urllib.error.HTTPError("http://h", 404, "Not Found", http.client.HTTPMessage(), None),
    ],
)
def test_other_errors_are_not_of_the_network(error: Exception) -> None:
    assert unreached(error) is None


def verb_that_raises(error: Exception) -> Callable[[argparse.Namespace], int]:
    def verb(arguments: argparse.Namespace) -> int:
        raise error

    return verb


def test_an_unknown_error_of_a_client_ends_in_3_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hpcbench.cli.show.list_experiments", verb_that_raises(NO_NAME))
    assert command.main(["list"]) == 3
    assert capsys.readouterr().err == (
        "hpcbench: hpcbench cannot reach a host, unknown host name: [Errno -3] Temporary failure in "
        "name resolution (check the network: compute nodes often have none; `https_proxy` names a "
        "proxy)\n"
    )


def test_a_mistake_of_ours_that_speaks_of_a_connection_stays_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    wrong = AssertionError("connection refused")
    monkeypatch.setattr("hpcbench.cli.show.list_experiments", verb_that_raises(wrong))
    assert command.main(["list"]) == 1
    assert "a bug of hpcbench" in capsys.readouterr().err


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that knows no name, nothing in its caches."""

    def unknown(*arguments: object, **named: object) -> object:
        raise NO_NAME

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for name in ("XDG_CONFIG_HOME", "HPCBENCH_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in (
        "HF_HUB_OFFLINE",
        "HF_ENDPOINT",
        "https_proxy",
        "HTTPS_PROXY",
        "http_proxy",
        "HTTP_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_names")
@pytest.mark.parametrize(
    ("words", "host"),
    [
        (["models", "fetch", "hf://Qwen/Qwen2-VL-2B-Instruct"], "huggingface.co"),
        (["data", "sync", "hf://datasets/org/name"], "huggingface.co"),
        (["data", "sync", "https://data.example.org/pages/"], "data.example.org: "),
        (["images", "lock", "docker://registry.example.org/a/b:1"], "registry.example.org"),
    ],
)
def test_verbs_that_need_a_network_end_in_3_without_one(
    capsys: pytest.CaptureFixture[str], words: list[str], host: str
) -> None:
    assert command.main(words) == 3
    said = capsys.readouterr().err.splitlines()[-1]
    assert host in said
    assert "unknown host name" in said
    assert "`https_proxy` names a proxy" in said
