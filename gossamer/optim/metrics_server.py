"""What a monitoring system is told of a real node: an HTTP endpoint in Prometheus's format, read when it is asked for.

Nothing is computed in a step but the consensus distance of one round after each request. All other figures are those of
`optimizer.stats()` and `optimizer.note()` at the moment of the request.
"""

import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from torch import Tensor

from gossamer._version import __version__
from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.network import DistributedNetwork
from gossamer.network.faults import EVERYONE
from gossamer.network.transfer import Arriving, Mixed
from gossamer.network.waiting import current_wait

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

VARIABLE = "GOSSAMER_METRICS_PORT"
"""PORT or HOST:PORT. The processes of a machine take the ports from there on, by their LOCAL_RANK."""
LOOPBACK = "127.0.0.1"
HELP = {
    "round": "Rounds made so far.",
    "bytes_sent": "Bytes sent to neighbours.",
    "bytes_received": "Bytes received from neighbours.",
    "messages_sent": "Messages sent to neighbours.",
    "messages_received": "Messages received from neighbours.",
    "wait_seconds": "Seconds waited for a peer, in waits that have ended.",
    "overflows": "Rounds with gradient zero because GradScaler found an overflow.",
    "skipped": "Rounds with gradient zero because the gradient was not finite.",
    "idle": "Rounds with gradient zero because there was nothing to learn from.",
    "local_steps": "Steps of the inner optimizer so far.",
    "steps_before_exchange": "Steps of the inner optimizer before the last exchange.",
    "changes": "How often sites have come or gone.",
    "sites": "Sites that are there.",
}
"""What the figures of `stats()` are; one that is not listed here is served under its name."""
_GAUGES = ("round", "steps_before_exchange", "sites")
"""Those of `stats()` that are no sums."""


class Watched:
    """What an optimizer tells those who watch its node."""

    method: ClassVar[type[Method]]
    network: DistributedNetwork
    noted: dict[str, float | Tensor]
    """The latest figures that `note` was given."""

    @property
    @abstractmethod
    def node_name(self) -> str:
        """What the node is called."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Figures of the moment."""

    def note(self, **figures: Any) -> None:
        """Tell whoever watches this node (`metrics`, `gossamer watch`) the loss, the accuracy or any other number.

        They are numbers or tensors of one number, and stay on this node until they are asked for. The loss that a
        closure returns is noted by `step`.
        """
        for name, value in figures.items():
            self.noted[name] = _number(name, value)

    def metrics(self, port: int | None = None, host: str | None = None) -> int:
        """Serve this node's figures to Prometheus at http://HOST:PORT/metrics; returns the port.

        A port of 0 is any that is free; the host is 127.0.0.1 unless you give another: there is no password. Without a
        port, the environment variable GOSSAMER_METRICS_PORT names it (see docs/monitoring.md); where that is set, every
        optimizer serves its figures without this call.
        """
        return serve(self, port, host)


