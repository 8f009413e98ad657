"""Samples of a run task, by page and whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from hpcbench.portal.models.base import Model


class SampleRow(Model):
    """A sample in the list of a run task."""

    place: int
    """Number of the sample in the run task, from 0; addresses use it."""
    sample: str
    """Id of the sample."""
    document: str
    """Id of its document."""
    outcome: str
    """Outcome of the request; `missing`: not sent yet."""
    reason: str | None = None
    """Reason why the answer is unreadable."""
    mistake: str | None = None
    """Kind of mistake in a wrong answer; only in the details of a sample."""
    scores: Mapping[str, float | None]
    """Metric → value."""
    answer: str | None
    """Beginning of the answer."""
    latency: float | None = None
    """E2E latency, seconds."""
    output_tokens: int | None = None
    """Number of output tokens."""
    flagged: bool = False
    """Whether the user has flagged it."""


class SamplePage(Model):
    """Samples of a run task."""

    items: tuple[SampleRow, ...]
    """Samples, in the requested order."""
    next: str | None = None
    """Give it as `after` to get the next page; None: this page is the last."""
    total: int
    """Number of samples that pass the filter."""
    of: int
    """Number of samples of the run task."""
    first: int = 0
    """Number of the first item among the samples that pass the filter, from 0: a page may start anywhere."""
    live: bool
    """Whether the run task is not evaluated yet: answers have no scores, and more answers may come."""
    version: str
    """A text that changes when samples change."""
    metrics: tuple[str, ...]
    """Metrics in `scores`."""


class SampleImage(Model):
    """An image of a sample."""

    url: str
    """Address of the image, relative to the API."""
    name: str
    """Name of the image."""
    width: int | None = None
    """Width, pixels."""
    height: int | None = None
    """Height, pixels."""
    page: int | None = None
    """Number of the page in its document, from 1."""


class Box(Model):
    """A box on an image."""

    image: int
    """Number of the image, from 0."""
    left: float
    """Left edge, as a share of the image's width."""
    top: float
    """Top edge, as a share of the image's height."""
    width: float
    """Width, as a share of the image's width."""
    height: float
    """Height, as a share of the image's height."""
    label: str = ""
    """Text of the box."""
    of: Literal["reference", "answer"] = "reference"
    """Source of the box."""


class Word(Model):
    """Words of a diff from the reference to the answer."""

    kind: Literal["same", "lost", "added"]
    """`same`: in both texts; `lost`: only in the reference; `added`: only in the answer."""
    text: str
    """The words."""


class MetricAccount(Model):
    """Score of a sample by one metric, with the explanation."""

    metric: str
    """Name of the metric."""
    value: float | None
    """Score; None: the sample does not count."""
    higher_is_better: bool
    """Whether a higher value is better."""
    signature: str
    """Signature: the metric with all its options."""
    why: str
    """Explanation: the compared texts, numerator and denominator, or the fault."""
    fields: tuple[Mapping[str, Any], ...] = ()
    """For metrics of fields: `field`, `value`, `reference`, `answer` of each."""


class Flag(Model):
    """The user's flag on a sample."""

    flagged: bool
    """Whether the sample is flagged."""
    note: str = Field(default="", max_length=2_000)
    """The user's note."""


class AnswerSource(Model):
    """Where an answer of an earlier experiment comes from."""

    experiment: str
    """The experiment that asked."""
    run_task: str
    """Its run task."""
    sample: str
    """Id of its sample."""
    here: bool
    """Whether that experiment is still here."""


