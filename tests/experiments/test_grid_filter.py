"""A part of a grid."""

import pytest

from gossamer import GossamerError
from gossamer.experiments.grid import Grid
from gossamer.experiments.grid_filter import part_of, wanted
from gossamer.experiments.paper import recipes


def grid(item, scale="quick"):
    return recipes.read(item, scale)


def experiments(**wanted):
    return part_of(grid("table7"), {k: v if isinstance(v, list) else [v] for k, v in wanted.items()}).experiments


def test_k_is_that_of_the_partition():
    assert {e.partition for e in experiments(k="2")} == {"k-class:k=2,draw=paper"}


def test_several_values_are_alternatives_and_several_keys_conditions():
    found = experiments(method=["dsgd", "Momentum_Tracking"], k="10")
    assert [(e.method, e.partition) for e in found] == [
        ("dsgd", "k-class:k=10,draw=paper"), ("momentum-tracking", "k-class:k=10,draw=paper")
    ]  # fmt: skip


def test_a_name_alone_stands_for_all_its_parameters():
    both = part_of(grid("table6"), {"method": ["momentum-tracking"], "dataset": ["svhn"], "k": ["4"]})
    assert [e.label for e in both.experiments] == ["Momentum Tracking", "Momentum Tracking (init=zero)"]
    one = part_of(grid("table6"), {"method": ["momentum-tracking:init=zero"], "dataset": ["svhn"], "k": ["4"]})
    assert [e.label for e in one.experiments] == ["Momentum Tracking (init=zero)"]


def test_numbers_however_they_are_written():
    assert {e.partition for e in part_of(grid("table5"), {"alpha": ["0.10"]}).experiments} == {
        "dirichlet:alpha=0.1,min_size=100"
    }
    assert len(part_of(grid("table5"), {"lr": ["5e-2"], "model": ["vgg-11"]}).experiments) == 6


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"learning": "1"}, "There is no key for --only 'learning'"),
        ({"k": "3"}, "There is no experiment of table7 (quick) with k '3'. Known: 10, 2."),
        ({"method": "dsgdn"}, "did you mean 'dsgd'?"),
        ({"alpha": "0.1"}, "No experiment of table7 (quick) has alpha, so"),
        ({"method": "relaysum", "topology": "ring"}, "No experiment of table7 (quick) has method=relaysum and"),
    ],
)
def test_what_selects_nothing_gets_a_sentence(wanted, words):
    with pytest.raises(GossamerError) as caught:
        experiments(**wanted)
    assert words in str(caught.value)


def test_what_is_kept_stays_in_order_and_the_grid_keeps_its_name():
    grid = Grid.from_dict({"method": ["dsgd", "dsgdm"], "seed": [0, 1, 2], "name": "t"})
    kept = part_of(grid, wanted(["method=dsgdm", "seed=0,2"]))
    assert [(e.method, e.seed) for e in kept.experiments] == [("dsgdm", 0), ("dsgdm", 2)]
    assert kept.name == "t"
    assert part_of(grid, {}).experiments == grid.experiments
    with pytest.raises(GossamerError, match=r"There is no experiment of the grid with seed '7'\. Known: 0, 1, 2"):
        part_of(grid, {"seed": ["7"]})


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["seed=0", "seed=1"], {"seed": ["0", "1"]}),
        (["k=2,method=dsgd,dsgdm"], {"k": ["2"], "method": ["dsgd", "dsgdm"]}),
        (
            ["partition=dirichlet:alpha=0.1,min_size=100,iid"],
            {"partition": ["dirichlet:alpha=0.1,min_size=100", "iid"]},
        ),
        (["method=abm:beta=0.5,k=4"], {"method": ["abm:beta=0.5"], "k": ["4"]}),
        (["method=k-gt:beta=0.9,every=5,dsgd"], {"method": ["k-gt:beta=0.9,every=5", "dsgd"]}),
        (["method=abm:beta=0.5,every=5"], {"method": ["abm:beta=0.5"], "every": ["5"]}),
        (
            ["inner=sgd:momentum=0.9,weight_decay=0.001,lr=0.1"],
            {"inner": ["sgd:momentum=0.9,weight_decay=0.001"], "lr": ["0.1"]},
        ),
    ],
)
def test_words_are_read(texts, found):
    assert wanted(texts) == found


@pytest.mark.parametrize("text", ["seed", "seed=", "=3", "grid.toml"])
def test_what_is_no_condition_gets_a_sentence(text):
    with pytest.raises(GossamerError, match=f"not '{text}'; put other arguments before --only"):
        wanted([text])
