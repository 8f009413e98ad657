"""The content of `performance.json`: one type for the writer and all readers.

performance_of      the whole file, or one line on why it cannot be read
speeds, speed_of    its sound parts, for readers that must accept damage
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.json_tables import Number, Part, one_table, sound_tables, whole_file
from hpcbench.files.json_places import Places

PERFORMANCE_VERSION = 3
"""Version of `performance.json`: 3 since TPOT counts an answer's final token in both time and count, or in
neither."""


class Figure(Part):
    """A figure of speed with its interval, see docs/measuring.md."""

    value: Number | None = None
    """None: too little data."""
    low: Number | None = None
    high: Number | None = None
    needs: int | None = None
    """For a percentile without a value: the number of requests it would need."""
    bound: Number | None = None
    """MLPerf's bound for a percentile."""


class Latency(Part):
    """A latency, or gaps between chunks or tokens, ms."""

    n: int = 0
    """Values."""
    answers: int | None = None
    """For gaps: the number of answers they come from."""
    mean: Figure = Figure.model_construct()
    p50: Figure = Figure.model_construct()
    p90: Figure = Figure.model_construct()
    p95: Figure = Figure.model_construct()
    p99: Figure = Figure.model_construct()
    quantiles: tuple[Number, ...] = ()
    """The shape of the distribution."""
    min: Number | None = None
    max: Number | None = None

    def figure(self, name: str) -> Figure:
        """A percentile, or the mean, by its name."""
        found = getattr(self, name)
        assert isinstance(found, Figure)
        return found


class Attainment(Figure):
    """Good answers ÷ requests."""

    slo: Mapping[str, Any] = {}
    """Limits that a good answer keeps."""
    good: int = 0


class Window(Part):
    """The steady window in which rates are measured."""

    seconds: Number = 0
    answers: int = 0
    in_flight: Number | None = None
    """Requests in flight, on average."""
    pieces: int = 0


class Client(Part):
    """Lag of the client itself, ms."""

    client_bound: bool = False
    """Whether the client, not the engine, was the bottleneck."""
    lag_p50_ms: Number | None = None
    lag_p99_ms: Number | None = None
    lag_max_ms: Number | None = None


class Memory(Part):
    """Memory, bytes: the known figures of `monitor.MemoryFigures`."""

    gpus: int | None = None
    gpu_peak: Number | None = None
    gpu_peak_source: str | None = None
    torch_allocated: Number | None = None
    torch_reserved: Number | None = None
    kv_peak: Number | None = None
    kv_reserved: Number | None = None
    weights: Number | None = None
    non_torch: Number | None = None
    activation: Number | None = None
    graphs: Number | None = None
    effective: Number | None = None
    host_peak: Number | None = None
    host_held_peak: Number | None = None
    host_source: str | None = None

    def figure(self, name: str) -> Number | None:
        """A number of bytes by its name."""
        found = getattr(self, name)
        assert found is None or isinstance(found, (int, float))
        return found

    def source(self, name: str) -> str | None:
        """How a figure was measured: `gpu_peak_source`, `host_source`."""
        found = getattr(self, name)
        assert found is None or isinstance(found, str)
        return found


class Load(Part):
    """The load that a run task was under."""

    concurrency: int | str | None = None
    """Requests at once; `auto` in files of earlier versions."""
    rate: Number | None = None
    """Requests a second; None: a fixed number at once."""
    arrival: str | None = None
    warm_up: int = 0
    protocol: str = "http"
    """Protocol of the requests between worker and wrapper."""
    sweep: str | None = None
    """The plan's run task whose sweep has this point."""
    chosen: Mapping[str, int] | None = None
    """Worker → requests at once that `concurrency: auto` chose there."""
    route: str = "proxied"
    """How requests reached the engine, `direct` or `proxied`; `direct and proxied` where workers differ.
    Files of earlier versions have none: all requests were proxied."""

    @property
    def at_once(self) -> int | str | None:
        """Requests in flight: a number, or `4 to 8` where workers differ."""
        chosen = sorted({*(self.chosen or {}).values()})
        if len(chosen) > 1:
            return f"{chosen[0]} to {chosen[-1]}"
        return chosen[0] if chosen else self.concurrency


