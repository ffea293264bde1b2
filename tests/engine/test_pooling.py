import copy

import pytest
import torch
from torch import nn

from gossamer import models
from gossamer.engine.pooling import pool_before_relu


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 2))


def test_outputs_and_gradients_are_the_same_to_the_bit():
    plain, swapped = chain(), pool_before_relu(chain())
    assert [type(m).__name__ for m in swapped][1:3] == ["MaxPool2d", "ReLU"]
    inputs = torch.randn(5, 3, 8, 8)
    inputs[:2] = 0.0  # ties: constant images
    for model in (plain, swapped):
        model(inputs).square().sum().backward()
    assert torch.equal(plain(inputs), swapped(inputs))
    for a, b in zip(plain.parameters(), swapped.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    assert plain.state_dict().keys() == swapped.state_dict().keys()


def test_layers_with_hooks_and_other_containers_stay():
    watched = chain()
    watched[1].register_forward_hook(lambda *_: None)
    assert type(pool_before_relu(watched)[1]) is nn.ReLU

    class Own(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    assert type(pool_before_relu(Own(nn.ReLU(), nn.MaxPool2d(2)))[0]) is nn.ReLU
    indices = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True))
    assert type(pool_before_relu(indices)[0]) is nn.ReLU


def test_nested_chains_are_found_and_the_users_model_is_not_touched():
    nested = nn.Sequential(chain())
    kept = copy.deepcopy(nested)
    pool_before_relu(kept)
    assert type(kept[0][1]) is nn.MaxPool2d
    assert type(nested[0][1]) is nn.ReLU


class LayerByLayer(nn.Module):
    """Looks at what comes out of its ReLU, and takes a part of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = chain()[:3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.zeros(())
        for layer in self.features:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                seen = x.sum()
        return seen + self.features[:2](x.repeat(1, 1, 2, 2)[:, :3]).sum()


def test_a_module_that_takes_its_layers_one_by_one_computes_what_it_did():
    inputs = torch.randn(5, 3, 8, 8)
    for wrap in (lambda module: module, nn.Sequential):
        model = wrap(LayerByLayer())
        assert torch.equal(pool_before_relu(copy.deepcopy(model))(inputs), model(inputs))
    patched = chain()
    patched.forward = lambda x: patched[:2](x)
    assert type(pool_before_relu(patched)[1]) is nn.ReLU


@pytest.mark.parametrize("name", ["lenet", "vgg-11", "small-cnn"])
def test_our_own_models_pool_first(name):
    def kinds(model: nn.Module) -> str:
        return " ".join(type(layer).__name__ for layer in model.modules())

    model = models.get(name)((3, 32, 32), 10)
    assert "ReLU MaxPool2d" in kinds(model)
    assert "ReLU MaxPool2d" not in kinds(pool_before_relu(model))
