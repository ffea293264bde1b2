"""Every compressor: both ends hold the same numbers to the bit, in bytes that do not change."""

import json
from pathlib import Path

import pytest
import torch

from gossamer import compression, methods, topology
from gossamer.compression import Compressor, Identity, Quantize, RandomK, TopK, bits
from gossamer.errors import GossamerError
from gossamer.network.wire import Header, Message

GOLDEN = Path(__file__).with_name("wire.json")
ALL = [Identity(), *(Quantize(bits) for bits in range(1, 17)), Quantize(3, block=5), TopK(0.1), TopK(0.01), TopK(1.0)]
ALL += [RandomK(0.1), RandomK(0.01, seed=3)]


MORE = [
    (Quantize(1, block=8), 21),  # several blocks
    (TopK(0.01), 40),
    (TopK(0.01), 41),  # from here on, positions of two bytes are the shorter ones
    (TopK(0.03), 57),  # two of them
    (TopK(0.00004), 65_600),  # in two ranges
]


def written_down(dim: int) -> torch.Tensor:
    """A vector that needs no random numbers; of a long one, two numbers are larger."""
    vector = torch.tensor([((7 * k) % 11 - 5) / 4 for k in range(dim)])
    if dim > 21:
        vector[-1], vector[dim // 2] = 9.0, -7.0
    return vector


def hexadecimal(wire: torch.Tensor) -> str:
    return bytes(wire.tolist()).hex()


def stack(dim: int, rows: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(dim), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("compressor", ALL, ids=str)
@pytest.mark.parametrize("dim", [1, 9, 257, 70_001])
def test_both_ends_hold_the_same_numbers(compressor: Compressor, dim: int) -> None:
    """Decoded bytes are the sender's numbers to the bit, and a row in a stack is a row alone."""
    dtype = torch.float64 if dim == 257 else torch.float32
    vectors = stack(dim, dtype=dtype)
    all_rows = compressor.compress(vectors, turn=5)
    wires = all_rows.wire()
    assert (wires.dtype, wires.shape) == (torch.uint8, (3, compressor.bytes(dim, dtype.itemsize)))
    for vector, wire, values in zip(vectors, wires, all_rows.values, strict=True):
        assert torch.equal(compressor.decode(wire, vector), values)
        alone = compressor.compress(vector, turn=5)
        assert torch.equal(alone.values, values)
        assert torch.equal(alone.wire(), wire)


@pytest.mark.parametrize("compressor", [Quantize(1), TopK(0.1), TopK(0.01)], ids=str)
def test_other_devices_do_the_same_without_numpy(compressor: Compressor, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = stack(3001).round(decimals=1)  # many are equal in size
    here = compressor.compress(vectors)
    monkeypatch.setattr(bits, "NUMPYS_DEVICE", "none")
    there = compressor.compress(vectors)
    assert torch.equal(here.values, there.values)
    assert torch.equal(here.wire(), there.wire())
    assert torch.equal(compressor.decode(here.wire()[1], vectors[1]), here.values[1])


def test_what_is_not_finite_stays_so_and_can_be_seen() -> None:
    for bad in (torch.nan, torch.inf):
        for compressor in (Quantize(1), Quantize(4), Quantize(8), TopK(0.1)):
            vector = torch.ones(300)
            vector[7] = bad
            assert not compressor.compress(vector).values.isfinite().all()


@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_what_is_left_out_is_as_declared(compressor: Compressor) -> None:
    vectors = stack(40_000)
    if isinstance(compressor, TopK):  # errors that are fed back have sizes that are spread evenly
        vectors = torch.rand(3, 40_000, generator=torch.Generator().manual_seed(0)) * vectors.sign()
    values = compressor.compress(vectors).values
    left = float((vectors - values).square().sum() / vectors.square().sum())
    usual = 1 - compressor.contraction(40_000)
    assert left == pytest.approx(usual, rel=0.1, abs=2e-3) or (compressor == Quantize(3, block=5) and left < usual)
    assert float((values * (vectors - values)).sum()) == pytest.approx(0, abs=1e-2 * float(values.square().sum()))


@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_nothing_stays_nothing_and_numbers_need_not_be_tame(compressor: Compressor) -> None:
    assert not compressor.compress(torch.zeros(300)).values.any()
    wild = torch.tensor([1e30, -1e-30, 0.0, 1.0] * 20)
    values = compressor.compress(wild).values
    assert values.isfinite().all()
    assert (wild - values).norm() <= wild.norm() * (1 + 1e-6)


def test_a_zero_stays_zero_from_three_bits_on() -> None:
    vector = torch.tensor([0.0, 1.0, -0.4, 0.0])
    for count in range(3, 17):
        values = Quantize(count).compress(vector).values
        assert values[0] == values[3] == 0


def test_one_bit_keeps_its_share_of_every_vector() -> None:
    """Also where one number is much larger than the others, and of what was left out again and again."""
    vector = 0.01 * stack(5_000, rows=1)[0]
    vector[::1000] = 5.0
    for turn in range(40):
        left = vector - Quantize(1).compress(vector, turn).values
        kept = 1 - float(left.square().sum() / vector.square().sum())
        assert turn < 2 or kept == pytest.approx(Quantize(1).contraction(5_000), abs=0.04)
        vector = left


def test_random_positions_change_with_the_turn_and_the_seed() -> None:
    vector = torch.ones(1000)
    turns = ((RandomK(0.1), 0), (RandomK(0.1), 0), (RandomK(0.1), 1), (RandomK(0.1, seed=1), 0))
    first, again, later, other = (compressor.compress(vector, turn).values for compressor, turn in turns)
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert not torch.equal(first, other)
    assert first.sum() == 100


def test_wire_formats_stay_as_they_are() -> None:
    """The bytes, written down: another version must be able to read them."""
    golden = json.loads(GOLDEN.read_text("utf-8"))
    cases = {f"{c} of {dim}": (c, dim) for c, dim in [*((c, 21) for c in ALL), *MORE]}
    made = {name: hexadecimal(c.compress(written_down(dim), turn=2).wire()) for name, (c, dim) in cases.items()}
    assert made == golden
    for name, (compressor, dim) in cases.items():
        vector = written_down(dim)
        wire = torch.tensor(list(bytes.fromhex(golden[name])), dtype=torch.uint8)
        assert torch.equal(compressor.decode(wire, vector), compressor.compress(vector, turn=2).values)


def test_a_whole_message_stays_as_it_is() -> None:
    """A header and two compressed vectors, one after the other."""
    wires = tuple(c.compress(written_down(21), turn=2).wire() for c in (Quantize(2), TopK(0.01)))
    message = Message(tuple(wire.shape for wire in wires), torch.uint8, torch.device("cpu"))
    message.fill(wires)
    message.write(Header(round=3, serial=258, node=5, lr=0.75, settings=0x1234567890, stop=7, fault=9))
    assert hexadecimal(message.raw) == (
        "72656d6173736f67" "0300000000000000" "0201000000000000" "0500000000000000"
        "000000000000e83f" "9078563412000000" "0700000000000000" "0900000000000000"
        "d8b618b62d024545453f" "0000a0bf010000"
    )  # fmt: skip


@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_specs(compressor: Compressor) -> None:
    assert compression.get(str(compressor)) == compressor
    method = methods.get(f"motef:compress={str(compressor).replace(',', '+')},beta=0.5")
    assert (method.compressor, method.beta) == (compressor, 0.5)
    assert methods.get("motef", compress=compressor).hyperparameters["compress"] == str(compressor)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("motef:compress=top-k:share=0", "share of the numbers above 0 and at most 1, but share is 0"),
        ("motef:compress=random-k:share=1.5", "above 0 and at most 1"),
        ("motef:compress=quantize:bits=0", "1 to 16 bits per number, not 0"),
        ("beer:compress=quantize:bits=17", "1 to 16 bits per number, not 17"),
        ("choco-sgd:compress=quantize:block=0", "block of quantize must be a whole number of at least 1"),
        ("motef:compress=quantize:bits=1+block=100", "must be a power of 2 long, not 100"),
        ("choco-sgdm:compress=topk", "no compressor 'topk'; did you mean 'top-k'"),
        ("motef:compress=top-k", "needs share, as in 'top-k:share=0.3'"),
        (
            "motef:compress=quantize:bits=4,block=256",
            r"no parameter of motef 'block'.* write compress=quantize:bits=4\+block=256\.",
        ),
        ("motef:gamma=0", "needs gamma > 0"),
        ("motef:gamma=1.5", "gamma of at most 1"),
        ("beer:compress=random-k:share=0.02,predict=true", "BEER predicts steps only with quantization"),
        ("k-gt:every=0", "'every'.* of K-GT must be a whole number of at least 1"),
        ("led:every=-1", "of LED must be a whole number of at least 1"),
    ],
)
def test_bad_input_is_one_sentence(spec: str, words: str) -> None:
    with pytest.raises(GossamerError, match=words) as caught:
        methods.get(spec)
    assert "\n" not in str(caught.value)


def test_a_compressor_needs_a_static_graph() -> None:
    with pytest.raises(GossamerError, match="because it stops short of the optimum on one that changes, but 'one-peer"):
        methods.get("motef").check(topology.one_peer_exponential(4))
