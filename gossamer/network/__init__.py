"""How vectors move between nodes."""

from gossamer.network.contract import Network, Pending, Ready
from gossamer.network.distributed import DistributedNetwork
from gossamer.network.simulated import SimulatedNetwork
from gossamer.network.sites import Change, Sites

__all__ = ["Change", "DistributedNetwork", "Network", "Pending", "Ready", "SimulatedNetwork", "Sites"]
