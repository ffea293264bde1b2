"""The contract of methods: the registry, hyper-parameters, states, declared facts and needs."""

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError, methods, topology
from gossamer.methods import BUILT_IN, Facts, Method, Needs, State
from gossamer.network import Ready, SimulatedNetwork

pytestmark = pytest.mark.usefixtures("_own_methods")
SLOW = " ".join(methods.FOR_SLOW_LINKS)
EXACT = "edm led k-gt beer motef"
EVEN = {"ring": topology.ring(8), "hypercube": topology.hypercube(8)}
SCHEDULES = {"one-peer": topology.one_peer_exponential(8), "matchings": topology.random_matchings(8, period=8, seed=0)}


def own_method(name="my-own", module="notebook", qualname="MyOwn", **attributes):
    """A user's method as if it had been typed in the module `module`."""

    def step(self, state, x, grad, lr, net, round):
        x.sub_(grad, alpha=lr)

    body = {"name": name, "facts": Facts(title="My own", sends=0), "step": step}
    return type(qualname, (Method,), body | {"__module__": module, "__qualname__": qualname} | attributes)


def test_notebooks_show_the_facts_of_a_method():
    shown = methods.find("momentum-tracking").facts._repr_html_()
    assert "<table><caption>Momentum Tracking: " in shown
    assert "<td>sends over an edge in a round</td><td>2 vectors</td>" in shown
    assert "<td>tracks</td>" in shown
    assert "&lt;i&gt;" in Facts(title="<i>")._repr_html_()


