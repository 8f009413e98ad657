"""`hf://ORGANISATION/NAME[@REVISION]` and `hf://datasets/…`: found on this machine, never fetched.

It searches plain folders below the site's folders of models, then the Hugging Face cache with its layout
`models--ORGANISATION--NAME/snapshots/COMMIT` and the commits of branches and tags in `refs/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.errors import Problem, UserError

COMMIT = re.compile(r"[0-9a-f]{40}")
"""A revision that never changes; any other revision is a branch or a tag, which may change."""

WEIGHTS = ("*.safetensors", "*.gguf", "*model*.bin")
"""Patterns of files that are each a whole model, unless the name says that it is one of several shards."""

_SHARD = re.compile(r"-\d+-of-\d+\.")

_NAME = re.compile(r"(datasets/)?(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(\w[\w./-]*))?")


def repository(url: str) -> tuple[str, str, str | None]:
    """`models` or `datasets`, the name, and the revision, if one is given.

    Raises:
        UserError: the URL names no repository.
    """
    found = _NAME.fullmatch(url.removeprefix("hf://").strip("/"))
    if found is None or found[2] == "datasets":
        form = "write hf://ORGANISATION/NAME or hf://datasets/ORGANISATION/NAME, with or without @REVISION"
        raise UserError(Problem("names no repository of the hub", url, remedy=form))
    return "datasets" if found[1] else "models", found[2], found[3]


def find_in_hub(url: str, folders: Sequence[str] = ()) -> Path:
    """The folder of a model or dataset.

    Args:
        url: `hf://…[@REVISION]`; without a revision, and for a branch or tag, `refs/` of the cache gives the
            commit.
        folders: folders with plain copies, as ORGANISATION/NAME.

    Raises:
        UserError: the repository is not on this machine, or not whole.
    """
    kind, name, revision = repository(url)
    for folder in folders:
        plain = Path(folder) / (name if kind == "models" else f"datasets/{name}")
        if plain.is_dir():
            return plain
    cache = hub_path("HF_HUB_CACHE", "hub") / f"{kind}--{name.replace('/', '--')}"
    ref = cache / "refs" / (revision or "main")
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    snapshot = cache / "snapshots" / (commit or "none")
    what, or_else = f"{kind[:-1]} {url} is not on this machine", ""
    if snapshot.is_dir():
        if not (lacking := next(_lacking(snapshot, cache), None)):
            return snapshot
        what = f"{snapshot} is incomplete after an interrupted download: see {lacking}"
        if lacking.suffix == ".incomplete":
            or_else = f"; or remove {lacking}, if no download of it is running"
    options = " --repo-type dataset" if kind == "datasets" else ""
    options += f" --revision {revision}" if revision else ""
    raise UserError(
        Problem(
            what,
            remedy=f"run `hf download {name}{options}` where there is network, or put a copy below a folder "
            f"of `models` in the site profile{or_else}",
        )
    )


def _lacking(snapshot: Path, cache: Path) -> Iterator[Path]:
    """Yield files that show a broken download of a snapshot: a snapshot is filled file by file.

    An index may be there without any shard, because the weights have another form: it is ignored then.
    """
    for path in snapshot.rglob("*"):
        if not path.exists():  # a link to a missing file
            yield path
    indexed = [*_indexed(snapshot)]
    missing = [[shard for shard in shards if not shard.exists()] for shards in indexed]
    weights = any(not _SHARD.search(path.name) for name in WEIGHTS for path in snapshot.glob(name))
    started = [some for shards, some in zip(indexed, missing, strict=True) if some != shards]
    for some in started or ([] if weights else missing):
        yield from some
    whole = [] in started or (weights and not indexed)
    if not whole:  # no index lists the required files
        for path in (cache / "blobs").glob("*.incomplete"):  # of BLOB[.PROCESS].incomplete
            if not path.with_name(path.name.partition(".")[0]).exists():
                yield path


def _indexed(snapshot: Path) -> Iterator[list[Path]]:
    """Yield the shards of each index."""
    for index in snapshot.glob("*.index.json"):
        try:
            shards = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
            yield [snapshot / shard for shard in shards]
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            continue  # the loader will report it


def hub_path(variable: str, name: str) -> Path:
    """A path of the hub's own tools: the value of a variable, or a name below their home folder."""
    environ = os.environ
    home = environ.get("HF_HOME") or f"{environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(os.path.expandvars(environ.get(variable) or f"{home}/{name}")).expanduser()
