"""The conformance kit: our methods pass, and every way of breaking a method is caught under its name."""

import time
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal, get_args, get_origin, get_type_hints
from unittest.mock import patch

import pytest
import torch

from gossamer import GossamerError, methods, topology
from gossamer.compression import Compressor, Identity
from gossamer.methods import BUILT_IN, DSGD, ChocoSGD, DSGDm, Facts, Method, MomentumTracking, Needs, State
from gossamer.network import Pending, Ready
from gossamer.testing import ConformanceError, ConformanceReport, PropertyResult, Trial, check_method, kit_graphs
from gossamer.testing.compressed_messages import COMPRESSION
from gossamer.testing.properties import CONTRACT, PROMISES
from gossamer.testing.threads import run_in_threads

pytestmark = pytest.mark.usefixtures("_own_methods")


def failures(method: type[Method] | Method) -> dict[str, str]:
    """The properties that fail, with their sentences; half of the graphs are enough to find them."""
    half = patch("gossamer.testing.kit.kit_graphs", return_value=kit_graphs()[::2])
    with half, pytest.raises(ConformanceError) as caught:
        check_method(method)
    return {row.property: row.sentence for row in caught.value.report.failures}


def assert_fails(method: type[Method], expected: dict[str, str]) -> None:
    """These properties fail, no others, with these words in their sentences."""
    found = failures(method)
    assert list(found) == list(expected)
    for broken, words in expected.items():
        assert words in found[broken]


def quickly(method: Method | str) -> ConformanceReport:
    """A check on one graph: compressing takes long, and the kit tries every compressor on each graph."""
    with patch("gossamer.testing.kit.kit_graphs", return_value=kit_graphs()[2:3]):
        return check_method(method)


@pytest.mark.parametrize("name", BUILT_IN)
def test_our_own_methods_do_what_they_declare(name):
    report = quickly(name) if methods.find(name).facts.compresses else check_method(name)
    assert report.failures == ()
    facts = methods.find(name).facts
    assert [row.property for row in report.rows] == [*CONTRACT, *(COMPRESSION if facts.compresses else ()), *PROMISES]
    assert set(report.undeclared) == {promise for promise in PROMISES if not getattr(facts, promise)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BUILT_IN if methods.find(name).facts.compresses])
def test_compressed_messages_do_what_they_should_on_every_graph(name):
    assert check_method(name).failures == ()


@pytest.mark.parametrize(
    "method",
    [
        DSGDm(beta=0.5),
        DSGDm(beta=torch.tensor(0.9)),
        methods.QGDSGDm(beta=0.6, mu=0.3),
        methods.GTAdam(b1=0.5, gmax=0.1),
        DSGDm(beta=0.0, nesterov=True),
    ],
    ids=repr,
)
def test_other_hyperparameters_pass_too(method):
    exact_takes_long = replace(method.facts, exact=False)
    variant = type(type(method).__name__, (type(method),), {"facts": exact_takes_long})(**method.hyperparameters)
    assert check_method(variant).failures == ()


def other_choices() -> list[Method]:
    """Every built-in method with each switch and each choice among words turned to what is not its default."""
    variants = []
    for cls in map(methods.find, BUILT_IN):
        hints = get_type_hints(cls)
        for field in (f for f in fields(cls) if f.init):
            hint = hints[field.name]
            choices = (False, True) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()
            variants += [cls(**{field.name: choice}) for choice in choices if choice != field.default]
    return variants


