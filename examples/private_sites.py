"""Train across sites with differential privacy: all that a site sends was computed from clipped, noisy gradients.

    python examples/private_sites.py --epsilon 8                               # 1 process: plain local training
    torchrun --standalone --nproc-per-node 4 examples/private_sites.py --epsilon 3
    torchrun --standalone --nproc-per-node 4 examples/private_sites.py --table results/privacy/measured.json
                                                  # accuracy against epsilon: 48 trainings, half an hour on one core

It needs Opacus: pip install 'gossamer[privacy]'. Strangers who reach the port of torchrun can run code: see
docs/multi_host.md before you use several hosts. docs/privacy.md explains what is protected, against whom, and what is
not.

Every site has its own accountant and prints its own epsilon. Step sizes were chosen on these public data sets; a search
on private data costs privacy, too, and no accountant here knows of it.
"""

import argparse
import json
import time
import warnings
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from opacus.accountants.utils import get_noise_multiplier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gossamer
from gossamer.integrations.opacus import PrivacyEngine

# Opacus hooks the first layer, whose input needs no gradient: torch remarks on it.
warnings.filterwarnings("ignore", "Full backward hook is firing")

DELTA, CLIP, MOMENTUM, CLASSES = 1e-5, 1.0, 0.9, 4
METHODS = {"momentum-tracking": gossamer.optim.MomentumTracking, "dsgdm": gossamer.optim.DSGDm}
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"model": "small-cnn", "rounds": 60, "batch_size": 64},
    "fashion-mnist": {"model": "lenet", "rounds": 150, "batch_size": 128},
}
STEP_SIZES: dict[str, dict[float | None, float]] = {
    "digits": {None: 0.02, 8.0: 0.1, 3.0: 0.05, 1.0: 0.02},
    "fashion-mnist": {None: 0.02, 8.0: 0.1, 3.0: 0.1, 1.0: 0.05},
}
"""By epsilon, for both methods: clipped gradients are short, and with more noise steps should be shorter."""
SEEDS = (0, 1, 2)


def train(
    data: gossamer.data.Dataset,
    method: str,
    epsilon: float | None,
    seed: int,
    *,
    model: str,
    rounds: int,
    batch_size: int,
    lr: float,
    noise_seed: int | None = None,
) -> dict[str, float]:
    """One training on this site, and what came of it; without an epsilon there is neither clipping nor noise."""
    torch.manual_seed(seed)  # equal models on all sites
    net: nn.Module = gossamer.models.get(model)(data.sample_shape, data.num_classes)
    optimizer = METHODS[method](net.parameters(), lr=lr, momentum=MOMENTUM, topology="ring")
    site, sites = optimizer.node, optimizer.network.n
    classes = max(CLASSES, -(-data.num_classes // sites))
    parts = data.split(gossamer.partition.k_class(nodes=sites, k=classes, seed=seed), holdout=0)
    mine = parts.partition.indices[site]
    own = TensorDataset(data.normalization(data.train_inputs[mine]), data.train_targets[mine])
    order = torch.Generator().manual_seed(1000 * seed + site)
    loader = DataLoader(own, batch_size=batch_size, shuffle=True, generator=order)

    stepping: torch.optim.Optimizer = optimizer
    noise = spent = 0.0
    if epsilon is not None:
        noise = noise_for(epsilon, 1 / len(loader), rounds)
        engine = PrivacyEngine(delta=DELTA, seed=None if noise_seed is None else 1000 * noise_seed + site)
        net, stepping, loader = engine.make_private(
            module=net, optimizer=optimizer, data_loader=loader, noise_multiplier=noise, max_grad_norm=CLIP
        )
    for inputs, targets in gossamer.rounds(loader, rounds):
        stepping.zero_grad()
        nn.functional.cross_entropy(net(inputs), targets).backward()
        stepping.step()  # with an empty batch, too: the neighbours count on it
    if epsilon is not None:
        spent = engine.epsilon()

    own_accuracy = accuracy(net, data)
    with gossamer.averaged(net):
        averaged_accuracy = accuracy(net, data)
    optimizer.close()
    return {
        "site": site,
        "examples": len(own),
        "batches": len(loader),
        "noise": noise,
        "epsilon": spent,
        "accuracy": own_accuracy,
        "averaged": averaged_accuracy,
    }


@cache
def noise_for(epsilon: float, sample_rate: float, rounds: int) -> float:
    """The noise with which Opacus's accountant arrives at epsilon after these rounds."""
    given = {"sample_rate": sample_rate, "steps": rounds, "accountant": "prv"}
    return float(get_noise_multiplier(target_epsilon=epsilon, target_delta=DELTA, **given))


@torch.no_grad()
def accuracy(net: nn.Module, data: gossamer.data.Dataset) -> float:
    """On the test set, which is public."""
    found = [net(data.normalization(inputs)).argmax(1) for inputs in data.test_inputs.split(1000)]
    return float((torch.cat(found) == data.test_targets).float().mean())


def of_all_sites(told: dict[str, float]) -> list[dict[str, float]]:
    """What every site tells, in the order of sites. These figures are published; they are no part of the training."""
    mine = torch.tensor(list(told.values()), dtype=torch.float64)
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())] if dist.is_initialized() else [mine]
    if dist.is_initialized():
        dist.all_gather(rows, mine)
    return sorted((dict(zip(told, row.tolist(), strict=True)) for row in rows), key=lambda row: row["site"])


