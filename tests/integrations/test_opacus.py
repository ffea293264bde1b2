"""Differential privacy by Opacus around Gossamer's optimizers: alone, and on real processes."""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gossamer
from gossamer.errors import InputError
from tests.processes import run_nodes

opacus = pytest.importorskip("opacus", reason="pip install -e '.[privacy]'")
from opacus.accountants import PRVAccountant  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402

from gossamer.integrations.opacus import PrivacyEngine  # noqa: E402

pytestmark = [
    pytest.mark.timeout(200),
    # Opacus hooks the first layer, whose input needs no gradient.
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]

N, BATCH, CLIP, DELTA = 96, 8, 1.0, 1e-3


def examples(n: int = N, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, 1, 8, 8, generator=generator), torch.randint(10, (n,), generator=generator))


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


class Site:
    """A model on examples, with Opacus around the optimizer unless `noise` is None."""

    def __init__(self, noise: float | None = 1.0, own: TensorDataset | None = None, **given: Any) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = gossamer.models.SmallCNN((1, 8, 8), 10)
        self.parameters = list(self.model.parameters())
        method = given.pop("method", gossamer.optim.MomentumTracking)
        self.optimizer = method(self.parameters, lr=0.05, topology=given.pop("topology", None))
        self.stepping: torch.optim.Optimizer = self.optimizer
        self.loader = DataLoader(own or examples(), batch_size=given.pop("batch_size", BATCH))
        if noise is not None:
            self.engine = PrivacyEngine(delta=given.pop("delta", DELTA), seed=given.pop("seed", None))
            self.model, self.stepping, self.loader = self.engine.make_private(
                module=self.model,
                optimizer=self.optimizer,
                data_loader=self.loader,
                noise_multiplier=noise,
                max_grad_norm=given.pop("clip", CLIP),
                **given,
            )

    def train(self, rounds: int, loader: Any = None) -> list[int]:
        """The sizes of the batches."""
        sizes = []
        for inputs, targets in gossamer.rounds(loader or self.loader, rounds):
            self.stepping.zero_grad()
            nn.functional.cross_entropy(self.model(inputs), targets).backward()
            self.stepping.step()
            sizes.append(len(inputs))
        return sizes

    @property
    def x(self) -> Tensor:
        return flat(p.detach() for p in self.parameters)


def test_epsilon_is_that_of_opacus_accountant() -> None:
    site = Site(noise=1.1)
    site.train(15)
    accountant = PRVAccountant()
    accountant.history = [(1.1, BATCH / N, 15)]
    assert site.engine.epsilon() == accountant.get_epsilon(DELTA) == site.engine.get_epsilon(DELTA)
    assert site.engine.accountant.history == [(1.1, BATCH / N, 15)]


def test_without_noise_and_clipping_it_is_the_plain_run() -> None:
    private, plain = Site(noise=0.0, clip=1e9, poisson_sampling=False), Site(noise=None)
    private.train(12)
    plain.train(12)
    assert (private.x - plain.x).abs().max() < 1e-5 * plain.x.abs().max()
    assert not torch.equal(private.x, Site(noise=None).x)
    clipped = Site(noise=0.0, clip=0.01, poisson_sampling=False)
    clipped.train(12)
    assert (clipped.x - plain.x).abs().max() > 1e-2


def test_noise_and_batches_do_not_follow_the_seed_of_the_process() -> None:
    one, other, same, again = (Site(seed=seed) for seed in (None, None, 7, 7))
    drawn = []
    for site in (one, other, same, again):
        torch.manual_seed(0)  # as for equal models on all nodes
        drawn.append((site.train(3), site.x))
    assert not torch.equal(drawn[0][1], drawn[1][1])
    assert drawn[0][0] != drawn[1][0]
    assert torch.equal(drawn[2][1], drawn[3][1])
    assert drawn[2][0] == drawn[3][0]


def test_an_empty_batch_is_a_step_with_noise() -> None:
    site = Site(own=examples(10), batch_size=1, seed=1, delta=1e-2)
    sizes = site.train(20)
    assert 0 in sizes
    assert site.optimizer.stats()["idle"] == sizes.count(0)
    assert site.optimizer.round == 20
    assert sum(steps for _, _, steps in site.engine.accountant.history) == 20
    # The gradient itself is zero: without noise, rounds of empty batches move nothing but by momentum.
    silent = Site(own=examples(10), batch_size=1, seed=1, delta=1e-2, noise=0.0)
    before = silent.x.clone()
    silent.stepping.zero_grad()
    nn.functional.cross_entropy(silent.model(torch.zeros(0, 1, 8, 8)), torch.zeros(0, dtype=torch.long)).backward()
    silent.stepping.step()
    assert torch.equal(silent.x, before)


