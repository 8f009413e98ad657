"""The load that a run task puts on an engine: requests in flight, rates, latency limits, sweeps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from hpcbench.schema.shared_types import Part

InFlight = Annotated[int, Field(gt=0, le=4096)]
"""Requests in flight."""

Concurrency = Annotated[
    Annotated[InFlight, Tag("number")] | Annotated[Literal["auto"], Tag("auto")],
    Discriminator(lambda value: "auto" if isinstance(value, str) else "number"),
]
"""Requests in flight, or `auto`."""

Measure = Literal["throughput", "latency"]
"""Keep the engine busy, or send each request alone, so that its time and its peak of memory are its own."""

Rate = Annotated[float, Field(gt=0, le=10_000)]
"""Requests per second."""

Arrival = Literal["poisson", "constant"]
"""Times between requests of a given rate: exponentially distributed (`poisson`), or constant."""

Route = Literal["direct", "proxied"]
"""From the worker's client to the engine itself, or through the wrapper."""


class Slo(Part):
    """Latency limits of a good answer, counted from when its request was due; see docs/measuring.md."""

    ttft_ms: float | None = Field(default=None, gt=0)
    """Maximum time to first token, milliseconds."""
    tpot_ms: float | None = Field(default=None, gt=0)
    """Maximum time per output token after the first, milliseconds."""
    e2e_ms: float | None = Field(default=None, gt=0)
    """Maximum time to the last token, milliseconds."""


class Load(Part):
    """A sweep: the run task at several loads; one worker measures each point alone."""

    concurrency: tuple[InFlight, ...] = ()
    """Points with a constant number of requests in flight (closed loop); run tasks `NAME-c8`."""
    rate: tuple[Rate, ...] = ()
    """Points with a constant rate, requests per second, whatever the engine does (open loop); run tasks
    `NAME-r2.5`."""
    arrival: Arrival = "poisson"
    """Times between the requests of a rate: `poisson` (exponentially distributed) or `constant`."""
    requests: int | None = Field(default=None, gt=0)
    """Number of samples of each point, the first ones. Without it: all. More than the run task has is an
    error."""
    warm_up: int = Field(default=8, ge=0)
    """Number of distinct samples that each point asks first and does not count."""
    slo: Slo = Field(default_factory=Slo)
    """Latency limits of a good answer, for goodput."""