def table(place: Path) -> None:
    """All data sets, methods, epsilons and seeds: the figures of every site as JSON, written after every training."""
    runs, began = [], time.monotonic()
    for name, settings in SETTINGS.items():
        data = gossamer.data.load(name)
        for seed, method, (epsilon, lr) in product(SEEDS, METHODS, STEP_SIZES[name].items()):
            run = {"dataset": name, "method": method, "epsilon": epsilon, "seed": seed, **settings, "lr": lr}
            sites = of_all_sites(train(data, method, epsilon, seed, noise_seed=seed, **settings, lr=lr))
            runs.append({**run, "sites": sites})
            if dist.is_initialized() and dist.get_rank() > 0:
                continue
            mean = sum(row["accuracy"] for row in sites) / len(sites)
            print(f"{time.monotonic() - began:6.0f} s  {run}: {mean:.1%}", flush=True)
            launch = f"torchrun --standalone --nproc-per-node {len(sites)}"
            about = {
                "command": f"{launch} examples/private_sites.py --table {place}",
                "seconds": round(time.monotonic() - began),
                "versions": {package: version(package) for package in ("torch", "opacus", "gossamer")},
                **{"delta": DELTA, "clip": CLIP, "momentum": MOMENTUM, "k": CLASSES, "topology": "ring"},
                "nodes": len(sites),
            }
            rows = ",\n".join(map(json.dumps, runs))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f'{json.dumps(about, indent=1)[:-2]},\n "runs": [\n{rows}\n]}}\n', encoding="utf-8")


def main() -> None:
    """Train once, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits", choices=SETTINGS)
    parser.add_argument("--method", default="momentum-tracking", choices=METHODS)
    parser.add_argument("--epsilon", type=float, help="of every site; without it there is no privacy")
    parser.add_argument("--lr", type=float, help="by default that of the nearest epsilon in the table")
    parser.add_argument("--rounds", type=int, help="by default those of the table")
    parser.add_argument("--table", type=Path, metavar="FILE", help="make the table of docs/privacy.md")
    args = parser.parse_args()
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    torch.set_num_threads(1)
    if args.table:
        table(args.table)
    else:
        sizes = STEP_SIZES[args.dataset]
        near = min((e for e in sizes if e), key=lambda e: abs(e - args.epsilon)) if args.epsilon else None
        settings = {**SETTINGS[args.dataset], "lr": args.lr or sizes[near]}
        settings["rounds"] = args.rounds or settings["rounds"]
        told = train(gossamer.data.load(args.dataset), args.method, args.epsilon, seed=0, **settings)
        spent = f"epsilon {told['epsilon']:.2f} at delta {DELTA:g}" if args.epsilon else "no privacy"
        print(
            f"site {told['site']}: {spent}, {told['examples']} examples, noise {told['noise']:.2f}; "
            f"test accuracy {told['accuracy']:.1%}, averaged model {told['averaged']:.1%}"
        )
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
