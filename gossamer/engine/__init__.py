"""N nodes on one machine."""

from gossamer.engine.minimize import Trajectory, minimize

__all__ = ["Trajectory", "minimize"]
