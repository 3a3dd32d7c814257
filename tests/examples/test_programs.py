"""The example programs, run through the alias as a user runs them, in a small size."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALIAS = [sys.executable, "-m", "flambeau"]
GPT = [
    *ALIAS, "examples/gpt/train.py", "--layers", "2", "--width", "32", "--heads", "2",
    "--block", "32", "--vocab", "200", "--batch", "4", "--steps", "40", "--warmup", "5",
    "--eval-every", "15", "--save-every", "4", "--sample", "0",
]  # fmt: skip


def start(command: list[str], **options: str) -> subprocess.Popen[str]:
    """The program, started with the options given as --name value."""
    for name, value in options.items():
        command = [*command, "--" + name.replace("_", "-"), value]
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(command: list[str], **options: str) -> str:
    """What the program printed; it must end well."""
    process = start(command, **options)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one whole run of the small GPT."""
    folder = tmp_path_factory.mktemp("gpt")
    finish(GPT, out=str(folder))
    return folder


def test_gpt_learns(undisturbed: Path) -> None:
    rows = [json.loads(line) for line in (undisturbed / "losses.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 41))
    assert [row["step"] for row in rows if "val_loss" in row] == [15, 30, 40]
    assert sum(losses[-5:]) < sum(losses[:5]) - 1.0


@pytest.mark.parametrize("seed", [1, 2])
def test_gpt_killed_anywhere_goes_on_bit_for_bit(
    seed: int, undisturbed: Path, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    losses = tmp_path / "losses.jsonl"
    for goal in sorted(chance.sample(range(1, 40), 2)):
        process = start(GPT, out=str(tmp_path))
        while process.poll() is None:
            if losses.exists() and losses.read_text().count('"loss"') >= goal:
                time.sleep(chance.uniform(0, 0.01))
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        process.communicate()
    finish(GPT, out=str(tmp_path))
    assert losses.read_bytes() == (undisturbed / "losses.jsonl").read_bytes()


def test_gpt_compiled_learns_the_same_and_goes_on_after_a_kill(
    undisturbed: Path, tmp_path: Path
) -> None:
    """One line more: the same losses bit for bit, also of a run that was killed."""
    losses = tmp_path / "losses.jsonl"
    process = start([*GPT, "--compile"], out=str(tmp_path))
    while process.poll() is None:
        if losses.exists() and losses.read_text().count('"loss"') >= 18:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.001)
    process.communicate()
    output = finish([*GPT, "--compile"], out=str(tmp_path))
    assert "going on from step" in output
    assert losses.read_bytes() == (undisturbed / "losses.jsonl").read_bytes()


def test_gpt_losses_do_not_depend_on_loader_processes(undisturbed: Path, tmp_path: Path) -> None:
    finish(GPT, out=str(tmp_path), workers="2")
    assert (tmp_path / "losses.jsonl").read_bytes() == (undisturbed / "losses.jsonl").read_bytes()


def test_gpt_refuses_a_checkpoint_of_another_run(undisturbed: Path) -> None:
    process = start(GPT, out=str(undisturbed), batch="5")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "was made with --batch 4, not 5" in output


def test_gpt_writes_a_sample(undisturbed: Path) -> None:
    output = finish(GPT, out=str(undisturbed), sample="20")
    assert "going on from step 40" in output
    assert (undisturbed / "sample.txt").read_text().startswith("The statement")


def test_digits_are_read_and_the_two_runs_compared(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    digits = [*ALIAS, "examples/digits/train.py"]
    output = finish(digits, out=str(plain))
    found = re.search(r"test accuracy ([\d.]+)%", output)
    assert found is not None, output
    assert float(found[1]) >= 97.0
    finish([*digits, "--compile"], out=str(compiled))
    told = finish(
        [*ALIAS, "examples/compare.py", str(plain), str(compiled)], out=str(tmp_path / "both.png")
    )
    assert (plain / "losses.jsonl").read_bytes() == (compiled / "losses.jsonl").read_bytes()
    assert "losses are equal, bit for bit" in told, told
    assert re.search(r"images/s +first step", told), told


def test_losses_that_differ_are_said_to(tmp_path: Path) -> None:
    speed = {"unit": "tokens", "a_second": 10.0, "first_step": 1.0, "steps": 3, "whole": 4.0}
    for name, last in (("a", 0.5), ("b", 0.75)):
        folder = tmp_path / name
        folder.mkdir()
        rows = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": last}]
        (folder / "losses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "speed.json").write_text(json.dumps(speed))
    command = [*ALIAS, "examples/compare.py", str(tmp_path / "a"), str(tmp_path / "b")]
    told = finish(command, out=str(tmp_path / "both.png"))
    assert "2 of 3 losses are equal, the others at most 2.5e-01 apart" in told


def test_the_pair_of_the_median_ratio_is_shown(tmp_path: Path) -> None:
    folders = []
    for i, speeds in enumerate([(10.0, 5.0), (10.0, 12.0), (5.0, 15.0)]):
        for name, a_second in zip(("a", "b"), speeds, strict=True):
            folders.append(tmp_path / f"{name}{i}")
            folders[-1].mkdir()
            speed = {"unit": "tokens", "a_second": a_second, "first_step": 1.0, "whole": 4.0}
            (folders[-1] / "speed.json").write_text(json.dumps(speed))
            (folders[-1] / "losses.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    command = [*ALIAS, "examples/compare.py", *map(str, folders)]
    told = finish(command, out=str(tmp_path / "both.png"))
    assert "compiled is 1.20 times as fast" in told
    assert re.search(r"eager +10 .*\ncompiled +12 ", told), told
