from pathlib import Path

from hpcbench_example_history import append_once


def test_an_experiment_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    assert append_once(path, "a", [{"experiment": "a", "value": 1}])
    assert append_once(path, "b", [{"experiment": "b", "value": 2}])
    assert not append_once(path, "a", [{"experiment": "a", "value": 3}])
    assert len(path.read_text().splitlines()) == 2
