"""Answers that follow a JSON schema, by llguidance: imported with the first request that asks for it.

Grammars are made as vLLM's own llguidance backend makes them, so that engines agree on what a schema means,
but for one thing: white space in a row is limited, since weak models else write nothing but that until the
limit of tokens. (vLLM has `disable_any_whitespace` for them, which forbids all of it.)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from hpcbench.engines.chat import ApiError

_WHITE_SPACE = r"[\x20\x0A\x0D\x09]{1,32}"
"""Between the parts of an answer: more than any indentation."""


class Grammars:
    """Makes grammars for one tokenizer; for one thread."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Collection[int]) -> None:
        self._tokenizer, self._vocabulary, self._ends = tokenizer, vocabulary, ends
        self._tokens: Any = None  # the tokenizer as llguidance wants it

    def follow(self, schema: Mapping[str, Any]) -> JsonGrammar:
        """Begin an answer of that schema.

        Raises:
            ApiError: llguidance is not there, or cannot do this schema.
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
    """Where one answer stands in its grammar."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def mask(self, scores: Any) -> None:
        """Rule out every token that cannot come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: len(scores)].astype(bool)
        scores[len(allowed) :] = -torch.inf
        scores[: len(allowed)].masked_fill_(
            torch.from_numpy(~allowed).to(scores.device), -torch.inf
        )

    def drew(self, token: int) -> None:
        """Follow the answer.

        Raises:
            ApiError: the grammar has become too complex to follow.
        """
        self._matcher.consume_token(token)
        if error := self._matcher.get_error():
            first = error.strip().splitlines()[0]
            raise ApiError(500, f"response_format: {first}", "generation_failed")

    @property
    def over(self) -> bool:
        """Nothing more can come."""
        return bool(self._matcher.is_stopped())
