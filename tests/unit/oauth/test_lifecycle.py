"""When a token is fresh, stale or expired, and when the next request for one is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.oauth.lifecycle import LONGEST_PAUSE, Lifecycle, Token

lifetimes = st.floats(0.01, 1e7)
shares = st.floats(0, 1)


@pytest.mark.parametrize(
    ("lifetime", "stale", "expires"), [(3600, 3300, 3595), (1200, 900, 1195), (4, 3, 3.6)]
)
def test_a_token_is_stale_five_minutes_or_a_quarter_before_its_end(
    lifetime: float, stale: float, expires: float
) -> None:
    token = Token("a", 0, lifetime)
    assert (token.stale(), token.expires) == (pytest.approx(stale), pytest.approx(expires))
    assert [token.state(at) for at in (0, stale, expires)] == ["fresh", "stale", "expired"]


@given(lifetimes, shares, shares)
def test_a_token_is_never_used_at_its_end_and_is_renewed_before_it(
    lifetime: float, jitter: float, at: float
) -> None:
    token = Token("a", 50, lifetime)
    assert 50 < token.stale(jitter) < token.expires < 50 + lifetime
    order = ["fresh", "stale", "expired"]
    now = 50 + at * 2 * lifetime
    assert order.index(token.state(now, jitter)) >= order.index(
        token.state(50 + at * lifetime, jitter)
    )


events = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 5000)),
        st.tuples(st.just("grant"), lifetimes),
        st.tuples(st.just("fail"), st.one_of(st.none(), st.floats(0, 1e6))),
        st.tuples(st.just("reject"), st.integers(0, 3)),
        st.tuples(st.just("accept"), st.just(0)),
    ),
    max_size=60,
)


@given(events, shares)
def test_whatever_happens_no_request_gets_an_expired_or_rejected_token(
    happened: list[tuple[str, float]], jitter: float
) -> None:
    life, now, number = Lifecycle(jitter), 0.0, 0
    rejected: set[str] = set()
    ends: dict[str, float] = {}
    for what, value in happened:
        if what == "wait":
            now += value
        elif what == "grant":
            number += 1
            ends[str(number)] = now + value
            assert life.granted(Token(str(number), now, value), now)
        elif what == "fail":
            pause = life.failed(now, value)
            assert 0 < pause <= LONGEST_PAUSE
            assert life.due() >= now + pause
        elif what == "reject":
            access = str(number - int(value))
            if life.rejected(access, now):
                assert access == str(number), "only the current token is dropped"
                rejected.add(access)
                assert life.usable(now) is None
                assert life.replaced == access
        else:
            life.accepted(str(number))
        access = life.usable(now)
        assert (access is not None) == (life.state(now) in ("fresh", "stale"))
        if access is not None:
            assert access == str(number)
            assert access not in rejected
            assert now < ends[access]


@given(lifetimes, shares)
def test_one_lifetime_costs_one_request(lifetime: float, jitter: float) -> None:
    life = Lifecycle(jitter)
    life.granted(Token("a", 0, lifetime), 0)
    assert life.due() >= 0.5 * lifetime or life.due() >= lifetime - 450
    assert life.due() < Token("a", 0, lifetime).expires


def test_an_endpoint_that_rejects_every_token_does_not_cause_a_token_request_each_time() -> None:
    life, asked = Lifecycle(), 0
    for step in range(6000):
        now = step / 10
        if life.usable(now) is None and life.due() <= now:
            asked += 1
            life.granted(Token(str(asked), now, 3600), now)
        life.rejected(str(asked), now)
    assert asked < 25, "ten minutes of rejected requests, ten a second"
    life.accepted(str(asked))
    assert life.rejected(str(asked), 601), "one that worked before is dropped at once"


def test_a_token_that_expired_on_its_way_is_a_failure() -> None:
    life = Lifecycle()
    assert not life.granted(Token("a", 0, 2), 5)
    assert life.usable(5) is None
    assert life.due() > 5


@pytest.mark.parametrize("lifetime", [0, -1, float("inf"), float("nan")])
def test_an_impossible_lifetime_is_no_token(lifetime: float) -> None:
    with pytest.raises(ValueError, match="lifetime"):
        Token("a", 0, lifetime)
