"""Several steps of a torch optimizer between two exchanges, in the simulator."""

import pytest
import torch

import gossamer as gs
from gossamer.errors import GossamerError

NODES = gs.data.load("digits").split(gs.partition.k_class(nodes=4, k=5, seed=0))


def run(**options):
    usual = {"lr": 0.05, "batch_size": 32, "rounds": 6, "progress": False, "evaluations": 1}
    method = options.pop("method", "gradient-tracking")
    return gs.simulate(gs.models.SmallCNN, NODES, method, options.pop("graph", "ring"), **{**usual, **options})


def x_of(found):
    return found.simulation.models.x


def test_an_exchange_after_every_plain_step_is_the_method():
    torch.testing.assert_close(x_of(run(method="dsgd", inner="sgd")), x_of(run(method="dsgd")), rtol=0, atol=1e-6)


def test_between_exchanges_nothing_is_sent():
    once, often = run(every=3), run()
    assert once.history.last["bytes_sent"] < often.history.last["bytes_sent"] / 2
    assert run(every=7).history.last["bytes_sent"] == 0


def test_compressed_exchanges_learn_with_a_fraction_of_the_bytes():
    options = {"inner": "sgd:momentum=0.9", "every": 5, "lr": 0.02, "rounds": 200}
    found, whole = run(method="beer:compress=quantize:bits=4", **options), run(method="gradient-tracking", **options)
    dim, exchanges = x_of(found).shape[1], 40
    start = 2 * 3 / 4 * 4 * dim  # the all-reduce
    assert found.history.last["bytes_sent"] == start + exchanges * 2 * 2 * found.simulation.method.compressor.bytes(dim)
    assert found.history.last["bytes_sent"] < whole.history.last["bytes_sent"] / 6
    assert whole.score > 0.8
    assert found.score > whole.score - 0.05


def test_a_function_of_a_nodes_parameters_is_its_name():
    named = run(inner="adamw:weight_decay=0.1", every=2, lr=0.003)
    made = run(inner=lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.1), every=2, lr=0.003)
    torch.testing.assert_close(x_of(named), x_of(made), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rounds", [4, 5])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, rounds):
    """After an exchange, and between two."""
    options = {"inner": "adamw", "every": 2, "lr": 0.003, "checkpoint_every": 0.01}
    run(**options, rounds=rounds, checkpoint=tmp_path)
    assert torch.equal(x_of(run(**options, rounds=9, checkpoint=tmp_path)), x_of(run(**options, rounds=9)))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"every": 0}, "An exchange follows at least 1 step, but every is 0."),
        ({"every": 2.5}, "must be a whole number"),
        ({"inner": "adamv"}, "adamw"),
        ({"inner": "sgd:momentun=0.9"}, "momentum"),
        ({"inner": "sgd:momentum=-1"}, "cannot be made"),
        ({"inner": "adamw", "decoupled": True}, "its to have"),
        ({"inner": lambda parameters: None, "every": 2}, "NoneType"),
    ],
)
def test_bad_input(options, sentence):
    with pytest.raises(GossamerError, match=sentence):
        run(**options)