def test_the_switches_and_choices_are_all_found():
    assert " ".join(type(m).name for m in other_choices()) == (
        "dsgdm gradient-tracking momentum-tracking relaysum relaysum-m relaysum-m all-reduce-sgdm beer beer motef motef"
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", other_choices(), ids=repr)
def test_every_switch_and_choice_of_our_own_methods_keeps_what_is_declared(method):
    assert (quickly(method) if method.facts.compresses else check_method(method)).failures == ()


def test_a_class_an_instance_and_a_name_are_taken():
    report = check_method("dsgd")
    assert report.method == "DSGD"
    assert report == check_method(DSGD) == check_method(DSGD(), seed=1)
    with pytest.raises(GossamerError, match="no method 'dsg'; did you mean 'dsgd'"):
        check_method("dsg")


def test_a_seed_draws_another_trial():
    where = topology.ring(3)
    assert not torch.equal(Trial(where, seed=5).start(), Trial(where, seed=6).start())
    assert torch.equal(Trial(where, seed=5).start(), Trial(where, seed=5).start())


def test_a_researchers_own_method_is_checked_in_one_line():
    @dataclass(frozen=True)
    class ClippedDSGD(Method):
        """X <- W (X - eta clip(G))."""

        name = "clipped-dsgd"
        facts = Facts(title="Clipped DSGD", sends=1)

        limit: float = 1.0

        def step(self, state, x, grad, lr, net, round):
            norm = grad.norm(dim=-1, keepdim=True)
            half = x - lr * grad * (self.limit / norm).clamp(max=1.0)
            net.mix(half, round=round, out=(x,)).wait()

    report = check_method(ClippedDSGD)
    assert report.notes == ()
    assert report.undeclared == tuple(PROMISES)
    assert len(report.graphs) == len(kit_graphs())


class TestReport:
    rows = (
        PropertyResult("runs", "holds"),
        PropertyResult("resumes", "fails", "on ring of 5, x"),
        PropertyResult("exact", "not declared"),
    )
    report = ConformanceReport("Mine", ("ring", "star"), rows)

    def test_it_reads_as_a_table_with_the_notes_last(self):
        assert str(replace(self.report, notes=("Mine has no name.",))).splitlines() == [
            "Mine on ring, star",
            "  runs     holds",
            "  resumes  fails: on ring of 5, x",
            "  exact    not declared",
            "Mine has no name.",
        ]
        assert [row.property for row in self.report.failures] == ["resumes"]
        assert self.report.undeclared == ("exact",)

    def test_the_error_says_it_all(self):
        error = ConformanceError(self.report)
        assert error.report is self.report
        assert str(error).startswith("Mine fails 'resumes': on ring of 5, x.\n\nMine on ring, star\n")
        assert isinstance(error, AssertionError)

    def test_the_graphs_are_those_that_the_needs_admit(self):
        facts = Facts(title="Tree", needs=Needs(static=True, tree=True))
        assert check_method(type("Tree", (DSGD,), {"facts": facts})).graphs == (
            "complete of 1",
            "chain of 2",
            "star of 5",
            "chain of 6",
        )


class Correct(Method):
    """DSGD without any promise: what the broken methods below start from."""

    facts = Facts(title="Broken", sends=1)

    def step(self, state, x, grad, lr, net, round):
        net.mix(x - lr * grad, round=round, out=(x,)).wait()


def test_the_method_that_is_broken_below_is_correct_itself():
    assert check_method(Correct).failures == ()


class TestUnfinishedClasses:
    def test_annotated_fields_without_the_decorator_are_refused(self):
        class Forgotten(Correct):
            beta: float = 0.9

        with pytest.raises(GossamerError, match=r"Forgotten annotates 'beta' but is no dataclass.*write @dataclass"):
            check_method(Forgotten)

    def test_also_below_and_above_a_dataclass(self):
        class Below(DSGDm):
            nesterov: bool = True

        class Above(Correct):
            beta: float

        with pytest.raises(GossamerError, match=r"Below annotates 'nesterov'"):
            check_method(Below)
        with pytest.raises(GossamerError, match=r"Above annotates 'beta'"):
            check_method(dataclass(type("Decorated", (Above,), {})))

    def test_a_class_that_makes_itself_may_annotate(self):
        class Own(Correct):
            scale: float
            kinds: ClassVar[tuple[str, ...]] = ("one",)

            def __init__(self, scale=1.0):
                self.scale = scale

        class Constant(Correct):
            kinds: "ClassVar[tuple[str, ...]]" = ("one",)
            name: str = "constant"

        assert check_method(Own).failures == check_method(Constant).failures == ()

    def test_no_facts(self):
        class Silent(Method):
            def step(self, state, x, grad, lr, net, round):
                x.sub_(lr * grad)

        with pytest.raises(GossamerError, match=r"Silent declares no facts; give the class a line such as facts ="):
            check_method(Silent)

    @pytest.mark.parametrize("parent", [Correct, DSGD])
    def test_a_class_without_a_name_of_its_own_is_noted(self, parent):
        nameless = type("Nameless", (parent,), {"facts": Facts(title="Nameless")})
        (note,) = check_method(nameless).notes
        assert note.startswith("Nameless has no name of its own, so the command line cannot find it")


def on_gradient(change):
    """A step as in `Correct` with the gradient change(grad, net, round)."""

    def step(self, state, x, grad, lr, net, round):
        Correct.step(self, state, x, change(grad, net, round), lr, net, round)

    return step


def on_step_size(change):
    """A step as in `Correct` with the step size change(lr), where lr is always a tensor."""

    def step(self, state, x, grad, lr, net, round):
        Correct.step(self, state, x, grad, change(torch.as_tensor(lr, dtype=grad.dtype)), net, round)

    return step


def after_mixing(use):
    """A step that does use(x, message) with the message of `Correct`."""

    def step(self, state, x, grad, lr, net, round):
        use(x, net.mix(x - lr * grad, round=round))

    return step


def bind_another_x(self, state, x, grad, lr, net, round):
    (x,) = net.mix(x - lr * grad, round=round).wait()


def replace_storage(self, state, x, grad, lr, net, round):
    state.kept = x.data, grad  # so that the new storage cannot be the old one
    x.data = net.mix(x - lr * grad, round=round).wait()[0]


def change_dtype(self, state, x, grad, lr, net, round):
    Correct.step(self, state, x, grad, lr, net, round)
    x.data = x.data.half()


def forget_to_wait(self, state, x, grad, lr, net, round):
    net.mix(x - lr * grad, round=round, out=(x,))


def lose_rows(self, state, x, grad, lr, net, round):
    net.mix((x - lr * grad).mean(0), round=round, out=(x,)).wait()


ALONE, COORDINATES, SENDS = "runs on one node's vectors", "takes a step size per coordinate", "sends what it declares"
VECTORS = "its .wait() gives the tuple of vectors"
BROKEN_STEPS = [
    ("runs", "on complete of 1, x did not move in 12 rounds; change it in place, as in x.sub_(lr", bind_another_x),
    ("runs", "replaced the storage of x instead of changing it in place", replace_storage),
    ("runs", "round 0 replaced the storage of x", change_dtype),
    (
        "runs",
        "x is not finite after round 3 in torch.float64",
        on_gradient(lambda g, net, r: g / (3 - r) if r < 4 else g),
    ),
    ("runs", VECTORS, after_mixing(lambda x, message: x.copy_(*message))),
    ("runs", VECTORS, after_mixing(lambda x, message: x.copy_(message))),
    ("runs", VECTORS, after_mixing(lambda x, message: x.copy_(message[0]))),
    ("runs", VECTORS, after_mixing(lambda x, message: x.copy_(0.5 * message))),
    ("runs", VECTORS, after_mixing(lambda x, message: message.clone())),
    ("runs", "on complete of 1, InputError: mix was given a tensor of the shape (5,)", lose_rows),
    (ALONE, "the usual causes are a missing .wait() after mix or exchange", forget_to_wait),
    (ALONE, "a sum, mean or norm over all nodes", on_gradient(lambda g, net, r: g - g.mean(0) / 2)),
    ("starts in any round", "decide by the state, not by `round`", on_gradient(lambda g, net, r: g if r else 2 * g)),
    (
        COORDINATES,
        "the step size as a tensor and as a number differ by",
        on_step_size(lambda lr: 0.03 if lr.ndim else lr),
    ),
    (COORDINATES, "a coordinate whose step size is 0 moved", on_step_size(lambda lr: lr.max())),
    (COORDINATES, "no coordinate moved although only the last one", on_step_size(lambda lr: lr.min())),
    (COORDINATES, "(test_kit.py, line ", on_step_size(lambda lr: lr.item())),
    (
        SENDS,
        "1 vectors over each edge, but round 0 sent 2",
        on_gradient(lambda g, net, r: net.mix(g, round=r).wait()[0]),
    ),
]


@pytest.mark.parametrize(("broken", "words", "step"), BROKEN_STEPS)
def test_a_broken_step_is_caught_under_its_name(broken, words, step):
    found = failures(type("Broken", (Correct,), {"step": step}))
    assert broken == "runs" or list(found) == [broken]
    assert words in found[broken]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"sends": "all-reduce"}, {SENDS: "one all-reduce, but round 0 made 0 and sent 1 vectors over each edge"}),
        (
            {"needs": Needs(static=True, smallest_eigenvalue=2.0)},
            dict.fromkeys(CONTRACT, "the method's needs admit no graph"),
        ),
        (
            {"exact": True, "exact_on_schedules": True},
            {
                "exact": "on ring of 5, after 3,000 rounds with step size 0.03 a node is ",
                "exact_on_schedules": "on random-matchings of 6, after 3,000 rounds",
            },
        ),
        (
            {"exact_on_schedules": True, "needs": Needs(static=True)},
            {"exact_on_schedules": "it is declared, but the method's needs admit no graph on which it could hold"},
        ),
        ({"tracks": True}, {"tracks": "InputError: Broken keeps no correction term"}),
        ({"overlaps": True}, {"overlaps": "on complete of 1, round 0 mixed for the rounds [0], not once for round 1"}),
    ],
)
def test_what_is_declared_but_not_so_is_caught_under_its_name(facts, expected):
    assert_fails(type("Broken", (Correct,), {"facts": replace(Correct.facts, **facts)}), expected)


