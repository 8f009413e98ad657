"""Fixtures that bring up real parts: the cluster, Apptainer, the image, an installed hpcbench.

A part that is missing makes its tests fail with the reason; HPCBENCH_ALLOW_SKIP=1 skips them.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import hashlib
import inspect
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from hpcbench import garbage
from hpcbench.secret import in_texts
from hpcbench.variables import variable
from tests.campaign import FULL, SEARCH, examples
from tests.cluster.image import REQUIREMENTS
from tests.cluster.lab import Lab
from tests.user import User

ROOT = Path(__file__).parent.parent


# On a new machine the first text that Hypothesis draws takes seconds: it makes its tables then. The same
# examples every time, so that a commit is judged by what it changes; `make search` draws others, and more.
settings.register_profile(
    "tests",
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
    derandomize=not SEARCH,
    max_examples=1000 if SEARCH else examples(100),
)
settings.load_profile("tests")

# One thread for a tiny model, in all programs that tests start: torch's threads wait for each other in loops,
# and two of them on two busy processors take more than twice the time of one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell in the background ignores Ctrl-C, and nohup the end of the terminal; programs under test would
# inherit that. A handler of ours is not inherited.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: it takes a quarter of that time, in each process.

    Nor does a later search look at modules and tests: they are no garbage, and there are millions of objects.
    gRPC, which tests import before the wrapper does, starts no threads in processes that tests fork
    (`open_inference/without_forks.py`): these would end them.
    """
    with garbage.loading(), variable("GRPC_ENABLE_FORK_SUPPORT", "0"):
        done = yield
    gc.freeze()
    return done


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Write lone surrogates in a report as escapes: a worker of xdist that sends them ends there."""
    report: Any = yield
    found = in_texts(lambda text: text.encode(errors="backslashreplace").decode(), report)
    if isinstance(report["longrepr"], tuple):  # file, line and reason of a skip
        found["longrepr"] = tuple(found["longrepr"])
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the cluster's state to the report of a failure: a job that waits has its reason there."""
    report = yield
    if report.failed and "lab" in getattr(item, "fixturenames", ()):
        report.sections.append(("cluster", Lab.current().described()))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, as the only task, for five minutes at the most."""
    test, names = pyfuncitem.obj, pyfuncitem._fixtureinfo.argnames
    if not inspect.iscoroutinefunction(test):
        return None

    async def bounded() -> None:
        task = asyncio.current_task()
        assert task is not None
        limit = asyncio.get_running_loop().call_later(300, task.cancel)
        await test(**{name: pyfuncitem.funcargs[name] for name in names})
        limit.cancel()

    asyncio.run(bounded())
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave campaigns to `make test-full`."""
    if FULL:
        return
    left_out = [item for item in items if item.get_closest_marker("campaign")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]


def unavailable(reason: str) -> NoReturn:
    """A component that cannot be had: fail, or skip where the developer allowed it."""
    if os.environ.get("HPCBENCH_ALLOW_SKIP") == "1":
        pytest.skip(reason)
    pytest.fail(reason, pytrace=False)


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The one-machine Slurm cluster, up."""
    current = Lab.current()
    try:
        current.up()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no Slurm cluster on this machine: {error}")
    return current


def by_digest(image: Callable[[], tuple[str, str]]) -> str:
    """Reference of an image that the lab makes and serves, with its digest."""
    try:
        return "@".join(image())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no image: {error}")


@pytest.fixture(scope="session")
def image(lab: Lab) -> str:
    """Reference of the engine image in the lab's own registry, locked as RUN_MODE=prod wants it."""
    return by_digest(lab.image)


@pytest.fixture(scope="session")
def python_image(lab: Lab) -> str:
    """The same of the small image that has Python and no engine."""
    return by_digest(lab.python_image)


@pytest.fixture(scope="session")
def vllm_python(lab: Lab) -> Path:
    """Python of an environment with vLLM for CPUs."""
    try:
        return lab.vllm()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no vLLM for CPUs: {error}")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hpcbench's wheel, built from this checkout once for all processes of a run."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "wheel.done"
        if not done.exists():
            (folder / "wheel").mkdir(exist_ok=True)
            done.write_text(str(build_wheel(folder / "wheel")))
        return Path(done.read_text())


