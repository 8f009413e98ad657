"""Copies of the hub on this machine: which commit of it, and whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.data.hub import find_in_hub, hub_path, repository
from hpcbench.errors import UserError

OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of which two commits are here, as the hub's own tools lay them out."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    found = tmp_path / "models--org--name"
    for commit in (OLD, NEW):
        snapshot = found / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (found / "blobs").mkdir(exist_ok=True)
        (found / "blobs" / f"config-{commit}").write_text("{}")
        (snapshot / "config.json").symlink_to(f"../../blobs/config-{commit}")
    for ref, commit in (("main", NEW), ("v1", OLD), ("refs/pr/1", OLD)):
        (found / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (found / "refs" / ref).write_text(commit)
    return found


@pytest.mark.parametrize(
    ("revision", "commit"),
    [("", NEW), ("@main", NEW), ("@v1", OLD), ("@refs/pr/1", OLD), (f"@{OLD}", OLD)],
)
def test_a_revision_is_found_by_commit_tag_or_branch(
    cache: Path, revision: str, commit: str
) -> None:
    assert find_in_hub(f"hf://org/name{revision}") == cache / "snapshots" / commit


def test_a_plain_copy_is_found_whatever_the_revision(cache: Path, tmp_path: Path) -> None:
    plain = tmp_path / "models/org/name"
    plain.mkdir(parents=True)
    assert find_in_hub(f"hf://org/name@{OLD}", [str(tmp_path / "models")]) == plain


@pytest.mark.parametrize(
    ("environ", "cache", "token"),
    [
        ({}, "HOME/.cache/huggingface/hub", "HOME/.cache/huggingface/token"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub", "/x/huggingface/token"),
        ({"XDG_CACHE_HOME": "/x", "HF_HOME": "~/hf"}, "HOME/hf/hub", "HOME/hf/token"),
        ({"HF_HOME": "$SCRATCH/hf", "SCRATCH": "/s"}, "/s/hf/hub", "/s/hf/token"),
        ({"HF_HUB_CACHE": "~/c", "HF_TOKEN_PATH": "$SCRATCH/t", "SCRATCH": "/s"}, "HOME/c", "/s/t"),
    ],
)
def test_the_hubs_own_files_are_where_its_tools_keep_them(
    environ: dict[str, str], cache: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **environ}.items():
        monkeypatch.setenv(name, value)
    found = hub_path("HF_HUB_CACHE", "hub"), hub_path("HF_TOKEN_PATH", "token")
    assert found == tuple(Path(one.replace("HOME", str(tmp_path))) for one in (cache, token))


def test_a_model_is_found_below_the_cache_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    snapshot = tmp_path / "huggingface/hub/models--org--name/snapshots" / OLD
    snapshot.mkdir(parents=True)
    assert find_in_hub(f"hf://org/name@{OLD}") == snapshot


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("hf://org/name@v2", "`hf download org/name --revision v2`"),
        ("hf://org/other", "`hf download org/other`"),
        ("hf://datasets/org/d@v2", "`hf download org/d --repo-type dataset --revision v2`"),
    ],
)
def test_what_is_not_here_is_reported_with_the_command_that_brings_it(
    cache: Path, url: str, remedy: str
) -> None:
    with pytest.raises(UserError, match="is not on this machine") as reported:
        find_in_hub(url)
    assert remedy in str(reported.value)


def test_a_download_that_broke_off_is_not_taken_for_whole(cache: Path) -> None:
    snapshot = cache / "snapshots" / NEW
    started = cache / "blobs" / "1234.incomplete"
    started.touch()
    with pytest.raises(UserError, match=f"{NEW} is incomplete.*1234.incomplete"):
        find_in_hub("hf://org/name")
    shards = {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (snapshot / "model-1.safetensors").touch()
    with pytest.raises(UserError, match="is incomplete.*model-2.safetensors"):
        find_in_hub("hf://org/name")
    (snapshot / "model-2.safetensors").touch()
    assert find_in_hub("hf://org/name") == snapshot, "another commit is on its way"
    (cache / "blobs" / f"config-{NEW}").unlink()
    with pytest.raises(UserError, match=r"is incomplete.*config.json"):
        find_in_hub("hf://org/name")


def write_index(snapshot: Path, name: str, *shards: str) -> None:
    reported = {"weight_map": {f"{shard}.weight": shard for shard in shards}}
    (snapshot / f"{name}.index.json").write_text(json.dumps(reported))


def test_an_index_whose_shards_were_left_out_says_nothing_beside_whole_weights(cache: Path) -> None:
    """`hf download --exclude "*.bin"` brings `pytorch_model.bin.index.json`, too."""
    snapshot = cache / "snapshots" / NEW
    write_index(snapshot, "pytorch_model.bin", "pytorch_model-00001-of-00001.bin")
    write_index(snapshot, "model.safetensors", "model-00001-of-00002.safetensors", "b.safetensors")
    (snapshot / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(UserError, match=r"is incomplete.*b\.safetensors"):
        find_in_hub("hf://org/name")
    (snapshot / "b.safetensors").touch()
    assert find_in_hub("hf://org/name") == snapshot
    (snapshot / "model.safetensors.index.json").unlink()
    (snapshot / "b.safetensors").unlink()
    with pytest.raises(UserError, match=r"is incomplete.*pytorch_model-00001"):
        find_in_hub("hf://org/name")
    (snapshot / "consolidated.safetensors").touch()
    assert find_in_hub("hf://org/name") == snapshot
    (cache / "blobs" / "1234.incomplete").touch()
    with pytest.raises(UserError, match=r"is incomplete.*1234.incomplete"):
        find_in_hub("hf://org/name")


@pytest.mark.parametrize("weights", ["model.safetensors", "q4.gguf", "pytorch_model.bin"])
def test_what_another_download_left_refuses_no_model_whose_weights_lie_there(
    cache: Path, weights: str
) -> None:
    snapshot = cache / "snapshots" / NEW
    started = cache / "blobs" / "1234.5678.incomplete"
    started.touch()
    (snapshot / "training_args.bin").touch()
    (snapshot / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(UserError, match=rf"; or remove {started}, if no download of it is running"):
        find_in_hub("hf://org/name")
    (snapshot / weights).touch()
    assert find_in_hub("hf://org/name") == snapshot


def test_what_is_left_of_a_file_that_came_later_refuses_nothing(cache: Path) -> None:
    (cache / "blobs" / "1234.5678.incomplete").touch()
    (cache / "blobs" / "1234").touch()
    assert find_in_hub("hf://org/name") == cache / "snapshots" / NEW


@pytest.mark.parametrize(
    "url", ["hf://", "hf://datasets/", "hf://a/b/c.bin", "hf://../..", "hf://a b/c"]
)
def test_what_names_no_repository_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="names no repository of the hub"):
        find_in_hub(url)


def test_a_repository_is_read_from_its_url() -> None:
    assert repository("hf://gpt2") == ("models", "gpt2", None)
    assert repository("hf://org/na.me-2@v1.0/x/") == ("models", "org/na.me-2", "v1.0/x")
    assert repository(f"hf://datasets/o/n@{OLD}") == ("datasets", "o/n", OLD)
