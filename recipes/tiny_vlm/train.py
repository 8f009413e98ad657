"""Train the tiny Qwen2-VL on freshly drawn pages, on a CPU, in about an hour.

    python -m recipes.tiny_vlm.train --out examples/demo/model --seconds 3000

Train-only auxiliary heads tell every image token which text lies over it, and the text side where
an answer stands: on the language model's loss alone a model of this size does not start to read.
The image side gets a head start on its heads alone, since a model that cannot read yet cannot answer.
Muon on the inner matrices learnt clearly faster here than AdamW, which keeps embeddings and heads.
Pages are drawn from seeds that the shipped snapshot never uses, in its seen fonts only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader
from transformers import Qwen2VLForConditionalGeneration

from recipes.tiny_vlm.model import (
    COLUMNS,
    IMAGE_TOKENS,
    MERGE,
    ROWS,
    build_config,
    build_tokenizer,
    export,
)
from recipes.tiny_vlm.packing import (
    CHARACTERS,
    MAX_INDEX,
    MAX_LINES,
    SAMPLES,
    TASKS,
    Batch,
    Packer,
    Stream,
)

# A question has few answer tokens beside a whole page's text.
TASK_WEIGHTS = torch.tensor([3.0, 1.0, 1.0, 1.0])


class Trainee(nn.Module):
    """The model with its auxiliary heads, which are left behind at export."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, first_image: int) -> None:
        super().__init__()
        self.model = model
        self.first_image = first_image
        hidden = model.config.text_config.hidden_size
        self.over = nn.Linear(hidden, hidden * SAMPLES)
        self.character = nn.Linear(hidden, (len(CHARACTERS) + 1) * SAMPLES)
        self.index = nn.Linear(hidden, (MAX_INDEX + 1) * SAMPLES)
        self.line = nn.Linear(hidden, MAX_LINES + 1)
        self.lead = nn.Linear(hidden, hidden)
        self.rows = nn.ModuleList(
            nn.Sequential(nn.RMSNorm(hidden), nn.Linear(hidden, MAX_LINES)) for _ in range(2)
        )

    def forward(self, batch: Batch, answers: bool) -> dict[str, Tensor]:
        """Losses by name and shares of right predictions (`right_*`); `answers`: all, or reading."""
        count = len(batch.ids)
        grid = torch.tensor([[1, ROWS * MERGE, COLUMNS * MERGE]]).expand(count, 3)
        image = self.model.model.visual(batch.pixels, grid_thw=grid).pooler_output
        image = image.view(count, IMAGE_TOKENS, -1)
        report = self.reading(batch, image)
        return report | self.answering(batch, image) if answers else report

    def reading(self, batch: Batch, image: Tensor) -> dict[str, Tensor]:
        """The auxiliary losses on the image tokens."""
        # Naming text tokens with the language model's own embeddings makes copying them easy. Most
        # places are blank paper: one in eight of them is enough, and saves a third of a step.
        table = self.model.model.language_model.embed_tokens.weight
        wanted = batch.over.flatten()
        asked = torch.where(wanted != 0, 1.0, 0.125).bernoulli().bool()
        wanted = wanted[asked]
        named = self.over(image).view(-1, image.shape[-1])[asked] @ table.T
        letters = self.character(image).view(len(asked), -1)[asked]
        written = batch.characters.flatten()[asked]
        places = self.index(image).view(len(asked), -1)[asked]
        # The label of its line, on every image token of the line: what a value belongs to.
        printed = batch.leads.flatten() != 0
        leads = self.lead(image).flatten(0, 1)[printed] @ table.T
        led = batch.leads.flatten()[printed]
        shown = wanted != 0
        with torch.no_grad():
            right_over = (named.argmax(-1) == wanted)[shown].float().mean()
            right_lead = (leads.argmax(-1) == led).float().mean()
            right_characters = (letters.argmax(-1) == written)[shown].float().mean()
        return {
            "over": F.cross_entropy(named, wanted),
            "characters": F.cross_entropy(letters, written),
            "index": F.cross_entropy(places, batch.indices.flatten()[asked]),
            "lead": F.cross_entropy(leads, led),
            "line": F.cross_entropy(self.line(image).flatten(0, 1), batch.lines.flatten()),
            "right_over": right_over,
            "right_lead": right_lead,
            "right_characters": right_characters,
        }

    def answering(self, batch: Batch, image: Tensor) -> dict[str, Tensor]:
        """The loss of the answers' tokens, which is what the model is for."""
        language_model = self.model.model.language_model
        first, last = self.first_image, self.first_image + IMAGE_TOKENS
        words = language_model.embed_tokens(batch.ids)
        states = language_model(
            inputs_embeds=torch.cat([words[:, :first], image, words[:, last:]], dim=1),
            attention_mask=batch.mask,
            position_ids=batch.positions,
            use_cache=False,
            output_hidden_states=True,
        )
        hidden = states.last_hidden_state
        rows: dict[str, Tensor] = {}
        for layer, head in enumerate(self.rows):
            wanted = batch.rows[..., layer]
            guess = head(states.hidden_states[layer + 1][wanted != -100])
            wanted = wanted[wanted != -100]
            if len(wanted):  # a batch may hold no table
                rows[f"row{layer}"] = F.cross_entropy(guess, wanted)
                rows[f"right_row{layer}"] = (guess.argmax(-1) == wanted).float().mean().detach()
        learnt = batch.targets != -100
        logits = self.model.lm_head(hidden[learnt])
        targets, tasks = batch.targets[learnt], batch.tasks[learnt]
        weights = TASK_WEIGHTS[tasks]
        losses = F.cross_entropy(logits, targets, reduction="none")
        with torch.no_grad():
            right = (logits.argmax(-1) == targets).float()
            report = {f"right_{task}": right[tasks == i].mean() for i, task in enumerate(TASKS)}
        return {"answers": (losses * weights).sum() / weights.sum(), **rows, **report}


