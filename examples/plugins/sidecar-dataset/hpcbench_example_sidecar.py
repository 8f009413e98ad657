"""A folder of pages, `a.png` or `a.jpg`, each with its text beside it, `a.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")


def pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Image and text of every page, sorted; an image without a text is left out."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES)
    return [
        (path, path.with_suffix(".txt")) for path in found if path.with_suffix(".txt").is_file()
    ]


class Sidecar:
    """The iterator for hpcbench; the text is the reference."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        encoding: str = "utf-8-sig"

    def __init__(self, spec: Any) -> None:
        self.folder = spec.folder
        self.encoding = self.Options.model_validate(dict(spec.options)).encoding
        self.pages = [one for one in pairs(spec.folder) if spec.split in (None, one[0].parent.name)]

    def count(self) -> int:
        return len(self.pages)

    def iter(self, start: int, stop: int) -> Iterator[Any]:
        from hpcbench.schema.records import Sample

        for image, text in self.pages[start:stop]:
            name = image.relative_to(self.folder).with_suffix("").as_posix()
            yield Sample(
                id=name,
                images=(image,),
                fields={},
                references=(text.read_text(encoding=self.encoding),),
                document=name,
            )

    def files(self) -> list[Path]:
        return sorted(path for pair in self.pages for path in pair)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Sample that the contract tests read."""
        for name in ("b", "a"):
            (folder / f"{name}.png").write_bytes(b"\x89PNG")
            (folder / f"{name}.txt").write_text(f"Страница {name}", encoding="utf-8")
        return {"folder": folder}