@pytest.mark.parametrize(("declared", "averages"), [(False, 1), (True, 0), (True, 2)])
def test_the_average_of_the_first_round_is_as_declared(declared, averages):
    class Broken(Correct):
        facts = replace(Correct.facts, starts_with_all_reduce=declared)

        def step(self, state, x, grad, lr, net, round):
            for _ in range(averages if round == 0 else 0):
                net.average(grad, round=round)
            super().step(state, x, grad, lr, net, round)

    words = f"its first round asked for {averages} averages over all nodes, but it declares "
    (broken,) = failures(Broken).items()
    assert broken[0] == SENDS
    assert broken[1].endswith(f"{words}starts_with_all_reduce={declared}, which means {int(declared)}")


def test_an_average_in_every_round_is_not_a_message_to_neighbours():
    class Broken(Correct):
        facts = replace(Correct.facts, starts_with_all_reduce=True)
        step = on_gradient(lambda g, net, r: net.average(g, round=r))

    assert "round 1 asked for an average over all nodes" in failures(Broken)[SENDS]


class Growing(ChocoSGD):
    """Loses a little of what it heard, in every round."""

    def step(self, state, x, grad, lr, net, round):
        super().step(state, x, grad, lr, net, round)
        state.gap.mul_(0.99)


class OwnMean(ChocoSGD):
    """Adds up what is left out on one node only."""

    def step(self, state, x, grad, lr, net, round):
        super().step(state, x, grad, lr, net, round)
        x[..., :1, :].add_(0.01)


