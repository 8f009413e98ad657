"""Several answers out of one `generate` call of transformers, each token handed out as it is drawn.

`Row` is one request in it, `Batch` the two places where `generate` lets others have a say: before a token is
chosen, and after. Ends, limits, stop texts and cancellation are per row; the call ends with its last row.
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
    """What one token adds to an answer."""

    text: str
    """Often, not always, the token's own: only whole characters, nothing of a stop text."""
    tokens: int
    """Of the answer so far."""
    reason: str
    """Why it has ended, stop or length; empty: it goes on."""


Event = Piece | ApiError


@dataclass(eq=False)
class Job:
    """A request, and whoever waits for its answer."""

    ask: ChatRequest
    say: Callable[[Event], None]
    """Gets each event, the last one an error or a piece with a reason."""
    cancelled: bool = False
    """Nobody waits any more."""
    prompt_tokens: int = 0
    """Known before the first event."""


HandOver = Callable[[list[tuple[Job, Event]]], None]
"""Gets what one step brought, for all rows at once."""


@dataclass(eq=False)
class Row:
    """One request in a batch: what goes into the model, and where its answer stands."""

    job: Job
    tensors: Mapping[str, Any]
    """Arguments of `generate`, of this request alone."""
    kind: Hashable
    """Rows of one kind can be stacked."""
    tokens: int
    """Length of the prompt."""
    limit: int
    """Most tokens of the answer."""
    ends: frozenset[int]
    """Tokens that end the answer; their text is no part of it."""
    chooser: Chooser
    detokeniser: Detokeniser
    over: bool = False
    """Nothing more will be said."""
    drawn: list[int] = field(default_factory=list)
    """Tokens of the answer."""
    step: int = 0
    """How many of them came in the present call of `generate`."""

    @property
    def cancelled(self) -> bool:
        """Nobody waits any more."""
        return self.job.cancelled

    def choose(self, scores: Any) -> None:
        """Change the scores of the next token in place.

        A row that is generated once more, after its batch has failed, repeats what it has said.
        """
        if self.step < len(self.drawn):
            token = self.drawn[self.step]
            scores.fill_(-torch.inf)
            scores[token] = 0.0
        elif not self.over:
            self.chooser(scores)

    def take(self, token: int) -> Piece | None:
        """The token that was drawn, as a piece of the answer; None: it has been said before."""
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
    """The hooks of one `generate` call: itself a logits processor, its `take` a stopping criterion."""

    def __init__(self, rows: Sequence[Row], hand_over: HandOver) -> None:
        self._rows, self._hand_over = rows, hand_over
        for row in rows:
            row.step = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Before a token is chosen; scores are [rows, vocabulary]."""
        for row, of_row in zip(self._rows, scores, strict=True):
            row.choose(of_row)
        return scores

    def take(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """After it: hand the tokens out. Returns which rows are over, bool [rows]."""
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
