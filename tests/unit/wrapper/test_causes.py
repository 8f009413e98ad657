"""Causes are read from what programs print when they die; the lines here are theirs.

`ran`: seen here, transformers 5.19 and torch 2.13 on a CPU. `read`: as the source of that version has it, its
numbers filled in: vLLM 0.33.0, SGLang 0.5.23, torch 2.13. The others are lines of CUDA, NCCL, Python, jinja2
and Linux as they are widely reported; none of those was seen here.
"""

from __future__ import annotations

import pytest

from hpcbench.wrapper.exit_causes import REMEDIES, classify, first_error, telling

VLLM = "(EngineCore pid=41) ERROR 11-20 10:00:00 [core.py:1584] "
PARENT = (
    "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {}"
)

SAMPLES = [
    (
        "network",  # seen: our relay to an endpoint whose name is unknown
        "the endpoint cannot be used: https://api.example.org/v1/models cannot be reached: its name is not "
        "known here (Cannot connect to host api.example.org:443 ssl:default [Temporary failure in name "
        "resolution])",
    ),
    # GPU memory
    (
        "gpu_out_of_memory",  # read: torch
        f"{VLLM}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
        "capacity of 79.15 GiB of which 12.31 GiB is free.",
    ),
    (
        "gpu_out_of_memory",  # read: vLLM v1/worker/utils.py
        f"{VLLM}ValueError: Free memory on device cuda:0 (3.12/79.15 GiB) on startup is less than desired "
        "GPU memory utilization (0.92, 72.82 GiB). Decrease GPU memory utilization or reduce GPU memory "
        "used by other processes.",
    ),
    (
        "gpu_out_of_memory",  # read: vLLM v1/core/kv_cache_planning.py
        f"{VLLM}ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine (this flag also controls CPU "
        "memory reservation on the CPU backend, despite its name).",
    ),
    (
        "gpu_out_of_memory",  # read: SGLang pool_configurator.py
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        "mem_fraction_static=0.85",
    ),
    # host memory
    (
        "out_of_memory",  # read: torch
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 412316860416 bytes. Error code 12 (Cannot allocate memory)",
    ),
    ("out_of_memory", "MemoryError: bad allocation"),
    ("out_of_memory", "terminate called after throwing an instance of 'std::bad_alloc'"),
    (
        "out_of_memory",  # read: vLLM v1/executor/multiproc_executor.py
        "(EngineCore pid=41) ERROR 11-20 10:00:00 [multiproc_executor.py:381] Worker proc VllmWorker-1 died "
        "unexpectedly (exit code: -9), shutting down executor.",
    ),
    ("out_of_memory", PARENT.format("{'EngineCore_DP0': -9}")),  # read: vLLM v1/engine/utils.py
    (
        "out_of_memory",
        "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory.",
    ),
    # CUDA
    ("cuda_error",
     f"{VLLM}torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("cuda_error",
     "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`"),
    ("cuda_error",
     "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:77, unhandled system error"),
    ("cuda_error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    (
        "driver_too_old",  # read: torch
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your "
        "GPU driver",
    ),
    ("driver_too_old",
     "Error 803: system has unsupported display driver / cuda driver combination"),
    ("driver_too_old",
     "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
    ("no_gpu", "RuntimeError: No CUDA GPUs are available"),
    ("no_gpu",
     "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
    ("no_gpu", "AssertionError: Torch not compiled with CUDA enabled"),  # read: torch/cuda/__init__
    (
        "no_gpu",  # read: vLLM config/device.py
        "RuntimeError: Failed to infer device type, please set the environment variable "
        "`VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue.",
    ),
    ("unsupported_hardware",
     "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("unsupported_hardware",
     "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0."),
    # weights and configuration
    (
        "missing_weights",  # ran
        "OSError: Error no file named model.safetensors, or pytorch_model.bin, found in directory /weights.",
    ),
    ("missing_weights", "FileNotFoundError: there is no model folder /weights"),  # ran
    (
        "missing_weights",  # ran: a file cut short
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete "
        "metadata, file not fully covered",
    ),
    (
        "missing_weights",  # read: vLLM default_loader.py, SGLang loader.py
        f"{VLLM}RuntimeError: Cannot find any model weights with `/weights`",
    ),
    (
        "missing_weights",  # read: vLLM default_loader.py
        f"{VLLM}ValueError: Following weights were not initialized from checkpoint: "
        "{'visual.patch_embed.proj.weight'}",
    ),
    (
        "unsupported_architecture",  # ran
        "ValueError: The checkpoint you are trying to load has model type `qwen9_vl` but Transformers does "
        "not recognize this architecture. This could be because of an issue with the checkpoint, or because "
        "your version of Transformers is out of date.",
    ),
    (
        "unsupported_architecture",  # ran
        "ValueError: Unrecognized configuration class <class 'transformers.models.gpt2.configuration_gpt2."
        "GPT2Config'> for this kind of AutoModel: AutoModelForImageTextToText.",
    ),
    (
        "unsupported_architecture",  # read: vLLM model_executor/models/registry.py, SGLang models/registry.py
        "ValueError: Model architectures ['NewVLForConditionalGeneration'] are not supported for now. "
        "Supported architectures: dict_keys(['AquilaModel'])",
    ),
    (
        "unsupported_architecture",  # read: vLLM
        "ValueError: Model architecture MotifForCausalLM was supported in vLLM until v0.10.2, and is not "
        "supported anymore.",
    ),
    (
        "bad_config",  # ran
        "OSError: It looks like the config file at '/weights/config.json' is not a valid JSON file.",
    ),
    (
        "bad_config",  # ran: a config.json of other sizes than the weights
        "RuntimeError: You set `ignore_mismatched_sizes` to `False`, thus raising an error. For details look "
        "at the above report!",
    ),
    (
        "bad_config",  # read: transformers configuration_auto.py
        "ValueError: Unrecognized model in /weights. Should have a `model_type` key in its config.json.",
    ),
    ("bad_config",
     "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"),
    (
        "bad_option",  # ran
        "ValueError: The repository /weights contains custom code which must be executed to correctly load "
        "the model. You can inspect the repository content at /weights .",
    ),
    (
        "bad_option",
        "RuntimeError: Failed to load the model config. If the model is a custom model not yet available in "
        "the HuggingFace transformers library, consider setting `trust_remote_code=True` in LLM or using the "
        "`--trust-remote-code` flag in the CLI.",  # read: vLLM transformers_utils/config.py
    ),
    ("bad_option", "api_server.py: error: unrecognized arguments: --no-such-flag"),
    ("bad_option", "api_server.py: error: argument --max-num-seqs: invalid int value: 'many'"),
    ("bad_option",
     "TypeError: Qwen2VLForConditionalGeneration.__init__() got an unexpected keyword argument 'x'"),
    ("bad_option", f"{VLLM}AssertionError: 3 is not divisible by 2"),  # ran: tensor over two nodes
    (
        "bad_option",  # read: vLLM config/model.py
        "  Value error, Total number of attention heads (9) must be divisible by tensor parallel size (2).",
    ),
    (
        "bad_chat_template",
        "jinja2.exceptions.TemplateSyntaxError: Unexpected end of template. Jinja was looking for the "
        "following tags: 'endfor' or 'else'.",
    ),
    (
        "bad_chat_template",  # read: vLLM renderers/chat_utils/chat_template.py
        "vllm.exceptions.VLLMValidationError: The supplied chat template (chat.jinja) looks like a file "
        "path, but it failed to be opened. Tried: chat.jinja and /x/chat.jinja.",
    ),
    (
        "bad_chat_template",  # read: SGLang parser/template_manager.py
        "RuntimeError: Chat template chat.jinja is not a built-in template name or a valid chat template "
        "file path.",
    ),
    (
        "bad_chat_template",  # read: vLLM renderers/hf.py
        "vllm.exceptions.ChatTemplateResolutionError: As of transformers v4.44, default chat template is no "
        "longer allowed, so you must provide a chat template if the tokenizer does not define one.",
    ),
    (
        "missing_package",  # ran
        "ImportError: This modeling file requires the following packages that were not found in your "
        "environment: no_such_package. Run `pip install no_such_package`",
    ),
    (
        "missing_package",  # ran
        "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: "
        "the package for FlashAttention2 doesn't seem to be installed.",
    ),
    ("missing_package", "ModuleNotFoundError: No module named 'vllm'"),
    ("missing_package",
     "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory"),
    # context
    (
        "context_too_long",  # read: vLLM v1/core/kv_cache_planning.py
        f"{VLLM}ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (9.41 GiB). Based on the "
        "available memory, the estimated maximum model length is 77088.",
    ),
    (
        "context_too_long",  # read: vLLM config/model.py
        "  Value error, User-specified max_model_len (65536) is greater than the derived max_model_len "
        "(max_position_embeddings=32768 or model_max_length=None in model's config.json).",
    ),
    (
        "context_too_long",  # read: SGLang configs/model_config.py
        "ValueError: Warning: User-specified context_length (65536) is greater than the derived "
        "context_length (32768). This may lead to incorrect model outputs or CUDA errors.",
    ),
    # the machine
    ("disk_full", "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'"),
    ("disk_full", "OSError: [Errno 122] Disk quota exceeded"),
    ("socket", "OSError: [Errno 98] Address already in use"),
    ("socket", "OSError: AF_UNIX path too long"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "line"), SAMPLES)
def test_a_line_tells_its_cause(cause: str, line: str) -> None:
    noise = [
        "INFO 11-20 10:00:00 [utils.py:253] non-default args: {'chat_template': None}",
        "WARNING 11-20 10:00:01 [x.py:1] ImportError: No CUDA GPUs are available",
        "/x.py:3: UserWarning: CUDA error: look at No space left on device",
        "Traceback (most recent call last):",
    ]
    found = classify([*noise, line, "  File core.py, line 9", PARENT.format("{}")], exit_code=1)
    assert found is not None
    assert found.name == cause
    assert found.remedy
    assert found.line is not None
    assert found.line in line


def test_what_other_errors_follow_from_is_the_cause() -> None:
    lines = [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:77",
        "ModuleNotFoundError: No module named 'colorama'",
        PARENT.format("{'EngineCore_DP0': 1}"),
    ]
    found = classify(lines, exit_code=1)
    assert found is not None
    assert (found.name, found.line) == ("gpu_out_of_memory", lines[0])


def test_the_first_error_of_a_rank_is_one_that_no_other_ranks_end_explains() -> None:
    lines = [
        "WARNING 11-29 20:10:00 [x.py:1] ImportError: no module",
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711",
        "(Worker_PP1 pid=7) ERROR 11-29 20:10:01 [multiproc_executor.py:1063] AssertionError: no place",
        "KeyError: 'later'",
    ]
    assert first_error(lines) == "AssertionError: no place"
    assert first_error(lines[:2]) is None


def test_an_assertion_without_a_message_is_said_by_its_line() -> None:
    logged = "(Worker_PP1 pid=7) ERROR 11-29 20:10:01 [multiproc_executor.py:1063] "
    lines = [
        "Traceback (most recent call last):",
        '  File "gpu_model_runner.py", line 2100, in sync_and_gather',
        "    assert self.intermediate_tensors is not None",
        "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "AssertionError",
    ]
    said = "AssertionError: assert self.intermediate_tensors is not None"
    assert first_error([logged + line for line in lines]) == said
    assert first_error(lines) == said


@pytest.mark.parametrize(
    ("exit_code", "signal", "cause"),
    [
        (None, "SIGKILL", "out_of_memory"),
        (137, None, "out_of_memory"),
        (None, "SIGBUS", "out_of_memory"),
        (None, "SIGILL", "unsupported_hardware"),
        (None, "SIGSEGV", None),
        (1, None, None),
        (0, None, None),
    ],
)
def test_without_a_telling_line_the_way_it_ended_tells(
    exit_code: int | None, signal: str | None, cause: str | None
) -> None:
    found = classify(["INFO 11-20 10:00:00 [x.py:1] loading", ""], exit_code, signal)
    assert (found.name if found else None) == cause


TEMPLATE = "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant"
# read: SGLang srt/entrypoints/engine.py; the parent then kills itself with SIGKILL
SIGQUIT = "[2026-02-25 16:41:56] Received sigquit from a child process. It usually means the child failed."


@pytest.mark.parametrize(("exit_code", "signal"), [(None, "SIGKILL"), (137, None)])
@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([TEMPLATE], "out_of_memory"),  # of a request, not of the engine
        (["torch.OutOfMemoryError: CUDA out of memory.", TEMPLATE], "gpu_out_of_memory"),
        ([TEMPLATE, "OSError: [Errno 28] No space left on device"], "disk_full"),
        (["RuntimeError: No CUDA GPUs are available", SIGQUIT], "no_gpu"),
        (["RuntimeError: CUDA error: an illegal memory access", SIGQUIT], "cuda_error"),
        (["NameError: name 'x' is not defined", SIGQUIT], None),
    ],
)
def test_after_sigkill_only_memory_and_disk_tell_but_where_the_engine_killed_itself(
    lines: list[str], cause: str | None, exit_code: int | None, signal: str | None
) -> None:
    found = classify(lines, exit_code, signal)
    assert (found.name if found else None) == cause


