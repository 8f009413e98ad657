import sys

import pytest
from hpcbench_example_interpreter import ask


def test_an_interpreter_tells_its_version_and_what_it_lacks() -> None:
    found = ask(sys.executable)
    assert tuple(found["version"]) == sys.version_info[:3]
    assert set(found["missing"]) <= {"hpcbench", "fastapi", "uvicorn", "pydantic", "aiohttp"}


def test_what_is_no_python_is_an_error() -> None:
    with pytest.raises(OSError, match="does not run"):
        ask("/bin/false")
