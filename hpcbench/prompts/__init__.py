"""Which prompt a sample gets, and what a model gets of it, word for word."""

from hpcbench.prompts.asked import TaskPrompt, prompt_hash, spec_of
from hpcbench.prompts.chat import as_text
from hpcbench.prompts.templates import TemplatePrompt

__all__ = ["TaskPrompt", "TemplatePrompt", "as_text", "prompt_hash", "spec_of"]
