"""Both forms of computing gradients."""

import numba
import pytest


@pytest.fixture(params=["compiled", "autograd"])
def each_form(request, monkeypatch):
    """Run the test with compiled kernels and through autograd, child processes included."""
    if request.param == "autograd":
        monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    return request.param
