"""One rank of a training in f16 on two GPUs, whose gradients overflow on rank 1 twice: test_scaling.py.

    python -m tests.scaling STORE RANK dense|sparse

Each rank prints as JSON what there is before the first step and after each one.
"""

import hashlib
import json
import sys
from typing import Any

import torch
import torch.distributed as dist
import tributary.torch as ours
from torch.nn.parallel import DistributedDataParallel

from .models import numbers, wide

#: Of the bad steps, one before and one after the sparse hook's places have moved into DDP's buckets.
STEPS, BAD = 8, (1, 5)
#: With it the gradients of other steps are far from overflowing.
SCALE = 128.0


def make_scaler() -> Any:
    """That of torch, under the name that this version has."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", init_scale=SCALE)
    return torch.cuda.amp.GradScaler(init_scale=SCALE)


def attach(method: str, ddp: Any, scaler: Any, **options: Any) -> Any:
    if method == "dense":
        return ours.dense(ddp, **options)
    options = {"density": 0.01, "algorithm": "topka", "momentum": 0.9, **options}
    return ours.sparse(ddp, scaler=scaler, **options)


def digest(tensors: Any) -> str:
    """Of all bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def point(ddp: Any, hook: Any, scaler: Any, finite: list[Any]) -> dict[str, Any]:
    """`finite`: whether this rank's own gradients were so, of each parameter."""
    is_sparse = isinstance(hook, ours.Sparse)
    return {
        "finite": all(bool(one) for one in finite),
        "scale": scaler.get_scale(),
        "parameters": digest(ddp.parameters()),
        "applied": hook.applied if is_sparse else None,
        "residuals": digest([hook.state_dict()["state"]]) if is_sparse else None,
    }


def train(ddp: Any, hook: Any, scaler: Any, rank: int) -> list[dict[str, Any]]:
    # By weight decay a step changes parameters even if all gradients are 0, unless it is skipped.
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4, weight_decay=0.1)
    finite: list[Any] = []  # before DDP and its hook see the gradients
    for parameter in ddp.parameters():
        parameter.register_hook(lambda gradient: finite.append(gradient.isfinite().all()))
    points = [point(ddp, hook, scaler, finite)]
    for step in range(STEPS):
        finite.clear()
        optimizer.zero_grad()
        with torch.autocast(ddp.device.type, torch.float16):
            out = ddp(numbers(100 * step + rank, 4, 6).to(ddp.device))
        loss = out.float().square().mean()
        if rank == 1 and step in BAD:
            loss = 1e9 * loss  # finite, but not its gradients in f16
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        points.append(point(ddp, hook, scaler, finite))
    return points


def main(store: str, rank: int, method: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    ddp = DistributedDataParallel(wide().to(torch.device("cuda", rank)), device_ids=[rank])
    scaler = make_scaler()
    hook = attach(method, ddp, scaler)
    print(json.dumps(train(ddp, hook, scaler, rank)), flush=True)
    hook.comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