class SampleDetail(Model):
    """One sample with all its data."""

    row: SampleRow
    """The row of the list; the whole answer is in `answer`."""
    note: str = ""
    """The user's note."""
    images: tuple[SampleImage, ...]
    """Its images, in order."""
    missing_images: str | None = None
    """Reason why images are missing."""
    boxes: tuple[Box, ...] = ()
    """Boxes on the images."""
    system: str | None = None
    """System prompt."""
    prompt: str | None
    """User prompt."""
    fields: Mapping[str, Any]
    """Fields of the sample that the prompt can use."""
    metadata: Mapping[str, Any]
    """Metadata of the sample."""
    references: tuple[str, ...]
    """Acceptable answers."""
    answer: str | None
    """Text of the answer, unchanged."""
    reasoning: str | None = None
    """Reasoning text of the model."""
    prediction: str | None
    """Prediction: the value that the parser read from the answer."""
    error: str | None = None
    """Reason why there is no answer."""
    diff: tuple[Word, ...]
    """Diff by words from the nearest reference to the prediction."""
    not_compared: tuple[int, int] = (0, 0)
    """Number of characters at the ends of the reference and of the prediction that `diff` leaves out."""
    accounts: tuple[MetricAccount, ...]
    """Score by each metric."""
    times: Mapping[str, float | None]
    """Times of the request, seconds: queue, ttft, latency …"""
    usage: Mapping[str, int | None]
    """Numbers of tokens."""
    taken_from: AnswerSource | None = None
    """The earlier experiment that gave the answer and its times; None: this experiment asked."""
    raw: Mapping[str, Any]
    """The response as it was recorded; secrets are masked."""
    rank: int = 0
    """Number of samples before this one, with the same filter and order."""
    previous: int | None = None
    """Place of the previous sample, with the same filter and order."""
    following: int | None = None
    """Place of the next sample, with the same filter and order."""
    agent: bool = False
    """Whether an agent works on the sample: then there are turns, see `SampleTurns`."""


class TurnCall(Model):
    """A tool call of an agent."""

    tool: str
    """Name of the tool, as the model wrote it."""
    arguments: str
    """Arguments, as the model wrote them."""
    kind: str | None
    """How the call ended: `ok`, `error`, `time` …; None: it was not made, because a limit came first."""
    text: str
    """Result, or in one line why there is none."""
    seconds: float | None
    """Time of the tool; None: it was not made."""
    images: tuple[str, ...] = ()
    """Addresses of the images that it made, below the API."""
    numbers: tuple[int, ...] = ()
    """Numbers of these images, as the model counts them: after those of the sample."""


class SampleTurn(Model):
    """A turn of an agent: a reply of the model with the results of its calls."""

    number: int
    """Its number, from 1."""
    agent: str
    """Agent that replied; empty: there is only one."""
    text: str
    """Text of the reply."""
    reasoning: str | None
    """Reasoning text of the model."""
    calls: tuple[TurnCall, ...]
    """Tool calls; none: the reply is the answer."""
    outcome: str
    """Outcome of the request: ok, truncated, refused."""
    begin: float
    """Seconds of requests and tools before it."""
    seconds: float
    """Time of the request, from sending it to the end of its answer."""
    ttft: float | None
    """Seconds to the first token."""
    prompt_tokens: int | None
    """Tokens of the prompt, counted by the engine."""
    completion_tokens: int | None
    """Tokens of the reply, counted by the engine."""


class PlanStep(Model):
    """A step of an agent's plan."""

    text: str
    """The step."""
    status: Literal["pending", "in_progress", "done", "skipped"]
    """How far it is."""


class SampleTurns(Model):
    """An agent's work on one sample."""

    exit: str | None
    """How it ended; None: it has not ended."""
    why: str
    """Why it ended without an answer; empty: it did not."""
    turns: tuple[SampleTurn, ...]
    """Its turns so far."""
    plan: tuple[PlanStep, ...] = ()
    """Its last plan."""
    think_seconds: float
    """Time of all requests."""
    tool_seconds: float
    """Time of all tools."""
    sync_seconds: float | None = None
    """Time of waiting for the disk; None: it has not ended."""
    wasted: int | None = None
    """Calls without a result, or that repeat an earlier one; None: it has not ended."""
    left_out: int = 0
    """Turns that are too large to show."""
