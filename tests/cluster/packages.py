"""Debian packages, uv, and Apptainer and SingularityCE, unpacked beside a C library of their own."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path

from .system import SYSTEM_PATH, LabError, run, timed

PACKAGES = (
    *("slurm-wlm", "slurmdbd", "munge", "mariadb-server"),
    *("mmdebstrap", "umoci", "skopeo", "docker-registry"),
    *("patchelf", "squashfs-tools", "squashfuse", "fuse3", "fuse-overlayfs", "uidmap", "fakeroot"),
    *("python3-venv", "debian-archive-keyring", "cron"),
)
MANUALS = Path("/var/lib/man-db/auto-update")
LIBRARY = Path("usr/lib/x86_64-linux-gnu")
POLICY = Path("/usr/sbin/policy-rc.d")
APT_ENV = {"PATH": SYSTEM_PATH, "DEBIAN_FRONTEND": "noninteractive", "LANG": "C.UTF-8"}
APT_GET = (
    *("apt-get", "-y", "-q", "-o", "Acquire::Retries=4", "-o", "Acquire::http::Timeout=30"),
    *("-o", "DPkg::Lock::Timeout=300"),  # another process may be installing
)

# Ubuntu's, as no Debian has one; noble is served until 2029 at least.
SINGULARITY_DEB = "singularity-container_4.1.1+ds2-1build1_amd64.deb"
SINGULARITY_URL = (
    f"http://archive.ubuntu.com/ubuntu/pool/universe/s/singularity-container/{SINGULARITY_DEB}"
)
SINGULARITY_SHA256 = "cb2e67f0f6897a78dd201b86c06575ba3f49144011952754b8633c7b1ab6d4b4"
# Unlike Apptainer it looks for its parts nowhere but where its package lays them.
SINGULARITY_PLACES = (
    *("usr/bin/singularity", "usr/lib/x86_64-linux-gnu/singularity"),
    *("etc/singularity", "var/lib/singularity"),
)


def missing_packages(names: Sequence[str] = PACKAGES) -> list[str]:
    """Which of these dpkg does not know as fully installed."""
    status = Path("/var/lib/dpkg/status").read_text(errors="replace")
    pattern = re.compile(r"^Package: (.+)\nStatus: install ok installed$", re.M)
    installed = {match[1] for match in pattern.finditer(status)}
    return [name for name in names if name not in installed]


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """Keep package scripts from starting services, unless the machine forbids it already."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(
        "#!/bin/sh\n# written by hpcbench tests/cluster for one installation\nexit 101\n"
    )
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


@contextlib.contextmanager
def no_manuals() -> Iterator[None]:
    """Keep man-db from reading all manual pages after an installation: it takes two seconds each time."""
    if not MANUALS.exists():
        yield
        return
    MANUALS.unlink()
    try:
        yield
    finally:
        MANUALS.touch()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Test processes side by side install one after the other: dpkg does not wait for itself."""
    with Path("/run/hpcbench-tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install_packages(names: Sequence[str] = PACKAGES) -> None:
    """Install what is missing; apt's lists are fetched only if that does not work without."""
    wanted = missing_packages(names)
    if not wanted:
        return
    install = [*APT_GET, "install", "--no-install-recommends", *wanted]
    with alone(), no_services(), no_manuals(), timed(f"apt: {len(wanted)} packages"):
        # An installation that was cut off must be finished first; usually there is nothing to do.
        run(["dpkg", "--configure", "-a"], what="finish a cut-off installation", env=APT_ENV)
        for attempt in range(4):
            try:
                run(install, what="install the Debian packages", env=APT_ENV, timeout=900)
                return
            except LabError:
                if attempt == 3:
                    raise
                time.sleep(2 * attempt)
                with contextlib.suppress(LabError):  # one unreachable third-party list is no matter
                    run([*APT_GET, "update"], what="update apt's lists", env=APT_ENV, timeout=900)


def mirror() -> str:
    """The Debian mirror this machine uses already; Debian's own where it uses none."""
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(path.read_text(errors="replace") for path in sources if path.is_file())
    found = re.search(r"^(?:URIs:|deb(?: \[.*?\])?) *(https?://\S+/debian)/?\s", text, re.M)
    return found[1] if found else "http://deb.debian.org/debian"


def unpack_apptainer(home: Path) -> None:
    """Put Apptainer under `home/apptainer` and link it into `home/bin`; nothing if it starts."""
    prefix, program = home / "apptainer", home / "bin" / "apptainer"
    with contextlib.suppress(LabError):
        run([program, "--version"], what="start Apptainer", timeout=90)
        return
    with timed("Apptainer from sid"):
        work = home / "apptainer.new"
        shutil.rmtree(work, ignore_errors=True)
        packages = _download(work / "apt")
        run(["dpkg", "-x", packages["apptainer"], work / "root"], what="unpack Apptainer")
        run(["dpkg", "-x", packages["libc6"], work / "root/glibc"], what="unpack libc6")
        shutil.rmtree(prefix, ignore_errors=True)
        (work / "root").rename(prefix)
        shutil.rmtree(work)
        _relocate(prefix)
        program.parent.mkdir(exist_ok=True)
        for name in ("apptainer", "singularity"):  # some programs know only the old name
            (program.parent / name).unlink(missing_ok=True)
            (program.parent / name).symlink_to(prefix / "usr/bin/apptainer")
        # Debian sid is not pinned: better one clear line here than a riddle in a test.
        run([program, "--version"], what="start the Apptainer of Debian sid", timeout=90)


