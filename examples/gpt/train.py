"""Train a small GPT on the Python documentation, on one CPU, in about a minute.

    python train.py                      # with PyTorch
    python -m flambeau train.py          # the same file with flambeau
    ... train.py --compile               # through torch.compile

The run may be killed at any moment, kill -9 included. The same command then goes on from the last
checkpoint, and its losses are the ones of an undisturbed run, bit for bit. In the folder `--out`:
checkpoint.pt, losses.jsonl, speed.json, loss.png and sample.txt.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from model import GPT, Shape
from progress import Bar
from text import ShuffledFrom, Windows, WordPieces, read_text
from torch.utils.data import DataLoader

# The options that decide the losses: a checkpoint is continued only where they are the same.
DECIDING = (
    "steps batch seed layers heads width block vocab dropout lr warmup weight_decay clip "
    "compile".split()
)


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--steps", type=int, default=600, help="training steps in all (%(default)s)")
    add("--batch", type=int, default=16, help="sequences a step (%(default)s)")
    add("--seed", type=int, default=1, help="of weights, data order and dropout (%(default)s)")
    add("--device", default="cpu", help="where the model lives (%(default)s)")
    add("--compile", action="store_true", help="train through torch.compile")
    add("--workers", type=int, default=0, help="processes that load data (%(default)s)")
    add("--layers", type=int, default=4, help="blocks (%(default)s)")
    add("--heads", type=int, default=4, help="attention heads (%(default)s)")
    add("--width", type=int, default=128, help="channels (%(default)s)")
    add("--block", type=int, default=128, help="tokens a sequence (%(default)s)")
    add("--vocab", type=int, default=1024, help="word pieces (%(default)s)")
    add("--dropout", type=float, default=0.05, help="in the residual stream (%(default)s)")
    add("--lr", type=float, default=1.5e-3, help="highest learning rate (%(default)s)")
    add("--warmup", type=int, default=40, help="steps up to it (%(default)s)")
    add("--weight-decay", type=float, default=0.1, help="of the matrices (%(default)s)")
    add("--clip", type=float, default=1.0, help="highest norm of the gradient (%(default)s)")
    add("--eval-every", type=int, default=100, help="steps between validations (%(default)s)")
    add("--save-every", type=int, default=50, help="steps between checkpoints (%(default)s)")
    add("--sample", type=int, default=160, help="word pieces to write at the end (%(default)s)")
    add("--prompt", default="The statement", help="what the sample starts with")
    add("--out", type=Path, default=Path("build/gpt"), help="folder of the run (%(default)s)")
    add("--restart", action="store_true", help="forget the checkpoint in that folder")
    add("--losses-out", type=Path, help="file of the losses (<out>/losses.jsonl)")
    add("--weights-out", type=Path, help="write the initial weights to this .npz file")
    parsed = parser.parse_args(arguments)
    if parsed.width % parsed.heads:
        parser.error(f"--width {parsed.width} is not a multiple of --heads {parsed.heads}")
    return parsed


class Training:
    """Everything that a checkpoint has to hold, and one step of it."""

    def __init__(self, opts: argparse.Namespace, vocab: int) -> None:
        self.opts = opts
        self.step = 0
        shape = Shape(vocab, opts.block, opts.layers, opts.heads, opts.width, opts.dropout)
        self.model = GPT(shape).to(opts.device)
        # Norms, biases and other vectors are not decayed.
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": opts.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=opts.lr,
            betas=(0.9, 0.99),
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._rate)

    def _rate(self, step: int) -> float:
        """Share of the highest rate at `step`: a straight rise, then half a cosine down to 5 %."""
        if step < self.opts.warmup:
            return (step + 1) / self.opts.warmup
        done = (step - self.opts.warmup) / max(1, self.opts.steps - self.opts.warmup)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def train_on(self, tokens_BT: torch.Tensor, targets_BT: torch.Tensor) -> tuple[float, float]:
        """One step; the loss before it and the learning rate used."""
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.model(tokens_BT.to(self.opts.device), targets_BT.to(self.opts.device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.opts.clip)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        return loss.item(), rate

    @torch.no_grad()
    def validate(self, loader: DataLoader[Any]) -> float:
        """Mean loss over all windows of `loader`, in nats a token."""
        self.model.eval()
        total, count = 0.0, 0
        for tokens_BT, targets_BT in loader:
            loss = self.model(tokens_BT.to(self.opts.device), targets_BT.to(self.opts.device))
            total += loss.item() * len(tokens_BT)
            count += len(tokens_BT)
        return total / count

    def save(self, path: Path) -> None:
        """Write a checkpoint so that a reader sees the old one or the new one, never a part."""
        state = {
            "step": self.step,
            "deciding": {name: getattr(self.opts, name) for name in DECIDING},
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rng": torch.get_rng_state(),
        }
        if torch.device(self.opts.device).type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state()
        beside = path.with_suffix(".part")
        with open(beside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint; SystemExit where it belongs to a different run."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        for name, then in state["deciding"].items():
            now = getattr(self.opts, name)
            if now != then:
                flag = "--" + name.replace("_", "-")
                sys.exit(
                    f"{path} was made with {flag} {then}, not {now}: "
                    "give another --out, or --restart to begin again."
                )
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"])
        if "cuda_rng" in state:
            torch.cuda.set_rng_state(state["cuda_rng"])


def loss_file(path: Path, step: int) -> TextIO:
    """The file of losses, open for appending, with what came after `step` taken out.

    A killed run may have written losses that its last checkpoint does not know, or half a line.
    """
    kept = [
        json.dumps(row) + "\n" for row in (read_losses(path) if step else []) if row["step"] <= step
    ]
    beside = path.with_suffix(".part")
    beside.write_text("".join(kept))
    os.replace(beside, path)
    return open(path, "a", buffering=1)


def read_losses(path: Path) -> list[dict[str, float]]:
    """The rows of a file of losses, up to the first one that is not whole."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def tell_speed(opts: argparse.Namespace, seconds: list[float], whole: float) -> None:
    """Print and keep how fast the steps of this run were: the first, which compiles, apart."""
    typical = statistics.median(seconds[1:] or seconds)
    speed = {
        "compiled": opts.compile,
        "unit": "tokens",
        "a_second": opts.batch * opts.block / typical,
        "first_step": seconds[0],
        "steps": len(seconds),
        "whole": whole,
    }
    (opts.out / "speed.json").write_text(json.dumps(speed) + "\n")
    print(
        f"{len(seconds)} steps in {whole:.1f} s: {speed['a_second']:,.0f} tokens/s (median step), "
        f"first step {seconds[0]:.2f} s"
    )


