"""Shows the work of a CUDA device while a program trains on `to_device` batches.

Prints a timeline with one row for copies and one for kernels, the share of copying
during computation, and the number of device allocations after the first batches.
Without a CUDA device it only prints a message.

    python benchmarks/timeline_to_device.py
"""

import sys

import torch
from torch.profiler import ProfilerActivity, profile

import gristmill
from bench_to_device import batches_in_slots
from gristmill.torch import to_device

WARM = 16
SHOWN = 12
COLUMNS = 100


def _train(batches, steps: int, weight: torch.Tensor) -> None:
    """Runs steps that compute slightly longer than a batch takes to copy."""
    for _ in range(steps):
        batch = next(batches)
        rows = batch.flatten(1)[:, : len(weight)].to(weight.dtype)
        for _ in range(4):
            weight @ weight
        (rows @ weight).sum()
        del batch, rows


def _spans(events) -> tuple[list, list]:
    """Returns the (begin, end) of copies to the device and of kernels, in us."""
    copies, kernels = [], []
    for event in events:
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        span = event.time_range.start, event.time_range.end
        if "Memcpy HtoD" in event.name:
            copies.append(span)
        elif not event.name.startswith(("Memcpy", "Memset")):
            kernels.append(span)
    return copies, kernels


def _row(spans, begin: float, end: float) -> str:
    """Returns a line with a mark for each column that a span touches."""
    width = (end - begin) / COLUMNS
    marks = [" "] * COLUMNS
    for first, last in spans:
        for column in range(int((first - begin) / width), int((last - begin) / width)):
            marks[min(column, COLUMNS - 1)] = "#"
    return "".join(marks)


def _overlap_share(copies, kernels) -> float:
    """Returns the share of the copying time during which a kernel ran."""
    both = sum(
        max(0.0, min(end, last) - max(begin, first))
        for begin, end in copies
        for first, last in kernels
    )
    return both / sum(end - begin for begin, end in copies)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("There is no CUDA device here: nothing to show.")
    loader, in_slots = batches_in_slots()
    endless = (in_slots[step % len(in_slots)] for step in range(10_000))
    batches = to_device(endless, "cuda")
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    _train(batches, WARM, weight)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["num_device_alloc"]
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as trace:
        _train(batches, SHOWN, weight)
        torch.cuda.synchronize()
    allocated = torch.cuda.memory_stats()["num_device_alloc"] - before
    batches.close()
    loader.close()

    copies, kernels = _spans(trace.events())
    begin = min(first for first, _ in copies + kernels)
    end = max(last for _, last in copies + kernels)
    print(f"gristmill {gristmill.__version__}, {torch.cuda.get_device_name()}")
    print(f"{(end - begin) / 1e3:.1f} ms, {SHOWN} batches")
    print(f"copies  |{_row(copies, begin, end)}|")
    print(f"kernels |{_row(kernels, begin, end)}|")
    overlap = _overlap_share(copies, kernels)
    print(f"{overlap:.0%} of the copying overlapped with computation")
    print(f"{allocated} allocations of device memory")


if __name__ == "__main__":
    main()
