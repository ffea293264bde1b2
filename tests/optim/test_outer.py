"""Several steps of any torch optimizer between two exchanges."""

import copy
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gossamer import methods, optim, topology
from gossamer.errors import GossamerError
from gossamer.network import SimulatedNetwork
from gossamer.optim import Checkpoints, Outer, outer
from tests.optim.nodes import values
from tests.optim.tasks import TASKS, fit, flat

TASK = TASKS["float64"]
RING = topology.ring(4)
COMPRESSED = "motef:compress=top-k:share=0.2,beta=0.5"


def inner_of(model: nn.Module, kind: str = "sgd") -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    if kind == "muon":
        return torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.02)
    return torch.optim.AdamW(model.parameters(), lr=0.02)


def own_data(node: int = 0) -> list[Tensor]:
    return [part[node] for part in TASK.data(4)]


# One process ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sgd", "adamw", "muon"])
@pytest.mark.parametrize("method", ["gradient-tracking", "dsgd", "all-reduce-sgdm:beta=0"])
def test_alone_it_is_the_inner_optimizer(kind: str, method: str) -> None:
    ours, theirs = TASK.model(), TASK.model()
    found = fit(ours, Outer(inner_of(ours, kind), method, every=3), own_data(), 8)
    torch.testing.assert_close(found, fit(theirs, inner_of(theirs, kind), own_data(), 8), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_step_without_a_finite_gradient_counts_as_gradient_zero(kind: str) -> None:
    traces = []
    for bad in (0.0, float("nan")):
        model = TASK.model()
        optimizer = Outer(inner_of(model, kind), "gradient-tracking", every=3, nonfinite="skip")
        fit(model, optimizer, own_data(), 4)
        model(*own_data()).backward()
        next(model.parameters()).grad.fill_(bad)  # type: ignore[union-attr]
        if bad == 0:
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()
        traces.append(fit(model, optimizer, own_data(), 4))
    assert torch.equal(*traces)
    assert optimizer.stats()["skipped"] == 1


def test_a_state_between_two_exchanges_is_resumed_to_the_same_bits() -> None:
    model = TASK.model()
    optimizer = Outer(inner_of(model), "momentum-tracking:beta=0.5", every=3, lr=0.7)
    fit(model, optimizer, own_data(), 5)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    whole = fit(model, optimizer, own_data(), 5)
    again = TASK.model()
    resumed = Outer(inner_of(again), "momentum-tracking:beta=0.5", every=3, lr=0.7)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    assert torch.equal(fit(again, resumed, own_data(), 5), whole)
    assert resumed.stats()["local_steps"] == 10


def test_short_parameters_end_where_the_inner_optimizer_puts_them() -> None:
    ours, theirs = (TASK.model().to(torch.bfloat16) for _ in range(2))
    data = [part.to(torch.bfloat16) for part in own_data()]
    found = fit(ours, Outer(inner_of(ours), "dsgd", every=2), data, 2)
    assert torch.equal(found, fit(theirs, inner_of(theirs), data, 2))


def test_of_a_node_that_has_joined_only_the_first_gradient_does_not_count() -> None:
    model = TASK.model()
    optimizer = Outer(inner_of(model), every=4)
    optimizer._outdated = True  # as `Membership` leaves it: the gradient was computed at another x
    first, second = fit(model, optimizer, own_data(), 2)
    assert torch.equal(first, flat(TASK.model()))
    assert not torch.equal(second, first)


def test_an_overflow_is_a_step_without_movement() -> None:
    model = TASK.model()
    optimizer = Outer(inner_of(model), every=2)
    start = flat(model)
    optimizer.found_inf = torch.tensor(1.0)
    fit(model, optimizer, own_data(), 2)
    assert torch.equal(flat(model), start)
    assert (optimizer.round, optimizer.stats()["overflows"]) == (1, 2)


def test_gradients_are_unscaled_before_the_inner_step() -> None:
    ours, theirs = TASK.model(), TASK.model()
    optimizer = Outer(inner_of(ours), every=2)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(1024.0), torch.tensor(0.0)
    optimizer.zero_grad()
    (1024 * ours(*own_data())).backward()
    optimizer.step()
    torch.testing.assert_close(flat(ours), fit(theirs, inner_of(theirs), own_data(), 1)[-1], rtol=0, atol=1e-12)


def test_by_time() -> None:
    model = TASK.model()
    optimizer = Outer(inner_of(model), every=timedelta(microseconds=1))
    fit(model, optimizer, own_data(), 3)
    assert (optimizer.round, optimizer.stats()["steps_before_exchange"]) == (3, 1)


class Clock:
    """A clock that only the test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("step", "every", "steps"), [(0.2, 0.3, 1), (0.2, 0.1, 1), (0.1, 0.35, 3), (0.25, 1.0, 4)])
def test_by_time_as_many_steps_as_fit(step: float, every: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient is a part of the step, and the exchange, which here takes a second, is none."""
    clock = Clock()
    monkeypatch.setattr(outer, "time", clock)
    model = TASK.model()
    optimizer = Outer(inner_of(model), every=timedelta(seconds=every))
    exchange = optimizer._exchange

    def slowly(*args: Any, **options: Any) -> None:
        exchange(*args, **options)
        clock.now += 1

    monkeypatch.setattr(optimizer, "_exchange", slowly)
    exchanged = []
    for _ in range(3 * steps):
        clock.now += step
        fit(model, optimizer, own_data(), 1)
        exchanged.append(optimizer.round)
    assert exchanged == [k // steps for k in range(1, 3 * steps + 1)]


def test_by_time_a_restart_does_not_begin_the_period_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(outer, "time", clock)
    model = TASK.model()
    first = Outer(inner_of(model), every=timedelta(seconds=4.5))
    for _ in range(2):
        clock.now += 1
        fit(model, first, own_data(), 1)
    saved = first.state_dict()
    clock.now += 100
    second = Outer(inner_of(model), every=timedelta(seconds=4.5))
    second.load_state_dict(saved)
    rounds = []
    for _ in range(2):
        clock.now += 1
        fit(model, second, own_data(), 1)
        rounds.append(second.round)
    assert rounds == [0, 1]


def test_a_restart_goes_on_counting() -> None:
    model = TASK.model()
    before, after = (Outer(inner_of(model), every=3) for _ in range(2))
    fit(model, before, own_data(), 7)
    after.load_state_dict(before.state_dict())
    counted = [
        {key: o.stats()[key] for key in ("round", "local_steps", "steps_before_exchange")} for o in (before, after)
    ]
    assert counted == 2 * [{"round": 2, "local_steps": 7, "steps_before_exchange": 3}]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"every": 0}, "An exchange follows at least 1 step, but every is 0."),
        ({"every": 1.5}, "The number of steps between two exchanges must be a whole number"),
        ({"every": timedelta(0)}, "must be longer than 0"),
        ({"every": 2, "weight_decay": 0.1}, "weight_decay is its to have"),
        ({"every": 2, "method": "dsgdd"}, "dsgdd"),
    ],
)
def test_bad_input(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GossamerError, match=sentence.replace("(", r"\(")):
        Outer(inner_of(TASK.model()), **options)


