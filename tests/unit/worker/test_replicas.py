"""CPUs dealt out to the workers of one job."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hpcbench.worker.replicas import deal_cpus, in_cores

CPUS = st.lists(st.integers(0, 40), min_size=1, max_size=24, unique=True)


@given(CPUS, st.lists(st.sets(st.integers(0, 40)), min_size=1, max_size=6))
def test_each_worker_gets_as_many_cpus_and_none_twice(
    cpus: list[int], near: list[set[int]]
) -> None:
    dealt = deal_cpus(cpus, near)
    if len(cpus) < len(near):
        assert dealt == [set(cpus)] * len(near)
        return
    assert {len(own) for own in dealt} == {len(cpus) // len(near)}
    assert len(set().union(*dealt)) == sum(map(len, dealt))
    assert set().union(*dealt) <= set(cpus)


def test_a_worker_gets_the_cpus_near_its_gpus() -> None:
    near = [{4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}, set()]
    assert deal_cpus(range(8), near) == [{4, 5}, {0, 1}, {6, 7}, {2, 3}]


def test_two_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    for cpu, siblings in {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2-3", 3: "2-3"}.items():
        path = tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(siblings + "\n")
    assert in_cores([0, 1, 2, 3, 4, 5, 9], tmp_path) == [0, 4, 1, 5, 2, 3, 9]
    assert deal_cpus(in_cores([0, 1, 4, 5], tmp_path), [set(), set()]) == [{0, 4}, {1, 5}]