class Probe:
    """Measures |v - mixed v|^2 in the first round that is not before `after`, v being what this node sent first."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.round: int | None = None
        self.squared = 0.0

    def __call__(self, arrived: Arriving) -> None:
        """Look at messages that have arrived."""
        at = arrived.header.round
        if not isinstance(arrived, Mixed) or at < self.after:
            return
        if self.round is None:
            self.round = at
        if at == self.round:
            self.squared += float((arrived.out[0] - arrived.envelope.own[0]).double().square().sum())


class Figures:
    """The figures of one optimizer, as prometheus-client collects them."""

    def __init__(self, optimizer: Watched) -> None:
        self.optimizer = ref(optimizer)
        self._distance: float | None = None

    def collect(self) -> Iterator[Any]:
        """All figures of the moment."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        optimizer = self.optimizer()
        if optimizer is None:
            return
        node, net = optimizer.node_name, optimizer.network
        about = {
            "node": node,
            "method": optimizer.method.facts.title,
            "graph": net.topology.name,
            "nodes": str(net.n),
            "version": __version__,
        }
        yield InfoMetricFamily("gossamer", "What this node takes part in.", about)
        for key, value in optimizer.stats().items():
            family = GaugeMetricFamily if key in _GAUGES else CounterMetricFamily
            what = HELP.get(key, f"{key.replace('_', ' ').capitalize()} so far.")
            if isinstance(value, dict):
                figure = family(f"gossamer_{key}", what, labels=["node", "peer"])
                for peer, amount in value.items():
                    figure.add_metric([node, str(peer)], amount)
                yield figure
            elif isinstance(value, int | float | list):
                figure = family(f"gossamer_{key}", what, labels=["node"])
                figure.add_metric([node], len(value) if isinstance(value, list) else value)
                yield figure
        what = "For how many seconds this node has been waiting for a peer, while it does."
        waiting = GaugeMetricFamily("gossamer_waiting_seconds", what, labels=["node", "peer"])
        if (wait := current_wait(net.waiting)) is not None:
            peer, seconds = wait
            labels = net.topology.labels
            waiting.add_metric([node, "all" if peer == EVERYONE else labels[peer] if labels else str(peer)], seconds)
        yield waiting
        noted = GaugeMetricFamily("gossamer_figure", "What the training loop has noted.", labels=["node", "figure"])
        for name, latest in list(optimizer.noted.items()):
            noted.add_metric([node, name], float(latest))
        yield noted
        if (distance := self._consensus(optimizer)) is not None:
            what = "|x - mixed x|^2: how far this node's model was from the average of its own and its neighbours'."
            apart = GaugeMetricFamily("gossamer_consensus_distance", what, labels=["node"])
            apart.add_metric([node], distance)
            yield apart

    def _consensus(self, optimizer: Watched) -> float | None:
        """The distance in a round since the last request but one; the next one is asked for."""
        messenger = optimizer.network.messenger
        probe = messenger.probe
        if isinstance(probe, Probe) and probe.round is not None and messenger.round > probe.round + 1:
            self._distance, probe = probe.squared, None
        if probe is None:
            # Messages of the present round and of the next may be under way already, some of them unpacked.
            messenger.probe = Probe(messenger.round + 2)
        return self._distance


_served: dict[tuple[int, str, int], tuple["CollectorRegistry", Figures]] = {}
"""By process, host and port."""


def serve(optimizer: Watched, port: int | None, host: str | None) -> int:
    """Serve an optimizer's figures; the port. The newest optimizer of a process takes over a port from an older one."""
    if port is None:
        host, port = address(os.environ.get(VARIABLE, ""), os.environ.get("LOCAL_RANK", "0"))
    host = host or LOOPBACK
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise InputError(f"A port is a whole number from 0 (any that is free) to 65535, not {port!r}.")
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise InputError(
            "Serving figures needs prometheus-client, which is not installed; run: pip install 'gossamer[metrics]'."
        ) from None
    figures = Figures(optimizer)
    here = (os.getpid(), host, port)
    if here in _served:
        registry, old = _served[here]
        registry.unregister(old)
    else:
        registry = CollectorRegistry()
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as error:
            raise InputError(
                f"Cannot serve figures on {host}:{port}: {error.strerror or error}; choose another port, or an address "
                f"of this machine."
            ) from None
        here = (os.getpid(), host, server.server_port)
    registry.register(figures)
    _served[here] = (registry, figures)
    return here[2]


def address(told: str, local_rank: str) -> tuple[str, int]:
    """The host and port that the environment variable names for a process of this machine.

    >>> address("9100", "3"), address("10.0.0.1:9100", "0")
    (('127.0.0.1', 9103), ('10.0.0.1', 9100))
    """
    host, _, port = told.strip().rpartition(":")
    if not (port.isascii() and port.isdigit() and local_rank.isdigit()):
        raise InputError(
            f"{VARIABLE} is '{told}', but it names a port (9100), or an address and a port (10.0.0.1:9100)."
        )
    return host.strip("[]") or LOOPBACK, int(port) + int(local_rank)


def _number(name: str, value: Any) -> float | Tensor:
    """A figure of the training loop: a number, or a tensor of one, which is looked at only when it is asked for."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.detach()
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"The figure '{name}' is to be a number or a tensor of one number, not {type(value).__name__}."
        ) from None
