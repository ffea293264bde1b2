"""The compiled kernels compute what the model itself computes."""

import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gossamer import DSGD, data, models, topology
from gossamer.data import Augmentation, Erasing, Normalization, Pipeline
from gossamer.engine.gradients import compiled
from gossamer.engine.gradients.compiled import VERSION, Chain, ChosenSamples, compilation, machine
from gossamer.engine.gradients.compiled.vectors import LANES
from gossamer.engine.gradients.recognition import read
from gossamer.engine.hardware import Workers
from gossamer.engine.node_models import Layout, NodeModels
from gossamer.engine.simulation import Settings, Simulation
from gossamer.models import LeNet, SmallCNN

pytestmark = pytest.mark.timeout(600)
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
        plan = read(self.models.modules[0], self.models.layout)
        assert plan is not None
        self.chain = Chain(plan, shape, Pipeline())

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

    def by_the_kernels(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        grads = torch.full_like(self.x, torch.nan)
        return grads, self.gradients(grads, range(len(self.x)), weights)

    def gradients(self, grads: Tensor, some: range, weights: Tensor | None = None) -> Tensor:
        own = slice(some.start, some.stop)
        scale = torch.ones(len(self.x)) if weights is None else weights
        losses, _, _ = self.chain.gradients(self.x[own], grads[own], self.samples(some), scale[own].double())
        return torch.from_numpy(losses)

    def samples(self, some: range) -> ChosenSamples:
        batch = self.inputs.shape[1]
        index = torch.arange(some.start * batch, some.stop * batch).view(len(some), batch)
        return self.inputs.flatten(0, 1), self.targets.flatten(), index, None

    def scores(self) -> tuple[Tensor, Tensor]:
        each = range(len(self.x))
        found = [self.chain.scores(self.x[k : k + 1], self.samples(range(k, k + 1))) for k in each]
        losses, right = (torch.from_numpy(np.concatenate(numbers)) for numbers in zip(*found, strict=True))
        return losses, right


def assert_equal(group: Group, weights: Tensor | None = None) -> None:
    expected, expected_losses, expected_right = group.by_the_model(weights)
    grads, losses = group.by_the_kernels(weights)
    scores, right = group.scores()
    tolerance = 1e-5 if group.x.dtype == torch.float32 else 1e-10
    for slot in group.models.layout:
        want, have = slot.view(expected), slot.view(grads)
        assert (want - have).norm() <= tolerance * max(expected.norm(dim=1).mean(), 1e-3), slot.name
    torch.testing.assert_close(losses, expected_losses.double(), rtol=tolerance, atol=0)
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
@pytest.mark.parametrize(("nodes", "batch"), [(1, 5), (3, 1), (2, 37)])
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_model(name, nodes, batch, dtype):
    assert_equal(Group(*MODELS[name], nodes, batch, dtype))


def test_scales_the_gradients_but_not_the_losses():
    group = Group(*MODELS["small-cnn"], nodes=3, batch=4, dtype=torch.float64)
    weights = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    assert_equal(group, weights)
    assert torch.equal(group.by_the_kernels(weights)[1], group.by_the_kernels()[1])


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


pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))


@st.composite
def layers(draw: st.DrawFn, shape: tuple[int, int, int]) -> list[nn.Module]:
    """One drawn layer, or one with a ReLU and a pooling behind it."""
    channels, height, width = shape
    kind = draw(st.sampled_from(["convolution", "convolution", "max", "mean", "norm", "relu"]))
    if kind == "relu" or (kind == "norm" and channels * height * width == 1):
        return [nn.ReLU()]
    if kind == "norm":
        groups = draw(st.sampled_from([g for g in (1, 2, 3) if channels % g == 0 and channels * height * width > g]))
        return [nn.GroupNorm(groups, channels, affine=draw(st.booleans()))]
    size = (draw(st.integers(1, min(height, 7))), draw(st.integers(1, min(width, 7))))
    stride = draw(pairs)
    if kind != "convolution":
        padding = (draw(st.integers(0, size[0] // 2)), draw(st.integers(0, size[1] // 2)))
        return [nn.MaxPool2d(size, stride, padding) if kind == "max" else nn.AvgPool2d(size, stride, padding)]
    padding = (draw(st.integers(0, size[0] - 1)), draw(st.integers(0, size[1] - 1)))
    filters = draw(st.integers(1, 14))
    found: list[nn.Module] = [nn.Conv2d(channels, filters, size, stride, padding, bias=draw(st.booleans()))]
    if draw(st.booleans()):
        found.append(nn.ReLU())
    if draw(st.booleans()):
        after = found[0](torch.zeros(1, *shape)).shape[2:]
        if min(after) > 1:
            found.append(nn.MaxPool2d(2, draw(st.integers(1, 3))))
    return found


@st.composite
def chains(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, int, int]]:
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 13)), draw(st.integers(1, 13)))
    model = nn.Sequential()
    seen = shape
    for _ in range(3):
        model.extend(draw(layers(seen)))
        seen = tuple(model(torch.zeros(1, *shape)).shape[1:])
    if draw(st.booleans()):
        model.append(nn.AdaptiveAvgPool2d(1))
        seen = (seen[0], 1, 1)
    model.extend([nn.Flatten(), nn.Linear(math.prod(seen), CLASSES, bias=draw(st.booleans()))])
    return model, shape


