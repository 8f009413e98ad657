"""Which prompt a sample gets, and the exact messages that a model receives."""

from hpcbench.prompts.chat_templates import as_text
from hpcbench.prompts.task_prompt import (
    HASH_FORMULA,
    TaskPrompt,
    prompt_hash,
    spec_of,
)
from hpcbench.prompts.templates import TemplatePrompt

__all__ = ["HASH_FORMULA", "TaskPrompt", "TemplatePrompt", "as_text", "prompt_hash", "spec_of"]
