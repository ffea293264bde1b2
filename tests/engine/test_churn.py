"""Nodes that leave and return during a simulated run."""

import dataclasses
import logging
from itertools import pairwise

import pytest
import torch
from torch import nn

import gossamer as gs
from gossamer import data, topology
from gossamer.data import partition
from gossamer.engine.churn import Churn, churn_of
from gossamer.engine.members import Members
from gossamer.errors import InputError
from gossamer.problems import Logistic, NonconvexCosine, Quadratic

DIGITS = data.load("digits")
CHANGES = [(3, "leaves", [1]), (8, "leaves", (0,)), (11, "joins", 1), (17, "leaves", 2), (17, "joins", 0)]


def split(nodes=4, **options):
    return DIGITS.split(partition.k_class(nodes=nodes, k=5, seed=0), **options)


class Perceptron(nn.Sequential):
    """A chain that the kernels know."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))


class Normalized(nn.Sequential):
    """Autograd: BatchNorm has buffers, Dropout draws."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.Dropout(0.1), nn.Linear(12, 10))


def train(method="momentum-tracking", model=Perceptron, graph="ring", nodes=None, **options):
    settings = {"lr": 0.05, "batch_size": 32, "rounds": 22, "evaluations": 4, "churn": CHANGES, "progress": False}
    if "epochs" in options:
        settings["rounds"] = None
    return gs.simulate(model, nodes or split(), method, graph, **{**settings, **options})


# Who is there when ----------------------------------------------------------------------------------------------------


def test_a_list_says_who_is_there():
    there = Churn(CHANGES).present(4, 22)
    assert there == [(0, (0, 1, 2, 3)), (3, (0, 2, 3)), (8, (2, 3)), (11, (1, 2, 3)), (17, (0, 1, 3))]
    assert churn_of("3 leaves 1; 8 leaves 0; 11 joins 1; 17 leaves 2; 17 joins 0; stale=7") == Churn(CHANGES, stale=7)


def test_a_random_process_has_its_mean_times_and_a_longer_run_begins_like_a_shorter_one():
    churn = Churn(up=300, down=100, by="rounds")
    there = churn.present(8, 400_000, seed=3)
    assert there[: len(churn.present(8, 40_000, seed=3))] == churn.present(8, 40_000, seed=3)
    assert there != churn.present(8, 400_000, seed=4)
    lengths = [b[0] - a[0] for a, b in pairwise(there)]
    mean = sum(len(nodes) * length for (_, nodes), length in zip(there, lengths, strict=False)) / sum(lengths)
    assert mean == pytest.approx(8 * 300 / 400, rel=0.05)
    assert sum(lengths) / len(lengths) == pytest.approx(400 / 16, rel=0.05)  # 8 nodes, two changes in 400 each
    by_epochs = Churn(up=3, down=1).present(8, 400_000, rounds_per_epoch=100, seed=3)
    assert by_epochs == there


def test_as_many_nodes_stay_as_are_asked_for():
    there = Churn(up=5, down=50, by="rounds", at_least=3).present(6, 5_000)
    assert min(len(nodes) for _, nodes in there) == 3
    assert max(round for round, _ in there) > 4_000


@pytest.mark.parametrize(
    ("churn", "sentence"),
    [
        ([(3, "leaves", 1), (5, "leaves", 1)], "Node 1 leaves before round 5, but it is not there then"),
        ([(3, "joins", 1)], "Node 1 joins before round 3, but it is there already"),
        ([(22, "leaves", 1)], "the run has the rounds 0 to 21"),
        ([(3, "leaves", [0, 1, 2, 3])], "All nodes are gone from round 3 on"),
        ([(3, "leaves", 4)], "the nodes are 0 to 3"),
        ([(3, "leaves", [])], "names no node"),
        ([(3, "leave", 1)], "There is no change of members 'leave'; did you mean 'leaves'"),
        ([(-3, "leaves", 1)], "must be a whole number of at least 0"),
        ([(3, "leaves")], "A change is"),
        (7, "Churn is a list"),
        ("3 leaves", "Churn is written as in"),
        ("random:up=3", "needs down"),
        ("random:up=3,down=1,sideways=2", "no parameter of random 'sideways'"),
        ("random:up=0,down=1", "up is a mean time above 0"),
        ("random:up=1,down=1,at_least=0", "At least 1 node must stay"),
        ("random:up=1,down=1,at_least=5", "at_least is 5, but there are 4 nodes"),
        ("random:up=1,down=1,by=weeks", "must be epochs or rounds"),
    ],
)
def test_bad_input_is_one_sentence(churn, sentence):
    with pytest.raises(InputError, match=sentence) as found:
        train(churn=churn)
    assert "\n" not in str(found.value)


