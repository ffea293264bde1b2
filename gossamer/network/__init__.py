"""How vectors move between nodes."""

from gossamer.network.contract import Network, Pending, Ready
from gossamer.network.simulated import SimulatedNetwork

__all__ = ["Network", "Pending", "Ready", "SimulatedNetwork"]
