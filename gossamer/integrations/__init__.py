"""Gossamer in other people's training loops: Lightning's `Trainer`, and Hugging Face's `Trainer` and Accelerate.

Each is imported when it is first used (pip install 'gossamer[lightning]', pip install 'gossamer[transformers]').
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["lightning", "transformers"])
