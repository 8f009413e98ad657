"""The contract of environments, for pods of RunPod."""

from __future__ import annotations

from tests.rented_contract import RentedContract


class TestRunPod(RentedContract):
    pass
