"""Settings for all tests."""

import signal

import pytest
import torch

# Tensors in tests are small: one thread each is faster when tests run side by side, and it fixes the bits.
torch.set_num_threads(1)

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Every test sees the same random numbers, alone or after others."""
    torch.manual_seed(0)
