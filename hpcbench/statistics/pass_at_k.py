"""Several attempts at one task: the chance that at least one of k succeeds, and that all of k do."""

from __future__ import annotations

from math import comb


def pass_at(attempts: int, successes: int, k: int) -> float:
    """pass@k of one task: the unbiased estimate of the chance that one of k attempts succeeds.

    1 − C(n − c, k) / C(n, k), with n attempts of which c succeeded: Chen et al. 2021, "Evaluating Large
    Language Models Trained on Code", arXiv 2107.03374, equation 1.

    Raises:
        ValueError: there are fewer than k attempts, or more successes than attempts.
    """
    _check(attempts, successes, k)
    return 1 - comb(attempts - successes, k) / comb(attempts, k)


def pass_all(attempts: int, successes: int, k: int) -> float:
    """pass^k of one task: the unbiased estimate of the chance that all of k attempts succeed.

    C(c, k) / C(n, k): Yao et al. 2024, "τ-bench: A Benchmark for Tool-Agent-User Interaction in Real-World
    Domains", arXiv 2406.12045, section 4.

    Raises:
        ValueError: as `pass_at`.
    """
    _check(attempts, successes, k)
    return comb(successes, k) / comb(attempts, k)


def _check(attempts: int, successes: int, k: int) -> None:
    if not 1 <= k <= attempts or not 0 <= successes <= attempts:
        raise ValueError(f"k = {k} of {attempts} attempts with {successes} successes has no value")
