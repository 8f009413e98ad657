"""Several answers from one `generate` call of transformers, each token returned as soon as it is drawn.

`Row` is one request of the call, `Batch` has the two hooks of `generate`: before a token is chosen, and
after. Ends, limits, stop texts and cancellation are per row; the call ends with its last row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from hpcbench.engines.chat import ApiError, ChatRequest
from hpcbench.engines.detokenise import Detokeniser
from hpcbench.engines.hf_sampling import Chooser


class Piece(NamedTuple):
    """The contribution of one token to an answer."""

    text: str
    """Often, not always, the token's own: only whole characters, never a part of a stop text."""
    tokens: int
    """Tokens of the answer so far."""
    reason: str
    """Reason of the answer's end, stop or length; empty: it continues."""


Event = Piece | ApiError


@dataclass(eq=False)
class Job:
    """A request, and the receiver of its answer."""

    ask: ChatRequest
    say: Callable[[Event], None]
    """Receives each event; the last one is an error or a piece with a reason."""
    cancelled: bool = False
    """The client has left."""
    prompt_tokens: int = 0
    """Set before the first event."""


HandOver = Callable[[list[tuple[Job, Event]]], None]
"""Receives the events of one step, for all rows at once."""


@dataclass(eq=False)
class Row:
    """One request in a batch: the model's input, and the state of its answer."""

    job: Job
    tensors: Mapping[str, Any]
    """Arguments of `generate`, for this request alone."""
    kind: Hashable
    """Rows of equal kind can be stacked."""
    tokens: int
    """Length of the prompt."""
    limit: int
    """Most tokens of the answer."""
    ends: frozenset[int]
    """Tokens that end the answer; the answer excludes their text."""
    chooser: Chooser
    detokeniser: Detokeniser
    over: bool = False
    """The answer is complete."""
    drawn: list[int] = field(default_factory=list)
    """Tokens of the answer."""
    step: int = 0
    """Tokens of the answer in the current call of `generate`."""

    @property
    def cancelled(self) -> bool:
        """Whether the client has left."""
        return self.job.cancelled

    def choose(self, scores: Any) -> None:
        """Change the scores of the next token in place.

        A row that is generated again, after its batch failed, repeats its previous tokens.
        """
        if self.step < len(self.drawn):
            token = self.drawn[self.step]
            scores.fill_(-torch.inf)
            scores[token] = 0.0
        elif not self.over:
            self.chooser(scores)

    def take(self, token: int) -> Piece | None:
        """The drawn token as a piece of the answer; None: a repeated token."""
        self.step += 1
        if self.step <= len(self.drawn):
            return None
        self.drawn.append(token)
        self.chooser.drew(token)
        text, reason = "", ""
        if token in self.ends:
            reason = "stop"
        else:
            text = self.detokeniser.push(token)
            grammar = self.chooser.grammar
            if self.detokeniser.stopped or (grammar is not None and grammar.over):
                reason = "stop"
            elif len(self.drawn) >= self.limit:
                reason = "length"
        if reason:
            self.over = True
            text += self.detokeniser.end()
        return Piece(text, len(self.drawn), reason)


class Batch:
    """The hooks of one `generate` call: the object is a logits processor, its `take` a stopping criterion."""

    def __init__(self, rows: Sequence[Row], hand_over: HandOver) -> None:
        self._rows, self._hand_over = rows, hand_over
        for row in rows:
            row.step = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Hook before a token is chosen; scores are [rows, vocabulary]."""
        for row, of_row in zip(self._rows, scores, strict=True):
            row.choose(of_row)
        return scores

    def take(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """Hook after a token is chosen: hand the tokens out. Returns which rows are over, bool [rows]."""
        events: list[tuple[Job, Event]] = []
        for row, token in zip(self._rows, input_ids[:, -1].tolist(), strict=True):
            row.over = row.over or row.cancelled
            if row.over:
                continue
            try:
                piece = row.take(token)
            except ApiError as error:
                row.over = True
                events.append((row.job, error))
            else:
                if piece is not None:
                    events.append((row.job, piece))
        if events:
            self._hand_over(events)
        over = [row.over for row in self._rows]
        return torch.tensor(over, dtype=torch.bool, device=input_ids.device)
