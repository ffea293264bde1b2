"""A network that notes what a method asks of it."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from gossamer.network import Network, Pending


@dataclass(frozen=True)
class Event:
    """One call: what was asked for, for which round, and the widths of the vectors that travelled."""

    call: Literal["mix", "average", "exchange", "wait"]
    round: int = -1
    widths: tuple[int, ...] = ()


class _WatchedPending:
    def __init__(self, pending: Pending, round: int, log: list[Event]) -> None:
        self._pending, self._round, self._log = pending, round, log

    def wait(self) -> tuple[Tensor, ...]:
        self._log.append(Event("wait", self._round))
        return self._pending.wait()


class Watched:
    """Passes every call on to `net` and appends an `Event` to `log`."""

    def __init__(self, net: Network, log: list[Event]) -> None:
        self._net, self._log = net, log
        self.n = net.n

    def mix(self, *vectors: Tensor, round: int, out: tuple[Tensor, ...] | None = None) -> Pending:
        """Note and pass on."""
        self._log.append(Event("mix", round, tuple(v.shape[-1] for v in vectors)))
        return _WatchedPending(self._net.mix(*vectors, round=round, out=out), round, self._log)

    def average(self, vector: Tensor, *, round: int) -> Tensor:
        """Note and pass on."""
        self._log.append(Event("average", round, (vector.shape[-1],)))
        return self._net.average(vector, round=round)

    def spread(self, vector: Tensor) -> Tensor:
        """Pass on: nothing travels."""
        return self._net.spread(vector)

    def collect(self, rows: Tensor) -> Tensor:
        """Pass on: nothing travels."""
        return self._net.collect(rows)

    def exchange(self, *rows: Tensor, round: int) -> Pending:
        """Note and pass on."""
        self._log.append(Event("exchange", round, tuple(r.shape[-1] for r in rows)))
        return _WatchedPending(self._net.exchange(*rows, round=round), round, self._log)
