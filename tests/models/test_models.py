from itertools import pairwise

import pytest
import torch
from torch import nn

from gossamer import models
from gossamer.errors import GossamerError
from gossamer.models import VGG11, LeNet, ResNet34, SmallCNN


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def conv(inputs, outputs, side, bias):
    return inputs * outputs * side * side + outputs * bias


def norm(channels):
    return 2 * channels


def linear(inputs, outputs):
    return inputs * outputs + outputs


def vgg_by_hand():
    widths = [3, 64, 128, 256, 256, 512, 512, 512, 512]
    convs = sum(conv(a, b, 3, True) + norm(b) for a, b in pairwise(widths))
    return convs + linear(512, 10)


def resnet_by_hand():
    total, width = conv(3, 64, 3, False) + norm(64), 64
    for channels, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for _ in range(blocks):
            total += conv(width, channels, 3, False) + conv(channels, channels, 3, False) + 2 * norm(channels)
            if width != channels:
                total += conv(width, channels, 1, False) + norm(channels)
            width = channels
    return total + linear(512, 10)


@torch.no_grad()
@pytest.mark.parametrize(
    ("model", "shape", "parameters"),
    [
        (LeNet, (1, 28, 28), 44_470),
        (LeNet, (3, 32, 32), 62_050),
        (SmallCNN, (1, 8, 8), 6_186),
        (VGG11, (3, 32, 32), vgg_by_hand()),
        (ResNet34, (3, 32, 32), resnet_by_hand()),
    ],
)
def test_parameters_and_output(model, shape, parameters):
    made = model(shape=shape, classes=10)
    assert made(torch.rand(3, *shape)).shape == (3, 10)
    assert count(made) == parameters
    assert f"{parameters:,}" in model.__doc__


def test_the_hand_counts():
    assert vgg_by_hand() == 9_231_114
    assert resnet_by_hand() == 21_282_122


@pytest.mark.parametrize("name", models.names())
def test_group_normalization_only_and_no_state_but_parameters(name):
    made = models.get(name.upper())((3, 32, 32), 10)
    assert not list(made.buffers())
    norms = [module for module in made.modules() if isinstance(module, nn.GroupNorm)]
    groups = {
        "lenet": [(2, 6), (4, 16)],
        "small-cnn": [(4, 16), (4, 32)],
        "vgg-11": [(8, c) for c in (64, 128, 256, 256, 512, 512, 512, 512)],
        "resnet-34": [(8, c) for c in [64] * 7 + [128] * 9 + [256] * 13 + [512] * 7],
    }[name]
    assert [(norm.num_groups, norm.num_channels) for norm in norms] == groups


def test_lenet_layer_by_layer():
    kinds = [type(layer).__name__ for layer in LeNet((1, 28, 28), 10)]
    stage = ["Conv2d", "ReLU", "MaxPool2d", "GroupNorm"]
    assert kinds == [*stage, *stage, "Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]


def test_vgg_normalizes_before_relu():
    layers = list(VGG11((3, 32, 32), 10))
    after_conv = [layers[i + 1 : i + 3] for i, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
    assert all(isinstance(norm, nn.GroupNorm) and isinstance(relu, nn.ReLU) for norm, relu in after_conv)
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in layers) == 5


def test_resnet_shapes_and_gradients():
    torch.manual_seed(0)
    model = ResNet34((3, 8, 8), 5)
    model(torch.rand(1, 3, 8, 8)).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    assert nn.Sequential(*list(model)[:-3])(torch.rand(2, 3, 32, 32)).shape == (2, 512, 4, 4)


@pytest.mark.parametrize("model", [LeNet, SmallCNN])
def test_initialization_is_pytorchs_default(model):
    torch.manual_seed(0)
    made = model((1, 28, 28), 10)
    torch.manual_seed(0)
    layers = [layer for layer in made if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            fresh = nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size)
        else:
            fresh = nn.Linear(layer.in_features, layer.out_features)
        assert torch.equal(layer.weight, fresh.weight)
        assert torch.equal(layer.bias, fresh.bias)


@torch.no_grad()
def test_other_shapes():
    assert LeNet((3, 20, 30), 7)(torch.rand(2, 3, 20, 30)).shape == (2, 7)
    assert SmallCNN((3, 9, 6), 7)(torch.rand(2, 3, 9, 6)).shape == (2, 7)
    assert VGG11((1, 64, 70), 7)(torch.rand(2, 1, 64, 70)).shape == (2, 7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LeNet((1, 8, 8), 10), "LeNet .* at least 16x16, not 8x8"),
        (lambda: VGG11((1, 28, 28), 10), "VGG11 .* at least 32x32"),
        (lambda: ResNet34((3, 4, 4), 10), "at least 8x8"),
        (lambda: SmallCNN((64,), 10), r"\(channels, height, width\), not \(64,\)"),
        (lambda: LeNet((0, 28, 28), 10), "needs a shape"),
        (lambda: LeNet((1, 28, 28), 0), "at least one class"),
        (lambda: models.get("resnet34"), "did you mean 'resnet-34'"),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(GossamerError, match=words):
        make()