class TestRegistry:
    def test_every_built_in_is_registered_and_nothing_else(self):
        ours = [name for name in methods.names() if methods.find(name).__module__.startswith("gossamer.")]
        assert sorted(ours) == sorted(BUILT_IN)
        assert len(set(BUILT_IN)) == len(BUILT_IN)

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_get_makes_the_class_that_find_finds(self, name):
        cls = methods.find(name)
        assert type(methods.get(name)) is cls
        assert cls.name == name

    @pytest.mark.parametrize("spelling", ["Momentum Tracking", "MOMENTUM_TRACKING", " momentum-tracking "])
    def test_case_blanks_and_underscores_do_not_matter(self, spelling):
        assert methods.find(spelling) is methods.MomentumTracking

    def test_hyperparameters_are_passed_on(self):
        method = methods.get("momentum-tracking", beta=0.5, init="zero")
        assert method.hyperparameters == {"beta": 0.5, "init": "zero"}
        assert method.momentum == 0.5
        assert repr(method) == "MomentumTracking(beta=0.5, init='zero')"

    def test_momentum_is_zero_where_there_is_none(self):
        assert methods.get("dsgd").momentum == methods.get("gradient-tracking").momentum == 0.0
        assert methods.get("dsgd").hyperparameters == {}
        assert methods.get("gradient-tracking").hyperparameters == {"init": "theorem"}

    @pytest.mark.parametrize("name", ["my-own", "My_Own Method"])
    def test_a_subclass_is_found_by_its_name(self, name):
        cls = own_method(name)
        assert methods.find(name) is cls
        assert isinstance(methods.get(name), cls)
        assert methods.names()[-1] == name.lower().replace("_", "-").replace(" ", "-")

    def test_a_plain_class_shows_its_attributes_as_hyperparameters(self):
        def init(self, rate=2):
            self.rate = rate

        own_method(__init__=init)
        assert methods.get("my-own", rate=3).hyperparameters == {"rate": 3}
        assert repr(methods.get("my-own", rate=3)) == "MyOwn(rate=3)"

    def test_hyperparameters_that_are_missing_or_unknown_get_a_sentence(self):
        def init(self, rate):
            self.rate = rate

        own_method(__init__=init)
        with pytest.raises(GossamerError, match=r"My own cannot be made: missing .*'rate'; .* as in my-own:key=value"):
            methods.get("my-own")
        with pytest.raises(GossamerError, match=r"My own cannot be made: .*'speed'"):
            methods.get("my-own", speed=1, rate=2)

    def test_a_subclass_without_a_name_of_its_own_is_not_registered(self):
        before = methods.names()

        class Faster(methods.DSGDm):
            pass

        assert methods.names() == before
        assert methods.find("dsgdm") is methods.DSGDm

    def test_a_class_may_be_defined_again_as_in_a_notebook(self):
        first, second = own_method(), own_method()
        assert first is not second
        assert methods.find("my-own") is second

    def test_a_slotted_dataclass_may_be_registered(self):
        @dataclass(slots=True)
        class Slotted(Method):
            name = "slotted"
            facts = Facts(title="Slotted")
            rate: float = 1.0

            def step(self, state, x, grad, lr, net, round):
                x.sub_(grad, alpha=lr * self.rate)

        assert methods.get("slotted", rate=0.5).rate == 0.5

    @pytest.mark.parametrize("name", ["dsgd", "DSGD"])
    def test_a_name_that_is_taken_is_refused(self, name):
        with pytest.raises(GossamerError, match=r"'DSGD' is taken by gossamer.methods.dsgd.DSGD; give MyOwn another"):
            own_method("DSGD")
        assert methods.find(name) is methods.DSGD

    def test_a_method_without_facts_is_refused(self):
        with pytest.raises(GossamerError, match="'bare' declares no facts; give the class Bare a line such as facts"):
            type("Bare", (Method,), {"name": "bare"})

    def test_fields_of_a_class_that_is_no_dataclass_are_refused_where_it_is_looked_up(self):
        own_method("lost", __annotations__={"beta": float}, beta=0.9)
        with pytest.raises(GossamerError, match=r"MyOwn annotates 'beta' but is no dataclass.*write @dataclass\("):
            methods.get("lost")
        own_method("shared", __annotations__={"table": ClassVar[dict], "notes": "ClassVar[list]"}, table={}, notes=[])
        assert methods.get("shared").hyperparameters == {}
        own_init = lambda self, beta=0.5: vars(self).update(beta=beta)  # noqa: E731
        own_method("made", __annotations__={"beta": float}, __init__=own_init)
        assert methods.get("made", beta=0.25).beta == 0.25

    def test_a_method_without_a_step_cannot_be_made(self):
        cls = type("Stepless", (Method,), {"name": "stepless", "facts": Facts(title="Stepless")})
        with pytest.raises(TypeError, match="abstract"):
            cls()

    @pytest.mark.parametrize(
        ("name", "values", "sentence"),
        [
            ("momentum-trackin", {}, r"no method 'momentum-trackin'; did you mean 'momentum-tracking'\? Known: abm, "),
            ("dsdg", {}, r"no method 'dsdg'; did you mean 'dsgd'\? Known: abm, "),
            ("relay-sum", {}, r"no method 'relay-sum'; did you mean 'relaysum'\? Known: abm, "),
            ("gt_adam", {}, r"no method 'gt_adam'; did you mean 'gtadam'\? Known: abm, "),
            ("xyzzy", {}, r"There is no method 'xyzzy'\. Known: abm, all-reduce-sgdm"),
            (
                "momentum-tracking",
                {"betta": 0.5},
                r"no hyper-parameter of Momentum Tracking 'betta'; did you mean 'beta'\? Known: beta, init\.",
            ),
            ("gradient-tracking", {"beta": 0.5}, r"no hyper-parameter of Gradient Tracking 'beta'\. Known: init"),
            ("dsgd", {"beta": 0.9}, "DSGD takes no hyper-parameters, so 'beta' means nothing to it"),
        ],
    )
    def test_an_unknown_name_or_hyperparameter_gets_the_nearest_or_the_list(self, name, values, sentence):
        with pytest.raises(GossamerError, match=sentence):
            methods.get(name, **values)


WITH_BETA = [m for m in BUILT_IN if "beta" in methods.get(m).hyperparameters]


