"""One process is plain local training, and what can be said without neighbours."""

import copy
import inspect
import io
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from gossamer import optim, topology
from gossamer.errors import GossamerError
from gossamer.methods import Facts, Method, State
from gossamer.methods.contract import Scalar
from gossamer.network import Network
from gossamer.optim import MomentumTracking, average_, averaged, rounds, training_loop
from tests.optim import tasks
from tests.optim.tasks import SmoothMLP, flat

INPUTS, TARGETS = torch.linspace(-1, 1, 24, dtype=torch.float64).view(8, 3), torch.ones(8, 1, dtype=torch.float64)


def network() -> SmoothMLP:
    torch.manual_seed(0)
    return SmoothMLP().double()


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 6) -> Tensor:
    return tasks.fit(model, optimizer, (INPUTS, TARGETS), steps)[-1]


EQUAL_SGD = [make for make in optim.ALL if make.method.facts.equals_sgd_alone]


@pytest.mark.parametrize("make", EQUAL_SGD)
@pytest.mark.parametrize("graph", [None, "ring"])
def test_one_process_is_sgd(make: Any, graph: str | None) -> None:
    momentum = {"momentum": 0.9} if "momentum" in make.__init__.__annotations__ else {}
    ours, theirs = network(), network()
    sgd = torch.optim.SGD(theirs.parameters(), lr=0.05, weight_decay=1e-2, **momentum)
    mine = make(ours.parameters(), lr=0.05, weight_decay=1e-2, topology=graph, **momentum)
    torch.testing.assert_close(fit(ours, mine), fit(theirs, sgd), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", optim.ALL)
def test_decoupled_weight_decay_shrinks_before_the_step(make: Any) -> None:
    """Alone, mixing does nothing: x <- (1 - lr wd) x by hand and then a step without decay is the same."""
    ours, theirs = network(), network()
    mine = make(ours.parameters(), lr=0.05, weight_decay=0.1, decoupled=True)
    plain = make(theirs.parameters(), lr=0.05)
    for _ in range(6):
        mine.zero_grad()
        ours(INPUTS, TARGETS).backward()
        mine.step()
        plain.zero_grad()
        theirs(INPUTS, TARGETS).backward()
        with torch.no_grad():
            for p, entry in plain.state.items():
                if "half" in entry:  # the memory of the last half step takes part
                    entry["half"].sub_(p, alpha=0.05 * 0.1)
                if "start" in entry:  # and so does that of where local steps began
                    entry["start"].mul_(1 - 0.05 * 0.1)
                p.mul_(1 - 0.05 * 0.1)
        plain.resend()
        plain.step()
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=1e-10, atol=1e-12)
    coupled = network()
    added = fit(coupled, make(coupled.parameters(), lr=0.05, weight_decay=0.1))
    without_memory = not mine.param_groups[0].get("momentum") and make is not optim.GTAdam
    assert torch.allclose(added, flat(ours), rtol=1e-10, atol=1e-12) == without_memory, "L2 is the same for SGD only"


def test_gtadam_with_decoupled_decay_is_adamw() -> None:
    """But for the bias correction, which a step size of its own in every round takes out."""
    ours, theirs = network(), network()
    mine = optim.GTAdam(ours.parameters(), lr=0.0, weight_decay=0.1, decoupled=True, eps=1e-30)
    adamw = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1, eps=1e-30)
    for t in range(1, 6):
        corrected = 0.01 * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        mine.param_groups[0].update(lr=corrected, weight_decay=0.1 * 0.01 / corrected)
        for model, optimizer in ((ours, mine), (theirs, adamw)):
            fit(model, optimizer, steps=1)
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", optim.ALL)
def test_every_optimizer_trains_alone_and_comes_back_from_a_file(make: Any) -> None:
    model = network()
    optimizer = make(model.parameters(), lr=0.05)
    assert all("x" in optimizer.state[p] for p in model.parameters()), "state is there before the first step"
    before = float(model(INPUTS, TARGETS).detach())
    fit(model, optimizer)
    assert float(model(INPUTS, TARGETS).detach()) < before
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    twin = network()
    twin.load_state_dict(saved["model"])
    other = make(twin.parameters(), lr=1.0)
    other.load_state_dict(saved["optimizer"])
    assert other.param_groups[0]["lr"] == 0.05
    assert torch.equal(fit(model, optimizer), fit(twin, other))
    optimizer.close()


