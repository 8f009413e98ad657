"""The contract of environments, for machines of SkyPilot."""

from __future__ import annotations

from tests.rented_contract import RentedContract


class TestSkyPilot(RentedContract):
    pass
