import json
import math
import sys

import pytest
import torch

from gossamer import methods, topology
from gossamer.compression import Compressed
from gossamer.engine import History
from gossamer.engine.history import bytes_per_node, consensus_distance
from gossamer.errors import GossamerError
from gossamer.methods import Facts
from gossamer.network import SimulatedNetwork

ROWS = [{"round": 0, "accuracy": 0.1}, {"round": 5, "accuracy": 0.7}]


def test_columns_rows_and_the_last():
    history = History(list(ROWS))
    assert history["accuracy"] == [0.1, 0.7]
    assert list(history) == ROWS
    assert len(history) == 2
    assert history.last == ROWS[-1]
    with pytest.raises(KeyError, match="there are round, accuracy"):
        history["speed"]
    with pytest.raises(GossamerError, match="Nothing has been evaluated"):
        History().last  # noqa: B018


def test_notebooks_show_the_first_and_the_last_rows():
    shown = History(list(ROWS))._repr_html_()
    assert "<thead><tr><th>round</th><th>accuracy</th></tr></thead>" in shown
    assert "<tr><td>5</td><td>0.7</td></tr>" in shown
    long = History([{"round": r, "<i>": None, "node_loss": [1.0]} for r in range(50)])._repr_html_()
    assert long.count("<tr>") == 13
    assert "<td>0</td>" in long
    assert "<td>49</td>" in long
    assert "<th>&lt;i&gt;</th>" in long
    assert "node_loss" not in long
    assert "0 evaluations" in History()._repr_html_()


def test_a_figure_of_some_rows_only_is_none_in_the_others():
    history = History([*ROWS, {"round": 9, "validation_accuracy": 0.8}])
    assert history["validation_accuracy"] == [None, None, 0.8]
    assert history["accuracy"] == [0.1, 0.7, None]


def test_json_lines(tmp_path):
    not_finite = {"round": 9, "loss": math.nan, "node_loss": [1.0, math.inf]}
    History([*ROWS, not_finite]).to_jsonl(tmp_path / "deep" / "metrics.jsonl")
    lines = (tmp_path / "deep" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [*ROWS, {"round": 9, "loss": None, "node_loss": [1.0, None]}]


def test_pandas_or_the_sentence_that_names_it(monkeypatch):
    class Pandas:
        DataFrame = staticmethod(lambda rows: ("frame", rows))

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert History(list(ROWS)).to_pandas() == ("frame", ROWS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(GossamerError, match=r"gossamer\[data\]"):
        History(list(ROWS)).to_pandas()


def test_consensus_distance_by_hand():
    assert consensus_distance(torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])) == pytest.approx((5 + 1 + 8) / 3)


@pytest.mark.parametrize(
    ("method", "graph", "expected"),
    [
        ("dsgd", topology.ring(8), 10 * 2 * 400),
        ("gtadam", topology.ring(8), 10 * 2 * 2 * 400),
        ("dsgd", topology.star(5), 10 * (8 / 5) * 400),
        ("dsgd", topology.one_peer_exponential(8), 10 * 1 * 400),
        ("all-reduce-sgdm", topology.ring(8), 10 * 2 * 7 / 8 * 400),
        ("momentum-tracking", topology.ring(8), 10 * 2 * 2 * 400 + 2 * 7 / 8 * 400),
        ("dsgd", topology.complete(1), 0),
    ],
)
def test_bytes_after_ten_rounds(method, graph, expected):
    assert bytes_per_node(methods.get(method), graph, dim=100, width=4, rounds=10) == pytest.approx(expected)


class Counted(methods.Method):
    """Has a field that is called like Momentum Tracking's, and declares what its start costs."""

    def __init__(self, starts_with_all_reduce: bool) -> None:
        self.init = "theorem"
        self.facts = Facts(title="Counted", sends=1, starts_with_all_reduce=starts_with_all_reduce)  # type: ignore[misc]

    def step(self, *_: object) -> None:
        """Nothing."""


def test_the_start_counts_as_the_facts_say():
    ring, mean = topology.ring(8), 2 * 7 / 8 * 400

    def sent(method, rounds=10):
        return bytes_per_node(method, ring, dim=100, width=4, rounds=rounds)

    assert sent(Counted(starts_with_all_reduce=False)) == 10 * 2 * 400
    assert sent(Counted(starts_with_all_reduce=True)) == 10 * 2 * 400 + mean
    for name in ("momentum-tracking", "gradient-tracking"):
        assert sent(methods.get(name)) - sent(methods.get(name, init="zero")) == mean
        assert sent(methods.get(name), rounds=0) == 0


class Counting:
    """A network that counts the bytes of the messages that leave, the mean over the nodes."""

    def __init__(self, graph):
        self.graph, self.net, self.sent = graph, SimulatedNetwork(graph), 0.0
        self.n = graph.n

    def mix(self, *vectors, round, out=None):
        mixing = self.graph.at(round)
        degree = sum(len(mixing.receivers(i)) for i in range(self.n)) / self.n
        rows = [v.wire()[0] if isinstance(v, Compressed) else v[0] for v in vectors]
        self.sent += degree * sum(row.nbytes for row in rows)
        return self.net.mix(*vectors, round=round, out=out)


COMPRESSED = ["choco-sgd:gamma=1", "motef:init=zero,gamma=1", "motef:init=zero,gamma=1,compress=top-k:share=0.2"]


@pytest.mark.parametrize("method", ["dsgd", "gtadam", "momentum-tracking:init=zero", "led:every=2", *COMPRESSED])
def test_a_schedules_bytes_are_those_of_the_messages_that_have_left(method):
    graph = topology.in_turn([topology.ring(6), topology.complete(6), topology.chain(6)])
    rule, net, x = methods.get(method), Counting(graph), torch.zeros(6, 10)
    state = rule.initial(x, net)
    for r in range(7):
        rule.step(state, x, torch.ones(6, 10), 0.1, net, r)
        assert bytes_per_node(rule, graph, dim=10, width=4, rounds=r + 1) == pytest.approx(net.sent)


@pytest.mark.parametrize("name", ["ring", "star", "complete", "one-peer-exponential", "balanced-tree"])
def test_every_message_of_every_edge_is_counted(name):
    graph = topology.get(name, 12)
    by_node = sum(len(mixing.receivers(i)) for mixing in graph.mixings for i in range(12)) / 12
    assert bytes_per_node(methods.get("dsgd"), graph, 1, 1, rounds=graph.period) == pytest.approx(by_node)
