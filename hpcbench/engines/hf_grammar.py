"""Answers that follow a JSON schema, by llguidance: imported at the first request with a schema.

Grammars are built as in vLLM's own llguidance backend, so that engines agree on the meaning of a schema, with
one exception: the length of white space is limited, because weak models otherwise write only white space up
to the token limit. (vLLM has `disable_any_whitespace` for them, which forbids all of it.)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from hpcbench.engines.chat import ApiError

_WHITE_SPACE = r"[\x20\x0A\x0D\x09]{1,32}"
"""White space between the parts of an answer: more than any indentation."""


class Grammars:
    """Builds grammars for one tokenizer; for one thread."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Collection[int]) -> None:
        self._tokenizer, self._vocabulary, self._ends = tokenizer, vocabulary, ends
        self._tokens: Any = None  # the tokenizer in llguidance's form

    def follow(self, schema: Mapping[str, Any]) -> JsonGrammar:
        """Start an answer with that schema.

        Raises:
            ApiError: llguidance is missing, or does not support this schema.
        """
        try:
            import llguidance
            from llguidance.hf import from_tokenizer
        except ImportError:
            text = "response_format needs the package llguidance, which this engine does not have"
            raise ApiError(400, text, "unsupported") from None
        if self._tokens is None:  # about a second for a large vocabulary
            size = max(self._vocabulary, len(self._tokenizer))
            ends = sorted(self._ends) or None
            self._tokens = from_tokenizer(self._tokenizer, size, ends)
        rules = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), defaults={"whitespace_pattern": _WHITE_SPACE}
        )
        matcher = llguidance.LLMatcher(self._tokens, rules, log_level=0)
        if error := matcher.get_error():
            first = error.strip().splitlines()[0]
            raise ApiError(400, f"response_format: {first}", "invalid_schema")
        return JsonGrammar(matcher)


class JsonGrammar:
    """State of one answer in its grammar."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def mask(self, scores: Any) -> None:
        """Exclude every token that the grammar does not allow next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: len(scores)].astype(bool)
        scores[len(allowed) :] = -torch.inf
        scores[: len(allowed)].masked_fill_(
            torch.from_numpy(~allowed).to(scores.device), -torch.inf
        )

    def drew(self, token: int) -> None:
        """Advance the state by one token.

        Raises:
            ApiError: the grammar has become too complex to follow.
        """
        self._matcher.consume_token(token)
        if error := self._matcher.get_error():
            first = error.strip().splitlines()[0]
            raise ApiError(500, f"response_format: {first}", "generation_failed")

    @property
    def over(self) -> bool:
        """Whether the answer is complete."""
        return bool(self._matcher.is_stopped())
