"""The simulator against the ways in which others simulate: processes, `torch.func.vmap` and JAX.

    python benchmarks/other_simulators.py [--rounds 30] [--only gloo,vmap,jax] [--json FILE]

All make the same Momentum Tracking round of 8 LeNets on a ring, with batches of 100 images 1x28x28:

- gloo: one process per node, each with one thread, which exchange their vectors over gloo, as in most libraries;
- vmap: the stacked parameters of all nodes, `torch.func.functional_call` under `vmap` and `grad`;
- jax: the same in JAX, by `vmap` or by `lax.map` over the nodes, compiled with donated buffers. Needs
  `pip install 'gossamer[bench]'`.

vmap and jax have several forms; each takes the fastest of them on this machine. Before anything is measured, each must
reproduce the simulator's gradients on one batch. Rounds alternate with those of the simulator, on all cores; medians
are compared, and the ratios say how many times longer the others take.
"""

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _measurements import Table, finish
from _simulations import (
    BETA,
    CASES,
    LR,
    WEIGHT_DECAY,
    Child,
    options_or_serve,
    private_memory,
    seconds,
    simulation,
)
from torch import Tensor, nn
from torch.nn import functional

from gossamer.engine.hardware import Workers, keep_freed_memory

CASE = CASES["a"]
GROUPS = (2, 4)
"""Those of LeNet's two group normalizations."""
LIMITS = {"gloo": 5.0, "vmap": 4.0, "jax": 4.0}


def write_batch(path: Path) -> None:
    """Write one batch of every node, parameters that differ between nodes, and the simulator's gradients (NumPy)."""
    with Workers() as workers:
        run = simulation(CASE, workers, batches=1)
        x, grad, data = run.models.x, run.models.grad, run.data
        x += 0.01 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
        run._compute_gradients()
        indices = torch.stack([torch.as_tensor(own) for own in data.partition.indices])
        arrays = {"inputs": data.dataset.train_inputs[indices], "targets": data.dataset.train_targets[indices]}
        for slot in run.models.layout:
            arrays[f"x.{slot.name}"] = slot.view(x)
            arrays[f"grad.{slot.name}"] = slot.view(grad) - WEIGHT_DECAY * slot.view(x)
        np.savez(path, **{name: array.numpy() for name, array in arrays.items()})


class Batch:
    """What `write_batch` wrote, for all nodes or for some of them."""

    def __init__(self, path: str, nodes: slice = slice(None)) -> None:
        arrays = {name: array[nodes] for name, array in np.load(path).items()}
        self.inputs, self.targets = arrays["inputs"], arrays["targets"]
        self.parameters = {name[2:]: a for name, a in arrays.items() if name.startswith("x.")}
        self._gradients = {name[5:]: a for name, a in arrays.items() if name.startswith("grad.")}

    def check(self, gradients: dict[str, Any]) -> None:
        """Refuse gradients that are not those of the simulator."""
        for name, ours in self._gradients.items():
            error = np.linalg.norm(np.asarray(gradients[name]) - ours) / np.linalg.norm(ours)
            if not error < 1e-3:
                raise ValueError(f"The gradient of {name} differs from the simulator's by {error:.1e} of its norm.")


def ring_weights() -> Tensor:
    """The weights of a ring: a third for the node and for each neighbour."""
    one = torch.eye(CASE.nodes)
    return (one + one.roll(1, 0) + one.roll(-1, 0)) / 3


def fastest(forms: Iterable[Callable[[], object]]) -> Callable[[], object]:
    """The form whose best of three calls is the shortest, after one that compiles and allocates."""

    def best(form: Callable[[], object]) -> float:
        form()
        return min(seconds(form) for _ in range(3))

    return min(forms, key=best)


def simulated() -> Callable[[], dict[str, float]]:
    """A round of the simulator, with the memory of its process."""
    run = simulation(CASE, Workers())
    return lambda: {"seconds": seconds(run.advance), "private": private_memory()}


