"""Several steps of any torch optimizer between two exchanges with the neighbours."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, Unpack

import torch

from gossamer import methods
from gossamer._common.checks import whole_number
from gossamer.errors import InputError
from gossamer.methods.contract import MethodChoice
from gossamer.network.wire import is_finite
from gossamer.optim.bucket import Bucket
from gossamer.optim.decentralized import DecentralizedOptimizer
from gossamer.optim.optimizers import Options
from gossamer.optim.param_groups import Rule

_NO_SETTINGS = ("params", "param_names", "foreach", "fused", "capturable", "differentiable")
"""What a parameter group of torch holds besides hyper-parameters: what it trains, and how it is computed."""


class Outer(DecentralizedOptimizer):
    """`every` steps of an `inner` torch optimizer, then one round of a method.

    In that round the method's gradient is the pseudo-gradient x_start - x_end: how far the inner optimizer has moved
    the parameters since the last round. So `every=50` sends a fiftieth of the bytes. With one node, and with all-reduce
    and equal data, the default `lr` of 1 makes it the inner optimizer, step by step.

    Zero gradients, clip them and schedule the step size as usual: the scheduler gets `inner`, the GradScaler and
    `Checkpoints` get this optimizer. `step()` is a step of the inner optimizer; `round` counts the exchanges.

    `every` may differ between the nodes, or be a `timedelta`: as many steps as fit into it, at least one, gradients and
    all else between two exchanges included. A node then divides its pseudo-gradient by its own number of steps and
    multiplies it by the mean, so that a fast node does not weigh more.

    The method is one without a momentum of its own unless you ask for it, because the inner optimizer has one:
    `method="momentum-tracking:beta=0.5"` with a smaller `lr`. The result is not exact for heterogeneous data: the
    longer the nodes train alone, the farther the solution is from the common optimum.

    >>> model = torch.nn.Linear(2, 1)
    >>> inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    >>> optimizer = Outer(inner, every=2, topology="ring")
    >>> for _ in range(4):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(1, 2)).sum().backward()
    ...     optimizer.step()
    >>> optimizer.round, optimizer.stats()["local_steps"]
    (2, 4)
    """

    translation: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        method: MethodChoice = "gradient-tracking",
        *,
        every: int | timedelta,
        lr: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(inner, torch.optim.Optimizer) or isinstance(inner, DecentralizedOptimizer):
            raise InputError(
                f"Outer takes an optimizer that knows nothing of other nodes, such as torch.optim.AdamW, not "
                f"{type(inner).__name__}."
            )
        if options.get("weight_decay") or options.get("decoupled"):
            raise InputError(
                "Between exchanges the inner optimizer trains, so weight_decay is its to have; give it there."
            )
        if isinstance(every, timedelta):
            if every <= timedelta(0):
                raise InputError(f"The time between two exchanges must be longer than 0, but every is {every}.")
        elif whole_number(every, "the number of steps between two exchanges", least=None) < 1:
            raise InputError(f"An exchange follows at least 1 step, but every is {every}.")
        chosen = methods.resolve(method)
        self.method = type(chosen)  # type: ignore[misc]
        self.inner, self.every = inner, every
        self._taken = self._local_steps = self._last = 0
        self._mean: float | None = None
        self._inner_facts: dict[str, str] = {}
        self._began = time.monotonic()
        self._factor_now = 1.0
        parameters = [p for group in inner.param_groups for p in group["params"]]
        super().__init__(parameters, lr, chosen.hyperparameters, **options)

    def _step(self) -> None:
        """A step of the inner optimizer and, when it is due, an exchange."""
        now = self.round
        if self._trained != [p.requires_grad for g in self.param_groups for p in g["params"]] and self._taken:
            raise InputError(
                f"A parameter was frozen or unfrozen {self._taken} steps after an exchange; do it right after one: "
                f"the optimizer's round has then just gone up."
            )
        rules, scale, overflow = self._meet(self._begin())
        if not overflow:
            self._unscale(scale)
            if self._nonfinite == "skip":
                self._skip_what_is_not_finite()
            self.inner.step()
        self._outdated = False  # the next gradient is one of the present parameters
        self._taken += 1
        self._local_steps += 1
        if self._is_due():
            self._exchange(now, rules, self._load_movement, overflow=False)
            self._last, self._taken = self._taken, 0
            self._began = time.monotonic()

    def _update(self, now: int, rules: list[Rule], load: Callable[[Bucket, Rule, bool], None], overflow: bool) -> None:
        self._factor_now = self._factor(now) * self._meeting.scale
        super()._update(now, rules, load, overflow)

    def _load_movement(self, bucket: Bucket, _: Rule, skip: bool) -> None:
        if skip:
            bucket.grad.zero_()
        else:
            bucket.load_movement(self._factor_now)

    def _take_over_writes(self, bucket: Bucket) -> None:
        """What is written between two exchanges is a part of the movement."""

    @contextmanager
    def _at_the_start(self) -> Iterator[None]:
        """Inside the `with` the parameters are those of the last exchange: the nodes meet there."""
        if not self._taken:
            yield
            return
        moved = [(p, p.detach().clone()) for bucket in self._buckets for p in bucket.parameters]
        for bucket in self._buckets:
            bucket.write()
        yield
        for p, value in moved:
            p.copy_(value)

    def _hold(self, now: int) -> None:
        """Meet the other nodes and ask for their number of steps: the mean, or None if one of them goes by time."""
        with self._at_the_start():
            super()._hold(now)
        own = None if isinstance(self.every, timedelta) else int(self.every)
        told = self.network.join(own={"every": own})
        steps = [t["every"] for t in told]
        self._mean = None if None in steps else sum(steps) / len(steps)

    def _facts(self) -> dict[str, str]:
        """Before the first exchange also the inner settings: later, schedulers of unequal `every` make them differ."""
        self._inner_facts = self._inner_facts or _settings(self.inner)
        inner = {} if self.round else self._inner_facts
        return {"inner optimizer": type(self.inner).__name__, **inner, **super()._facts()}

    def _unscale(self, scale: float) -> None:
        """What GradScaler does before any other optimizer's step."""
        if scale != 1:
            for group in self.inner.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.mul_(scale)

    def _skip_what_is_not_finite(self) -> None:
        """The inner optimizer would remember a NaN for ever, so its gradient is 0 already."""
        gradients = [p.grad for group in self.inner.param_groups for p in group["params"] if p.grad is not None]
        if not all(is_finite(g.coalesce().values() if g.is_sparse else g) for g in gradients):
            self.skipped_rounds += 1
            for gradient in gradients:
                gradient.zero_()

    def _is_due(self) -> bool:
        if isinstance(self.every, timedelta):
            seconds = time.monotonic() - self._began
            return seconds + seconds / self._taken > self.every.total_seconds()  # one more would not fit
        return self._taken >= self.every

    def _factor(self, now: int) -> float:
        """The mean number of steps over this node's."""
        if self._mean is not None:
            return self._mean / self._taken
        taken = self._buckets[0].x.new_tensor([self._taken])
        return float(self.network.average(taken, round=now)) / self._taken

    # State -----------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """That of the exchange, and under "inner" that of the inner optimizer."""
        seconds = time.monotonic() - self._began
        own = {"taken": self._taken, "local_steps": self._local_steps, "last": self._last, "seconds": seconds}
        return {**super().state_dict(), "inner": self.inner.state_dict(), "outer": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave. The parameters come from the model's checkpoint of the same step."""
        self._load_inner(state_dict)
        super().load_state_dict(state_dict)

    def rejoin(self, state_dict: dict[str, Any], holders: Sequence[int]) -> None:
        """See `DecentralizedOptimizer.rejoin`; a new node also starts with the inner state that it is given."""
        self._load_inner(state_dict)
        self._taken, self._began = 0, time.monotonic()
        super().rejoin(state_dict, holders)

    def continue_among(self, state_dict: dict[str, Any], holders: Sequence[int]) -> None:
        """A node that keeps its model also keeps how far the inner optimizer has moved it since the last round."""
        if self.network.node not in holders:
            self.rejoin(state_dict, holders)
            return
        taken = self._taken
        with self._at_the_start():
            self._load_inner(state_dict)
            super().rejoin(state_dict, holders)
        self._taken = taken

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        if "inner" not in state_dict or "outer" not in state_dict:
            raise InputError(
                "The checkpoint says nothing of an inner optimizer: it was saved by another optimizer, not by Outer."
            )
        self.inner.load_state_dict(state_dict["inner"])
        own = state_dict["outer"]
        self._taken, self._local_steps, self._last = (int(own[key]) for key in ("taken", "local_steps", "last"))
        self._began = time.monotonic() - float(own["seconds"])

    def stats(self) -> dict[str, Any]:
        """Those of every optimizer, the steps of the inner one, and how many came before the last exchange."""
        return {**super().stats(), "local_steps": self._local_steps, "steps_before_exchange": self._last}


def _settings(inner: torch.optim.Optimizer) -> dict[str, str]:
    """The hyper-parameters of an inner optimizer, by parameter group."""
    facts: dict[str, str] = {}
    for number, group in enumerate(inner.param_groups):
        where = f" of parameter group {number}" if len(inner.param_groups) > 1 else ""
        for name, value in group.items():
            plain = value.tolist() if isinstance(value, torch.Tensor) else value
            if name not in _NO_SETTINGS and isinstance(plain, float | int | str | list | tuple | None):
                facts[f"{name} of the inner optimizer{where}"] = str(plain)
    return facts
