"""All nodes' parameters and gradients as views into flat [N, d] buffers.

Row i of the buffers belongs to node i. A method's round is then a handful of large vector operations, and no copy lies
between it and the models.
"""

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, overload

import torch
from torch import Tensor, nn

from gossamer.errors import InputError


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies in a row: `size` numbers from `start` on."""

    name: str
    shape: torch.Size
    start: int
    size: int
    channels_last: bool

    def view(self, row: Tensor) -> Tensor:
        """The parameter as a view into a row [d] or, with a leading node axis, into rows [k, d]."""
        piece = row[..., self.start : self.start + self.size]
        lead = piece.shape[:-1]
        if not self.channels_last:
            return piece.view(*lead, *self.shape)
        out, into, height, width = self.shape
        return piece.view(*lead, out, height, width, into).movedim(-1, -3)


def is_misread(layer: nn.Module) -> bool:
    """Whether oneDNN reads beyond the images of this layer where channels come last.

    It does so (seen in its version 3.12, with AVX-512) for images of one channel and strides of 1 row and several
    columns, when the output is one column wide: losses are then whatever lies in the memory.

    >>> is_misread(nn.Conv2d(1, 16, (3, 9), stride=(1, 2))), is_misread(nn.Conv2d(1, 16, (3, 9), stride=2))
    (True, False)
    """
    return isinstance(layer, nn.Conv2d) and layer.in_channels == 1 and layer.stride[0] == 1 < layer.stride[-1]


class Layout:
    """The order of a model's trainable parameters in a row. Convolution weights are stored channels-last.

    Channels-last weights make wide convolutions markedly faster on CPUs, and to a method it is all the same. A model
    with a layer that would be misread keeps torch's order.
    """

    def __init__(self, module: nn.Module) -> None:
        self.slots: list[Slot] = []
        dtypes = set()
        start = 0
        may_turn = not any(map(is_misread, module.modules()))
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            dtypes.add(parameter.dtype)
            channels_last = may_turn and parameter.dim() == 4 and parameter.shape[1] > 1
            self.slots.append(Slot(name, parameter.shape, start, parameter.numel(), channels_last))
            start += parameter.numel()
        if not self.slots:
            raise InputError("The model has no parameters that require a gradient, so there is nothing to train.")
        if len(dtypes) > 1:
            raise InputError(f"The model's parameters have several types ({dtypes}); give all of them the same one.")
        self.dim = start
        self.dtype = dtypes.pop()

    def flatten(self, module: nn.Module) -> Tensor:
        """The model's trainable parameters as one row [d]."""
        parameters = dict(module.named_parameters())
        row = torch.empty(self.dim, dtype=self.dtype, device=parameters[self.slots[0].name].device)
        with torch.no_grad():
            for slot in self.slots:
                slot.view(row).copy_(parameters[slot.name])
        return row

    def bind(self, module: nn.Module, row: Tensor, grad: Tensor | None) -> None:
        """Make the module's parameters (and their gradients) views into the given rows."""
        parameters = dict(module.named_parameters())
        for slot in self.slots:
            parameter = parameters[slot.name]
            parameter.data = slot.view(row)
            parameter.grad = None if grad is None else slot.view(grad)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)


class NodeModels:
    """N equal copies of a model whose parameters live in `x` [N, d] and whose gradients live in `grad` [N, d].

    Buffers (BatchNorm's running statistics) and frozen parameters stay with each node's own copy and are never mixed.
    """

    def __init__(self, module: nn.Module, nodes: int, device: torch.device) -> None:
        self.layout = Layout(module)
        module = module.to(device)
        row = self.layout.flatten(module)
        self.x = row.expand(nodes, -1).contiguous()
        self.grad = torch.zeros_like(self.x)
        self.layout.bind(module, self.x[0], self.grad[0])
        # Copies are made of one that has never run and holds no trainable parameters.
        self._pattern = self._shallow(module)
        self.modules = Models(nodes, lambda node: self._copy(node) if node else module)

    def averaged(self) -> nn.Module:
        """A model whose parameters and floating-point buffers are the exact mean over the nodes."""
        model = copy.deepcopy(self.modules[0])
        self.layout.bind(model, self.x.mean(0), None)
        means = {}
        for name, buffer in self.modules[0].named_buffers():
            if buffer.is_floating_point():
                own = [dict(m.named_buffers())[name] for m in self.modules]
                means[name] = torch.stack(own).mean(0)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in means:
                    buffer.copy_(means[name])
        return model

    def independent(self, node: int) -> nn.Module:
        """A copy of a node's model that shares nothing with the buffers, in evaluation mode and in torch's order."""
        return _independent(self.modules[node])

    def independent_average(self) -> nn.Module:
        """The same of the averaged model."""
        return _independent(self.averaged())

    def buffers(self) -> dict[str, Tensor]:
        """Every node's buffers, stacked by name: what a checkpoint needs beside x."""
        return {
            name: torch.stack([dict(m.named_buffers())[name] for m in self.modules])
            for name, _ in self.modules[0].named_buffers()
        }

    def load_buffers(self, saved: dict[str, Tensor]) -> None:
        """Take over what `buffers` gave."""
        if not saved:
            return
        for i, module in enumerate(self.modules):
            for name, buffer in module.named_buffers():
                buffer.copy_(saved[name][i])

    def _copy(self, node: int) -> nn.Module:
        with torch.inference_mode(False):  # whoever asks first: what is made in inference mode can never be trained
            own = self._shallow(self._pattern)
            self.layout.bind(own, self.x[node], self.grad[node])
        return own

    def _shallow(self, module: nn.Module) -> nn.Module:
        """A copy with its own frozen parameters and buffers, whose trainable parameters are bound afterwards."""
        trainable = dict(module.named_parameters())
        memo: dict[int, object] = {id(trainable[s.name]): nn.Parameter(self.x.new_empty(0)) for s in self.layout}
        return copy.deepcopy(module, memo)


def _independent(module: nn.Module) -> nn.Module:
    own = copy.deepcopy(module)
    for parameter in own.parameters():
        parameter.data = parameter.detach().clone(memory_format=torch.contiguous_format)
        parameter.grad = None
    return own.eval()


class Models(Sequence[nn.Module]):
    """The nodes' models, each made when it is first asked for: chains of layers are computed without them.

    Their Python objects would take 80 kB a node.
    """

    def __init__(self, nodes: int, make: Callable[[int], nn.Module]) -> None:
        self._made: dict[int, nn.Module] = {}
        self._nodes = nodes
        self._make = make

    def __len__(self) -> int:
        return self._nodes

    @overload
    def __getitem__(self, node: SupportsIndex) -> nn.Module: ...
    @overload
    def __getitem__(self, node: slice) -> list[nn.Module]: ...
    def __getitem__(self, node: SupportsIndex | slice) -> nn.Module | list[nn.Module]:
        if isinstance(node, slice):
            return [self[i] for i in range(*node.indices(self._nodes))]
        node = operator.index(node)  # a tensor hashes by identity, and %= would change it
        if not -self._nodes <= node < self._nodes:
            raise IndexError(f"there are {self._nodes} nodes, 0 to {self._nodes - 1}, but no node {node}")
        node %= self._nodes
        if node not in self._made:
            # Of two threads that come at once, both take what the first has made.
            self._made.setdefault(node, self._make(node))
        return self._made[node]
