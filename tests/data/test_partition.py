"""Every recipe, on every kind of target, keeps its promises or says why it cannot."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gossamer.data import load, partition
from gossamer.data.partition import dirichlet, from_function, from_lists, iid, k_class, shards
from gossamer.errors import GossamerError

TARGETS = torch.arange(2000) % 10


def deal(labels, nodes, rng):
    order = rng.permutation(len(labels))
    return [order[node::nodes] for node in range(nodes)]


@st.composite
def cases(draw):
    """A recipe and targets of up to 6 classes; most fit together, some cannot."""
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    labels = np.repeat(np.arange(len(counts)), counts)
    nodes = draw(st.integers(1, 8))
    common = {"seed": draw(st.integers(0, 2**40)), "equal_sizes": draw(st.booleans())}
    recipe = draw(
        st.one_of(
            st.just(iid(nodes, **common)),
            st.builds(lambda k: k_class(nodes, k, **common), st.integers(1, len(counts))),
            st.builds(lambda alpha: dirichlet(nodes, alpha, min_size=2, **common), st.floats(0.5, 100.0)),
            st.builds(lambda per_node: shards(nodes, per_node, **common), st.integers(1, 4)),
            st.just(from_function(deal, nodes, **common)),
            st.just(from_lists(deal(labels, nodes, np.random.default_rng(common["seed"])), **common)),
        )
    )
    return recipe, np.random.default_rng(common["seed"]).permutation(labels).tolist()


@settings(deadline=None)
@given(case=cases(), holdout=st.sampled_from([0.0, 0.1, 0.5]))
def test_keeps_its_promises_or_says_why_not(case, holdout):
    recipe, labels = case
    try:
        result = recipe(labels, holdout)
    except GossamerError:
        return
    placed = torch.cat([*result.indices, result.validation])
    assert len(placed) == len(placed.unique())
    assert 0 <= int(placed.min()) <= int(placed.max()) < len(labels)
    assert all(own.dtype == torch.int64 for own in [*result.indices, result.validation])
    assert len(result) == recipe.nodes
    assert min(result.sizes) > 0
    assert len(result.validation) == round(holdout * len(labels))
    if recipe.equal_sizes:
        assert len(set(result.sizes)) == 1
    else:
        assert len(placed) == len(labels)
    truth = torch.tensor(labels)
    assert set(truth[torch.cat(result.indices)].tolist()) == set(labels)
    for own, counts in zip(result.indices, result.label_counts, strict=True):
        assert torch.equal(torch.bincount(truth[own], minlength=max(labels) + 1), counts)
    assert 0 <= result.label_distance < 1
    again = recipe(labels, holdout)
    assert all(torch.equal(a, b) for a, b in zip(result.indices, again.indices, strict=True))


@settings(deadline=None)
@given(nodes=st.integers(1, 30), classes=st.integers(1, 12), seed=st.integers(0, 1000), data=st.data())
def test_k_class_holders(nodes, classes, seed, data):
    k = data.draw(st.integers(-(-classes // nodes), classes))
    holds = k_class(nodes, k).holders(np.full(classes, nodes), np.random.default_rng(seed))
    assert holds.shape == (nodes, classes)
    assert (holds.sum(1) == k).all()
    assert holds.any(0).all()


@settings(deadline=None)
@given(nodes=st.integers(1, 8), seed=st.integers(0, 1000), equal_sizes=st.booleans(), data=st.data())
def test_k_class_succeeds_wherever_small_classes_leave_room(nodes, seed, equal_sizes, data):
    counts = np.array(data.draw(st.lists(st.integers(1, 10), min_size=1, max_size=8)))
    fewest, most = -(-len(counts) // nodes), np.minimum(counts, nodes).sum() // nodes
    assume(fewest <= most)
    k = data.draw(st.integers(max(fewest, most - 1), most))
    labels = np.repeat(np.arange(len(counts)), counts)
    result = k_class(nodes, k, seed, equal_sizes)(labels, holdout=0)
    assert torch.equal((result.label_counts > 0).sum(1), torch.full((nodes,), k))
    assert (result.label_counts > 0).any(0).all()


@pytest.mark.parametrize("seed", range(20))
def test_k_class_finds_the_only_matrix_there_is(seed):
    """One holder each for three classes, so all three nodes hold class 1: direct exchanges do not always get there."""
    counts = k_class(3, 2, seed, equal_sizes=False)([0] + [1] * 9 + [2] + [3], holdout=0).label_counts
    assert (counts > 0).sum(0).tolist() == [1, 3, 1, 1]
    assert (counts > 0).sum(1).tolist() == [2, 2, 2]


def test_k_class_draws_classes_uniformly():
    plenty = np.full(10, 100)
    counts = sum(k_class(8, 4).holders(plenty, np.random.default_rng(seed)).sum(0) for seed in range(400))
    assert counts.sum() == 400 * 8 * 4
    assert abs(counts / 400 - 3.2).max() < 0.3


@settings(deadline=None)
@given(nodes=st.integers(1, 30), classes=st.integers(1, 12), seed=st.integers(0, 1000), data=st.data())
def test_balanced_classes_have_as_many_holders_as_any_other(nodes, classes, seed, data):
    k = data.draw(st.integers(-(-classes // nodes), classes))
    recipe = k_class(nodes, k, draw="balanced")
    holds = recipe.holders(np.full(classes, nodes), np.random.default_rng(seed))
    assert (holds.sum(1) == k).all()
    assert np.ptp(holds.sum(0)) <= 1


@pytest.mark.parametrize("k", [2, 4, 6, 8, 10])
def test_the_draws_of_the_paper_are_balanced_and_differ_by_seed(k):
    found = [k_class(8, k, seed, draw="paper")(TARGETS).label_counts > 0 for seed in range(4)]
    for holds in found:
        assert (holds.sum(1) == k).all()
        assert np.ptp(holds.sum(0).numpy()) <= 1
    assert len({tuple(holds.flatten().tolist()) for holds in found}) == (1 if k == 10 else 4)


def test_a_draw_of_the_paper_is_that_of_its_authors():
    counts = k_class(8, 4, seed=1, draw="paper")(TARGETS).label_counts
    assert np.flatnonzero(counts[0]).tolist() == [0, 1, 2, 4]
    assert np.flatnonzero(counts[6]).tolist() == [3, 4, 5, 6]


def test_k_class_cuts_every_class_evenly_among_its_holders():
    counts = k_class(8, 4, equal_sizes=False)(TARGETS).label_counts
    assert torch.equal((counts > 0).sum(1), torch.full((8,), 4))
    assert torch.equal(counts.sum(0), torch.full((10,), 180))
    for column in counts.T:
        held = column[column > 0]
        assert held.max() - held.min() <= 1


def test_equal_sizes_keeps_the_classes_in_proportion():
    honest = k_class(8, 4, equal_sizes=False)(TARGETS)
    equal = k_class(8, 4)(TARGETS)
    assert set(equal.sizes) == {min(honest.sizes)}
    kept = equal.label_counts / equal.label_counts.sum(1, keepdim=True)
    before = honest.label_counts / honest.label_counts.sum(1, keepdim=True)
    assert (kept - before).abs().max() < 2 / min(honest.sizes)
    assert all(set(cut.tolist()) <= set(own.tolist()) for cut, own in zip(equal.indices, honest.indices, strict=True))


def test_validation_is_shared_by_all_recipes_of_a_seed_and_holds_every_class_in_proportion():
    sets = [recipe(TARGETS).validation for recipe in (iid(3, seed=5), k_class(8, 4, seed=5), shards(4, seed=5))]
    assert torch.equal(sets[0], sets[1])
    assert torch.equal(sets[0], sets[2])
    assert torch.equal(torch.bincount(TARGETS[sets[0]]), torch.full((10,), 20))
    assert not torch.equal(sets[0], iid(3, seed=6)(TARGETS).validation)


def test_seed_decides_and_global_state_does_not():
    first = k_class(8, 4, seed=1)(TARGETS)
    np.random.seed(99)  # noqa: NPY002
    torch.manual_seed(99)
    again, other = k_class(8, 4, seed=1)(TARGETS), k_class(8, 4, seed=2)(TARGETS)
    assert torch.equal(first.label_counts, again.label_counts)
    assert not torch.equal(first.label_counts, other.label_counts)


def test_a_partition_does_not_change_between_releases():
    assert k_class(4, 2, seed=0)(torch.arange(40) % 4).indices[0].tolist() == [1, 5, 9, 11, 15, 19, 25]


def test_dirichlet_small_alpha_is_more_uneven_than_large():
    uneven, nearly_iid = dirichlet(5, 0.1, min_size=20)(TARGETS), dirichlet(5, 1000.0)(TARGETS)
    assert uneven.label_distance > 0.5
    assert nearly_iid.label_distance < 0.05
    assert min(uneven.sizes) >= 20
    assert sum(uneven.sizes) == 1800


def test_shards_hold_few_classes():
    counts = shards(10, per_node=2)(TARGETS).label_counts
    assert int((counts > 0).sum(1).max()) <= 4
    assert torch.equal(counts.sum(1), torch.full((10,), 180))


def test_label_distance_by_hand():
    one_class_each = from_lists([[0, 1], [2, 3]])([0, 0, 1, 1], holdout=0)
    assert one_class_each.label_distance == pytest.approx(0.5)
    unequal = from_lists([[0, 1, 2], [3]])([0, 0, 1, 1], holdout=0)  # (2/3, 1/3) and (0, 1) against (1/2, 1/2)
    assert unequal.label_distances.tolist() == pytest.approx([1 / 6, 1 / 2])
    assert iid(2)([0] * 10).label_distance == 0


def test_own_lists_lose_their_validation_samples():
    lists = [torch.arange(0, 1000), np.arange(1000, 2000)]
    result = from_lists(lists, seed=3)(TARGETS)
    assert sum(result.sizes) == 1800
    assert torch.equal(result.validation, iid(2, seed=3)(TARGETS).validation)
    assert int(result.indices[0].max()) < 1000 <= int(result.indices[1].min())


def test_own_validation_list():
    result = from_lists([[3, 0], [1]], validation=[4, 2])([0, 1, 0, 1, 0])
    assert [own.tolist() for own in result.indices] == [[0, 3], [1]]
    assert result.validation.tolist() == [2, 4]


def test_labels_may_have_gaps():
    result = k_class(2, 1)([0, 7] * 20)
    assert result.label_counts.shape == (2, 8)
    assert sorted(result.label_counts.argmax(1).tolist()) == [0, 7]


def test_a_function_may_give_its_lists_one_by_one():
    halves = from_function(lambda labels, nodes, rng: (np.arange(len(labels))[k::2] for k in range(nodes)), nodes=2)
    assert halves(TARGETS, holdout=0).sizes == [1000, 1000]


def test_lists_may_come_one_by_one():
    assert from_lists(iter([[0, 2], [1, 3]]))([0, 0, 1, 1], holdout=0).sizes == [2, 2]


def bad_function(answer):
    return from_function(lambda labels, nodes, rng: answer, nodes=2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: iid(0), "at least one node"),
        (lambda: iid(2, seed=-1), "seed is a number 0 or above"),
        (lambda: iid(2)(TARGETS, holdout=1.0), "0 <= holdout < 1"),
        (lambda: iid(2)(TARGETS.float()), "one integer label per sample"),
        (lambda: iid(2)(TARGETS.view(-1, 2)), "one integer label per sample"),
        (lambda: iid(2)([]), "one integer label per sample"),
        (lambda: iid(2)([0, -1]), "count from 0"),
        (lambda: iid(5)([0, 1, 0], holdout=0), "3 samples cannot be divided among 5 nodes"),
        (lambda: iid(1)([0, 1, 2, 3], holdout=0.5), "would be on no node"),
        (lambda: k_class(2, 4)(TARGETS), "use k >= 5 or at least 3 nodes"),
        (lambda: k_class(8, 11)(TARGETS), "between 1 and all 10 classes"),
        (lambda: k_class(8, 0)(TARGETS), "not k=0"),
        (
            lambda: k_class(4, 2)([0] * 40 + [1], holdout=0),
            "smallest class has 1: there is room for 5 of the 8 holders",
        ),
        (lambda: dirichlet(2, 0.0), "alpha must be positive"),
        (lambda: dirichlet(2, float("nan")), "alpha must be positive"),
        (lambda: dirichlet(2, 1.0, min_size=0), "min_size must be at least 1"),
        (lambda: dirichlet(100, 1.0)(TARGETS), "lower min_size"),
        (lambda: shards(2, per_node=0), "at least one shard"),
        (lambda: shards(5, per_node=3)([0] * 10), "cannot be cut into 15 shards"),
        (lambda: from_lists([]), "at least one node"),
        (lambda: from_lists([[0, 1], [1]])([0, 1]), "Sample 1 is listed 2 times"),
        (lambda: from_lists([[0], [1]], validation=[1])([0, 1]), "Sample 1 is listed 2 times"),
        (lambda: from_lists([[0], [2]])([0, 1]), "names sample 2, but the samples are 0 to 1"),
        (lambda: from_lists([[0], [-1]])([0, 1]), "names sample -1"),
        (lambda: from_lists([[0.5], [1]])([0, 1]), "flat list of integers"),
        (lambda: from_lists([[0, 1], []])([0, 1], holdout=0), "Node 1 would hold no samples"),
        (lambda: from_lists([[0], [2]])([0, 1, 0], holdout=0), "Class 1 would be on no node"),
        (lambda: bad_function([[0]])(TARGETS), "gave 1 lists for 2 nodes"),
        (lambda: bad_function([[0], [1800]])(TARGETS), "0 to 1799"),
        (lambda: partition.get("k-clas", nodes=2), "did you mean 'k-class'"),
        (lambda: iid(2.5), "number of nodes must be a whole number, not 2.5"),
        (lambda: iid("4"), "number of nodes must be a whole number, not '4'"),
        (lambda: iid(2, seed=1.5), "seed must be a whole number, not 1.5"),
        (lambda: iid(2, equal_sizes="false"), "equal_sizes is True or False, not 'false'"),
        (lambda: iid(2)(TARGETS, holdout="0.1"), "0 <= holdout < 1, not '0.1'"),
        (lambda: k_class(4, 2, draw="fair"), "k_class knows draw='free' and .* but draw is 'fair'"),
        (lambda: k_class(4, 4, draw="paper"), "draws are for 8 nodes.* not for 4 nodes.*use draw=balanced"),
        (lambda: k_class(8, 5, draw="paper"), "k = 2, 4, 6, 8, 10, not .* k = 5"),
        (lambda: k_class(8, 4, draw="paper")([0, 1, 2, 3] * 9), "not for 8 nodes, 4 classes"),
        (lambda: k_class(3, 2, draw="balanced")([0] + [1] * 9 + [2] * 9, holdout=0), r"too few samples for that \(1\)"),
        (lambda: k_class(4, 2.5), "classes of a node must be a whole number, not 2.5"),
        (lambda: dirichlet(2, "1"), "alpha must be positive and finite, not '1'"),
        (lambda: dirichlet(2, 1.0, min_size=2.5), "min_size of a node must be a whole number"),
        (lambda: shards(2, per_node=1.5), "shards per node must be a whole number"),
        (lambda: load("digits").split("k-class:k=4"), r"not by 'k-class:k=4'; write .*partition\.get"),
        (lambda: load("digits").split(iid), "split by a recipe that knows its number of nodes, not by <class"),
        (lambda: load("digits").split([[0, 1], [2, 3]]), r"of type list; write .* partition\.from_lists\(lists\)"),
        (lambda: iid(2)([[0], [1, 2]]), r"one integer label per sample, not targets of shape \(2,\)"),
        (lambda: iid(2)(TARGETS.bfloat16()), "one integer label per sample"),
        (lambda: from_lists(None), "one list of samples per node, .* not an object of type NoneType"),
        (lambda: from_lists({0: [0], 1: [1]}), "one list of samples per node, .* not an object of type dict"),
        (lambda: from_lists(torch.tensor(3)), "one list of samples per node, .* not an object of type Tensor"),
        (lambda: from_lists([0, 1])([0, 1]), "List 0 of a partition must be a flat list of integers"),
        (
            lambda: from_lists([[[0], [1, 2]], [3]])([0, 1, 0, 1]),
            r"List 0 .* flat list of integers, not of shape \(2,\)",
        ),
        (lambda: from_lists([[np.zeros((2, 3)), np.zeros((2, 4))]])([0, 1]), "List 0 .* flat list of integers"),
        (lambda: from_function(5, nodes=2), r"a function of \(labels, nodes, rng\), not an object of type int"),
        (lambda: bad_function(None)(TARGETS), "function returns one list of samples per node, .* of type NoneType"),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(GossamerError, match=words):
        make()


def test_a_hopeless_alpha_is_given_up(monkeypatch):
    monkeypatch.setattr(partition, "DIRICHLET_DRAWS", 20)
    with pytest.raises(GossamerError, match=r"None of 20 draws with alpha=0\.01"):
        dirichlet(18, 0.01, min_size=100)(TARGETS)


def test_recipes_by_name():
    assert partition.get("Shards", nodes=3) == shards(nodes=3)
    assert partition.get("k_class:k=2", nodes=3) == k_class(nodes=3, k=2)


def test_prints_as_a_table():
    result = from_lists([[0, 1], [2, 3, 4]])([0, 0, 1, 1, 1], holdout=0)
    assert str(result).splitlines() == [
        "node  samples  class 0  1  distance",
        "   0        2        2  -     0.600",
        "   1        3        -  3     0.400",
        "5 samples on 2 nodes, 0 for validation; mean label distance 0.500 (0 = iid)",
    ]
    assert repr(result) == "<Partition from_lists(seed=0, equal_sizes=False, nodes=2): 5 samples, 0 for validation>"


def test_prints_many_nodes_and_classes_briefly():
    lines = str(k_class(50, 4)(torch.arange(4000) % 20)).splitlines()
    assert lines[0].split() == ["node", "samples", "classes", "distance"]
    assert lines[1].split()[2] == "4"
    assert lines[-2].startswith("... and 10 more nodes of")
    assert len(lines) == 1 + 40 + 2
