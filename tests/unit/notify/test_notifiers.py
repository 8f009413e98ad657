"""Notifiers against real servers: what goes over the wire, what fails and how that is reported."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcbench.notify import Busy, Refused, command, mail, webhook
from hpcbench.notify.command import CommandNotifier
from hpcbench.notify.deliver import deliver
from hpcbench.notify.mail import EmailNotifier, address, on_this_machine
from hpcbench.notify.webhook import WebhookNotifier
from hpcbench.testing import EVENT, VERDICT
from tests.unit.notify.mail_server import certificate, mail_server

REGRESSION = {
    **EVENT,
    "state": "regression",
    "verdict": VERDICT,
    "summary": "NO-GO for x against main",
}


@dataclass
class Hook:
    """A real HTTP server's answers, and what it was sent."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    """Answers, in order; the last one again and again."""
    posts: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    """Path, headers and body of each."""
    hold: threading.Event = field(default_factory=threading.Event)
    """Set: answers at once."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    kept = Hook()
    kept.hold.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kept.posts.append((self.path, dict(self.headers), body))
            kept.hold.wait(60)
            known = kept.answers or [(200, {}, b"ok")]
            code, headers, said = known[min(len(kept.posts), len(known)) - 1]
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(said)

        def do_GET(self) -> None:
            raise AssertionError("a redirected POST became a GET")

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    kept.url = f"http://127.0.0.1:{server.server_address[1]}/services/T0/part-that-is-secret"
    yield kept
    kept.hold.set()
    server.shutdown()
    server.server_close()


def reported(hook: Hook, event: Any = EVENT, **options: Any) -> dict[str, Any]:
    return deliver("webhook", {"url": hook.url, **options}, event, pauses=(0.0, 0.0))


# --- webhooks ------------------------------------------------------------------------------------------


def test_a_webhook_posts_the_event_once_with_its_identity(hook: Hook) -> None:
    assert reported(hook)["why"] is None
    ((path, headers, body),) = hook.posts
    assert path.endswith("/part-that-is-secret")
    assert body == EVENT
    assert headers["Content-Type"].startswith("application/json")
    assert headers["Idempotency-Key"] == EVENT["id"]


def test_what_may_pass_is_tried_again_within_the_call(hook: Hook) -> None:
    hook.answers = [(500, {}, b""), (429, {"Retry-After": "0"}, b"slow down"), (202, {}, b"")]
    assert reported(hook)["why"] is None
    assert len(hook.posts) == 3


def test_what_goes_on_failing_is_reported_with_what_the_server_said(hook: Hook) -> None:
    hook.answers = [(503, {}, b"<b>not\x1b[31m now</b>\n")]
    failed = reported(hook)
    assert failed["why"] == "Busy: HTTP 503 Service Unavailable: <b>not [31m now</b>"
    assert len(hook.posts) == 3


def test_a_long_wait_that_a_server_asks_for_is_left_to_a_later_call(hook: Hook) -> None:
    hook.answers = [(429, {"Retry-After": "3600"}, b"")]
    failed = reported(hook)
    assert failed["after"] == 3600.0
    assert len(hook.posts) == 1


def test_what_is_refused_for_good_is_not_asked_again(hook: Hook) -> None:
    hook.answers = [(404, {}, b"no_service")]
    assert reported(hook)["why"] == "Refused: HTTP 404 Not Found: no_service"
    assert len(hook.posts) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_no_success(hook: Hook, code: int) -> None:
    hook.answers = [(code, {"Location": hook.url}, b"")]
    assert "the server redirects" in reported(hook)["why"]
    assert len(hook.posts) == 1


def test_an_absent_user_is_busy_and_no_secret_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{port}/services/very-secret-part")
    failed = deliver("webhook", {"url": "${env:HOOK}"}, EVENT, pauses=(0.0,))
    assert "127.0.0.1" in failed["why"] and "refused" in failed["why"]
    assert "secret" not in failed["why"]


def test_a_slow_server_is_not_waited_for_for_ever(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", 0.2)
    hook.hold.clear()
    with pytest.raises(Busy, match=r"no answer in 0\.2 s|timed out"):
        WebhookNotifier({"url": hook.url}).send(EVENT)


@pytest.mark.parametrize("url", ["ftp://h/secret-and-long", "nonsense", "http://", "https:///x"])
def test_a_url_of_another_kind_is_refused_without_being_shown(url: str) -> None:
    failed = deliver("webhook", {"url": url}, EVENT, pauses=())
    assert failed["why"] == "Refused: the URL of a webhook must begin with https://"


def test_a_part_of_a_secret_that_an_error_quotes_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "http://127.0.0.1:1/hooks/with space/quoted-secret")
    failed = deliver("webhook", {"url": "${env:HOOK}"}, EVENT, pauses=())
    assert failed["why"] is not None and "quoted-secret" not in failed["why"]


def test_options_that_are_wrong_are_reported_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOOK", "hunter2" * 30)
    options = {"url": "https://x.example", "report_url": "${env:HOOK}"}
    failed = deliver("webhook", options, EVENT, pauses=())
    assert failed["why"].startswith("report_url: ")
    assert "hunter2" not in failed["why"]


# --- commands ------------------------------------------------------------------------------------------


def test_a_command_that_hangs_or_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PATIENCE", 0.2)
    sleeping = CommandNotifier(
        {"argv": ["sh", "-c", "sleep 60; true"]}
    )  # its child keeps the pipes
    began = time.monotonic()
    with pytest.raises(Refused, match=r"longer than 0\.2 s"):
        sleeping.send(EVENT)
    assert time.monotonic() - began < 30
    monkeypatch.undo()
    failing = CommandNotifier({"argv": [sys.executable, "-c", "import sys; sys.exit('no\\nway')"]})
    with pytest.raises(Refused, match="exit code 1: no way"):
        failing.send(EVENT)


# --- e-mail --------------------------------------------------------------------------------------------

MAIL = {"host": "127.0.0.1", "sender": "hpcbench <bench@example.org>", "to": ["a@example.org"]}


def mailed(port: int, event: Any = REGRESSION, **options: Any) -> dict[str, Any]:
    return deliver("email", {**MAIL, "port": port, **options}, event, pauses=(0.0,))


def test_a_mail_has_text_and_html_and_says_who_it_is() -> None:
    with mail_server() as server:
        assert mailed(server.port, security="plain", to=["a@example.org", "B <b@example.org>"]) == {
            "why": None, "after": None, "remark": None,
        }  # fmt: skip
    (mail,) = server.mails
    assert server.to == [["a@example.org", "b@example.org"]]
    assert mail["Subject"] == "NO-GO: 20260101-1200-example-abcd against 20251231-1200-example-aaaa"
    assert mail["From"] == "hpcbench <bench@example.org>"
    assert mail["To"] == "a@example.org, B <b@example.org>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"] == "<20260101-1200-example-abcd.end-0-done@hpcbench.invalid>"
    text = mail.get_body(("plain",))
    page = mail.get_body(("html",))
    assert text is not None and page is not None
    assert (
        "- vqa anls: fail, 0.8125 → 0.5 (-0.3125, -0.5 to -0.125; margin 0.01)"
        in text.get_content()
    )
    assert "&lt;b&gt;no&lt;/b&gt; value" in page.get_content()
    assert "<b>no" not in page.get_content()


def test_starttls_with_a_password_that_no_error_shows(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    secrets = tmp_path / "password"
    secrets.write_text("right-and-secret\n")
    who = {"user": "me", "password": f"${{file:{secrets}}}", "ca_file": str(pem)}
    with mail_server(pem, starttls=True, login=True) as server:
        assert mailed(server.port, **who)["why"] is None
        assert server.tls == [True] and server.users == ["me"]
        secrets.write_text("wrong-and-secret\n")
        wrong = mailed(server.port, **who)
        assert wrong["why"] == "Refused: 535 5.7.8 Authentication credentials invalid"
        assert (
            len(server.users) <= 3
        )  # not asked again, accounts are locked for that; smtplib tries PLAIN and LOGIN
        unnamed = mailed(server.port, ca_file=str(pem))
        assert unnamed["why"].startswith("Refused: 530")
    assert "secret" not in str([wrong, unnamed])


def test_ssl_from_the_first_byte(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    with mail_server(pem) as server:
        assert mailed(server.port, security="ssl", ca_file=str(pem))["why"] is None
        assert server.tls == [True]


def test_a_certificate_that_no_authority_vouches_for_is_refused(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    with mail_server(pem, starttls=True) as server:
        assert "CERTIFICATE_VERIFY_FAILED" in mailed(server.port)["why"]
        assert server.mails == []


def test_a_server_without_starttls_is_sent_nothing() -> None:
    with mail_server() as server:
        assert "STARTTLS" in mailed(server.port)["why"]
        assert server.mails == []


def test_plain_mail_leaves_this_machine_only_if_allowed() -> None:
    options = {**MAIL, "host": "192.0.2.1", "security": "plain"}
    assert "is not this machine" in deliver("email", options, EVENT, pauses=())["why"]
    assert on_this_machine("127.0.0.1") and on_this_machine("localhost")
    assert not on_this_machine("192.0.2.1")


def test_one_of_two_refused_is_a_remark_and_no_report_comes_twice() -> None:
    with mail_server() as server:
        server.refuse = {"b@example.org": "550 no such user"}
        both = ["a@example.org", "b@example.org"]
        said = mailed(server.port, security="plain", to=both)
        assert said == {
            "why": None,
            "after": None,
            "remark": "not delivered to b@example.org: 550 no such user",
        }
        assert len(server.mails) == 1
        server.refuse = dict.fromkeys(both, "450 later")
        assert mailed(server.port, security="plain", to=both)["why"].startswith(
            "Busy: a@example.org: 450"
        )
        server.refuse = {}
        server.answer = "554 spam"
        assert mailed(server.port, security="plain")["why"] == "Refused: 554 spam"


def test_the_report_is_attached_or_said_to_be_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "<!doctype html><title>é</title>" + "x" * 5000
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    (tmp_path / "plot.png").write_bytes(bytes(range(256)))
    event = {**EVENT, "report": str(tmp_path)}
    names = ["report.html", "plot.png", "gone.pdf"]
    with mail_server() as server:
        assert mailed(server.port, event, security="plain", attach=names)["why"] is None
        monkeypatch.setattr(mail, "ATTACHED_BYTES", 4000)
        assert mailed(server.port, event, security="plain", attach=names)["why"] is None
    whole, small = server.mails
    files = {
        part.get_filename(): part.get_payload(decode=True) for part in whole.iter_attachments()
    }
    assert files == {"report.html": page.encode(), "plot.png": bytes(range(256))}
    assert [part.get_filename() for part in small.iter_attachments()] == ["plot.png"]
    text = small.get_body(("plain",))
    assert text is not None
    assert "not attached: report.html is too large" in text.get_content()
    assert "not attached: gone.pdf is not in the report" in text.get_content()


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_event_puts_a_header_into_a_mail(name: str, summary: str) -> None:
    event = {**EVENT, "experiment": f"x\r\nBcc: evil@example.org\r\n{name}", "summary": summary}
    event["id"] = f"a\r\nX-Evil: 1{name}"
    mail = EmailNotifier(MAIL).message(event)
    assert "Bcc" not in mail and "X-Evil" not in mail
    head = mail.as_bytes().partition(b"\n\n")[0].lower()
    assert b"\nbcc:" not in head and b"\nx-evil:" not in head


@pytest.mark.parametrize(
    "text",
    ["", "a", "a@", "@b", "a@b\nBcc: c@d", "a@b, c@d", "é@example.org", "a@b@c", "<>", "a b@c"],
)
def test_what_is_no_address_is_refused_before_anything_runs(text: str) -> None:
    with pytest.raises(ValueError, match="e-mail address"):
        address(text)
    with pytest.raises(ValidationError):
        EmailNotifier({**MAIL, "to": [text]})
    with pytest.raises(ValidationError):
        EmailNotifier({**MAIL, "sender": text})


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "a b"}, {"port": 0}, {"security": "none"}, {"user": "me"}, {"password": "p"},
        {"to": []}, {"attach": ["../x"]}, {"attach": ["/etc/passwd"]}, {"report_url": "file:///x"},
    ],
)  # fmt: skip
def test_options_of_a_mail_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EmailNotifier({**MAIL, **wrong})
