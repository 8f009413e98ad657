"""Messages of notifiers: an event as a message, and the message in the forms of chats and mail programs.

Everything in an event may be hostile (names of metrics, answers quoted in a reason): it is cut to the form's
limits, and every form escapes it in its own way. A message mentions no user.

Sources of the forms, read in 2026:
    Slack       docs.slack.dev/reference/block-kit/blocks (header: 150 characters; section: 3,000, its fields:
                10 of 2,000; 50 blocks a message) and …/messaging/formatting-message-text (& < > are escaped)
    Mattermost  developers.mattermost.com/integrate/reference/message-attachments (`fallback` is required;
                texts are Markdown; `short` fields are side by side)
    Teams       learn.microsoft.com, "Create incoming webhooks with Workflows": a message with one Adaptive
                Card; MessageCards of the retired Office 365 connectors are no longer accepted. 28 KB.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hpcbench.number_format import four_digits, percent

Tone = Literal["good", "bad", "unsure"]
"""Tone of a message, for its colour; the words say the same."""

COLOURS: Mapping[Tone, str] = {"good": "#1b7f5c", "bad": "#b3261e", "unsure": "#8a6d00"}
"""Readable on white and on black."""

SHOWN = 10
"""Most checks that a message lists; the report has all."""

LONGEST = 2_800
"""Most characters of a text in a chat; Slack accepts 3,000 after escaping."""

TITLE = 140
"""Most characters of a title; Slack accepts 150."""

TEAMS_BYTES = 28_000
"""Teams accepts 28 KB."""

NONE = "–"
"""Placeholder for a missing figure."""

_FIGURES = ("baseline", "candidate", "difference", "low", "high", "margin")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_MARKDOWN = re.compile(r"[\\`*_\[\]#|~>]|^[-+]")


@dataclass(frozen=True, slots=True)
class Message:
    """An event in words, not escaped yet; no line of it has a line break."""

    title: str
    """The event, in a few words."""
    text: str
    """One line."""
    facts: tuple[tuple[str, str], ...]
    """Its subject: name and value."""
    lines: tuple[str, ...]
    """Checks that did not pass, one line each, the critical ones first."""
    tone: Tone
    """Good, bad or unsure."""
    link: str | None
    """The report's address on the web; None: `facts` has its path."""

    @property
    def plain(self) -> str:
        """The whole message as text."""
        parts = [self.text, "", *(f"{name}: {value}" for name, value in self.facts)]
        if self.lines:
            parts += ["", *(f"- {line}" for line in self.lines)]
        return "\n".join(parts) + "\n"


def described(event: Mapping[str, Any], report_url: str | None = None) -> Message:
    """An event in words.

    Args:
        event: as notifiers receive it.
        report_url: address of reports on the web; `{experiment}` in it is the id.
    """
    name = one_line(event.get("experiment") or "hpcbench")
    link = report_url.replace("{experiment}", name) if report_url and event.get("report") else None
    verdict = event.get("verdict")
    facts = [("experiment", name), ("plan", one_line(event.get("plan") or ""))]
    lines: tuple[str, ...] = ()
    if isinstance(verdict, Mapping):
        facts.append(("baseline", one_line(verdict.get("baseline") or "")))
        facts.append(("policy", one_line(verdict.get("policy") or "")))
        lines = _lines(verdict)
    facts.append(("report", link or one_line(event.get("report") or "")))
    facts.append(("time", one_line(event.get("time") or "")))
    return Message(
        title=_cut(_title(event, name), TITLE),
        text=_cut(one_line(event.get("summary") or ""), LONGEST),
        facts=tuple((key, _cut(value, 300)) for key, value in facts if value),
        lines=lines,
        tone=_tone(event),
        link=link,
    )


def one_line(text: object) -> str:
    """A text without line breaks, control characters, marks of writing direction, and halves of surrogate
    pairs, which engines do send and no form can carry."""
    whole = str(text).encode("utf-8", "replace").decode()
    return " ".join(_CONTROL.sub(" ", whole).split())