def unpack_singularity(home: Path) -> None:
    """Put SingularityCE, setuid as clusters have it, under `home/singularity-ce`; nothing if it starts.

    It is no program of `home/bin`: `singularity` there is Apptainer, as clusters with Apptainer have it.
    """
    prefix = home / "singularity-ce"
    program = prefix / "usr/bin/singularity"
    if all(_link(place).resolve() == prefix / place for place in SINGULARITY_PLACES):
        with contextlib.suppress(LabError):
            run([program, "--version"], what="start SingularityCE", timeout=90)
            return
    with timed("SingularityCE from Ubuntu"):
        work = home / "singularity-ce.new"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        deb = _fetch(SINGULARITY_URL, SINGULARITY_SHA256, work / "deb")
        run(["dpkg", "-x", deb, work / "root"], what="unpack SingularityCE")
        shutil.rmtree(prefix, ignore_errors=True)
        (work / "root").rename(prefix)
        shutil.rmtree(work)
        starters = prefix / LIBRARY / "singularity/bin"
        _bind(
            _glibc(home / "apptainer"), [program, starters / "starter", starters / "starter-suid"]
        )
        (starters / "starter-suid").chmod(0o4755)  # patchelf wrote it again
        configuration = prefix / "etc/singularity/singularity.conf"
        text = configuration.read_text()  # Ubuntu's ldconfig has another name than Debian's
        configuration.write_text(text.replace("/usr/sbin/ldconfig.real", "/usr/sbin/ldconfig"))
        for place in SINGULARITY_PLACES:
            link = _link(place)
            if link.exists() and not link.is_symlink():
                raise LabError(f"cannot unpack SingularityCE: this machine has a {link} of its own")
            link.unlink(missing_ok=True)
            link.symlink_to(prefix / place)
        run([program, "--version"], what="start Ubuntu's SingularityCE", timeout=90)


def remove_singularity(home: Path) -> None:
    """Take away what lies outside of `home`."""
    for place in SINGULARITY_PLACES:
        if _link(place).is_symlink() and _link(place).readlink() == home / "singularity-ce" / place:
            _link(place).unlink()


def ensure_uv(home: Path) -> Path:
    """uv, linked into `home/bin`, where the ordinary user finds it as well."""
    program = home / "bin/uv"
    if not program.exists():
        with timed("uv"):
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "uv"]
            run([*words, "--target", home / "uv"], what="install uv")
            program.unlink(missing_ok=True)
            program.symlink_to(home / "uv/bin/uv")
    return program


def find_links() -> list[str]:
    """The folders in which pip looks for wheels besides its index; uv does not read pip's file."""
    said = run([sys.executable, "-m", "pip", "config", "list"], what="read pip's configuration")
    found = re.findall(r"find-links='(.*?)'", said.replace("\\n", " "))
    return list(dict.fromkeys(word for line in found for word in line.split()))


def _download(apt: Path) -> dict[str, Path]:
    """Fetch the two packages with an apt configuration of their own; /etc/apt stays as it is."""
    for folder in ("lists/partial", "cache/archives/partial", "parts", "debs"):
        (apt / folder).mkdir(parents=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "sources.list").write_text(
        "".join(
            f"deb [signed-by={keyring}] {mirror()} {suite} main\n" for suite in ("sid", "trixie")
        )
    )
    options = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": apt / "parts",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "APT::Update::Post-Invoke": "",
    }
    base = [
        *APT_GET,
        *(word for key, value in options.items() for word in ("-o", f"{key}={value}")),
    ]
    env = APT_ENV | {key: os.environ[key] for key in ("http_proxy",) if key in os.environ}
    run([*base, "update"], what="read the package lists of sid and trixie", env=env, timeout=900)
    run(
        [*base, "download", "apptainer/sid", "libc6/trixie"],
        what="download Apptainer from Debian sid",
        env=env,
        cwd=apt / "debs",
        timeout=900,
    )
    return {path.name.partition("_")[0]: path for path in (apt / "debs").glob("*.deb")}


def _link(place: str) -> Path:
    return Path("/", place)


def _fetch(url: str, sha256: str, target: Path) -> Path:
    """Download a file that is known by its hash; a mirror that hangs or is cut off is asked again."""
    for attempt in range(4):
        try:
            time.sleep(3 * attempt)
            with urllib.request.urlopen(url, timeout=60) as answer, target.open("wb") as file:
                shutil.copyfileobj(answer, file)
            found = hashlib.sha256(target.read_bytes()).hexdigest()
            if found == sha256:
                return target
            problem = f"its SHA-256 is {found}, not {sha256}"
        except (OSError, HTTPException) as error:
            problem = str(error)
    raise LabError(f"cannot download {url}: {problem}")


def _glibc(prefix: Path) -> Path:
    merged = prefix / "glibc" / LIBRARY  # merged-/usr packages and older ones differ
    return merged if merged.is_dir() else prefix / "glibc/lib/x86_64-linux-gnu"


def _bind(glibc: Path, binaries: Sequence[Path]) -> None:
    """Bind programs to the C library in that folder."""
    for binary in binaries:
        run(
            ["patchelf", "--set-interpreter", glibc / "ld-linux-x86-64.so.2"]
            + ["--set-rpath", f"{glibc}:/{LIBRARY}", binary],
            what=f"fit {binary} to its C library",
        )


def _relocate(prefix: Path) -> None:
    """Bind Apptainer to the C library beside it, and let it find its files where they now are."""
    programs = [prefix / "usr/bin/apptainer", prefix / LIBRARY / "apptainer/bin/starter"]
    _bind(_glibc(prefix), programs)
    for folder in ("etc", "var"):
        (prefix / folder).rename(prefix / "usr" / folder)
        (prefix / "usr/lib" / folder).symlink_to(Path("..") / folder)
