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


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


@pytest.mark.parametrize(
    ("following", "swapped"),
    [
        ([nn.Dropout(inplace=True)], False),
        ([nn.Dropout(), nn.Flatten(), nn.ReLU(inplace=True)], False),
        ([nn.Identity(), nn.Sequential(nn.ReLU(inplace=True))], False),
        ([Doubled()], False),
        ([nn.Flatten(), nn.Unflatten(1, (3, 16)), Doubled()], False),
        ([nn.Dropout(), nn.Flatten(), nn.Linear(48, 48), nn.ReLU(inplace=True)], True),
        ([nn.Conv2d(3, 3, 1), Doubled()], True),
        ([], True),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_layers_before_one_that_works_in_place_stay(following, swapped, inside):
    def model() -> nn.Sequential:
        torch.manual_seed(0)
        head = [nn.Conv2d(3, 3, 1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*([nn.Sequential(*head)] if inside else head), *following, nn.Flatten(), nn.Linear(48, 2))

    plain, ours = model(), pool_before_relu(model())
    assert ("MaxPool2d ReLU" in " ".join(type(m).__name__ for m in ours.modules())) is swapped
    for each in (plain, ours):
        torch.manual_seed(1)
        each(torch.randn(5, 3, 8, 8)).square().sum().backward()
    assert torch.equal(plain[0][0].weight.grad if inside else plain[0].weight.grad, next(ours.parameters()).grad)


def test_a_chain_that_appears_twice_is_changed_if_that_is_right_both_times():
    part = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    pool_before_relu(nn.Sequential(part, nn.Conv2d(3, 3, 1), part, Doubled()))
    assert type(part[0]) is nn.ReLU
    pool_before_relu(nn.Sequential(part, nn.Conv2d(3, 3, 1), part))
    assert type(part[0]) is nn.MaxPool2d


def test_nothing_is_moved_under_a_hook_on_all_modules():
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert type(pool_before_relu(chain())[1]) is nn.ReLU
    finally:
        handle.remove()


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
