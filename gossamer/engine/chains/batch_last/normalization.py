"""Group normalization of G nodes at once."""

from typing import Any

import torch
from torch import Tensor

from gossamer.engine.node_models import Slot


class GroupNorm:
    """y = gamma z + beta with z = (x - mean) scale, scale = 1 / sqrt(var + eps), per sample and group of channels."""

    def __init__(self, groups: int, eps: float, affine: tuple[Slot, Slot] | None) -> None:
        self.groups = groups
        self.eps = eps
        self.affine = affine
        self.trains = affine is not None

    def views(self, rows: Tensor) -> tuple[Tensor, ...] | None:
        """Gamma and beta, [G, 1, groups, C / groups, 1, 1]."""
        if self.affine is None:
            return None
        return tuple(slot.view(rows).view(len(rows), 1, self.groups, -1, 1, 1) for slot in self.affine)

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """Mean and variance in two passes, then the scaling."""
        parts = self._parts(x)
        centred = parts - _like_row(_over_group(_over_height(parts)).div_(_count(parts)), parts)
        scale = _over_group(_over_height(centred * centred)).div_(_count(parts)).add_(self.eps).rsqrt_()
        if own is None:
            y = centred * _like_row(scale, parts)
        else:
            gamma, beta = own
            y = torch.addcmul(_like_row(beta, parts), centred, _like_row(scale * gamma, parts))
        return y.view(x.shape), (centred, scale)

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """dx = scale (dz - mean(dz) - z mean(dz z)) with dz = gamma dy."""
        centred: Tensor
        scale: Tensor
        centred, scale = kept
        parts = self._parts(dy)
        # Summed over the height once, for the parameters' gradients as well as for the means.
        dz, dz_z = _over_height(parts), _over_height(parts * centred).mul_(scale)
        factor = scale
        if own is not None:
            for gradient, terms in zip(grads, (dz_z, dz), strict=True):
                gradient.copy_(terms.sum((4, 5), keepdim=True))
            gamma = own[0]
            dz.mul_(gamma)
            dz_z.mul_(gamma)
            factor = scale * gamma
        mean = scale / -_count(parts)
        means = _like_row(_over_group(dz).mul_(mean), parts), _like_row(_over_group(dz_z).mul_(mean * scale), parts)
        away = torch.addcmul(means[0], centred, means[1])
        return torch.addcmul(away, parts, _like_row(factor, parts), out=away).view(dy.shape)

    def _parts(self, x: Tensor) -> Tensor:
        """[G, H, groups, C / groups, W, B]; a vector is an image of one pixel."""
        if x.dim() == 3:
            x = x[:, None, :, None]
        nodes, height, _, width, batch = x.shape
        return x.view(nodes, height, self.groups, -1, width, batch)


def _count(parts: Tensor) -> int:
    """How many numbers a mean runs over."""
    return parts.shape[1] * parts.shape[3] * parts.shape[4]


def _like_row(value: Tensor, parts: Tensor) -> Tensor:
    """A copy for every pixel of one row of the image: operations with it then run along whole rows of memory."""
    return value.expand(-1, 1, *parts.shape[2:]).contiguous()


def _over_height(parts: Tensor) -> Tensor:
    # First over the outer axis alone: a sum of long vectors, several times faster than all axes at once.
    return parts.sum(1, keepdim=True)


def _over_group(parts: Tensor) -> Tensor:
    """Sums over a group's channels and the width, [G, 1, groups, 1, 1, B]."""
    return parts.sum((3, 4), keepdim=True)
