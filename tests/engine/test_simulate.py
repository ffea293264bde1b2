import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from gossamer import MomentumTracking, data, models, simulate, topology
from gossamer.data import Dataset
from gossamer.engine import Cosine, DivergenceError
from gossamer.engine.node_models import trial
from gossamer.errors import GossamerError, InputError
from tests.engine.digits_nodes import ROUNDS, digit_nodes, run_digits, same_bits

pytestmark = pytest.mark.usefixtures("each_form")


def test_the_figures_of_a_run():
    run = run_digits(evaluate_every=0.25)
    last = run.history.last
    assert run.accuracy == last["accuracy"] == pytest.approx(sum(last["node_accuracy"]) / 4)
    assert last["accuracy_min"] <= last["accuracy"] <= last["accuracy_max"]
    assert last["loss_min"] <= last["loss"] <= last["loss_max"]
    assert last["loss"] == pytest.approx(sum(last["node_loss"]) / 4)
    assert last["round"] == ROUNDS
    assert run.history["round"][0] == 0
    positive = ("train_loss", "consensus_distance", "tracking_error", "gradient_norm", "samples_per_second")
    assert all(last[figure] > 0 for figure in positive)
    assert 0 <= last["validation_accuracy"] <= 1
    assert "validation_accuracy" not in run.history.rows[0]
    assert run.history["validation_accuracy"] == [None] * (len(run.history) - 1) + [last["validation_accuracy"]]
    assert all(run.history.rows[0][key] is None for key in ("train_loss", "gradient_norm", "samples_per_second"))
    dim = run.simulation.models.layout.dim
    assert last["bytes_sent"] == 2 * 2 * 4 * dim * ROUNDS + 2 * 3 / 4 * 4 * dim
    json.dumps(run.history.rows)
    shown = run._repr_html_()
    assert shown.startswith("<table><caption>Momentum Tracking, ring of 4 nodes</caption>")
    assert f"<td>test accuracy</td><td>{100 * run.accuracy:.1f} %</td>" in shown
    assert run.plot()._repr_png_().startswith(b"\x89PNG")


def test_reported_accuracy_is_that_of_the_models():
    run = run_digits(rounds=20)
    inputs, targets = digit_nodes().test
    batch = digit_nodes().pipeline.batch(inputs, torch.arange(len(targets)))
    for k, model in enumerate([*run.models, run.averaged_model()]):
        model.eval()
        right = float((model(batch).argmax(1) == targets).double().mean())
        last = run.history.last
        assert right == pytest.approx((last["node_accuracy"] + [last["averaged_accuracy"]])[k])


def test_decoupled_weight_decay_is_l2_without_momentum_and_not_with_it():
    def model(method: str, decoupled: bool) -> torch.Tensor:
        run = run_digits(method=method, weight_decay=0.1, decoupled=decoupled, rounds=4)
        return torch.cat([p.detach().flatten() for p in run.models[1].parameters()])

    torch.testing.assert_close(model("dsgd", True), model("dsgd", False), rtol=1e-4, atol=1e-6)
    assert float((model("dsgdm", True) - model("dsgdm", False)).abs().max()) > 1e-4


