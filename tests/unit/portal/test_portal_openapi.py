"""The API's description: the same bytes each time, and what the client's types were made from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.portal.openapi import description
from tests.conftest import ROOT


@pytest.mark.long
def test_it_is_the_same_in_another_process(tmp_path: Path) -> None:
    out = tmp_path / "openapi.json"
    subprocess.run(
        [sys.executable, "-m", "hpcbench.portal.openapi", "--out", str(out)],
        check=True, cwd=ROOT, env={"PYTHONHASHSEED": "7", "PATH": "/usr/bin:/bin"}, timeout=120,
    )  # fmt: skip
    assert out.read_text() == description()


@pytest.mark.long
def test_the_client_was_made_for_this_api() -> None:
    written = (ROOT / "portal/openapi.json").read_text()
    assert written == description(), "make static"


@pytest.mark.long
def test_every_operation_has_a_name_of_its_own_and_faults_of_one_form() -> None:
    found = json.loads(description())
    names = []
    for path, verbs in found["paths"].items():
        assert path.startswith("/api/v1/")
        for verb, operation in verbs.items():
            names.append(operation["operationId"])
            assert "_" not in names[-1], "a name in the client"
            fault = operation["responses"]["default"]["content"]["application/json"]["schema"]
            assert fault == {"$ref": "#/components/schemas/Fault"}, (verb, path)
    assert len(set(names)) == len(names)
