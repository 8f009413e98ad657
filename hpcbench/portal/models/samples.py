"""Samples of a run task, by page and whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from hpcbench.portal.models.base import Model


class SampleRow(Model):
    """A sample in the list of a run task."""

    place: int
    """Its number among the samples asked, from 0: its address."""
    sample: str
    """Its id."""
    document: str
    """The document it belongs to."""
    outcome: str
    """How the request ended; `missing`: nobody has asked yet."""
    reason: str | None = None
    """Why the answer cannot be read."""
    scores: Mapping[str, float | None]
    """Metric → value."""
    answer: str | None
    """Beginning of the answer."""
    latency: float | None = None
    """Seconds."""
    output_tokens: int | None = None
    """Tokens of the answer."""
    flagged: bool = False
    """Whether the user has flagged it."""


class SamplePage(Model):
    """Samples of a run task."""

    items: tuple[SampleRow, ...]
    """In order."""
    next: str | None = None
    """Give it as `after`."""
    total: int
    """Samples that pass the filter."""
    of: int
    """Samples of the run task."""
    first: int = 0
    """Number of the first item among those that pass, from 0: long lists are entered anywhere."""
    live: bool
    """Whether the run task is not evaluated yet: answers without scores, and more may come."""
    version: str
    """Changes when samples change."""
    metrics: tuple[str, ...]
    """Metrics in `scores`."""


class SampleImage(Model):
    """An image of a sample."""

    url: str
    """Where to get it, relative to the API."""
    name: str
    """What it is called."""
    width: int | None = None
    """Pixels."""
    height: int | None = None
    """Pixels."""
    page: int | None = None
    """Page of a document, from 1."""


class Box(Model):
    """A place on an image."""

    image: int
    """Which image, from 0."""
    left: float
    """Share of the image's width."""
    top: float
    """Share of the image's height."""
    width: float
    """Share of the image's width."""
    height: float
    """Share of the image's height."""
    label: str = ""
    """What is there."""
    of: Literal["reference", "answer"] = "reference"
    """Who says so."""


class Word(Model):
    """A stretch of text in a word diff from the reference to the answer."""

    kind: Literal["same", "lost", "added"]
    """In both, only in the reference, only in the answer."""
    text: str
    """The words."""


class MetricAccount(Model):
    """What a metric says of a sample, and why."""

    metric: str
    """Its name."""
    value: float | None
    """Its value; None: it does not count."""
    higher_is_better: bool
    """Whether more of it is better."""
    signature: str
    """The metric with all its options."""
    why: str
    """In words: what was compared with what, numerator and denominator, or the fault."""
    fields: tuple[Mapping[str, Any], ...] = ()
    """Where it scores fields: `field`, `value`, `reference`, `answer`."""


class Flag(Model):
    """Whether the user has marked a sample."""

    flagged: bool
    """Whether it is."""
    note: str = Field(default="", max_length=2_000)
    """What the user noted."""


class SampleDetail(Model):
    """All of one sample."""

    row: SampleRow
    """As in the list; its answer stands below in full."""
    note: str = ""
    """What the user noted when marking it."""
    images: tuple[SampleImage, ...]
    """Its images, in order."""
    missing_images: str | None = None
    """Why there are none, where there should be some."""
    boxes: tuple[Box, ...] = ()
    """Places on the images."""
    system: str | None = None
    """System prompt."""
    prompt: str | None
    """What was asked."""
    fields: Mapping[str, Any]
    """Fields of the sample that the prompt may use."""
    metadata: Mapping[str, Any]
    """Metadata of the sample."""
    references: tuple[str, ...]
    """Acceptable answers."""
    answer: str | None
    """As it came."""
    reasoning: str | None = None
    """What the model thought aloud."""
    prediction: str | None
    """What was read out of it."""
    error: str | None = None
    """Why there is no answer."""
    diff: tuple[Word, ...]
    """From the nearest reference to the prediction, by words."""
    not_compared: tuple[int, int] = (0, 0)
    """Characters at the ends of the reference and of the prediction that `diff` leaves out."""
    accounts: tuple[MetricAccount, ...]
    """What each metric says."""
    times: Mapping[str, float | None]
    """queue, ttft, latency … in seconds."""
    usage: Mapping[str, int | None]
    """Tokens."""
    raw: Mapping[str, Any]
    """The response as it was recorded, secrets masked."""
    rank: int = 0
    """How many samples come before it, with the same filter and order."""
    previous: int | None = None
    """Place of the sample before, with the same filter."""
    following: int | None = None
    """Place of the sample after, with the same filter."""
