"""What is read out of an engine's log, and what never is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcbench.wrapper import family
from hpcbench.wrapper.process import Log, hidden_values


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", None),
        ("loading\nValueError: no tokenizer\n", "ValueError: no tokenizer"),
        ("KeyError: 'a'\nduring that\nOSError: last\nbye\n", "OSError: last"),
        (
            "torch.OutOfMemoryError: CUDA out of memory.\n",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            "(EngineCore pid=7) ERROR 11-20 10:00:00 [core.py:9] ValueError: bad head size\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n",
            "ValueError: bad head size",
        ),
        (
            "pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, max_model_len is too large\n    For further information visit\n",
            "pydantic_core.ValidationError: 1 validation error for ModelConfig: "
            "Value error, max_model_len is too large",
        ),
        ("usage: x\napi_server.py: error: unrecognized arguments: --no-x\n", None),
    ],
)
def test_the_cause_is_the_last_exception_or_the_last_line(
    tmp_path: Path, text: str, cause: str | None
) -> None:
    path = tmp_path / "log"
    path.write_text("OSError: of an engine before\n")
    log = Log(path)
    log.start_here()
    with path.open("a") as file:
        file.write(text)
    assert log.cause() == (cause or (text.strip().splitlines() or [None])[-1])


def test_values_of_the_environment_are_hidden(tmp_path: Path) -> None:
    given = {
        "HF_TOKEN": "hf_1234",
        "PLAIN": "something long",
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(tmp_path),
    }
    hidden = hidden_values(given, {"WANDB_API_KEY": "inherited", "HOME": "/a/long/home"})
    path = tmp_path / "log"
    path.write_text(f"1 hf_1234 inherited something long {tmp_path} /a/long/home\xff\n")
    assert Log(path, hidden).tail() == [f"1 *** *** *** {tmp_path} /a/long/home\xff"]


def test_a_family_is_found_by_session_and_by_mark() -> None:
    marked = {family.MARK: "mark-of-this-test", "PATH": "/usr/bin:/bin"}
    by_session = subprocess.Popen(["sleep", "60"], start_new_session=True)
    by_mark = subprocess.Popen(["sleep", "60"], env=marked)
    stranger = subprocess.Popen(["sleep", "60"])
    everyone = (by_session, by_mark, stranger)
    try:
        found = family.members(by_session.pid, "mark-of-this-test")
        assert found == {by_session.pid, by_mark.pid}
        by_mark.kill()
        by_mark.wait()
        assert family.members(by_session.pid, "mark-of-this-test") == {by_session.pid}
    finally:
        for process in everyone:
            process.kill()
            process.wait()