class TestBrokenCompression:
    """What the kit asks of methods with compressed messages only."""

    def only(self, method):
        found = failures(method)
        return {name: words for name, words in found.items() if name in COMPRESSION}

    def test_another_method_than_the_plain_one(self):
        facts = replace(ChocoSGD.facts, uncompressed="dsgdm")
        ((broken, words),) = self.only(type("Broken", (ChocoSGD,), {"facts": facts})).items()
        assert broken == "equals its plain form"
        assert "with compress='identity' and gamma=1, x after round 1 and that of DSGDm differ by" in words

    def test_receivers_decode_other_numbers(self, monkeypatch):
        monkeypatch.setattr(Compressor, "_registry", dict(Compressor._registry))

        class Halving(Identity):
            name = "halving"

            def decode(self, wire, like):
                return super().decode(wire, like) / 2

        ((broken, words),) = self.only(ChocoSGD(compress="halving", gamma=1.0)).items()
        assert broken == "decodes what was sent"
        assert "with halving, what node 0 sent for round 0 is decoded to other numbers" in words

    def test_running_sums_that_shrink(self):
        found = self.only(Growing)
        assert "what is kept as W h - h after round 0 is off by" in found["keeps running sums"]

    def test_a_mean_that_moves(self):
        assert "the mean of x after round 0 and SGD on the mean gradient differ" in self.only(OwnMean)["keeps means"]


def test_nodes_that_go_on_without_what_must_sum_to_zero():
    class Careless(type(MomentumTracking().initial(torch.ones(1), None))):
        def rejoin(self, x, net, round):
            self.send(x, self.y, net, round)

    class Broken(MomentumTracking):
        def initial(self, x, net):
            return Careless.start(x)

    expected = {
        "rejoins": "after a node has left, the mean correction before round 6 is ",
        "exact after changes": "from the optimum of those that are there",
    }
    assert_fails(Broken, expected)


