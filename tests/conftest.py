"""Settings for all tests."""

import torch

# Tensors in tests are small: one thread each is faster when tests run side by side, and it fixes the bits.
torch.set_num_threads(1)