class Machine(Part):
    """A kind of machine whose workers asked a run task's samples."""

    gpus: tuple[str, ...] | None = None
    driver: str | None = None
    cuda: str | None = None
    cpu: str | None = None
    nodes: tuple[str, ...] = ()
    workers: int = 0
    nodes_each: int = 1
    """Nodes of one engine; `gpus` are those of all of them."""
    engines_each: int = 1
    """Engines of one job: they share its node; `gpus` are those of one of them."""
    engines_per_gpu: int = 1
    """Engines that share a GPU."""


class Tokens(Part):
    """Requests for tokens of OAuth2 by the workers of a run task's model."""

    granted: Mapping[str, int] = {}
    """Kind (`full_auth`, `refresh_token`, `cache`) → tokens got."""
    failed: Mapping[str, int] = {}
    """Kind → requests for a token that failed."""
    seconds: Mapping[str, Number] = {}
    """Kind → seconds that these requests took."""
    longest: Number = 0
    """Seconds of the longest one."""
    fallbacks: int = 0
    """Full authentications in place of a refresh token that no longer worked."""
    rejected: int = 0
    """Tokens that the endpoint answered with 401."""
    waits: int = 0
    """Requests that waited for a token."""
    wait_seconds: Number = 0
    """Seconds that they waited, summed."""
    oldest: Number = 0
    """Greatest age of a token, seconds, by looks every five seconds; 0 in earlier experiments."""


class Limits(Part):
    """Effects of the rate limits of a run task's gateway."""

    refused: int = 0
    """Requests that it refused for now, 429."""
    waits: int = 0
    """Requests that waited before they were sent."""
    wait_seconds: Number = 0
    """Seconds in which requests waited, summed over the workers."""


class Plans(Part):
    """Plans of agents."""

    samples: int = 0
    """Samples with a plan."""
    steps: int = 0
    """Steps of their last plans."""
    done: int = 0
    """Those done."""


class Switch(Part):
    """How often a tool or agent followed another one."""

    source: str
    """A tool, `agent NAME`, or `start`."""
    target: str
    """A tool, `agent NAME`, or the exit."""
    count: int


class Bin(Part):
    """A bar of a distribution."""

    low: int
    """Smallest value."""
    high: int
    """One more than the largest value."""
    samples: int


class Trajectories(Part):
    """Agents' work on the samples of a run task, see docs/measuring.md."""

    samples: int = 0
    """Samples whose work has ended."""
    answered: int = 0
    """Those with an answer."""
    measured: int = 0
    """Those of them that this experiment asked for."""
    exits: Mapping[str, int] = {}
    """How the work ended → samples."""
    calls: Mapping[str, int] = {}
    """Tool → calls."""
    failed: Mapping[str, int] = {}
    """Why a call gave no result → calls."""
    wasted: int = 0
    """Calls without a result, or that repeat an earlier one."""
    by_calls: Mapping[str, int] = {}
    """Number of calls → samples with so many."""
    calls_each: Latency | None = None
    """Calls of a sample."""
    turns_each: Latency | None = None
    """Turns of a sample."""
    prompt_tokens: int = 0
    """Tokens of all requests' prompts."""
    completion_tokens: int = 0
    tokens_each: Latency | None = None
    """Tokens of a sample's answers in all turns."""
    by_tokens: tuple[Bin, ...] = ()
    """Samples by these tokens."""
    prompt_tokens_each: Latency | None = None
    think_s: Latency | None = None
    """Time of a sample's requests, s."""
    tool_s: Latency | None = None
    """Time of a sample's tools, s."""
    sync_s: Latency | None = None
    """Time that a sample's work waited for the disk, s."""
    ttft_ms: Latency | None = None
    """Time to first token of each turn, ms."""
    plans: Plans | None = None
    """None: no agent made one."""
    flows: tuple[Switch, ...] = ()
    """The most frequent first."""
    window: Window = Window.model_construct()
    """The steady window in which samples are counted."""
    samples_per_s: Figure | None = None
    """Samples with an answer per second of one engine."""
    notes: tuple[str, ...] = ()


