"""Parameters of one type as one flat vector: what a method works on.

The user's tensors are never re-pointed. They are copied into and out of the flat vector, so that FSDP,
`load_state_dict(assign=True)` and `.to()` find them as they left them.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gossamer.errors import InputError
from gossamer.methods import Method, State
from gossamer.methods.contract import Scalar
from gossamer.network import DistributedNetwork, Pending, Ready
from gossamer.network.transfer import Arriving

_TOO_LARGE = 1e-8
"""Numbers beyond this share of the largest one of their type count as infinite: their sum may be."""


def work_type(dtype: torch.dtype) -> torch.dtype:
    """The type to compute in: float32 for anything shorter, because x itself is mixed and would lose what it learns."""
    return dtype if dtype.itemsize >= 4 else torch.float32


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor that FSDP has spread over the processes of a node."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Bucket:
    """Parameters that share the type they are computed in, their device, and the round in which they were added.

    `groups[k]` is the number of the parameter group of `parameters[k]`. `x` and `grad` are flat, and `state` is the
    method's for `x`. Parameters that were added in different rounds are kept apart, because a state may hold numbers
    that depend on its age: RelaySum's counts, Adam's number of steps.
    """

    def __init__(
        self, parameters: Sequence[Tensor], groups: Sequence[int], method: Method, net: DistributedNetwork, born: int
    ) -> None:
        self.parameters = list(parameters)
        self.groups = list(groups)
        self.net, self.born = net, born
        tensors = [local(p) for p in self.parameters]
        self.shapes = [t.shape for t in tensors]
        self.sizes = [t.numel() for t in tensors]
        self.x = torch.empty(sum(self.sizes), dtype=work_type(tensors[0].dtype), device=tensors[0].device)
        self.grad = torch.zeros_like(self.x)
        self._x_views, self._grad_views = self._views(self.x), self._views(self.grad)
        self._plain = not any(isinstance(p, DTensor) for p in self.parameters)
        self._short = [k for k, t in enumerate(tensors) if t.dtype != self.x.dtype]
        torch._foreach_copy_(self._x_views, tensors)
        self.note()
        self.state: State = method.initial(self.x, net)

    # Parameters <-> x ------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """x <- parameters. Where x is longer than the parameter, it is kept unless the parameter was written to."""
        here = self._here()
        kept = {k: self._x_views[k].clone() for k in self._short}
        torch._foreach_copy_(self._x_views, here)
        for k, value in kept.items():
            if _same_bits(value.to(here[k].dtype), here[k]):
                self._x_views[k].copy_(value)

    def write(self) -> None:
        """Parameters <- x."""
        torch._foreach_copy_(self._here(), self._x_views)
        self.note()

    def note(self) -> None:
        """From now on, a change of the parameters is one made by others."""
        self._versions = [p._version for p in self._here()]

    def written(self) -> bool:
        """Whether others have changed the parameters since `write` or `note`, as autograd's version counter tells.

        It sees every write to a parameter itself (`p.copy_`, `load_state_dict`), and none through `p.data`.
        """
        return [p._version for p in self._here()] != self._versions

    def differs(self) -> bool:
        """Whether the parameters hold other values than x."""
        return not all(_same_bits(x.to(p.dtype), p) for p, x in zip(self._here(), self._x_views, strict=True))

    # Gradients -------------------------------------------------------------------------------------------------------

    def load_gradients(self, scale: float, weight_decay: Scalar, overflow: bool) -> None:
        """grad <- scale * gradient + weight_decay * x; a parameter without a gradient counts as one with gradient 0."""
        if overflow:
            self.grad.zero_()
        else:
            gradients = [p.grad for p in self.parameters]
            if not self._plain or any([g is None or g.is_sparse for g in gradients]):  # noqa: C419 - a list is quicker
                gradients = [_dense(g, view) for g, view in zip(gradients, self._grad_views, strict=True)]
            torch._foreach_copy_(self._grad_views, gradients)  # type: ignore[arg-type]
            if scale != 1:
                self.grad.mul_(scale)
        if isinstance(weight_decay, Tensor):
            self.grad.addcmul_(self.x, weight_decay)
        elif weight_decay:
            self.grad.add_(self.x, alpha=weight_decay)

    def load_movement(self, scale: float) -> None:
        """grad <- scale * (x - parameters): how far others have moved the parameters since `write`."""
        here = self._here()
        torch._foreach_copy_(self._grad_views, here)
        if self._short:
            started = [x.to(p.dtype) for x, p in zip(self._x_views, here, strict=True)]
            for view, start in zip(self._grad_views, started, strict=True):
                torch.sub(start.to(view.dtype), view, out=view)
        else:
            torch.sub(self.x, self.grad, out=self.grad)
        if scale != 1:
            self.grad.mul_(scale)

    def not_finite(self) -> tuple[int, float] | None:
        """The parameter group of the first gradient that is not finite, and what it is; None if all are.

        A method may have changed `grad`, so this looks at the gradients of the parameters.
        """
        for group, parameter in zip(self.groups, self.parameters, strict=True):
            gradient = torch.zeros(0) if parameter.grad is None else local(parameter.grad)
            bad = gradient[~gradient.isfinite()]
            if len(bad):
                return group, float(bad[0])
        return None

    def coefficient(self, values: Sequence[float]) -> Scalar:
        """One value per parameter group as a number or, if those of this bucket differ, as a vector like x."""
        mine = [values[g] for g in self.groups]
        if len(set(mine)) == 1:
            return mine[0]
        per_parameter = torch.tensor(mine, dtype=self.x.dtype, device=self.x.device)
        return per_parameter.repeat_interleave(torch.tensor(self.sizes, device=self.x.device))

    # Messages and state ----------------------------------------------------------------------------------------------

    def begin(self, method: Method) -> None:
        """Start the method from the present x."""
        self.drain()
        self.state = method.initial(self.x, self.net)

    def pending(self) -> Iterator[tuple[str, Pending]]:
        """The state's messages, under way or arrived, by the name of their field."""
        for f in dataclasses.fields(self.state):
            value = getattr(self.state, f.name)
            if hasattr(value, "wait"):  # a `Pending`, which is a protocol: isinstance would take ten times as long
                yield f.name, value

    def drain(self) -> None:
        """Wait for all messages."""
        for _, message in self.pending():
            message.wait()

    def abandon(self) -> None:
        """Drop the messages that are under way: what they bring is as if there were nobody else."""
        for name, message in list(self.pending()):
            if isinstance(message, Arriving):
                message.abandon()
            setattr(self.state, name, Ready(*message.wait()))

    def resend(self, round: int) -> None:
        """Mix the present x again and replace the mixed x, the first vector of a message.

        The message is as long as an ordinary one, so that a node that is alone in this gets an error from its peer's
        header instead of a broken connection. Where x is not in the message, there is nothing to replace.
        """
        if not self.state.sends_x:
            return
        for name, message in self.pending():
            mixed, *rest = message.wait()
            scratch = [torch.empty_like(r) for r in rest]
            self.net.mix(self.x, *rest, round=round, out=(mixed, *scratch)).wait()
            setattr(self.state, name, Ready(mixed, *rest))

    def entries(self) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """For every parameter its part of x and of the method's state, as views. Messages are waited for."""
        flat: dict[str, Any] = {"x": self.x}
        for name, value in self.state.tensors().items():
            flat |= {f"{name}.{k}": v for k, v in enumerate(value)} if isinstance(value, tuple) else {name: value}
        parts: list[dict[str, Any]] = [{"born": self.born} for _ in self.parameters]
        for name, value in flat.items():
            whole = not isinstance(value, Tensor) or value.shape[-1:] != self.x.shape
            views = [value] * len(parts) if whole else self._views(value)
            for parameter, part, view in zip(self.parameters, parts, views, strict=True):
                part[name] = view if whole else _like(parameter, view)
        return zip(self.parameters, parts, strict=True)

    def by_parameter(self, vector: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Every parameter with a view of its part of a flat vector."""
        return zip(self.parameters, self._views(vector), strict=True)

    def load(self, saved: Sequence[dict[str, Any]]) -> None:
        """Take over what `entries` gave, in place. Messages have arrived afterwards. All parameters share numbers."""
        self.drain()
        mine = [part for _, part in self.entries()]
        for k, (into, values) in enumerate(zip(mine, saved, strict=True)):
            if set(into) != set(values):
                raise InputError(
                    f"The saved state of a parameter holds {sorted(values)}, but this optimizer keeps {sorted(into)}; "
                    f"it was saved by another optimizer or version."
                )
            for name, value in values.items():
                if isinstance(into[name], Tensor) != isinstance(value, Tensor):
                    raise InputError(
                        f"The saved '{name}' of parameter {k} is a {type(value).__name__}, but this optimizer keeps a "
                        f"{type(into[name]).__name__}; it was saved by another optimizer or version."
                    )
                if isinstance(value, Tensor):
                    here, there = local(into[name]), local(value)
                    if here.shape != there.shape:
                        raise InputError(
                            f"The saved '{name}' of parameter {k} has the shape {list(there.shape)}, but here it has "
                            f"{list(here.shape)}; the checkpoint belongs to another model or another graph."
                        )
                    here.copy_(there)
                elif name != "born":
                    setattr(self.state, name, value)
        for name, message in list(self.pending()):
            setattr(self.state, name, Ready(*message.wait()))

    @property
    def kept(self) -> tuple[str, ...] | None:
        """The parts of the state that stay valid among other nodes; None if its method does not say."""
        return self.state.keeps if dataclasses.fields(self.state) else ()

    def take_mean(self, saved: Sequence[dict[str, Any]], method: Method, holders: Sequence[int], round: int) -> None:
        """Take over x and what is `kept` out of what `entries` gave among other nodes; the rest starts from x.

        A node that is not one of `holders` takes the mean over those that are. Where the method does not say what it
        keeps, all nodes take the mean of x: it may count on equal models when it starts. See `refuse_misfits`.
        """
        net = self.net
        self._take("x", saved)
        if self.kept is None or len(holders) < net.n:
            mean = mean_over(self.x, net, holders, round)
            if self.kept is None or net.node not in holders:
                self.x.copy_(mean)
        self.write()
        self.begin(method)
        for name in self.kept or ():
            vector = self._take(name, saved)
            if len(holders) < net.n:
                mean = mean_over(vector, net, holders, round)
                if net.node not in holders:
                    vector.copy_(mean)

    def refuse_misfits(self, saved: Sequence[dict[str, Any]]) -> None:
        """Raise if `take_mean` could not take over what `entries` gave."""
        for name in ("x", *(self.kept or ())):
            for k, (view, entry) in enumerate(zip(self._views(self._vector(name)), saved, strict=True)):
                if name not in entry or local(entry[name]).shape != view.shape:
                    raise InputError(
                        f"The saved state of parameter {k} holds no '{name}' of the shape {list(view.shape)}; the "
                        f"checkpoint belongs to another optimizer or another model."
                    )

    def _take(self, name: str, saved: Sequence[dict[str, Any]]) -> Tensor:
        vector = self._vector(name)
        for view, entry in zip(self._views(vector), saved, strict=True):
            view.copy_(local(entry[name]))
        return vector

    def _vector(self, name: str) -> Tensor:
        vector: Tensor = self.x if name == "x" else getattr(self.state, name)
        return vector

    def _here(self) -> list[Tensor]:
        return self.parameters if self._plain else [local(p) for p in self.parameters]

    def _views(self, flat: Tensor) -> list[Tensor]:
        """A view of every parameter's part of a flat [d] or, for edge rows, [k, d]."""
        lead = flat.shape[:-1]
        pieces = torch.split(flat, self.sizes, dim=-1)
        return [piece.view((*lead, *shape)) for piece, shape in zip(pieces, self.shapes, strict=True)]


def buckets_for(
    groups: Sequence[dict[str, Any]],
    births: Mapping[Tensor, int],
    now: int,
    method_of: Callable[[dict[str, Any]], Method],
    net: DistributedNetwork,
) -> list[Bucket]:
    """The parameters that require a gradient, by round of birth (`now` where it is not given), type and device."""
    places: defaultdict[tuple[int, str, str], list[tuple[Tensor, int]]] = defaultdict(list)
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            if parameter.requires_grad:
                born = births.get(parameter, now)
                key = (born, str(work_type(parameter.dtype)), str(parameter.device))
                places[key].append((parameter, number))
    buckets = []
    for (born, *_), members in sorted(places.items(), key=lambda place: place[0]):
        parameters, numbers = zip(*members, strict=True)
        buckets.append(Bucket(parameters, numbers, method_of(groups[numbers[0]]), net, born))
    return buckets


def mean_over(vector: Tensor, net: DistributedNetwork, nodes: Sequence[int], round: int) -> Tensor:
    """The mean of the vectors of some of the nodes, in float64. All nodes must call it."""
    own = vector.double() if net.node in nodes else torch.zeros_like(vector, dtype=torch.float64)
    return net.average(own, round=round) * (net.n / len(nodes))


def average_buffers(model: nn.Module, net: DistributedNetwork, holders: Sequence[int], round: int) -> None:
    """Let nodes that are not `holders` take the holders' mean of BatchNorm's statistics and other floating buffers.

    All nodes must call this.
    """
    for buffer in model.buffers():
        if buffer.is_floating_point():
            mean = finite_mean(buffer.detach().double(), net, holders, round)
            if net.node not in holders:
                buffer.copy_(mean)


def finite_mean(numbers: Tensor, net: DistributedNetwork, nodes: Sequence[int], round: int) -> Tensor:
    """The mean over some of the nodes of what their buffers hold. All nodes must call it.

    A buffer may hold infinite numbers on purpose, and statistics may be NaN: the mean of each number runs over the
    nodes where it is finite, and where it is at none, a node keeps its own.
    """
    usable = numbers.abs() < _TOO_LARGE * torch.finfo(numbers.dtype).max  # false for NaN
    if net.node not in nodes:
        usable.zero_()
    pair = torch.stack([numbers.where(usable, 0.0), usable.to(numbers.dtype)])
    mean, share = net.average(pair, round=round)
    count = (share * net.n).round()
    return torch.where(count > 0, mean * (net.n / count), numbers)


def _like(parameter: Tensor, view: Tensor) -> Tensor:
    """The view as a DTensor where the parameter is one, so that checkpoints know which part of it this is."""
    if not isinstance(parameter, DTensor) or view.dim() != parameter.dim():
        return view
    return DTensor.from_local(
        view,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _dense(gradient: Tensor | None, view: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(view)
    if gradient.is_sparse:
        raise InputError("A parameter has a sparse gradient, which cannot be mixed; use sparse=False in its layer.")
    return local(gradient)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit: unlike for ==, NaN is NaN."""
    if torch.equal(a, b):
        return True
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.dtype.itemsize]
    return torch.equal(a.detach().contiguous().view(kind), b.detach().contiguous().view(kind))