def test_the_engine_does_what_a_plain_loop_does():
    """One node per sample set, DSGD by hand: the same batches, gradients and averages, without any of the engine."""
    nodes = digit_nodes()
    run = run_digits(method="dsgd", weight_decay=0.01, clip=0.5, rounds=4)
    torch.manual_seed(0)
    first = models.SmallCNN(nodes.dataset.sample_shape, nodes.dataset.num_classes)
    plain = [models.SmallCNN(nodes.dataset.sample_shape, nodes.dataset.num_classes) for _ in range(4)]
    for model in plain:
        model.load_state_dict(first.state_dict())
    batches = data.NodeBatches(nodes.partition.indices, 16, 0)
    for _ in range(4):
        moved = []
        for i, model in enumerate(plain):
            index = batches.next(i)
            model.zero_grad()
            output = model(nodes.pipeline.batch(nodes.dataset.train_inputs, index))
            nn.functional.cross_entropy(output, nodes.dataset.train_targets[index]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            moved.append([p.detach() - 0.05 * (p.grad + 0.01 * p.detach()) for p in model.parameters()])
        for i, model in enumerate(plain):
            for k, parameter in enumerate(model.parameters()):
                parameter.data = (moved[i - 1][k] + moved[i][k] + moved[(i + 1) % 4][k]) / 3
    for mine, theirs in zip(run.models, plain, strict=True):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", ["equal", "unequal", "augmented"])
@pytest.mark.parametrize(
    ("nodes", "each_form"), [(5, "autograd"), (5, "compiled"), (16, "compiled")], indirect=["each_form"]
)
def test_the_number_of_workers_does_not_change_a_bit(nodes, each_form, sizes):
    nodes = digit_nodes(nodes=nodes, equal_sizes=sizes != "unequal", augmented=sizes == "augmented")
    one, *others = (run_digits(data=nodes, workers=workers) for workers in (1, 2, 5))
    assert one.simulation.gradients.form.startswith(each_form)
    for other in others:
        assert same_bits(one, other)
        assert other.history["node_loss"] == one.history["node_loss"]


def test_one_seed_one_result():
    assert same_bits(run_digits(seed=3), run_digits(seed=3))
    assert not same_bits(run_digits(seed=3), run_digits(seed=4))


class WithDropout(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))


@pytest.mark.parametrize("model", [models.SmallCNN, WithDropout])
def test_the_global_generator_is_left_alone(model):
    state = torch.get_rng_state()
    run_digits(model=model)
    assert torch.equal(state, torch.get_rng_state())


def test_dropout_has_a_generator_for_each_node(caplog):
    caplog.set_level("INFO", logger="gossamer")
    torch.manual_seed(5)
    first = run_digits(model=WithDropout, workers=2)
    assert "one worker" in caplog.text
    torch.manual_seed(6)
    assert same_bits(first, run_digits(model=WithDropout, workers=1))
    masks = first.simulation._generators.states
    assert not torch.equal(masks[0], masks[1])


