"""Gossamer: decentralized deep learning on heterogeneous data."""

from gossamer._version import __version__

__all__ = ["__version__"]