def test_it_wants_a_plain_optimizer() -> None:
    model = TASK.model()
    with pytest.raises(GossamerError, match="knows nothing of other nodes"):
        Outer(optim.DSGD(model.parameters(), lr=0.1), every=2)


def test_a_state_of_another_optimizer_is_refused() -> None:
    model = TASK.model()
    with pytest.raises(GossamerError, match="says nothing of an inner optimizer"):
        Outer(inner_of(model), every=2).load_state_dict(optim.DSGD(model.parameters(), lr=1.0).state_dict())


# Four processes -------------------------------------------------------------------------------------------------------


def work(rank: int, directory: str) -> dict[str, Any]:
    """All cases of four processes in one launch."""
    found: dict[str, Any] = {}
    model = TASK.model()
    optimizer = Outer(inner_of(model), "all-reduce-sgdm:beta=0", every=3, equal_gradients="allow")
    found["equal data"] = fit(model, optimizer, own_data(), 7)
    model = TASK.model()
    optimizer = Outer(torch.optim.SGD(model.parameters(), lr=0.02), "dsgd", every=1, topology=RING)
    found["one step"] = fit(model, optimizer, own_data(rank), 6)
    model = TASK.model()
    found["dsgd"] = fit(model, optim.DSGD(model.parameters(), lr=0.02, topology=RING), own_data(rank), 6)

    model = TASK.model()
    every = rank + 1
    start = flat(model)
    optimizer = Outer(torch.optim.SGD(model.parameters(), lr=0.02), "all-reduce-sgdm:beta=0", every=every)
    alone = TASK.model()
    moved = fit(alone, torch.optim.SGD(alone.parameters(), lr=0.02), own_data(rank), every)[-1] - start
    found["unequal steps"] = fit(model, optimizer, own_data(rank), every)[-1] - start, moved / every * 2.5
    model = TASK.model()
    timed = timedelta(microseconds=1) if rank == 0 else every
    optimizer = Outer(torch.optim.SGD(model.parameters(), lr=0.02), "all-reduce-sgdm:beta=0", every=timed)
    steps = 1 if rank == 0 else every
    found["by time"] = fit(model, optimizer, own_data(rank), steps)[-1] - start, moved / every * 2.5

    ends = []
    for path in ("whole", "broken"):
        for last in (4,) if path == "whole" else (2, 4):
            model = TASK.model()
            optimizer = Outer(inner_of(model, "adamw"), COMPRESSED, every=2, topology=RING)
            saver = Checkpoints(f"{directory}/{path}", model, optimizer, every=2)
            for r in saver.rounds(last):
                while optimizer.round == r:
                    fit(model, optimizer, own_data(rank), 1)
        ends.append(flat(model))
    found["restart"] = ends

    model = TASK.model()
    optimizer = Outer(inner_of(model), COMPRESSED, every=3, topology=RING)
    found["compressed"] = fit(model, optimizer, own_data(rank), 12)[2::3], optimizer.stats()["bytes_sent"]

    model = TASK.model()
    optimizer = Outer(inner_of(model, "adamw" if rank == 2 else "sgd"), every=2, topology=RING, timeout=20)
    try:
        fit(model, optimizer, own_data(rank), 1)
    except GossamerError as error:
        found["other optimizer"] = str(error)
    found["other settings"] = {}
    for setting, other in (("lr", 0.01), ("momentum", 0.5), ("weight_decay", 0.1)):
        model = TASK.model()
        chosen = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.0} | ({setting: other} if rank == 2 else {})
        optimizer = Outer(torch.optim.SGD(model.parameters(), **chosen), every=2, topology=RING, timeout=20)
        with pytest.raises(GossamerError) as caught:
            fit(model, optimizer, own_data(rank), 1)
        found["other settings"][setting] = str(caught.value)

    model = TASK.model()  # the first gradients come from a schedule that goes by each node's own steps
    optimizer = Outer(inner := inner_of(model), every=rank + 1, topology=RING)
    schedule = torch.optim.lr_scheduler.ExponentialLR(inner, gamma=0.9)
    for _ in range(rank + 1):
        fit(model, optimizer, own_data(rank), 1)
        schedule.step()
    next(model.parameters()).requires_grad_(False)  # the nodes meet again
    fit(model, optimizer, own_data(rank), rank + 1)
    found["own schedule"] = optimizer.round
    return found


