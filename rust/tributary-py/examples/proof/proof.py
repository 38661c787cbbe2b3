#!/usr/bin/env python3
"""Train the same model with the same data by every method, and write what came of it.

    torchrun --nproc-per-node 2 proof.py --task text --steps 1000 --out text.json
    python proof.py --backend host --task digits --steps 200 --out digits.json       # without a GPU

Every method has the same model, data, learning rates, momentum and clipping. `dense` is trained with
several seeds, whose spread the others are judged by (proof_report.py); these take the first seed. OUT
is written after each training, and what it has already is not trained again.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from digits import Digits
from methods import OF_BACKEND, check
from ranks import Processes, Threads
from text import Text
from train import Plan, train

TASKS: dict[str, Any] = {"text": Text, "digits": Digits}


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="text")
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=50, help="steps from validation to validation")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", choices=OF_BACKEND, default="nccl")
    parser.add_argument("--ranks", type=int, default=2, help="of host; elsewhere torchrun knows")
    parser.add_argument("--methods", help="separated by commas; by default all of the backend")
    parser.add_argument("--seeds", default="1,2,3", help="of dense; the others take the first")
    parser.add_argument("--learning-rate", type=float, help="by default the task's")
    parser.add_argument("--clip", type=float, help="by default the task's")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--warmup", type=int, help="steps; by default a tenth")
    parser.add_argument("--density-warmup", type=int, default=0, help="steps of 25 %%, 6.25 %%, ...")
    return parser.parse_args(given)


def make_plan(options: argparse.Namespace) -> Plan:
    task = TASKS[options.task]
    return Plan(
        options.steps,
        options.every,
        options.learning_rate or task.learning_rate,
        options.momentum,
        options.steps // 10 if options.warmup is None else options.warmup,
        options.clip or task.clip,
        options.density_warmup,
    )


def wanted(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Methods and their seeds."""
    seeds = [int(seed) for seed in options.seeds.split(",")]
    methods = options.methods.split(",") if options.methods else OF_BACKEND[options.backend]
    for method in methods:
        check(method, options.backend)
    return [(m, seed) for m in methods for seed in (seeds if m == "dense" else seeds[:1])]


def left(todo: list[tuple[str, int]], runs: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """What has not been trained yet."""
    done = {(run["method"], run["seed"]) for run in runs}
    return [one for one in todo if one not in done]


def setting(options: argparse.Namespace, plan: Plan, size: int, task: Any) -> dict[str, Any]:
    """What all trainings of one file have in common."""
    places = ("NCCL_HOME", "NCCL_ROOT", "NCCL_VERSION")  # of the library: not a setting
    network = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("NCCL_") and name not in places
    }
    return {
        "task": options.task,
        "size": options.size,
        "data": task.description,
        "ranks": size,
        "plan": plan._asdict(),
        "environment": dict(sorted(network.items())),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if options.backend == "nccl" else "CPU",
    }


def read(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """The file so far. Figures of different settings do not belong into one."""
    if not path.exists():
        return {"setting": expected, "runs": []}
    found: dict[str, Any] = json.loads(path.read_text())
    differ = [key for key in expected if found["setting"].get(key) != expected[key]]
    if differ:
        raise SystemExit(f"{path} is of another setting: {', '.join(differ)}")
    return found


def write(path: Path, data: dict[str, Any]) -> None:
    """As a whole, or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")
    beside.replace(path)


def merge(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The slowest rank's times, the busiest one's bytes, rank 0's losses, and whether all ended alike."""
    row = dict(rows[0])
    digests = {each["digest"] for each in rows}
    at_once = zip(*(each["points"] for each in rows))
    row["points"] = [
        {**points[0], "bytes_sent": max(point["bytes_sent"] for point in points)} for points in at_once
    ]
    row["bytes_sent"] = row["points"][-1]["bytes_sent"]
    row["ranks_equal"] = len(digests) == 1
    row["step_ms"] = max(each["step_ms"] for each in rows)
    row["seconds"] = max(each["seconds"] for each in rows)
    return row


def main(given: list[str]) -> None:
    options = arguments(given)
    todo, plan = wanted(options), make_plan(options)
    world = Threads(options.ranks) if options.backend == "host" else Processes(options.backend)
    task = TASKS[options.task](options.size, world.device)
    file = read(options.out, setting(options, plan, world.size, task))
    for method, seed in left(todo, file["runs"]):
        rows = world.run(lambda rank: train(task, plan, method, seed, rank))
        row = {"method": method, "seed": seed, "backend": options.backend, **merge(rows)}
        file["runs"].append(row)
        if world.number == 0:
            write(options.out, file)
            print(f"{method} seed {seed}: loss {row['final_loss']}, {row['step_ms']:.2f} ms a step, "
                  f"ranks {'equal' if row['ranks_equal'] else 'DIFFER'}", flush=True)
    world.close()


if __name__ == "__main__":
    main(sys.argv[1:])
