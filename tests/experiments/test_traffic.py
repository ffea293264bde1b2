"""What messages cost on a slow link, before anything is sent."""

import pytest

from gossamer import methods, topology
from gossamer.compression import Quantize
from gossamer.engine.history import bytes_per_node
from gossamer.errors import InputError
from gossamer.experiments import traffic
from gossamer.experiments.traffic import COUNTS, HEADERS, RATES, TIMES, amount, plan

SLOW = {"parameters": 1_000_000, "link": 1e8, "step": 0.2}


def on_the_wire(count):
    return 8 * count * HEADERS / 1e8


@pytest.mark.parametrize("name", methods.BUILT_IN)
def test_bytes_are_what_a_run_counts(name):
    method = methods.get(name)
    static = [topology.chain(2) if "relaysum" in name else topology.ring(8, weights="lazy")]
    for graph in static if method.facts.needs.static else [*static, topology.one_peer_exponential(8)]:
        later, earlier = (bytes_per_node(method, graph, 1_000_000, 4, rounds) for rounds in (130, 10))
        assert plan(method, graph, **SLOW).bytes_per_step == pytest.approx((later - earlier) / 120)


def test_what_overlaps_is_hidden_behind_all_steps_up_to_the_next_exchange():
    ring = topology.ring(8)
    once, tenth = plan("momentum-tracking", ring, **SLOW), plan("momentum-tracking", ring, **SLOW, every=10)
    wire = on_the_wire(2 * 2 * 4_000_000)
    assert (once.wire, once.hidden, once.waiting) == pytest.approx((wire, 0.2, wire - 0.2))
    assert once.step == pytest.approx(wire)
    assert (tenth.every, tenth.hidden, tenth.waiting, tenth.step) == pytest.approx((10, wire, 0.0, 0.2))


def test_what_does_not_overlap_is_waited_for():
    wire = on_the_wire(2 * 4_000_000)
    found = plan("dsgdm", topology.ring(8), **SLOW, every=4)
    assert (found.hidden, found.waiting) == pytest.approx((0.0, wire))
    assert found.step == pytest.approx(0.2 + wire / 4)


def test_compressing_is_measured_and_a_part_of_the_step(monkeypatch):
    ring = topology.ring(8)
    assert plan("momentum-tracking", ring, **SLOW).coding == 0
    found = plan("motef", ring, **SLOW, every=4)
    assert found.coding > 1e-4  # of a million numbers, which alone take longer to read
    assert found.step == pytest.approx(0.2 + found.coding / 4)
    monkeypatch.setattr(traffic, "SAMPLE", 50_000)
    few, many = (plan("motef", ring, **{**SLOW, "parameters": count}).coding for count in (50_000, 50_000_000))
    assert many > 100 * few


def test_the_busiest_site_unpacks_what_all_its_neighbours_send(monkeypatch):
    unpacked = []
    decode = Quantize.decode
    monkeypatch.setattr(Quantize, "decode", lambda *args: (unpacked.append(1), decode(*args))[1])
    assert traffic.coding_time(methods.get("motef"), 100, neighbours=7) > 0
    assert len(unpacked) == traffic._STEPS * 2 * 7


def test_every_is_the_methods_own_where_it_has_one():
    ring = topology.ring(8)
    assert plan("k-gt", ring, **SLOW).every == 5
    found = plan("k-gt", ring, **SLOW, every=10)
    assert (found.every, found.method.facts.every) == (10, 10)
    assert plan("momentum-tracking", ring, **SLOW, every=10).method.facts.every == 1


def test_the_busiest_site_counts():
    assert plan("dsgdm", topology.star(8), **SLOW).bytes == 7 * 4_000_000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"every": 0}, "An exchange follows at least 1 step, but every is 0."),
        ({"link": 0}, "The rate of a link must be a number above 0"),
        ({"step": -1}, "The time of a step must be"),
        ({"parameters": 0}, "The number of parameters must be a whole number of at least 1"),
        ({"topology": topology.one_peer_exponential(8)}, "MoTEF needs a graph that stays the same"),
    ],
)
def test_bad_input(options, sentence):
    with pytest.raises(InputError, match=sentence):
        plan("motef", **{"topology": topology.ring(8), **SLOW, **options})


def test_units():
    assert amount("25.6M", "", COUNTS, "") == 25.6e6
    assert [amount(text, "", RATES, "") for text in ("100Mbit/s", "12.5 MB/s")] == [1e8, 1e8]
    assert [amount(text, "", TIMES, "") for text in ("400ms", "0.4", "2 min")] == [0.4, 0.4, 120]
    for text in ("fast", "100Mb", "-1Mbit/s", "0Mbit/s", "nan"):
        with pytest.raises(InputError, match="The rate must be a number above 0 such as 100Mbit/s, not"):
            amount(text, "The rate", RATES, "100Mbit/s")
