"""Every form of computing gradients gives what the model itself gives."""

import collections
import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from gossamer import DSGD, data, models, simulate, topology
from gossamer.data import Augmentation, Erasing
from gossamer.engine.gradients.autograd import AutogradGradients
from gossamer.engine.gradients.chain import Chain, ChainGradients, cost_of, group_size, is_worthwhile
from gossamer.engine.gradients.recognition import ChainPlan, read
from gossamer.engine.hardware import Workers
from gossamer.engine.node_models import Layout, NodeModels
from gossamer.engine.simulation import Settings, Simulation
from gossamer.models import LeNet, ResNet34, SmallCNN

CLASSES = 10


class Group:
    """G nodes with different parameters and data, and their gradients by the model itself, node by node."""

    def __init__(
        self, model: Callable[[], nn.Module], shape: tuple[int, ...], nodes: int, batch: int, dtype: torch.dtype
    ) -> None:
        torch.manual_seed(7)
        self.models = NodeModels(model().to(dtype), nodes, torch.device("cpu"))
        self.x = self.models.x
        self.x.add_(torch.randn_like(self.x), alpha=0.02)
        self.inputs = torch.randn(nodes, batch, *shape, dtype=dtype)
        self.targets = torch.randint(0, CLASSES, (nodes, batch))
        self.plan = plan_of(self.models.modules[0], self.models.layout)
        self.chain = Chain(self.plan)

    def by_the_model(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        self.models.grad.zero_()
        losses, right = [], []
        for i, module in enumerate(self.models.modules):
            output = module(self.inputs[i])
            loss = functional.cross_entropy(output, self.targets[i])
            (loss if weights is None else weights[i] * loss).backward()
            losses.append(loss.detach())
            right.append((output.argmax(1) == self.targets[i]).sum())
        return self.models.grad.clone(), torch.stack(losses), torch.stack(right)

    def by_the_chain(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        grads = torch.full_like(self.x, torch.nan)
        return grads, self.gradients(grads, range(len(self.x)), weights)

    def gradients(self, grads: Tensor, some: range, weights: Tensor | None = None) -> Tensor:
        own = slice(some.start, some.stop)
        parameters, written = self.chain.views(self.x[own]), self.chain.views(grads[own])
        scale = None if weights is None else weights[own]
        return self.chain.gradients(parameters, written, self.inputs[own], self.targets[own], scale)

    def scores(self) -> tuple[Tensor, Tensor]:
        return self.chain.scores(self.chain.views(self.x), self.inputs, self.targets)


def plan_of(model: nn.Module, layout: Layout) -> ChainPlan:
    plan = read(model, layout)
    assert plan is not None
    return plan


def assert_equal(group: Group, weights: Tensor | None = None) -> None:
    expected, expected_losses, expected_right = group.by_the_model(weights)
    grads, losses = group.by_the_chain(weights)
    scores, right = group.scores()
    tolerance = 1e-5 if group.x.dtype == torch.float32 else 1e-12
    for slot in group.models.layout:
        want, have = slot.view(expected), slot.view(grads)
        assert (want - have).norm() <= tolerance * expected.norm(dim=1).mean(), slot.name
    torch.testing.assert_close(losses, expected_losses, rtol=tolerance, atol=0)
    assert torch.equal(scores, losses)
    assert torch.equal(right, expected_right)


def small_vgg() -> nn.Module:
    """VGG-11's pattern, narrow."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (8, 16, 24):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU(inplace=True)]
        layers.append(nn.MaxPool2d(2))
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def mixture() -> nn.Module:
    """Everything that is known, in its less common forms."""
    return nn.Sequential(
        nn.Identity(),
        nn.ReLU(),
        nn.Conv2d(3, 8, (3, 5), stride=(2, 3), padding=(2, 1)),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
        nn.GroupNorm(2, 8, affine=False),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(8, 12, 3, padding="same", bias=False), nn.AvgPool2d(3, 2, padding=1)),
        nn.Conv2d(12, 10, 1, padding="valid"),
        nn.MaxPool2d(1),
        nn.AvgPool2d((1, 2)),
        nn.Flatten(),
        nn.Linear(10 * 3 * 1, CLASSES),
        nn.GroupNorm(2, CLASSES),
        nn.Flatten(),
    )


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.GroupNorm(4, 20), nn.Linear(20, CLASSES, bias=False))


MODELS = {
    "lenet": (lambda: LeNet((1, 28, 28), CLASSES), (1, 28, 28)),
    "lenet-colour": (lambda: LeNet((3, 32, 32), CLASSES), (3, 32, 32)),
    "small-cnn": (lambda: SmallCNN((1, 8, 8), CLASSES), (1, 8, 8)),
    "vgg": (small_vgg, (3, 16, 16)),
    "mixture": (mixture, (3, 21, 27)),
    "perceptron": (perceptron, (12,)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "batch"), [(1, 5), (3, 1), (3, 16)])
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_model(name, nodes, batch, dtype):
    assert_equal(Group(*MODELS[name], nodes, batch, dtype))


def test_scales_the_gradients_but_not_the_losses():
    group = Group(*MODELS["small-cnn"], nodes=3, batch=4, dtype=torch.float64)
    weights = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    assert_equal(group, weights)
    assert torch.equal(group.by_the_chain(weights)[1], group.by_the_chain()[1])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_convolution_and_pooling(data):
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    kernel, stride = pair(1, 4), pair(1, 3)
    padding = tuple(data.draw(st.integers(0, size - 1)) for size in kernel)
    window, step, dilation = pair(1, 3), pair(1, 3), pair(1, 2)
    margin = tuple(data.draw(st.integers(0, size // 2)) for size in window)
    mean_pool = data.draw(st.booleans())
    pool = nn.AvgPool2d(window, step, margin) if mean_pool else nn.MaxPool2d(window, step, margin, dilation)

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 3, 2),
            nn.Conv2d(3, 4, kernel, stride, padding),
            nn.ReLU(),
            pool,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, CLASSES),
        )

    # From 20 pixels on the widest window has room after the longest stride.
    shape = (2, *pair(20, 24))
    assert_equal(Group(model, shape, nodes=2, batch=2, dtype=torch.float64))


@pytest.mark.parametrize("pool", [nn.AvgPool2d, nn.MaxPool2d])
def test_a_window_may_be_larger_than_the_image_but_for_its_padding(pool):
    def model() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 4, 4), nn.ReLU(), pool(3, 2, 1), nn.Flatten(), nn.Linear(4, CLASSES))

    assert_equal(Group(model, (1, 8, 8), nodes=3, batch=4, dtype=torch.float64))


def test_of_equal_pixels_the_first_is_the_largest():
    group = Group(*MODELS["small-cnn"], nodes=2, batch=3, dtype=torch.float64)
    group.inputs.round_().clamp_(-1, 1)
    with torch.no_grad():
        group.x.mul_(8).round_().div_(8)
    assert_equal(group)


@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        # Images whose channels are not last in memory, or could be either.
        ((3, 8, 8), lambda: [nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.MaxPool2d(2, 1, 1), nn.GroupNorm(2, 8)]),
        ((1, 1, 1), lambda: [nn.Conv2d(1, 20, (2, 3), padding=(1, 2)), nn.ReLU(), nn.GroupNorm(10, 20)]),
        ((1, 9, 9), lambda: [nn.MaxPool2d(3, 1, 1), nn.GroupNorm(1, 1), nn.Conv2d(1, 4, 9)]),
        ((2, 6, 6), lambda: [nn.Conv2d(2, 1, 3), nn.GroupNorm(1, 1), nn.Conv2d(1, 16, (3, 4)), nn.ReLU()]),
        # Sizes given as tuples of one, and by NumPy.
        ((2, 8, 8), lambda: [nn.Conv2d(2, 4, 3), nn.MaxPool2d((2,)), nn.AvgPool2d(np.int64(3), 1, (1,))]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unusual_images(shape, layers, dtype):
    features = nn.Sequential(*layers(), nn.Flatten())(torch.zeros(1, *shape)).shape[1]

    def model() -> nn.Module:
        return nn.Sequential(*layers(), nn.Flatten(), nn.Linear(features, CLASSES))

    assert_equal(Group(model, shape, nodes=2, batch=3, dtype=dtype))


def test_predictions_are_told_apart_where_their_logarithms_are_equal():
    group = Group(lambda: nn.Sequential(nn.Linear(12, CLASSES)), (12,), 2, 50, torch.float32)
    with torch.no_grad():
        group.x.mul_(1e-9)
    assert torch.equal(group.scores()[1], group.by_the_model()[2])


def test_is_the_same_on_every_thread_and_leaves_its_inputs_alone():
    group = Group(*MODELS["lenet"], nodes=4, batch=5, dtype=torch.float32)
    inputs, targets, x = group.inputs.clone(), group.targets.clone(), group.x.clone()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        here = group.by_the_chain()
        with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            elsewhere = [done.result() for done in [pool.submit(group.by_the_chain) for _ in range(6)]]
    finally:
        torch.set_num_threads(threads)
    for other in elsewhere:
        assert all(torch.equal(a, b) for a, b in zip(here, other, strict=True))
    assert torch.equal(group.inputs, inputs)
    assert torch.equal(group.targets, targets)
    assert torch.equal(group.x, x)


@pytest.mark.parametrize("shape", [(3,), (1, 3, 1)])
def test_inputs_survive_where_the_layout_stays_the_same(shape):
    def model() -> nn.Module:
        return nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(3, CLASSES))

    group = Group(model, shape, 2, 1, torch.float32)
    inputs = group.inputs.clone()
    group.by_the_chain()
    assert torch.equal(group.inputs, inputs)


def test_a_layer_without_parameters_may_be_used_twice():
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(12, 12), relu, nn.Linear(12, CLASSES), relu)
    assert_equal(Group(lambda: model, (12,), nodes=2, batch=3, dtype=torch.float64))


def test_rows_may_be_part_of_larger_buffers():
    group = Group(*MODELS["small-cnn"], nodes=6, batch=3, dtype=torch.float64)
    expected = group.by_the_model()[0]
    grads = torch.full_like(group.x, 5.0)
    group.gradients(grads, range(2, 5))
    torch.testing.assert_close(grads[2:5], expected[2:5])
    assert (grads[:2] == 5.0).all()
    assert (grads[5:] == 5.0).all()


def test_a_loss_that_is_not_a_number_is_reported_and_stays_with_its_node():
    group = Group(*MODELS["lenet"], nodes=3, batch=2, dtype=torch.float32)
    with torch.no_grad():
        group.x[1, 0] = torch.nan
    grads, losses = group.by_the_chain()
    assert losses.isnan().tolist() == [False, True, False]
    assert grads[[0, 2]].isfinite().all()


def test_which_batches_fit():
    def plan(model: nn.Module) -> ChainPlan:
        return plan_of(model, Layout(model))

    lenet, images, classes = plan(MODELS["lenet"][0]()), torch.zeros(2, 3, 1, 28, 28), torch.zeros(2, 3).long()
    assert lenet.fits(images, classes)
    wrong = (images.double(), classes), (images, classes.int()), (images, classes[:, :2])
    for batch in (*wrong, (images.flatten(2), classes), (images[0], classes), (images[:, :0], classes[:, :0])):
        assert not lenet.fits(*batch)
    vectors, volumes = torch.zeros(2, 3, 12), torch.zeros(2, 3, 1, 3, 4)
    assert [plan(perceptron()).fits(batch, classes) for batch in (vectors, volumes)] == [True, False]
    flattening = plan(nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES)))
    assert [flattening.fits(batch, classes) for batch in (vectors, volumes)] == [True, True]


@given(nodes=st.integers(1, 5000), batch=st.integers(1, 1000))
def test_groups_are_small_enough_for_the_memory_and_many_enough_for_the_workers(nodes, batch):
    size = group_size(nodes, batch)
    assert 1 <= size <= 64
    assert size == 1 or (size * batch <= 512 and size * 4 <= nodes)


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


@pytest.mark.parametrize(
    ("model", "nodes", "batch", "expected"),
    [
        (LeNet((1, 32, 32), 10), 8, 100, True),
        (LeNet((1, 32, 32), 10), 512, 16, True),
        (LeNet((1, 32, 32), 10), 3, 16, False),
        (nn.Sequential(nn.Conv2d(1, 64, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), 8, 16, True),
        (nn.Sequential(nn.Conv2d(1, 64, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), 8, 100, False),
        (nn.Sequential(nn.Conv2d(1, 6, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 10)), 8, 256, True),
        (nn.Sequential(nn.Conv2d(1, 16, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)), 8, 120, False),
        (models.VGG11((1, 32, 32), 10), 8, 16, False),
        (nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, 10)), 8, 100, True),
    ],
)
def test_groups_are_formed_where_they_are_faster(model, nodes, batch, expected):
    inputs, targets = torch.rand(2 * nodes, 1, 32, 32), torch.arange(2 * nodes) % 2
    split = data.Dataset.from_tensors(inputs, targets).split(data.partition.iid(nodes), holdout=0)
    numbers = Settings(step_size=lambda round: 0.1, batch_size=batch)
    with Workers(1) as workers:
        run = Simulation(model, split, DSGD(), topology.ring(nodes), numbers, workers)
    assert (run.gradients.form == "batch_last") is expected


def test_the_cost_of_a_sample():
    group = Group(*MODELS["lenet-colour"], nodes=2, batch=3, dtype=torch.float32)
    cost = cost_of(group.chain, group.x[:1], group.inputs)
    # 6 maps of 28 x 28 from 3 x 5 x 5 pixels each, 16 maps of 10 x 10 from 6 x 5 x 5.
    assert cost.multiplications == 6 * 28 * 28 * 75 + 16 * 10 * 10 * 150
    # Six maps cost torch as much as sixteen.
    assert cost.in_blocks == 16 * 28 * 28 * 75 + 16 * 10 * 10 * 150
    # Unfolded; convolved; pooled, with its bias, rectified, normalized.
    first = 32 * 5 * 3 * 28 + 6 * 28 * 28 + 4 * 6 * 14 * 14
    second = 14 * 5 * 6 * 10 + 16 * 10 * 10 + 4 * 16 * 5 * 5
    assert cost.numbers == first + second + 400 + 3 * 120 + 3 * 84 + 2 * 10


def test_large_images_are_left_to_torch():
    def forms_groups(pixels: int) -> bool:
        layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        group = Group(lambda: layers, (3, pixels, pixels), nodes=2, batch=1, dtype=torch.float32)
        cost = cost_of(group.chain, group.x[:1], group.inputs)
        return is_worthwhile(cost, batch=1)

    assert forms_groups(32)
    assert not forms_groups(96)


def test_a_hook_on_all_modules_is_served_by_the_model_itself():
    model = nn.Sequential(nn.Linear(10, 10))
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert read(model, Layout(model)) is None
    finally:
        handle.remove()
    assert read(model, Layout(model)) is not None


@pytest.mark.parametrize("sizes", ["equal", "unequal"])
def test_the_simulator_gets_the_same_in_groups_and_by_the_model(sizes, monkeypatch):
    # Fixed, because rounding alone may decide which of two pixels is the larger, and then the gradients differ.
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (20 * 16, 1, 16, 16), generator=generator, dtype=torch.uint8)
    targets = torch.arange(20 * 16) % 10
    augmentation = Augmentation(padding=2, flip=True, erasing=Erasing())
    dataset = data.Dataset.from_tensors(images, targets, test=(images[:5], targets[:5]), augmentation=augmentation)
    # Unequal: the last of four groups has nodes with fewer samples than a batch, so its five are computed one by one.
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
    grouped = simulate(models.LeNet, nodes, "momentum-tracking", "ring", **options)
    assert len(computed) == 6 * (4 if sizes == "equal" else 3 + 5)
    assert len(grouped.simulation.models.modules._made) == 1
    monkeypatch.setattr("gossamer.engine.gradients.is_worthwhile", lambda *_: False)
    by_the_model = simulate(models.LeNet, nodes, "momentum-tracking", "ring", **options)
    assert [run.simulation.gradients.form for run in (grouped, by_the_model)] == ["batch_last", "autograd"]
    torch.testing.assert_close(grouped.simulation.models.x, by_the_model.simulation.models.x, rtol=1e-3, atol=1e-5)
    for figure in ("train_loss", "gradient_norm", "loss"):
        assert grouped.history[figure][1:] == pytest.approx(by_the_model.history[figure][1:], rel=1e-4)
    samples = [run.simulation.state_dict()["meter"]["samples"] for run in (grouped, by_the_model)]
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

    group = Group(model, (1, 16, 16), nodes=5, batch=1, dtype=torch.float32)
    # More than one block of samples, and the last of them smaller; five models and one are odd groups.
    inputs, targets = torch.randn(650, 1, 16, 16), torch.randint(0, CLASSES, (650,))
    nodes = data.Dataset.from_tensors(inputs, targets).split(data.partition.iid(5), holdout=0)
    weights = torch.ones(5)
    forms = [
        AutogradGradients(group.models, nodes, weights),
        ChainGradients(group.chain, group.models, nodes, 1, weights),
    ]
    with Workers(2) as workers:
        expected, found = (form.scores((inputs, targets), workers) for form in forms)
        nothing = [form.scores((inputs[:0], targets[:0]), workers) for form in forms]
    assert found.accuracy == expected.accuracy
    assert len(set(found.accuracy)) > 1
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    assert nothing == [None, None]
