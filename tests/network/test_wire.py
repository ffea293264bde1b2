"""Headers survive the wire, and each way of falling out of step has its sentence."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.network.wire import CHANGE, HEADER_BYTES, Envelopes, Form, Header, Message, mismatch

INTS = st.integers(-(2**63), 2**63 - 1)


@given(INTS, INTS, INTS, st.floats(allow_nan=False), INTS)
def test_headers_are_read_as_written(round: int, serial: int, node: int, lr: float, settings: int) -> None:
    message = Message((torch.Size([3]), torch.Size([2])), torch.float64, torch.device("cpu"))
    message.vectors[0].fill_(1.0)
    head = Header(round, serial, node, lr, settings)
    message.write(head)
    assert message.read() == head
    assert message.vectors[0].tolist() == [1.0] * 3
    assert message.bytes == HEADER_BYTES + 5 * 8


def test_a_header_that_goes_by_way_of_a_small_buffer() -> None:
    message = Message((torch.Size([3]),), torch.float32, torch.device("cpu"))
    message._aside = torch.zeros(HEADER_BYTES, dtype=torch.uint8)  # as where the processor cannot reach the message
    message._words = message._aside.numpy().data
    message.write(Header(1, 2, 3, 0.5, 4))
    message._aside.zero_()
    assert message.read() == Header(1, 2, 3, 0.5, 4)


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (None, "no message of this version"),
        (Header(6, 9, 1, 0.1, 7), "is in round 6 while this node is in round 5"),
        (Header(5, 8, 1, 0.1, 7), "has sent 8 messages before round 5, this node 9"),
        (Header(5, 9, 1, 0.2, 6), "its step size is 0.2, here it is 0.1"),
        (Header(5, 9, 1, 0.1, 6), "momentum"),
        (Header(5, 9, 1, 0.1, CHANGE), "has changed before round 5 which parameters it trains"),
    ],
)
def test_each_way_of_falling_out_of_step(theirs: Header | None, words: str) -> None:
    sentence = mismatch(Header(5, 9, 0, 0.1, 7), theirs)
    assert sentence is not None
    assert words in sentence


def test_nodes_in_step_have_nothing_to_complain_about() -> None:
    assert mismatch(Header(5, 9, 0, 0.1, 7), Header(5, 9, 1, 0.1, 7)) is None
    blank = Message((torch.Size([1]),), torch.float32, torch.device("cpu"))
    assert blank.read() is None


def test_a_sent_buffer_rests_for_a_message_before_it_is_filled_again() -> None:
    supply = Envelopes()
    form = Form((torch.Size([2]),), torch.float32, torch.device("cpu"), 1)
    used = []
    for _ in range(6):
        envelope = supply.take(form)
        received = supply.receivers(form, 2)
        used.append((id(envelope), {id(m) for m in received}))
        supply.give_back(envelope, received)
    assert all(a != b for (a, _), (b, _) in pairwise(used))
    assert len({e for e, _ in used}) == 2
    assert len(set.union(*(m for _, m in used))) == 2