def draw_losses(rows: list[dict[str, float]], path: Path) -> None:
    """Loss of training (each step, and smoothed) and of validation, as a picture."""
    try:
        import matplotlib  # optional: a run without it still trains
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # optional, as above

    steps = [row["step"] for row in rows if "loss" in row]
    losses = [row["loss"] for row in rows if "loss" in row]
    smooth, mean = [], losses[0]
    for loss in losses:
        mean += 0.1 * (loss - mean)
        smooth.append(mean)
    checks = [(row["step"], row["val_loss"]) for row in rows if "val_loss" in row]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(steps, losses, color="tab:blue", alpha=0.3, linewidth=1, label="training, each step")
    axes.plot(steps, smooth, color="tab:blue", linewidth=2, label="training, smoothed")
    if checks:
        axes.plot(*zip(*checks, strict=True), "o-", color="tab:orange", label="validation")
    axes.set(xlabel="step", ylabel="cross entropy, nats a token", title="A small GPT")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"loss curve   {path.resolve()}")


def loaders(
    opts: argparse.Namespace, tokens: torch.Tensor, step: int
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Batches for training from `step` on, and for validation (the last tenth of the text)."""
    border = len(tokens) * 9 // 10
    train_set = Windows(tokens[:border], opts.block, stride=opts.block // 4)
    check_set = Windows(tokens[border:], opts.block, stride=opts.block)
    order = ShuffledFrom(
        len(train_set), opts.seed, step * opts.batch, (opts.steps - step) * opts.batch
    )
    # A loader draws a seed for its workers: from a generator of its own, so that the one that
    # dropout uses is the same whenever a run starts.
    own = torch.Generator().manual_seed(opts.seed)
    train = DataLoader(
        train_set, opts.batch, sampler=order, num_workers=opts.workers, generator=own
    )
    return train, DataLoader(check_set, opts.batch, generator=own)


def main() -> None:
    opts = options()
    opts.out.mkdir(parents=True, exist_ok=True)
    checkpoint = opts.out / "checkpoint.pt"
    losses_path = opts.losses_out or opts.out / "losses.jsonl"

    text = read_text()
    pieces = WordPieces(text, opts.vocab)
    tokens = torch.tensor(pieces.encode(text))
    torch.manual_seed(opts.seed)
    run = Training(opts, len(pieces))
    if opts.weights_out:
        state = run.model.state_dict()
        np.savez(opts.weights_out, **{name: value.cpu().numpy() for name, value in state.items()})
    if opts.compile:
        run.model = torch.compile(run.model)
    if checkpoint.exists() and not opts.restart:
        run.load(checkpoint)
        print(f"going on from step {run.step} of {checkpoint}")
    count = sum(parameter.numel() for parameter in run.model.parameters())
    print(
        f"torch {torch.__version__}: {count:,} parameters, {len(tokens):,} tokens of "
        f"{len(pieces)} word pieces, {opts.steps} steps of {opts.batch} x {opts.block} tokens"
    )

    train, check = loaders(opts, tokens, run.step)
    bar = Bar(opts.steps, run.step, opts.batch * opts.block, "tokens")
    started, seconds = time.perf_counter(), []
    with loss_file(losses_path, run.step) as losses:
        for tokens_BT, targets_BT in train if run.step < opts.steps else ():
            before = time.perf_counter()
            loss, rate = run.train_on(tokens_BT, targets_BT)
            seconds.append(time.perf_counter() - before)
            losses.write(json.dumps({"step": run.step, "loss": loss, "lr": rate}) + "\n")
            last = run.step == opts.steps
            if last or run.step % opts.eval_every == 0:
                val_loss = run.validate(check)
                losses.write(json.dumps({"step": run.step, "val_loss": val_loss}) + "\n")
                bar.note(f"step {run.step:5d}   loss {loss:.4f}   validation {val_loss:.4f}")
            if last or run.step % opts.save_every == 0:
                run.save(checkpoint)
            bar.update(run.step, f"loss {loss:.4f}")
    bar.close()
    if seconds:
        tell_speed(opts, seconds, time.perf_counter() - started)

    if opts.sample:
        run.model.eval()
        generator = torch.Generator().manual_seed(opts.seed)
        prompt = pieces.encode(opts.prompt)
        sample = pieces.decode(run.model.continue_text(prompt, opts.sample, generator))
        (opts.out / "sample.txt").write_text(sample + "\n")
        print("\n" + "-" * 72 + f"\n{sample}\n" + "-" * 72 + "\n")
        draw_losses(read_losses(losses_path), opts.out / "loss.png")


if __name__ == "__main__":
    main()