@cache
def _launch(directory: str) -> list[dict[str, Any]]:
    return values(4, work, directory)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return _launch(str(tmp_path_factory.mktemp("outer")))


def test_with_all_reduce_and_equal_data_it_is_the_inner_optimizer(four: list[dict[str, Any]]) -> None:
    model = TASK.model()
    alone = fit(model, inner_of(model), own_data(), 7)
    for node in four:
        torch.testing.assert_close(node["equal data"], alone, rtol=0, atol=1e-12)


def test_after_every_step_it_is_the_method(four: list[dict[str, Any]]) -> None:
    for node in four:
        torch.testing.assert_close(node["one step"], node["dsgd"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", ["unequal steps", "by time"])
def test_a_fast_node_does_not_weigh_more(four: list[dict[str, Any]], case: str) -> None:
    steps = [1, 2, 3, 4]
    expected = torch.stack([node[case][1] for node in four]).mean(0)
    assert sum(steps) / 4 == 2.5
    for node in four:
        torch.testing.assert_close(node[case][0], expected, rtol=0, atol=1e-12)


def test_a_restart_ends_with_the_same_bits(four: list[dict[str, Any]]) -> None:
    for node in four:
        assert torch.equal(*node["restart"])


def test_compressed_exchanges_follow_the_simulated_network(four: list[dict[str, Any]]) -> None:
    method, net = methods.get(COMPRESSED), SimulatedNetwork(RING, dtype=torch.float64)
    models = [TASK.model() for _ in range(4)]
    inner = [inner_of(model) for model in models]
    x = torch.stack([flat(model) for model in models])
    state = method.initial(x, net)
    for r in range(4):
        for k, model in enumerate(models):
            nn.utils.vector_to_parameters(x[k].clone(), model.parameters())
        ends = [fit(model, inner[k], own_data(k), 3)[-1] for k, model in enumerate(models)]
        method.step(state, x, x - torch.stack(ends), 1.0, net, r)
        for k, node in enumerate(four):
            torch.testing.assert_close(node["compressed"][0][r], x[k], rtol=0, atol=1e-12)


def test_compressed_exchanges_are_short(four: list[dict[str, Any]]) -> None:
    dim = four[0]["compressed"][0].shape[-1]
    vector, messages = methods.get(COMPRESSED).compressor.bytes(dim, 8), 4 * 2
    start = 2 * (3 / 4) * 8 * dim  # the all-reduce
    for node in four:
        sent = node["compressed"][1] - start
        assert 2 * vector * messages < sent < 2 * vector * messages + 1500  # headers
        assert sent < 2 * 8 * dim * messages / 2


def test_the_nodes_agree_on_the_inner_optimizer(four: list[dict[str, Any]]) -> None:
    assert all("inner optimizer" in node["other optimizer"] for node in four)


@pytest.mark.parametrize("setting", ["lr", "momentum", "weight_decay"])
def test_the_nodes_agree_on_the_inner_settings(four: list[dict[str, Any]], setting: str) -> None:
    for node in four:
        assert f"do not agree on the {setting} of the inner optimizer" in node["other settings"][setting]


def test_schedules_go_by_the_steps_of_each_node(four: list[dict[str, Any]]) -> None:
    assert [node["own schedule"] for node in four] == [2] * 4
