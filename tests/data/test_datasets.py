import numpy as np
import pytest
import torch
from torch import nn

from gossamer.data import Augmentation, Dataset, Normalization, partition, sites
from gossamer.engine import simulate
from gossamer.errors import GossamerError


def test_from_tensors_keeps_the_users_tensors() -> None:
    inputs, targets = torch.randn(5, 3), torch.tensor([0, 2, 1, 2, 0])
    data = Dataset.from_tensors(inputs, targets, (inputs[:2], targets[:2]), name="mine")
    assert data.name == "mine"
    assert data.train_inputs.data_ptr() == inputs.data_ptr()
    assert torch.equal(data.train_targets, targets)
    assert torch.equal(data.test_inputs, inputs[:2])
    assert data.classes == ("0", "1", "2")
    assert data.num_classes == 3
    assert data.sample_shape == (3,)
    assert data.normalization == Normalization()
    assert data.augmentation is None


def test_notebooks_show_a_small_table() -> None:
    shown = Dataset.from_tensors(torch.rand(1200, 4), torch.arange(1200) % 3, name="<b>")._repr_html_()
    assert "Dataset &#x27;&lt;b&gt;&#x27;" in shown
    assert "<td>training samples</td><td>1,200</td>" in shown
    assert "<td>3 classes</td>" in shown


def test_the_fingerprint_tells_datasets_apart() -> None:
    inputs, targets = torch.randn(5, 3), torch.tensor([0, 2, 1, 2, 0])
    one = Dataset.from_tensors(inputs, targets)
    assert one.fingerprint == Dataset.from_tensors(inputs.clone(), targets.clone(), name="another").fingerprint
    others = [
        Dataset.from_tensors(inputs + 1, targets),
        Dataset.from_tensors(inputs, targets.roll(1)),
        Dataset.from_tensors(inputs.T.reshape(5, 3), targets),
        Dataset.from_tensors(inputs.double(), targets),
        Dataset.from_tensors(inputs.bfloat16(), targets),
        Dataset.from_tensors(inputs, targets, (inputs[:2], targets[:2])),
        Dataset.from_tensors(inputs, targets, classes=4),
        Dataset.from_tensors(inputs, targets, normalization=Normalization(0.5, 2.0)),
        Dataset.from_tensors(inputs, targets, augmentation=Augmentation(padding=1)),
    ]
    assert len({data.fingerprint for data in [one, *others]}) == len(others) + 1


def test_from_tensors_takes_arrays_and_lists() -> None:
    images = np.arange(16, dtype=np.uint8).reshape(4, 1, 2, 2)
    images.flags.writeable = False
    data = Dataset.from_tensors(images, np.array([0, 1, 0, 1], np.int32), (images[:1], [1]))
    assert data.train_inputs.dtype == torch.uint8
    assert data.train_inputs.tolist() == images.tolist()
    assert data.test_targets.tolist() == [1]
    assert Dataset.from_tensors([[0.5, 1.5], [2.5, 3.5]], [0, 1]).sample_shape == (2,)


def test_from_tensors_makes_any_integer_labels_int64_and_detaches_inputs() -> None:
    inputs = torch.zeros(2, 3, requires_grad=True)
    data = Dataset.from_tensors(inputs, np.array([0, 1], np.uint8))
    assert data.train_targets.dtype == torch.int64
    assert not data.train_inputs.requires_grad


def test_from_tensors_without_test_samples() -> None:
    data = Dataset.from_tensors(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), [1, 0])
    assert data.test_inputs.shape == (0, 3, 4, 4)
    assert data.test_targets.shape == (0,)
    assert repr(data) == "Dataset 'custom': 2 training and 0 test samples of shape 3x4x4 (torch.uint8), 2 classes"


def test_from_tensors_declares_classes_normalization_and_augmentation() -> None:
    settings = {"normalization": Normalization(0.5, 0.5), "augmentation": Augmentation(padding=1, flip=True)}
    data = Dataset.from_tensors(torch.zeros(2, 1, 4, 4), [0, 1], classes=["cat", "dog", "cow"], **settings)
    assert data.classes == ("cat", "dog", "cow")
    assert (data.normalization, data.augmentation) == tuple(settings.values())
    assert Dataset.from_tensors(torch.zeros(2, 1), [0, 1], classes=5).num_classes == 5


def test_the_largest_class_may_occur_in_the_test_samples_only() -> None:
    assert Dataset.from_tensors(torch.zeros(2, 1), [0, 1], (torch.zeros(1, 1), [4])).num_classes == 5