class TestHyperparameters:
    def test_these_have_a_beta(self):
        assert " ".join(WITH_BETA) == (
            "dsgdm qg-dsgdm decentlam momentum-tracking abm relaysum-m all-reduce-sgdm edm led k-gt choco-sgdm motef"
        )

    @pytest.mark.parametrize(
        ("beta", "shown"),
        [(1, "1"), (1.0, "1"), (-0.1, "-0.1"), (2.5, "2.5"), (float("nan"), "nan"), (torch.tensor([0.5, 1.0]), "1"),
         (torch.tensor([-0.5, 0.5]), "-0.5"), (torch.tensor([0.5, float("nan")]), "nan")],
    )  # fmt: skip
    @pytest.mark.parametrize("name", WITH_BETA)
    def test_beta_lies_in_zero_to_one(self, name, beta, shown):
        title = methods.find(name).facts.title
        with pytest.raises(GossamerError, match=f"{title} needs 0 <= beta < 1, but beta is {shown}: .*0.9 is usual"):
            methods.get(name, beta=beta)

    @pytest.mark.parametrize("beta", ["x", None, True, [0.9]])
    @pytest.mark.parametrize("name", WITH_BETA)
    def test_beta_is_a_number(self, name, beta):
        with pytest.raises(GossamerError, match="needs a number for beta, but beta is "):
            methods.get(name, beta=beta)

    @pytest.mark.parametrize("beta", [0, 0.0, 0.999, torch.tensor([0.0, 0.9])])
    @pytest.mark.parametrize("name", WITH_BETA)
    def test_all_of_the_interval_is_accepted(self, name, beta):
        assert methods.get(name, beta=beta).momentum is beta

    @pytest.mark.parametrize(
        ("name", "values", "sentence"),
        [
            ("qg-dsgdm", {"mu": 1.0}, "QG-DSGDm needs 0 <= mu < 1, but mu is 1"),
            ("qg-dsgdm", {"mu": "half"}, "QG-DSGDm needs a number for mu, but mu is 'half'"),
            ("dsgdm", {"nesterov": "false"}, "DSGDm needs True or False for nesterov, but nesterov is 'false'"),
            ("relaysum-m", {"nesterov": 1}, "RelaySumM needs True or False for nesterov, but nesterov is 1"),
            ("all-reduce-sgdm", {"nesterov": None}, "All-reduce SGDm needs True or False for nesterov"),
            ("gtadam", {"b1": 1.0}, "GTAdam needs 0 <= b1 < 1, but b1 is 1"),
            ("gtadam", {"b2": -1.0}, "GTAdam needs 0 <= b2 < 1, but b2 is -1"),
            ("gtadam", {"eps": 0.0}, "GTAdam needs eps > 0, but eps is 0; leave it out"),
            ("gtadam", {"eps": torch.tensor([1e-8, -1.0])}, "GTAdam needs eps > 0, but eps is -1"),
            ("gtadam", {"eps": float("nan")}, "GTAdam needs eps > 0, but eps is nan"),
            ("gtadam", {"eps": "small"}, "GTAdam needs a number for eps, but eps is 'small'"),
            ("gtadam", {"gmax": -2.0}, "GTAdam needs gmax > 0, but gmax is -2"),
            ("momentum-tracking", {"init": "one"}, "Momentum Tracking knows init='theorem' and 'zero', but init is "),
            ("gradient-tracking", {"init": None}, "Gradient Tracking knows init='theorem' and 'zero', but init is No"),
            ("relaysum", {"fill": "none"}, "RelaySum knows fill='arrived' and 'own', but fill is 'none'"),
            ("relaysum-m", {"fill": ""}, "RelaySumM knows fill='arrived' and 'own', but fill is ''"),
        ],
    )
    def test_every_mistake_has_its_sentence(self, name, values, sentence):
        with pytest.raises(GossamerError) as caught:
            methods.get(name, **values)
        assert str(caught.value).startswith(sentence)

    def test_a_method_cannot_be_changed_after_it_was_checked(self):
        with pytest.raises(AttributeError):
            methods.get("dsgdm").beta = 1.0


@dataclass
class Kept(State):
    u: torch.Tensor
    count: int
    mixed: Ready


def kept(value=0.0, count=0, n=3):
    return Kept(torch.full((n, 2), value), count, Ready(torch.full((n, 2), value + 1), torch.full((n, 2), value + 2)))


