"""What a training loop calls besides the optimizer: the averaged model, and equally many rounds on every node.

The averaged model is the one to evaluate at the end, to export and to deploy. The nodes' models differ by how far the
last rounds' gradients pulled them apart; their exact mean is what theory speaks about and is usually the best of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from gossamer import topology
from gossamer.errors import InputError
from gossamer.network import DistributedNetwork
from gossamer.optim.bucket import finite_mean, local, work_type
from gossamer.optim.decentralized import DecentralizedOptimizer, live_optimizers
from gossamer.optim.process_group import find_group

Batch = TypeVar("Batch")


def average_(model: nn.Module, group: dist.ProcessGroup | DeviceMesh | None = None) -> nn.Module:
    """Overwrite the model on every node with the exact mean over the nodes, and return it. All nodes must call it.

    Parameters and floating-point buffers (BatchNorm's running statistics) are averaged; other buffers stay. Where a
    number in a buffer is not finite on some nodes, the mean is that of the others; where it is finite on none, as in a
    mask, each node keeps its own. Training continues from the average: the optimizer is told (`resend`). To only look
    at the average use `averaged`. The nodes are those of the model's optimizer or, without one, of `group`.

    >>> model = nn.Linear(2, 1)
    >>> average_(model) is model
    True
    """
    optimizers = _optimizers(model)
    _average(model, optimizers, group)
    for optimizer in optimizers:
        optimizer.resend()
    return model


@contextmanager
def averaged(model: nn.Module, group: dist.ProcessGroup | DeviceMesh | None = None) -> Iterator[nn.Module]:
    """Inside this block the model is the averaged one; after it, each node's own again, to the bit. All nodes enter it.

    >>> model = nn.Linear(2, 1)
    >>> with averaged(model):
    ...     shape = model(torch.ones(1, 2)).shape
    """
    optimizers = _optimizers(model)
    own = [t.detach().clone() for t in _tensors(model)]
    untouched = [bucket for optimizer in optimizers for bucket in optimizer.untouched()]
    _average(model, optimizers, group)
    try:
        yield model
    finally:
        with torch.no_grad():
            for tensor, value in zip(_tensors(model), own, strict=True):
                tensor.copy_(value)
        for bucket in untouched:
            bucket.note()


def _average(
    model: nn.Module, optimizers: list[DecentralizedOptimizer], group: dist.ProcessGroup | DeviceMesh | None
) -> None:
    if optimizers and optimizers[0].membership is not None:
        optimizers[0].membership.together(lambda: _overwrite(model, optimizers[0].network, optimizers[0].round))
    elif optimizers:
        _overwrite(model, optimizers[0].network, optimizers[0].round)
    else:
        _overwrite(model, _network(group), 0)


def _overwrite(model: nn.Module, net: DistributedNetwork, round: int) -> None:
    by_type: defaultdict[tuple[torch.dtype, torch.device, bool], list[Tensor]] = defaultdict(list)
    trained = sum(1 for _ in model.parameters())
    for k, tensor in enumerate(_tensors(model)):
        by_type[work_type(tensor.dtype), tensor.device, k < trained].append(tensor)
    with torch.no_grad():
        means = []
        for (dtype, _, is_trained), some in by_type.items():
            flat = torch.cat([t.detach().reshape(-1).to(dtype) for t in some])
            mean = net.average(flat, round=round) if is_trained else finite_mean(flat, net, range(net.n), round)
            means.append(mean)
        if net.waiting.rebuilds:
            net.join()  # before anybody goes on: if a site has failed meanwhile, all take the mean again
        for mean, tensors in zip(means, by_type.values(), strict=True):
            for tensor, part in zip(tensors, torch.split(mean, [t.numel() for t in tensors]), strict=True):
                tensor.copy_(part.view_as(tensor))


def _tensors(model: nn.Module) -> list[Tensor]:
    """Parameters and then floating-point buffers, each once."""
    return [local(t) for t in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point()))]


def _optimizers(model: nn.Module) -> list[DecentralizedOptimizer]:
    """The optimizers of the model's parameters, in the same order on all nodes.

    One that another has replaced does not count: on some nodes it may have been collected already, on others not yet.
    """
    left, found = {id(p) for p in model.parameters()}, []
    for optimizer in reversed(live_optimizers()):
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if mine & left:
            found.append(optimizer)
            left -= mine
    return found[::-1]


def _network(group: dist.ProcessGroup | DeviceMesh | None) -> DistributedNetwork:
    processes = find_group(group)
    size, rank = (1, 0) if processes is None else (processes.size(), processes.rank())
    return DistributedNetwork(topology.complete(size), processes, node=rank)


def rounds(loader: Iterable[Batch], n: int) -> Iterator[Batch]:
    """`n` batches of `loader`, starting it again as often as needed.

    Rounds are synchronous: a node that ran out of data earlier than the others would leave them waiting. A sampler with
    `set_epoch` is told the number of the pass.

    >>> list(rounds([1, 2, 3], 5))
    [1, 2, 3, 1, 2]
    """
    if n < 0:
        raise InputError(f"The number of rounds is {n}, but it cannot be below 0.")
    return _cycle(loader, n)


def _cycle(loader: Iterable[Batch], n: int) -> Iterator[Batch]:
    given = epoch = 0
    while given < n:
        set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        before = given
        for batch in loader:
            yield batch
            given += 1
            if given == n:
                return
        if given == before:
            raise InputError(
                f"The loader gave no batch in pass {epoch}, so {n} rounds cannot be made of it; an iterator that can "
                f"be read only once must be given as a list or a DataLoader."
            )
        epoch += 1
