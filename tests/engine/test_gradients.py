"""Which models are chains of known layers, and that both forms of computing gradients give the same."""

import collections
import copy
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from gossamer import data, models, simulate
from gossamer.data import Augmentation, Erasing
from gossamer.engine.gradients.autograd import AutogradGradients
from gossamer.engine.gradients.compiled import VERSION, Chain, CompiledGradients
from gossamer.engine.gradients.compiled.vectors import LANES
from gossamer.engine.gradients.recognition import ChainPlan, read
from gossamer.engine.hardware import Workers
from gossamer.engine.node_models import Layout, NodeModels
from gossamer.models import LeNet, ResNet34

CLASSES = 10


def test_which_batches_fit():
    def plan(model: nn.Module) -> ChainPlan:
        found = read(model, Layout(model))
        assert found is not None
        return found

    lenet, images, classes = plan(LeNet((1, 28, 28), CLASSES)), torch.zeros(3, 1, 28, 28), torch.zeros(3).long()
    assert lenet.fits(images, classes)
    wrong = (images.double(), classes), (images, classes.int()), (images, classes[:2])
    for batch in (*wrong, (images.flatten(1), classes), (images[0], classes), (images[:0], classes[:0])):
        assert not lenet.fits(*batch)
    vectors, volumes = torch.zeros(3, 12), torch.zeros(3, 1, 3, 4)
    assert [plan(nn.Sequential(nn.Linear(12, CLASSES))).fits(batch, classes) for batch in (vectors, volumes)] == [
        True,
        False,
    ]
    flattening = plan(nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES)))
    assert [flattening.fits(batch, classes) for batch in (vectors, volumes)] == [True, True]


class Residual(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
    model[1].weight = model[0].weight
    return model


def used_twice() -> nn.Module:
    layer = nn.Linear(10, 10)
    return nn.Sequential(layer, nn.ReLU(), layer)


def with_spare_parameter() -> nn.Module:
    model = nn.Sequential(nn.Linear(10, 10))
    model.spare = nn.Parameter(torch.zeros(3))
    return model


def hooked(change: Callable[[nn.Linear], object]) -> nn.Module:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
    change(model[0])
    return model


def convolution(**options: object) -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 3, **options), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def pooling(pool: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), pool, nn.Flatten(), nn.Linear(4, 10))


class Backwards(nn.Sequential):
    def __iter__(self) -> Iterator[nn.Module]:
        return iter(reversed(list(super().__iter__())))


class Doubled(nn.Sequential):
    def __call__(self, x: Tensor) -> Tensor:
        return 2 * super().__call__(x)