def gloo_node(path: str, rank: int, store: str) -> Callable[[], dict[str, float]]:
    """A node in its own process, which sends to its two neighbours over gloo."""
    import torch.distributed as dist

    size, batch = CASE.nodes, Batch(path, slice(rank, rank + 1))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    model = CASE.model(CASE.shape, 10)
    model.load_state_dict({name: torch.tensor(array[0]) for name, array in batch.parameters.items()})
    inputs, targets = torch.tensor(batch.inputs[0]), torch.tensor(batch.targets[0])
    dim = sum(p.numel() for p in model.parameters())
    u, c = torch.zeros(dim), torch.zeros(dim)
    peers = sorted({(rank - 1) % size, (rank + 1) % size})

    def exchange(vector: Tensor) -> Tensor:
        arrived = [torch.empty_like(vector) for _ in peers]
        requests = [dist.isend(vector, p) for p in peers] + [
            dist.irecv(a, p) for a, p in zip(arrived, peers, strict=True)
        ]
        for request in requests:
            request.wait()
        return (vector + sum(arrived)) / 3

    def compute_gradients() -> None:
        model.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()

    @torch.no_grad()
    def step() -> None:
        nonlocal u, c
        with torch.enable_grad():
            compute_gradients()
        x = nn.utils.parameters_to_vector(model.parameters())
        grad = torch.cat([p.grad.flatten() for p in model.parameters()])  # type: ignore[union-attr]
        u = BETA * u + grad + WEIGHT_DECAY * x
        moved = exchange(x) - LR * (u - c)
        c = exchange(c - u) + u
        nn.utils.vector_to_parameters(moved, model.parameters())

    compute_gradients()
    batch.check({name: p.grad[None] for name, p in model.named_parameters()})  # type: ignore[index]
    del batch
    return lambda: {"seconds": seconds(step), "private": private_memory()}


def torch_vmap(path: str) -> Callable[[], float]:
    """All nodes in one process by `torch.func`, in chunks of some nodes or all at once."""
    from torch.func import functional_call, grad, vmap

    keep_freed_memory()
    batch, model, weights = Batch(path), CASE.model(CASE.shape, 10), ring_weights()
    inputs, targets = torch.tensor(batch.inputs), torch.tensor(batch.targets)
    shapes = {name: p.shape for name, p in model.named_parameters()}
    sizes = [shape.numel() for shape in shapes.values()]
    x = torch.cat([torch.tensor(batch.parameters[name]).flatten(1) for name in shapes], 1)
    u, c = torch.zeros_like(x), torch.zeros_like(x)

    def loss(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, parameters, (inputs,)), targets)

    def gradients(chunk: int | None) -> dict[str, Tensor]:
        pieces = zip(shapes.items(), x.split(sizes, 1), strict=True)
        stacked = {name: piece.unflatten(1, shape) for (name, shape), piece in pieces}
        return vmap(grad(loss), chunk_size=chunk)(stacked, inputs, targets)

    def step(chunk: int | None) -> None:
        nonlocal x, u, c
        found = gradients(chunk)
        u = BETA * u + torch.cat([found[name].flatten(1) for name in shapes], 1) + WEIGHT_DECAY * x
        x, c = weights @ x - LR * (u - c), weights @ (c - u) + u

    batch.check(gradients(None))
    return partial(seconds, fastest(partial(step, chunk) for chunk in (None, 4, 2, 1)))