@pytest.mark.parametrize("method", [gossamer.optim.MomentumTracking, gossamer.optim.DSGDm])
def test_a_virtual_step_is_a_round_with_gradient_zero(method: Any) -> None:
    site = Site(noise=0.0, clip=1e9, poisson_sampling=False, method=method)
    with BatchMemoryManager(data_loader=site.loader, max_physical_batch_size=4, optimizer=site.stepping) as halves:
        assert site.train(8, halves) == [4] * 8
    assert (site.optimizer.round, site.optimizer.stats()["idle"]) == (8, 4)
    assert sum(steps for _, _, steps in site.engine.accountant.history) == 4
    # The same by hand: a round with gradient zero, then one with the gradient of the whole batch where it began.
    plain = Site(noise=None, method=method)
    for inputs, targets in gossamer.rounds(plain.loader, 4):
        plain.optimizer.zero_grad()
        nn.functional.cross_entropy(plain.model(inputs), targets).backward()
        plain.optimizer.idle()
        plain.optimizer.step()
    assert (site.x - plain.x).abs().max() < 1e-5 * plain.x.abs().max()


@pytest.mark.parametrize(
    ("delta", "sentence"),
    [
        (1 / N, f"delta is 0.0104167, but this node has {N} examples"),
        (0.5, "choose one well below 0.01"),
        (0.0, "must be a number above 0 and below 1/n"),
        (None, "delta is None, but it must be a number"),
    ],
)
def test_delta_is_below_one_over_n(delta: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        Site(delta=delta)


@pytest.mark.filterwarnings("ignore:Optimal order is")  # while Opacus searches
def test_the_noise_may_follow_from_epsilon() -> None:
    """Also then it is drawn from the node's own generator."""
    models = []
    for seed in (1, 1, 2):
        plain = Site(noise=None)
        engine = PrivacyEngine(delta=DELTA, accountant="rdp", seed=seed)
        given: dict[str, Any] = {"module": plain.model, "optimizer": plain.optimizer, "data_loader": plain.loader}
        plain.model, plain.stepping, plain.loader = engine.make_private_with_epsilon(
            **given, target_epsilon=5.0, epochs=1, max_grad_norm=CLIP
        )
        torch.manual_seed(0)
        plain.train(N // BATCH)
        assert 4.8 < engine.epsilon() <= 5.0
        models.append(plain.x)
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])
    with pytest.raises(InputError, match=r"The target_delta is 0\.1, but this engine counts with 0\.001"):
        engine.make_private_with_epsilon(**given, target_epsilon=5.0, target_delta=0.1, epochs=1, max_grad_norm=CLIP)


def test_other_optimizers_are_for_opacus_own_engine() -> None:
    model = gossamer.models.SmallCNN((1, 8, 8), 10)
    with pytest.raises(InputError, match=r"not SGD; opacus\.PrivacyEngine is for those"):
        PrivacyEngine(delta=DELTA).make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(examples(), batch_size=BATCH),
            noise_multiplier=1.0,
            max_grad_norm=CLIP,
        )


@pytest.mark.parametrize("name", ["LeNet", "VGG11", "ResNet34", "SmallCNN"])
def test_the_built_in_models_are_fit_for_opacus(name: str) -> None:
    model = getattr(gossamer.models, name)((1, 32, 32), 10)
    assert not opacus.validators.ModuleValidator.validate(model, strict=False)
    assert not [m for m in model.modules() if getattr(m, "inplace", False)]


# Real processes; tests/examples has four ------------------------------------------------------------------------------


def on_a_node(out: Path) -> None:
    """Poisson batches, cut into pieces of another size on every node, and equal seeds everywhere."""
    dist.init_process_group("gloo")
    node = dist.get_rank()
    site = Site(own=examples(seed=0), topology="ring")  # equal examples: what differs is drawn
    first = site.train(1)
    gradient = flat(p.grad for p in site.parameters)
    with BatchMemoryManager(
        data_loader=site.loader, max_physical_batch_size=3 + 6 * node, optimizer=site.stepping
    ) as pieces:
        sizes = first + site.train(15, pieces)
    told = {
        "first": first,
        "empty": sizes.count(0),
        "gradient": gradient[:5].tolist(),
        "stats": site.optimizer.stats(),
        "steps": sum(steps for _, _, steps in site.engine.accountant.history),
        "finite": bool(site.x.isfinite().all()),
    }
    print(json.dumps(told))
    dist.destroy_process_group()


@cache
def _launched(out: Path) -> list[dict[str, Any]]:
    return [json.loads(text.splitlines()[-1]) for text in run_nodes(2, out, on_a_node, out)]


@pytest.fixture
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return _launched(tmp_path_factory.getbasetemp())


def test_noise_is_drawn_per_node(told: list[dict[str, Any]]) -> None:
    one, other = (t["gradient"] for t in told)
    assert one != other


def test_virtual_steps_keep_the_nodes_in_step(told: list[dict[str, Any]]) -> None:
    assert [t["stats"]["round"] for t in told] == [16, 16]
    # An empty batch is a step of Opacus, and there was nothing to learn from.
    assert [t["steps"] + t["stats"]["idle"] - t["empty"] for t in told] == [16, 16]
    assert told[0]["stats"]["idle"] > told[1]["stats"]["idle"]
    assert all(t["finite"] for t in told)
