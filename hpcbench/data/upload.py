"""Upload of results: files of a folder to a storage, resumable, with a manifest of the sent files.

A log beside the files has a line for each sent file, with its hash. The next attempt sends new and changed
files. The manifest, `hpcbench-upload.json`, is sent last and logged, too: if the storage has it, the storage
has every file that it names.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.data.progress import Moved, Progress, silent
from hpcbench.data.storage import no_answer, open_storage
from hpcbench.data.transfer import error_text
from hpcbench.errors import NO_NETWORK, EnvironmentFault
from hpcbench.files.atomic import Appender, read_lines
from hpcbench.files.hashing import hash_file
from hpcbench.files.lease import alone
from hpcbench.plugins import Storage

MANIFEST = "hpcbench-upload.json"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Result of an upload."""

    sent: int
    """Number of sent files."""
    left: tuple[str, ...] = ()
    """Files that changed or disappeared meanwhile, one line each: the manifest does not name them."""


@dataclass(frozen=True, slots=True)
class _File:
    """The state of a file before it is sent."""

    path: Path
    size: int
    mtime_ns: int
    sha256: str

    @classmethod
    def read(cls, path: Path) -> _File | None:
        """Read the state of a file; None: it is gone."""
        try:
            stat = path.stat()
            return cls(path, stat.st_size, stat.st_mtime_ns, hash_file(path))
        except FileNotFoundError:
            return None

    def fault(self) -> str | None:
        """How the file has changed since; None: it has not."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return "is gone"
        same = (stat.st_size, stat.st_mtime_ns) == (self.size, self.mtime_ns)
        return None if same else "changed while it was sent; the next upload sends it again"


def upload(
    folder: Path,
    files: Sequence[Path],
    url: str,
    options: Mapping[str, Any],
    log: Path,
    progress: Progress = silent,
    patience: float = 0.0,
) -> Uploaded:
    """Send files.

    Args:
        folder: folder of the relative paths.
        files: the files to send.
        url: destination: `s3://…`, `sftp://…`, `file://…`.
        options: of the storage.
        log: file that remembers the sent files.
        progress: receives the progress.
        patience: seconds to wait while another upload of these files is running.

    Raises:
        UserError: there is no such storage.
        EnvironmentFault: a file cannot be sent, or another upload is running; sent files stay sent.
    """
    storage, lock = open_storage(url, options), log.with_suffix(".lock")
    try:
        with alone(lock, patience) as mine:
            if not mine:
                raise _busy(url, lock)
            wanted = {path.relative_to(folder).as_posix(): path for path in files}
            return _send(storage, wanted, url, log, progress)
    except OSError as error:
        why = no_answer(url, options, error)
        raise EnvironmentFault(
            f"cannot upload to {url}: {why or error_text(error)}",
            remedy=f"{f'{NO_NETWORK}; ' if why else ''}`hpcbench upload` continues where it stopped",
        ) from error


def _busy(url: str, lock: Path) -> EnvironmentFault:
    holder = next(read_lines(lock), {})
    who = f"process {holder.get('pid')} on {holder.get('host')}"
    return EnvironmentFault(
        f"cannot upload to {url}: {who} is uploading these results",
        remedy=f"repeat `hpcbench upload` when that process has ended; if it no longer exists, remove {lock}",
    )


def _send(
    storage: Storage, wanted: Mapping[str, Path], url: str, log: Path, progress: Progress
) -> Uploaded:
    sent = {one["path"]: one["sha256"] for one in read_lines(log) if one.get("url") == url}
    found = {name: _File.read(path) for name, path in wanted.items()}
    here = {name: file for name, file in found.items() if file is not None}
    faults = dict.fromkeys(found.keys() - here.keys(), "is gone")
    waiting = [name for name, file in here.items() if sent.get(name) != file.sha256]
    whole = sum(file.size for file in here.values())
    moved, done = whole - sum(here[name].size for name in waiting), len(here) - len(waiting)
    lock = threading.Lock()

    def send(name: str) -> None:
        nonlocal moved, done
        file = here[name]
        try:
            storage.put(file.path, url, name)
        except OSError:
            if file.fault() != "is gone":
                raise
        fault = file.fault()
        with lock:
            if fault is not None:
                faults[name] = fault
            # If the file changed meanwhile, we do not know the hash of the sent bytes.
            note(name, file.sha256 if fault is None else "")
            moved, done = moved + file.size, done + 1
            progress(Moved("uploading", moved, whole, done, len(here)))

    def note(name: str, digest: str) -> None:
        notes.write({"url": url, "path": name, "sha256": digest})

    with Appender(log) as notes:
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(send, waiting):
                pass
        manifest = _manifest({name: file for name, file in here.items() if name not in faults})
        digest = hashlib.sha256(manifest).hexdigest()
        if sent.get(MANIFEST) != digest:
            with tempfile.NamedTemporaryFile(suffix=".json") as opened:
                opened.write(manifest)
                opened.flush()
                storage.put(Path(opened.name), url, MANIFEST)
            note(MANIFEST, digest)
    left = tuple(f"{name} {fault}" for name, fault in sorted(faults.items()))
    return Uploaded(sum(name not in faults for name in waiting), left)


def _manifest(files: Mapping[str, _File]) -> bytes:
    listed = [
        {"path": name, "size": file.size, "sha256": file.sha256}
        for name, file in sorted(files.items())
    ]
    return json.dumps({"version": 1, "files": listed}, indent=1).encode()
