"""Commands in rented pods: what goes in, what comes back, and that no pod is ever left.

The API is a fake (fake_api.py); sshd, rsync, signals and processes are real.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.environments import runpod_api
from hpcbench.environments.rented import TAKEN
from hpcbench.environments.runpod import RunPod
from hpcbench.environments.runpod_api import Api
from hpcbench.errors import EnvironmentFault, RunFailed, UserError
from hpcbench.inference.client import Client
from hpcbench.schema.site import ContainerSite
from tests.runpod.conftest import IMAGE, Rig
from tests.runpod.fake_api import KEY, FakeRunPod

Gone = Callable[..., None]

ECHO = """
import signal, sys
for number in (signal.SIGUSR2, signal.SIGINT):
    signal.signal(number, lambda number, frame: print("got", signal.Signals(number).name, flush=True))
print("ready", flush=True)
for line in sys.stdin:
    print("heard", line, end="", flush=True)
print("end of input", flush=True)
sys.exit(3)
"""

SLEEP = "import time; print('asleep', flush=True); time.sleep(300)"


def test_it_is_a_plugin() -> None:
    assert plugins.load("environments", "hpcbench.environments.runpod:RunPod") is RunPod


def test_data_goes_in_results_come_back_and_the_pod_goes(rig: Rig, fake: FakeRunPod) -> None:
    model, logs = rig.folder / "a model's", rig.folder / "logs"
    for folder in (model, logs, rig.folder / "blobs"):
        folder.mkdir()
    (rig.folder / "blobs" / "weights").write_text("weights")
    (model / "weights").symlink_to("../blobs/weights")
    (logs / "mine.log").write_text("before\n")
    (logs / "another's.log").write_text("another's\n")
    (rig.folder / "single.log").write_text("before\n")
    code = f"""