class WithBatchNorm(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def test_batch_norm_statistics_stay_local_and_are_averaged_for_the_averaged_model():
    run = run_digits(model=WithBatchNorm)
    own = [m[2].running_mean for m in run.models]
    assert not torch.allclose(own[0], own[1])
    torch.testing.assert_close(run.averaged_model()[2].running_mean, torch.stack(own).mean(0))
    assert int(run.models[0][2].num_batches_tracked) == ROUNDS


def test_a_module_is_copied_and_a_function_is_called():
    module = WithBatchNorm()
    kept = [p.clone() for p in module.parameters()]
    run_digits(model=module)
    assert all(torch.equal(a, b) for a, b in zip(kept, module.parameters(), strict=True))
    run = run_digits(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    assert run.simulation.models.layout.dim == 650


def test_a_module_that_a_function_gives_again_is_not_trained():
    module = WithBatchNorm()
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    assert same_bits(run_digits(model=lambda: module), run_digits(model=lambda: module))
    assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())


def test_a_methods_class_is_the_method_with_its_defaults():
    assert same_bits(run_digits(method=MomentumTracking), run_digits())


def test_unequal_sizes_and_weights_by_size():
    nodes = digit_nodes(equal_sizes=False)
    assert len(set(nodes.sizes)) > 1
    equal, by_size = (run_digits(data=nodes, node_weight=w, method="all-reduce-sgdm") for w in ("equal", "size"))
    assert not same_bits(equal, by_size)
    weights = nodes.loss_weights("size")
    torch.testing.assert_close(weights.mean(), torch.tensor(1.0, dtype=torch.float64))
    assert weights.argmax() == torch.tensor(nodes.sizes).argmax()


def test_epochs_schedules_and_callbacks():
    seen: list[int] = []
    run = run_digits(
        rounds=None, epochs=2, lr=Cosine(0.1), evaluate_every=1, callbacks=[lambda row: seen.append(row["round"])]
    )
    per_epoch = run.simulation.batches.rounds_per_epoch
    assert seen == [0, per_epoch, 2 * per_epoch] == run.history["round"]
    assert run.history["epoch"] == [0, 1, 2]
    assert run.history["lr"][2] < run.history["lr"][1] < 0.1


def test_divergence_names_the_node_and_the_round():
    with pytest.raises(ArithmeticError, match=r"node \d+ is (nan|inf) in round \d+") as caught:
        run_digits(lr=1e30, rounds=50)
    assert isinstance(caught.value, DivergenceError)
    assert 0 <= caught.value.node < 4
    assert caught.value.round < 50


class Breaking(nn.Module):
    """A line whose gradient, not its loss, is no number where the input is large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weight
        # The derivative of a square root at 0 is infinite, and 0 times infinity no number.
        return y + 0 * self.weight.abs().sum().sqrt() if (x > 50).any() else y


@pytest.fixture
def breaking():
    """Four nodes, of which the last one's gradients are no numbers."""
    inputs, targets = torch.rand(40, 3), torch.arange(40) % 2
    inputs[30:] += 100
    lists = data.partition.from_lists([list(range(10 * i, 10 * i + 10)) for i in range(4)])
    return Dataset.from_tensors(inputs, targets, test=(inputs[:2], targets[:2])).split(lists, holdout=0)


@pytest.mark.parametrize("rounds", [1, 5])
def test_a_gradient_that_is_no_number_stops_the_run_before_it_spreads(breaking, rounds):
    with pytest.raises(DivergenceError, match=r"the gradient of node 3 is nan in round 0; try") as caught:
        simulate(Breaking, breaking, "dsgd", "complete", lr=0.1, batch_size=5, rounds=rounds)
    assert (caught.value.node, caught.value.round) == (3, 0)
    assert caught.value.history["round"] == [0]


def test_a_round_without_a_finite_gradient_counts_as_gradient_zero_if_asked(breaking):
    shared = {"lr": 0.1, "batch_size": 5, "rounds": 3}
    run = simulate(Breaking, breaking, "dsgd", "complete", **shared, nonfinite="skip")
    assert run.simulation.skipped == [0, 0, 0, 1], "the weights are 0 in the first round only"
    assert run.simulation.models.x.isfinite().all()
    assert math.isfinite(run.history.last["train_loss"])
    with pytest.raises(InputError, match="nonfinite is 'stop' or 'skip'"):
        simulate(Breaking, breaking, "dsgd", "complete", **shared, nonfinite="ignore")


@pytest.mark.parametrize("lr", [1e38, 3e38])
def test_a_divergence_in_the_last_step_is_noticed(lr):
    with pytest.raises(DivergenceError, match=r"the (test loss|model) of node \d is (nan|inf|-inf) in round 0"):
        run_digits(lr=lr, rounds=1)


def test_a_finished_run_hands_out_models_of_its_own(tmp_path):
    run = run_digits(rounds=2)
    assert run.models[1] is run.models[1]
    assert not run.models[1].training
    assert not run.averaged_model().training
    torch.save(run.models[1].state_dict(), tmp_path / "model.pt")
    parameters = sum(p.numel() for p in run.models[1].parameters())
    assert (tmp_path / "model.pt").stat().st_size < 4 * parameters + 10_000
    for model in (run.models[1], run.averaged_model()):
        assert all(p.is_contiguous() and p.grad is None for p in model.parameters())
    before = run.simulation.models.x.clone()
    with torch.no_grad():
        for p in run.models[1].parameters():
            p.zero_()
    assert torch.equal(run.simulation.models.x, before)
    assert repr(run) == f"Run(accuracy={run.accuracy:.4f}, nodes=4, history=History(2 evaluations, rounds 0 to 2))"


class Two(nn.Linear):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return super().forward(x), 0


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (lambda: nn.Linear(4, 2), {}, r"^The model cannot take a batch \[2, 3\] of torch.float32: mat1 and mat2 "),
        (lambda: nn.Linear(3, 1), {}, r"^The model gives an output \[2, 1\] for 2 samples, but there are 2 classes"),
        (lambda: nn.Unflatten(1, (3, 1)), {}, r"nothing to train"),
        (
            lambda: Two(3, 2),
            {},
            r"^The model must give a tensor \(the loss 'cross-entropy' takes outputs \[batch, "
            r"classes\] .*\), but it gives a tuple; wrap it",
        ),
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
            {"batch_size": 19},
            r"^The model cannot take a batch of one sample \(Expected more than 1 value .*\), but a node with 20 "
            r"samples comes to one with batches of 19; choose another batch size\.$",
        ),
        (lambda: nn.Linear(3, 2), {"callbacks": print}, r"^callbacks must be a list of functions"),
        (lambda: nn.Linear(3, 2), {"callbacks": [1]}, r"^callbacks must be a list of functions"),
        (lambda: nn.Linear(3, 2), {"callbacks": iter([print])}, r"^callbacks must be a list of functions"),
        (lambda: nn.Linear(3, 2), {"checkpoint": 5}, r"^checkpoint must be the path of a directory, not 5\.$"),
        (lambda: nn.Linear(3, 2), {"seed": 2**70}, r"^The seed must be at most 2\^62"),
        (lambda: nn.Linear(3, 2), {"device": None}, r"^There is no device None"),
    ],
)
def test_what_cannot_run_is_refused_with_a_sentence(model, options, sentence):
    inputs, targets = torch.randn(40, 3), torch.arange(40) % 2
    nodes = Dataset.from_tensors(inputs, targets, test=(inputs, targets)).split(data.partition.iid(nodes=2), holdout=0)
    with pytest.raises(GossamerError, match=sentence):
        simulate(model, nodes, "dsgd", "complete", **{"lr": 0.1, "batch_size": 8, "rounds": 2, **options})


