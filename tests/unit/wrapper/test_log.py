"""Lines of an engine's output in the log, and those that are never in it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcbench.wrapper import process_tree
from hpcbench.wrapper.engine_output import Log
from hpcbench.wrapper.masking import Mask, hidden_values
from tests.campaign import examples

SECRET = "s3cr3t/with+odd=chars & spaces?"
JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (
        b'{"alg":"HS256","typ":"JWT"}',
        b'{"sub":"1234567890","iat":1516239022}',
        b"x" * 32,
    )
)


def logged(
    folder: Path, write: Callable[[int, Log], Awaitable[None]], hidden: tuple[str, ...] = ()
) -> tuple[Log, str]:
    """A log closed after `write` wrote to its pipe, and the file's text."""

    async def journey() -> Log:
        log = Log(folder / "log", Mask(hidden))
        end = log.open("starts")
        await write(end, log)
        os.close(end)
        await log.close()
        return log

    log = asyncio.run(asyncio.wait_for(journey(), 20))
    return log, (folder / "log").read_text(errors="surrogateescape")


def writes(data: bytes) -> Callable[[int, Log], Awaitable[None]]:
    async def write(end: int, log: Log) -> None:
        os.write(end, data)

    return write


# --- masking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"token={SECRET}!",
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps({"a": SECRET}),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        base64.b64encode(f"u:{SECRET}\n".encode()).decode(),
        base64.b64encode(f"me:{SECRET}, and more".encode()).decode(),
    ],
)
def test_a_known_value_is_hidden_in_every_form_programs_print(text: str) -> None:
    masked = Mask([SECRET])(f"before {text} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "***" in masked
    for piece in ("s3cr3t", "with", "odd", "chars", "czNjcjN0", "M2NyM3"):
        assert piece not in masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("hf_" + "aB3" * 11, "***"),
        ("'Authorization': 'Bearer hf_" + "aB3" * 11 + "'", "'Authorization': 'Bearer ***'"),
        ("sk-proj-abc123def456ghi789", "***"),
        ("ghp_" + "a1B2" * 9, "***"),
        ("github_pat_" + "a1B2_" * 9, "***"),
        ("nvapi-" + "a1B2-" * 9, "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("AIza" + "SyA1-_" * 5 + "abcde", "***"),
        ("gsk_" + "a1B2" * 13, "***"),
        ("glpat-" + "a1B2_" * 4, "***"),
        ("glpat-" + "a1B2_" * 5 + ".01.0w1a2b3c4", "***"),
        ("xoxb-123456789012-abcDEF123", "***"),
        ("xoxp-1234567890-abcdef", "***"),
        (
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_SECRET_ACCESS_KEY=***",
        ),
        ('"aws_session_token": "IQoJb3JpZ2luX2VjEJr"', '"aws_session_token": "***"'),
        (JWT, "***"),
        (f"cookie: session={JWT}; path=/", "cookie: session=***; path=/"),
        ("https://user:pa55word@example.org/x", "https://user:***@example.org/x"),
        ("redis://:pa55word@example.org:6379/0", "redis://:***@example.org:6379/0"),
        ("postgres://me:p/a%40ss@db:5432/x?y=1", "postgres://me:***@db:5432/x?y=1"),
        ("https://0123456789abcdef0123@example.org/r.git", "https://***@example.org/r.git"),
        ("https://b/x?X-Amz-Signature=0123456789abcdef&y=1", "https://b/x?X-Amz-Signature=***&y=1"),
        ("https://b/x?a=1&sig=0123456789abcdef", "https://b/x?a=1&sig=***"),
        ("password = hunter2hunter2", "password = ***"),
        ("X-API-Key: 0123456789abcdef", "X-API-Key: ***"),
        ("password=abc", "password=***"),
        ("DB_PASSWORD: hunter2", "DB_PASSWORD: ***"),
        ("passwd='a b, c'", "passwd='***'"),
        ('"password": "correct horse, battery"', '"password": "***"'),
        (r"{\"password\": \"hunter2\"}", r"{\"password\": \"***\"}"),
        ("pwd=hunter2;Server=x", "pwd=***;Server=x"),
        ("client_secret=s3c", "client_secret=***"),
        ("token=8f14e45fceea167a", "token=***"),
        ("Authorization: Digest abc123", "Authorization: Digest ***"),
        ("--password hunter2 --port 80", "--password *** --port 80"),
        ("vllm serve x --api-key abcdef", "vllm serve x --api-key ***"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic ***"),
    ],
)
def test_what_has_the_shape_of_a_secret_is_hidden(text: str, masked: str) -> None:
    assert Mask()(f"a {text} b") == f"a {masked} b"


@pytest.mark.parametrize(
    "text",
    [
        "INFO 11-20 10:00:00 [x.py:1] max_num_batched_tokens=16384, tokenizer='/models/Qwen2-VL'",
        "http://127.0.0.1:8000/v1/models/Qwen@main http://host:8000/a@b",
        "eos_token='<|im_end|>' pad_token_id=151643 num_key_value_heads=8 key=None",
        "sha256:57d47efdbc2ad0cd58bdfc94228b685fec32674a8162d2a598210041f69e3a9e",
        "hf_model.py scikit-learn task-oriented-dialogue risk-free mail@example.org",
        'File "/usr/lib/python3.11/asyncio/base_events.py", line 653, in run_until_complete',
        "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:03<00:00, 1.20it/s]",
        "AIza gsk_kernel glpat-x xoxo-and-good-night xoxb-",
        'max_tokens=512 tokens: 34 n_tokens=1234567890 "prompt_tokens": 34 token: <|endoftext|> token=151645',
        "PWD=/home/ada OLDPWD=/work secretary: Ada monkey=banana keyboard: qwerty passwords: 3 tried",
        "password=None api_key: null password: ${env:DB_PASSWORD} secret=<your secret> password=***",
        "--max-tokens 512 --tokenizer /models/x --token-limit 12345678 unknown token: 'Beispielwort'",
    ],
)
def test_innocent_text_stays_as_it_is(text: str) -> None:
    assert Mask()(text) == text


NAMES = st.sampled_from(
    [
        "password", "PASSWORD", "db_password", "passwd", "PGPASSWD", "passphrase", "pwd", "secret",
        "client_secret", "api_key", "apikey", "X-Api-Key", "access_key", "AWS_SECRET_ACCESS_KEY",
        "private_key", "access_token", "hf_token", "auth-token", "Authorization",
    ]
)  # fmt: skip
WAYS = st.sampled_from(
    (
        "{}={}", "{}: {}", "{} = {}", '"{}": "{}"', "'{}': '{}'", '{}="{}"', r"\"{}\": \"{}\"",
        "?{}={}&x=1", "--{}={}",
    )
)  # fmt: skip
SECRETS = st.text("abcdefgXYZ0123456789!@#%^*()+-", min_size=4, max_size=60).filter(
    lambda text: not text.startswith("*") and text[0].isalnum()
)


@given(NAMES, WAYS, SECRETS)
def test_a_value_with_a_secrets_name_is_hidden_in_every_form(
    name: str, way: str, value: str
) -> None:
    line = "at start " + way.format(name, value) + " then"
    masked = Mask()(line)
    assert masked == "at start " + way.format(name, "***") + " then"
    assert Mask()(masked) == masked


COUNTED = st.sampled_from(
    [
        "max_tokens", "tokens", "n_tokens", "prompt_tokens", "num_tokens", "max_new_tokens",
        "token_count", "top_k", "key_value_heads", "tokenizer_mode", "eos_token_id",
        "pad_token_id", "password_length",
    ]
)  # fmt: skip


@given(COUNTED, WAYS, st.integers(0, 10**12))
def test_a_count_of_tokens_is_no_secret(name: str, way: str, value: int) -> None:
    line = way.format(name, value)
    assert Mask()(line) == line


@pytest.mark.parametrize(
    ("body", "masked"),
    [
        (b'{ "a": 1 }', b'{ "a": 1 }'),
        (b'{"error": {"api_key": "0123456789"}}', b'{"error": {"api_key": "***"}}'),
        (
            rb'{"a": [1, "password=hunter2hunter2\" is wrong"]}',
            b'{"a": [1, "password=***\\" is wrong"]}',
        ),
        (b"no JSON, password=hunter2hunter2", b"no JSON, password=***"),
        (b"\xff password=hunter2hunter2", b"\xff password=***"),
    ],
)
def test_a_masked_answer_stays_json(body: bytes, masked: bytes) -> None:
    assert Mask().answer(body) == masked


def test_a_secret_of_several_lines_is_hidden_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7bq\nq83vEjRWeJCrze8SNFZ4\n-----END KEY-----\n"
    masked = Mask([key])("x MIIEpAIBAAKCAQEA7bq y\nq83vEjRWeJCrze8SNFZ4\n")
    assert masked == "x *** y\n***\n"


def test_values_of_the_environment_are_hidden_but_for_what_is_no_secret(tmp_path: Path) -> None:
    given = {
        "HF_TOKEN": "hf_1234",
        "PLAIN": "something long",
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(tmp_path),
        "TOO_LONG_FOR_A_PATH": "/x" * 5000,
    }
    inherited = {
        "WANDB_API_KEY": "inherited",
        "PGPASSWORD": "pgpg",
        "TOKENIZERS_PARALLELISM": "false",
        "SSL_KEY": "true",
        "HOME": "/a/long/home",
        "SSH_ASKPASS_TOKEN": str(tmp_path),
    }
    hidden = hidden_values(given, inherited)
    assert set(hidden) == {"hf_1234", "something long", "/x" * 5000, "inherited", "pgpg"}
    text = f"1 hf_1234 inherited something long {tmp_path} /a/long/home"
    assert Mask(hidden)(text) == f"1 *** *** *** {tmp_path} /a/long/home"


# --- the log ---------------------------------------------------------------------------------------


@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_a_secret_is_hidden_wherever_the_writes_cut_it(tmp_path: Path, cuts: list[int]) -> None:
    line = f"before {SECRET} between {JWT} after\nnext {quote(SECRET)}\n".encode()
    places = sorted({0, len(line), *(cut % len(line) for cut in cuts)})
    blocks = [line[a:b] for a, b in zip(places, places[1:], strict=False)]

    async def one_by_one(end: int, log: Log) -> None:
        for block in blocks:
            os.write(end, block)
            await log.settle()

    (tmp_path / "log").unlink(missing_ok=True)
    log, text = logged(tmp_path, one_by_one, (SECRET,))
    assert text == "-- hpcbench starts\nbefore *** between *** after\nnext ***\n"
    assert log.tail() == ["before *** between *** after", "next ***"]


def test_a_line_without_an_end_is_written_and_hides_its_secrets(tmp_path: Path) -> None:
    pieces = (b"x" * 5000 + SECRET.encode()) * 200  # a megabyte

    async def slowly(end: int, log: Log) -> None:
        for begin in range(0, len(pieces), 30_000):
            os.write(end, pieces[begin : begin + 30_000])
            await log.settle()
        assert (tmp_path / "log").stat().st_size > 500_000  # not only at its end

    _, text = logged(tmp_path, slowly, (SECRET,))
    assert "s3cr3t" not in text
    assert text.count("***") == 200
    assert text.count("x") == 1_000_000


def test_of_a_progress_bar_only_the_last_state_is_a_line(tmp_path: Path) -> None:
    async def bar(end: int, log: Log) -> None:
        os.write(end, b"begin\r\n")
        for number in range(3):
            os.write(end, b"\x1b[32mshards %d/2\x1b[0m\r" % number)
            await log.settle()
            assert log.progress == f"shards {number}/2"
        os.write(end, b"done\n\n")

    log, text = logged(tmp_path, bar)
    assert log.tail() == ["begin", "done"]
    assert "shards 1/2" in text  # the file keeps what was written


def test_only_the_last_lines_are_kept_and_none_is_endless(tmp_path: Path) -> None:
    log, text = logged(
        tmp_path, writes(b"".join(b"%d\n" % n for n in range(5000)) + b"y" * 3000 + b"\xff\n")
    )
    assert len(log.tail()) == 2000
    assert log.tail()[-2:] == ["4999", "y" * 1000]
    assert text.count("\n") == 5002


def test_lines_are_given_from_a_time_on(tmp_path: Path) -> None:
    async def two(end: int, log: Log) -> None:
        os.write(end, b"old\n")
        await log.settle()
        begin = time.monotonic()
        assert log.tail(begin) == []
        os.write(end, b"new\n")
        await log.settle()
        assert log.tail(begin) == ["new"]

    assert logged(tmp_path, two)[0].tail() == ["old", "new"]


def test_a_flood_is_written_up_to_a_limit_and_its_last_lines_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.wrapper.engine_output.LIFE_BYTES", 1024)
    lines = [f"{number:09}" for number in range(20_000)]

    async def flood(end: int, log: Log) -> None:
        for begin in range(0, len(lines), 100):
            os.write(end, "".join(f"{line}\n" for line in lines[begin : begin + 100]).encode())
            await log.settle()
        assert log.progress == lines[-1]
        assert (tmp_path / "log").stat().st_size < 1300

    log, text = logged(tmp_path, flood)
    assert log.tail() == lines[-2000:]
    headline, *written = text.splitlines()
    assert headline == "-- hpcbench starts"
    assert written[:102] == lines[:102]
    assert written[102] == lines[102][:4]  # 1024 bytes: 102 lines and 4
    assert written[103] == "-- hpcbench leaves out what follows, but for the last lines"
    assert written[104:] == lines[-2000:]
    log, text = logged(tmp_path, writes(b"next\n"))  # the next life may write again
    assert text.splitlines()[-2:] == ["-- hpcbench starts", "next"]


def test_a_log_without_lines_closes_at_once(tmp_path: Path) -> None:
    log, text = logged(tmp_path, writes(b""))
    assert (log.tail(), log.progress, text) == ([], None, "-- hpcbench starts\n")
    asyncio.run(log.close())  # once more does no harm


async def test_a_full_disk_does_not_stop_the_reader() -> None:
    log = Log(Path("/dev/full"), Mask())
    end = log.open("starts")
    for _ in range(50):  # more than a pipe holds: the writer would wait for ever
        await asyncio.to_thread(os.write, end, b"z" * 99_999 + b"\n")
    os.close(end)
    await log.close()
    assert len(log.tail()) == 50


def test_a_family_is_found_by_session_and_by_mark() -> None:
    marked = {process_tree.MARK: "mark-of-this-test", "PATH": "/usr/bin:/bin"}
    by_session = subprocess.Popen(["sleep", "60"], start_new_session=True)
    by_mark = subprocess.Popen(["sleep", "60"], env=marked)
    stranger = subprocess.Popen(["sleep", "60"])
    everyone = (by_session, by_mark, stranger)
    try:
        while not process_tree.environment(
            by_mark.pid
        ):  # the kernel shows none in the midst of exec
            time.sleep(0.001)
        found = process_tree.members(by_session.pid, "mark-of-this-test")
        assert found == {by_session.pid, by_mark.pid}
        by_mark.kill()
        by_mark.wait()
        assert process_tree.members(by_session.pid, "mark-of-this-test") == {by_session.pid}
    finally:
        for process in everyone:
            process.kill()
            process.wait()