def test_nodes_that_only_stay_equal():
    class Equal(Correct):
        """All nodes start equal and average their gradients, so they stay equal; one that returns is not."""

        facts = replace(Correct.facts, title="Equal", exact=True, exact_on_schedules=True, preserves_mean=True)

        def step(self, state, x, grad, lr, net, round):
            net.mix(x, round=round).wait()
            x.sub_(lr * net.average(grad, round=round))

    assert "from the optimum of those that are there" in failures(Equal)["exact after changes"]


class TestBrokenContract:
    def test_a_step_raises(self):
        class Broken(Correct):
            def step(self, state, x, grad, lr, net, round):
                raise RuntimeError("not today")

            facts = replace(Correct.facts, exact=True)

        line = Broken.step.__code__.co_firstlineno + 1
        with pytest.raises(ConformanceError) as caught:
            check_method(Broken)
        report = caught.value.report
        assert {row.property: row.sentence for row in report.failures} == {
            "runs": f"on complete of 1, RuntimeError: not today (test_kit.py, line {line})"
        }
        assert {row.property: row.outcome for row in report.rows if row.property != "runs"} == {
            **dict.fromkeys(list(CONTRACT)[1:], "not tried"),
            **dict.fromkeys(PROMISES, "not declared"),
            "exact": "not tried",
        }

    def test_chance_from_elsewhere(self):
        random = type("Random", (Correct,), {"step": on_gradient(lambda g, net, r: g + torch.rand_like(g))})
        assert failures(random)["repeats"] == "on complete of 1, two runs of the same trial differ"

    @pytest.mark.parametrize("call", ["mix", "average", "exchange"])
    def test_initial_communicates(self, call):
        class Broken(Correct):
            def initial(self, x, net):
                if call == "average":
                    net.average(x, round=round)
                else:
                    getattr(net, call)(net.spread(x) if call == "exchange" else x, round=0).wait()
                return State()

        broken = failures(Broken)
        assert next(iter(broken)) == "allocates without communication"
        assert broken["allocates without communication"] == (
            f"on complete of 1, initial() called {call}, but the other nodes may not be there yet"
        )

    def test_a_state_outside_the_state_is_lost(self):
        class Broken(Correct):
            def __init__(self):
                self.u = {}

            def step(self, state, x, grad, lr, net, round):
                who = getattr(net, "id", None)
                self.u[who] = grad + (0.9 * self.u.get(who, 0.0) if round else 0.0)
                super().step(state, x, self.u[who], lr, net, round)

        assert_fails(Broken, {"resumes": "saved and loaded half-way ends elsewhere"})

    def test_a_state_that_is_not_saved_is_lost(self):
        @dataclass
        class Forgetful(State):
            u: torch.Tensor

            def tensors(self):
                return {"u": torch.zeros_like(self.u)}

        class Broken(Correct):
            def initial(self, x, net):
                return Forgetful(torch.zeros_like(x))

            def step(self, state, x, grad, lr, net, round):
                super().step(state, x, state.u.mul_(0.9).add_(grad), lr, net, round)

        assert list(failures(Broken)) == ["resumes"]

    def test_numbers_in_a_state_are_saved_too(self):
        @dataclass
        class Adam(State):
            v: torch.Tensor
            mixed: Pending
            t: int = 0
            decay: float = 1.0

        class Biased(Correct):
            """Divides by a bias correction that counts its own rounds, and mixes in the next round."""

            def initial(self, x, net):
                return Adam(torch.zeros_like(x), Ready(x.clone()))

            def step(self, state, x, grad, lr, net, round):
                state.t, state.decay = state.t + 1, 0.9 * state.decay
                state.v.mul_(0.9).add_(grad, alpha=0.1)
                (mixed,) = state.mixed.wait()
                x.copy_(mixed - lr * state.v / (1 - 0.9**state.t) - lr * state.decay * grad)
                state.mixed = net.mix(x, round=round + 1)

        assert check_method(Biased).failures == ()

        class Forgetful(Biased):
            def initial(self, x, net):
                state = super().initial(x, net)
                state.load = lambda saved: Adam.load(state, {**saved, "t": 0})
                return state

        assert list(failures(Forgetful)) == ["resumes"]

    def test_a_state_in_self_is_named_as_the_cause(self):
        class Broken(Correct):
            u = 0.0

            def step(self, state, x, grad, lr, net, round):
                self.u = grad + 0.9 * self.u
                super().step(state, x, self.u, lr, net, round)

        words = "remembered elsewhere than in a field of the state, such as in self"
        assert_fails(Broken, {"repeats": "", "resumes": words})

    def test_a_state_that_is_none(self):
        @dataclass
        class Plain:
            u: torch.Tensor

        class Broken(Correct):
            def initial(self, x, net):
                return Plain(torch.zeros_like(x))

        words = "initial() gave a Plain, which cannot be saved because it is no gossamer.State"
        assert_fails(Broken, {"resumes": words})


