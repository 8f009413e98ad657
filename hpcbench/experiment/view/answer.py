"""Single answers as workers recorded them: their fields, and a search for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpcbench.experiment.claims import withdrawn
from hpcbench.experiment.layout import Experiment, attempts_in, responses_name
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import parse_line
from hpcbench.metrics.resources import Measurement
from hpcbench.schema.records import ANSWERED, Response
from hpcbench.speed import LATENCIES, Timed, tpot, ttft

MISSING = "missing"
"""Outcome of a sample that no worker has asked about yet."""


class Answer(NamedTuple):
    """The part of a response that evaluation needs; `e2e_ms` is its only time."""

    sample_id: str
    """The sample it belongs to."""
    outcome: str
    """How the request ended."""
    text: str | None
    """The answer as received; None without an answer."""
    error: str | None = None
    """One line on why there is no answer."""
    prompt: str = ""
    """The request's prompt."""
    images: int = 0
    """Images that were sent."""
    e2e_ms: float | None = None
    """End to end, ms: send → last chunk; None without an answer to a request that was sent."""
    completion_tokens: int | None = None
    """The engine's count; None: the engine gave none."""
    measured: Measurement = Measurement()
    """Its time and tokens, for resource metrics; only `measured_from_json` fills it."""
    agent: Mapping[str, Any] | None = None
    """Figures of an agent's work, as `agents/trajectory.py` writes them; None: it was one request."""

    @property
    def exit(self) -> str | None:
        """How an agent's work ended."""
        found = (self.agent or {}).get("exit")
        return found if isinstance(found, str) else None

    @property
    def turns(self) -> int | None:
        """An agent's replies."""
        return _whole((self.agent or {}).get("turns"))

    @property
    def tool_calls(self) -> int | None:
        """An agent's tool calls."""
        return calls_in(self.agent)

    @classmethod
    def of(cls, response: Response, *, measured: bool = False) -> Answer:
        """The part of a response that evaluation needs; `measured`: with what the answer took."""
        return cls(
            response.sample_id,
            response.outcome,
            response.text,
            response.error,
            response.prompt,
            len(response.image_sha256),
            e2e_ms(response),
            _count(response.usage),
            measurement_of(response) if measured else Measurement(),
            response.trajectory,
        )


def measurement_of(response: Response) -> Measurement:
    """Time and tokens of an answer, by the formulas of `speed`."""
    one, agent = Timed.of(response), response.trajectory
    known: dict[str, Any] = {
        name: round(float(latency.value(one)), 6) if one.tries and latency.has(one) else None
        for name, latency in (("ttft_ms", ttft), ("tpot_ms", tpot))
    }
    if agent is not None:
        known |= {
            "turns": _whole(agent.get("turns")),
            "tool_calls": calls_in(agent),
            "wasted_calls": _whole(agent.get("wasted")),
            "plan_adherence": _adherence(agent.get("plan")),
        }
    return Measurement(
        **known,
        e2e_ms=e2e_ms(response),
        completion_tokens=_count(response.usage),
        reused=response.reused_from is not None,
    )


def calls_in(figures: Mapping[str, Any] | None) -> int | None:
    """Tool calls by an agent's figures; None: it was one request, or they are damaged."""
    calls = (figures or {}).get("calls")
    counts = [_whole(one) for one in calls.values()] if isinstance(calls, Mapping) else [None]
    return None if None in counts else sum(one or 0 for one in counts)


def _adherence(plan: Any) -> float | None:
    """Share of a plan's steps that are done; None: there is no plan."""
    plan = plan if isinstance(plan, Mapping) else {}
    steps, done = _whole(plan.get("steps")), _whole(plan.get("done"))
    return None if not steps or done is None else min(1.0, done / steps)


def e2e_ms(response: Response) -> float | None:
    """End to end, ms, as `speed` defines it; None without an answer to a request that was sent."""
    chunks = response.times.chunks
    if response.outcome not in ANSWERED or not response.tries or not chunks:
        return None
    return round((chunks[-1] - response.times.send) / 1e6, 6)


def _count(usage: Mapping[str, int] | None) -> int | None:
    return _whole((usage or {}).get("completion_tokens"))


def _whole(count: Any) -> int | None:
    """A number of things; None: it is damaged."""
    return count if isinstance(count, int) and 0 <= count < 1 << 63 else None