REFUSED = {
    "order of its own": lambda: Backwards(nn.Linear(10, 10), nn.ReLU()),
    "call of its own": lambda: Doubled(nn.Linear(10, 10)),
    "convolution that is misread": lambda: nn.Sequential(
        nn.Conv2d(1, 16, (3, 9), stride=(1, 2)), nn.Flatten(), nn.Linear(416, 10)
    ),
    "pooling of a volume": lambda: pooling(nn.MaxPool2d((2, 2, 2))),
    "dropout": lambda: nn.Sequential(nn.Linear(10, 10), nn.Dropout()),
    "batch norm": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 10)),
    "another activation": lambda: nn.Sequential(nn.Linear(10, 10), nn.Tanh()),
    "own forward of a chain": lambda: Residual(nn.Linear(10, 10)),
    "own forward of an instance": lambda: hooked(lambda m: vars(m).update(forward=lambda x: x)),
    "residual network": lambda: ResNet34((3, 32, 32), 10),
    "bare layer that is no chain": lambda: nn.Bilinear(3, 3, 10),
    "tied parameters": tied,
    "layer used twice": used_twice,
    "frozen parameter": lambda: hooked(lambda m: m.weight.requires_grad_(False)),
    "parameter outside of the chain": with_spare_parameter,
    "parametrization": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(10, 10))),
    "forward hook": lambda: hooked(lambda m: m.register_forward_hook(lambda *_: None)),
    "forward pre-hook": lambda: hooked(lambda m: m.register_forward_pre_hook(lambda *_: None)),
    "backward hook": lambda: hooked(lambda m: m.register_full_backward_hook(lambda *_: None)),
    "backward pre-hook": lambda: hooked(lambda m: m.register_full_backward_pre_hook(lambda *_: None)),
    "parameter hook": lambda: hooked(lambda m: m.weight.register_hook(lambda g: g)),
    "accumulation hook": lambda: hooked(lambda m: m.weight.register_post_accumulate_grad_hook(lambda _: None)),
    "groups": lambda: convolution(groups=2),
    "dilation": lambda: convolution(dilation=2),
    "reflecting padding": lambda: convolution(padding=1, padding_mode="reflect"),
    "padding beyond the kernel": lambda: convolution(padding=3),
    "same padding of an even kernel": lambda: nn.Sequential(
        nn.Conv2d(1, 1, 2, padding="same"), nn.Flatten(), nn.Linear(4, 10)
    ),
    "pooling with a ragged edge": lambda: pooling(nn.MaxPool2d(2, ceil_mode=True)),
    "mean pooling with a ragged edge": lambda: pooling(nn.AvgPool2d(2, ceil_mode=True)),
    "padding that does not count": lambda: pooling(nn.AvgPool2d(3, padding=1, count_include_pad=False)),
    "own divisor": lambda: pooling(nn.AvgPool2d(2, divisor_override=3)),
    "adaptive pooling to an image": lambda: pooling(nn.AdaptiveAvgPool2d(2)),
    "flattening part of the axes": lambda: nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(2), nn.Linear(4, 10)),
    "linear layer on images": lambda: nn.Sequential(nn.Conv2d(1, 1, 3), nn.Linear(4, 10)),
    "convolution of vectors": lambda: nn.Sequential(nn.Flatten(), nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(4, 10)),
    "images as output": lambda: nn.Sequential(nn.Conv2d(1, 10, 3)),
    "missing layer": lambda: nn.Sequential(collections.OrderedDict(a=nn.Linear(10, 10), b=None)),
    "half precision": lambda: nn.Sequential(nn.Linear(10, 10)).to(torch.bfloat16),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_it_does_not_know(name):
    model = REFUSED[name]()
    assert read(model, Layout(model)) is None


def test_a_copy_without_hooks_is_taken_again():
    model = hooked(lambda m: m.register_forward_hook(lambda *_: None))
    free = copy.deepcopy(model)
    free[0]._forward_hooks.clear()
    assert read(free, Layout(free)) is not None


def test_a_hook_on_all_modules_is_served_by_the_model_itself():
    model = nn.Sequential(nn.Linear(10, 10))
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert read(model, Layout(model)) is None
    finally:
        handle.remove()
    assert read(model, Layout(model)) is not None