def test_either_a_list_or_times():
    for options in ({}, {"up": 1}, {"changes": [], "up": 1, "down": 1}):
        with pytest.raises(InputError, match="Say how nodes come and go"):
            Churn(**options)
    with pytest.raises(InputError, match="not a function"):
        train(inner=lambda tensors: torch.optim.SGD(tensors, lr=0.0))


# What becomes of them -------------------------------------------------------------------------------------------------


def test_rows_say_who_is_there_and_what_has_changed():
    run = train()
    rows = run.history.rows
    assert [row["round"] for row in rows] == [0, 6, 12, 18, 22]
    assert [row["present"] for row in rows] == [[0, 1, 2, 3], [0, 2, 3], [1, 2, 3], [0, 1, 3], [0, 1, 3]]
    assert [row["changes"] for row in rows] == [
        [],
        [[3, "leaves", [1]]],
        [[8, "leaves", [0]], [11, "joins", [1]]],
        [[17, "leaves", [2]], [17, "joins", [0]]],
        [],
    ]
    assert [len(row["node_accuracy"]) for row in rows] == [4, 3, 3, 3, 3]
    assert len(run.models) == 3
    assert run.simulation.present == (0, 1, 3)
    assert rows[-1]["bytes_sent"] > rows[-2]["bytes_sent"] > rows[1]["bytes_sent"] > 0


def test_between_changes_it_is_an_ordinary_run_of_the_nodes_that_are_there_to_the_same_bits():
    nodes = split()
    run = train(nodes=nodes, churn=[(0, "leaves", [2, 3])])
    assert run.simulation.batches.state_dict()["positions"][2:].tolist() == [0, 0]  # they have drawn no batch
    part = nodes.partition
    first = dataclasses.replace(part, indices=part.indices[:2], label_counts=part.label_counts[:2])
    alone = train(nodes=dataclasses.replace(nodes, partition=first), churn=None)
    assert torch.equal(run.simulation.models.x, alone.simulation.models.x)
    assert "present" not in alone.history.last
    for figure in ("accuracy", "node_loss", "averaged_accuracy", "train_loss", "consensus_distance", "bytes_sent"):
        assert run.history[figure] == alone.history[figure]


@pytest.mark.parametrize("model", [Perceptron, Normalized])
@pytest.mark.parametrize("method", ["momentum-tracking", "k-gt", "motef"])
def test_a_run_resumes_to_the_same_bits(tmp_path, model, method):
    whole = train(method, model)
    assert whole.simulation.gradients.form.startswith("compiled" if model is Perceptron else "autograd")
    for stop in (8, 13):  # before the change of round 8, and between changes
        place = tmp_path / str(stop)

        def interrupt(row, stop=stop):
            if row["round"] >= stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(method, model, checkpoint=place, checkpoint_every=0.01, evaluations=22, callbacks=[interrupt])
        again = train(method, model, checkpoint=place, checkpoint_every=0.01)
        assert torch.equal(again.simulation.models.x, whole.simulation.models.x)
        assert again.history.last["bytes_sent"] == whole.history.last["bytes_sent"]
        assert [row["present"] for row in again.history][-2:] == [row["present"] for row in whole.history][-2:]


def test_a_checkpoint_of_other_members_is_refused(tmp_path):
    train(checkpoint=tmp_path)
    with pytest.raises(InputError, match="churn"):
        train(checkpoint=tmp_path, churn=None)
    with pytest.raises(InputError, match="churn"):
        train(checkpoint=tmp_path, churn=CHANGES[:2])


def test_the_same_seed_draws_the_same_members():
    first, second = (train(churn="random:up=0.8,down=0.4", epochs=3.0) for _ in range(2))
    assert torch.equal(first.simulation.models.x, second.simulation.models.x)
    assert [row["changes"] for row in first.history] == [row["changes"] for row in second.history]
    assert any(row["changes"] for row in first.history)
    other = train(churn="random:up=0.8,down=0.4", epochs=3.0, seed=1)
    assert [row["changes"] for row in first.history] != [row["changes"] for row in other.history]


