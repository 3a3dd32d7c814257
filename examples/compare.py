"""Two runs of one example side by side: plain, and through torch.compile.

    python compare.py build/gpt build/gpt-compiled --out build/gpt.png

Reads losses.jsonl and speed.json of both folders, prints a table and draws both loss curves, how
far they are apart, and the speeds. Runs of a second or two say little about speed on a machine that
others use too: name further pairs of folders (eager, compiled, eager, compiled, ...) of the same
two runs, made in turn, and the pair with the median ratio of speeds is shown.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

NAMES = ("eager", "compiled")
COLORS = ("tab:blue", "tab:orange")


class Run:
    """What one folder holds: losses by step, losses of validations by step, and the speed."""

    def __init__(self, folder: Path) -> None:
        rows = [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
        self.losses = {row["step"]: row["loss"] for row in rows if "loss" in row}
        self.checks = {row["step"]: row["val_loss"] for row in rows if "val_loss" in row}
        self.speed: dict[str, Any] = json.loads((folder / "speed.json").read_text())


def faster(runs: tuple[Run, Run]) -> float:
    """How many times as fast the second one is."""
    plain, compiled = (run.speed["a_second"] for run in runs)
    return float(compiled / plain)


def median_pair(pairs: list[tuple[Run, Run]]) -> tuple[Run, Run]:
    """Of the same two runs again and again, the pair whose ratio of speeds is the median."""
    for pair in pairs:
        if any(run.losses != same.losses for run, same in zip(pair, pairs[0], strict=True)):
            raise SystemExit("a repetition has other losses than the run that it repeats")
    return sorted(pairs, key=faster)[(len(pairs) - 1) // 2]


def smoothed(losses: dict[int, float]) -> list[float]:
    """A running mean that forgets a tenth a step."""
    means, mean = [], next(iter(losses.values()))
    for loss in losses.values():
        mean += 0.1 * (loss - mean)
        means.append(mean)
    return means


def gaps(runs: tuple[Run, Run]) -> dict[int, float]:
    """How far the losses of the two are apart, by step."""
    first, second = (run.losses for run in runs)
    return {step: abs(first[step] - second[step]) for step in first if step in second}


def said(apart: dict[int, float]) -> str:
    """The gaps in a sentence."""
    widest = max(apart.values())
    if widest == 0.0:
        return f"all {len(apart)} losses are equal, bit for bit"
    same = sum(gap == 0.0 for gap in apart.values())
    return f"{same} of {len(apart)} losses are equal, the others at most {widest:.1e} apart"


def table(runs: tuple[Run, Run]) -> str:
    """Speeds and last losses, a line each."""
    unit = runs[0].speed["unit"]
    lines = [f"{'':10}{unit + '/s':>12}{'first step':>13}{'all steps':>12}{'last loss':>12}"]
    for name, run in zip(NAMES, runs, strict=True):
        speed = run.speed
        lines.append(
            f"{name:10}{speed['a_second']:12,.0f}{speed['first_step']:11.2f} s"
            f"{speed['whole']:10.1f} s{list(run.losses.values())[-1]:12.4f}"
        )
    told = f"compiled is {faster(runs):.2f} times as fast; {said(gaps(runs))}"
    return "\n".join([*lines, told])


def draw(runs: tuple[Run, Run], title: str, path: Path) -> None:
    """Loss curves over each other, the gap below them, speeds at the right."""
    try:
        import matplotlib  # optional: the table needs no picture
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # optional, as above

    figure, axes = plt.subplot_mosaic(
        [["curves", "speed"], ["gap", "first"]],
        figsize=(11, 5.5), width_ratios=[3, 1], height_ratios=[3, 1], layout="constrained",
    )  # fmt: skip
    # The second curve is thin and dashed, so that the first shows where the two are equal.
    widths, styles = (5.0, 1.4), ("-", (0, (4, 2)))
    curves = axes["curves"]
    for i, run in enumerate(runs):
        steps, color = list(run.losses), COLORS[i]
        curves.plot(steps, list(run.losses.values()), color=color, alpha=0.15, linewidth=0.8)
        curves.plot(
            steps, smoothed(run.losses), color=color, alpha=(0.45, 1.0)[i], linewidth=widths[i],
            linestyle=styles[i], label=f"{NAMES[i]}, smoothed",
        )  # fmt: skip
        if run.checks:
            curves.plot(
                list(run.checks), list(run.checks.values()), "os"[i], color=color,
                markersize=(9, 4)[i], alpha=(0.45, 1.0)[i], label=f"{NAMES[i]}, validation",
            )  # fmt: skip
    curves.set(ylabel="loss", title=title)
    curves.grid(alpha=0.3)
    curves.legend()

    apart = gaps(runs)
    gap = axes["gap"]
    gap.sharex(curves)
    gap.plot(list(apart), list(apart.values()), color="tab:red", linewidth=1)
    if max(apart.values()) == 0.0:
        gap.set_ylim(-1e-6, 1e-6)
    gap.set(xlabel="step", ylabel="apart")
    gap.set_title(said(apart), fontsize=9)
    gap.grid(alpha=0.3)

    unit = runs[0].speed["unit"]
    bars(axes["speed"], [run.speed["a_second"] for run in runs], f"{unit}/s", "{:,.0f}")
    bars(axes["first"], [run.speed["first_step"] for run in runs], "first step, s", "{:.2f}")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"picture      {path.resolve()}")


def bars(axes: Any, values: list[float], title: str, form: str) -> None:
    """One bar a run, with its number on it."""
    drawn = axes.bar(NAMES, values, color=COLORS, alpha=0.8, width=0.6)
    axes.bar_label(drawn, [form.format(value) for value in values], padding=2, fontsize=9)
    axes.set_ylim(0, max(values) * 1.25)
    axes.set_title(title, fontsize=10)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("eager", type=Path, help="folder of the plain run")
    parser.add_argument("compiled", type=Path, help="folder of the run with --compile")
    parser.add_argument("again", type=Path, nargs="*", help="further pairs of both, for the speeds")
    parser.add_argument("--title", default="", help="above the curves")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    opts = parser.parse_args()
    if len(opts.again) % 2:
        parser.error("folders come in pairs: eager, compiled, eager, compiled, ...")
    folders = [opts.eager, opts.compiled, *opts.again]
    pairs = [(Run(a), Run(b)) for a, b in zip(folders[::2], folders[1::2], strict=True)]
    runs = median_pair(pairs)
    print(table(runs))
    draw(runs, opts.title, opts.out)


if __name__ == "__main__":
    main()
