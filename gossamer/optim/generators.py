"""The random generators of a process: torch's, those of its accelerators, Python's and NumPy's."""

import random
from typing import Any

import numpy as np
import torch


def generator_states() -> dict[str, Any]:
    """Their states as plain tensors and numbers."""
    version, words, gauss = random.getstate()
    name, key, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, torch.tensor(words), gauss],
        "numpy": [str(name), torch.from_numpy(np.asarray(key, dtype=np.int64)), *rest],
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Take over what `generator_states` gave. Accelerators that this machine does not have are passed over."""
    torch.set_rng_state(states["torch"])
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, key, *rest = states["numpy"]
    np.random.set_state((name, key.numpy().astype(np.uint32), *rest))  # noqa: NPY002
