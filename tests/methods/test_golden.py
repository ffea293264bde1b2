"""Every method follows the reference implementation, node by node,, on every kind of graph it accepts, to rounding."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from gossamer import methods, topology
from gossamer.errors import GossamerError
from gossamer.testing import reference
from gossamer.testing.trajectories import NoisyQuadratics, distance, library_run, reference_run
from gossamer.topology import Topology

TOLERANCE = 1e-10
FLOAT32_TOLERANCE = 1e-4
TASK = NoisyQuadratics.drawn()

# Ten times smaller from round 20 on, no step at all in round 30, then larger than ever, and rising.
RATES = [0.03] * 20 + [0.003] * 10 + [0.0] + [0.04 + 0.0005 * k for k in range(19)]

GRAPHS = {
    "ring": lambda: topology.ring(8),
    "star": lambda: topology.star(8),
    "hypercube": lambda: topology.hypercube(8),
    "random": lambda: topology.erdos_renyi(8, probability=0.4, seed=1),
    "chain": lambda: topology.chain(8),
    "balanced-tree": lambda: topology.balanced_tree(8),
    "lazy-ring": lambda: topology.ring(8).lazy(),
    "lazy-hypercube": lambda: topology.hypercube(8).lazy(),
}
SCHEDULES = {
    "one-peer-exponential": lambda: topology.one_peer_exponential(8),
    "random-matchings": lambda: topology.random_matchings(8, period=7, seed=3),
    "ring-and-star-in-turn": lambda: topology.in_turn([topology.ring(8), topology.star(8)]),
}
TREES = ("star", "chain", "balanced-tree")

ANYWHERE = (*GRAPHS, *SCHEDULES)
# Even rings and hypercubes have an eigenvalue at or below -1/3.
ABOVE_MINUS_A_THIRD = tuple(name for name in GRAPHS if name not in ("ring", "hypercube"))
ACCEPTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(methods.BUILT_IN, ANYWHERE),
    **dict.fromkeys(("decentlam", "abm"), tuple(GRAPHS)),
    **dict.fromkeys(("relaysum", "relaysum-m"), TREES),
    **dict.fromkeys(("d2", "edm", "led"), ABOVE_MINUS_A_THIRD),
    **dict.fromkeys(("choco-sgd", "choco-sgdm", "beer", "motef"), tuple(GRAPHS)),
}
COMPRESSED = [name for name in methods.BUILT_IN if methods.find(name).facts.compresses]
# The reference compresses number by number, which takes long.
PAIRS = [
    (method, where) for method, places in ACCEPTS.items() for where in (places[::3] if method in COMPRESSED else places)
]

# Everything that is not the default, on a graph and, where the method accepts one, on a schedule.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("dsgdm", {"beta": 0.0}),
    ("dsgdm", {"beta": 0.6, "nesterov": True}),
    ("qg-dsgdm", {"beta": 0.0}),
    ("qg-dsgdm", {"beta": 0.9, "mu": 0.7}),
    ("qg-dsgdm", {"beta": 0.5, "mu": 0.0}),
    ("decentlam", {"beta": 0.0}),
    ("decentlam", {"beta": 0.7}),
    ("gradient-tracking", {"init": "zero"}),
    ("momentum-tracking", {"init": "zero"}),
    ("momentum-tracking", {"beta": 0.0}),
    ("momentum-tracking", {"beta": 0.0, "init": "zero"}),
    ("momentum-tracking", {"beta": 0.5}),
    ("abm", {"beta": 0.0}),
    ("abm", {"beta": 0.5}),
    ("gtadam", {"gmax": 1e-3}),
    ("gtadam", {"b1": 0.0, "b2": 0.9, "eps": 1e-3}),
    ("relaysum", {"fill": "own"}),
    ("relaysum-m", {"beta": 0.0}),
    ("relaysum-m", {"nesterov": True}),
    ("relaysum-m", {"fill": "own"}),
    ("relaysum-m", {"beta": 0.5, "nesterov": True, "fill": "own"}),
    ("all-reduce-sgdm", {"beta": 0.0}),
    ("all-reduce-sgdm", {"nesterov": True}),
    ("edm", {"beta": 0.5}),
    ("led", {"every": 1}),
    ("led", {"every": 4, "beta": 0.6}),
    ("k-gt", {"every": 1}),
    ("k-gt", {"every": 7, "beta": 0.6}),
    *((name, {"compress": "identity"}) for name in COMPRESSED),
    *((name, {"compress": "top-k:share=0.5"}) for name in COMPRESSED),
    *((name, {"compress": "quantize:bits=2", "gamma": 0.3}) for name in COMPRESSED),
    ("motef", {"compress": "quantize:bits=1", "beta": 0.5, "init": "zero"}),
    ("motef", {"compress": "quantize:bits=1", "predict": True}),
    ("beer", {"compress": "quantize:bits=3", "init": "zero"}),
]
VARIANT_PLACES = ("balanced-tree", "one-peer-exponential")

# One value per coordinate. Two coordinates stand still, one of them without momentum.
FACTORS = [1.0, 0.0, 0.4, 0.0, 1.3, 0.7]
PER_COORDINATE = [0.9, 0.5, 0.0, 0.0, 0.8, 0.3]
COEFFICIENTS: dict[str, dict[str, list[float]]] = {
    **{m: {"beta": PER_COORDINATE} if "beta" in methods.get(m).hyperparameters else {} for m in methods.BUILT_IN},
    "qg-dsgdm": {"beta": PER_COORDINATE, "mu": PER_COORDINATE[::-1]},
    "gtadam": {"b1": PER_COORDINATE, "b2": [0.999, 0.99, 0.9, 0.95, 0.999, 0.5]},
}
SWITCHES = [
    *((method, {}) for method in COEFFICIENTS),
    ("qg-dsgdm", {"mu": None}),
    ("gradient-tracking", {"init": "zero"}),
    ("momentum-tracking", {"init": "zero"}),
    *((method, {"nesterov": True}) for method in ("dsgdm", "relaysum-m", "all-reduce-sgdm")),
]
# A quantizer joins coordinates and rounds to levels: what concerns each coordinate, or rounding, is tested without it.
SWITCHES = [(method, {"compress": "identity"} if method in COMPRESSED else switch) for method, switch in SWITCHES]
WIDE_TASK = NoisyQuadratics.drawn(d=len(FACTORS), seed=1)


def words(value: Any) -> str:
    """Readable test ids: `beta=0.5,init=zero` for a dictionary."""
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items()) or "plain"
    return str(value)


@cache
def place(name: str) -> Topology:
    return (GRAPHS | SCHEDULES)[name]()


@cache
def default_run(method: str, where: str) -> np.ndarray:
    return reference_run(method, place(where), TASK, RATES)


def test_every_method_has_a_twin_in_the_reference() -> None:
    ours = {name for name in methods.names() if methods.find(name).__module__.startswith("gossamer.")}
    assert ours == set(reference.METHODS) == set(ACCEPTS) == set(COEFFICIENTS)


@pytest.mark.parametrize("where", ANYWHERE)
@pytest.mark.parametrize("method", ACCEPTS)
def test_a_method_accepts_what_it_can_run_on_and_nothing_else(method: str, where: str) -> None:
    try:
        methods.get(method).check(place(where))
        accepted = True
    except GossamerError:
        accepted = False
    assert accepted == (where in ACCEPTS[method])


@pytest.mark.parametrize(("method", "where"), PAIRS, ids=words)
def test_library_follows_the_reference_implementation(method: str, where: str) -> None:
    expected = default_run(method, where)
    actual = library_run(method, place(where), TASK, RATES)
    assert actual.shape == (50, 8, 4)
    assert np.abs(expected).max() < 100, "a run that blows up compares nothing but its largest value"
    assert distance(actual, expected) < TOLERANCE


@pytest.mark.parametrize(
    ("where", "method", "hyperparameters"),
    [(w, *variant) for variant in VARIANTS for w in VARIANT_PLACES[: 1 if variant[0] in COMPRESSED else 2]],
    ids=words,
)
def test_hyperparameters_mean_the_same_to_both(method: str, hyperparameters: dict[str, Any], where: str) -> None:
    if where not in ACCEPTS[method]:
        where = "chain"
    expected = reference_run(method, place(where), TASK, RATES, **hyperparameters)
    actual = library_run(method, place(where), TASK, RATES, **hyperparameters)
    assert np.abs(expected).max() < 100
    assert distance(actual, expected) < TOLERANCE
    assert distance(expected, default_run(method, where)) > 1e-3, "the variant should make a difference"


@pytest.mark.parametrize("init", ["theorem", "zero"])
@pytest.mark.parametrize("where", ANYWHERE)
@pytest.mark.parametrize("method", ["gradient-tracking", "momentum-tracking"])
def test_both_starts_of_tracking_and_the_correction_c(method: str, where: str, init: str) -> None:
    run, expected_c, actual_c = (method, place(where), TASK, RATES), [], []

    def keep_expected(_: int, m: Any) -> None:
        expected_c.append([m.c[i] for i in m.nodes])

    def keep_actual(_: int, m: Any, state: Any) -> None:
        actual_c.append(m.correction(state).numpy().copy())

    expected = reference_run(*run, on_round=keep_expected, init=init)
    actual = library_run(*run, on_round=keep_actual, init=init)
    assert distance(actual, expected) < TOLERANCE
    assert distance(np.array(actual_c), np.array(expected_c)) < TOLERANCE
    assert np.abs(np.mean(actual_c, axis=1)).max() < TOLERANCE


@pytest.mark.parametrize("where", ["chain", "one-peer-exponential"])
@pytest.mark.parametrize("method", ACCEPTS)
def test_float32_stays_close(method: str, where: str) -> None:
    if where not in ACCEPTS[method]:
        where = "star"
    plain = {"compress": "identity"} if method in COMPRESSED else {}
    actual = library_run(method, place(where), TASK, RATES, dtype=torch.float32, **plain)
    assert 0 < distance(actual, reference_run(method, place(where), TASK, RATES, **plain)) < FLOAT32_TOLERANCE


@pytest.mark.parametrize("where", ["chain", "one-peer-exponential"])
@pytest.mark.parametrize(("method", "switch"), SWITCHES, ids=words)
def test_step_sizes_and_coefficients_may_be_tensors(method: str, switch: dict[str, Any], where: str) -> None:
    """A tensor does to each coordinate what its own number does in a run of that coordinate alone."""
    if where not in ACCEPTS[method]:
        where = "star"
    coefficients = {name: values for name, values in COEFFICIENTS[method].items() if name not in switch}
    numbers: list[dict[str, Any]] = [{name: v[k] for name, v in coefficients.items()} for k in range(len(FACTORS))]
    tensors: dict[str, Any] = {name: torch.tensor(v, dtype=torch.float64) for name, v in coefficients.items()}
    alone = [
        reference_run(
            method, place(where), WIDE_TASK.coordinate(k), [factor * eta for eta in RATES], **numbers[k], **switch
        )
        for k, factor in enumerate(FACTORS)
    ]
    rates = [torch.tensor(FACTORS, dtype=torch.float64) * eta for eta in RATES]
    actual = library_run(method, place(where), WIDE_TASK, rates, **tensors, **switch)
    assert distance(actual, np.concatenate(alone, axis=2)) < TOLERANCE


@pytest.mark.parametrize("method", ACCEPTS)
def test_one_step_size_in_a_tensor_is_a_number(method: str) -> None:
    rates = [torch.tensor(eta, dtype=torch.float64) for eta in RATES]
    assert distance(library_run(method, place("chain"), TASK, rates), default_run(method, "chain")) < TOLERANCE


@pytest.mark.parametrize("where", ["chain", "ring"])
def test_the_comparison_tells_the_methods_apart(where: str) -> None:
    """The rules differ from each other by far more than the tolerance, so a wrong one cannot pass for another."""
    present = [method for method, places in ACCEPTS.items() if where in places]
    assert len(present) >= 9
    for k, one in enumerate(present):
        for other in present[:k]:
            assert distance(default_run(one, where), default_run(other, where)) > 1e-3, f"{one} and {other}"
