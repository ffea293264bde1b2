import copy

import torch
from torch import nn

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
    nested = nn.ModuleList([chain()])
    kept = copy.deepcopy(nested)
    pool_before_relu(kept)
    assert type(kept[0][1]) is nn.MaxPool2d
    assert type(nested[0][1]) is nn.ReLU
