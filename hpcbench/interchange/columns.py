"""Every column of every exported table, with its type and meaning; docs/exports.md is generated from this.

python -m hpcbench.interchange.columns        the tables of docs/exports.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

What = Literal["responses", "scores", "metrics", "events", "resources", "token_refresh_metrics"]
"""The tables that can be exported."""

Kind = Literal[
    "text", "number", "whole number", "yes or no", "time", "list of text", "list of numbers"
]
"""Type of a column. A time is an instant, UTC, to the millisecond."""


class Column(NamedTuple):
    """A column of an exported table."""

    name: str
    """Its name; capital letters are placeholders for names that differ from experiment to experiment."""
    kind: Kind
    """Its type."""
    meaning: str
    """Its meaning, with its unit, and when it has no value."""
    asked: bool = False
    """Whether it is exported only on request: it is large."""


_OF_RUN_TASKS = (
    Column("experiment", "text", "id of the experiment"),
    Column("run_task", "text", "name of the run task"),
    Column("model", "text", "model of the run task"),
    Column("dataset", "text", "dataset of the run task"),
    Column("split", "text", "split of the dataset; none: the whole dataset"),
    Column("ml_task", "text", "ML task: vqa, ocr, kie …"),
)

RESPONSES = (
    *_OF_RUN_TASKS,
    Column("sample", "text", "id of the sample"),
    Column("shard", "whole number", "shard of the sample, from 0"),
    Column("attempt", "whole number", "attempt at this shard that gave the answer, from 1; 0: an earlier "
           "experiment gave it, and its times are of that one"),
    Column("outcome", "text", "how the request ended: ok, truncated, refused, invalid, failed"),
    Column("answer", "text", "answer of the model, unchanged; none: no answer"),
    Column("reasoning", "text", "text that the engine marked as reasoning; metrics do not use it"),
    Column("error", "text", "why there is no answer, in one line"),
    Column("finish_reason", "text", "finish reason of the engine: stop, length, content_filter, repetition"),
    Column("prompt", "text", "name of the prompt, and of its entry in a collection"),
    Column("tries", "whole number", "requests sent for this sample; 0: none, or an agent's, so there are "
           "no times of a request"),
    Column("prompt_tokens", "whole number", "prompt tokens, counted by the engine; none: not reported"),
    Column("completion_tokens", "whole number", "tokens of the answer, counted by the engine; none: not "
           "reported"),
    Column("recount", "whole number", "tokens of the answer, counted by the model's own tokenizer; none: not "
           "counted"),
    Column("images", "whole number", "number of images in the request; of an agent: in all its requests"),
    Column("image_sha256", "list of text", "SHA-256 of each image in the request"),
    Column("chunks", "whole number", "number of chunks with new text"),
    Column("ttft_ms", "number", "time to first token, ms: send → first chunk; answers only"),
    Column("tpot_ms", "number", "time per output token after the first chunk, ms; needs several chunks"),
    Column("e2e_ms", "number", "end-to-end latency, ms: send → last chunk; answers only"),
    Column("ttft_due_ms", "number", "ttft_ms, but measured from the time when the request was due"),
    Column("e2e_due_ms", "number", "e2e_ms, but measured from the time when the request was due"),
    Column("queue_ms", "number", "wait in the client until a request may start, ms; only with a given rate; "
           "answers only"),
    Column("prepare_ms", "number", "start → send, ms: reading of images that were not read ahead; answers of "
           "one try"),
    Column("headers_ms", "number", "send → headers of the answer, ms; none: nothing arrived"),
    Column("done_ms", "number", "send → end of the stream, ms, for every outcome"),
    Column("exit", "text", "how an agent's work ended, see docs/agents.md; none: it was one request"),
    Column("agent_turns", "whole number", "replies of the model in an agent's work"),
    Column("think_seconds", "number", "time of an agent's requests, s: send → end of the stream, summed"),
    Column("tool_seconds", "number", "time of an agent's tools, s"),
    Column("start_ns", "whole number", "when the client started the request: monotonic clock of its worker, "
           "ns; comparable only within the same shard and attempt"),
    Column("send_ns", "whole number", "when the client sent the last try, ns; same clock as start_ns"),
    Column("chunk_ms", "list of numbers", "send → each chunk with new text, ms", asked=True),
)  # fmt: skip

SCORES = (
    *_OF_RUN_TASKS,
    Column("sample", "text", "id of the sample"),
    Column("document", "text", "document of the sample: the cluster for intervals"),
    Column("outcome", "text", "how the request ended: ok, truncated, refused, invalid, failed; missing: not "
           "asked"),
    Column("prompt", "text", "name of the prompt, and of its entry in a collection"),
    Column("error", "text", "why there is no answer"),
    Column("answer", "text", "answer of the model; half a surrogate pair is written as its escape"),
    Column("prediction", "text", "prediction that the parser read from the answer: text, or JSON for other "
           "values; none: unreadable"),
    Column("reason", "text", "why there is no prediction"),
    Column("form", "text", "form in which the answer contains the prediction"),
    Column("repairs", "text", "repairs that the parser made, separated by `; `"),
    Column("faults", "text", "violations of the schema, separated by `; `"),
    Column("images", "whole number", "number of images in the request"),
    Column("truncated", "yes or no", "whether the answer was cut at max_tokens; none: not asked"),
    Column("invalid", "yes or no", "whether the answer is unreadable"),
    Column("e2e_ms", "number", "end-to-end latency, ms: send → last chunk; answers only"),
    Column("completion_tokens", "whole number", "tokens of the answer, counted by the engine; none: not "
           "reported"),
    Column("exit", "text", "how an agent's work ended, see docs/agents.md; none: it was one request"),
    Column("agent_turns", "whole number", "replies of the model in an agent's work"),
    Column("agent_calls", "whole number", "tool calls in an agent's work"),
    Column("references", "list of text", "acceptable answers; JSON for values that are not text"),
    Column("meta.NAME", "text", "metadata of the sample, JSON for values that are not text: the dataset's "
           "`group_by`, and other columns that scores were grouped by"),
    Column("METRIC", "number", "value of this sample; none: the metric does not count it"),
    Column("METRIC.numerator", "number", "numerator of this sample in a mean or ratio metric", asked=True),
    Column("METRIC.denominator", "number", "denominator of this sample in a mean or ratio metric",
           asked=True),
    Column("METRIC.counts", "text", "counts of this sample in a corpus metric, as JSON", asked=True),
    Column("METRIC.fault", "text", "error of the metric for this sample, or that it exceeded its time limit"),
)  # fmt: skip

METRICS = (
    *_OF_RUN_TASKS,
    Column("kind", "text", "score: from metrics.json; speed: from performance.json"),
    Column("metric", "text", "name of the metric, or of the speed figure: ttft_ms, answers_per_s …"),
    Column("statistic", "text", "speed: mean, p50, p90, p95, p99, rate, share; scores: value"),
    Column("by", "text", "columns that group the samples, separated by commas; none: all samples together"),
    Column("group", "text", "the group, as JSON: column → value; none: all samples together"),
    Column("value", "number", "value of the metric or figure; none: too few data for it"),
    Column("low", "number", "lower end of the 95 % interval; none: undefined"),
    Column("high", "number", "upper end of the 95 % interval; none: undefined"),
    Column("n", "whole number", "number of samples, or of requests, behind the value"),
    Column("documents", "whole number", "number of documents of these samples; scores only"),
    Column("asked", "whole number", "samples of the group that the run task asks about; scores only"),
    Column("answered", "whole number", "asked samples with an answer; scores only"),
    Column("coverage", "number", "ok ÷ (asked + skipped); scores only"),
    Column("invalid", "whole number", "number of unreadable answers; scores only"),
    Column("faults", "whole number", "samples that the metric could not score; scores only"),
    Column("method", "text", "method of the interval, or why there is none; scores only"),
    Column("average", "text", "micro: over all samples; macro: mean of the groups; scores only"),
    Column("signature", "text", "the metric with all its options: only values with equal signatures are "
           "comparable"),
    Column("higher_is_better", "yes or no", "whether higher values are better; none: speed figures"),
    Column("valid", "yes or no", "whether the client was fast enough for valid speed figures; speed only"),
)  # fmt: skip

EVENTS = (
    Column("experiment", "text", "id of the experiment"),
    Column("source", "text", "log of the event: submission, control, workers/GROUP.OWNER, "
           "shards/RUN_TASK/NNNNN.ATTEMPT"),
    Column("seq", "whole number", "number of the event in its log, from 1"),
    Column("time", "time", "time of the event, by the clock of the node that wrote it"),
    Column("kind", "text", "kind of the event, see docs/events.md"),
    Column("sort", "text", "subject of the event: state, progress, resources, warning"),
    Column("run_task", "text", "run task of the log, if it has one"),
    Column("shard", "whole number", "shard of the log, if it has one"),
    Column("attempt", "whole number", "attempt at this shard"),
    Column("group", "text", "group of the worker, if the log is a worker's"),
    Column("worker", "text", "worker of the log as JOB-RESTART, if it has one"),
    Column("details", "text", "all other fields of the event, as JSON"),
)  # fmt: skip

RESOURCES = (
    Column("experiment", "text", "id of the experiment"),
    Column("scope", "text", "subject of the row: experiment, run_task or job; the rows of each scope cover "
           "the whole experiment, so never add rows of two scopes"),
    Column("run_task", "text", "name of the run task; scope run_task"),
    Column("model", "text", "model of the run task; scope run_task"),
    Column("group", "text", "group of the job; scope job"),
    Column("job", "text", "id of the job, for example 4711_3; scope job"),
    Column("restart", "whole number", "earlier requeues of the job; scope job"),
    Column("node", "text", "node of the job; scope job"),
    Column("gpus", "whole number", "GPUs allocated to the job; scope job"),
    Column("cpus", "whole number", "CPUs allocated to the job; scope job"),
    Column("begin", "time", "first event of the job's worker; scope job"),
    Column("end", "time", "last event of the job's worker so far; scope job"),
    Column("seconds", "number", "from begin to end, s; scope job"),
    Column("unit", "text", "unit of the following columns: GPU for GPU-seconds, CPU for CPU-seconds (jobs "
           "without GPUs)"),
    Column("allocated_s", "number", "GPU-seconds or CPU-seconds that were allocated to jobs; scope job: from "
           "begin to end"),
    Column("used_s", "number", "part of allocated_s with requests in flight whose answers count"),
    Column("starting_s", "number", "part of allocated_s before the worker's first event"),
    Column("loading_s", "number", "part of allocated_s for loading models"),
    Column("failed_loads_s", "number", "part of allocated_s for loads that failed"),
    Column("idle_s", "number", "part of allocated_s without a shard to work on"),
    Column("lost_s", "number", "part of allocated_s for answers that were discarded, or asked again after a "
           "kill"),
    Column("after_last_answer_s", "number", "part of allocated_s from the last answer to the end of the job"),
    Column("source", "text", "source of the allocated time: slurm, or the workers"),
    Column("gpu_utilisation", "number", "mean GPU utilisation during the requests, %"),
    Column("gpu_peak", "whole number", "peak memory of one GPU that the engine's processes used, bytes"),
    Column("gpu_peak_source", "text", "processes; or device, if the driver hid the processes"),
    Column("torch_allocated", "whole number", "peak memory that PyTorch allocated, bytes; Hugging Face only"),
    Column("kv_peak", "whole number", "peak of the used KV cache of one GPU, bytes"),
    Column("effective", "whole number", "memory of one GPU that the run needed, bytes; vLLM only"),
    Column("host_peak", "whole number", "peak host memory, including cached files, bytes"),
    Column("host_held_peak", "whole number", "peak host memory that the kernel cannot drop, bytes"),
    Column("energy_wh", "number", "energy, Wh; scope experiment, if it is known"),
    Column("energy_source", "text", "slurm: whole nodes, measured by Slurm; gpus: GPUs only"),
)  # fmt: skip

TOKEN_REFRESH_METRICS = (
    Column("experiment", "text", "id of the experiment"),
    Column("model", "text", "model whose endpoint needs tokens"),
    Column("worker", "text", "worker whose relays asked, `JOB-RESTART`"),
    Column("node", "text", "node of the worker"),
    Column("refresh_type", "text", "kind of request: full_auth, refresh_token, or cache (another process had "
           "asked)"),
    Column("refreshes", "whole number", "tokens got"),
    Column("failures", "whole number", "requests for a token that failed"),
    Column("duration_s", "number", "time that these requests took, failed ones included, s"),
    Column("longest_s", "number", "longest request for a token of any kind, s"),
    Column("fallbacks", "whole number", "full authentications in place of a refresh token that no longer "
           "worked; of all kinds"),
    Column("rejected", "whole number", "tokens that the endpoint answered with 401; of all kinds"),
    Column("waits", "whole number", "requests to the endpoint that waited for a token; of all kinds"),
    Column("wait_s", "number", "time that they waited, summed, s; of all kinds"),
    Column("token_age_s", "number", "age of the token at the last look, s; none: there was no token"),
    Column("time", "time", "the last look at the relay's figures"),
)  # fmt: skip

TABLES: Mapping[What, tuple[Column, ...]] = {
    "responses": RESPONSES,
    "scores": SCORES,
    "metrics": METRICS,
    "events": EVENTS,
    "resources": RESOURCES,
    "token_refresh_metrics": TOKEN_REFRESH_METRICS,
}
"""Table → its columns, in order. Scores have more columns of the patterns with capital letters, or none."""

META = "meta."
"""Prefix of the names of metadata in scores."""

PARTS = (".numerator", ".denominator", ".counts")
"""Suffixes after a metric's name: the parts of its value, exported only on request."""


def fixed(what: What) -> list[Column]:
    """Columns that a table always has."""
    return [one for one in TABLES[what] if not one.asked and not is_pattern(one)]


def is_pattern(column: Column) -> bool:
    """Whether its name is a pattern for several columns."""
    return any(letter.isupper() for letter in column.name)


def dtype(kind: Kind) -> Any:
    """The polars type of a kind of column."""
    import polars

    types: dict[Kind, Any] = {
        "text": polars.String,
        "number": polars.Float64,
        "whole number": polars.Int64,
        "yes or no": polars.Boolean,
        "time": polars.Datetime("ms", "UTC"),
        "list of text": polars.List(polars.String),
        "list of numbers": polars.List(polars.Float64),
    }
    return types[kind]


def markdown() -> str:
    """The tables of docs/exports.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for what, columns in TABLES.items():
        yield f"### `{what}`\n"
        yield "| column | type | meaning |"
        yield "|---|---|---|"
        for one in columns:
            note = "; only with `--columns`" if one.asked else ""
            yield f"| `{one.name}` | {one.kind} | {one.meaning}{note} |"
        yield ""


if __name__ == "__main__":
    print(markdown())  # noqa: T201 - a command line of its own
