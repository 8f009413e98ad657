"""`hf://ORGANISATION/NAME[@REVISION]` and `hf://datasets/…`: found on this machine, never fetched.

Looked for as plain folders below the site's folders of models, then in the Hugging Face cache, laid out as
`models--ORGANISATION--NAME/snapshots/COMMIT` with the commits of branches and tags in `refs/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.errors import Problem, UserError

COMMIT = re.compile(r"[0-9a-f]{40}")
"""A revision that never changes; any other is a branch or a tag, which may."""

_NAME = re.compile(r"(datasets/)?(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(\w[\w./-]*))?")


def repository(url: str) -> tuple[str, str, str | None]:
    """`models` or `datasets`, the name, and the revision, if one is told.

    Raises:
        UserError: it names none.
    """
    found = _NAME.fullmatch(url.removeprefix("hf://").strip("/"))
    if found is None or found[2] == "datasets":
        form = "hf://ORGANISATION/NAME, hf://datasets/ORGANISATION/NAME, either with @REVISION"
        raise UserError(Problem("names no repository of the hub", url, remedy=form))
    return "datasets" if found[1] else "models", found[2], found[3]


def find_in_hub(url: str, folders: Sequence[str] = ()) -> Path:
    """The folder of a model or dataset.

    Args:
        url: `hf://…[@REVISION]`; without a revision, or where that is a branch or tag, what `refs/` of the
            cache says.
        folders: where plain copies are kept, as ORGANISATION/NAME.

    Raises:
        UserError: it is not on this machine, or not whole.
    """
    kind, name, revision = repository(url)
    for folder in folders:
        plain = Path(folder) / (name if kind == "models" else f"datasets/{name}")
        if plain.is_dir():
            return plain
    cache = _cache() / f"{kind}--{name.replace('/', '--')}"
    ref = cache / "refs" / (revision or "main")
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    snapshot = cache / "snapshots" / (commit or "none")
    what = f"{kind[:-1]} {url} is not on this machine"
    if snapshot.is_dir():
        if not (lacking := next(_lacking(snapshot, cache), None)):
            return snapshot
        what = f"{snapshot} is not whole, a download broke off: see {lacking}"
    options = " --repo-type dataset" if kind == "datasets" else ""
    options += f" --revision {revision}" if revision else ""
    raise UserError(
        Problem(
            what,
            remedy=f"`hf download {name}{options}` where there is network, or put it below a folder of the "
            "site profile's `models`",
        )
    )


def _lacking(snapshot: Path, cache: Path) -> Iterator[Path]:
    """What shows that a download of a snapshot broke off: it is filled file by file."""
    for path in snapshot.rglob("*"):
        if not path.exists():  # a link to what is not there
            yield path
    indexes = [*snapshot.glob("*.index.json")]
    for index in indexes:
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            continue  # whoever loads it will say so
        yield from (snapshot / shard for shard in shards if not (snapshot / shard).exists())
    if not indexes:  # nothing tells which files there should be
        yield from (cache / "blobs").glob("*.incomplete")


def _cache() -> Path:
    environ = os.environ
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"])
    home = environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(home) / "hub"
