"""Noto Sans CJK SC under the name that Adobe gives the same design: Source Han Sans SC."""

from pathlib import Path

from fontTools.ttLib import TTCollection

for style in ("Regular", "Bold"):
    fonts = TTCollection(f"/usr/share/fonts/opentype/noto/NotoSansCJK-{style}.ttc").fonts
    font = next(one for one in fonts if one["name"].getDebugName(1).endswith("Sans CJK SC"))
    for record in font["name"].names:
        text = record.toUnicode()
        record.string = text.replace("Noto Sans CJK SC", "Source Han Sans SC").replace(
            "NotoSansCJKsc", "SourceHanSansSC"
        )
    folder = Path("/usr/share/fonts/opentype/source-han")
    folder.mkdir(exist_ok=True)
    font.save(folder / f"SourceHanSansSC-{style}.otf")