import os, pathlib, sys
assert os.environ["OF_THE_IMAGE"] == "it's\\nhere"
assert pathlib.Path({str(model)!r}, "weights").read_text() == "weights"
assert not {{"PUBLIC_KEY", "RUNPOD_API_KEY"}} & set(os.environ)
assert os.environ["GIVEN"] == "1" and sys.path[1] == "/opt/hpcbench/packages", sys.path
import hpcbench
assert hpcbench.__file__.startswith("/opt/hpcbench/packages/"), hpcbench.__file__
assert os.listdir({str(logs)!r}) == []
with open({str(logs / "mine.log")!r}, "a") as log: log.write("in the pod\\n")
with open("/single.log", "a") as log: log.write("in the pod\\n")
pathlib.Path("sub").mkdir()
pathlib.Path("sub", "result").write_text("42")
os.symlink("/etc/shadow", "link")
sys.exit(7)
"""
    runner = rig.start(
        "python", "-c", code,
        mounts=(str(logs), f"{model}::ro", f"{rig.folder}/single.log:/single.log"),
        env={"GIVEN": "1"}, gpus=2,
        gpu_types=["NVIDIA L40S", "NVIDIA A40"], cloud="community", disk_gb=30, registry_login="r1",
    )  # fmt: skip
    assert runner.end() == 7, runner.said()
    assert (runner.private / "sub" / "result").read_text() == "42"
    assert not os.path.lexists(runner.private / "link")
    assert (logs / "mine.log").read_text() == "before\nin the pod\n"
    assert (rig.folder / "single.log").read_text() == "before\nin the pod\n"
    assert (logs / "another's.log").read_text() == "another's\n"
    assert sorted(path.name for path in runner.private.iterdir()) == ["sub"]
    assert not fake.pods
    (asked,) = fake.asked("POST")
    reported = asked.body
    assert reported["imageName"] == IMAGE.removeprefix("docker://")
    assert reported["gpuTypeIds"] == ["NVIDIA L40S", "NVIDIA A40"]
    assert (reported["gpuCount"], reported["cloudType"], reported["containerDiskInGb"]) == (
        2,
        "COMMUNITY",
        30,
    )
    assert (reported["ports"], reported["interruptible"], reported["volumeInGb"]) == (
        ["22/tcp"],
        False,
        0,
    )
    assert reported["containerRegistryAuthId"] == "r1"


def test_input_output_and_signals_go_through(rig: Rig, fake: FakeRunPod) -> None:
    runner = rig.start("python", "-uc", ECHO)
    runner.send("key\n")  # long before there is a pod
    runner.wait_for("heard key")
    runner.send("more\n")
    runner.wait_for("heard more")
    for name in ("SIGUSR2", "SIGINT"):
        runner.process.send_signal(signal.Signals[name])
        runner.wait_for(f"got {name}")
    runner.end_input()
    assert runner.end() == 3
    assert "end of input" in runner.said()
    assert not fake.pods


def test_sigterm_ends_the_command_first(rig: Rig, fake: FakeRunPod) -> None:
    runner = rig.start("python", "-uc", ECHO)
    runner.wait_for("ready")
    runner.process.send_signal(signal.SIGTERM)
    assert runner.end() == 128 + signal.SIGTERM
    assert not fake.pods


def test_a_command_that_is_not_in_the_image(rig: Rig, fake: FakeRunPod) -> None:
    runner = rig.start("no-such-program")
    assert runner.end() == 127
    assert "no-such-program: No such file or directory" in runner.said()
    assert not fake.pods


async def test_the_wrapper_is_reached_through_its_socket(rig: Rig, fake: FakeRunPod) -> None:
    """The real wrapper in the pod, asked as a worker asks it."""
    folder = rig.folder / "private-0"
    words = ["--socket", f"{folder}/w.sock", "--engine-dir", str(folder), "--log", f"{folder}/log"]
    runner = rig.start("python", "-m", "hpcbench.wrapper", *words)
    runner.send("key-of-this-run\n")

    async def ask() -> dict[str, object]:
        async with Client(f"{folder}/w.sock", "key-of-this-run", "model") as client:
            for _ in range(300):
                try:
                    return await client.status()
                except (OSError, RunFailed):
                    await asyncio.sleep(0.1)
        raise AssertionError(runner.said())

    assert (await ask())["state"] == "empty"
    await asyncio.gather(*(ask() for _ in range(64)))
    runner.end_input()
    assert runner.end() == 0, runner.said()
    assert not fake.pods
    assert not (folder / "w.sock").exists()


def test_what_is_written_comes_while_it_runs(rig: Rig) -> None:
    runner = rig.start("python", "-c", f"open('early', 'w').write('there'); {SLEEP}")
    runner.wait_for("asleep")
    until = time.monotonic() + 40
    while not (runner.private / "early").exists():
        assert time.monotonic() < until
        time.sleep(0.2)
    assert (runner.private / "early").read_text() == "there"


def test_no_secret_can_be_read_by_others(rig: Rig, fake: FakeRunPod) -> None:
    given = "s3cr3t-of-the-engine"
    code = f"import os; print(len(os.environ['TOKEN']), flush=True); {SLEEP}"
    runner = rig.start("python", "-c", code, env={"TOKEN": given})
    runner.send("key-through-stdin\n")
    seen = b""
    until = time.monotonic() + 60
    while "asleep" not in runner.said() and time.monotonic() < until:
        seen += _command_lines()
    seen += _command_lines()
    assert b"hpcbench.environments.rented_run" in seen  # it looks at the right things
    assert b"rented_guard" in seen
    assert b"/run/hpcbench.env" in seen  # what runs in the pod is seen, too
    secrets = (KEY, given, "key-through-stdin", "PRIVATE KEY")
    for secret in secrets:
        assert secret.encode() not in seen
        assert secret not in json.dumps([call.body for call in fake.calls])
        assert secret not in runner.said()
    for record in (rig.cache / "runpod").iterdir():
        assert KEY not in record.read_text()
        assert given not in record.read_text()
    (pod,) = fake.pods.values()
    inside = _first_process(pod.process.pid if pod.process else 0)
    assert (inside / "root/run/hpcbench.env").stat().st_mode & 0o077 == 0
    for child in _children(runner.process.pid):  # the guard and the sshs
        assert KEY.encode() not in Path(f"/proc/{child}/environ").read_bytes()


@pytest.mark.parametrize("hours", [None, 2])
def test_a_price_above_the_cap_is_refused(rig: Rig, fake: FakeRunPod, hours: int | None) -> None:
    fake.price = "3.00" if hours else None  # type: ignore[assignment]
    runner = rig.start("python", "-c", SLEEP, max_cost=5, max_hours=hours)
    assert runner.end() == 255
    last = runner.said().splitlines()[-1]
    assert last.startswith("FATAL: ")
    if hours:
        assert "3.00 USD an hour: max_hours = 2 would cost 6.00 USD, but max_cost is 5 USD" in last
    else:
        assert "names no price" in last
    assert not fake.pods
    assert "asleep" not in runner.said()


def test_the_pods_of_one_worker_cost_no_more_together(rig: Rig, fake: FakeRunPod) -> None:
    """A worker starts its wrapper again when an engine dies; that must not double the cost."""
    fake.price, fake.never_running = "3600", True
    first = rig.start("python", "-c", SLEEP, max_cost=6)
    assert first.end() == 255
    second = rig.start("python", "-c", SLEEP, max_cost=6)
    assert second.end() == 255
    assert "earlier machines of this worker have cost max_cost = 6 USD" in second.said()
    assert len(fake.asked("POST")) == 1
    third = rig.start("python", "-c", SLEEP, max_cost=600)
    rented = rig.rented()
    assert rented.deadline is not None
    assert 500 < rented.deadline - rented.begun < 594, third.said()


def test_the_deadline_deletes(rig: Rig, fake: FakeRunPod) -> None:
    fake.price = "3600"  # a USD a second
    before = time.time()
    runner = rig.start("python", "-c", SLEEP, max_cost=15)
    runner.wait_for("asleep")
    rented = rig.rented()
    assert rented.deadline is not None
    assert before + 15 < rented.deadline < fake.asked("POST")[0].time + 15
    assert runner.end() == 255
    assert "time is used up" in runner.said().splitlines()[-1]
    assert not fake.pods
    assert fake.asked("DELETE")[0].time >= rented.deadline


def test_the_guard_keeps_the_deadline_of_a_runner_that_hangs(
    rig: Rig, fake: FakeRunPod, gone: Gone
) -> None:
    fake.price, fake.never_running = "3600", True
    runner = rig.start("python", "-c", SLEEP, max_cost=5)
    rig.rented()
    runner.process.send_signal(signal.SIGSTOP)
    gone(30)
    runner.process.send_signal(signal.SIGCONT)
    assert runner.end() == 255


def test_a_pod_deletes_itself_when_no_process_is_left(
    rig: Rig, fake: FakeRunPod, gone: Gone
) -> None:
    fake.price = "3600"
    runner = rig.start("python", "-c", SLEEP, max_cost=15)
    runner.wait_for("asleep")
    for pid in (runner.guard(), runner.process.pid):
        os.kill(pid, signal.SIGKILL)
    gone(60)
    (call,) = fake.asked("DELETE")
    assert call.time - fake.asked("POST")[0].time > 28


FAILURES = {
    "sold out": "no such machine available now: .*gpu_types",
    "bad request": "HTTP 400: image is no image",
    "never an address": "had no address after 0.1 minutes .*start_minutes",
    "no sshd": "cannot reach the rented machine over ssh: .*[Cc]onnection refused",
    "ends": "ended before it could be used",
    "key is revoked": r"refuses the API key \(HTTP 401\) .*RUNPOD_API_KEY",
}


@pytest.mark.parametrize("what", FAILURES)
def test_every_failure_is_one_line_and_leaves_no_pod(rig: Rig, fake: FakeRunPod, what: str) -> None:
    statuses = {"sold out": 500, "bad request": 400, "key is revoked": 401}
    texts = {
        "sold out": "create pod: There are no longer any instances available with the requested "
        "specifications. Please refresh and try again.",
        "bad request": "image is no image",
    }
    if what in statuses:
        fake.failures.append(("POST", statuses[what], texts.get(what, "")))
    fake.never_running = what == "never an address"
    fake.ends = what == "ends"
    fake.no_sshd = what == "no sshd"
    runner = rig.start("python", "-c", SLEEP, start_minutes=0.1)
    assert runner.end() == 255
    last = runner.said().splitlines()[-1]
    assert re.search(f"^FATAL: .*{FAILURES[what]}", last), runner.said()
    assert not fake.pods
    assert "Traceback" not in runner.said()
    assert len(fake.asked("POST")) == 1


def test_errors_that_pass_are_got_over(rig: Rig, fake: FakeRunPod) -> None:
    fake.failures += [("POST", 429, "too many requests"), ("DELETE", 500, ""), ("DELETE", 500, "")]
    fake.failures += [("GET", 503, "")]
    runner = rig.start("python", "-c", "print('ran')")
    assert runner.end() == 0, runner.said()
    assert "ran" in runner.said()
    assert len(fake.asked("DELETE")) == 3
    assert not fake.pods


def test_an_answer_that_was_lost_does_not_rent_two(rig: Rig, fake: FakeRunPod) -> None:
    fake.lose_answer = True
    runner = rig.start("python", "-c", "print('ran')")
    assert runner.end() == 0, runner.said()
    assert len(fake.asked("POST")) == 1
    assert not fake.pods


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_kill_9_of_the_runner_leaves_no_pod(
    rig: Rig, fake: FakeRunPod, gone: Gone, when: str
) -> None:
    fake.never_running = when == "waiting"
    runner = rig.start("python", "-c", SLEEP)
    rig.rented() if when == "waiting" else runner.wait_for("asleep")
    assert fake.pods
    os.killpg(runner.process.pid, signal.SIGKILL)  # as the worker does
    gone()


def test_kill_9_while_the_pod_is_asked_for(rig: Rig, fake: FakeRunPod, gone: Gone) -> None:
    fake.slow_post = 2.0
    runner = rig.start("python", "-c", SLEEP)
    until = time.monotonic() + 20
    while not fake.asked("POST"):
        assert time.monotonic() < until
        time.sleep(0.02)
    runner.process.kill()
    time.sleep(3)
    gone()
    assert fake.asked("DELETE")


def test_stopped_before_the_command_runs(rig: Rig, fake: FakeRunPod) -> None:
    fake.never_running = True
    runner = rig.start("python", "-c", SLEEP)
    rig.rented()
    runner.process.send_signal(signal.SIGUSR2)
    assert runner.end() == 128 + signal.SIGUSR2
    assert not fake.pods


def test_kill_9_of_the_worker_before_the_command_runs(
    rig: Rig, fake: FakeRunPod, gone: Gone, tmp_path: Path
) -> None:
    fake.never_running = True
    command = RunPod().wrap(rig.prepare(), ["python"], [str(tmp_path)], {}, 0, rig.site())
    code = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(300)"
    worker = subprocess.Popen(
        [sys.executable, "-c", code, *command.argv], env={**os.environ, **command.env}
    )
    rig.rented()
    worker.kill()
    worker.wait()
    gone()


def test_a_pod_that_dies_under_a_command(rig: Rig, fake: FakeRunPod) -> None:
    runner = rig.start("python", "-c", SLEEP)
    runner.wait_for("asleep")
    fake.delete(next(iter(fake.pods)))
    assert runner.end() == TAKEN
    assert runner.said().splitlines()[-1].startswith("FATAL: the rented machine is gone: preempted")


def test_the_next_prepare_deletes_what_was_left(rig: Rig, fake: FakeRunPod) -> None:
    fake.never_running = True
    runner = rig.start("python", "-c", SLEEP)
    rig.rented()
    said: list[str] = []
    rig.prepare(said.append)
    assert len(fake.pods) == 1  # its runner lives
    assert said == []
    for pid in (runner.guard(), runner.process.pid):
        os.kill(pid, signal.SIGKILL)
    runner.process.wait()
    (pod,) = fake.pods
    rig.prepare(said.append)
    assert not fake.pods
    assert len(said) == 1
    assert f"deleted runpod machine {pod}" in said[0]
    assert f"its process {runner.process.pid} has ended" in said[0]
    rig.prepare(said.append)
    assert len(said) == 1


def test_a_pod_that_another_cache_knows_is_only_mentioned(rig: Rig, fake: FakeRunPod) -> None:
    fake.never_running = True
    rig.start("python", "-c", SLEEP)
    rig.rented()
    rig.cache = rig.folder / "another"
    said: list[str] = []
    rig.prepare(said.append)
    assert len(fake.pods) == 1
    assert "is of another cache" in said[0]


def test_a_pod_that_cannot_be_deleted_is_named(fake: FakeRunPod) -> None:
    api = Api(fake.url, KEY)
    fake.failures += [("DELETE", 500, "internal error")] * 9
    with pytest.raises(
        EnvironmentFault, match="POD p1 MAY STILL COST MONEY.*internal error.*console"
    ):
        api.give_back("p1", patience=2)


def test_a_refused_key_is_one_line(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_WRONG")
    with pytest.raises(
        EnvironmentFault, match=r"refuses the API key \(HTTP 401\) .*api_key"
    ) as caught:
        rig.prepare()
    assert "rpa_WRONG" not in str(caught.value)
    monkeypatch.delenv("RUNPOD_API_KEY")
    with pytest.raises(EnvironmentFault, match="RUNPOD_API_KEY.*the variable is not set"):
        rig.prepare()


def test_a_redirect_does_not_get_the_key(rig: Rig, fake: FakeRunPod, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = FakeRunPod(tmp_path / "other")
    fake.redirect = f"{other.url}/pods"
    try:
        with pytest.raises(EnvironmentFault, match="HTTP 307"):
            rig.prepare()
        assert other.calls == []
    finally:
        other.close()


@pytest.mark.parametrize("how", ["silent", "closed"])
def test_an_api_that_is_dead_does_not_hang(
    rig: Rig, fake: FakeRunPod, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(runpod_api, "TIMEOUT", 0.3)
    monkeypatch.setattr(runpod_api, "WAITS", (0.1, 0.1))
    options = {"endpoint": "http://127.0.0.1:9/v1"} if how == "closed" else {}
    fake.silent = True
    with pytest.raises(EnvironmentFault, match="cannot query RunPod: .* does not answer"):
        rig.prepare(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'max_cost' is missing"),
        ({"max_cost": 1, "gpu_type": ["X"]}, "unknown option 'gpu_type'.*gpu_types"),
        ({"max_cost": 1, "api_key": "rpa_PLAIN"}, "option 'api_key'.*must be a reference"),
        ({"max_cost": 1, "endpoint": "http://rest.runpod.io/v1"}, "option 'endpoint'.*https"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, object], message: str) -> None:
    site = ContainerSite(manager="runpod", options=options)
    with pytest.raises(UserError, match=message) as caught:
        RunPod().prepare(IMAGE, tmp_path, site, (), print)
    assert "rpa_PLAIN" not in str(caught.value)


def test_only_images_of_registries(rig: Rig) -> None:
    with pytest.raises(UserError, match="cannot run at RunPod"):
        RunPod().prepare("image.sif", rig.cache, rig.site(), (), print)


def test_wrap_refuses_before_anything_is_rented(rig: Rig, fake: FakeRunPod) -> None:
    environment = rig.prepare()
    with pytest.raises(EnvironmentFault, match="no gpu_types"):
        RunPod().wrap(environment, ["python"], [], {}, 1, rig.site())
    with pytest.raises(EnvironmentFault, match="cannot copy /nowhere to the rented machine"):
        RunPod().wrap(environment, ["python"], ["/nowhere::ro"], {}, 0, rig.site())
    assert not fake.asked("POST")


def _command_lines() -> bytes:
    seen = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.parent.name != str(os.getpid()):
                seen += path.read_bytes()
        except OSError:
            continue
    return seen


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _first_process(unshare: int) -> Path:
    (first,) = _children(unshare)
    return Path(f"/proc/{first}")
