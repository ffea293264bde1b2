"""How vectors move between nodes."""

from gossamer.network.contract import Network, Pending, Ready
from gossamer.network.distributed import DistributedNetwork
from gossamer.network.simulated import SimulatedNetwork
from gossamer.network.waiting import PeerError

__all__ = ["DistributedNetwork", "Network", "PeerError", "Pending", "Ready", "SimulatedNetwork"]