def test_tokens_reach_an_embedding_as_they_are() -> None:
    tokens = torch.arange(240).view(40, 6) % 17
    data = Dataset.from_tensors(tokens, tokens[:, 0] % 2, (tokens[:8], tokens[:8, 0] % 2))
    nodes = data.split(partition.iid(nodes=2), holdout=0)
    assert torch.equal(nodes.pipeline.batch(tokens, torch.tensor([3, 1])), tokens[[3, 1]])

    def classifier() -> nn.Module:
        return nn.Sequential(nn.Embedding(17, 4), nn.Flatten(), nn.Linear(24, 2))

    run = simulate(classifier, nodes, "dsgd", "complete", lr=0.5, batch_size=10, epochs=20)
    assert run.history["train_loss"][-1] < 0.1


X, Y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"inputs": torch.zeros(3, 2)}, "3 training inputs and 4 training targets"),
        ({"inputs": torch.zeros(0, 2), "targets": []}, "has no training samples"),
        ({"inputs": torch.tensor(1.0)}, "single number"),
        ({"inputs": "text"}, "cannot be made a tensor, because they hold text such as 'text'"),
        ({"inputs": [np.zeros((2, 3)), np.zeros((2, 4))]}, "cannot be made a tensor"),
        ({"targets": np.array([0, 1, 0, "b"], dtype=object)}, "such as 'b'; make categories numbers first"),
        ({"inputs": [[1, 2], [3]]}, "cannot be made a tensor"),
        ({"inputs": torch.full((4, 2), torch.nan)}, "NaN or infinite"),
        ({"targets": torch.zeros(4, dtype=torch.complex64)}, "class numbers or real numbers"),
        ({"targets": torch.full((4, 3), torch.nan)}, "NaN or infinite"),
        (
            {"targets": torch.zeros(4, 1), "test": (X, torch.zeros(4, 2))},
            "Training targets are 1 .* test targets 2",
        ),
        ({"groups": [0, 1]}, "4 training samples, but groups is"),
        ({"groups": [0.5] * 4}, "groups must be whole numbers"),
        ({"targets": Y - 1}, r"from -1 to 0, .* numbers as in a regression, make them floating-point with \.float\(\)"),
        ({"classes": 1}, "from 0 to 1, but 1 classes"),
        ({"classes": ["a"]}, "from 0 to 1, but 1 classes"),
        ({"test": X}, "must be a pair"),
        ({"test": (X, Y, Y)}, "must be a pair"),
        ({"test": (X, Y[:2])}, "4 test inputs and 2 test targets"),
        ({"test": (torch.zeros(4, 3), Y)}, r"Training samples are 2 \(torch.float32\) and test samples 3"),
        ({"test": (X.double(), Y)}, "the same shape and dtype"),
        ({"test": (X, Y + 1), "classes": 2}, "test targets run from 1 to 2"),
    ],
)
def test_from_tensors_refuses_what_cannot_be_trained_on(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(GossamerError, match=why):
        Dataset.from_tensors(**({"inputs": X, "targets": Y} | arguments))


def test_categories_of_a_frame_are_made_numbers_first() -> None:
    pandas = pytest.importorskip("pandas", reason="pip install 'gossamer[data]'")
    frame = pandas.DataFrame({"age": [30.0, 40.0], "clinic": ["Lima", "Oslo"]})
    why = r"hold text such as 'Lima'; make categories numbers first, as in column\.astype\('category'\)\.cat\.codes"
    for inputs, targets in ((frame, [0, 1]), (frame[["age"]], frame.clinic)):
        with pytest.raises(GossamerError, match=why):
            Dataset.from_tensors(inputs, targets)
    codes = frame.clinic.astype("category").cat.codes
    assert Dataset.from_tensors(frame[["age"]], codes).train_targets.tolist() == [0, 1]
    with pytest.raises(GossamerError, match=r"The items .* hold text such as 'cat'"):
        Dataset.from_items([(torch.zeros(2), "cat"), (torch.zeros(2), "dog")])


def test_a_dataset_wants_int64_or_floating_point_targets() -> None:
    with pytest.raises(GossamerError, match=r"training targets must be class numbers \(int64\) or floating-point"):
        Dataset("d", X, Y.int(), X, Y, ("0", "1"))


def test_targets_of_any_shape_and_what_a_model_gives_for_them() -> None:
    numbers = Dataset.from_tensors(np.zeros((4, 2)), np.ones(4), (np.zeros((1, 2)), [3]))
    assert (numbers.num_outputs, numbers.test_targets.dtype, numbers.has_classes) == (1, torch.float64, False)
    labels = Dataset.from_tensors(X, torch.ones(4, 3, dtype=torch.bool))
    assert (labels.num_outputs, labels.train_targets.dtype) == (3, torch.float32)
    tokens = Dataset.from_tensors(Y.view(2, 2), torch.tensor([[5, -100], [1, 2]]))
    assert (tokens.num_outputs, tokens.group_names) == (6, ["samples"])
    assert repr(tokens).endswith("targets of shape 2 (torch.int64), 6 classes")


def test_groups_are_what_partitions_divide_by() -> None:
    dataset = Dataset.from_tensors(torch.rand(40, 2), torch.rand(40), groups=torch.arange(40) % 2)
    nodes = dataset.split(partition.k_class(nodes=2, k=1, seed=0), holdout=0)
    assert sorted(nodes.partition.label_counts.tolist()) == [[0, 20], [20, 0]]
    plain = Dataset.from_tensors(torch.rand(40, 2), torch.rand(40))
    assert plain.split(partition.iid(nodes=2), holdout=0).sizes == [20, 20]
    assert plain.fingerprint != dataset.fingerprint
    with pytest.raises(GossamerError, match=r"not one class number per sample, by which k_class.* divides; give"):
        plain.split(partition.k_class(nodes=2, k=1))


def test_every_node_keeps_a_part_to_test_on() -> None:
    dataset = Dataset.from_tensors(torch.arange(60.0)[:, None], torch.arange(60) % 3)
    nodes = dataset.split(partition.k_class(nodes=3, k=1, seed=0), holdout=0, own_test=0.21)
    assert nodes.sizes == [15, 15, 15]
    for own, test, (_, targets) in zip(nodes.partition.indices, nodes.partition.test, nodes.own_tests, strict=True):
        assert len(test) == 5
        assert not set(own.tolist()) & set(test.tolist())
        assert set(targets.tolist()) == set(dataset.train_targets[own].tolist())
    assert len(nodes.all_own_tests[1]) == 15
    assert "15 for the nodes to test on" in str(nodes)
    with pytest.raises(GossamerError, match="own_test is the share"):
        dataset.split(partition.iid(nodes=3), own_test=1.0)


def test_sites_bring_their_own_tests() -> None:
    train = [(torch.full((n, 2), float(n)), torch.full((n,), n / 2)) for n in (10, 20)]
    test = [(X, Y / 2), (X[:1], Y[:1] / 2)]
    nodes = sites(train, test, holdout=0)
    assert nodes.sizes == [10, 20]
    assert [len(targets) for _, targets in nodes.own_tests] == [4, 1]
    assert nodes.dataset.train_inputs[nodes.partition.indices[1]].eq(20).all()
    assert nodes.evaluation(None) == "own"
    for bad, why in (
        ((train, test[:1]), "2 sites but 1 test parts"),
        (([], []), "There are no sites"),
        ((train[:1], [(X, Y[:2])]), "test data of site 0 has 4 inputs and 2 targets"),
        (([train[0], (torch.zeros(3, 5), torch.zeros(3))], 0.2), "Some sites have samples of 2 "),
        (([X], 0.2), "site 0 must be a pair"),
    ):
        with pytest.raises(GossamerError, match=why):
            sites(*bad)
    empty = sites(train, [test[0], (X[:0], Y[:0] / 2)], holdout=0)
    with pytest.raises(GossamerError, match="Node 1 has no test data of its own to be evaluated on; split with"):
        empty.evaluation("own")
    with pytest.raises(GossamerError, match="no way to evaluate 'owned'; did you mean 'own'"):
        nodes.evaluation("owned")


def test_items_one_by_one() -> None:
    class Squares(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, k: int) -> tuple[np.ndarray, float]:
            return np.array([k, k]), float(k * k)

    squares = Dataset.from_items(Squares(), test=Squares())
    assert squares.train_targets.tolist() == squares.test_targets.tolist() == [0, 1, 4, 9, 16]
    assert Dataset.from_items((([k], k % 2) for k in range(4)), name="generated").num_classes == 2
    rows = [{"text": [1, 2], "label": 0}]
    for items, columns, why in (
        (rows, (), r"mappings with text, label; name the input and the target .* not \(\)"),
        (rows, ("text", "lable"), "name the input"),
        ([X], (), "must be pairs"),
        ([], (), "There are no items"),
        ([([1], 0), ([1, 2], 0)], (), "cannot be stacked"),
    ):
        with pytest.raises(GossamerError, match=why):
            Dataset.from_items(items, columns=columns)


def test_a_part_of_the_test_set_depends_on_the_seed_and_lies_in_larger_ones():
    inputs, targets = torch.arange(100.0)[:, None], torch.arange(100) % 2
    nodes = Dataset.from_tensors(inputs, targets, test=(inputs, targets)).split(partition.iid(nodes=2))
    small, large, other = (nodes.test_part(*choice)[0][:, 0].tolist() for choice in ((10, 3), (30, 3), (10, 4)))
    assert len(set(small)) == 10
    assert set(small) < set(large)
    assert set(small) != set(other)
    assert nodes.test_part(10, 3)[1].tolist() == [x % 2 for x in small]
    assert all(nodes.test_part(100, 3)[k] is nodes.test[k] for k in range(2))