@pytest.mark.parametrize("sizes", ["equal", "unequal"])
def test_the_simulator_gets_the_same_by_kernels_and_by_the_model(sizes, monkeypatch):
    # Fixed, because rounding alone may decide which of two pixels is the larger, and then the gradients differ.
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (20 * 16, 1, 16, 16), generator=generator, dtype=torch.uint8)
    targets = torch.arange(20 * 16) % 10
    augmentation = Augmentation(padding=2, flip=True, erasing=Erasing())
    dataset = data.Dataset.from_tensors(images, targets, test=(images[:5], targets[:5]), augmentation=augmentation)
    # Unequal: some nodes have fewer samples than a batch.
    split = data.partition.iid(20) if sizes == "equal" else data.partition.dirichlet(20, alpha=0.2, min_size=3)
    nodes = dataset.split(split, holdout=0)
    weights = nodes.loss_weights("size")
    assert (len(weights.unique()) == 1) is (sizes == "equal")
    assert (min(nodes.sizes) < 6) is (sizes == "unequal")
    computed = counted(monkeypatch, Chain, "gradients")
    options = {
        "lr": 0.05, "batch_size": 6, "rounds": 6, "node_weight": "size", "weight_decay": 0.01, "clip": 0.8,
        "evaluate_every": 0.1,
    }  # fmt: skip
    compiled = simulate(models.LeNet, nodes, "momentum-tracking", "ring", **options)
    computed.pop()  # of the comparison with torch
    assert len(computed) == 6  # one call per round
    assert len(compiled.simulation.models.modules._made) == 1
    monkeypatch.setattr("gossamer.engine.gradients.compiled.is_worthwhile", lambda *_: False)
    by_the_model = simulate(models.LeNet, nodes, "momentum-tracking", "ring", **options)
    forms = [run.simulation.gradients.form for run in (compiled, by_the_model)]
    assert forms == [f"compiled {VERSION}, {LANES[np.dtype(np.float32)]} lanes", "autograd"]
    torch.testing.assert_close(compiled.simulation.models.x, by_the_model.simulation.models.x, rtol=1e-3, atol=1e-5)
    for figure in ("train_loss", "gradient_norm", "loss"):
        assert compiled.history[figure][1:] == pytest.approx(by_the_model.history[figure][1:], rel=1e-4)
    samples = [run.simulation.state_dict()["meter"]["samples"] for run in (compiled, by_the_model)]
    # Six rounds are two epochs of equal nodes, whose last batch is smaller; unequal ones go round their own data.
    assert set(samples) == {2 * 320 if sizes == "equal" else 6 * sum(min(6, s) for s in nodes.sizes)}


def counted(monkeypatch: pytest.MonkeyPatch, where: type, method: str) -> list[int]:
    """Grows by one at every call of the method."""
    calls: list[int] = []
    real = getattr(where, method)

    def noted(*arguments: object) -> object:
        calls.append(1)
        return real(*arguments)

    monkeypatch.setattr(where, method, noted)
    return calls


def test_evaluation_by_the_chain_equals_that_by_the_model():
    def model() -> nn.Module:
        return LeNet((1, 16, 16), CLASSES)

    torch.manual_seed(7)
    own = NodeModels(model(), 5, torch.device("cpu"))
    own.x.add_(torch.randn_like(own.x), alpha=0.02)
    # More than one block of samples, and the last of them smaller; five models and one are odd groups.
    inputs, targets = torch.randn(650, 1, 16, 16), torch.randint(0, CLASSES, (650,))
    nodes = data.Dataset.from_tensors(inputs, targets).split(data.partition.iid(5), holdout=0)
    weights, plan = torch.ones(5), read(own.modules[0], own.layout)
    assert plan is not None
    forms = [
        AutogradGradients(own, nodes, weights),
        CompiledGradients(Chain(plan, (1, 16, 16), nodes.pipeline), own, nodes, weights),
    ]
    with Workers(2) as workers:
        expected, found = (form.scores((inputs, targets), workers) for form in forms)
    assert found.metric == expected.metric
    assert len(set(found.metric)) > 1
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)


@pytest.mark.parametrize("clip", [None, 1.0, 100.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_both_forms_clip_and_decay_alike(clip, weight_decay):
    inputs, targets = torch.rand(6, 1, 16, 16, dtype=torch.float64), torch.arange(6) % 3
    nodes = data.Dataset.from_tensors(inputs, targets).split(data.partition.iid(3), holdout=0)
    found = []
    for form in ("autograd", "compiled"):
        torch.manual_seed(1)
        own = NodeModels(LeNet((1, 16, 16), CLASSES).double(), 3, torch.device("cpu"))
        own.x.mul_(torch.tensor([[1.0], [1.0], [2.0]]))
        plan = read(own.modules[0], own.layout)
        assert plan is not None
        if form == "autograd":
            gradients = AutogradGradients(own, nodes, torch.ones(3))
        else:
            gradients = CompiledGradients(Chain(plan, (1, 16, 16), nodes.pipeline), own, nodes, torch.ones(3))
        index = [torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([5])]
        with Workers(2) as workers:
            computed = gradients.compute(index, [None] * 3, clip, weight_decay, workers)
        found.append((own.grad, *(numbers.double() for numbers in computed)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert found[0][3].max() > 1
