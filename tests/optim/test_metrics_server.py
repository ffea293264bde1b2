"""The figures of a single node: where they are served, which they are, and what is refused."""

import socket
import sys
from typing import Any
from urllib.request import urlopen

import pytest
import torch
from torch import nn

from gossamer.errors import InputError
from gossamer.optim import DSGDm, Outer
from gossamer.optim.metrics_server import address


def optimizer(seed: int = 0) -> DSGDm:
    torch.manual_seed(seed)
    return DSGDm(nn.Linear(3, 2).parameters(), lr=0.1)


def text(port: int) -> list[str]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return answer.read().decode().splitlines()


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port that is free, and the environment variable that names the one before it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    monkeypatch.setenv("GOSSAMER_METRICS_PORT", str(port - 1))
    monkeypatch.setenv("LOCAL_RANK", "1")
    return port


def test_the_environment_is_enough_and_the_newest_optimizer_is_served(free: int) -> None:
    first = optimizer()
    first.step()
    assert 'gossamer_round{node="0"} 1.0' in text(free)
    assert 'gossamer_info{graph="complete",method="DSGDm",node="0",nodes="1",version=' in "\n".join(text(free))
    second = optimizer()
    assert 'gossamer_round{node="0"} 0.0' in text(free)
    del second
    assert not [line for line in text(free) if line.startswith("gossamer_round")]


def test_what_the_loop_notes_is_served() -> None:
    node = optimizer()
    port = node.metrics(port=0)
    assert node.metrics(port=port) == port
    node.step(lambda: torch.tensor(0.25))
    node.note(accuracy=torch.tensor(0.5, requires_grad=True), done=True)
    assert {'gossamer_figure{figure="loss",node="0"} 0.25', 'gossamer_figure{figure="accuracy",node="0"} 0.5',
            'gossamer_figure{figure="done",node="0"} 1.0'} <= set(text(port))  # fmt: skip
    with pytest.raises(InputError, match="The figure 'loss' is to be a number or a tensor of one number, not Tensor"):
        node.note(loss=torch.zeros(2))
    with pytest.raises(InputError, match=r"The figure 'loss' .* not NoneType"):
        node.note(loss=None)


def test_a_place_that_cannot_be_served_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(
            InputError, match=r"Cannot serve figures on 127\.0\.0\.1:\d+: Address already in use; choose"
        ):
            optimizer().metrics(port=taken.getsockname()[1])
    with pytest.raises(InputError, match=r"from 0 .* to 65535, not 70000"):
        optimizer().metrics(port=70000)
    monkeypatch.setenv("GOSSAMER_METRICS_PORT", "prometheus")
    with pytest.raises(InputError, match="GOSSAMER_METRICS_PORT is 'prometheus', but it names a port"):
        optimizer()
    monkeypatch.delenv("GOSSAMER_METRICS_PORT")
    with pytest.raises(InputError, match="GOSSAMER_METRICS_PORT is '', but it names a port"):
        optimizer().metrics()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"not installed; run: pip install 'gossamer\[metrics\]'"):
        optimizer().metrics(port=0)


def test_an_address_other_than_loopback_is_asked_for() -> None:
    assert address("0.0.0.0:9100", "2") == ("0.0.0.0", 9102)
    assert address("[::1]:9100", "0") == ("::1", 9100)


def test_an_idle_round_is_one_with_gradient_zero() -> None:
    idle, zero = optimizer(), optimizer()
    for node in (idle, zero):
        for p in node.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        node.step()
    idle.idle()  # whatever the gradients are
    zero.zero_grad()
    zero.step()
    for p, q in zip(idle.param_groups[0]["params"], zero.param_groups[0]["params"], strict=True):
        assert torch.equal(p, q)
        assert p.grad is not None
    assert (idle.round, idle.stats()["idle"], zero.stats()["idle"]) == (2, 1, 0)


def test_an_idle_step_between_exchanges_leaves_the_inner_optimizer_alone() -> None:
    model = nn.Linear(2, 1)
    outer = Outer(torch.optim.SGD(model.parameters(), lr=0.1), every=2)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = model.weight.detach().clone()
    outer.idle()
    assert torch.equal(model.weight, before)
    outer.idle()
    assert (outer.round, outer.stats()["idle"]) == (1, 2)


class Changing(DSGDm):
    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "changes": 3, "sites": ["oslo", "rome"], "leader": "oslo"}


def test_every_number_of_stats_is_served() -> None:
    node = Changing(nn.Linear(3, 2).parameters(), lr=0.1)
    served = text(node.metrics(port=0))
    assert {'gossamer_changes_total{node="0"} 3.0', 'gossamer_sites{node="0"} 2.0'} <= set(served)
    assert not [line for line in served if "leader" in line]
