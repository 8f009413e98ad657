"""Train the tiny model that looks again, on a CPU, from the demo's model.

    python -m recipes.tiny_agent.train --out examples/agent/model --seconds 2400

The demo's model reads text of the size of small print already. It learns to name letters over image tokens,
to find a label's place, to write the call, and to read a crop. Auxiliary heads, which are left behind at
export, say where to look, as in `recipes.tiny_vlm.train`. Sheets are drawn from seeds that the shipped data
never use.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb

from recipes.tiny_agent.model import CHAT_TEMPLATE, START_FROM, extended_tokenizer, load
from recipes.tiny_agent.packing import KINDS, PLACES, Batch, Stream
from recipes.tiny_agent.pages import LETTERS
from recipes.tiny_vlm.model import COLUMNS, IMAGE_TOKENS, MERGE, ROWS, export
from recipes.tiny_vlm.train import fit, parser_of

LOSS_WEIGHTS = {"box": 1.0, "call": 0.3, "answer": 1.0, "guess": 0.1} | {
    "letter": 0.3,
    "site": 0.3,
    "place0": 0.3,
    "place1": 0.3,
    "look0": 0.3,
    "look1": 0.3,
}


class Trainee(nn.Module):
    """The model with its auxiliary heads."""

    def __init__(self, model: Qwen2VLForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        hidden = model.config.text_config.hidden_size
        self.letter = nn.Linear(hidden, len(LETTERS) + 1)
        self.site = nn.Linear(hidden, 2 * PLACES)
        self.places = nn.ModuleList(
            nn.Sequential(nn.RMSNorm(hidden), nn.Linear(hidden, 2 * PLACES)) for _ in range(2)
        )

    def forward(self, batch: Batch, answers: bool) -> dict[str, Tensor]:
        """Losses by name, and shares of right predictions (`right_*`); `answers`: all, or those on sheets."""
        pixels = batch.pixels if answers else batch.pixels[: batch.letters.numel() * MERGE**2]
        count = len(pixels) // (IMAGE_TOKENS * MERGE**2)
        grid = torch.tensor([[1, ROWS * MERGE, COLUMNS * MERGE]]).expand(count, 3)
        image = self.model.model.visual(pixels, grid_thw=grid).pooler_output
        sheets = image[: batch.letters.numel()]
        letters, letter = batch.letters.flatten(), self.letter(sheets)
        shown = letters < len(LETTERS)
        rare = torch.ones(len(LETTERS) + 1)
        rare[-1] = 0.1  # most of a sheet is blank
        losses = {"letter": F.cross_entropy(letter, letters, rare)}
        report = {"right_letter": (letter.argmax(-1) == letters)[shown].float().mean()}
        losses["site"], report["right_site"] = _place(
            self.site(sheets[shown]), batch.sites.flatten(0, 1)[shown]
        )
        if not answers:
            return losses | report
        language_model = self.model.model.language_model
        words = language_model.embed_tokens(batch.ids)
        states = language_model(
            inputs_embeds=torch.where(
                (batch.images >= 0)[..., None], image[batch.images.clamp(min=0)], words
            ),
            attention_mask=batch.mask,
            position_ids=batch.positions,
            use_cache=False,
            output_hidden_states=True,
        )
        for layer, head in enumerate(self.places):
            wanted = batch.places[:, :, layer]
            asked = wanted[..., 0] >= 0
            losses[f"place{layer}"], report[f"right_place{layer}"] = _place(
                head(states.hidden_states[layer + 1][asked]), wanted[asked]
            )
            losses[f"look{layer}"], report[f"right_look{layer}"] = self.look(
                batch, layer, states.hidden_states[layer]
            )
        learnt = batch.targets >= 0
        logits = self.model.lm_head(states.last_hidden_state[learnt])
        targets, kinds = batch.targets[learnt], batch.kinds[learnt]
        loss = F.cross_entropy(logits, targets, reduction="none")
        right = (logits.argmax(-1) == targets).float()
        for number, kind in enumerate(KINDS):
            if (kinds == number).any():
                losses[kind] = loss[kinds == number].mean()
                report[f"right_{kind}"] = right[kinds == number].mean()
        return losses | report

    def look(self, batch: Batch, layer: int, states: Tensor) -> tuple[Tensor, Tensor]:
        """A loss of a layer's first head, and its share of attention at the right tokens.

        The loss is the logarithm of that share, negative.
        """
        language_model = self.model.model.language_model
        asked = batch.looks[:, 0] == layer
        _, row, column = batch.looks[asked].unbind(1)
        attention = language_model.layers[layer].self_attn
        states = language_model.layers[layer].input_layernorm(states)
        size = attention.head_dim
        query, key = (
            (states @ part.weight[:size].T + part.bias[:size])[:, None]
            for part in (attention.q_proj, attention.k_proj)
        )
        query, key = apply_rotary_pos_emb(
            query, key, *language_model.rotary_emb(states, batch.positions)
        )
        scores = torch.einsum("nd,nld->nl", query[row, 0, column], key[row, 0]) * attention.scaling
        scores = scores.masked_fill(~batch.mask[row, 0, column], -torch.inf)
        whole = scores.logsumexp(1)
        right = scores.masked_fill(~batch.seen[asked], -torch.inf).logsumexp(1) - whole
        return -right.mean(), right.exp().mean()


def _place(logits: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and share of right guesses of columns and rows."""
    logits = logits.view(-1, PLACES)
    loss = F.cross_entropy(logits, wanted.flatten())
    return loss, (logits.argmax(-1) == wanted.flatten()).float().mean()


def train(args: argparse.Namespace) -> None:
    """Train it."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    tokenizer = extended_tokenizer()
    trainee = Trainee(load(tokenizer, args.resume))
    stream = Stream(tokenizer, args.batch, args.seed)
    fit(
        trainee,
        DataLoader(stream, batch_size=None, num_workers=args.workers),
        lambda batch, share: trainee(batch, answers=share > args.head_start),
        LOSS_WEIGHTS,
        lambda mean: export(mean, tokenizer, args.out, CHAT_TEMPLATE),
        args,
    )


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.set_defaults(resume=START_FROM)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
