"""How the other programs here with PyTorch measure a call."""

import torch
import torch.distributed as dist


def measure(call, options):
    """Median and p99, in microseconds, of the slowest rank."""
    for _ in range(options.warmup):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(options.iterations + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    times = [1e3 * a.elapsed_time(b) for a, b in zip(events, events[1:])]
    times = torch.tensor(times, device="cuda", dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    times = times.sort().values
    last = len(times) - 1
    return times[len(times) // 2].item(), times[(last * 99 + 50) // 100].item()
