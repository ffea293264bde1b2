"""Things by name, with parameters after a colon."""

import pytest

from gossamer import methods
from gossamer._common import checks
from gossamer.data import partition
from gossamer.engine import schedule
from gossamer.errors import GossamerError


def test_the_same_form_serves_methods_partitions_and_schedules():
    assert repr(methods.get("momentum_tracking:beta=0.5, init=zero")) == "MomentumTracking(beta=0.5, init='zero')"
    assert partition.get("k-class:k=3,equal_sizes=false", nodes=5) == partition.k_class(nodes=5, k=3, equal_sizes=False)
    assert schedule.get("step:at_epochs=5/7.5,factor=0.5", 0.1).at(8, 10) == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: methods.get("dsgd:beta=0.5"), "The method 'dsgd' takes no parameters, so leave out ':beta=0.5'"),
        (lambda: methods.get("dsgdm:bta=0.5"), "no parameter of dsgdm 'bta'; did you mean 'beta'"),
        (lambda: methods.get("dsgdm:beta=high"), "beta of the method 'dsgdm' must be a number, not 'high'"),
        (lambda: methods.get("momentum-tracking:init=none"), "must be theorem or zero, not 'none'"),
        (lambda: methods.get("dsgdm:beta"), "must be a number, as in key=value"),
        (lambda: partition.get("k-class", nodes=2), "The partition 'k-class' needs k, as in 'k-class:k=4'"),
        (lambda: partition.get("dirichlet", nodes=2), "needs alpha, as in 'dirichlet:alpha=0.3'"),
        (lambda: partition.get("k-class:k=2,nodes=3", nodes=2), "no parameter of k-class 'nodes'"),
        (lambda: partition.get("iid:equal_sizes=maybe", nodes=2), "must be true or false, not 'maybe'"),
        (lambda: schedule.get("step:at_epochs=soon", 0.1), "must be numbers joined by slashes, not 'soon'"),
        (lambda: schedule.get("cosin", 0.1), "did you mean 'cosine'"),
    ],
)
def test_what_is_wrong_gets_a_sentence(make, words):
    with pytest.raises(GossamerError) as caught:
        make()
    assert words in str(caught.value)


def test_a_parameter_of_any_other_type_is_a_word():
    def build(title: str) -> None: ...

    assert checks.parameters("thing", "x", build, "title=a b") == {"title": "a b"}
    with pytest.raises(GossamerError, match=r"needs title, as in 'x:title=\.\.\.'"):
        checks.parameters("thing", "x", build, "")
