"""Why an engine ended, in one stable word with a remedy: read from its exit code, its signal and its log.

Pure: nothing here looks at a process or a file. The patterns are what vLLM, SGLang, transformers, PyTorch,
CUDA and Python print; the tests hold those lines. Lines of a log below ERROR say nothing about its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

REMEDIES = {
    "gpu_out_of_memory": "lower context_length, max_num_seqs or the size of images, take a smaller dtype or "
    "more GPUs; see with nvidia-smi whether another process holds the GPU's memory",
    "out_of_memory": "ask for more memory (`resources.memory_gb`); on a CPU also lower the engine's KV cache",
    "cuda_error": "load it again; if it comes back, leave that node out (its dmesg shows Xid lines), or try "
    "`enforce_eager: true`",
    "driver_too_old": "take an image built for the CUDA version that nvidia-smi shows on that node",
    "no_gpu": "see that the job asks for GPUs, that nvidia-smi lists them there, and that the container is "
    "started with them",
    "unsupported_hardware": "take another dtype or an image built for this processor or GPU",
    "missing_weights": "fetch the weights again (`hpcbench models fetch`), and check the model's `source`",
    "unsupported_architecture": "take an image with a newer version of the engine, or another engine",
    "bad_chat_template": "mend the file that the model's `chat_template` names, or name one",
    "bad_option": "correct the model's `engine_options`: this version of the engine does not know them so",
    "bad_config": "correct the model's config.json or the options that contradict it",
    "missing_package": "take an image that holds the package, or bring it with a `packages/` document",
    "context_too_long": "lower the model's context_length, or give the engine more memory for its KV cache",
    "socket": "end what holds the address, or take a shorter node-local folder for sockets",
    "disk_full": "make room where the engine writes: /tmp, /dev/shm, caches, its home",
    "stalled": "raise stall_timeout if answers may take so long; else see what the log's last lines wait for",
    "network": "see whether that host can be reached from the node; compute nodes often have no way out "
    "but a proxy, which `https_proxy` in the model's `env` names",
    "timeout": "raise load_timeout, or see in the log what it was waiting for",
    "unknown": "see the log",
}
"""Cause → what to do about it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What ended an engine."""

    name: str
    """A key of `REMEDIES`."""
    remedy: str
    """What to do."""
    line: str | None = None
    """The line of the log that told."""


_CUSTOM_CODE = (
    "read the code that comes with the model; then set `trust_remote_code: true` in engine_options"
)
_SHM = "give the container more shared memory (/dev/shm); or a file it had mapped was cut short"

_PATTERNS = tuple(
    (re.compile(pattern), name, remedy)
    for pattern, name, remedy in (
        # what ends everything else comes first: other errors follow from it
        (r"No space left on device|Disk quota exceeded|disk is full", "disk_full", ""),
        (
            r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"
            r"|forward compatibility was attempted|unsupported display driver / cuda driver"
            r"|unsupported toolchain",
            "driver_too_old",
            "",
        ),
        (
            r"No CUDA GPUs are available|Found no NVIDIA driver|Failed to infer device type"
            r"|no CUDA-capable device|Torch not compiled with CUDA enabled|libcuda\.so\.1: cannot open"
            r"|torch sees no GPU|Invalid device (?:id|ordinal)|CUDA error: invalid device ordinal",
            "no_gpu",
            "",
        ),
        (
            r"no kernel image is available|supported on GPUs with compute capability"
            r"|Illegal instruction|only supported on GPUs with",
            "unsupported_hardware",
            "",
        ),
        (r"Unexpected bus error|Bus error", "out_of_memory", _SHM),
        (
            r"To serve at least one request with the model's max seq len|larger than the available KV cache"
            r"|User-specified max_model_len|User-specified context_length|context_length \(\d+\) is greater",
            "context_too_long",
            "",
        ),
        (
            r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
            r"|Free memory on device .* is less than|No available memory for the cache blocks"
            r"|Not enough memory\. Please try to increase --mem-fraction-static|CUDA_ERROR_OUT_OF_MEMORY",
            "gpu_out_of_memory",
            "",
        ),
        (
            r"DefaultCPUAllocator: can't allocate memory|C10 Out of Memory|\bMemoryError\b|std::bad_alloc"
            r"|Cannot allocate memory|died unexpectedly \(exit code: -9\)|core proc\(s\): \{[^}]*: -9\b"
            r"|oom-kill|Out of memory: Killed process",
            "out_of_memory",
            "",
        ),
        (
            r"CUDA error: |CUDA driver error|\bCUBLAS_STATUS_|\bCUDNN_STATUS_|NCCL (?:error|Error)"
            r"|DistBackendError|uncorrectable ECC|CUDA_ERROR_|device-side assert",
            "cuda_error",
            "",
        ),
        (
            r"Address already in use|address already in use|AF_UNIX path too long",
            "socket",
            "",
        ),
        (r"the endpoint cannot be used: \S+ cannot be reached", "network", ""),
        (
            r"contains custom code which must be executed|trust_remote_code=True",
            "bad_option",
            _CUSTOM_CODE,
        ),
        (
            r"jinja2\.exceptions\.|TemplateSyntaxError|The supplied chat template"
            r"|default chat template is no longer allowed|is not a built-in template name"
            r"|unrecognized format of chat template file|provide a chat template",
            "bad_chat_template",
            "",
        ),
        (
            r"no file named .*found in directory|Cannot find any model weights|there is no model folder"
            r"|weights were not initialized from checkpoint|Error while deserializing header"
            r"|is not a local folder and is not a valid model identifier|Repo id must be in the form"
            r"|LocalEntryNotFoundError|PytorchStreamReader failed|does not appear to have a file named",
            "missing_weights",
            "",
        ),
        (
            r"does not recognize this architecture|architectures? .{0,200}(?:are|is) not supported"
            r"|was supported in vLLM until|Unrecognized configuration class|Cannot find model module"
            r"|has no (?:vLLM|SGLang) implementation",
            "unsupported_architecture",
            "",
        ),
        (
            r"ModuleNotFoundError: |requires the following packages that were not found"
            r"|library but it was not found in your environment|doesn't seem to be installed"
            r"|ImportError: .*(?:pip install|cannot open shared object file)",
            "missing_package",
            "",
        ),
        (
            r"error: (?:unrecognized arguments|argument |the following arguments|ambiguous option)"
            r"|unexpected keyword argument|unknown engine option",
            "bad_option",
            "",
        ),
        (
            r"not a valid JSON file|Should have a `model_type` key|validation errors? for \w+"
            r"|ignore_mismatched_sizes|size mismatch for |Unrecognized model in",
            "bad_config",
            "",
        ),
    )
)

_BY_KERNEL = frozenset({"disk_full", "gpu_out_of_memory", "out_of_memory"})
"""What the log may say of a SIGKILL: any other error it names was survived."""
_BY_ITSELF = "Received sigquit from a child process"
"""SGLang's last words: when a child of it failed, of whatever, it ends itself with SIGKILL."""

