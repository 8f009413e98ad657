"""Public benchmarks in their publishers' layouts, with a few samples made by us: `layouts/RUN_TASK.yaml`, and
`layouts/unscored/DATASET.yaml` of those that no metric here scores.

Each layout was read at the sources that the dataset's definition names under `read`.

    files: file → rows of a table, an object for JSON, a text, or `!png 1`
    samples: as they are read: references, prompt, scores (answer → value of the run task's first metric),
        and where they matter document, metadata, and the number of images; unscored: references and fields

`!picture 1` is an image as the hub's columns hold it, `!png 1` its bytes, `!base64 1` these as text, and
`!pdf 1` a PDF of one page. `scores` is empty where the metric's image alone has its publisher's program.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from hpcbench.metrics.publishers import ONE_PAGE

FOLDER = Path(__file__).parent / "layouts"
UNSCORED = FOLDER / "unscored"


class _Loader(yaml.SafeLoader):
    """YAML with pictures."""


def _png(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (2, 2), shade).save(file, "PNG")
    return file.getvalue()


def _picture(shade: int) -> Mapping[str, Any]:
    return {"bytes": _png(shade), "path": f"{shade}.png"}


def _text(shade: int) -> str:
    return base64.b64encode(_png(shade)).decode()


def _pdf(pages: int) -> bytes:
    assert pages == 1
    return ONE_PAGE


_MAKERS: Mapping[str, Callable[[int], Any]] = {
    "!png": _png, "!picture": _picture, "!base64": _text, "!pdf": _pdf,
}  # fmt: skip


def _made(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return _MAKERS[node.tag](int(node.value))


for _tag in _MAKERS:
    _Loader.add_constructor(_tag, _made)


def names(layouts: Path = FOLDER) -> list[str]:
    """Run tasks, or unscored datasets, that have a layout."""
    return sorted(path.stem for path in layouts.glob("*.yaml"))


def read(name: str, layouts: Path = FOLDER) -> Mapping[str, Any]:
    """Files and samples of a layout."""
    text = (layouts / f"{name}.yaml").read_text(encoding="utf-8")
    layout: Mapping[str, Any] = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    return layout


def write(name: str, folder: Path, layouts: Path = FOLDER) -> Sequence[Mapping[str, Any]]:
    """Write the files of a layout into a folder; returns the samples that they are to give."""
    layout = read(name, layouts)
    for file, content in layout["files"].items():
        write_file(folder / file, content)
    samples: Sequence[Mapping[str, Any]] = layout["samples"]
    return samples


def write_file(path: Path, content: Any) -> None:
    """Write a file of a layout in the form that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import polars

        polars.DataFrame(content, infer_schema_length=None).write_parquet(path)
    elif path.suffix in (".tsv", ".csv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(content[0]), delimiter="\t,"[path.suffix == ".csv"])
            table.writeheader()
            table.writerows(content)
    elif path.suffix == ".jsonl":
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        path.write_text("".join(lines), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