@pytest.mark.parametrize(("stale", "own"), [(9, True), (8, False)])
def test_a_node_keeps_its_model_after_a_short_absence_and_takes_the_average_after_a_long_one(stale, own, caplog):
    """Node 1 is away from round 3 to round 11."""
    found = {}
    churn = Churn(CHANGES[:3], stale=stale)
    with caplog.at_level(logging.INFO, logger="gossamer"):
        for rounds in (3, 11, 12):
            changes = Churn([c for c in CHANGES[:3] if c[0] < rounds], stale=stale)
            found[rounds] = train("dsgdm", churn=changes, rounds=rounds, lr=lambda r: 0.0 if r == 11 else 0.05)
        run = train("dsgdm", churn=churn, rounds=12, lr=lambda r: 0.0 if r == 11 else 0.05)
    before, at_the_change = found[3].simulation, found[11].simulation
    net = run.simulation.network
    others = at_the_change.models.x
    x = before.models.x[1] if own else others.mean(0)
    expected = net.mix(torch.stack([x, *others]), round=0).wait()[0]  # a step of size 0 only mixes
    torch.testing.assert_close(run.simulation.models.x, expected)
    assert ("node 1 starts from the average" in caplog.text) == (not own)


def test_a_node_that_was_never_there_takes_the_average():
    run = train("dsgd", churn=[(0, "leaves", 3), (5, "joins", 3)], rounds=6, lr=lambda r: 0.0 if r == 5 else 0.05)
    before = train("dsgd", churn=[(0, "leaves", 3)], rounds=5).simulation.models.x
    expected = run.simulation.network.mix(torch.cat([before, before.mean(0, keepdim=True)]), round=0).wait()[0]
    torch.testing.assert_close(run.simulation.models.x, expected)
    assert run.history.rows[0]["present"] == [0, 1, 2]


@pytest.mark.parametrize("method", ["momentum-tracking", "gradient-tracking", "abm", "gtadam"])
def test_mean_y_is_mean_u_after_every_change(method):
    run = train(method, lr=0.01)
    for rounds in (4, 9, 12, 18, 22):
        changes = [c for c in CHANGES if c[0] < rounds]
        state = train(method, churn=changes, rounds=rounds, lr=0.01).simulation.state
        torch.testing.assert_close(state.y.mean(0), state.signal.mean(0), rtol=0, atol=1e-6)
    assert run.history.last["tracking_error"] > 0


def test_a_new_node_starts_with_the_buffers_of_the_others():
    for stale, batches in ((1, 9 + 1), (100, 3 + 1)):  # node 1 is away from round 3 to round 9
        churn = Churn([(3, "leaves", 1), (9, "joins", 1)], stale=stale)
        norm = train("dsgd", Normalized, churn=churn, rounds=10).simulation.models.modules[1][2]
        assert int(norm.num_batches_tracked) == batches


def test_new_nodes_take_the_mean_and_others_what_is_their_own():
    there = [(0, (0, 1, 2)), (5, (0, 1)), (8, (0, 1, 2)), (20, (1, 2)), (40, (0, 1, 2))]
    members = Members(there, 10, gs.DSGDm(), topology.ring(3))
    x = torch.tensor([[1.0], [2.0], [6.0]])
    taken, _ = members.change({"x": x, "u": -x}, 5)
    assert taken["x"].tolist() == [[1.0], [2.0]]
    taken, holders = members.change({"x": 10 * taken["x"], "u": taken["u"]}, 8)
    assert (taken["x"].tolist(), taken["u"].tolist()) == ([[10.0], [20.0], [6.0]], [[-1.0], [-2.0], [-6.0]])
    assert holders == [0, 1, 2]
    taken, _ = members.change(taken, 20)
    taken, holders = members.change(taken, 40)
    assert (taken["x"].tolist(), taken["u"].tolist()) == ([[13.0], [20.0], [6.0]], [[-4.0], [-2.0], [-6.0]])
    assert holders == [1, 2]


