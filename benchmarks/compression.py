"""What compression costs: encoding and decoding in a round of MoTEF, against a training step of LeNet, side by side.

    python benchmarks/compression.py [--repeats 15] [--json FILE]

LeNet on 3x32x32 images, 62,050 parameters, batch 100, one thread. The training step is PyTorch's own: forward, backward
and torch.optim.SGD. In a round a node of a ring compresses and encodes two vectors and decodes two from each of its two
neighbours. Limit: together 15 % of the training step. Times are processor time of the thread, which never waits here:
on an idle machine that is wall-clock time, on a busy one it is fairer.
"""

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from _measurements import Measurement, finish, options_of

from gossamer import compression
from gossamer.compression import Compressor
from gossamer.models import LeNet

LIMIT = 0.15
VECTORS, NEIGHBOURS, BATCH, ROUNDS = 2, 2, 100, 10
SPECS = (
    *(f"quantize:bits={bits}" for bits in (8, 4, 3, 2, 1)),
    *(f"{name}:share={share}" for name in ("top-k", "random-k") for share in (0.1, 0.01)),
)


def training_step() -> Callable[[], None]:
    """Forward, backward and SGD on a batch."""
    model, images, classes = LeNet((3, 32, 32), 10), torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), classes).backward()
        optimizer.step()

    return step


def coding(compressor: Compressor, dim: int) -> Callable[[], None]:
    """What one node encodes and decodes in a round."""
    vectors = [torch.randn(dim) for _ in range(VECTORS)]
    turn = 0

    def code() -> None:
        nonlocal turn
        turn += 1
        for vector in vectors:
            wire = compressor.compress(vector, turn).wire()
            for _ in range(NEIGHBOURS):
                compressor.decode(wire, vector)

    return code


def seconds(work: Callable[[], None]) -> float:
    began = time.thread_time()
    for _ in range(ROUNDS):
        work()
    return (time.thread_time() - began) / ROUNDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repetitions; medians are compared")
    options = options_of(parser)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dim = sum(p.numel() for p in LeNet((3, 32, 32), 10).parameters())
    step = training_step()
    works = {spec: coding(compression.get(spec), dim) for spec in SPECS}
    rows = [[seconds(step), *map(seconds, works.values())] for _ in range(options.repeats + 1)][1:]
    print(f"LeNet, {dim:,} parameters, batch {BATCH}, 1 thread, medians of {options.repeats}")
    measurements = [Measurement("training step", 1e3 * median(row[0] for row in rows), "ms")]
    print(f"training step: {measurements[0].value:.1f} ms")
    for k, spec in enumerate(SPECS, start=1):
        coded = Measurement("encoding and decoding", 1e3 * median(row[k] for row in rows), "ms", case=spec)
        share = Measurement(
            "encoding and decoding over a training step",
            median(row[k] / row[0] for row in rows),
            "share",
            limit=LIMIT,
            case=spec,
        )
        measurements += [coded, share]
        print(f"{spec:<20}{coded.value:>8.2f} ms{100 * share.value:>8.1f} %  {share.judgement}", flush=True)
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
