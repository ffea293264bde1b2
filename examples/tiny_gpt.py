"""A small character-level transformer, trained across nodes that each hold a different text.

    python examples/tiny_gpt.py                                                # 1 process: plain local training
    torchrun --standalone --nproc-per-node 4 examples/tiny_gpt.py              # 4 nodes, a minute or two on 2 cores
    torchrun --standalone --nproc-per-node 4 examples/tiny_gpt.py --every 5 --compress quantize:bits=4   # fewer bytes
    torchrun --nnodes 2 --nproc-per-node 2 --node-rank 0 --master-addr HOST --master-port 29500 examples/tiny_gpt.py
                                                  # 4 nodes on two hosts: HOST is the first, the other has --node-rank 1

Strangers who reach the port of a run can disturb it, with --standalone even run code: see docs/multi_host.md before you
use several hosts.

The texts are packages of Python's standard library: node 0 reads asyncio, node 1 email, and so on. No text leaves its
node; the averaged model learns all of them. For slow links, `--compress` shortens the messages and `--every` sends them
after several steps; what was sent is printed beside the loss.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer

TEXTS = ("asyncio", "email", "unittest", "http", "xml", "logging", "importlib", "multiprocessing")
CHARACTERS = 128  # ASCII
CONTEXT = 64


class Block(nn.Module):
    """Causal self-attention and a perceptron, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, time, width] -> [batch, time, width]."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    """Predicts the next character."""

    def __init__(self, width: int = 96, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.character, self.position = nn.Embedding(CHARACTERS, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CHARACTERS))

    def forward(self, text: Tensor) -> Tensor:
        """[batch, time] characters -> [batch, time, CHARACTERS] logits of the next character."""
        return self.head(self.blocks(self.character(text) + self.position.weight[: text.shape[1]]))

    def loss(self, text: Tensor) -> Tensor:
        """Cross entropy per character, in nats, of [batch, time + 1] characters."""
        return F.cross_entropy(self(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    @torch.no_grad()
    def sample(self, start: str, length: int, generator: torch.Generator) -> str:
        """Continue `start` by `length` characters."""
        text = encode(start)[None]
        for _ in range(length):
            chances = F.softmax(self(text[:, -CONTEXT:])[0, -1] / 0.8, dim=-1)
            text = torch.cat([text, torch.multinomial(chances, 1, generator=generator)[None]], dim=1)
        return bytes(text[0].tolist()).decode("ascii")


def encode(text: str) -> Tensor:
    """One number per character; other characters than ASCII become question marks."""
    return torch.tensor(list(text.encode("ascii", "replace")))


def read_package(name: str) -> Tensor:
    """The concatenated sources of a package of the standard library."""
    folder = Path(find_spec(name).origin).parent
    return encode("\n".join(file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.py"))))


def cut(text: Tensor, starts: Tensor) -> Tensor:
    """Pieces of CONTEXT + 1 characters [len(starts), CONTEXT + 1]."""
    return text[starts[:, None] + torch.arange(CONTEXT + 1)]


def make_optimizer(model: TinyGPT, args: argparse.Namespace) -> gossamer.optim.DecentralizedOptimizer:
    """Momentum Tracking, MoTEF where messages are compressed, and local steps around either where they are rare."""
    settings = {"lr": args.lr, "momentum": 0.9}
    if args.every != 1:
        inner = torch.optim.SGD(model.parameters(), **settings)  # has the momentum: the exchange needs none
        method = gossamer.BEER(compress=args.compress) if args.compress else "gradient-tracking"
        return gossamer.optim.Outer(inner, method, every=args.every, topology=args.topology)
    if args.compress:
        return gossamer.optim.MoTEF(model.parameters(), **settings, compress=args.compress, topology=args.topology)
    return gossamer.optim.MomentumTracking(model.parameters(), **settings, topology=args.topology)


def main() -> None:
    """Train, and show the averaged model before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--topology", default="ring", help="who talks to whom: ring, star, chain, hypercube, ...")
    parser.add_argument("--every", type=int, default=1, help="steps between two exchanges")
    parser.add_argument("--compress", help="compress messages: quantize:bits=4, top-k:share=0.01, ...")
    args = parser.parse_args()

    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = TinyGPT()
    optimizer = make_optimizer(model, args)

    node, nodes = optimizer.node, optimizer.network.n
    if nodes > len(TEXTS):
        parser.error(f"there are {len(TEXTS)} texts but {nodes} nodes; name more packages in TEXTS")
    text = read_package(TEXTS[node])
    training, validation = text.tensor_split([int(0.9 * len(text))])
    held = cut(validation, torch.linspace(0, len(validation) - CONTEXT - 1, 64).long())
    draws = torch.Generator().manual_seed(node)

    def evaluate() -> list[float]:
        """The averaged model's loss on every node's held-out text."""
        with gossamer.averaged(model), torch.no_grad():
            losses = torch.zeros(nodes)
            losses[node] = model.loss(held)
        if dist.is_initialized():
            dist.all_reduce(losses)
        return losses.tolist()

    def sent() -> float:
        """Megabytes that this node has sent for training."""
        return (optimizer.stats()["bytes_sent"] - evaluated) / 1e6

    before = evaluate()
    evaluated = optimizer.stats()["bytes_sent"]
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(training) - CONTEXT, (args.batch_size,), generator=draws)
        loss = model.loss(cut(training, starts))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if node == 0 and step % 50 == 0:
            print(f"step {step:4d}  training loss of node 0: {loss.item():.2f}  sent: {sent():.1f} MB", flush=True)
    cost = f"{sent():.1f} MB sent by node 0"
    after = evaluate()

    gossamer.average_(model)  # the model to deploy, the same on every node
    if node == 0:
        print(f"validation loss of the averaged model, nats per character, after {cost}")
        for name, first, last in zip(TEXTS, before, after, strict=False):
            print(f"  {name:<16} before {first:.2f}  after {last:.2f}")
        print(model.sample("    def ", 200, draws))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
