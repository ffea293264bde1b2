"""Three tasks that are not image classification: a regression, a multi-label task and a next-token transformer.

    python examples/own_tasks.py                                               # simulates all three, a few seconds
    gossamer sweep examples/own_tasks.toml --load examples/own_tasks.py        # the same from a file, with three seeds
    torchrun --standalone --nproc-per-node 4 -m gossamer run examples/own_tasks.toml --load examples/own_tasks.py \
        --dataset texts --method momentum-tracking --seed 0                    # one of them on four real processes

Registered under their names, datasets and models can be used on the command line, in TOML files and on real nodes.
Strangers who reach the port of torchrun can run code: see docs/multi_host.md.
"""

import inspect
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

import gossamer as gs


@gs.data.register("houses")
def houses() -> gs.data.Dataset:
    """A regression: prices in four regions, which are the groups that partitions divide by."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 8))
    y = x @ rng.normal(size=8) + 0.1 * rng.normal(size=1200)
    region = (x[:, 0] > 0) + 2 * (x[:, 1] > 0)
    return gs.data.Dataset.from_tensors(x[:1000], y[:1000], test=(x[1000:], y[1000:]), groups=region[:1000])


@gs.data.register("symptoms")
def symptoms() -> gs.data.Dataset:
    """A multi-label task: which of five symptoms are there."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1200, 10))
    labels = x @ rng.normal(size=(10, 5)) + 0.5 * rng.normal(size=(1200, 5)) > 1
    hospital = (x[:, 0] > 0) + 2 * (x[:, 1] > 0)
    return gs.data.Dataset.from_tensors(x[:1000], labels[:1000], (x[1000:], labels[1000:]), groups=hospital[:1000])


@gs.models.register("linear")
def linear(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """One layer, for either."""
    return nn.Linear(shape[0], outputs)


@gs.data.register("texts")
def texts() -> gs.data.Dataset:
    """Next-token prediction on four texts, modules of Python's standard library: each is a group."""
    parts = [_pieces(module) for module in (inspect, __import__("argparse"), __import__("ast"), __import__("json"))]
    text, source = torch.cat(parts), torch.cat([torch.full((len(p),), k) for k, p in enumerate(parts)])
    test = torch.arange(len(text)) % 5 == 0
    pairs = (text[~test, :-1], text[~test, 1:]), (text[test, :-1], text[test, 1:])
    return gs.data.Dataset.from_tensors(*pairs[0], pairs[1], classes=128, groups=source[~test])


def _pieces(module: ModuleType, length: int = 33, most: int = 200) -> Tensor:
    text = torch.tensor(list(inspect.getsource(module).encode("ascii", "replace")))
    return text[: len(text) // length * length].view(-1, length)[:most]


@gs.models.register("next-token")
class NextToken(nn.Module):
    """A transformer of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.character, self.position = nn.Embedding(128, 32), nn.Embedding(32, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 128)

    def forward(self, text: Tensor) -> Tensor:
        """[batch, time] characters -> [batch, time, 128] logits of the next character."""
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        return self.head(self.layer(self.character(text) + self.position.weight, mask))


if __name__ == "__main__":
    for name, model, loss, lr in (
        ("houses", linear, "mse", 0.02),
        ("symptoms", linear, "bce", 0.2),
        ("texts", NextToken, "token-cross-entropy", 0.1),
    ):
        nodes = gs.data.load(name).split(gs.partition.k_class(nodes=4, k=1, seed=0))
        run = gs.simulate(model, nodes, "momentum-tracking", "ring", lr=lr, loss=loss, batch_size=20, epochs=5)
        print(f"{name}: {run.metric.name} {run.history[run.metric.name][0]:.3f} -> {run.score:.3f}")