def number(value: object) -> str:
    """A figure of a verdict as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return NONE
    return four_digits(value)


def _title(event: Mapping[str, Any], name: str) -> str:
    verdict, state = event.get("verdict"), event.get("state")
    if isinstance(verdict, Mapping):
        against = one_line(verdict.get("baseline") or "its baseline")
        return f"{one_line(verdict.get('verdict'))}: {name} against {against}"
    return f"hpcbench: {name}" if state == "test" else f"{name} is {one_line(state)}"


def _tone(event: Mapping[str, Any]) -> Tone:
    verdict = event.get("verdict")
    word = verdict.get("verdict") if isinstance(verdict, Mapping) else event.get("state")
    known: Mapping[str, Tone] = {
        "GO": "good",
        "done": "good",
        "test": "good",
        "NO-GO": "bad",
        "failed": "bad",
    }
    return known.get(str(word), "unsure")


def _lines(verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """Checks that did not pass, worst first, and the number of further ones."""
    order = {("critical", "fail"): 0, ("critical", "inconclusive"): 1, ("advisory", "fail"): 2}
    wrong = [one for one in verdict.get("checks") or () if one.get("verdict") != "pass"]
    wrong.sort(key=lambda one: order.get((str(one.get("level")), str(one.get("verdict"))), 3))
    found = [_cut(f"{check_line(one)}", 240) for one in wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        found.append(f"and {len(wrong) - SHOWN} more")
    return tuple(found) or tuple(_cut(one_line(one), 240) for one in verdict.get("reasons") or ())


def check_line(check: Mapping[str, Any]) -> str:
    """One check in a line: `vqa anls: fail, 0.81 → 0.74 (-0.07, -0.1 to -0.04; margin 0.01)`."""
    what = f"{one_line(check.get('run_task') or '')} {one_line(check.get('what') or '')}".strip()
    kind = f"{check.get('verdict')}{', advisory' if check.get('level') == 'advisory' else ''}"
    shown = figures(check)
    span = f", {shown['low']} to {shown['high']}" if shown["low"] != NONE else ""
    margin = f"; margin {shown['margin']}" if shown["margin"] != NONE else ""
    change = ""
    if {shown["baseline"], shown["candidate"]} != {NONE}:
        change = (
            f", {shown['baseline']} → {shown['candidate']} ({shown['difference']}{span}{margin})"
        )
    why = f": {one_line(check['why'])}" if check.get("why") else ""
    return f"{what}: {one_line(kind)}{change}{why}"


def figures(check: Mapping[str, Any]) -> dict[str, str]:
    """The figures of a check as text: memory in GiB, differences of speed and memory in percent."""
    kind = check.get("kind")
    shown = {key: number(check.get(key)) for key in _FIGURES}
    for key in _FIGURES if kind in ("speed", "memory") else ():
        value = check.get(key)
        if shown[key] == NONE or not isinstance(value, (int, float)):
            continue
        if key not in ("baseline", "candidate"):
            shown[key] = percent(value, 1)
        elif kind == "memory":
            shown[key] = f"{value / 2**30:.3g} GiB"
    return shown


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 2].rstrip() + " …"


# --- forms ---------------------------------------------------------------------------------------------


def slack(message: Message) -> dict[str, Any]:
    """Blocks for an incoming webhook of Slack, and the text of its notification."""
    facts = [
        {"type": "mrkdwn", "text": f"*{_slack(name)}*\n{_slack(value)}", "verbatim": True}
        for name, value in message.facts
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": message.title, "emoji": False}},
        _section(_slack(message.text) or " "),
    ]
    if message.lines:
        blocks += [
            _section(text) for text in _packed([f"• {_slack(one)}" for one in message.lines])
        ]
    blocks.append({"type": "section", "fields": facts[:10]})
    return {"text": _slack(f"{message.title} – {message.text}"[:LONGEST]), "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    # Escaping made it longer: an entity that is cut in two would be shown literally.
    text = re.sub(r"&\w{0,4}$", "", text[:2_990]) if len(text) > 3_000 else text
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _packed(lines: Sequence[str]) -> list[str]:
    """Lines in as few texts as Slack's limits allow."""
    texts = [""]
    for line in lines:
        if len(texts[-1]) + len(line) > LONGEST and texts[-1]:
            texts.append("")
        texts[-1] += f"{line}\n"
    return texts


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mattermost(message: Message) -> dict[str, Any]:
    """An attachment for an incoming webhook of Mattermost."""
    lines = "".join(f"\n- {markdown(line)}" for line in message.lines)
    attachment = {
        "fallback": _unmentioned(f"{message.title} – {message.text}"),
        "color": COLOURS[message.tone],
        "title": _unmentioned(message.title),
        "text": markdown(message.text) + lines,
        "fields": [
            {"short": len(value) < 40, "title": _unmentioned(name), "value": markdown(value)}
            for name, value in message.facts
        ],
    }
    if message.link:
        attachment["title_link"] = message.link
    return {"text": "", "attachments": [attachment]}