def test_a_trial_leaves_no_trace():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout())
    batch, state, generator = torch.randn(4, 3), [b.clone() for b in model.buffers()], torch.get_rng_state()
    drew, _ = trial(model, batch)
    assert drew
    assert all(map(torch.equal, state, model.buffers()))
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("lr", [np.float32(0.5), torch.tensor(0.5), np.float64(0.5)])
def test_any_number_is_a_step_size(lr):
    assert run_digits(lr=lr, rounds=1).history["lr"] == [0.5, 0.5]


def test_user_tensors_and_float64_models():
    inputs, targets = torch.randn(40, 3, dtype=torch.float64), torch.arange(40) % 2
    nodes = Dataset.from_tensors(inputs, targets, test=(inputs, targets)).split(data.partition.iid(nodes=2))
    run = simulate(
        lambda: nn.Linear(3, 2).double(), nodes, MomentumTracking(), "complete", lr=0.1, batch_size=8, rounds=5
    )
    assert run.simulation.models.x.dtype == torch.float64


def test_no_validation_set():
    inputs, targets = torch.randn(40, 3), torch.arange(40) % 2
    nodes = Dataset.from_tensors(inputs, targets, test=(inputs, targets)).split(data.partition.iid(nodes=2), holdout=0)
    run = simulate(lambda: nn.Linear(3, 2), nodes, "dsgd", "complete", lr=0.1, batch_size=8, rounds=2)
    assert "validation_accuracy" not in run.history.last


def test_a_run_without_test_samples_is_refused_before_it_starts():
    images = Dataset.from_tensors(torch.rand(80, 1, 8, 8), torch.arange(80) % 4, name="pictures")
    nodes, seen = images.split(data.partition.iid(nodes=4)), []
    with pytest.raises(InputError, match=r"^The dataset 'pictures' has no test samples .* own_test=0.2.*='own'\.$"):
        run_digits(data=nodes, callbacks=[seen.append])
    own = images.split(data.partition.iid(nodes=4), own_test=0.2)
    with pytest.raises(InputError, match="has no test samples to evaluate models on"):
        run_digits(data=own, evaluate="common", callbacks=[seen.append])
    assert not seen
    assert 0 <= run_digits(data=own, batch_size=4, rounds=2).accuracy <= 1


def test_a_node_without_test_samples_of_its_own_is_refused():
    inputs, targets = torch.randn(40, 3), torch.arange(40) % 2
    parts = [(inputs[:20], targets[:20]), (inputs[20:], targets[20:])]
    nodes = data.sites(parts, test=[(inputs[:0], targets[:0]), (inputs[:5], targets[:5])], holdout=0)
    with pytest.raises(InputError, match=r"^Node 0 has no test data of its own"):
        simulate(lambda: nn.Linear(3, 2), nodes, "dsgd", "complete", lr=0.1, batch_size=8, rounds=2)


class Demanding(MomentumTracking):
    def __init__(self, beta):
        super().__init__(beta)


