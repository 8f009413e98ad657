"""Classifies an engine's end into stable words, each with a remedy, by exit code, signal and log.

Pure: no function here reads a process or a file. The patterns are messages of vLLM, SGLang, transformers,
PyTorch, CUDA and Python; the tests hold the lines. Log lines below ERROR do not explain an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

REMEDIES = {
    "gpu_out_of_memory": "lower context_length, max_num_seqs or the size of images, or use a smaller dtype "
    "or more GPUs; check with nvidia-smi whether another process holds the GPU's memory",
    "out_of_memory": "request more memory (`resources.memory_gb`); on a CPU also lower the engine's KV cache",
    "cuda_error": "load the model again; if the error returns, exclude that node (Xid lines in its dmesg "
    "confirm a fault of its GPU), or try `enforce_eager: true`",
    "driver_too_old": "use an image built for the CUDA version that nvidia-smi shows on that node",
    "no_gpu": "check that the job requests GPUs, that nvidia-smi lists them on that node, and that "
    "the container has access to them",
    "unsupported_hardware": "use another dtype, or an image built for this processor or GPU",
    "missing_weights": "fetch the weights again (`hpcbench models fetch`), and check the model's `source`",
    "unsupported_architecture": "use an image with a newer version of the engine, or another engine",
    "bad_chat_template": "correct the file that the model's `chat_template` names, or name one there",
    "bad_option": "correct the model's `engine_options`: this version of the engine does not accept them",
    "bad_config": "correct the model's config.json or the options that contradict it",
    "missing_package": "use an image that contains the package, or add it with a definition in `packages/`",
    "context_too_long": "lower the model's context_length, or give the engine more memory for its KV cache",
    "socket": "end the process that uses the address, or set a shorter `scratch` folder in the site profile",
    "disk_full": "free space where the engine writes: /tmp, /dev/shm, its caches, the home folder",
    "stalled": "raise stall_timeout if answers may take so long; otherwise see the log's last lines",
    "network": "check that the node can reach that host; compute nodes often have no network but a proxy: "
    "name it as `https_proxy` in the model's `env`",
    "timeout": "raise load_timeout, or see in the log what the engine was waiting for",
    "unknown": "see the log",
}
"""Cause → the action for the user."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason of an engine's end."""

    name: str
    """A key of `REMEDIES`."""
    remedy: str
    """The action for the user."""
    line: str | None = None
    """The log line that shows the cause."""


_SPLIT = (
    "choose a `tensor` that divides the model's attention heads; if only the image tower's heads cannot be "
    "divided, set `mm_encoder_tp_mode: data` in the engine_options of a vLLM"
)
_CUSTOM_CODE = "review the model's code, then set `trust_remote_code: true` in engine_options"
_SHM = "give the container more shared memory (/dev/shm), unless a memory-mapped file was truncated"

_PATTERNS = tuple(
    (re.compile(pattern), name, remedy)
    for pattern, name, remedy in (
        # root causes first: other errors follow from them
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
            r"AssertionError: \d+ is not divisible by \d+"
            r"|attention heads \(\d+\) must be divisible by tensor parallel size",
            "bad_option",
            _SPLIT,
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
"""Causes that the log may give for a SIGKILL: the engine survived any other error in it."""
_BY_ITSELF = "Received sigquit from a child process"
"""SGLang's last line: when a child of it fails, for any reason, it ends itself with SIGKILL."""

_MILD = re.compile(r"^(?:\([^)]*\)\s*)?(?:\[[^\]]*\]\s*)?(?:DEBUG|INFO|WARNING)\b")
"""Lines below ERROR, in the formats of vLLM and uvicorn."""
_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Fault): \S.*)$")
_BARE = re.compile(r"(?:^|\] )((?:\w+\.)*\w*(?:Error|Exception))$")
LEFT = re.compile(
    r"closed by peer|[Cc]onnection (?:was )?(?:closed|reset|refused|aborted)|[Bb]roken pipe|EOFError"
    r"|[Cc]ancell?ed|[Tt]imed out|Timeout|TCPStore|DistNetworkError|EngineDead|KeyboardInterrupt|SystemExit"
)
"""Errors of a rank that another rank's end explains."""
_ELSEWHERE = (
    "See root cause above",
    "See stack trace (above)",
    "See stack trace above",
    "See stack trace for root cause",
)
"""Lines of vLLM's parent that refer to its child."""


def classify(
    lines: Iterable[str], exit_code: int | None = None, signal: str | None = None
) -> Cause | None:
    """The cause, if it is known.

    Args:
        lines: the log's last lines; for an engine that served only recent ones, because older lines hold
            errors of single requests.
        exit_code: the engine's exit code, if it ended by itself.
        signal: name of the signal that ended it, e.g. `SIGKILL`.
    """
    lines = list(lines)
    errors = [line for line in lines if not _mild(line)]
    # 137: a shell's or container's code for a killed child.
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

    Includes the next line if it is indented: pydantic, for one, has the reason only there.
    """
    for number in reversed(range(len(lines))):
        found = _ERROR.search(lines[number])
        if found and not any(phrase in lines[number] for phrase in _ELSEWHERE):
            more = [line.strip() for line in lines[number + 1 : number + 2] if line[0].isspace()]
            return ": ".join([found.group(1), *more])[:500]
    return lines[-1].strip()[:500] if lines else None


def first_error(lines: Sequence[str]) -> str | None:
    """The first line that looks like an exception, unless the end of another rank explains it.

    An assertion without a message has the line of the source instead.
    """
    for number, line in enumerate(lines):
        if _mild(line) or LEFT.search(line):
            continue
        if found := _ERROR.search(line):
            return found.group(1)[:500]
        if found := _BARE.search(line):
            before = (one.rpartition("] ")[2].strip() for one in reversed(lines[:number]))
            source = next((one for one in before if one.strip("^~ ")), "")
            return f"{found.group(1)}: {source}"[:500]
    return None


def _mild(line: str) -> bool:
    """Whether a line only warns."""
    return bool(_MILD.search(line)) or ("Warning: " in line and not _ERROR.search(line))


def _shown(line: str) -> str:
    """A line without the logger's prefix before an exception."""
    found = _ERROR.search(line)
    return (found.group(1) if found else line.strip())[:500]