LOSS_WEIGHTS = {
    "answers": 1.0,
    "over": 0.3,
    "characters": 0.3,
    "index": 0.1,
    "line": 0.1,
    "lead": 0.2,
    "row0": 0.3,
    "row1": 0.3,
}


def rate(share: float, since_start: int) -> float:
    """Factor on the learning rates: a short warm-up, constant, then linear to 1 % at the end."""
    return min(1.0, (since_start + 1) / 50) * min(1.0, max(0.01, (1 - share) / 0.6))


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` in float32: its bfloat16 takes as long as the rest of a step on a CPU without it.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon: the momentum's singular values are set to
    about one by five steps of Newton and Schulz. Rate and decay as AdamW's: Liu et al. 2025, arXiv
    2502.16982.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": 0.95, "weight_decay": 0.02})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update the matrices, those of one shape together."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in alike.items():
                moved = []
                for matrix in matrices:
                    momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                    momentum.lerp_(matrix.grad, 1 - group["momentum"])
                    moved.append(matrix.grad.lerp(momentum, group["momentum"]))
                rate = group["lr"] * 0.2 * max(shape) ** 0.5
                for matrix, step in zip(matrices, _orthogonal(torch.stack(moved)), strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(step, alpha=rate)


def _orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [n, rows, columns] with singular values near one, by Newton and Schulz."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if tall else x


def optimizers(trainee: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside both transformers, AdamW for everything else."""
    inner = [
        parameter
        for name, parameter in trainee.model.named_parameters()
        if parameter.ndim == 2 and "embed_tokens" not in name and "lm_head" not in name
    ]
    known = {id(parameter) for parameter in inner}
    others = [parameter for parameter in trainee.parameters() if id(parameter) not in known]
    return [
        Muon(inner, lr),
        torch.optim.AdamW(others, lr=lr / 4, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def fit(
    trainee: nn.Module,
    batches: Iterable[Any],
    losses_of: Callable[[Any, float], dict[str, Tensor]],
    weights: Mapping[str, float],
    save: Callable[[nn.Module], None],
    args: argparse.Namespace,
) -> None:
    """Train until the time or the steps are over; what is saved is the running mean of the weights.

    Args:
        trainee: has the model, whose weights are saved, as its attribute `model`.
        losses_of: batch, and share of the run that is over → losses and figures by name.
        weights: of those names that are losses.
        save: called every `args.save_every` seconds and at the end.
    """
    mean = AveragedModel(trainee.model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizing = optimizers(trainee, args.lr)
    groups = [group for optimizer in optimizing for group in optimizer.param_groups]
    peaks = [float(group["lr"]) for group in groups]
    began = saved = printed = time.monotonic()
    sums: dict[str, list[float]] = {}
    for step, batch in enumerate(batches):
        now = time.monotonic()
        share = (now - began) / args.seconds if args.seconds else step / args.steps
        if share >= 1:
            break
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * rate(share, step)
        losses = losses_of(batch, share)
        total = sum(weight * losses[name] for name, weight in weights.items() if name in losses)
        total.backward()
        nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
        for optimizer in optimizing:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        mean.update_parameters(trainee.model)
        for name, value in losses.items():
            sums.setdefault(name, []).append(float(value.detach()))
        if now - printed > 20:
            means = " ".join(f"{name} {np.nanmean(values):.3f}" for name, values in sums.items())
            print(f"{now - began:5.0f} s  step {step}  {means}", flush=True)
            sums, printed = {}, now
        if now - saved > args.save_every:
            save(mean.module)
            saved = now
    save(mean.module)
    print(f"done: {step} steps of {args.batch} pages in {time.monotonic() - began:.0f} s")


def train(args: argparse.Namespace) -> None:
    """Train the demo's model."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    tokenizer = build_tokenizer()
    if args.resume:
        model = Qwen2VLForConditionalGeneration.from_pretrained(args.resume, dtype=torch.float32)
    else:
        model = Qwen2VLForConditionalGeneration(build_config(tokenizer))
    trainee = Trainee(model, Packer(tokenizer).first_image)
    stream = Stream(tokenizer, args.batch, args.seed)
    fit(
        trainee,
        DataLoader(stream, batch_size=None, num_workers=args.workers),
        lambda batch, share: trainee(batch, answers=share > args.head_start),
        LOSS_WEIGHTS,
        lambda mean: export(mean, tokenizer, args.out),
        args,
    )


def parser_of(doc: str) -> argparse.ArgumentParser:
    """The options of `fit`, and those that every training needs."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the exported model")
    parser.add_argument("--resume", type=Path, help="start from the weights of an exported model")
    parser.add_argument("--seconds", type=float, default=0, help="length of the run")
    parser.add_argument("--steps", type=int, default=8000, help="length if --seconds is not given")
    parser.add_argument("--batch", type=int, default=16, help="pages per step")
    parser.add_argument("--lr", type=float, default=1e-2, help="Muon's; AdamW takes a quarter")
    parser.add_argument(
        "--head-start", type=float, default=0.08, help="share of the run that only learns to read"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1, help="processes that draw pages")
    parser.add_argument("--save-every", type=float, default=300, help="seconds between exports")
    return parser


def main() -> None:
    """Command line."""
    train(parser_of(__doc__).parse_args())


if __name__ == "__main__":
    main()
