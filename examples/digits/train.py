"""Train a small convolutional network on scikit-learn's handwritten digits, in seconds.

    python train.py                      # with PyTorch
    python -m flambeau train.py          # the same file with flambeau
    ... train.py --compile               # through torch.compile

The set (1,797 grey images of 8 x 8) comes with scikit-learn; nothing is fetched. In the folder
`--out`: losses.jsonl, speed.json and digits.png: the confusion matrix and what was misread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--epochs", type=int, default=12, help="passes over the training set (%(default)s)")
    add("--steps", type=int, help="stop after so many steps instead")
    add("--batch", type=int, default=64, help="images a step (%(default)s)")
    add("--seed", type=int, default=1, help="of weights, split, order, dropout (%(default)s)")
    add("--lr", type=float, default=0.1, help="highest learning rate (%(default)s)")
    add("--device", default="cpu", help="where the model lives (%(default)s)")
    add("--compile", action="store_true", help="train through torch.compile")
    add("--workers", type=int, default=0, help="processes that load data (%(default)s)")
    add("--out", type=Path, default=Path("build/digits"), help="folder (%(default)s)")
    add("--losses-out", type=Path, help="file of the losses (<out>/losses.jsonl)")
    add("--weights-out", type=Path, help="write the initial weights to this .npz file")
    return parser.parse_args(arguments)


class DigitNet(nn.Module):
    """Images (N, 1, 8, 8) to the scores of ten digits (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.scores = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(64 * 2 * 2, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.scores(self.features(images))


def read_digits(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Training and test set, four fifths and one fifth; pixels scaled to 0..1."""
    digits = load_digits()
    images = torch.from_numpy(digits.images.astype(np.float32) / 16).unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[: len(labels) // 5], order[len(labels) // 5 :]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


@torch.no_grad()
def predict(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """The most likely digit of each image, int64 (N,)."""
    model.eval()
    return model(images).argmax(dim=1)


def draw(test: TensorDataset, found: torch.Tensor, path: Path) -> None:
    """Confusion matrix on the left, up to twelve misread images on the right."""
    try:
        import matplotlib  # optional: a run without it still trains
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # optional, as above

    images, labels = (tensor.numpy() for tensor in test.tensors)
    guesses = found.numpy()
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (labels, guesses), 1)
    figure, axes = plt.subplot_mosaic(
        [["matrix", "matrix", "matrix", *(f"{row}{column}" for column in range(4))]
         for row in range(3)],
        figsize=(11, 5), layout="constrained",
    )  # fmt: skip
    matrix = axes.pop("matrix")
    matrix.imshow(np.log1p(counts), cmap="Blues")
    for label, guess in zip(*np.nonzero(counts), strict=True):
        shade = "white" if counts[label, guess] > 10 else "black"
        matrix.text(
            guess, label, counts[label, guess], ha="center", va="center", color=shade, fontsize=8
        )
    right = float((guesses == labels).mean())
    matrix.set(xticks=range(10), yticks=range(10), xlabel="read as", ylabel="written")
    matrix.set_title(f"{right:.2%} of {len(labels)} test images read right")
    wrong = np.flatnonzero(guesses != labels)
    for place, panel in enumerate(axes.values()):
        panel.axis("off")
        if place < len(wrong):
            number = wrong[place]
            panel.imshow(images[number, 0], cmap="gray_r")
            panel.set_title(f"{labels[number]} read as {guesses[number]}", fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"picture      {path.resolve()}")


def tell_speed(opts: argparse.Namespace, seconds: list[float], whole: float) -> None:
    """Print and keep how fast the steps of this run were: the first, which compiles, apart."""
    speed = {
        "compiled": opts.compile,
        "unit": "images",
        "a_second": opts.batch / statistics.median(seconds[1:] or seconds),
        "first_step": seconds[0],
        "steps": len(seconds),
        "whole": whole,
    }
    (opts.out / "speed.json").write_text(json.dumps(speed) + "\n")
    print(
        f"{len(seconds)} steps in {whole:.1f} s: {speed['a_second']:,.0f} images/s (median step), "
        f"first step {seconds[0]:.2f} s"
    )


def main() -> None:
    opts = options()
    opts.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(opts.seed)
    train, test = read_digits(opts.seed)
    model = DigitNet().to(opts.device)
    if opts.weights_out:
        state = model.state_dict()
        np.savez(opts.weights_out, **{name: value.cpu().numpy() for name, value in state.items()})
    if opts.compile:
        model = torch.compile(model)
    order = torch.Generator().manual_seed(opts.seed)
    loader = DataLoader(train, opts.batch, shuffle=True, num_workers=opts.workers, generator=order)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=opts.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    total = opts.steps or opts.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
    started, step, live = time.perf_counter(), 0, sys.stderr.isatty()
    seconds: list[float] = []
    with open(opts.losses_out or opts.out / "losses.jsonl", "w") as losses:
        while step < total:
            epoch_loss, seen = 0.0, 0
            for images, labels in loader:
                before = time.perf_counter()
                model.train()
                optimizer.zero_grad()
                loss = criterion(model(images.to(opts.device)), labels.to(opts.device))
                loss.backward()
                optimizer.step()
                schedule.step()
                step += 1
                losses.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
                seconds.append(time.perf_counter() - before)
                epoch_loss += loss.item() * len(labels)
                seen += len(labels)
                if live:
                    speed = step * opts.batch / (time.perf_counter() - started)
                    bar = "=" * (30 * step // total)
                    print(
                        f"\r[{bar:30}] {step}/{total}  loss {epoch_loss / seen:.4f}"
                        f"  {speed:,.0f} images/s",
                        end="", file=sys.stderr, flush=True,
                    )  # fmt: skip
                if step == total:
                    break
            images, labels = test.tensors
            right = (predict(model, images.to(opts.device)).cpu() == labels).float().mean().item()
            clear = "\r\x1b[K" if live else ""
            print(f"{clear}step {step:4d}   loss {epoch_loss / seen:.4f}   test {right:.2%}")
    tell_speed(opts, seconds, time.perf_counter() - started)
    found = predict(model, test.tensors[0].to(opts.device)).cpu()
    draw(test, found, opts.out / "digits.png")
    right = (found == test.tensors[1]).float().mean().item()
    print(f"test accuracy {right:.2%} after {time.perf_counter() - started:.1f} s of training")


if __name__ == "__main__":
    main()