class TestState:
    def test_tensors_waits_for_messages(self):
        saved = kept(5.0, 7).tensors()
        assert list(saved) == ["u", "count", "mixed"]
        assert saved["count"] == 7
        assert [float(t[0, 0]) for t in (saved["u"], *saved["mixed"])] == [5.0, 6.0, 7.0]

    def test_load_copies_into_the_tensors_that_are_there(self):
        state = kept()
        places = [t.data_ptr() for t in (state.u, *state.mixed.wait())]
        saved = kept(5.0, 7).tensors()
        state.load(saved)
        now = (state.u, *state.mixed.wait())
        assert [t.data_ptr() for t in now] == places
        assert [float(t[0, 0]) for t in now] == [5.0, 6.0, 7.0]
        assert state.count == 7
        saved["u"].zero_()
        assert float(state.u[0, 0]) == 5.0

    def test_an_empty_state_is_saved_and_loaded(self):
        state = State()
        assert state.tensors() == {}
        state.load({})

    def test_the_state_of_another_method_is_refused(self):
        with pytest.raises(GossamerError, match=r"holds \['m'\], but this method keeps \['count', 'mixed', 'u'\]; it"):
            kept().load({"m": torch.ones(3, 2)})
        with pytest.raises(GossamerError, match="saved by another method"):
            State().load(kept().tensors())

    def test_a_state_of_other_nodes_is_refused_as_a_whole(self):
        state = kept()
        with pytest.raises(GossamerError, match=r"'u' has the shape \(1, 2\), but this run needs \(3, 2\)"):
            state.load(kept(5.0, n=1).tensors())
        with pytest.raises(GossamerError, match=r"'mixed' has the shape \[\(3, 2\)\], but this run needs \[\(3, 2\), "):
            state.load(kept(5.0).tensors() | {"mixed": (torch.ones(3, 2),)})
        with pytest.raises(GossamerError, match=r"'count' has the shape \(2,\), but this run needs None"):
            state.load(kept(5.0).tensors() | {"count": torch.ones(2)})
        assert float(state.u.abs().max()) == 0.0

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_every_method_starts_with_its_own_finite_numbers(self, name):
        method = methods.get(name)
        x = torch.ones(4, 3, dtype=torch.float64)
        state = method.initial(x, SimulatedNetwork(topology.chain(4), dtype=torch.float64))
        assert torch.equal(x, torch.ones(4, 3, dtype=torch.float64))
        saved = state.tensors()
        assert set(saved) == {f.name for f in fields(state)}
        for value in saved.values():
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, int):  # counts steps
                    assert tensor == 0
                    continue
                assert tensor.dtype == torch.float64
                assert tensor.data_ptr() != x.data_ptr() or tensor.numel() == 0


class TestFacts:
    @pytest.mark.parametrize("name", BUILT_IN)
    def test_every_method_has_a_title_and_a_source(self, name):
        facts = methods.find(name).facts
        assert facts.title
        assert facts.citation
        assert facts.citation[-4:].isdigit()
        assert methods.find(name).__doc__

    def test_titles_are_distinct(self):
        assert len({methods.find(name).facts.title for name in BUILT_IN}) == len(BUILT_IN)

    def test_vectors_sent_are_those_of_the_reference(self):
        two = ["gradient-tracking", "momentum-tracking", "abm", "gtadam", "k-gt", "beer", "motef"]
        for name in BUILT_IN:
            expected = "all-reduce" if name == "all-reduce-sgdm" else 2 if name in two else 1
            assert methods.find(name).facts.sends == expected

    @pytest.mark.parametrize(
        ("promise", "who"),
        [
            ("exact", f"gradient-tracking momentum-tracking abm d2 relaysum relaysum-m all-reduce-sgdm {EXACT}"),
            ("exact_on_schedules", "gradient-tracking momentum-tracking all-reduce-sgdm k-gt"),
            ("preserves_mean", f"dsgd dsgdm decentlam gradient-tracking momentum-tracking d2 all-reduce-sgdm {SLOW}"),
            ("equals_sgd_alone", f"dsgd dsgdm decentlam gradient-tracking momentum-tracking d2 all-reduce-sgdm {SLOW}"),
            ("tracks", "gradient-tracking momentum-tracking abm gtadam led k-gt beer motef"),
            ("overlaps", "gradient-tracking momentum-tracking abm gtadam beer motef"),
        ],
    )
    def test_promises_are_those_of_the_reference(self, promise, who):
        assert [name for name in BUILT_IN if getattr(methods.find(name).facts, promise)] == who.split()

    @pytest.mark.parametrize(
        ("sends", "words"), [(0, "0 vectors"), (1, "1 vector"), (2, "2 vectors"), ("all-reduce", "one all-reduce")]
    )
    def test_the_cost_in_words(self, sends, words):
        assert Facts(title="T", sends=sends).cost == words

    def test_the_cost_of_silence_and_compression_in_words(self):
        assert methods.get("k-gt:every=20").facts.cost == "2 vectors every 20 rounds"
        assert methods.get("led:every=1").facts.cost == "1 vector"
        assert methods.get("motef").facts.cost == "2 compressed vectors"

    @pytest.mark.parametrize(
        ("needs", "words"),
        [
            (Needs(), "any doubly stochastic schedule"),
            (Needs(static=True), "static graph"),
            (Needs(static=True, tree=True), "static tree"),
            (Needs(symmetric=True), "symmetric weights"),
            (methods.D2.facts.needs, "static graph, symmetric weights, smallest eigenvalue above -1/3"),
        ],
    )
    def test_needs_in_words(self, needs, words):
        assert str(needs) == words


