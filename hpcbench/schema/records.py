"""Records of a running experiment: samples in, responses and events out.

These are plain dataclasses: they pass by the thousand, and what is written was validated on its way in.
Every record becomes one line of JSON; the header line of each file contains `event_log.RECORD_VERSION`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

Outcome = Literal["ok", "truncated", "refused", "invalid", "failed"]
"""How a request ended.

`ok` answered · `truncated` cut at max_tokens · `refused` by the model's content filter · `invalid` the
engine or the file system says the request itself is bad (a broken image) · `failed` no answer after all
tries.
"""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""All of them."""
ANSWERED: tuple[Outcome, ...] = ("ok", "truncated")
"""Outcomes with an answer. Others have no latency: a fast refusal would make the engine look fast."""

USAGE = ("prompt_tokens", "completion_tokens")
"""Counts of tokens that a response keeps."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image inside another file: a page of a PDF, a member of a pack. Read when it is needed."""

    name: str
    """Its name, for people."""
    read: Callable[[], bytes] = field(compare=False, repr=False)
    """Gives its bytes; raises UserError or EnvironmentFault."""


Image = Path | bytes | StoredImage
"""An image file, an image's bytes, or where to read them."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Where something is on a sample's first image."""

    corners: tuple[tuple[float, float, float, float], ...]
    """Left, top, right, bottom of each."""
    labels: tuple[str, ...]
    """Content of each box: a text, or the field that has this value."""
    size: tuple[float, float] | None = None
    """Width and height that corners are measured by; None: the image's own pixels."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One input with its references."""

    id: str
    """Unique in the dataset."""
    images: tuple[Image, ...]
    """Images, in the order the prompt shows them."""
    fields: Mapping[str, Any]
    """Fields for prompts, e.g. `question`."""
    references: tuple[Any, ...]
    """Acceptable answers: texts, or JSON objects for key-information extraction."""
    document: str
    """The document that it belongs to: the cluster of the intervals."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Columns for groups in tables, e.g. `doc_type`."""
    boxes: Callable[[], Boxes] | None = field(default=None, compare=False, repr=False)
    """Returns the dataset's marks on the first image, which pages show and neither prompts nor scores use.
    It reads them on first use, and may raise UserError."""


@dataclass(frozen=True, slots=True)
class PromptExample:
    """A question with its right answer, shown before the sample's own (few-shot)."""

    answer: str
    """The right answer, as a model should write it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values for the user template."""
    images: tuple[str, ...] = ()
    """Image files, relative to the prompt's definition."""


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """One prompt of a collection."""

    id: str
    """Its name within the collection; every response contains it."""
    user: str
    """User message, a Jinja2 template."""
    system: str | None = None
    """System message. Without it: the definition's."""
    when: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Conditions that a sample must meet: `dataset` or `task` (names of definitions), metadata or fields →
    value. Without conditions: any sample."""
    examples: tuple[PromptExample, ...] = ()
    """Few-shot examples that replace the definition's."""
    version: str = ""
    """Version of the wording, for people."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Where an object departs from its schema."""

    kind: Literal["missing", "extra", "mistyped", "value"]
    """A required field is not there; one that does not belong is; a type is wrong; a value is not allowed."""
    path: str
    """Where, `seller.inn`, `items[2].price`; empty: the whole."""
    message: str
    """The mistake, in words."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer as it was read: its value, or why there is none."""

    value: object | None
    """The value for metrics; None: it could not be read, or breaks its schema."""
    reason: str = ""
    """Why there is no value, in a few words, the same for the same cause; empty where there is one."""
    form: str = ""
    """Form in which it was found: text, json, fence, prose (JSON between words), lines (`key: value`), table,
    parser; empty: nothing was found."""
    repairs: tuple[str, ...] = ()
    """Repairs that made it readable, e.g. `closed brackets`; empty: it was sound, or lost."""
    faults: tuple[Fault, ...] = ()
    """Where it departs from its schema."""
    required: int = 0
    """Fields that the schema demands, nested ones counted."""
    found: int = 0
    """Fields that the answer has, nested ones counted."""
    extra: int = 0
    """Those of them that the schema does not name; faults only where it forbids them."""
    truncated: bool = False
    """The answer was cut at max_tokens."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's call of a tool."""

    id: str
    """The call's name in the conversation."""
    tool: str
    """Name of the tool, as the model wrote it."""
    arguments: str
    """Its arguments, as the model wrote them: JSON, or what should be JSON."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; images go before the text."""

    role: Literal["system", "user", "assistant", "tool"]
    """Speaker of the message."""
    text: str
    """Content of the message."""
    images: tuple[Image, ...] = ()
    """Images shown with it; sent byte for byte as they lie."""
    calls: tuple[ToolCall, ...] = ()
    """Tools that the assistant calls."""
    call_id: str | None = None
    """The call whose result a tool's message gives."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the engine."""

    sample_id: str
    """The sample it asks about."""
    messages: tuple[Message, ...]
    """The prompt."""
    generation: Mapping[str, Any]
    """OpenAI's sampling fields: max_tokens, temperature, top_p, seed, stop."""
    timeout: float
    """Deadline over all tries, seconds."""
    prompt: str = ""
    """Its prompt: the definition's name, and the entry's name in a collection."""
    basis: str = ""
    """Key of its model, engine and image, see `planning.answer_basis`; empty: not all is known."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that the model may call, in OpenAI's form."""


