"""From the model that a user gives to the models of N nodes.

The given model is copied and tried on a batch. The parameters and gradients of all nodes are then views into flat
[N, d] buffers: row i belongs to node i, a method's round is a handful of large vector operations, and nothing is copied
between it and the models.
"""

import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import torch
from torch import Tensor, nn

from gossamer._common.checks import whole_number
from gossamer.data import NodeData
from gossamer.engine.hardware import generator_state, set_generator_state
from gossamer.errors import GossamerError, InputError
from gossamer.tasks import LOSSES, Task, task_of

ModelFactory = Callable[..., nn.Module]
MOST_SEEDS = 2**62
CLASSIFICATION = task_of()


def make_model(model: ModelFactory | nn.Module, data: NodeData, seed: int, task: Task = CLASSIFICATION) -> nn.Module:
    """The model that all nodes start from.

    A factory is called with (shape, outputs) if it needs two arguments, else with none, and its random numbers come
    from `seed` without disturbing torch's global generator. The module that is given, or that the factory returns, is
    copied: it may be in use elsewhere.
    """
    if whole_number(seed, "the seed", least=None) >= MOST_SEEDS:
        raise InputError(f"The seed must be below 2^62, but it is {seed}.")
    made = model if isinstance(model, nn.Module) else _call(model, data, seed, task)
    name = hooked_parameter(made)
    if name is not None:
        raise InputError(
            f"The model's parameter '{name}' has a hook, which is not copied with it, so the nodes would train without "
            f"it; do the same in the model's forward, or in a hook on the module (register_full_backward_hook)."
        )
    return copy.deepcopy(made)


def fitted(data: NodeData, model: nn.Module, batch_size: int) -> NodeData:
    """The data in the model's type; what a user should know of their sizes goes to the log."""
    data.warn_of_small_nodes(batch_size)
    dtype = next((p.dtype for p in model.parameters() if p.requires_grad and p.is_floating_point()), None)
    return data if dtype is None else data.fitted_to(dtype)