def test_a_returning_node_of_all_reduce_takes_the_common_model():
    x = train("all-reduce-sgdm").simulation.models.x
    assert torch.equal(x[0], x[1])
    assert torch.equal(x[0], x[2])


def test_local_steps_change_members_at_an_exchange():
    run = train("dsgd", inner="adamw", every=4, rounds=24, churn=[(3, "leaves", 1), (9, "joins", 1)])
    assert [row["changes"] for row in run.history if row["changes"]] == [[[4, "leaves", [1]]], [[12, "joins", [1]]]]
    assert run.accuracy > 0.2


def test_local_steps_resume_to_the_same_bits(tmp_path):
    options = {"inner": "sgd:momentum=0.9", "every": 2, "checkpoint_every": 1 / 100}
    whole = train("dsgd", **options)

    def interrupt(row):
        if row["round"] >= 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("dsgd", **options, checkpoint=tmp_path, evaluations=22, callbacks=[interrupt])
    again = train("dsgd", **options, checkpoint=tmp_path)
    assert torch.equal(again.simulation.models.x, whole.simulation.models.x)


def test_own_tests_are_those_of_the_nodes_that_are_there():
    nodes = split(own_test=0.2)
    run = train(nodes=nodes, evaluate="own")
    tests = [len(own) for own in nodes.partition.test]
    assert run.history.last["test_samples"] == tests[0] + tests[1] + tests[3]


def test_a_method_that_does_not_say_what_it_keeps_starts_again_from_the_average():
    @dataclasses.dataclass
    class Silent(gs.State):
        u: torch.Tensor

    class Own(gs.Method):
        facts = gs.Facts(title="Own", sends=1)

        def initial(self, x, net):
            return Silent(torch.zeros_like(x))

        def step(self, state, x, grad, lr, net, round):
            state.u.mul_(0.9).add_(grad)
            net.mix(x - lr * state.u, round=round, out=(x,)).wait()

    run = train(Own(), churn=[(5, "leaves", 1)], rounds=6, lr=lambda r: 0.0 if r == 5 else 0.05)
    before = train(Own(), churn=None, rounds=5).simulation.models.x
    torch.testing.assert_close(run.simulation.models.x, before[[0, 2, 3]].mean(0).expand(3, -1))


def test_a_single_node_goes_on_alone():
    run = train(churn=[(4, "leaves", [0, 1, 3])])
    assert run.history.last["present"] == [2]
    assert run.history.last["consensus_distance"] == 0.0


# Problems with known answers ------------------------------------------------------------------------------------------


def test_the_nodes_that_are_there_reach_their_own_optimum():
    problem = Quadratic.synthetic(nodes=5, dim=3, zeta2=25.0)
    churn = [(100, "leaves", [0, 4]), (300, "joins", 4)]
    run = gs.minimize(problem, "momentum-tracking", "ring", lr=0.01, rounds=2500, churn=churn, keep_means=True)
    theirs = problem.among(run.present)
    assert run.present == (1, 2, 3, 4)
    torch.testing.assert_close(run.x, theirs.optimum().expand(4, -1), rtol=0, atol=1e-10)
    assert (theirs.optimum() - problem.optimum()).norm() > 0.01
    # Every entry is of the objective of those that were there: the record of a shorter run without the later changes.
    short = gs.minimize(problem, "momentum-tracking", "ring", lr=0.01, rounds=250, churn=churn[:1])
    assert torch.equal(run.squared_gradients[:251], short.squared_gradients)
    gone = problem.among([1, 2, 3])
    assert run.squared_gradients[200] == gone.squared_gradient_norms(run.means[200:201])[0]
    left_out = gs.minimize(problem, "dsgd", "ring", lr=0.01, rounds=50, churn=[(0, "leaves", 2)])
    assert left_out.x.shape == (4, 3)


def test_problems_of_some_nodes():
    logistic = Logistic.synthetic(nodes=4, samples=5, dim=2)
    x = torch.ones(2, dtype=torch.float64)
    assert torch.equal(logistic.among([1, 3]).losses(x), logistic.losses(x)[[1, 3]])
    with pytest.raises(InputError, match="NonconvexCosine does not say"):
        gs.minimize(NonconvexCosine(nodes=4), "dsgd", "ring", lr=0.1, rounds=9, churn=[(3, "leaves", 1)])
