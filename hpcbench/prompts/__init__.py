"""Which prompt a sample gets, and what a model gets of it, word for word."""

from hpcbench.prompts.chat import as_text
from hpcbench.prompts.task_prompt import (
    HASH_FORMULA,
    TaskPrompt,
    prompt_hash,
    spec_of,
)
from hpcbench.prompts.templates import TemplatePrompt

__all__ = ["HASH_FORMULA", "TaskPrompt", "TemplatePrompt", "as_text", "prompt_hash", "spec_of"]
