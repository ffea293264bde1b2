import pytest

from gossamer import methods, topology
from gossamer.engine.traffic import bytes_per_node


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