_MILD = re.compile(r"^(?:\([^)]*\)\s*)?(?:\[[^\]]*\]\s*)?(?:DEBUG|INFO|WARNING)\b")
"""Lines below ERROR, as vLLM and uvicorn print them."""
_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Fault): \S.*)$")
_ELSEWHERE = ("See root cause above", "See stack trace (above)", "See stack trace above")
"""What vLLM's parent says about its child."""


def classify(
    lines: Iterable[str], exit_code: int | None = None, signal: str | None = None
) -> Cause | None:
    """The cause, if it is one that is known.

    Args:
        lines: the log's last lines; of an engine that served only recent ones, since errors of single
            requests stand among them.
        exit_code: what the engine ended with, if by itself.
        signal: name of the signal that ended it, `SIGKILL`.
    """
    lines = list(lines)
    errors = [line for line in lines if not _mild(line)]
    # 137: a shell or a container says so of its child.
    killed = signal == "SIGKILL" or exit_code == 137
    killed = killed and not any(_BY_ITSELF in line for line in lines)
    for pattern, name, remedy in _PATTERNS:
        if killed and name not in _BY_KERNEL:
            continue
        for line in reversed(errors):
            if pattern.search(line):
                return Cause(name, remedy or REMEDIES[name], _shown(line))
    if killed:
        return Cause("out_of_memory", REMEDIES["out_of_memory"])
    if signal == "SIGBUS":
        return Cause("out_of_memory", _SHM)
    if signal == "SIGILL":
        return Cause("unsupported_hardware", REMEDIES["unsupported_hardware"])
    return None


def telling(lines: Sequence[str]) -> str | None:
    """The last line that looks like an exception; without one, the last line.

    With it the next line where that is indented: pydantic, for one, says only there what is wrong.
    """
    for number in reversed(range(len(lines))):
        found = _ERROR.search(lines[number])
        if found and not any(phrase in lines[number] for phrase in _ELSEWHERE):
            more = [line.strip() for line in lines[number + 1 : number + 2] if line[0].isspace()]
            return ": ".join([found.group(1), *more])[:500]
    return lines[-1].strip()[:500] if lines else None


def _mild(line: str) -> bool:
    """Whether a line only warns."""
    return bool(_MILD.search(line)) or ("Warning: " in line and not _ERROR.search(line))


def _shown(line: str) -> str:
    """A line without what a logger puts before an exception."""
    found = _ERROR.search(line)
    return (found.group(1) if found else line.strip())[:500]