@settings(max_examples=60, deadline=None)
@given(drawn=chains(), batch=st.integers(1, 45))
def test_any_chain(drawn, batch):
    model, shape = drawn
    assume(read(model, Layout(model)) is not None)
    group = Group(lambda: model, shape, nodes=2, batch=batch, dtype=torch.float64)
    # Where all outputs are equal but for rounding (a mean of normalized numbers), so are the predictions.
    assume(all(module(own).std(1).min() > 1e-6 for module, own in zip(group.models.modules, group.inputs, strict=True)))
    assert_equal(group)


def test_blocks_and_turns_of_every_size():
    model, shape = MODELS["small-cnn"]
    for batch in (1, 4, 5, 8, 16, 17, 33, 100):
        assert_equal(Group(model, shape, nodes=1, batch=batch, dtype=torch.float64))


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
        here = group.by_the_kernels()
        with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            elsewhere = [done.result() for done in [pool.submit(group.by_the_kernels) for _ in range(6)]]
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
    group.by_the_kernels()
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
    grads, losses = group.by_the_kernels()
    assert losses.isnan().tolist() == [False, True, False]
    assert grads[[0, 2]].isfinite().all()


def tiny() -> Group:
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(3, 4, 3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(4, 5),
            nn.ReLU(),
            nn.Linear(5, CLASSES),
        )

    return Group(model, (1, 8, 8), nodes=1, batch=11, dtype=torch.float64)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["input", "parameter"])
def test_what_is_not_finite_goes_where_torch_lets_it_go(value, where):
    group = tiny()
    numbers = group.inputs[0, 10].view(-1) if where == "input" else group.x[0]
    for place in range(0, len(numbers), 6):
        kept = float(numbers[place])
        numbers[place] = value
        expected, losses, _ = group.by_the_model()
        grads, own = group.by_the_kernels()
        assert own.isfinite().tolist() == losses.isfinite().tolist()
        assert torch.equal(expected.isfinite(), grads.isfinite()), place
        numbers[place] = kept


@pytest.mark.parametrize("wrong", [-1, CLASSES, -100])
def test_a_class_that_does_not_exist_is_refused(wrong):
    group = tiny()
    group.targets[0, 3] = wrong
    with pytest.raises(IndexError, match="10 outputs"):
        group.by_the_kernels()


@pytest.mark.parametrize("inputs", ["uint8", "float32"])
@pytest.mark.parametrize(
    "augmentation",
    [
        None,
        Augmentation(padding=3),
        Augmentation(flip=True),
        Augmentation(padding=2, flip=True, erasing=Erasing(p=0.9)),
    ],
)
@pytest.mark.parametrize("mean", [0.0, (0.1, 0.2, 0.3)])
def test_batches_are_those_of_the_pipeline_to_the_bit(inputs, augmentation, mean):
    draw = torch.Generator().manual_seed(0)
    shape = (3, 9, 12)
    if inputs == "uint8":
        images = torch.randint(0, 256, (40, *shape), dtype=torch.uint8, generator=draw)
    else:
        images = torch.randn(40, *shape, generator=draw)
    pipeline = Pipeline(Normalization(mean, 0.7), augmentation)
    model = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(2 * 9 * 12, CLASSES))
    chain = Chain(read(model, Layout(model)), shape, pipeline)
    index = torch.randint(0, 40, (2, 21), generator=draw)
    draws = pipeline.draw(2 * 21, draw)
    x = torch.zeros(2, sum(p.numel() for p in model.parameters()))
    samples = (images, torch.zeros(40, dtype=torch.int64), index, draws)
    chain.gradients(x, torch.zeros_like(x), samples, torch.ones(2, dtype=torch.float64))
    # What is left is the second batch in blocks, with lines of 12 columns and a zero on both sides.
    program = chain.program
    blocks = -(-21 // program.lanes)
    found = chain._workspace(21)[program.pixels : program.pixels + blocks * program.input_block]
    found = torch.from_numpy(found.reshape(blocks, 3, 9, 14, program.lanes)).movedim(-1, 1).flatten(0, 1)
    assert (found[..., [0, -1]] == 0).all()
    expected = pipeline.batch(images, index.flatten(), draws)
    assert torch.equal(found[:21, ..., 1:-1], expected[21:])


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the features are named for x86")
def test_numba_setting_of_the_processor_decides_the_lanes():
    code = """if True:
        import gossamer as gs
        nodes = gs.data.load("digits").split(gs.partition.iid(nodes=2))
        run = gs.simulate(gs.models.SmallCNN, nodes, "dsgd", "ring", lr=0.1, batch_size=20, rounds=3)
        print(run.simulation.gradients.form, run.history["train_loss"][-1], sep=";")
    """
    found = []
    for features in ("+avx2,+fma", None):
        environment = os.environ | ({"NUMBA_CPU_FEATURES": features} if features else {})
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.strip().split(";"))
    (avx2, loss), (own, same) = found
    assert avx2 == f"compiled {VERSION}, 8 lanes"
    assert own == f"compiled {VERSION}, {LANES[np.dtype(np.float32)]} lanes"
    assert float(loss) == pytest.approx(float(same), rel=1e-5)


