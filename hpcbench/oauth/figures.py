"""What a keeper did, as lines of Prometheus' text form."""

from __future__ import annotations

from collections.abc import Iterator

from hpcbench.oauth.keeper import Keeper


def text(keeper: Keeper) -> str:
    """The lines of a keeper: counters since its start, and its token's state now."""
    return "".join(f"{name} {value:g}\n" for name, value in _lines(keeper))


def _lines(keeper: Keeper) -> Iterator[tuple[str, float]]:
    done, now = keeper.figures, keeper.status()
    for kind in sorted({*done.granted, *done.failed}):
        for outcome, counts in (("granted", done.granted), ("failed", done.failed)):
            yield (
                f'hpcbench_token_requests_total{{kind="{kind}",outcome="{outcome}"}}',
                counts[kind],
            )
        yield f'hpcbench_token_seconds_total{{kind="{kind}"}}', done.seconds.get(kind, 0.0)
    yield "hpcbench_token_longest_seconds", done.longest
    yield "hpcbench_token_fallbacks_total", done.fallbacks
    yield "hpcbench_token_rejected_total", done.rejected
    yield "hpcbench_token_waits_total", done.waited
    yield "hpcbench_token_wait_seconds_total", done.wait_seconds
    yield "hpcbench_token_waiting", now["waiting"]
    for state in ("none", "fresh", "stale", "expired"):
        yield f'hpcbench_token_state{{state="{state}"}}', now["state"] == state
    if now["age"] is not None:
        yield "hpcbench_token_age_seconds", now["age"]
        yield "hpcbench_token_left_seconds", now["left"]