def test_schedulers_closures_clipping_and_accumulation() -> None:
    def run(make: Any) -> Tensor:
        model = network()
        optimizer = make(model.parameters())
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=8)

        def closure() -> Tensor:
            optimizer.zero_grad()
            for half in (slice(4), slice(4, 8)):
                loss = model(INPUTS[half], TARGETS[half])
                (loss / 2).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            return loss

        for _ in range(8):
            assert optimizer.step(closure) > 0
            scheduler.step()
        return flat(model)

    ours = run(lambda p: optim.DSGDm(p, lr=0.1, momentum=0.9))
    torch.testing.assert_close(ours, run(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)), rtol=1e-10, atol=1e-12)


def test_a_step_size_given_as_a_tensor() -> None:
    model = network()
    optimizer = MomentumTracking(model.parameters(), lr=0.05)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.05, dtype=torch.float64)
    first = fit(model, optimizer, 2)
    twin = network()
    torch.testing.assert_close(first, fit(twin, MomentumTracking(twin.parameters(), lr=0.05), 2))


def test_layouts_and_shapes_of_all_kinds() -> None:
    scalar, empty = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.empty(0))
    image = nn.Parameter(torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last))
    before = image.detach().clone()
    optimizer = MomentumTracking([scalar, empty, image], lr=0.5, momentum=0.0)
    for _ in range(4):
        for p in (scalar, empty, image):
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert float(scalar.detach()) == -1.0
    torch.testing.assert_close(image.detach(), before - 2.0)
    assert image.is_contiguous(memory_format=torch.channels_last)


def test_parameters_may_move_to_other_storage() -> None:
    model = network()
    optimizer = MomentumTracking(model.parameters(), lr=0.05)
    fit(model, optimizer, 2)
    for p in model.parameters():
        p.data = p.data.clone()
    fit(model, optimizer, 2)
    twin = network()
    assert torch.equal(flat(model), fit(twin, MomentumTracking(twin.parameters(), lr=0.05), 4))


def test_a_model_loaded_before_the_first_step_is_what_counts() -> None:
    model, other = network(), network()
    optimizer = MomentumTracking(model.parameters(), lr=0.0)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(3)
    model.load_state_dict(other.state_dict())
    assert torch.equal(fit(model, optimizer, 2), flat(other))


def test_averages_of_one_are_itself() -> None:
    model = nn.Linear(2, 1)
    before = flat(model)
    with averaged(model) as same:
        assert same is model
    assert torch.equal(flat(average_(model)), before)


def test_rounds_cycle_a_loader() -> None:
    assert list(rounds([1, 2, 3], 7)) == [1, 2, 3, 1, 2, 3, 1]
    assert list(rounds([], 0)) == []
    data = TensorDataset(torch.arange(6))
    sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True, seed=1)
    batches = [b[0].tolist() for b in rounds(DataLoader(data, batch_size=3, sampler=sampler), 4)]
    assert sorted(itertools.chain(*batches[:2])) == sorted(itertools.chain(*batches[2:])) == list(range(6))
    assert batches[:2] != batches[2:], "every pass has its own order"
    with pytest.raises(GossamerError, match="no batch"):
        list(rounds([], 1))
    with pytest.raises(GossamerError, match="no batch in pass 1"):
        list(rounds(iter([1]), 2))
    with pytest.raises(GossamerError, match="below 0"):
        rounds([1], -1)


def make(**options: Any) -> MomentumTracking:
    return MomentumTracking([nn.Parameter(torch.ones(2))], **{"lr": 0.1, **options})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lr": -1.0}, "lr is -1"),
        ({"weight_decay": float("nan")}, "weight_decay is nan"),
        ({"decoupled": "false"}, "needs True or False for decoupled"),
        ({"equal_gradients": "maybe"}, "equal_gradients is 'maybe'"),
        ({"momentum": 1.0}, "beta < 1"),
        *(({"node_weight": weight}, "weight above 0") for weight in (0.0, float("inf"), float("nan"), "many")),
        ({"topology": topology.ring(8)}, "8 nodes"),
        ({"topology": "rnig"}, "no topology 'rnig'; did you mean 'ring'"),
        ({"topology": "ring:degree=4"}, "The topology 'ring' takes no parameters"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GossamerError, match=sentence):
        make(**options)


def test_bad_parameters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GossamerError, match="real parameters"):
        MomentumTracking([torch.ones(2, dtype=torch.complex64, requires_grad=True)], lr=0.1)
    optimizer = make()
    with pytest.raises(GossamerError, match="lr is -2"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": -2.0})
    assert len(optimizer.param_groups) == 1
    sparse = nn.Embedding(3, 2, sparse=True)
    sparse(torch.tensor([1])).sum().backward()
    with pytest.raises(GossamerError, match="sparse"):
        MomentumTracking(sparse.parameters(), lr=0.1).step()
    parameters = [nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))]
    groups = [{"params": parameters[:1], "init": "zero"}, {"params": parameters[1:], "init": "theorem"}]
    with pytest.raises(GossamerError, match="differ in init"):
        MomentumTracking(groups, lr=0.1).step()
    for kind, name, choices in ((optim.KGT, "every", (2, 3)), (optim.MoTEF, "gamma", (None, 0.5))):
        groups = [{"params": [p], name: choice} for p, choice in zip(parameters, choices, strict=True)]
        with pytest.raises(GossamerError, match=f"differ in {name}"):
            kind(groups, lr=0.1).step()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(GossamerError, match="init_process_group"):
        make()


