"""A server starts when the first test wants it, and ends with the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking import servers
from tests.tracking.servers import Server


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """MLflow, answering."""
    yield from servers.running(servers.mlflow(tmp_path_factory.mktemp("mlflow")))


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Phoenix, answering."""
    yield from servers.running(servers.phoenix(tmp_path_factory.mktemp("phoenix")))


@pytest.fixture(autouse=True)
def _nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A proxy that no request to this machine should take; nothing of the developer's own trackers."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{servers.closed_port()}")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "PHOENIX_API_KEY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
