"""Gossamer in other people's training loops: Lightning's `Trainer`, Hugging Face's, Accelerate, and Opacus.

Each is imported when it is first used (pip install 'gossamer[lightning]', pip install 'gossamer[transformers]').
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["lightning", "opacus", "transformers"])