def simulation(model: nn.Module, nodes: int = 4, batch: int = 8, pixels: int = 32) -> Simulation:
    inputs, targets = torch.rand(2 * nodes, 1, pixels, pixels), torch.arange(2 * nodes) % 2
    split = data.Dataset.from_tensors(inputs, targets).split(data.partition.iid(nodes), holdout=0)
    numbers = Settings(step_size=lambda round: 0.1, batch_size=batch)
    with Workers(1) as workers:
        return Simulation(model, split, DSGD(), topology.ring(nodes), numbers, workers)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (LeNet((1, 32, 32), 10), True),
        (nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, 10)), True),
        (nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, 1000), nn.ReLU(), nn.Linear(1000, 10)), False),
        (models.VGG11((1, 32, 32), 10), False),
        (nn.Sequential(nn.Conv2d(1, 512, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), False),
    ],
)
def test_models_that_do_not_fit_in_the_cache_are_left_to_torch(model, expected):
    assert simulation(model).gradients.form.startswith("compiled") is expected


def test_whole_numbers_as_settings_do_not_compile_again():
    group = tiny()
    samples, ones = group.samples(range(1)), torch.ones(1, dtype=torch.float64)
    before = len(machine.compute.signatures)
    for clip, decay in ((1, 0), (2.0, 1)):
        group.chain.gradients(group.x, torch.zeros_like(group.x), samples, ones, clip, decay)
    assert len(machine.compute.signatures) - before <= 1


def wrong_bias(*arguments: object) -> None:
    machine.compute(*arguments)
    if arguments[17]:
        arguments[4][0, -1] *= 1.01  # type: ignore[index]


def no_relu(*arguments: object) -> None:
    rows = arguments[1].view(compiled.program.OPERATION).copy()  # type: ignore[attr-defined]
    rows = rows[rows["kind"] != compiled.program.RELU]
    machine.compute(arguments[0], rows.view(np.int64), *arguments[2:])


@pytest.mark.parametrize("broken", [wrong_bias, no_relu])
def test_kernels_that_compute_something_else_are_not_used(broken, monkeypatch, caplog):
    class Broken:
        compute = staticmethod(broken)

    monkeypatch.setattr(compiled, "machine", Broken)
    assert simulation(LeNet((1, 32, 32), 10)).gradients.form == "autograd"
    assert "runs through autograd, not through the compiled kernels" in caplog.text


def test_a_comparison_is_not_upset_by_equal_pixels():
    # Weights of nothing but zeros, and more channels than a tile holds.
    model = LeNet((1, 32, 32), 10)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert simulation(model).gradients.form.startswith("compiled")


def test_without_numba_one_line_says_what_is_missing(monkeypatch, caplog):
    import gossamer.engine.gradients as gradients

    monkeypatch.setattr(gradients, "find_spec", lambda name: None)
    gradients._numba_is_installed.cache_clear()
    try:
        forms = {simulation(LeNet((1, 32, 32), 10)).gradients.form for _ in range(2)}
    finally:
        gradients._numba_is_installed.cache_clear()
    assert forms == {"autograd"}
    assert caplog.text.count("pip install 'gossamer[fast]'") == 1


def test_the_cache_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    find = compilation.cache_directory.__wrapped__
    own = find()
    assert own.is_relative_to(tmp_path)
    assert own.stat().st_mode & 0o077 == 0
    own.chmod(0o777)
    assert find() == own
    assert own.stat().st_mode & 0o077 == 0
    # One that belongs to somebody else, or cannot be written, is not used.
    own.rmdir()
    own.symlink_to(tmp_path)
    elsewhere = find()
    assert not elsewhere.is_relative_to(tmp_path)
    assert elsewhere.stat().st_mode & 0o077 == 0


def test_a_second_process_does_not_compile(tmp_path):
    files = sorted(path.name for path in compilation.cache_directory().rglob("machine.*.nbc"))
    assert any("compute" in name for name in files)
