import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.data.batches import NodeBatches
from gossamer.errors import GossamerError


def nodes(*sizes):
    """Nodes holding 100 * i, 100 * i + 1, ..."""
    return [torch.arange(size) + 100 * node for node, size in enumerate(sizes)]


def take(batches, rounds):
    return [[batches.next(node).tolist() for node in range(len(batches.sizes))] for _ in range(rounds)]


@settings(deadline=None)
@given(size=st.integers(1, 30), batch=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_equal_sizes_an_epoch_is_one_pass(size, batch, seed):
    batches = NodeBatches(nodes(size, size), batch, seed)
    assert batches.rounds_per_epoch == -(-size // batch)
    for _ in range(3):
        epoch = take(batches, batches.rounds_per_epoch)
        for node, own in enumerate(nodes(size, size)):
            seen = [index for round in epoch for index in round[node]]
            assert sorted(seen) == own.tolist()
            assert all(len(round[node]) == batch for round in epoch[:-1])


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=2, max_size=5), batch=st.integers(1, 20), rounds=st.integers(1, 30))
def test_unequal_sizes_cycle_with_full_batches(sizes, batch, rounds):
    sizes[0] = sizes[1] + 1
    batches = NodeBatches(nodes(*sizes), batch)
    assert batches.rounds_per_epoch == -(-sum(sizes) // (len(sizes) * batch))
    taken = take(batches, rounds)
    for node, own in enumerate(nodes(*sizes)):
        seen = [index for round in taken for index in round[node]]
        assert all(len(round[node]) == min(batch, sizes[node]) for round in taken)
        for start in range(0, len(seen) - sizes[node] + 1, sizes[node]):
            assert sorted(seen[start : start + sizes[node]]) == own.tolist()


def test_every_pass_node_and_seed_has_its_own_order():
    first, second = (take(NodeBatches(nodes(50, 50), 50, seed), 2) for seed in (0, 1))
    assert first[0] != first[1]
    assert [index - 100 for index in first[0][1]] != first[0][0]
    assert first != second


def test_a_node_does_not_depend_on_the_others():
    together, alone = NodeBatches(nodes(20, 20, 20), 7, seed=3), NodeBatches(nodes(20), 7, seed=3)
    take(together, 2)
    assert [together.next(0).tolist() for _ in range(4)] == [alone.next(0).tolist() for _ in range(6)][2:]


@pytest.mark.parametrize("sizes", [(10, 10), (10, 13, 2)])
def test_resuming_gives_the_same_batches(sizes):
    batches = NodeBatches(nodes(*sizes), 4, seed=1)
    for _ in range(12):
        file = io.BytesIO()
        torch.save(batches.state_dict(), file)
        file.seek(0)
        resumed = NodeBatches(nodes(*sizes), 4, seed=9)
        resumed.load_state_dict(torch.load(file, weights_only=True))
        draws = torch.rand(3, generator=resumed.generators[0])
        resumed.load_state_dict(batches.state_dict())
        assert torch.equal(draws, torch.rand(3, generator=resumed.generators[0]))
        resumed.load_state_dict(batches.state_dict())
        before = batches.state_dict()
        assert take(resumed, 9) == take(batches, 9)
        batches.load_state_dict(before)
        take(batches, 1)


def test_saved_state_does_not_change_later():
    batches = NodeBatches(nodes(6, 6), 4)
    state = batches.state_dict()
    copy = {name: value.clone() for name, value in state.items()}
    take(batches, 5)
    assert all(torch.equal(state[name], copy[name]) for name in copy)


def test_global_generator_is_left_alone():
    before = torch.get_rng_state()
    take(NodeBatches(nodes(9, 9), 4), 5)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "state",
    [
        {},
        NodeBatches(nodes(5, 5, 5), 2).state_dict(),
        NodeBatches(nodes(5, 6), 2).state_dict(),
        NodeBatches([torch.arange(5), torch.arange(5)], 2).state_dict(),
        NodeBatches(nodes(5, 5), 2).state_dict() | {"positions": torch.tensor([0, 6])},
    ],
)
def test_foreign_state_is_refused(state):
    with pytest.raises(GossamerError, match="another partition"):
        NodeBatches(nodes(5, 5), 2).load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NodeBatches(nodes(3), 0), "at least one sample, not 0"),
        (lambda: NodeBatches(nodes(3), 2.5), "batch size must be a whole number"),
        (lambda: NodeBatches(nodes(3), 2, seed=-1), "0 or above"),
        (lambda: NodeBatches(nodes(3), 2, seed=1.5), "seed must be a whole number"),
        (lambda: NodeBatches(nodes(3, 0), 2), "node 1 holds no samples"),
        (lambda: NodeBatches([], 2), "there are no nodes"),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(GossamerError, match=words):
        make()
