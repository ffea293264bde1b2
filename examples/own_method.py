"""A method of your own: written once, checked by the conformance kit, run on simulated and on real nodes.

    python examples/own_method.py                                      # check it, simulate 8 nodes in this process
    torchrun --standalone --nproc-per-node 4 examples/own_method.py    # train 4 real nodes, compare with the simulator

The method is Momentum Tracking with Nesterov's momentum: the nodes track the average of the look-ahead direction
G + beta U instead of the momentum U itself. docs/own_method.md has the plain form. Here the message travels while the
next gradient is computed, and an ordinary training loop for real nodes is included. Strangers who reach the port of
torchrun can run code: see docs/multi_host.md.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

import gossamer


@dataclass
class NesterovState(gossamer.TrackingState):
    """What every tracking method remembers, and the momentum."""

    u: Tensor


@dataclass(frozen=True, eq=False)
class NesterovTracking(gossamer.Method):
    """U <- beta U + G;  V <- G + beta U;  Y <- W Y + V - V_old;  X <- W X - eta Y."""

    name = "nesterov-tracking"
    facts = gossamer.Facts(
        title="Nesterov Tracking", sends=2, exact=True, exact_on_schedules=True, tracks=True, overlaps=True
    )
    beta: float = 0.9

    def initial(self, x, net):
        """U = V = Y = 0; all nodes start equal, so that W X = X needs no message."""
        return NesterovState.start(x, u=torch.zeros_like(x))

    def step(self, state, x, grad, lr, net, round):
        """One round, in place, on one node's vectors [d] or on those of all nodes [N, d]."""
        wx, wy = state.mixed.wait()  # sent at the end of the last round
        state.u.mul_(self.beta).add_(grad)
        v = grad + self.beta * state.u
        y = wy.add_(v).sub_(state.signal)
        state.signal.copy_(v)
        torch.sub(wx, lr * y, out=x)
        state.send(x, y, net, round + 1)


def flat(model: nn.Module) -> Tensor:
    """All parameters of a model as one vector [d]."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def train(parts: gossamer.data.NodeData, method: gossamer.Method, lr: float, rounds: int) -> Tensor:
    """One real node: an ordinary loop on its own part of the data, in the simulator's order; all parameters [N, d]."""
    data = parts.dataset
    torch.manual_seed(0)
    model = gossamer.models.SmallCNN(data.sample_shape, data.num_classes)
    optimizer = gossamer.optim.optimizer_of(method, model.parameters(), lr=lr, topology="ring")
    batches = gossamer.data.NodeBatches(parts.partition.indices, batch_size=32, seed=0)
    for _ in range(rounds):
        index = batches.next(optimizer.node)
        outputs = model(data.normalization(data.train_inputs[index]))
        optimizer.zero_grad()
        nn.functional.cross_entropy(outputs, data.train_targets[index]).backward()
        optimizer.step()
    rows = torch.zeros(parts.nodes, flat(model).numel())
    rows[optimizer.node] = flat(model)
    dist.all_reduce(rows)
    return rows


def main() -> None:
    """Check and simulate or, under torchrun, train on real nodes and compare with the simulator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    nodes = dist.get_world_size() if dist.is_initialized() else 8

    method = NesterovTracking(beta=0.9)
    parts = gossamer.data.load("digits").split(
        gossamer.partition.k_class(nodes=nodes, k=10 if nodes == 1 else 5, seed=0)
    )
    real = None
    if dist.is_initialized():
        real = train(parts, method, args.lr, args.rounds)
    else:
        print(gossamer.testing.check_method(method))
    if not dist.is_initialized() or dist.get_rank() == 0:
        run = gossamer.simulate(
            gossamer.models.SmallCNN, parts, method, "ring", lr=args.lr, batch_size=32, rounds=args.rounds
        )
        print(f"simulated: {nodes} nodes, mean test accuracy {run.accuracy:.1%} after {args.rounds} rounds")
        if real is not None:
            simulated = torch.stack([flat(model) for model in run.models])
            gap = (real - simulated).abs().max() / simulated.abs().max()
            print(f"real: {nodes} nodes, parameters differ from the simulated ones by {gap:.0e} of the largest")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
