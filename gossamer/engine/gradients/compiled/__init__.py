"""Losses and gradients by compiled kernels (draft)."""
import threading
from typing import Any
import numpy as np
import torch
from torch import Tensor
from gossamer.engine.gradients.compiled import machine
from gossamer.engine.gradients.compiled.program import translate
from gossamer.engine.gradients.compiled.vectors import LANES

_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}

class Compiled:
    def __init__(self, steps, shape, dtype):
        self.dtype = _NUMPY[dtype]
        self.program = translate(steps, shape, LANES[np.dtype(self.dtype)])
        self._own = threading.local()

    def workspace(self, batch):
        needed = self.program.workspace(batch)
        space = getattr(self._own, "space", None)
        if space is None or len(space) < needed:
            room = np.zeros(needed + 16, self.dtype)
            skip = -room.ctypes.data % 64 // room.itemsize
            space = self._own.space = room[skip : skip + needed]
        return space

    def load(self, inputs, index, ws):
        c = self.program.shape[0]
        one, none = np.ones(c, self.dtype), np.zeros(c, self.dtype)
        machine.arrange(inputs.numpy().reshape(len(inputs), *self.program.shape), index.numpy(), np.zeros((0, 3), np.float32), np.zeros((0, 4), np.int64), 0, False, one, none, self.program.margin, ws, self.program.pixels)

    def gradients(self, x, grad, inputs, targets, weight=1.0):
        ws = self.workspace(len(targets))
        self.load(inputs, torch.arange(len(inputs)), ws)
        p = self.program
        loss, right = machine.run(p.images, p.rows, p.sizes, x.numpy(), grad.numpy(), targets.numpy(), weight / len(targets), True, ws)
        if right < 0: raise IndexError("A target is not a class")
        return loss / len(targets)

    def scores(self, x, inputs, targets):
        ws = self.workspace(len(targets))
        self.load(inputs, torch.arange(len(inputs)), ws)
        p = self.program
        loss, right = machine.run(p.images, p.rows, p.sizes, x.numpy(), x.numpy(), targets.numpy(), 0.0, False, ws)
        return loss / len(targets), right
def cache_directory():
    from gossamer.engine.gradients.compiled.cache import cache_directory as c
    return c()
