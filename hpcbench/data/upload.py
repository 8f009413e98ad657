"""Results go out: files of a folder to a storage, resumable, with a manifest of what was sent.

What was sent is noted line by line beside the files, with its hash; the next try sends what is missing or
has changed. The manifest, `hpcbench-upload.json`, goes last: where it lies, everything it names lies.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hpcbench.data.progress import Moved, Progress, silent
from hpcbench.data.storage import open_storage
from hpcbench.data.tree import hash_file
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.files import Appender, read_lines

MANIFEST = "hpcbench-upload.json"


def upload(
    folder: Path,
    files: Sequence[Path],
    url: str,
    options: Mapping[str, Any],
    log: Path,
    progress: Progress = silent,
) -> int:
    """Send files; returns how many had to be sent.

    Args:
        folder: what the files' paths are relative to.
        files: what to send.
        url: where to: `s3://…`, `sftp://…`, `file://…`.
        options: of the storage.
        log: file that remembers what was sent.
        progress: told how far it is.

    Raises:
        UserError: there is no such storage.
        EnvironmentFault: it cannot be sent; what was sent stays sent.
    """
    storage = open_storage(url, options)
    sent = {one["path"]: one["sha256"] for one in read_lines(log) if one.get("url") == url}
    wanted = {path.relative_to(folder).as_posix(): path for path in files}
    hashes = {name: hash_file(path) for name, path in wanted.items()}
    waiting = [name for name, digest in hashes.items() if sent.get(name) != digest]
    sizes = {name: path.stat().st_size for name, path in wanted.items()}
    moved = [sum(size for name, size in sizes.items() if name not in waiting)]
    lock = threading.Lock()

    def send(name: str) -> None:
        storage.put(wanted[name], url, name)
        with lock:
            notes.write({"url": url, "path": name, "sha256": hashes[name]})
            moved[0] += sizes[name]
            done = len(wanted) - len(waiting) + 1
            progress(Moved("uploading", moved[0], sum(sizes.values()), done, len(wanted)))

    try:
        with Appender(log) as notes, ThreadPoolExecutor(4) as pool:
            for _ in pool.map(send, waiting):
                pass
        if waiting:
            listed = [
                {"path": name, "size": sizes[name], "sha256": digest}
                for name, digest in sorted(hashes.items())
            ]
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump({"version": 1, "files": listed}, file, indent=1)
                file.flush()
                storage.put(Path(file.name), url, MANIFEST)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot upload to {url}: {error.strerror or error}",
            remedy="`hpcbench upload` goes on where it broke off",
        ) from error
    return len(waiting)
