"""The tables of results and their columns, the same in PostgreSQL and SQLite; docs/database.md shows them.

A change of a table needs a migration in `migrations/`; a test compares the two.

python -m hpcbench.database.tables        the tables of docs/database.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    Index,
    MetaData,
    Table,
    Text,
)

METADATA = MetaData()

# Keys compare by code points in both databases: pages go on after the last key.
_KEY = Text().with_variant(Text(collation="C"), "postgresql")
_REAL = Float(53)
_TIME = DateTime(timezone=True)


def _key(name: str, meaning: str) -> Column[Any]:
    return Column(name, _KEY, primary_key=True, nullable=False, info={"meaning": meaning})


def _text(name: str, meaning: str) -> Column[Any]:
    return Column(name, Text, info={"meaning": meaning})


def _whole(name: str, meaning: str) -> Column[Any]:
    return Column(name, BigInteger, info={"meaning": meaning})


def _real(name: str, meaning: str) -> Column[Any]:
    return Column(name, _REAL, info={"meaning": meaning})


def _flag(name: str, meaning: str) -> Column[Any]:
    return Column(name, Boolean, info={"meaning": meaning})


def _json(name: str, meaning: str) -> Column[Any]:
    return Column(name, JSON, info={"meaning": meaning})


def _time(name: str, meaning: str) -> Column[Any]:
    return Column(name, _TIME, info={"meaning": meaning})


def _of_experiment() -> Column[Any]:
    return _key("experiment", "id of the experiment")


def _of_sample() -> tuple[Column[Any], ...]:
    return (
        _of_experiment(),
        _key("run_task", "name of the run task"),
        _key("sample", "id of the sample"),
    )


def _number() -> Column[Any]:
    meaning = {"meaning": "number of the row, from 0"}
    return Column(
        "number", BigInteger, primary_key=True, autoincrement=False, nullable=False, info=meaning
    )


def _of_shard() -> tuple[Column[Any], ...]:
    return (
        Column(
            "shard", BigInteger, nullable=False, info={"meaning": "shard of the sample, from 0"}
        ),
        _whole(
            "attempt",
            "attempt at this shard that gave the answer, from 1; 0: of an earlier experiment",
        ),
    )


EXPERIMENTS = Table(
    "experiments",
    METADATA,
    _key("id", "id of the experiment"),
    Column(
        "manifest",
        Text,
        nullable=False,
        info={"meaning": "SHA-256 of its manifest: which experiment this is"},
    ),
    _text("name", "name of the plan"),
    _text("description", "description of the plan"),
    _text("owner", "account that owns the directory"),
    _text("home", "folder of experiments and caches"),
    _time("created_at", "when it was submitted"),
    _text("status", "running, done, incomplete, failed, cancelled"),
    _text("reason", "why it is not done; empty: no known reason"),
    _text("hpcbench", "version of hpcbench that submitted it"),
    _whole("seed", "seed of all random choices"),
    _json("config", "the plan as submitted, with defaults"),
    _json("results_summary", "run task → metric → value"),
    _time("synced_at", "when all of its rows were here; none: not all are"),
    _text("words", "plan, owner, id, models and datasets in small letters, for searches"),
    Index("experiments_by_time", "created_at"),
    info={"meaning": "a row an experiment"},
)

RUN_TASKS = Table(
    "run_tasks",
    METADATA,
    _of_experiment(),
    _key("name", "name of the run task"),
    _whole("place", "its place in the plan, from 0"),
    _text("ml_task", "ML task: vqa, ocr, kie …"),
    _text("model", "model"),
    _text("dataset", "dataset"),
    _text("split", "split of the dataset; none: the whole dataset"),
    _text("prompt", "prompt"),
    _text("engine", "engine"),
    _text("status", "how it ended; none: it has not ended"),
    _text("reason", "why it ended so"),
    _whole("asked", "samples that it asks about; none: not evaluated"),
    _whole("answered", "asked samples with an answer"),
    _real("coverage", "ok ÷ (asked + skipped)"),
    _json("parameters", "what its figures depend on: versions, hashes, digests, options"),
    Index("run_tasks_by_model", "model"),
    Index("run_tasks_by_dataset", "dataset"),
    info={"meaning": "a row a run task"},
)

SAMPLES = Table(
    "samples",
    METADATA,
    *_of_sample(),
    Column("place", BigInteger, nullable=False, info={"meaning": "place in the run task, from 0"}),
    _text("document", "document of the sample: the cluster for intervals"),
    _text("outcome", "how its request ended; missing: not asked"),
    _whole("images", "number of images in the request"),
    _json("reference_answers", "acceptable answers"),
    _json("metadata", "metadata that scores are grouped by"),
    _text("prediction", "what the parser read from the answer: text, or JSON; none: unreadable"),
    _flag("invalid", "whether the answer is unreadable"),
    _flag("truncated", "whether the answer was cut at max_tokens"),
    _text("reason", "why there is no prediction"),
    _text("form", "form in which the answer contains the prediction"),
    _text("repairs", "repairs that the parser made"),
    _text("faults", "violations of the schema"),
    _text("mistake", "kind of the mistake; none: right, or no rule names it"),
    Index("samples_by_place", "experiment", "run_task", "place"),
    info={
        "meaning": "a row a sample of an evaluated run task: its references, and how its answer was read"
    },
)

ANSWERS = Table(
    "answers",
    METADATA,
    *_of_sample(),
    *_of_shard(),
    _text("outcome", "how the request ended: ok, truncated, refused, invalid, failed"),
    _text("answer", "answer of the model; none: no answer"),
    _text("reasoning", "text that the engine marked as reasoning"),
    _text("error", "why there is no answer"),
    _text("finish_reason", "finish reason of the engine"),
    _text("prompt", "name of the prompt"),
    _whole("tries", "requests sent for this sample"),
    _whole("prompt_tokens", "prompt tokens, counted by the engine"),
    _whole("completion_tokens", "tokens of the answer, counted by the engine"),
    _whole("recount", "tokens of the answer, counted by the model's own tokenizer"),
    _whole("images", "number of images in the request"),
    _json("image_sha256", "SHA-256 of each image in the request"),
    Index("answers_by_shard", "experiment", "run_task", "shard"),
    info={"meaning": "a row an answer"},
)

TIMINGS = Table(
    "timings",
    METADATA,
    *_of_sample(),
    *_of_shard(),
    _whole("chunks", "number of chunks with new text"),
    _real("ttft_ms", "time to first token, ms"),
    _real("tpot_ms", "time per output token after the first chunk, ms"),
    _real("e2e_ms", "end-to-end latency, ms"),
    _real("ttft_due_ms", "ttft_ms from the time when the request was due"),
    _real("e2e_due_ms", "e2e_ms from the time when the request was due"),
    _real("queue_ms", "wait in the client, ms"),
    _real("prepare_ms", "start → send, ms"),
    _real("headers_ms", "send → headers of the answer, ms"),
    _real("done_ms", "send → end of the stream, ms"),
    _whole("start_ns", "when the client took it up: clock of its worker, ns"),
    _whole("send_ns", "when the client sent the last try, ns; same clock"),
    info={"meaning": "a row a request that was sent; docs/measuring.md defines the times"},
)

SCORES = Table(
    "scores",
    METADATA,
    *_of_sample(),
    _key("metric", "name of the metric"),
    Column(
        "place", BigInteger, nullable=False, info={"meaning": "place of the sample in the run task"}
    ),
    _real("value", "value of this sample; none: the metric does not count it"),
    _real("numerator", "numerator in a mean or ratio metric"),
    _real("denominator", "denominator in a mean or ratio metric"),
    _text("fault", "error of the metric for this sample"),
    info={"meaning": "a row a sample and metric"},
)

METRICS = Table(
    "metrics",
    METADATA,
    _of_experiment(),
    _number(),
    Column("run_task", _KEY, info={"meaning": "name of the run task"}),
    _text("kind", "score: from metrics.json; speed: from performance.json"),
    _text("metric", "name of the metric, or of the figure of speed"),
    _text("statistic", "speed: mean, p50, p90, p95, p99, rate, share; scores: value"),
    _text("grouped_by", "columns that group the samples; none: all samples together"),
    _json("group_values", "the group: column → value; none: all samples together"),
    _real("value", "value of the metric or figure; none: too few data for it"),
    _real("low", "lower end of the 95 % interval"),
    _real("high", "upper end of the 95 % interval"),
    _whole("n", "samples or requests behind the value"),
    _whole("documents", "documents of these samples"),
    _whole("asked", "samples of the group that the run task asks about"),
    _whole("answered", "asked samples with an answer"),
    _real("coverage", "ok ÷ (asked + skipped)"),
    _whole("invalid", "unreadable answers"),
    _whole("faults", "samples that the metric could not score"),
    _text("method", "method of the interval, or why there is none"),
    _text("average", "micro or macro"),
    _text("signature", "the metric with all its options: only equal signatures are comparable"),
    _flag("higher_is_better", "whether higher values are better"),
    _flag("valid", "whether the client was fast enough for valid figures of speed"),
    Index("metrics_by_name", "metric", "experiment", "run_task"),
    info={"meaning": "a row a value with its interval, of scores and of speed"},
)

EVENTS = Table(
    "events",
    METADATA,
    _of_experiment(),
    _number(),
    _text("source", "log of the event: submission, control, workers/…, shards/…"),
    _whole("seq", "number of the event in its log, from 1"),
    _time("time", "time of the event, by the clock of the node that wrote it"),
    _text("kind", "kind of the event, see docs/events.md"),
    _text("sort", "subject: state, progress, resources, warning"),
    _text("run_task", "run task of the log"),
    _whole("shard", "shard of the log"),
    _whole("attempt", "attempt at this shard"),
    _text("worker_group", "group of the worker"),
    _text("worker", "worker as JOB-RESTART"),
    _json("details", "all other fields of the event"),
    Index("events_by_time", "experiment", "time"),
    info={"meaning": "a row an event"},
)

PARTS = Table(
    "parts",
    METADATA,
    _of_experiment(),
    _key("part", "name of the part"),
    Column("stamp", Text, nullable=False, info={"meaning": "what it was made from"}),
    Column("rows", BigInteger, nullable=False, info={"meaning": "its rows of all tables"}),
    info={
        "meaning": "which parts of an experiment are here; `hpcbench database sync` goes on after them"
    },
)


def markdown() -> str:
    """The tables of docs/database.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for table in METADATA.tables.values():
        yield f"### `{table.name}`\n"
        yield f"{table.info['meaning']}. Unique: {', '.join(f'`{one.name}`' for one in table.primary_key)}.\n"
        yield "| column | type | meaning |"
        yield "|---|---|---|"
        for column in table.columns:
            kind = type(column.type).__name__
            words = {"Text": "text", "BigInteger": "whole number", "Float": "number",
                     "Boolean": "yes or no", "JSON": "JSON", "DateTime": "time"}  # fmt: skip
            yield f"| `{column.name}` | {words[kind]} | {column.info['meaning']} |"
        yield ""


if __name__ == "__main__":
    print(markdown())  # noqa: T201 - a command line of its own
