"""Draws the next token of one answer: each row of a batch has its own settings.

Order and meaning of the settings are vLLM's: grammar, tokens that may not come yet, penalties, temperature,
min_p, top_k, top_p. A row has its own random generator, so an answer with a seed does not depend on the other
rows of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hpcbench.engines.chat import ChatRequest

_NEUTRAL: Mapping[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
DEFAULTS = tuple(_NEUTRAL)
"""Settings whose default is the model's own, if its generation_config.json has them."""


class Grammar(Protocol):
    """Decides which tokens may come next."""

    def mask(self, scores: Any) -> None: ...
    def drew(self, token: int) -> None: ...
    @property
    def over(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """How an answer is sampled; temperature 0 is greedy."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    min_tokens: int
    seed: int | None

    @classmethod
    def of(cls, ask: ChatRequest, defaults: Mapping[str, float]) -> Settings:
        """Values of the request, else of the model, else neutral ones."""
        chosen: dict[str, Any] = {}
        for name, neutral in _NEUTRAL.items():
            asked = getattr(ask, name)
            chosen[name] = defaults.get(name, neutral) if asked is None else asked
        return cls(**chosen, min_tokens=ask.min_tokens or 0, seed=ask.seed)


class Chooser:
    """Gives the drawn token the highest score."""

    def __init__(
        self,
        settings: Settings,
        prompt: Any,
        ends: frozenset[int],
        grammar: Grammar | None = None,
    ) -> None:
        """`prompt`: token ids of the prompt, one dimension; `ends`: tokens that end the answer."""
        self._settings, self._prompt, self._ends = settings, prompt, sorted(ends)
        self.grammar = grammar
        self._drawn = 0
        self._generator: Any = None
        self._seen: Any = None  # bool [vocabulary]: occurs in prompt or answer
        self._counts: Any = None  # float [vocabulary]: occurrences in the answer

    def __call__(self, scores: Any) -> None:
        """Change the scores of the next token, one dimension, in place."""
        settings = self._settings
        if self.grammar is not None:
            self.grammar.mask(scores)
        if self._drawn < settings.min_tokens and self._ends:
            scores[self._ends] = -torch.inf
        self._penalise(scores)
        if settings.temperature > 0:
            token = self._sample(scores / settings.temperature)
            scores.fill_(-torch.inf)
            scores[token] = 0.0

    def drew(self, token: int) -> None:
        """Record a drawn token."""
        self._drawn += 1
        if self.grammar is not None:
            self.grammar.drew(token)
        if self._seen is not None:
            self._seen[token] = True
        if self._counts is not None:
            self._counts[token] += 1

    def _penalise(self, scores: Any) -> None:
        """Penalties: Keskar et al. 2019 (repetition, over prompt and answer); OpenAI's, over the answer."""
        settings = self._settings
        if settings.repetition_penalty != 1.0:
            if self._seen is None:
                self._seen = torch.zeros_like(scores, dtype=torch.bool)
                self._seen[self._prompt.to(scores.device)] = True
            divided = scores / settings.repetition_penalty
            times = scores * settings.repetition_penalty
            less = torch.where(scores > 0, divided, times)
            scores.copy_(torch.where(self._seen, less, scores))
        if settings.presence_penalty or settings.frequency_penalty:
            if self._counts is None:
                self._counts = torch.zeros_like(scores)
            scores -= settings.frequency_penalty * self._counts
            scores -= settings.presence_penalty * (self._counts > 0)

    def _sample(self, scores: Any) -> Any:
        settings = self._settings
        if settings.min_p > 0:
            likely = torch.softmax(scores, -1)
            scores.masked_fill_(likely < settings.min_p * likely.max(), -torch.inf)
        if 0 < settings.top_k < len(scores):
            least = scores.topk(settings.top_k).values[-1]
            scores.masked_fill_(scores < least, -torch.inf)
        if settings.top_p < 1:
            ordered, places = scores.sort(descending=True)
            before = torch.softmax(ordered, -1).cumsum(-1).roll(1)
            before[0] = 0.0  # the most likely token always stays
            scores[places[before >= settings.top_p]] = -torch.inf
        if self._generator is None:
            self._generator = torch.Generator(scores.device)
            if settings.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(settings.seed)
        return torch.multinomial(torch.softmax(scores, -1), 1, generator=self._generator)
