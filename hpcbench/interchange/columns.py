"""Every column of every exported table, with its type and what it means; docs/exports.md is made of this.

python -m hpcbench.interchange.columns        the tables of docs/exports.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

What = Literal["responses", "scores", "metrics", "events", "resources"]
"""What can be exported as a table."""

Kind = Literal[
    "text", "number", "whole number", "yes or no", "time", "list of text", "list of numbers"
]
"""Type of a column. A time is an instant, UTC, to the millisecond."""


class Column(NamedTuple):
    """A column of an exported table."""

    name: str
    """Its name; capital letters stand for names that differ from experiment to experiment."""
    kind: Kind
    """Its type."""
    meaning: str
    """What it is, with its unit; and when it has no value."""
    asked: bool = False
    """Whether it is there only when somebody names it: it is large."""


_OF_RUN_TASKS = (
    Column("experiment", "text", "the experiment's id"),
    Column("run_task", "text", "the run task"),
    Column("model", "text", "its model"),
    Column("dataset", "text", "its dataset"),
    Column("split", "text", "its split; none: all of the dataset"),
    Column("ml_task", "text", "its kind of work"),
)

RESPONSES = (
    *_OF_RUN_TASKS,
    Column("sample", "text", "the sample that was asked about"),
    Column("shard", "whole number", "the shard it was asked in, from 0"),
    Column("attempt", "whole number", "the attempt at that shard which brought the answer, from 1"),
    Column("outcome", "text", "how the request ended: ok, truncated, refused, invalid, failed"),
    Column("answer", "text", "the answer as it came; none: there is none"),
    Column("reasoning", "text", "what the engine told apart as the model's reasoning; no metric sees it"),
    Column("error", "text", "one line on why there is no answer"),
    Column("finish_reason", "text", "the engine's own word: stop, length, content_filter, repetition"),
    Column("prompt", "text", "the prompt it was asked with"),
    Column("tries", "whole number", "requests sent for it; 0: hpcbench sent none, and there are no times"),
    Column("prompt_tokens", "whole number", "the engine's count; none: it did not tell"),
    Column("completion_tokens", "whole number", "the engine's count; none: it did not tell"),
    Column("recount", "whole number", "tokens of the answer by the model's own tokenizer; none: not counted"),
    Column("images", "whole number", "images that were sent with it"),
    Column("image_sha256", "list of text", "hash of each image as it was sent"),
    Column("chunks", "whole number", "chunks with new text that arrived"),
    Column("ttft_ms", "number", "time to first token, ms: send → first chunk; answers only"),
    Column("tpot_ms", "number", "time per output token after the first chunk, ms; answers of several chunks"),
    Column("e2e_ms", "number", "end to end, ms: send → last chunk; answers only"),
    Column("ttft_due_ms", "number", "as ttft_ms, from when it was due"),
    Column("e2e_due_ms", "number", "as e2e_ms, from when it was due"),
    Column("queue_ms", "number", "wait for room in the client, ms; only under a given rate, answers only"),
    Column("prepare_ms", "number", "start → send, ms: images that were not read ahead; answers of one try"),
    Column("headers_ms", "number", "send → the answer's head, ms; none: nothing came"),
    Column("done_ms", "number", "send → stream closed, ms, however it ended"),
    Column("start_ns", "whole number", "when it was taken up: monotonic clock of its worker, ns; only to be "
           "held against others of the same shard and attempt"),
    Column("send_ns", "whole number", "when it was sent, of the last try; as start_ns"),
    Column("chunk_ms", "list of numbers", "send → each chunk with new text, ms", asked=True),
)  # fmt: skip

SCORES = (
    *_OF_RUN_TASKS,
    Column("sample", "text", "the sample"),
    Column("document", "text", "the document it belongs to: the cluster of error bars"),
    Column("outcome", "text", "of the request: ok, truncated, refused, invalid, failed; missing: not asked"),
    Column("prompt", "text", "the prompt it was asked with"),
    Column("error", "text", "why there is no answer"),
    Column("answer", "text", "as it came; half a surrogate pair is written as its escape"),
    Column("prediction", "text", "as it was read: text, or the value as JSON; none: it could not be read"),
    Column("reason", "text", "why it has no value"),
    Column("form", "text", "what the value was found in"),
    Column("repairs", "text", "what had to be mended, parted by `; `"),
    Column("faults", "text", "where it departs from its schema, parted by `; `"),
    Column("images", "whole number", "images that were sent with it"),
    Column("truncated", "yes or no", "cut at max_tokens; none: not asked"),
    Column("invalid", "yes or no", "an answer without a value"),
    Column("e2e_ms", "number", "end to end, ms: send → last chunk; answers only"),
    Column("completion_tokens", "whole number", "the engine's count; none: it did not tell"),
    Column("references", "list of text", "acceptable answers, those that are no text as JSON"),
    Column("meta.NAME", "text", "metadata of the sample, other than text as JSON: the dataset's `group_by`, "
           "and what somebody grouped by"),
    Column("METRIC", "number", "the sample's value; none: not counted"),
    Column("METRIC.numerator", "number", "its part of a mean or ratio metric", asked=True),
    Column("METRIC.denominator", "number", "its part of a mean or ratio metric", asked=True),
    Column("METRIC.counts", "text", "its counts as JSON, of a corpus metric", asked=True),
    Column("METRIC.fault", "text", "what the metric raised, or that it took too long"),
)  # fmt: skip

METRICS = (
    *_OF_RUN_TASKS,
    Column("kind", "text", "score: of answers, from metrics.json; speed: from performance.json"),
    Column("metric", "text", "the metric, or the figure of speed: ttft_ms, answers_per_s …"),
    Column("statistic", "text", "of speed: mean, p50, p90, p95, p99, rate, share; of scores: value"),
    Column("by", "text", "what samples are grouped by, parted by commas; none: all samples together"),
    Column("group", "text", "the group, as JSON: column → value; none: all samples together"),
    Column("value", "number", "the value; none: the data cannot bear one"),
    Column("low", "number", "lower end of its 95 % interval; none: undefined"),
    Column("high", "number", "upper end of its 95 % interval; none: undefined"),
    Column("n", "whole number", "samples, or requests, that it is made of"),
    Column("documents", "whole number", "documents they belong to; of scores"),
    Column("asked", "whole number", "samples that the run task asks about, of the group; of scores"),
    Column("answered", "whole number", "of these, those with an answer; of scores"),
    Column("coverage", "number", "ok ÷ (asked + skipped); of scores"),
    Column("invalid", "whole number", "unreadable answers; of scores"),
    Column("faults", "whole number", "samples that the metric lost; of scores"),
    Column("method", "text", "how the interval was found, or why there is none; of scores"),
    Column("average", "text", "micro: over all samples; macro: the mean of groups; of scores"),
    Column("signature", "text", "the metric with all its options: equal signatures, comparable numbers"),
    Column("higher_is_better", "yes or no", "whether more is better; none: of a figure of speed"),
    Column("valid", "yes or no", "of speed: whether the client was quick enough to be believed"),
)  # fmt: skip

EVENTS = (
    Column("experiment", "text", "the experiment's id"),
    Column("source", "text", "the log it stands in: submission, control, workers/GROUP.OWNER, "
           "shards/RUN_TASK/NNNNN.ATTEMPT"),
    Column("seq", "whole number", "its number there, from 1"),
    Column("time", "time", "when, by the clock of the node it was written on"),
    Column("kind", "text", "what, see docs/events.md"),
    Column("sort", "text", "what it is about: state, progress, resources, warning"),
    Column("run_task", "text", "the run task, where it is of one"),
    Column("shard", "whole number", "the shard, where the log is of one"),
    Column("attempt", "whole number", "the attempt at that shard"),
    Column("group", "text", "the group, where the log is of a worker"),
    Column("worker", "text", "the worker, JOB-RESTART, where the log is of one"),
    Column("details", "text", "all else that was said, as JSON"),
)  # fmt: skip

RESOURCES = (
    Column("experiment", "text", "the experiment's id"),
    Column("scope", "text", "what the row is of: experiment, run_task or job; each of them is the whole, so "
           "never add up two scopes"),
    Column("run_task", "text", "the run task; of scope run_task"),
    Column("model", "text", "its model; of scope run_task"),
    Column("group", "text", "the group; of scope job"),
    Column("job", "text", "the job, 4711_3; of scope job"),
    Column("restart", "whole number", "how often it had been requeued; of scope job"),
    Column("node", "text", "its node; of scope job"),
    Column("gpus", "whole number", "GPUs that it held; of scope job"),
    Column("cpus", "whole number", "CPUs that it held; of scope job"),
    Column("begin", "time", "its worker's first word; of scope job"),
    Column("end", "time", "its worker's last word so far; of scope job"),
    Column("seconds", "number", "between the two; of scope job"),
    Column("unit", "text", "GPU or CPU: what the seconds that follow are of; CPU where jobs hold no GPU"),
    Column("allocated_s", "number", "GPU-seconds, or CPU-seconds, that jobs held; of scope job between its "
           "worker's first and last word"),
    Column("used_s", "number", "of these, with requests under way whose answers count"),
    Column("starting_s", "number", "of these, until the worker's first word"),
    Column("loading_s", "number", "of these, loading models"),
    Column("failed_loads_s", "number", "of these, loads that did not become ready"),
    Column("idle_s", "number", "of these, no shard to work on"),
    Column("lost_s", "number", "of these, answers thrown away or asked again after a kill"),
    Column("after_last_answer_s", "number", "of these, until the job was over"),
    Column("source", "text", "who said how long jobs held what: slurm, or the workers"),
    Column("gpu_utilisation", "number", "mean utilisation of GPUs while it was asked, percent"),
    Column("gpu_peak", "whole number", "most memory of one GPU by the engine's processes, bytes"),
    Column("gpu_peak_source", "text", "processes, or device: the driver hid the processes"),
    Column("torch_allocated", "whole number", "PyTorch's own peak, bytes; Hugging Face engine only"),
    Column("kv_peak", "whole number", "key-value cache really used, bytes of one GPU"),
    Column("effective", "whole number", "what the run needed of one GPU, bytes; vLLM only"),
    Column("host_peak", "whole number", "most host memory with cached files, bytes"),
    Column("host_held_peak", "whole number", "most host memory that could not be dropped, bytes"),
    Column("energy_wh", "number", "what was drawn, watt-hours; of scope experiment, where it is known"),
    Column("energy_source", "text", "slurm: nodes by Slurm's count; gpus: the GPUs alone"),
)  # fmt: skip

TABLES: Mapping[What, tuple[Column, ...]] = {
    "responses": RESPONSES,
    "scores": SCORES,
    "metrics": METRICS,
    "events": EVENTS,
    "resources": RESOURCES,
}
"""What → its columns, in order. Scores have more of the patterns with capital letters, or none."""

META = "meta."
"""Before the names of metadata in scores."""

PARTS = (".numerator", ".denominator", ".counts")
"""After a metric's name: what its value is made of, there only when asked."""


def fixed(what: What) -> list[Column]:
    """Columns that a table always has."""
    return [one for one in TABLES[what] if not one.asked and not is_pattern(one)]


def is_pattern(column: Column) -> bool:
    """Whether its name stands for several."""
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
        yield "| column | type | what it is |"
        yield "|---|---|---|"
        for one in columns:
            note = " Only with `--columns`." if one.asked else ""
            yield f"| `{one.name}` | {one.kind} | {one.meaning}{note} |"
        yield ""


if __name__ == "__main__":
    print(markdown())  # noqa: T201 - a command line of its own