def test_a_checkpoint_of_another_shape_or_of_frozen_parameters_is_refused() -> None:
    saved = MomentumTracking([nn.Parameter(torch.ones(3))], lr=0.1).state_dict()
    with pytest.raises(GossamerError, match=r"has the shape \[3\], but here it has \[2\]"):
        MomentumTracking([nn.Parameter(torch.ones(2))], lr=0.1).load_state_dict(saved)
    frozen = MomentumTracking([nn.Parameter(torch.ones(3)), torch.ones(1)], lr=0.1).state_dict()
    whole = MomentumTracking([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(GossamerError, match=r"no state for the parameters \[1\]"):
        whole.load_state_dict(frozen)
    thawed = MomentumTracking([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(1))], lr=0.1).state_dict()
    part = MomentumTracking([nn.Parameter(torch.ones(3)), torch.ones(1)], lr=0.1)
    with pytest.raises(GossamerError, match=r"state of the parameters \[1\], which are frozen now.* as it was before"):
        part.load_state_dict(thawed)
    with pytest.raises(GossamerError, match=r"groups of \[2\] parameters, but this optimizer has groups of \[1\]"):
        MomentumTracking([nn.Parameter(torch.ones(3))], lr=0.1).load_state_dict(thawed)


# State of one's own ---------------------------------------------------------------------------------------------------


@dataclass
class Moments(State):
    m: Tensor
    t: int
    scale: Tensor


class Corrected(Method):
    """Adam's correction of the bias counts steps; a tensor of no dimension belongs to no parameter either."""

    facts = Facts(title="Corrected", sends=1)

    def initial(self, x: Tensor, net: Network) -> Moments:
        return Moments(torch.zeros_like(x), 0, torch.ones(()))

    def step(self, state: Moments, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        state.t += 1
        state.scale.mul_(0.9)
        state.m.mul_(0.9).add_(grad)
        net.mix(x - lr * state.scale * state.m / (1 - 0.9**state.t), round=round, out=(x,)).wait()


def test_numbers_in_the_state_come_back() -> None:
    model = network()
    optimizer = optim.optimizer_of(Corrected(), model.parameters(), lr=0.05)
    fit(model, optimizer, 3)
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    twin = network()
    twin.load_state_dict(weights)
    other = optim.optimizer_of(Corrected(), twin.parameters(), lr=0.05)
    other.load_state_dict(saved)
    assert torch.equal(fit(model, optimizer, 3), fit(twin, other, 3))
    saved["state"][0]["t"] = torch.tensor(3)
    with pytest.raises(GossamerError, match="saved 't' of parameter 0 is a Tensor, but this optimizer keeps a int"):
        other.load_state_dict(saved)


def test_numbers_in_the_state_stay_when_others_are_frozen() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = optim.optimizer_of(Corrected(), [first, second], lr=0.05)
    optimizer.step()
    second.requires_grad_(False)
    optimizer.step()
    assert optimizer.state[first]["t"] == 2


class Tracking(Corrected):
    def tracked(self, state: Moments) -> Tensor:
        return state.m


def test_what_a_method_tracks_is_its_to_say() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = optim.optimizer_of(Tracking(), [second, first], lr=0.1)
    (3 * first.sum() + 2 * second.sum()).backward()
    optimizer.step()
    tracked = optimizer.tracked()
    assert tracked is not None
    assert tracked.tolist() == [2.0, 3.0, 3.0], "in the order of the parameters"
    assert optim.DSGD([first], lr=0.1).tracked() is None
    assert MomentumTracking([first], lr=0.1).tracked() is not None


# Calls that are refused leave everything as it was --------------------------------------------------------------------


class TwoKinds(nn.Module):
    """Parameters of two types, and so in two buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.short = nn.Parameter(torch.ones(3))
        self.long = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        (self.short.square().sum() + self.long.square().sum()).backward()
        optimizer.step()


@pytest.mark.parametrize("second", ["short", "long"])
def test_a_refused_step_moves_nothing(second: str) -> None:
    model = TwoKinds()
    optimizer = MomentumTracking(model.parameters(), lr=0.1)
    model.step(optimizer)
    with torch.no_grad():
        getattr(model, second).fill_(2.0)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(GossamerError, match=r"call resend\(\)"):
        model.step(optimizer)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert optimizer.round == 1
    optimizer.resend()
    model.step(optimizer)
    model.zero_grad()
    before = copy.deepcopy(model.state_dict())
    getattr(model, second).grad = torch.zeros_like(getattr(model, second)).to_sparse()
    with pytest.raises(GossamerError, match="sparse"):
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("call", ["load_state_dict", "rejoin"])
@pytest.mark.parametrize("wrong", ["short", "long"])
def test_a_refused_state_changes_nothing(call: str, wrong: str) -> None:
    model, other = TwoKinds(), TwoKinds()
    setattr(other, wrong, nn.Parameter(torch.ones(4, dtype=getattr(other, wrong).dtype)))
    here, there = (MomentumTracking(m.parameters(), lr=lr) for m, lr in ((model, 0.1), (other, 0.5)))
    model.step(here)
    for _ in range(3):
        other.step(there)
    before, weights = copy.deepcopy(here.state_dict()), copy.deepcopy(model.state_dict())
    with pytest.raises(GossamerError, match=r"another model|the shape \[3\]"):
        here.load_state_dict(there.state_dict()) if call == "load_state_dict" else here.rejoin(there.state_dict(), [0])
    after = here.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(torch.equal(v["x"], before["state"][n]["x"]) for n, v in after["state"].items())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    model.step(here)
    assert here.round == 2


# Parameters that are written to ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["unfreeze", "add"])
@pytest.mark.parametrize("make", [MomentumTracking, optim.DSGD])
def test_what_is_written_while_the_layout_changes_is_not_lost(change: str, make: Any) -> None:
    first, second, third = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    third.requires_grad_(change == "add")
    optimizer = make([first, second, third] if change == "unfreeze" else [first, second], lr=0.1)
    optimizer.step()
    with torch.no_grad():
        first[1] = 7.0
    if change == "unfreeze":
        third.requires_grad_(True)
    else:
        optimizer.add_param_group({"params": [third]})
    if make is MomentumTracking:
        with pytest.raises(GossamerError, match=r"call resend\(\) on all nodes"):
            optimizer.step()
        optimizer.resend()
    optimizer.step()
    assert first.tolist() == [0.0, 7.0]


def test_what_is_frozen_may_be_written_to() -> None:
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = MomentumTracking([first, second], lr=0.1)
    optimizer.step()
    second.requires_grad_(False).fill_(7.0)
    optimizer.step()
    assert second.tolist() == [7.0, 7.0]


# Several optimizers ---------------------------------------------------------------------------------------------------


def test_optimizers_are_kept_in_the_order_in_which_they_were_made() -> None:
    model = nn.ModuleList(nn.Linear(1, 1) for _ in range(40))
    made = [optim.DSGD(layer.parameters(), lr=0.1) for layer in model]
    assert training_loop._optimizers(model) == made
    assert training_loop._optimizers(model[3]) == [made[3]]
    later = optim.DSGD(model[3].parameters(), lr=0.1)
    assert training_loop._optimizers(model[3]) == [later], "another has replaced it"


@pytest.mark.parametrize("make", optim.ALL)
def test_the_optimizer_of_a_method_is_the_one_that_bears_its_name(make: Any) -> None:
    ours, theirs = network(), network()
    method = make.method()
    own = optim.optimizer_of(method, ours.parameters(), lr=0.05, weight_decay=1e-2)
    assert type(own).__name__ == make.__name__
    assert {name: own.param_groups[0][name] for name in method.hyperparameters} == method.hyperparameters
    assert torch.equal(fit(ours, own), fit(theirs, make(theirs.parameters(), lr=0.05, weight_decay=1e-2)))


def test_a_hyperparameter_that_would_hide_an_optimizers_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Method, "_registry", dict(Method._registry))

    class Hidden(Method):
        name = "hidden"
        facts = Facts(title="Hidden")

        def __init__(self, lr: float = 0.5) -> None:
            self.lr = lr

        def step(self, *_: Any) -> None: ...

    with pytest.raises(GossamerError, match="Hidden has a hyper-parameter called lr"):
        optim.optimizer_of(Hidden(), network().parameters(), lr=0.1)


def test_signatures_name_the_hyperparameters() -> None:
    """What an editor shows: hyper-parameters by name with their defaults, and the options that all share."""
    shown = inspect.signature(MomentumTracking).parameters
    assert list(shown) == ["params", "lr", "momentum", "init", "options"]
    assert (shown["momentum"].default, shown["init"].default) == (0.9, "theorem")
    shared = inspect.signature(optim.DecentralizedOptimizer).parameters.keys() - {"params", "lr", "hyperparameters"}
    assert optim.Options.__annotations__.keys() == shared
