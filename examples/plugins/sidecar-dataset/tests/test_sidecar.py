from pathlib import Path

from hpcbench_example_sidecar import pairs


def test_pages_come_with_their_texts_and_sorted(tmp_path: Path) -> None:
    for name in ("b.png", "b.txt", "a.JPG", "a.txt", "alone.png"):
        (tmp_path / name).touch()
    assert [(image.name, text.name) for image, text in pairs(tmp_path)] == [
        ("a.JPG", "a.txt"),
        ("b.png", "b.txt"),
    ]
