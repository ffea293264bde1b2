"""Elementwise updates in one pass over memory, for a coefficient that is a number or a tensor.

A tensor coefficient broadcasts to the vector: it is built only where parameter groups differ in it.
"""

import torch
from torch import Tensor

Scalar = float | Tensor


def add_scaled_(x: Tensor, a: Scalar, v: Tensor) -> Tensor:
    """x <- x + a v."""
    return x.addcmul_(v, a) if isinstance(a, Tensor) else x.add_(v, alpha=a)


def subtract_scaled(x: Tensor, a: Scalar, v: Tensor, out: Tensor) -> Tensor:
    """out <- x - a v. `out` may be x or v."""
    if isinstance(a, Tensor):
        return torch.addcmul(x, v, a, value=-1, out=out)
    return torch.sub(x, v, alpha=a, out=out)


def decay_and_add_(u: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """u <- b u + v."""
    return torch.addcmul(v, u, b, out=u) if isinstance(b, Tensor) else torch.add(v, u, alpha=b, out=u)


def blend_(m: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """m <- b m + (1 - b) v, a running average."""
    return add_scaled_(m.mul_(b), 1 - b, v)