def teams(message: Message) -> dict[str, Any]:
    """A message with one Adaptive Card, for the webhook of a Teams workflow.

    It uses only text runs, which know no Markdown: nothing needs escaping and no name causes formatting.
    """
    style = {"good": "Good", "bad": "Attention", "unsure": "Warning"}[message.tone]
    title = {"size": "Large", "weight": "Bolder", "color": style}
    lines = list(message.lines)
    while True:
        body = [_runs((message.title, title)), _runs((message.text or " ", {}))]
        body += [_runs((f"• {line}", {})) for line in lines]
        bold = {"weight": "Bolder"}
        body += [_runs((f"{name}: ", bold), (value, {})) for name, value in message.facts]
        card: dict[str, Any] = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.2",
            "body": body,
            "msteams": {"width": "Full"},
        }
        if message.link:
            card["actions"] = [{"type": "Action.OpenUrl", "title": "Report", "url": message.link}]
        kind = "application/vnd.microsoft.card.adaptive"
        attachment = {"contentType": kind, "contentUrl": None, "content": card}
        whole = {"type": "message", "attachments": [attachment]}
        if not lines or len(json.dumps(whole, ensure_ascii=False).encode()) <= TEAMS_BYTES:
            return whole
        lines.pop()


def _runs(*parts: tuple[str, Mapping[str, str]]) -> dict[str, Any]:
    runs = [{"type": "TextRun", "text": text, **style} for text, style in parts]
    return {"type": "RichTextBlock", "inlines": runs}


def markdown(text: str) -> str:
    """Text for Markdown that mentions no user."""
    return _unmentioned(_MARKDOWN.sub(r"\\\g<0>", text.replace("<", "&lt;")))


def _unmentioned(text: str) -> str:
    """`@all` with a zero-width space: it looks the same, and notifies no user."""
    return re.sub(r"@(?=\w)", "@\u200b", text)


def page(message: Message) -> str:
    """A small HTML page for mail programs: no style sheet, no picture, no loaded resource."""
    cell = "padding:2px 12px 2px 0;vertical-align:top"
    rows = "".join(
        f'<tr><td style="{cell}">{html.escape(name)}</td>'
        f'<td style="{cell}">{_linked(value, message.link)}</td></tr>'
        for name, value in message.facts
    )
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in message.lines)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(message.title)}</title></head>"
        '<body style="font-family:sans-serif">'
        f'<h1 style="font-size:18px;color:{COLOURS[message.tone]}">{html.escape(message.title)}</h1>'
        f"<p>{html.escape(message.text)}</p>{f'<ul>{lines}</ul>' if lines else ''}"
        f'<table style="border-collapse:collapse">{rows}</table></body></html>\n'
    )


def _linked(value: str, link: str | None) -> str:
    shown = html.escape(value)
    return f'<a href="{shown}">{shown}</a>' if link is not None and value == link else shown