@dataclass(frozen=True, slots=True)
class Times:
    """When things happened: `time.monotonic_ns()` of one node; of the last try where there were several."""

    start: int
    """When there was room for it, or its preparation began if later; images may have been read ahead."""
    send: int
    """Body ready, about to be written."""
    headers: int | None
    """The response's head had arrived, whole."""
    chunks: tuple[int, ...]
    """Arrival of each chunk that carries new text."""
    done: int
    """Stream closed."""
    scheduled: int | None = None
    """When it was to be sent, under a given rate; None: as soon as a slot was free."""
    empty: tuple[int, ...] = ()
    """Arrival of each chunk with choices but no text: the role at the front, the reason at the end."""
    tokens: tuple[int, ...] = ()
    """Tokens of the answer so far, as the engine counted them with each of `chunks`; empty: it did not."""


@dataclass(frozen=True, slots=True)
class Response:
    """The result of one request."""

    sample_id: str
    """The sample it belongs to."""
    outcome: Outcome
    """How it ended."""
    text: str | None
    """The answer, unchanged; None without one."""
    finish_reason: str | None
    """The engine's own word: stop, length, content_filter, repetition."""
    usage: Mapping[str, int] | None
    """The engine's count of tokens: prompt_tokens, completion_tokens."""
    times: Times
    """When things happened."""
    tries: int
    """Requests sent for it, retries included."""
    image_sha256: tuple[str, ...]
    """Hash of each image as sent."""
    error: str | None = None
    """One line on why there is no answer."""
    prompt: str = ""
    """The request's prompt."""
    recount: int | None = None
    """Tokens of the text by the model's own tokenizer, a check of the engine's count; None: not counted."""
    reasoning: str | None = None
    """Text that the engine marked as the model's reasoning; no metric sees it."""
    answer_key: str | None = None
    """SHA-256 of all that makes the answer: the request's basis, and every byte sent. None: not known."""
    reused_from: Mapping[str, str] | None = None
    """Where an earlier experiment has the answer: `experiment`, `run_task`, `sample`, and `piece`, a shard's
    number and attempt: times of one piece are of one clock. None: this experiment asked."""
    calls: tuple[ToolCall, ...] = ()
    """Tools that the model calls; never in a record, for its turn has them."""
    trajectory: Mapping[str, Any] | None = None
    """Figures of an agent's trajectory, see `agents/trajectory.py`; None: it was one request."""
    lost: int = 0
    """Tries that a model may have worked on and whose answers are lost: a provider charges them. Never in a
    record."""

    def to_json(self) -> dict[str, Any]:
        """The record as it is written; `from_json` reads it back."""
        # Not by `asdict`, which copies every stamp of every chunk.
        record = {**_fields(self), "times": _fields(self.times)}
        del record["calls"], record["lost"]
        if self.trajectory is None:  # versions before 0.2 do not know it
            del record["trajectory"]
        return record

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Response:
        """Read what `to_json` wrote, of any version: for all readers, this decides which lines are answers.

        Raises:
            KeyError, TypeError, ValueError: a required field is missing, or a value is not of its type.
        """
        times, optional = data["times"], data.get
        response = cls(
            sample_id=data["sample_id"],
            outcome=data["outcome"],
            text=optional("text"),
            finish_reason=optional("finish_reason"),
            usage=_counts(optional("usage")),
            times=Times(
                times["start"],
                times["send"],
                times.get("headers"),
                tuple(times.get("chunks") or ()),
                times["done"],
                times.get("scheduled"),
                tuple(times.get("empty") or ()),
                tuple(times.get("tokens") or ()),
            ),
            tries=data["tries"],
            image_sha256=tuple(optional("image_sha256") or ()),
            error=optional("error"),
            prompt=optional("prompt") or "",
            recount=optional("recount"),
            reasoning=optional("reasoning"),
            answer_key=optional("answer_key"),
            reused_from=optional("reused_from"),
            trajectory=optional("trajectory"),
        )
        response._check()
        return response

    @classmethod
    def or_none(cls, data: Mapping[str, Any]) -> Response | None:
        """As `from_json`; None: the record is damaged, which a line may be that still is JSON."""
        try:
            return cls.from_json(data)
        except (KeyError, TypeError, ValueError):
            return None

    def _check(self) -> None:
        """Compare values with their types.

        Raises:
            TypeError, ValueError: a value is not of its type.
        """
        times, usage, source = self.times, self.usage, self.reused_from
        if self.outcome not in OUTCOMES:
            raise ValueError(f"outcome: {self.outcome!r}")
        "".join((self.sample_id, self.prompt, *self.image_sha256))
        for text in (self.text, self.finish_reason, self.error, self.reasoning, self.answer_key):
            if text is not None and type(text) is not str:
                raise TypeError(f"not text: {text!r}")
        for part in (usage, source, self.trajectory):
            if part is not None and type(part) is not dict:
                raise TypeError(f"no object: {part!r}")
        numbers = [self.tries, times.start, times.send, times.done]
        numbers += [
            one for one in (self.recount, times.headers, times.scheduled) if one is not None
        ]
        numbers += [*times.chunks, *times.empty, *times.tokens, *(usage.values() if usage else ())]
        if {*map(type, numbers)} != {int} or max(numbers) > _LARGEST or min(numbers) < -_LARGEST:
            raise ValueError("a number is not whole, or has more than 64 bits")
        if source is not None:
            "".join((source["experiment"], source["run_task"], source["sample"]))


_LARGEST = (1 << 63) - 1


def _counts(usage: Any) -> Any:
    """The counts in a record's `usage`; `_check` judges what they are."""
    if type(usage) is not dict:
        return usage
    return {name: usage[name] for name in USAGE if usage.get(name) is not None}


def _fields(record: Response | Times) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}