class TestNeeds:
    @pytest.mark.parametrize("name", ["relaysum", "relaysum-m"])
    @pytest.mark.parametrize("where", [topology.ring(5), topology.complete(3), topology.hypercube(8)], ids=repr)
    def test_relaysum_needs_a_tree_and_says_which_there_are(self, name, where):
        method = methods.get(name)
        with pytest.raises(
            GossamerError,
            match=rf"{method.facts.title} needs a tree, because .* but '{where.name}' has a cycle; "
            r"use chain, star or balanced-tree\.",
        ):
            method.check(where)
        for remedy in ("chain", "star", "balanced-tree"):
            method.check(topology.get(remedy, where.n))

    @pytest.mark.parametrize("name", ["relaysum", "relaysum-m"])
    def test_relaysum_accepts_one_and_two_nodes(self, name):
        methods.get(name).check(topology.complete(1))
        methods.get(name).check(topology.ring(2))

    @pytest.mark.parametrize("where", EVEN.values(), ids=EVEN.keys())
    def test_d2_needs_a_spectrum_above_a_third_and_lazy_weights_give_it(self, where):
        with pytest.raises(
            GossamerError,
            match=rf"D\^2 needs every eigenvalue of the mixing matrix above -1/3, or it diverges, but the smallest of "
            rf"'{where.name}' is -0\.\d+; use lazy weights \(I \+ W\)/2: weights='lazy', or topology\.lazy\(\)",
        ):
            methods.D2().check(where)
        methods.D2().check(where.lazy())
        methods.D2().check(topology.get(where.name, where.n, weights="lazy"))

    def test_d2_accepts_odd_rings_as_they_are(self):
        methods.D2().check(topology.ring(25))

    def test_d2_needs_symmetric_weights(self):
        directed = topology.one_peer_exponential(3)
        turning = topology.Topology("turning", directed.mixings[:1])
        assert turning.is_static
        with pytest.raises(GossamerError, match=r"D\^2 needs symmetric weights, but in those of 'turning' some W_ij"):
            methods.D2().check(turning)

    @pytest.mark.parametrize("where", SCHEDULES.values(), ids=SCHEDULES.keys())
    @pytest.mark.parametrize("name", ["decentlam", "abm", "d2", "relaysum", "relaysum-m"])
    def test_methods_that_need_a_static_graph_refuse_schedules(self, name, where):
        method = methods.get(name)
        with pytest.raises(GossamerError) as caught:
            method.check(where)
        sentence = str(caught.value)
        assert sentence.startswith(f"{method.facts.title} needs a graph that stays the same, because it diverges")
        assert f"'{where.name}' changes from round to round; use a static graph such as ring, or" in sentence
        methods.get("momentum-tracking").check(where)

    @pytest.mark.parametrize("where", [*EVEN.values(), *SCHEDULES.values()], ids=[*EVEN, *SCHEDULES])
    @pytest.mark.parametrize("name", [m for m in BUILT_IN if methods.find(m).facts.needs == Needs()])
    def test_the_others_accept_everything(self, name, where):
        methods.get(name).check(where)


@pytest.mark.parametrize("name", [m for m in BUILT_IN if not methods.find(m).facts.tracks])
def test_methods_that_do_not_track_have_no_correction_to_show(name):
    method = methods.get(name)
    with pytest.raises(GossamerError, match="keeps no correction term: it does not track an average"):
        method.correction(State())


class TestResolve:
    def test_an_instance_a_class_or_a_name(self):
        method = methods.DSGDm(beta=0.5)
        assert methods.resolve(method) is method
        assert isinstance(methods.resolve(methods.DSGD), methods.DSGD)
        assert methods.resolve("dsgdm:beta=0.5").hyperparameters == method.hyperparameters

    def test_anything_else_is_refused(self):
        with pytest.raises(GossamerError, match="a name such as 'momentum-tracking', not 3"):
            methods.resolve(3)

        class Demanding(methods.DSGD):
            def __init__(self, rate):
                self.rate = rate

        with pytest.raises(GossamerError, match="Demanding cannot be made without arguments"):
            methods.resolve(Demanding)


def test_the_simulator_measures_what_a_method_says_it_tracks():
    class Own(methods.DSGD):
        def tracked(self, state):
            return torch.arange(4.0)[:, None].expand(4, 3)

    nodes = gossamer.data.load("digits").split(gossamer.partition.iid(nodes=4, seed=0))
    options = {"lr": 0.1, "batch_size": 8, "rounds": 1, "progress": False}
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())  # needs no kernels
    runs = [gossamer.simulate(model, nodes, m, "ring", **options) for m in (Own(), methods.DSGD())]
    assert [run.history.last["tracking_error"] for run in runs] == [3 * 1.25, None]