def _call(factory: ModelFactory, data: NodeData, seed: int, task: Task) -> nn.Module:
    if not callable(factory):
        raise InputError(f"The model must be an nn.Module or a function that makes one, not {factory!r}.")
    needed = [
        p
        for p in inspect.signature(factory).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) not in (0, 2):
        raise InputError(
            f"The model must be a function without arguments or one of (shape, outputs), but it needs "
            f"{', '.join(p.name for p in needed)}; wrap it: lambda: MyModel(...)."
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the bits of nn.init.orthogonal_ depend on their number
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = factory(data.dataset.sample_shape, _outputs(data, task)) if needed else factory()
    finally:
        torch.set_num_threads(threads)
    if not isinstance(made, nn.Module):
        raise InputError(f"The model factory returned {type(made).__name__}, not an nn.Module.")
    return made


def _outputs(data: NodeData, task: Task) -> int:
    """How many numbers a model gives: as many as a target has for a loss that compares them, else one per class."""
    if task.loss in (LOSSES["mse"], LOSSES["bce"]):
        return max(1, data.dataset.train_targets.shape[1:].numel())
    return data.dataset.num_outputs


def hooked_parameter(module: nn.Module) -> str | None:
    """The name of the first parameter with a hook (`register_hook`, `register_post_accumulate_grad_hook`), if any.

    >>> layer = nn.Linear(2, 2)
    >>> handle = layer.bias.register_hook(lambda gradient: 2 * gradient)
    >>> hooked_parameter(layer)
    'bias'
    """
    hooked = (name for name, p in module.named_parameters() if p._backward_hooks or p._post_accumulate_grad_hooks)
    return next(hooked, None)


def trial(module: nn.Module, batch: Tensor) -> tuple[bool, Any]:
    """Run the model once in training mode, leaving no trace.

    Returns whether it took numbers from the global generator of its device, and its output.

    >>> trial(nn.Dropout(), torch.zeros(1, 2))
    (True, tensor([[0., 0.]]))
    """
    kept = generator_state(batch.device)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with torch.no_grad():
            output = module(batch)
        drew = not torch.equal(kept, generator_state(batch.device))
    except Exception as error:
        raise InputError(
            f"The model cannot take a batch {list(batch.shape)} of {batch.dtype}: {_first_line(error)}"
        ) from error
    finally:
        set_generator_state(batch.device, kept)
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    return drew, output


def check_task(module: nn.Module, data: NodeData, task: Task, device: torch.device) -> tuple[bool, int]:
    """Refuse a model whose output does not fit targets, loss and metric.

    Returns whether its forward pass draws random numbers, and how many sums the metric has.
    """
    dataset, index = data.dataset, torch.zeros(2, dtype=torch.int64)
    drew, output = trial(module, data.pipeline.batch(dataset.train_inputs, index).to(device))
    if not isinstance(output, Tensor):
        needs = f" (the loss '{task.loss.name}' takes {task.loss.takes})" if task.loss.takes else ""
        raise InputError(
            f"The model must give a tensor{needs}, but it gives a {type(output).__name__}; wrap it in a module that "
            f"returns only the tensor."
        )
    classes = dataset.num_classes if task.loss is LOSSES["cross-entropy"] and dataset.has_classes else 0
    if classes and (output.dim() != 2 or len(output) != 2 or output.shape[1] < classes):
        raise InputError(
            f"The model gives an output {list(output.shape)} for 2 samples, but there are {classes} classes; let it "
            f"give [2, {classes}]."
        )
    return drew, task.check(output, dataset.train_targets[index].to(device), dataset.train_targets)


def refuse_single_samples(module: nn.Module, sample: Tensor, size: int, batch_size: int) -> None:
    """Refuse a model that needs several samples at once (BatchNorm of vectors), where a batch has only one.

    `sample` is a batch of one; `size` and `batch_size` are those that lead to it.
    """
    try:
        trial(module, sample)
    except GossamerError as error:
        raise InputError(
            f"The model cannot take a batch of one sample ({_first_line(error.__cause__ or error)}), but a node with "
            f"{size} samples comes to one with batches of {batch_size}; choose another batch size."
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@dataclass(frozen=True)
class Slot:
    """The place of a parameter in a row: `size` numbers from `start` on."""

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
    columns, when the output is one column wide: losses are then arbitrary.

    >>> is_misread(nn.Conv2d(1, 16, (3, 9), stride=(1, 2))), is_misread(nn.Conv2d(1, 16, (3, 9), stride=2))
    (True, False)
    """
    return isinstance(layer, nn.Conv2d) and layer.in_channels == 1 and layer.stride[0] == 1 < layer.stride[-1]


class Layout:
    """The order of a model's trainable parameters in a row. Convolution weights are stored channels-last.

    Channels-last weights make wide convolutions markedly faster on CPUs, and methods do not depend on the order. A
    model with a layer that would be misread keeps torch's order.
    """

    def __init__(self, module: nn.Module) -> None:
        self.slots: list[Slot] = []
        dtypes = set()
        start = 0
        may_reorder = not any(map(is_misread, module.modules()))
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            dtypes.add(parameter.dtype)
            channels_last = may_reorder and parameter.dim() == 4 and parameter.shape[1] > 1
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
        # The nodes' modules are copies of one that has never run and holds no trainable parameters.
        self._pattern = self._shallow(module)
        self.modules = Models(nodes, lambda node: self._copy(node) if node else module)

    def among(self, nodes: Sequence[int], x: Tensor) -> "NodeModels":
        """The models of some of the nodes, with the parameters `x`, one row each.

        The nodes' modules are moved: those that were given out before no longer follow these models.
        """
        some = copy.copy(self)
        some.x, some.grad = x, torch.zeros_like(x)

        def moved(row: int) -> nn.Module:
            module = self.modules[nodes[row]]
            self.layout.bind(module, some.x[row], some.grad[row])
            return module

        some.modules = Models(len(nodes), moved)
        return some

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
        """Restore what `buffers` gave."""
        if not saved:
            return
        for i, module in enumerate(self.modules):
            for name, buffer in module.named_buffers():
                buffer.copy_(saved[name][i])

    def _copy(self, node: int) -> nn.Module:
        with torch.inference_mode(False):  # a module that is made in inference mode can never be trained
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
    """The nodes' models, each made when it is first asked for.

    Chains of layers are computed without modules, whose Python objects take 80 kB a node.
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
            # Two threads that ask at the same time get the same one.
            self._made.setdefault(node, self._make(node))
        return self._made[node]
