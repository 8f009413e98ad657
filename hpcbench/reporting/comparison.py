"""The page of a comparison: `hpcbench compare --report FILE` writes it, in the blocks of every report.

It shows the data of `compare --json` (`comparison.account`); the samples to look at first are shown complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import hpcbench
from hpcbench import number_format as form
from hpcbench.comparison.pairing import pair_name
from hpcbench.comparison.speed import not_comparable
from hpcbench.comparison.table_rows import (
    DETAILS,
    metric_cells,
    metric_notes,
    refusal_text,
    setting_text,
    speed_cells,
)
from hpcbench.reporting.blocks import (
    Block,
    Code,
    Flipped,
    Item,
    Items,
    Link,
    Part,
    Plot,
    Section,
    Strong,
    Table,
    Text,
)
from hpcbench.reporting.charts import flow
from hpcbench.reporting.figures import Figure
from hpcbench.reporting.flipped_samples import (
    Key,
    flipped,
    images_of,
    key_of,
)
from hpcbench.reporting.thumbnails import Thumbnail

MOST_DIFFERENCES = 500
"""Lines of configuration on a page."""

NAMED = 4
"""Metrics of each verdict that the first paragraph names."""

IMAGES_MB = 3.0
"""Most MiB of images on a page; samples beyond this have none."""

CELL = 160
"""Characters of an answer in a cell."""


def page(account: Mapping[str, Any], ending: str) -> dict[str, str | bytes]:
    """The files of a page.

    Args:
        account: the result of `comparison.account`.
        ending: `.md` or `.html`.

    Returns:
        Ending or name of a plot → content: the page's key is its ending; the plots of a Markdown page are
        separate entries.
    """
    names = [one["id"] for one in account["candidates"]]
    title = f"{', '.join(names)} against {account['baseline']['id']}"
    description = (
        "Candidates compared with a baseline, sample by sample; documents are the unit of chance."
    )
    shown = {one["id"]: flipped(account["baseline"]["path"], one) for one in account["candidates"]}
    found = list(sections(account, shown))
    if ending == ".md":
        from hpcbench.reporting.formats import markdown

        text, files = markdown.written(title, description, found)
        return {ending: text, **files}
    from hpcbench.reporting.formats import html

    head = {
        "id": account["baseline"]["id"],
        "plan": {"name": title, "description": description},
        "manifest": {"hpcbench": hpcbench.__version__},
    }
    return {ending: html.written(head, found, _images(account, shown))}


def _images(
    account: Mapping[str, Any], shown: Mapping[str, Mapping[Key, Flipped]]
) -> dict[str, list[Thumbnail]]:
    """Anchor → images of the anchor's sample."""
    found: dict[str, list[Thumbnail]] = {}
    for one in account["candidates"]:
        some = shown[one["id"]]
        pages = images_of(one["path"], some, IMAGES_MB / len(account["candidates"]))
        found |= {
            flip.anchor: pages[key[1], key[3]]
            for key, flip in some.items()
            if (key[1], key[3]) in pages
        }
    return found


def sections(
    account: Mapping[str, Any], shown: Mapping[str, Mapping[Key, Flipped]]
) -> Iterator[Section]:
    """Sections of the page; each has one part for every candidate, where there are several.

    Args:
        account: the result of `comparison.account`.
        shown: candidate → flips that are shown complete.
    """
    yield Section("verdict", "Results", tuple(_summary(account)))
    for name, title, blocks in (
        ("scores", "Scores", _scores),
        ("speed", "Speed and memory", _speed),
        ("flips", "Samples lost and won", lambda one: _flips(one, shown[one["id"]])),
        ("configuration", "Differences in configuration", _configuration),
    ):
        parts = [Part(one["id"], tuple(blocks(one))) for one in account["candidates"]]
        there = tuple(part for part in parts if part.blocks)
        if there and len(parts) == 1:
            yield Section(name, title, there[0].blocks)
        elif there:
            yield Section(name, title, (), there)
    yield Section("again", "How to compare again", (Code(_command(account)),))


def _summary(account: Mapping[str, Any]) -> Iterator[Block]:
    for one in account["candidates"]:
        found: dict[str, list[str]] = {}
        for compared in one["compared"]:
            name = pair_name(compared["baseline"], compared["candidate"])
            verdict = compared["comparison"]["verdict"]
            found.setdefault(verdict, []).append(f"{compared['metric']} of {name}")
        said = [f"{word} by {form.few(found[word], NAMED)}" for word in _VERDICTS if word in found]
        yield Text(
            f"{one['id']} is {'; '.join(said)}."
            if said
            else f"{one['id']}: no metric was compared.",
            "lead",
        )
    for one in account["candidates"]:
        before = f"{one['id']}: " if len(account["candidates"]) > 1 else ""
        for refused in one["refused"]:
            yield Text(f"{before}Not compared, {refusal_text(refused)}.", "warn")
        for text in one["careful"]:
            yield Text(f"{before}Careful, {text}.", "warn")
    if account["comparisons"] > 1:
        yield Text(
            f"p-values and verdicts are after Holm's correction for {account['comparisons']} comparisons. "
            "Better and worse need the interval and the p-value; equivalent needs the whole interval "
            "within the margin.",
            "note",
        )


