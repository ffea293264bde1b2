"""The simulator on an accelerator, as far as it shows without one: nothing mixes tensors of two devices."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gossamer import data, methods, models, topology
from gossamer.data import Augmentation, Erasing
from gossamer.engine import history
from gossamer.engine.hardware import NodeGenerators
from gossamer.engine.simulation import Settings, Simulation
from gossamer.network import simulated

aten = torch.ops.aten
TAKES_INDICES_FROM_ANYWHERE = {aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default}


class Accelerator(TorchDispatchMode):
    """Lets the meta device pass for an accelerator: it refuses what cuda refuses, and everything read back is 1."""

    def __init__(self, without: torch.dtype | None = None) -> None:
        super().__init__()
        self.calls = 0
        self.without = without

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (aten._local_scalar_dense.default, aten.item.default) and args[0].is_meta:
            return 1
        if function is aten._to_copy.default and args[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if function is aten.copy_.default:
            return args[0].fill_(1) if args[1].is_meta and not args[0].is_meta else function(*args, **kwargs)
        places = {t.device for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.dim()}
        if len(places) > 1 and function not in TAKES_INDICES_FROM_ANYWHERE:
            raise RuntimeError(f"{function} was given tensors on {places}")
        self.calls += any(place.type == "meta" for place in places)
        result = function(*args, **kwargs)
        if self.without and any(
            isinstance(t, Tensor) and t.is_meta and t.dtype == self.without for t in tree_leaves(result)
        ):
            raise RuntimeError(f"the device has no {self.without}")
        return result


class Inline:
    """Workers that run in this thread, because another one would not see the mode."""

    number = 1
    interrupted = False

    def run(self, task: Callable[[int], None], tasks: int) -> None:
        for k in range(tasks):
            task(k)


def simulation(method: str, graph: topology.Topology, model: nn.Module) -> Simulation:
    n = graph.n
    images = torch.randint(0, 256, (12 * n, 3, 12, 12), dtype=torch.uint8)
    classes = torch.arange(12 * n) % 10
    augmentation = Augmentation(padding=2, flip=True, erasing=Erasing())
    dataset = data.Dataset.from_tensors(images, classes, test=(images[:20], classes[:20]), augmentation=augmentation)
    device = torch.device("meta")
    settings = Settings(step_size=lambda r: 0.1, batch_size=5, weight_decay=0.01, clip=0.5, device=device)
    split = dataset.split(data.partition.iid(n))
    return Simulation(model, split, methods.get(method), graph, settings, Inline())


def graph_for(method: str, n: int) -> topology.Topology:
    return topology.chain(n) if methods.get(method).facts.needs.tree else topology.ring(n).lazy()


@pytest.mark.parametrize("method", methods.names())
def test_every_method_stays_on_its_device(method):
    with Accelerator() as accelerator:
        run = simulation(
            method, graph_for(method, 4), nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(200, 10))
        )
        for _ in range(2):
            run.advance()
        row = run.measure(validate=True)
    assert accelerator.calls > 100
    assert row["consensus_distance"] == 1.0
    assert run.gradients.form == "autograd"


@pytest.mark.parametrize("method", ["momentum-tracking", "relaysum"])
def test_so_do_sums_over_the_neighbours_of_many_nodes(method, monkeypatch):
    monkeypatch.setattr(simulated, "DENSE_UP_TO", 4)
    with Accelerator():
        run = simulation(method, graph_for(method, 8), nn.Sequential(nn.Flatten(), nn.Linear(432, 10)))
        run.advance()
    assert run.models.x.is_meta


@pytest.mark.parametrize("name", ["small-cnn", "batch norm"])
def test_models_run_there_one_by_one(name):
    batch_norm = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))
    model = batch_norm if name == "batch norm" else models.get(name)((3, 12, 12), 10)
    with Accelerator():
        run = simulation("momentum-tracking", topology.ring(8), model)
        run.advance()
        saved = run.state_dict()
    assert run.gradients.form == "autograd"
    assert saved["x"].is_meta


def test_long_sums_do_without_float64_where_a_device_has_none(monkeypatch):
    monkeypatch.setattr(history, "_WITHOUT_FLOAT64", {"meta"})
    with Accelerator(without=torch.float64):
        run = simulation("momentum-tracking", topology.ring(4), models.get("small-cnn")((3, 12, 12), 10))
        run.advance()
        row = run.measure(validate=True)
    assert row["consensus_distance"] == 1.0
    with Accelerator(without=torch.float64), pytest.raises(RuntimeError, match=r"has no torch.float64"):
        torch.ones(3, device="meta").double()


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_generators_are_those_of_the_device(kind, monkeypatch):
    device, there = torch.device(kind), {"state": torch.tensor([7], dtype=torch.uint8)}

    def put(state: Tensor, *_: Any) -> None:
        there["state"] = state

    monkeypatch.setattr(f"torch.{kind}.get_rng_state", lambda *_: there["state"])
    monkeypatch.setattr(f"torch.{kind}.set_rng_state", put)
    generators = NodeGenerators(seed=0, nodes=2)
    generators._device = device
    own, here = generators.states[1], torch.get_rng_state()
    with generators.turn(1):
        assert there["state"] is own
        there["state"] = torch.tensor([9], dtype=torch.uint8)
    assert generators.states[1].tolist() == [9]
    assert there["state"].tolist() == [7]
    assert torch.equal(here, torch.get_rng_state())


def test_a_mixture_would_be_noticed():
    with Accelerator(), pytest.raises(RuntimeError, match="was given tensors on"):
        torch.ones(3, 2, device="meta").index_select(0, torch.zeros(1, dtype=torch.int64))
