"""Which programs a driver of NVIDIA runs, by versions of CUDA."""

from __future__ import annotations

from hpcbench.schema.model import Model

FORWARD = "VLLM_ENABLE_CUDA_COMPATIBILITY"
"""vLLM loads the image's own CUDA driver library (`cuda-compat`) where this is 1."""


def runs(image: str, driver: str) -> bool:
    """Whether a driver runs programs built for a version of CUDA without forward compatibility. Pure.

    NVIDIA's rules: an older CUDA always runs; so does the same major version, with any minor version.

    Args:
        image: CUDA that the programs are built for, `13.0`.
        driver: newest CUDA that the driver supports, `12.4`.
    """
    return int(image.split(".")[0]) <= int(driver.split(".")[0])


def asks_for_forward_compatibility(model: Model) -> bool:
    """Whether a model asks for forward compatibility: vLLM's switch, or the folder on its library path."""
    asked = model.env.get(FORWARD, "").strip().lower() in ("1", "true")
    return asked or "/compat" in model.env.get("LD_LIBRARY_PATH", "")
