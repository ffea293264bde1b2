"""Compiled chains equal the model that they were read from."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("numba")

from gossamer.engine.gradients.recognition import read
from gossamer.engine.gradients.compiled import Compiled, cache_directory
from gossamer.engine.node_models import Layout
from gossamer.models import LeNet

CLASSES = 10


class Case:
    """A model in float64 with drawn parameters, a compiled chain in `dtype`, and a batch."""

    def __init__(self, model: nn.Module, shape: tuple[int, ...], batch: int, dtype: torch.dtype = torch.float64) -> None:
        torch.manual_seed(3)
        self.model = model.to(torch.float64)
        self.layout = Layout(model)
        plan = read(model, self.layout)
        assert plan is not None
        self.x = self.layout.flatten(model) + 0.1 * torch.randn(self.layout.dim, dtype=torch.float64)
        self.dtype, self.shape = dtype, shape
        self.compiled = Compiled(plan.steps, shape, dtype)
        self.draw(batch)

    def draw(self, batch: int) -> None:
        self.inputs = torch.randn(batch, *self.shape, dtype=torch.float64).to(self.dtype)
        with torch.no_grad():
            classes = self.model(self.inputs.double()).shape[1]
        self.targets = torch.randint(0, classes, (batch,))

    def by_the_model(self, weight: float = 1.0) -> tuple[Tensor, float, int]:
        grad = torch.zeros_like(self.x)
        self.layout.bind(self.model, self.x.clone(), grad)
        outputs = self.model(self.inputs.double())
        loss = functional.cross_entropy(outputs, self.targets)
        (weight * loss).backward()
        return grad, loss.item(), int((outputs.argmax(1) == self.targets).sum())

    def by_the_kernels(self, weight: float = 1.0) -> tuple[Tensor, float]:
        grad = torch.full_like(self.x, math.nan, dtype=self.dtype)
        loss = self.compiled.gradients(self.x.to(self.dtype), grad, self.inputs, self.targets, weight)
        return grad, loss

    def check(self, weight: float = 1.0) -> None:
        expected, expected_loss, expected_right = self.by_the_model(weight)
        grad, loss = self.by_the_kernels(weight)
        score, right = self.compiled.scores(self.x.to(self.dtype), self.inputs, self.targets)
        tolerance = 1e-11 if self.dtype == torch.float64 else 2e-5
        for slot in self.layout:
            want, have = slot.view(expected), slot.view(grad).double()
            assert (want - have).norm() <= tolerance * max(expected.norm(), 1e-3 * abs(weight)), slot.name
        assert math.isclose(loss, expected_loss, rel_tol=tolerance)
        assert score == loss
        assert right == expected_right


pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))


@st.composite
def layers(draw: st.DrawFn, shape: tuple[int, int, int]) -> list[nn.Module]:
    """One drawn layer, or one with a ReLU and a pooling behind it."""
    channels, height, width = shape
    kind = draw(st.sampled_from(["convolution", "convolution", "max", "mean", "norm", "relu"]))
    if kind == "relu":
        return [nn.ReLU()]
    if kind == "norm":
        groups = draw(st.sampled_from([g for g in (1, 2, 3, channels) if channels % g == 0]))
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


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(chains(), st.integers(1, 45))
def test_drawn_chains_have_the_models_gradients(drawn: tuple[nn.Module, tuple[int, int, int]], batch: int) -> None:
    model, shape = drawn
    if isinstance(read(model, Layout(model)), type(None)):
        return
    case = Case(model, shape, batch)
    case.check()
    case.draw(batch + 3)
    case.check(0.3)


def mixture() -> nn.Module:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(3, 8, (3, 5), stride=(2, 3), padding=(2, 1)),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
        nn.GroupNorm(2, 8, affine=False),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, padding="same", bias=False),
        nn.AvgPool2d(3, 2, padding=1),
        nn.Conv2d(12, 10, 1),
        nn.MaxPool2d(1),
        nn.AvgPool2d((1, 2)),
        nn.Flatten(),
        nn.Linear(10 * 3 * 1, CLASSES),
        nn.GroupNorm(2, CLASSES),
        nn.Flatten(),
    )


def dilated() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2, 2, 1, dilation=2), nn.Flatten(), nn.Linear(48, CLASSES))


def without_linear() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, CLASSES, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def perceptron() -> nn.Module:
    return nn.Sequential(nn.GroupNorm(1, 19), nn.Linear(19, 21), nn.ReLU(), nn.GroupNorm(3, 21), nn.Linear(21, CLASSES))


FIXED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mixture": (mixture, (3, 17, 31)),
    "dilated": (dilated, (1, 10, 10)),
    "without linear": (without_linear, (2, 5, 6)),
    "perceptron": (perceptron, (19,)),
    "flattened": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES)), (3, 2, 2)),
    "lenet": (lambda: LeNet((1, 28, 28), CLASSES), (1, 28, 28)),
}


@pytest.fixture(params=FIXED)
def fixed(request: pytest.FixtureRequest) -> tuple[nn.Module, tuple[int, ...]]:
    make, shape = FIXED[request.param]
    return make(), shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_known_chains_have_the_models_gradients(fixed: tuple[nn.Module, tuple[int, ...]], dtype: torch.dtype) -> None:
    case = Case(*fixed, batch=37, dtype=dtype)
    for batch in (37, 1, 8, 16, 33, 100):
        case.draw(batch)
        case.check(1.0 if batch % 2 else 2.5)


def small() -> Case:
    model = nn.Sequential(
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
    return Case(model, (1, 8, 8), 11)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["input", "parameter"])
def test_what_is_not_finite_goes_where_torch_lets_it_go(value: float, where: str) -> None:
    case = small()
    places = range(0, case.x.numel(), 7) if where == "parameter" else range(0, 64, 5)
    for place in places:
        if where == "input":
            inputs = case.inputs.clone()
            case.inputs[10].view(-1)[place] = value
        else:
            kept = case.x[place].item()
            case.x[place] = value
        expected, loss, _ = case.by_the_model()
        grad, own_loss = case.by_the_kernels()
        assert math.isfinite(loss) == math.isfinite(own_loss)
        assert torch.equal(expected.isfinite(), grad.isfinite()), place
        if where == "input":
            case.inputs = inputs
        else:
            case.x[place] = kept


def test_the_same_bits_in_every_thread() -> None:
    case = small()
    alone = case.by_the_kernels()
    with ThreadPoolExecutor(4) as threads:
        for grad, loss in threads.map(lambda _: case.by_the_kernels(), range(32)):
            assert torch.equal(grad, alone[0])
            assert loss == alone[1]


def test_a_class_that_does_not_exist_is_refused() -> None:
    case = small()
    for wrong in (-1, CLASSES, -100):
        case.targets[3] = wrong
        with pytest.raises(IndexError, match="class"):
            case.by_the_kernels()


def test_the_cache_is_the_users_own() -> None:
    assert cache_directory().stat().st_mode & 0o077 == 0