@pytest.fixture(scope="session")
def lab_python(lab: Lab, wheel: Path) -> Path:
    """Python of an environment with hpcbench's wheel, as a cluster user installs it."""
    return _install_for_users(lab, "hpcbench", wheel, (str(wheel),))


@pytest.fixture(scope="session")
def lab_python_with_engine(lab: Lab, wheel: Path) -> Path:
    """The same with the Hugging Face engine beside it, for jobs without an image."""
    torch, *_ = REQUIREMENTS
    return _install_for_users(lab, "hpcbench-engine", wheel, (torch, f"{wheel}[hf]"))


@pytest.fixture(scope="session")
def python_with_agents(lab: Lab, wheel: Path) -> Path:
    """The same with what agents' tools and servers of tools need."""
    return _install_for_users(lab, "hpcbench-agents", wheel, (f"{wheel}[agents]",))


@pytest.fixture(scope="session")
def python_with_pdf(lab: Lab, wheel: Path) -> Path:
    """The same with what reads PDF files."""
    return _install_for_users(lab, "hpcbench-pdf", wheel, (f"{wheel}[pdf]",))


def _install_for_users(lab: Lab, name: str, wheel: Path, needs: Sequence[str]) -> Path:
    environment = lab.home / name
    key = hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]
    python, done = environment / "bin" / "python", environment / f"{key}.done"
    with (lab.home / f"{name}.lock").open("w") as lock:  # two parts of `make test` want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return python
        if not python.exists():
            # Debian's Python: the tests' own may lie where the ordinary user cannot go.
            run(["/usr/bin/python3", "-m", "venv", str(environment)])
        if list(environment.glob("lib/python3*/site-packages/hpcbench-*.dist-info")):
            # An environment of before the rename holds the same files under the old name.
            run([str(python), "-m", "pip", "uninstall", "-q", "-y", "hpcbench"])
        for one in needs:
            _install(python, [one])
        _install(python, ["--no-deps", "--reinstall", str(wheel)], "--force-reinstall")
        # The folders are hers, so that Python keeps what her first command compiles. Files are not: uv links
        # them to its cache.
        run(["find", str(environment), "-type", "d", "-exec", "chown", "hpcuser:", "{}", "+"])
        for old in environment.glob("*.done"):
            old.unlink()
        done.touch()
    return python


def _install(python: Path, words: Sequence[str], reinstall: str = "") -> None:
    """As the Makefile: uv in a fifth of pip's time, and pip where uv finds no index."""
    uv = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "install",
        "-q",
        "--python",
        str(python),
    ]
    uv += ["--index-strategy", "unsafe-best-match", *words]
    links = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
    if subprocess.run(uv, env={**os.environ, **links}, capture_output=True, check=False).returncode:
        others = [reinstall if word == "--reinstall" else word for word in words]
        run([str(python), "-m", "pip", "install", "-q", *others])


@pytest.fixture
def user(lab: Lab, lab_python: Path, request: pytest.FixtureRequest) -> Iterator[User]:
    """An ordinary user of the cluster with a home of experiments of her own."""
    folder = lab.new_directory("bench")
    one = User(lab, lab_python, folder)
    yield one
    one.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_cache(lab: Lab) -> Path:
    """SIFs and packages that all tests of a session use: built once."""
    path = lab.user_home / "shared-cache"
    path.mkdir(exist_ok=True)
    shutil.chown(path, "hpcuser", "hpcuser")
    return path


@pytest.fixture
def slurm_user(user: User, image: str, shared_cache: Path) -> User:
    """The same, after `hpcbench init`, with models that live in the engine image."""
    user.share_cache(shared_cache)
    user.init(insecure_registry=image.removeprefix("docker://").partition("/")[0])
    user.use_image(image)
    return user


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """hpcbench's wheel, built from this checkout, or from another folder with its source."""
    # Without isolation: pip would make an environment and fetch the build system again each time.
    words = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    run([sys.executable, "-m", "pip", *words])
    return next(folder.glob("hpcbench*.whl"))


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed; its output is the reason if it does not."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(argv)}: {(done.stderr or done.stdout)[-2000:]}", pytrace=False)
    return done
