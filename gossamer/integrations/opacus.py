"""Opacus: differential privacy of a node's own examples, with its noise added before anything is sent."""

import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader

from gossamer.errors import InputError
from gossamer.optim import DecentralizedOptimizer

try:
    import opacus
    from opacus.optimizers import DPOptimizer
except ImportError:
    raise InputError("Opacus is not installed; run: pip install 'gossamer[privacy]'.") from None


class PrivacyEngine(opacus.PrivacyEngine):
    """Opacus's `PrivacyEngine` for one node of a decentralized training: `make_private` and all else is Opacus's own.

    It differs in four points. `delta` is asked for first, and must be below 1/n for n own examples. Noise and Poisson
    batches are drawn from a generator of this node, which the operating system seeds: a `torch.manual_seed` that is the
    same on all nodes, as equal initial models need, would make the noise the same everywhere and known to all. `seed`
    is for tests and measurements that must be repeatable; whoever knows it can subtract the noise. A virtual step of
    `BatchMemoryManager` takes part in the exchange with gradient zero, so that all nodes go on in step; the model stays
    where it is until the batch is complete, because all its examples must be clipped at the same parameters. An empty
    Poisson batch is a step as any other: its gradient is zero, and gets noise. `stats()["idle"]` counts both.
    """

    secure_rng: Any

    def __init__(
        self, *, delta: float, accountant: str = "prv", secure_mode: bool = False, seed: int | None = None
    ) -> None:
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
            raise InputError(
                f"delta is {delta!r}, but it must be a number above 0 and below 1/n, n being the number of examples of "
                f"this node: 1e-5 if it has fewer than 100,000."
            )
        self.delta = float(delta)
        self._generator = None
        if not secure_mode:
            self._generator = torch.Generator()
            if seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(seed)
        with warnings.catch_warnings():
            # docs/privacy.md says what a generator that is not secure leaves open.
            warnings.filterwarnings("ignore", "Secure RNG turned off")
            super().__init__(accountant=accountant, secure_mode=secure_mode)

    def make_private(self, *, optimizer: torch.optim.Optimizer, data_loader: DataLoader[Any], **options: Any) -> Any:
        """Opacus's: model, optimizer and loader with per-example clipping, noise and Poisson batches."""
        examples = len(data_loader.dataset)  # type: ignore[arg-type]
        if self.delta * examples >= 1:
            raise InputError(
                f"delta is {self.delta:g}, but this node has {examples} examples: with a delta of 1/{examples} or more "
                f"one of them could be given away as it is; choose one well below {1 / examples:.2g}."
            )
        if not isinstance(getattr(optimizer, "original_optimizer", optimizer), DecentralizedOptimizer):
            raise InputError(
                f"This PrivacyEngine is for the optimizers of gossamer.optim, not {type(optimizer).__name__}; "
                f"opacus.PrivacyEngine is for those."
            )
        if self._generator is not None and options.get("noise_generator") is None:
            options["noise_generator"] = self._on(optimizer.param_groups[0]["params"][0].device)
        return super().make_private(optimizer=optimizer, data_loader=data_loader, **options)

    def make_private_with_epsilon(self, *, target_delta: float | None = None, **options: Any) -> Any:
        """Opacus's: `make_private` with the noise that leads to `target_epsilon` after `epochs`, at this delta."""
        if target_delta not in (None, self.delta):
            raise InputError(f"The target_delta is {target_delta:g}, but this engine counts with {self.delta:g}.")
        return super().make_private_with_epsilon(target_delta=self.delta, **options)

    def epsilon(self) -> float:
        """What Opacus's accountant says has been spent so far, with this engine's delta."""
        return float(self.get_epsilon(self.delta))

    def _on(self, device: torch.device) -> torch.Generator | None:
        """This node's generator or, on another device than the CPU, one that it seeds."""
        if device.type == "cpu":
            return self._generator
        seed = torch.randint(2**63 - 1, (), generator=self._generator)
        return torch.Generator(device).manual_seed(int(seed))

    def _prepare_optimizer(self, *, optimizer: torch.optim.Optimizer, **options: Any) -> DPOptimizer:
        """Opacus's optimizer of the wanted kind, but one that never skips an exchange."""
        made = super()._prepare_optimizer(optimizer=optimizer, **options)
        made.__class__ = _in_step(type(made))
        return made

    def _prepare_data_loader(self, data_loader: DataLoader[Any], **options: Any) -> DataLoader[Any]:
        """Opacus's, whose batches are drawn from this node's generator."""
        usual = self.secure_rng
        self.secure_rng = usual or self._generator
        try:
            made: DataLoader[Any] = super()._prepare_data_loader(data_loader, **options)
        finally:
            self.secure_rng = usual
        return made


def _in_step(kind: type[DPOptimizer]) -> type[DPOptimizer]:
    """A kind of Opacus's optimizer that also exchanges in virtual steps, and counts empty batches."""

    class InStep(kind):
        _moved: list[torch.Tensor] | None = None
        """Where the exchanges of virtual steps have led, while the model stays where its batch began."""

        def pre_step(self, closure: Any = None) -> Any:
            """Clip and, if the batch is complete, add noise; then the model is where the exchanges have led."""
            complete = super().pre_step(closure)
            began = None if complete else [p.detach().clone() for p in self.params]
            if self._moved is not None:
                self._write(self._moved)
                self._moved = None
            if began is not None:
                self.original_optimizer.idle()
                self._moved = [p.detach().clone() for p in self.params]
                # The accountant counts on all examples of a batch being clipped at the same parameters: else one more
                # or less would move others to another piece, and so change their gradients, too.
                self._write(began)
            return complete

        def clip_and_accumulate(self) -> None:
            """Clip, and look whether there was anything to clip."""
            self.original_optimizer.idle_rounds += len(self.grad_samples[0]) == 0
            super().clip_and_accumulate()

        def _write(self, values: list[torch.Tensor]) -> None:
            """Through `data`, which the optimizer does not take for a change that the user has made."""
            for p, value in zip(self.params, values, strict=True):
                p.data.copy_(value)

    InStep.__name__ = InStep.__qualname__ = kind.__name__
    return InStep