def test_the_log_knows_better_than_any_other_signal() -> None:
    found = classify(["RuntimeError: No CUDA GPUs are available"], None, "SIGILL")
    assert found is not None
    assert found.name == "no_gpu"


def test_custom_code_has_a_remedy_of_its_own() -> None:
    found = classify(["ValueError: The repository /w contains custom code which must be executed"])
    assert found is not None
    assert "trust_remote_code" in found.remedy


def test_every_cause_that_can_be_found_has_a_remedy_and_a_sample() -> None:
    without_a_line = {"stalled", "timeout", "unknown"}
    assert {cause for cause, _ in SAMPLES} == set(REMEDIES) - without_a_line


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], None),
        (["loading", "ValueError: no tokenizer"], "ValueError: no tokenizer"),
        (["KeyError: 'a'", "during that", "OSError: last", "bye"], "OSError: last"),
        ([f"{VLLM}ValueError: bad head size", PARENT.format("{}")], "ValueError: bad head size"),
        (  # vLLM's worker, the process that waits for it, and the engine's first process
            [
                f"{VLLM}NotImplementedError: no such layer",
                "Exception: WorkerProc initialization failed due to an exception in a background process. "
                "See stack trace for root cause.",
                PARENT,
            ],
            "NotImplementedError: no such layer",
        ),
        (
            [
                "pydantic_core.ValidationError: 1 validation error for ModelConfig",
                "  Value error, max_model_len is too large",
                "    For further information visit",
            ],
            "pydantic_core.ValidationError: 1 validation error for ModelConfig: "
            "Value error, max_model_len is too large",
        ),
        (["usage: x", "api_server.py: error: unrecognized arguments: --no-x"],
         "api_server.py: error: unrecognized arguments: --no-x"),
    ],
)  # fmt: skip
def test_what_is_shown_is_the_last_exception_or_the_last_line(
    lines: list[str], said: str | None
) -> None:
    assert telling(lines) == said
