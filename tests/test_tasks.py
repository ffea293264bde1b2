"""Losses and metrics: by name and by function, exact over batches, and what does not fit."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gossamer as gs
from gossamer import data, tasks
from gossamer.data import Dataset
from gossamer.errors import InputError
from gossamer.tasks import Loss, Metric, Tally, task_of

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def tallied(task: tasks.Task, outputs: torch.Tensor, targets: torch.Tensor) -> Tally:
    tally = Tally(task)
    for start in (0, 7, 8):  # batches of 7, 1 and the rest
        end = {0: 7, 7: 8, 8: len(targets)}[start]
        tally.add(outputs[start:end], targets[start:end])
    return tally


def test_metrics_are_exact_over_batches_of_any_size():
    draw = torch.Generator().manual_seed(1)
    outputs, labels = torch.randn(30, 4, generator=draw), torch.rand(30, 4, generator=draw) < 0.3
    on = outputs > 0
    hits, wrong = int((on & labels).sum()), int((on != labels).sum())
    found = tallied(task_of("bce"), outputs, labels.float())
    assert found.metric == pytest.approx(2 * hits / (2 * hits + wrong))
    assert found.loss == pytest.approx(float(functional.binary_cross_entropy_with_logits(outputs, labels.float())))

    logits, tokens = torch.randn(30, 5, 7, generator=draw), torch.randint(0, 7, (30, 5), generator=draw)
    tokens[:12, 2:] = -100  # batches count unequal numbers of tokens
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    found = tallied(task_of("token-cross-entropy"), logits, tokens)
    assert found.metric == pytest.approx(math.exp(loss))
    right = (logits.argmax(-1) == tokens)[tokens != -100].float().mean()
    assert tallied(task_of("token-cross-entropy", "accuracy"), logits, tokens).metric == pytest.approx(float(right))

    # [30, 1] and [30] are the same, and are not broadcast to [30, 30].
    found = tallied(task_of("mse"), outputs[:, :1], outputs[:, 1])
    assert found.metric == pytest.approx(float((outputs[:, 0] - outputs[:, 1]).abs().mean()))
    assert found.loss == pytest.approx(float((outputs[:, 0] - outputs[:, 1]).square().mean()))

    def deviation(o: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return (o - t).std()  # not a mean of anything

    whole = tallied(task_of("mse", deviation), outputs[:, 0], outputs[:, 1])
    assert whole.metric == pytest.approx(float((outputs[:, 0] - outputs[:, 1]).std()))


def test_tokens_that_are_all_left_out_cost_nothing():
    loss = task_of("token-cross-entropy").loss.function(torch.zeros(2, 3, 4), torch.full((2, 3), -100))
    assert float(loss) == 0.0


def split(targets: torch.Tensor, own_test: float = 0.2) -> data.NodeData:
    return Dataset.from_tensors(X, targets).split(data.partition.iid(nodes=2), holdout=0.1, own_test=own_test)


def simulated(targets: torch.Tensor, outputs: int = 1, **options):
    nodes = options.pop("nodes", None) or split(targets)
    options = {"lr": 0.1, "batch_size": 8, "rounds": 3, **options}
    return gs.simulate(lambda: nn.Linear(3, outputs), nodes, "dsgd", "complete", **options)


def test_a_regression_in_float64_with_a_loss_of_ones_own(caplog):
    run = simulated(X[:, :1], loss=functional.huber_loss, rounds=60)
    assert "The inputs and targets are torch.float64 and the model is torch.float32: they are converted" in caplog.text
    assert run.metric.name == "loss"
    assert run.score == run.history["loss"][-1] < 0.3 * run.history["loss"][0]
    with pytest.raises(InputError, match=r"measured loss, not accuracy; take run\.score"):
        _ = run.accuracy


def test_own_tests_are_every_nodes_own():
    nodes = split(X[:, 0])
    run = simulated(X[:, 0], nodes=nodes, loss="mse", rounds=5)
    last = run.history.last
    for model, (inputs, targets), found in zip(run.models, nodes.own_tests, last["node_mae"], strict=True):
        with torch.no_grad():
            assert found == pytest.approx(float((model(inputs.float())[:, 0] - targets).abs().mean()), rel=1e-5)
    assert last["mae"] == pytest.approx(sum(last["node_mae"]) / 2)
    assert (last["mae_min"], last["mae_max"]) == (min(last["node_mae"]), max(last["node_mae"]))
    assert last["test_samples"] == sum(map(len, nodes.partition.test))
    inputs, targets = nodes.all_own_tests
    with torch.no_grad():
        averaged = (run.averaged_model()(inputs.float())[:, 0] - targets).abs().mean()
    assert last["averaged_mae"] == pytest.approx(float(averaged), rel=1e-5)


def test_classification_keeps_its_kernels_with_any_metric():
    digits = data.load("digits")
    nodes = digits.split(data.partition.iid(nodes=2), own_test=0.1)
    options = {"lr": 0.05, "batch_size": 32, "rounds": 3}
    usual, other, own = (
        gs.simulate(gs.models.SmallCNN, nodes, "dsgd", "complete", **options, **more)
        for more in ({}, {"loss": functional.cross_entropy, "metric": "perplexity"}, {"evaluate": "own"})
    )
    assert usual.simulation.gradients.form == other.simulation.gradients.form == own.simulation.gradients.form
    assert torch.equal(usual.simulation.models.x, other.simulation.models.x)
    assert other.score == pytest.approx(
        sum(math.exp(loss) for loss in other.history.last["node_loss"]) / 2, rel=1e-5
    )  # fmt: skip
    assert own.history.last["node_accuracy"] != usual.history.last["node_accuracy"]
    # Every node's own part by hand.
    model, (inputs, targets) = own.models[1], nodes.own_tests[1]
    with torch.no_grad():
        right = (model(nodes.pipeline.batch(inputs, torch.arange(len(targets)))).argmax(1) == targets).double().mean()
    assert own.history.last["node_accuracy"][1] == pytest.approx(float(right), abs=1.01 / len(targets))


def test_pixels_reach_a_model_in_its_own_type():
    nodes = data.load("digits").split(data.partition.iid(nodes=2))
    run = gs.simulate(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double(), nodes, "dsgd", "complete", lr=0.1,
        batch_size=32, rounds=2,
    )  # fmt: skip
    assert run.simulation.models.x.dtype == torch.float64


def test_a_node_with_less_than_a_batch_is_warned_about(caplog):
    dataset = Dataset.from_tensors(X.float(), torch.arange(60) % 2)
    nodes = dataset.split(data.partition.from_lists([range(5), range(5, 60)]), holdout=0, own_test=0.2)
    simulated(X, 2, nodes=nodes, batch_size=16, rounds=1)
    assert "Fewer samples than a batch of 16: node 0 (4); such a node uses all that it has" in caplog.text


FLOATS, CLASSES, TOKENS = X[:, 0], torch.arange(60) % 2, torch.arange(120).view(60, 2) % 3


@pytest.mark.parametrize(
    ("targets", "outputs", "options", "sentence"),
    [
        (FLOATS, 1, {"loss": "msee"}, r"^There is no loss 'msee'; did you mean 'mse'\? Known: bce, cross-entropy"),
        (FLOATS, 1, {"metric": "acuracy"}, r"^There is no metric 'acuracy'; did you mean 'accuracy'\?"),
        (FLOATS, 1, {"loss": 3}, r"^The loss must be a function of \(outputs, targets\) or the name of one"),
        (FLOATS, 1, {"loss": "mse", "metric": 3}, r"^The metric must be a function of \(outputs, targets\)"),
        (FLOATS, 1, {}, r"^The loss 'cross-entropy' cannot use outputs \[2, 1\] \(torch.float32\) with targets \[2\] "
                        r"\(torch.float32\): it takes outputs \[batch, classes\] and class numbers"),
        (FLOATS, 3, {"loss": "mse"}, r"^The loss 'mse' cannot use outputs \[2, 3\] .* of one shape; change "),
        (TOKENS, 3, {"loss": "token-cross-entropy"}, r"^The loss 'token-cross-entropy' cannot use outputs \[2, 3\]"),
        (X, 3, {"loss": "bce"}, r"^The targets run from -.* but the loss 'bce' needs targets between 0 and 1\.$"),
        (FLOATS, 1, {"loss": "mse", "metric": "perplexity"}, r"^The metric 'perplexity' cannot use outputs \[2, 1\]"),
        (FLOATS, 1, {"loss": "mse", "metric": lambda o, t: "good"},
         r"^The metric 'metric' gives 'good', which is not a number; let it return one number\.$"),
        (FLOATS, 1, {"loss": "mse", "metric": lambda o, t: o}, r"gives a tensor \[2, 1\], which is not a number"),
        (FLOATS, 1, {"loss": "mse", "metric": lambda o, t: math.nan},
         r"^The metric 'metric' of node 0 is not a number \(nan\) in round 0, though its loss is finite"),
        (FLOATS, 1, {"loss": lambda o, t: o.detach().sum()}, r"gives a number that does not depend on the outputs"),
        (FLOATS, 1, {"loss": lambda o, t: (o[:, 0] - t).square()}, r"gives a tensor \[2\] for .* the mean over"),
        (FLOATS, 1, {"loss": functional.huber_loss}, r"^The loss 'huber_loss' cannot use .*: Using a target size"),
        (FLOATS, 1, {"loss": lambda o, t: o.nonsense()}, r"cannot use outputs .*: 'Tensor' object has no attribute"),
        (FLOATS, 1, {"loss": "mse", "evaluate": "own", "nodes": split(FLOATS, 0.0)},
         r"^Node 0 has no test data of its own to be evaluated on; split with own_test=0.2"),
        (FLOATS, 1, {"loss": nn.AdaptiveLogSoftmaxWithLoss(4, 4, [2])}, r"^The loss has parameters of its own"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_sentence(targets, outputs, options, sentence):
    with pytest.raises(InputError, match=sentence):
        simulated(targets, outputs, **options)


class WithNamedOutputs(nn.Linear):
    def forward(self, x):
        return {"logits": super().forward(x)}


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        ("mse", r"^The model must give a tensor \(the loss 'mse' takes outputs and targets of one shape\), but it "
                r"gives a dict; wrap it in a module that returns only the tensor\.$"),
        (functional.huber_loss, r"^The model must give a tensor, but it gives a dict; wrap it"),
    ],
)  # fmt: skip
def test_a_model_that_gives_no_tensor_is_told_what_the_loss_takes(loss, sentence):
    with pytest.raises(InputError, match=sentence):
        gs.simulate(
            lambda: WithNamedOutputs(3, 1), split(FLOATS), "dsgd", "complete", lr=0.1, loss=loss, batch_size=8, rounds=1
        )


@pytest.mark.parametrize(
    ("loss", "targets", "outputs"),
    [("bce", torch.arange(300).view(60, 5) % 2, 5), ("mse", torch.arange(60) % 7, 1), ("cross-entropy", CLASSES, 2)],
)
def test_a_model_gives_what_the_loss_compares_with_integer_targets(loss, targets, outputs):
    def linear(shape, outputs):
        return nn.Linear(*shape, outputs)

    run = gs.simulate(linear, split(targets), "dsgd", "complete", lr=0.1, loss=loss, batch_size=8, rounds=3)
    assert run.models[0].out_features == outputs
    assert math.isfinite(run.score)


def test_a_metric_has_a_name_that_rows_can_carry_and_a_direction():
    for name, why in (("my metric", "letters, digits"), ("train_loss", "no other figure"), ("", "is a word")):
        with pytest.raises(InputError, match=why):
            Metric(name, max, higher_is_better=True)
    with pytest.raises(InputError, match="True or False for higher_is_better"):
        Metric("gain", max, higher_is_better="yes")
    with pytest.raises(InputError, match="'mae' is built in"):
        tasks.register(Metric("mae", max, higher_is_better=False))
    with pytest.raises(InputError, match="Register a loss or a metric"):
        tasks.register(max)
    assert repr(Loss("huber", max)) == "Loss('huber')"


def test_an_infinite_metric_is_a_divergence():
    with pytest.raises(gs.engine.DivergenceError, match="the gain of node 0 is inf in round 0"):
        simulated(FLOATS, loss="mse", metric=Metric("gain", lambda o, t: math.inf, higher_is_better=True))
