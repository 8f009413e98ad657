"""Output of programs when images and drivers fail, and the message that users get."""

from __future__ import annotations

import pytest

from hpcbench.environments.failures import OF_MACHINES, OF_REGISTRIES, is_apptainers_own, recognise
from hpcbench.environments.packages import last_words

SAID = {
    "no space left": [
        # Apptainer 1.4.5, in turn with target, TMPDIR and CACHEDIR on a full disk
        "FATAL:   While performing build: while creating SIF: while creating container: write "
        "/small/t.sif: no space left on device",
        "FATAL:   While performing build: packer failed to pack: while unpacking rootfs: while unpacking "
        "layer sha256:05b5: unpack entry: big: unpack to regular file: short write: write "
        "/small/build-temp-2542007765/rootfs/big: no space left on device",
        "FATAL:   While performing build: conveyor failed to get: error writing layer: write "
        "/small/cache/blob/blobs/sha256/05b5364: no space left on device",
    ],
    "your quota is used up": ["FATAL: while unpacking tmpfs: mkdir /x: disk quota exceeded"],
    "the image is for another architecture": [
        "FATAL:   the image's architecture (arm64) could not run on the host's (amd64)",
        "exec /usr/bin/python3: exec format error",
        "FATAL: no image found in image index for architecture arm64, variant v8, OS linux",
    ],
    "user namespaces are disabled on this machine": [
        "ERROR  : Failed to create user namespace: user namespace disabled",
        "ERROR  : Failed to create user namespace: maximum number of user namespaces exceeded, check "
        "/proc/sys/user/max_user_namespaces",
    ],
    "Singularity cannot read the image: Apptainer compressed it with zstd": [
        # SingularityCE 4.1.1
        "FATAL:   While checking image: could not open image /x.sif: while checking system partition "
        "header: error while checking squashfs header: corrupted image: unknown compression algorithm "
        "value 6",
    ],
    "an image is still mounted by a process that was killed": [
        "FATAL: while opening /tmp/rootfs-1: transport endpoint is not connected",
    ],
    "images cannot be mounted: FUSE is missing or not accessible on this machine": [
        "fuse: device not found, try 'modprobe fuse' first",
        # Apptainer 1.4.5 with /dev/fuse closed
        "FATAL:   container creation failed: image driver mount failure: image driver squashfuse_ll "
        "instance exited with error: squashfuse_ll exited: fuse: mount failed: Invalid argument",
    ],
    "the registry does not have this image": [
        "FATAL: reading manifest sha256:ab in docker.io/vllm/vllm-openai: manifest unknown",
        "errors: MANIFEST_UNKNOWN: manifest unknown",
    ],
    "the registry has answered too many requests from here": [
        "toomanyrequests: You have reached your pull rate limit.",
    ],
    "the registry refuses access": ["unauthorized: authentication required"],
    "the package index does not have a package that the recipe locks": [
        "ERROR: No matching distribution found for olmocr==0.4.27",  # pip 23.0.1
    ],
    "a package is not the one that the recipe locks: its hash is another": [
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated",
    ],
    "the GPU's driver is too old for the image, or the image is not built for this GPU": [
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        "CUDA error: no kernel image is available for execution on the device",
    ],
    "the container has no visible GPU": [
        "RuntimeError: Found no NVIDIA driver on your system.",
        "RuntimeError: No CUDA GPUs are available",
    ],
}


@pytest.mark.parametrize(("what", "said"), [(what, one) for what in SAID for one in SAID[what]])
def test_what_people_meet_is_recognised(what: str, said: str) -> None:
    known = recognise(f"INFO:    Starting build...\n{said}\n", building=True)
    assert known is not None
    assert known.what == what
    assert known.remedy


def test_every_known_failure_has_a_text_that_was_said() -> None:
    assert {known.what for known in (*OF_MACHINES, *OF_REGISTRIES)} == SAID.keys()


@pytest.mark.parametrize(
    "said",
    [
        "INFO:    Creating SIF file...",
        "ValueError: the model's space of tokens is left unchanged",
        "WARNING: fuse2fs not found, will not be able to mount EXT3 filesystems",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "huggingface_hub: 401 Unauthorized",
    ],
)
def test_what_an_engine_says_otherwise_is_not_taken_for_one(said: str) -> None:
    assert recognise(said) is None


@pytest.mark.parametrize(
    ("code", "log", "own"),
    [
        (255, "INFO: x\nFATAL:   exec python failed", True),
        (255, "the program's own words", False),
        (255, "FATAL: early\n" + "the program went on\n" * 5, False),
        (1, "FATAL:   of the program", False),
        # SingularityCE 4.1.1 and Apptainer 1.4.5, coloured even in a file
        (1, "\x1b[91mERROR  : No setuid installation found\n\x1b[0m", True),
        (1, "ERROR  : Failed to create user namespace: user namespace disabled", True),
        (1, "ERROR: of the program", False),
        (3, "ERROR  : Failed to create user namespace: user namespace disabled", False),
        (None, "", False),
    ],
)
def test_apptainers_own_failure_is_distinguished_from_the_programs(
    code: int | None, log: str, own: bool
) -> None:
    assert is_apptainers_own(code, log) is own


@pytest.mark.parametrize(
    ("said", "reported"),
    [
        ("INFO:    Mounting\nFATAL:   exec failed\nafterwards\n", "FATAL:   exec failed"),
        # SingularityCE 4.1.1
        (
            "\x1b[91mERROR  : No setuid installation found\n\x1b[0m",
            "ERROR  : No setuid installation found",
        ),
        ("one\ntwo\n", "two"),
        ("", "it printed no message"),
    ],
)
def test_of_what_a_program_says_the_line_that_tells_why_is_shown(said: str, reported: str) -> None:
    assert last_words(said) == reported