def with_hooked_weight() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model[1].weight.register_hook(lambda gradient: 0 * gradient)
    return model


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"graph": topology.ring(5)}, "split among 4 nodes"),
        ({"method": "relaysum"}, "needs a tree"),
        ({"rounds": None}, "either epochs or rounds"),
        ({"epochs": 1}, "either epochs or rounds"),
        ({"rounds": 0}, "at least one round"),
        ({"batch_size": 0}, "at least one sample"),
        ({"lr": -1.0}, "step size"),
        ({"weight_decay": -1.0}, r"^weight_decay must be a finite number, 0 or above, not -1\.0\.$"),
        ({"clip": 0.0}, r"^clip must be a number above 0, or None for no clipping, not 0\.0\.$"),
        ({"evaluations": 0}, "number of evaluations must be a whole number of at least 1, not 0"),
        ({"evaluations": 5, "evaluate_every": 1}, "either evaluate_every or evaluations"),
        ({"node_weight": "random"}, "node_weight"),
        ({"device": "cuda:7"}, "torch finds none"),
        ({"device": "mps"}, "torch finds none"),
        ({"device": "abacus"}, "no device"),
        ({"device": "meta"}, "does not run on the device"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"model": lambda: 3}, "not an nn.Module"),
        ({"model": lambda a, b, c: None}, "wrap it"),
        ({"workers": 0}, "at least one worker"),
        ({"rounds": 2.5}, "number of rounds must be a whole number, not 2.5"),
        ({"rounds": "3"}, "number of rounds must be a whole number, not '3'"),
        ({"rounds": None, "epochs": math.nan}, "epochs is nan"),
        ({"rounds": None, "epochs": math.inf}, "epochs is inf"),
        ({"rounds": None, "epochs": "1"}, "epochs is '1'"),
        ({"evaluate_every": math.inf}, "evaluate_every is a finite number of epochs"),
        ({"evaluate_every": "1"}, "evaluate_every is a finite number of epochs"),
        ({"checkpoint": "unused", "checkpoint_every": math.inf}, "checkpoint_every is a finite number of epochs"),
        ({"batch_size": 2.5}, "batch size must be a whole number"),
        ({"workers": 1.5}, "number of workers must be a whole number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": -1}, "seed is a number 0 or above"),
        ({"weight_decay": math.nan}, "weight_decay must be a finite number"),
        ({"weight_decay": math.inf}, "weight_decay must be a finite number"),
        ({"weight_decay": "0.1"}, "weight_decay must be a finite number"),
        ({"clip": math.nan}, "clip"),
        ({"lr": lambda r: -1.0 if r == 3 else 0.1}, r"step size of round 3 is -1\.0"),
        ({"lr": lambda r: math.nan}, "step size of round 0 is nan"),
        ({"lr": lambda r: "fast"}, "step size of round 0 is 'fast'"),
        ({"lr": lambda r: torch.ones(2)}, "step size of round 0 is tensor"),
        ({"method": Demanding}, "Demanding cannot be made without arguments"),
        ({"method": 3}, "A method is a gossamer.Method or a name"),
        ({"graph": topology.Graph(4, [(0, 1), (1, 2), (2, 3)])}, "not with which weights; give .*on_graph"),
        ({"graph": 4}, "a gossamer.topology.Topology or a name such as 'ring', not 4"),
        ({"data": digit_nodes().dataset}, r"these are a Dataset; give dataset\.split"),
        ({"model": 3}, "an nn.Module or a function that makes one, not 3"),
        ({"model": with_hooked_weight()}, r"parameter '1\.weight' has a hook, which is not copied"),
        ({"model": with_hooked_weight}, r"parameter '1\.weight' has a hook, which is not copied"),
    ],
)
def test_bad_input_gets_a_sentence(changes, sentence):
    with pytest.raises(GossamerError, match=sentence):
        run_digits(**changes)


@pytest.mark.parametrize("each_form", ["compiled"], indirect=True)
def test_heterogeneous_data_favour_momentum_tracking():
    nodes = data.load("digits").split(data.partition.k_class(nodes=8, k=2, seed=0))
    options = {"lr": 0.05, "batch_size": 16, "rounds": 150, "evaluate_every": 100}
    ours, dsgdm = (
        simulate(models.SmallCNN, nodes, m, "ring", **options).accuracy for m in ("momentum-tracking", "dsgdm")
    )
    assert ours > dsgdm + 0.05