class Speed(Part):
    """A run task in `performance.json`, see docs/measuring.md."""

    load: Load = Load.model_construct()
    requests: int | None = None
    """Requests that were to be sent."""
    answered: int | None = None
    tries: int | None = None
    """How often these requests were sent, retries included."""
    ttft_ms: Latency | None = None
    tpot_ms: Latency | None = None
    e2e_ms: Latency | None = None
    ttft_due_ms: Latency | None = None
    e2e_due_ms: Latency | None = None
    queue_ms: Latency | None = None
    prepare_ms: Latency | None = None
    chunk_gap_ms: Latency | None = None
    itl_ms: Latency | None = None
    tokens_per_chunk: Number | None = None
    """Mean tokens of a chunk after the first; None: the engine does not count them by chunk."""
    window: Window = Window.model_construct()
    answers_per_s: Figure | None = None
    tokens_per_s: Figure | None = None
    good_per_s: Figure | None = None
    whole: Mapping[str, Number | None] = {}
    """Rates and seconds over the whole run task, not only the window."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tokens_each: Mapping[str, tuple[Number, ...] | None] = {}
    recount: Mapping[str, Number] | None = None
    """Comparison of the engine's count of tokens with the tokenizer's."""
    attainment: Attainment | None = None
    client: Client | None = None
    memory: Memory | None = None
    valid: bool = True
    """False: the client was too slow, so the figures measure the client as much as the engine."""
    notes: tuple[str, ...] = ()
    hardware: tuple[Machine, ...] | None = None
    """None: a worker does not report it."""
    tokens: Tokens | None = None
    """None: the model asks no token server."""
    limits: Limits | None = None
    """None: no gateway limited the rate."""
    trajectories: Trajectories | None = None
    """None: no agent worked on the samples; else no figure of requests has a value."""

    def latency(self, name: str) -> Latency | None:
        """A latency by its key, `ttft_ms`."""
        found = getattr(self, name, None)
        return found if isinstance(found, Latency) else None

    def rate(self, name: str) -> Figure | None:
        """A rate by its key, `tokens_per_s`."""
        found = getattr(self, name, None)
        return found if isinstance(found, Figure) else None


class Sweep(Part):
    """One run task under rising load."""

    points: tuple[str, ...]
    """Run tasks, in the plan's order."""
    knee: str | None = None
    """The point with the best ratio of throughput to latency, among points with fixed requests at once."""
    rate_knee: str | None = None
    """The same among points with fixed requests a second."""
    best: str | None = None
    """The valid point with the most good answers a second."""


class Performance(Part):
    """The content of `performance.json`."""

    version: int = PERFORMANCE_VERSION
    run_tasks: Mapping[str, Speed]
    sweeps: Mapping[str, Sweep]


def performance_of(experiment: Experiment) -> Performance:
    """The content of `performance.json`.

    Raises:
        EnvironmentFault: as `metrics_of`.
    """
    return whole_file(Performance, experiment, experiment.performance_file, PERFORMANCE_VERSION)


def speed_of(experiment: Experiment, run_task: str, places: Places | None = None) -> Speed | None:
    """Speed of one run task; None: there is none, or it is damaged. Others are not checked.

    Args:
        experiment: the experiment.
        run_task: name of the run task.
        places: `table_places` of its performance file; None: the file is parsed whole.
    """
    return one_table(Speed, experiment.performance_file, PERFORMANCE_VERSION, run_task, places)


def speeds(experiment: Experiment) -> Mapping[str, Speed]:
    """Run task → its speed; missing or damaged tables are left out."""
    return sound_tables(Speed, experiment.performance_file, PERFORMANCE_VERSION)