def is_answered(answer: Answer | None) -> bool:
    """Whether the sample has an answer."""
    return answer is not None and answer.outcome in ANSWERED


MOST_BYTES = 64 << 20
"""Bytes of answers that are read for one page; answers in further shards are left out there."""


FEW = 4
"""Up to so many samples, each sample is searched for alone."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer as it was recorded."""

    response: Response
    """The answer."""
    shard: int
    """Number of the answer's shard."""
    attempt: int
    """The answer's attempt."""

    @property
    def times(self) -> dict[str, float | None]:
        """Seconds, by the names of `speed`; empty without an answer to a request that was sent."""
        if self.response.text is None or not self.response.tries:
            return {}
        found = {name: latency(self.response) for name, latency in LATENCIES.items()}
        return {
            name.removesuffix("_ms"): None if value is None else value / 1000
            for name, value in found.items()
        }

    @property
    def latency(self) -> float | None:
        """Seconds from sending to the last text; None without an answer to a request that was sent."""
        found = e2e_ms(self.response)
        return None if found is None else round(found / 1000, 9)

    @property
    def usage(self) -> dict[str, int | None]:
        """Tokens, counted by the engine and by the tokenizer."""
        reported = self.response.usage or {}
        counts = {name: reported.get(name) for name in ("prompt_tokens", "completion_tokens")}
        return {**counts, "recount": self.response.recount}


def records_at(
    experiment: Experiment, run_task: str, wanted: Mapping[int, str]
) -> dict[int, Recorded]:
    """Answers to samples; samples whose answer is not found are left out.

    Args:
        experiment: the experiment.
        run_task: its name.
        wanted: place of a sample → its id.
    """
    cut = experiment.work.cut(run_task)
    if cut is None or not wanted:
        return {}
    by_shard: dict[int, dict[int, str]] = {}
    for place, sample in wanted.items():
        by_shard.setdefault(cut.shard_at(place), {})[place] = sample
    folder = experiment.shards(run_task)
    attempts = attempts_in(folder.names)
    found: dict[int, Recorded] = {}
    left = MOST_BYTES
    for shard, some in sorted(by_shard.items()):
        gone = withdrawn(folder, shard, attempts.get(shard, ()))
        for attempt in attempts.get(shard, ()):
            missing = {
                place: sample
                for place, sample in some.items()
                if place not in found and sample not in gone.get(attempt, ())
            }
            if not missing:
                continue
            if left <= 0:
                return found
            data = _read(folder, responses_name(shard, attempt), left)
            left -= len(data)
            lines = _by_id(data) if len(missing) > FEW else {}
            for place, sample in missing.items():
                response = _answer_in(lines.get(_form(sample), data), sample)
                if response is None and lines:
                    response = _answer_in(data, sample)
                if response is not None:
                    found[place] = Recorded(response, shard, attempt)
    return found


def _read(folder: Folder, name: str, most: int) -> bytes:
    """The beginning of a file, whole lines."""
    parts, size = list[bytes](), 0
    for block in folder.blocks(name):
        parts.append(block)
        size += len(block)
        if size >= most:
            break
    data = b"".join(parts)[:most]
    return data[: data.rfind(b"\n") + 1]


_HEAD = b'{"sample_id":"'


def _by_id(data: bytes) -> dict[bytes, bytes]:
    """Id of a sample, as written in the file → the first line that starts with it."""
    found: dict[bytes, bytes] = {}
    for line in data.split(b"\n"):
        if line.startswith(_HEAD):
            found.setdefault(line[len(_HEAD) - 1 : line.find(b'"', len(_HEAD)) + 1], line + b"\n")
    return found


def _form(sample: str) -> bytes:
    """An id in the form that workers write."""
    return json.dumps(sample).encode()


def _answer_in(data: bytes, sample: str) -> Response | None:
    """The first answer to a sample in some lines.

    The id is searched for as text, in a thousandth of the time of decoding all lines.
    """
    forms = {json.dumps(sample), json.dumps(sample, ensure_ascii=False)}
    for form in forms:
        try:
            needle = form.encode()
        except UnicodeEncodeError:
            continue
        at = data.find(needle)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            response = Response.or_none(parse_line(data[begin:end]) or {})
            if response is not None and response.sample_id == sample:
                return response
            at = data.find(needle, end)
    return None
