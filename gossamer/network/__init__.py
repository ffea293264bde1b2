"""How vectors move between nodes."""

from gossamer.network.contract import Network, Pending, Ready
from gossamer.network.distributed import DistributedNetwork
from gossamer.network.simulated import SimulatedNetwork

__all__ = ["DistributedNetwork", "Network", "Pending", "Ready", "SimulatedNetwork"]
