"""Messages in the forms that chats publish, whatever an event holds."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.notify.messages import check_line, described, mattermost, page, slack, teams
from hpcbench.testing import EVENT, VERDICT

REGRESSION = {**EVENT, "state": "regression", "verdict": VERDICT, "summary": "NO-GO against main"}


def check_slack(body: dict[str, Any]) -> None:
    """docs.slack.dev: reference/block-kit/blocks (header, section) and messaging/formatting-message-text."""
    assert set(body) == {"text", "blocks"} and body["text"]
    assert 1 <= len(body["blocks"]) <= 50
    for block in body["blocks"]:
        if block["type"] == "header":
            assert block["text"]["type"] == "plain_text"
            assert 1 <= len(block["text"]["text"]) <= 150
        else:
            assert block["type"] == "section" and ("text" in block) != ("fields" in block)
            texts = block.get("fields") or [block["text"]]
            assert 1 <= len(texts) <= 10
            for text in texts:
                assert text["type"] == "mrkdwn" and text["verbatim"] is True
                assert 1 <= len(text["text"]) <= (2000 if "fields" in block else 3000)
                assert not set("<>") & set(text["text"])  # no <!channel>, no <@user>, no <link>


def check_mattermost(body: dict[str, Any]) -> None:
    """developers.mattermost.com/integrate/reference/message-attachments."""
    (attachment,) = body["attachments"]
    assert isinstance(attachment["fallback"], str) and attachment["fallback"]
    assert attachment["color"].startswith("#") and len(attachment["color"]) == 7
    assert set(attachment) <= {"fallback", "color", "title", "title_link", "text", "fields"}
    for field in attachment["fields"]:
        assert set(field) == {"short", "title", "value"} and isinstance(field["short"], bool)
    assert len(json.dumps(body)) < 16_383  # longest post


def check_teams(body: dict[str, Any]) -> None:
    """learn.microsoft.com, incoming webhooks with Workflows; adaptivecards.io/explorer, version 1.2."""
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert attachment["contentUrl"] is None
    card = attachment["content"]
    assert card["type"] == "AdaptiveCard" and card["version"] == "1.2"
    assert card["$schema"] == "http://adaptivecards.io/schemas/adaptive-card.json"
    for block in card["body"]:
        assert set(block) == {"type", "inlines"} and block["type"] == "RichTextBlock"
        for run in block["inlines"]:
            assert run["type"] == "TextRun" and isinstance(run["text"], str) and run["text"]
            assert run.get("color", "Good") in ("Good", "Warning", "Attention")
            assert run.get("size", "Large") == "Large" and run.get("weight", "Bolder") == "Bolder"
    for action in card.get("actions", ()):
        assert action["type"] == "Action.OpenUrl" and action["url"].startswith("https://")
    assert len(json.dumps(body, ensure_ascii=False).encode()) <= 28_000


def test_a_regression_says_verdict_first_and_the_checks_that_failed() -> None:
    reported = described(REGRESSION, "https://bench.example.org/{experiment}/report.html")
    assert reported.title == "NO-GO: 20260101-1200-example-abcd against 20251231-1200-example-aaaa"
    assert reported.tone == "bad"
    assert reported.lines == (
        "vqa anls: fail, 0.8125 → 0.5 (-0.3125, -0.5 to -0.125; margin 0.01): "
        "worse by more than the margin",
        "vqa =1+1: inconclusive, advisory: <b>no</b> value | & no interval",
    )
    assert dict(reported.facts) == {
        "experiment": "20260101-1200-example-abcd",
        "plan": "example",
        "baseline": "20251231-1200-example-aaaa",
        "policy": "default",
        "report": "https://bench.example.org/20260101-1200-example-abcd/report.html",
        "time": "2026-01-01T12:00:00+0000",
    }


def test_memory_is_reported_in_gib_and_speed_in_percent() -> None:
    one = VERDICT["checks"][0]
    memory = {
        **one,
        "what": "gpu_peak",
        "kind": "memory",
        "baseline": 2**33,
        "candidate": 3 * 2**32,
    }
    reported = check_line(
        {**memory, "difference": 0.5, "low": None, "high": None, "margin": 0.1, "why": ""}
    )
    assert reported == "vqa gpu_peak: fail, 8 GiB → 12 GiB (50.0 %; margin 10.0 %)"


def test_each_form_keeps_to_what_its_chat_publishes() -> None:
    for event in (EVENT, REGRESSION, {**EVENT, "report": None, "state": "incomplete"}):
        reported = described(event, "https://bench.example.org/{experiment}")
        check_slack(slack(reported))
        check_mattermost(mattermost(reported))
        check_teams(teams(reported))


def test_a_name_mentions_no_user_and_formats_nothing() -> None:
    hostile = "@all <!channel> *bold* [x](http://evil) <b> | `code` #1"
    event = {**REGRESSION, "summary": hostile, "plan": hostile}
    assert "<!channel>" not in json.dumps(slack(described(event))["blocks"])
    shown = mattermost(described(event))["attachments"][0]
    assert "@all" not in json.dumps(shown, ensure_ascii=False)
    assert "\\[x\\](http" in shown["text"] and "\\*bold\\*" in shown["text"]
    kinds = {
        block["type"] for block in teams(described(event))["attachments"][0]["content"]["body"]
    }
    assert kinds == {"RichTextBlock"}  # no Markdown, and no mention without an entity


def test_a_verdict_with_hundreds_of_checks_fits_everywhere() -> None:
    checks = [{**VERDICT["checks"][0], "what": f"metric {n} " + "&" * 300} for n in range(500)]
    event = {**REGRESSION, "verdict": {**VERDICT, "checks": checks}, "summary": "&" * 9000}
    reported = described(event)
    assert reported.lines[-1] == "and 490 more"
    check_slack(slack(reported))
    check_mattermost(mattermost(reported))
    check_teams(teams(reported))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
CHECKS = st.lists(
    st.fixed_dictionaries({key: ANYTHING for key in VERDICT["checks"][0]}), max_size=30
)


@pytest.mark.long
@given(
    st.fixed_dictionaries({key: ANYTHING for key in EVENT}),
    st.none() | st.fixed_dictionaries({"verdict": st.text(max_size=9), "checks": CHECKS}),
)
def test_whatever_an_event_holds_the_forms_hold(event: dict[str, Any], verdict: Any) -> None:
    reported = described({**event, "verdict": verdict})
    for part in (
        reported.title,
        reported.text,
        *reported.lines,
        *(text for fact in reported.facts for text in fact),
    ):
        assert "\n" not in part and "\r" not in part and "\x1b" not in part
    check_slack(slack(reported))
    check_mattermost(mattermost(reported))
    check_teams(teams(reported))
    reported.plain.encode()


class Tags(HTMLParser):
    """Which tags a page has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.add(tag)
        assert all(name in ("style", "href", "lang", "charset") for name, _ in attrs), attrs


@given(st.text(max_size=200))
def test_the_page_of_a_mail_holds_no_markup_of_an_event(text: str) -> None:
    event = {**REGRESSION, "summary": f"<script>{text}", "plan": f"<img src=x onerror=y>{text}"}
    known = {
        "html", "head", "meta", "title", "body", "h1", "p", "ul", "li", "table", "tr", "td", "a",
    }  # fmt: skip
    assert Tags(page(described(event, 'https://x/"><script>{experiment}'))).found <= known
