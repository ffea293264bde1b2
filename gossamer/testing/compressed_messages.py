"""What a method whose messages are compressed must do besides: for every compressor, both ends of a link agree."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gossamer import compression, methods
from gossamer.compression import Compressed
from gossamer.methods import Method
from gossamer.network import Network, Pending
from gossamer.testing.properties import Property, differ, preserves_mean, tracks
from gossamer.testing.trial import RecordedNetwork, Trial

COMPRESSORS = ("quantize:bits=4", "quantize:bits=1", "top-k:share=0.3", "random-k:share=0.3")
"""The compressors that a method is tried with, besides its own."""


def equals_its_plain_form(method: Method, trial: Trial) -> str | None:
    """With the identity as compressor and gamma = 1, it is the method that its facts call `uncompressed`."""
    if not method.facts.uncompressed:
        return None
    plain = methods.find(method.facts.uncompressed)
    shared = plain().hyperparameters.keys() & method.hyperparameters.keys()
    other = plain(**{name: method.hyperparameters[name] for name in shared})
    ours = _with(method, compress="identity", gamma=1.0)
    for (r, x, _), (_, y, _) in zip(trial.simulate(ours), trial.simulate(other), strict=True):
        if problem := differ(f"x after round {r} and that of {plain.facts.title}", x, y, 1e-10):
            return f"with compress='identity' and gamma=1, {problem}"
    return None


def decodes_what_was_sent(method: Method, trial: Trial) -> str | None:
    """Every row that is sent is decoded to the sender's numbers to the bit, from as many bytes as declared."""
    few = replace(trial, rounds=3)
    for variant in _variants(method):
        problems: list[str] = []
        few.final(variant, wrap=lambda net, told=problems: _Opened(net, told))
        if problems:
            return f"with {variant.compressor}, {problems[0]}"
    return None


def keeps_running_sums(method: Method, trial: Trial) -> str | None:
    """What a state keeps as W h - h is that to rounding, in every round, and its mean over the nodes is zero."""
    weights = torch.from_numpy(trial.topology.at(0).dense())
    for variant in _variants(method):
        for dtype, allowed in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            for r, _, state in trial.simulate(variant, dtype=dtype):
                for h, gap in state.known():
                    size = float(h.abs().max().clamp(min=1.0))
                    off = float((weights @ h.double() - h.double() - gap.double()).abs().max())
                    mean = float(gap.double().mean(0).abs().max())
                    if max(off, mean) > allowed * size:
                        return (
                            f"with {variant.compressor}, what is kept as W h - h after round {r} is off by {off:.1e} "
                            f"and has the mean {mean:.1e} in {dtype}"
                        )
    return None


def keeps_means(method: Method, trial: Trial) -> str | None:
    """What `tracks` and `preserves_mean` promise holds under every compressor."""
    for variant in _variants(method):
        for promise, check in (("tracks", tracks), ("preserves_mean", preserves_mean)):
            if getattr(method.facts, promise) and (problem := check(variant, trial)):
                return f"with {variant.compressor}, {problem}"
    return None


COMPRESSION: dict[str, Property] = {
    "equals its plain form": equals_its_plain_form,
    "decodes what was sent": decodes_what_was_sent,
    "keeps running sums": keeps_running_sums,
    "keeps means": keeps_means,
}


class _Opened(RecordedNetwork):
    """Decodes every compressed row on its way, and notes what is not as it should be."""

    def __init__(self, net: Network, problems: list[str]) -> None:
        super().__init__(net, [])
        self._problems = problems

    def mix(self, *vectors: Tensor | Compressed, round: int, out: tuple[Tensor, ...] | None = None) -> Pending:
        """Open, and pass on."""
        for vector in vectors:
            if isinstance(vector, Compressed):
                self._open(vector, round)
        return super().mix(*vectors, round=round, out=out)

    def _open(self, sent: Compressed, round: int) -> None:
        wires, compressor, values = sent.wire(), sent.compressor, sent.values
        declared = compressor.bytes(values.shape[-1], values.dtype.itemsize)
        if wires.shape[-1] != declared:
            self._problems.append(f"a row takes {wires.shape[-1]} bytes, but bytes() says {declared}")
        for node, (wire, row) in enumerate(zip(wires, values, strict=True)):
            if not torch.equal(compressor.decode(wire, row), row):
                self._problems.append(f"what node {node} sent for round {round} is decoded to other numbers")


def _variants(method: Method) -> list[Method]:
    own = method.compressor
    return [_with(method, compress=spec) for spec in dict.fromkeys(map(compression.get, [own, *COMPRESSORS]))]


def _with(method: Any, **changes: object) -> Method:
    changed: Method = replace(method, **changes)
    return changed