def jax_vmap(path: str) -> Callable[[], float]:
    """All nodes in one process by JAX; convolutions are XLA's own or matrix products of patches.

    XLA computes the vmapped forms mostly on one core, so mapping the nodes one by one may be faster.
    """
    import jax
    from jax import numpy as jnp

    batch, weights = Batch(path), jnp.asarray(ring_weights().numpy())
    # Channels last. They are arguments of what is compiled: constants would be computed with in advance.
    inputs, targets = jnp.asarray(batch.inputs).transpose(0, 1, 3, 4, 2), jnp.asarray(batch.targets)

    def own_convolution(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC"))

    def product_of_patches(x: Any, kernel: Any) -> Any:
        _, _, rows, columns = kernel.shape
        height, width = x.shape[1] - rows + 1, x.shape[2] - columns + 1
        patches = [x[:, r : r + height, c : c + width] for r in range(rows) for c in range(columns)]
        return jnp.concatenate(patches, -1) @ kernel.transpose(2, 3, 1, 0).reshape(-1, len(kernel))

    def pool(x: Any) -> Any:
        number, height, width, channels = x.shape
        return x.reshape(number, height // 2, 2, width // 2, 2, channels).max((2, 4))

    def normalize(x: Any, groups: int) -> Any:
        parts = x.reshape(*x.shape[:3], groups, -1)
        mean, variance = (f(parts, axis=(1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
        return ((parts - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)

    def loss(convolve: Callable[[Any, Any], Any], p: dict[str, Any], x: Any, targets: Any) -> Any:
        for (conv, norm), groups in zip((("0", "3"), ("4", "7")), GROUPS, strict=True):
            x = pool(jax.nn.relu(convolve(x, p[f"{conv}.weight"]) + p[f"{conv}.bias"]))
            x = normalize(x, groups) * p[f"{norm}.weight"] + p[f"{norm}.bias"]
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        for layer in ("9", "11", "13"):
            x = x @ p[f"{layer}.weight"].T + p[f"{layer}.bias"]
            x = x if layer == "13" else jax.nn.relu(x)
        return -jnp.take_along_axis(jax.nn.log_softmax(x), targets[:, None], 1).mean()

    def vmapped(one: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(one)

    def one_by_one(one: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *stacked: jax.lax.map(lambda own: one(*own), stacked)

    def form(convolve: Callable[[Any, Any], Any], mapped: Callable[..., Any]) -> Callable[[], object]:
        gradients = mapped(jax.grad(partial(loss, convolve)))
        x = {name: jnp.array(array) for name, array in batch.parameters.items()}
        batch.check(jax.jit(gradients)(x, inputs, targets))

        def mix(stacked: Any) -> Any:
            return jnp.tensordot(weights, stacked, 1)

        @partial(jax.jit, donate_argnums=0)
        def step(state: Any, inputs: Any, targets: Any) -> Any:
            x, u, c = state
            grad = gradients(x, inputs, targets)
            u = jax.tree.map(lambda u, g, x: BETA * u + g + WEIGHT_DECAY * x, u, grad, x)
            x = jax.tree.map(lambda x, u, c: mix(x) - LR * (u - c), x, u, c)
            return x, u, jax.tree.map(lambda u, c: mix(c - u) + u, u, c)

        state = (x, *(jax.tree.map(jnp.zeros_like, x) for _ in range(2)))

        def one() -> None:
            nonlocal state
            state = jax.block_until_ready(step(state, inputs, targets))

        return one

    forms = [(own_convolution, vmapped), (product_of_patches, vmapped), (product_of_patches, one_by_one)]
    return partial(seconds, fastest(form(*which) for which in forms))


ROLES: dict[str, Callable[..., Callable[[], Any]]] = {
    "simulated": simulated,
    "gloo": gloo_node,
    "vmap": torch_vmap,
    "jax": jax_vmap,
}


def against_processes(path: str, ours: Child, rounds: int) -> tuple[float, float]:
    """(time, private memory) of eight processes over gloo, as ratios to the simulator."""
    with tempfile.TemporaryDirectory() as directory:
        nodes = [Child("gloo", path, rank, f"{directory}/store") for rank in range(CASE.nodes)]
        taken = []
        for _ in range(3 + rounds):
            for node in nodes:
                node.start()
            taken.append(([node.answer() for node in nodes], ours.ask()))
        for node in nodes:
            node.close()
    times = [(max(a["seconds"] for a in answers), mine["seconds"]) for answers, mine in taken[3:]]
    answers, mine = taken[-1]
    memory = sum(a["private"] for a in answers) / mine["private"]
    return median(a for a, _ in times) / median(b for _, b in times), memory


def against(role: str, path: str, ours: Child, rounds: int) -> float:
    """The time of another form in one process, as a ratio to the simulator."""
    other = Child(role, path)
    pairs = [(other.ask(), ours.ask()["seconds"]) for _ in range(3 + rounds)][3:]
    other.close()
    return median(a for a, _ in pairs) / median(b for _, b in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="gloo,vmap,jax", help="what to compare with")
    options = options_or_serve(parser, ROLES)
    table, wanted = Table(50, at_most=False), options.only.split(",")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "batch.npz"
        write_batch(path)
        ours = Child("simulated")
        if "gloo" in wanted:
            slower, larger = against_processes(str(path), ours, options.rounds)
            table.show("8 processes over gloo: time over ours", slower, LIMITS["gloo"])
            table.show("8 processes over gloo: memory over ours", larger, 5.0)
        if "vmap" in wanted:
            table.show(
                "torch.func.vmap: time over ours", against("vmap", str(path), ours, options.rounds), LIMITS["vmap"]
            )
        if "jax" in wanted and importlib.util.find_spec("jax") is None:
            print("JAX: skipped, because JAX is not installed; run: pip install 'gossamer[bench]'")
        elif "jax" in wanted:
            table.show(
                "JAX, vmap or lax.map: time over ours", against("jax", str(path), ours, options.rounds), LIMITS["jax"]
            )
        ours.close()
    return finish(table, options)


if __name__ == "__main__":
    sys.exit(main())