class TestBrokenPromises:
    def test_the_mean_is_not_preserved(self):
        class Broken(Correct):
            facts = replace(Correct.facts, preserves_mean=True)
            step = on_gradient(lambda g, net, r: g.clamp(-0.1, 0.1))

        broken = failures(Broken)
        assert list(broken) == ["preserves_mean"]
        assert "the mean of x after round 0 and SGD on the mean gradient differ by" in broken["preserves_mean"]
        assert "should move as xbar <- xbar - eta ubar with ubar <- 0 ubar + gbar" in broken["preserves_mean"]

    def test_the_momentum_is_not_that_of_sgd(self):
        """With dampening: the same for every node, but not torch.optim.SGD."""

        class Broken(DSGDm):
            def step(self, state, x, grad, lr, net, round):
                super().step(state, x, grad.mul_(1 - self.beta), lr, net, round)

        words = "x after round 0 and torch.optim.SGD differ by"
        assert_fails(Broken, {"preserves_mean": "", "equals_sgd_alone": words})

    def test_nesterov_has_to_be_said(self):
        class Said(Correct):
            facts = replace(Correct.facts, preserves_mean=True, equals_sgd_alone=True)
            beta, nesterov = 0.8, True

            def initial(self, x, net):
                return DSGDm().initial(x, net)

            def step(self, state, x, grad, lr, net, round):
                DSGDm(beta=0.8, nesterov=True).step(state, x, grad, lr, net, round)

        assert check_method(Said).failures == ()
        broken = failures(type("Unsaid", (Said,), {"nesterov": False}))
        assert list(broken) == ["preserves_mean", "equals_sgd_alone"]
        assert "torch.optim.SGD(momentum=0.8, nesterov=False)" in broken["equals_sgd_alone"]
        for sentence in broken.values():
            assert sentence.endswith("the method's momentum (its beta), Nesterov's look-ahead needs nesterov = True")

    def test_nesterov_that_is_said_but_not_done(self):
        broken = failures(type("Boast", (DSGD,), {"beta": 0.9, "nesterov": True}))
        assert "xbar <- xbar - eta (gbar + 0.9 ubar)" in broken["preserves_mean"]
        assert "torch.optim.SGD(momentum=0.9, nesterov=True)" in broken["equals_sgd_alone"]

    @pytest.mark.parametrize(
        ("correct", "words"),
        [
            (lambda state: state.correction() + 1.0, "the mean correction after round 0 is 1.0e+00, not 0"),
            (lambda state: torch.zeros_like(state.signal), "the correction is zero although the nodes differ"),
        ],
    )
    def test_a_correction_that_is_none(self, correct, words):
        class Broken(MomentumTracking):
            facts = replace(MomentumTracking.facts, exact=False, exact_on_schedules=False)

            def correction(self, state):
                return correct(state)

        assert_fails(Broken, {"tracks": words})

    def test_a_message_that_is_waited_for_at_once_does_not_overlap(self):
        class Broken(MomentumTracking):
            facts = replace(MomentumTracking.facts, exact=False, exact_on_schedules=False)

            def step(self, state, x, grad, lr, net, round):
                super().step(state, x, grad, lr, net, round)
                state.mixed = Ready(*state.mixed.wait())

        words = "round 0 waited for the message of round 1 instead of leaving it pending"
        assert_fails(Broken, {"overlaps": words})


class TestThreads:
    @pytest.mark.parametrize("verb", ["mix", "average"])
    def test_a_node_that_fails_is_named_and_nobody_waits_for_it(self, verb):
        class Failing(Correct):
            def step(self, state, x, grad, lr, net, round):
                if round == 2 and net.id == 1:
                    raise ArithmeticError("node 1 cannot go on")
                if verb == "average":
                    x.sub_(net.average(grad, round=round))
                else:
                    super().step(state, x, grad, lr, net, round)

        began = time.monotonic()
        with pytest.raises(ArithmeticError, match="node 1 cannot go on"):
            run_in_threads(Failing(), Trial(topology.ring(4)))
        assert time.monotonic() - began < 10