_VERDICTS = ("better", "worse", "equivalent", "inconclusive")


def _scores(one: Mapping[str, Any]) -> Iterator[Block]:
    rows, notes = [], []
    for compared in one["compared"]:
        *cells, verdict = metric_cells(compared)
        sure = verdict in ("better", "worse")
        rows.append((*cells, Strong(verdict) if sure else verdict))
        notes += [Item(name, text) for name, text in metric_notes(compared)]
    if rows:
        heads = (
            "Run task", "Metric", "Baseline", "Candidate", "Difference", "95 % interval", "p",
            "Won/lost/same", "Documents", "Verdict",
        )  # fmt: skip
        yield Table("Scores, sample by sample", heads, tuple(rows), 2, frozenset({9}))
    if notes:
        yield Items(tuple(notes))
    signatures = {compared["signature"]: None for compared in one["compared"]}
    yield Text(f"Metrics: {', '.join(signatures)}.", "note")


def _speed(one: Mapping[str, Any]) -> Iterator[Block]:
    for line in not_comparable(one["speed"]):
        yield Text(f"{line[0].upper()}{line[1:]}.", "warn")
    if one["speed"]:
        chosen = [figure for figure in one["speed"] if not figure["figure"].endswith(DETAILS)]
        yield _figures("Speed and memory", chosen)
        yield _figures("Speed and memory, all figures", one["speed"], "All figures")
        yield Text(
            "Intervals contain the spread of times within a run, not the differences between jobs.",
            "note",
        )
    if one["speed_notes"]:
        yield Items(tuple(Item("", note) for note in one["speed_notes"]))


def _figures(caption: str, figures: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    rows = tuple(
        (*speed_cells(figure), "yes" if figure["comparable"] else "no") for figure in figures
    )
    heads = ("Run task", "Figure", "Baseline", "Candidate", "Ratio", "95 % interval", "Comparable")
    return Table(caption, heads, rows, 2, frozenset({6}), title)


def _flips(one: Mapping[str, Any], shown: Mapping[Key, Flipped]) -> Iterator[Block]:
    for moved in one["moves"]:
        if any(source != target for source, target, _ in moved["moves"]):
            figure = _flow(one, moved)
            if figure is not None:
                yield Plot(figure)
    for change in ("lost", "won"):
        some = [flip for flip in one["flips"] if flip["change"] == change]
        if not some:
            continue
        rows = tuple(
            (
                _linked(flip, shown),
                f"{pair_name(flip['baseline'], flip['candidate'])}, {flip['metric']}",
                flip["document"],
                " → ".join(form.value(score) for score in flip["scores"]),
                *(_cut(answer) for answer in flip["answers"]),
                _cut(" | ".join(flip["references"])),
            )
            for flip in some
        )
        heads = (
            "Sample", "Run task, metric", "Document", "Scores", "Baseline's answer",
            "Candidate's answer", "Reference",
        )  # fmt: skip
        texts = frozenset({1, 2, 3, 4, 5, 6})
        yield Table(f"Samples that the candidate {change}", heads, rows, 1, texts)
    yield from shown.values()


def _linked(flip: Mapping[str, Any], shown: Mapping[Key, Flipped]) -> str:
    """A sample's name, with a link where the sample is shown complete."""
    known = shown.get(key_of(flip))
    return flip["sample"] if known is None else Link(flip["sample"], known.anchor)


def _flow(one: Mapping[str, Any], moved: Mapping[str, Any]) -> Figure | None:
    """How samples moved between ends."""
    counts = {(source, target): count for source, target, count in moved["moves"]}
    name = pair_name(moved["baseline"], moved["candidate"])
    return flow(counts, "the baseline", str(one["id"]), f"{name} by {moved['metric']}")


def _configuration(one: Mapping[str, Any]) -> Iterator[Block]:
    rows = tuple(
        (difference["path"], *(_cut(setting_text(difference[side])) for side in ("one", "other")))
        for difference in one["differences"][:MOST_DIFFERENCES]
    )
    if rows:
        heads = ("Setting", "Baseline", "Candidate")
        yield Table("Differences in configuration", heads, rows, 1, frozenset({1, 2}))
    more = len(one["differences"]) - MOST_DIFFERENCES
    if more > 0:
        yield Text(f"And {more} more.", "note")


def _command(account: Mapping[str, Any]) -> str:
    names = [account["baseline"]["id"], *(one["id"] for one in account["candidates"])]
    more = " --common" if account["common"] else ""
    more += f" --counting {account['counting']}" if account["counting"] != "zero" else ""
    return f"hpcbench compare {' '.join(names)}{more}"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= CELL else f"{flat[:CELL]}…"
