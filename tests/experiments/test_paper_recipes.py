"""The recipes hold the paper's settings at full scale, smaller ones otherwise; stand-ins replace what is missing."""

from collections import Counter
from functools import cache

import pytest

from gossamer import GossamerError
from gossamer.data.catalog import CATALOG
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.paper import recipes
from gossamer.experiments.paper.published import cells
from gossamer.experiments.paper.verdict import published
from gossamer.experiments.training import prepare

GRIDS = [name for name in recipes.names() if name != recipes.SYNTHETIC]
TABLES = [name for name in GRIDS if name.startswith("table")]

LENET = {"model_name": "lenet", "epochs": 500.0, "schedule": "constant", "augment": "usual", "evaluations": 50}
DEEP = {"augment": "erasing"}
VGG = {**DEEP, "model_name": "vgg-11", "epochs": 1000.0, "schedule": "step:at_epochs=500/750,factor=0.1"}
RESNET = {**DEEP, "model_name": "resnet-34", "epochs": 750.0, "schedule": "step:at_epochs=375/563,factor=0.1"}
ALWAYS = {"batch_size": 100, "weight_decay": 0.001, "nodes": 8, "rounds": 0, "clip": 0.0, "warm_up": 0.0,
          "weights": "metropolis", "node_weight": "equal"}  # fmt: skip
LENET_LRS = {0.005, 0.001, 0.0005}
DEEP_LRS = {0.5, 0.1, 0.05, 0.01, 0.005}
SIX = {"dsgd", "gradient-tracking", "dsgdm", "qg-dsgdm", "decentlam", "momentum-tracking"}


@cache
def experiments_of(name: str, scale: str = "full") -> list[Experiment]:
    return recipes.read(name, scale).experiments


def column(experiments, key):
    return {getattr(e, key) for e in experiments}


def test_there_is_one_recipe_for_every_table_and_figure():
    assert recipes.names() == [f"table{n}" for n in range(2, 9)] + [f"figure{n}" for n in range(1, 8)] + ["synthetic"]


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("table2", (648, 72, 18)),
        ("table3", (540, 36, 12)),
        ("table4", (216, 24, 12)),
        ("table5", (90, 6, 3)),
        ("table6", (216, 24, 6)),
        ("table7", (240, 16, 8)),
        ("table8", (54, 6, 3)),
        ("figure1", (648, 72, 18)),
        ("figure2", (180, 12, 12)),
        ("figure3", (216, 24, 6)),
        ("figure4", (216, 24, 6)),
        ("figure5", (216, 24, 6)),
        ("figure6", (270, 18, 6)),
        ("figure7", (270, 18, 6)),
    ],
)
def test_the_number_of_runs_at_each_scale(name, runs):
    assert tuple(len(experiments_of(name, scale)) for scale in recipes.SCALES) == runs
    assert tuple(recipes.count(name, scale) for scale in recipes.SCALES) == runs


@pytest.mark.parametrize("name", GRIDS)
def test_full_is_the_papers_setting(name):
    experiments = experiments_of(name)
    for e in experiments:
        usual = {"lenet": LENET, "vgg-11": VGG, "resnet-34": RESNET}[e.model_name]
        assert {key: getattr(e, key) for key in {**ALWAYS, **usual}} == {**ALWAYS, **usual}
        assert e.epochs / e.evaluations == 10
    for model in column(experiments, "model_name"):
        wanted = LENET_LRS if model == "lenet" else DEEP_LRS
        assert {e.lr for e in experiments if e.model_name == model} == wanted
    assert column(experiments, "seed") == {0, 1, 2}
    assert set(Counter(e.cell for e in experiments).values()) == {3 * len(column(experiments, "lr"))}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("table2", {"dataset": {"fashion-mnist", "svhn", "cifar-10"}, "k": {10, 8, 6, 4}, "topology": {"ring"}}),
        ("table3", {"dataset": {"cifar-10"}, "model": {"vgg-11", "resnet-34"}, "k": {10, 4, 2}, "topology": {"ring"}}),
        ("table4", {"dataset": {"cifar-10"}, "k": {10, 4}, "topology": {"hypercube", "exponential"}}),
        ("table6", {"dataset": {"fashion-mnist", "svhn", "cifar-10"}, "k": {10, 8, 6, 4}, "topology": {"ring"}}),
        ("table7", {"dataset": {"cifar-10"}, "model": {"vgg-11"}, "k": {10, 2}, "topology": {"ring", "chain"}}),
        ("table8", {"dataset": {"cifar-10"}, "k": {10, 4}, "topology": {"ring"}}),
    ],
)
def test_the_axes(name, wanted):
    experiments = experiments_of(name)
    wanted = {**wanted, "partition": {f"k-class:k={k},draw=paper" for k in wanted["k"]}}
    del wanted["k"]
    assert {key: column(experiments, key) for key in wanted} == wanted


def test_the_methods():
    methods = {name: column(experiments_of(name, "quick"), "method") for name in GRIDS}
    assert methods.pop("table5") == {"qg-dsgdm", "decentlam", "momentum-tracking"}
    assert methods.pop("table6") == {"momentum-tracking", "momentum-tracking:init=zero"}
    assert methods.pop("table7") == SIX | {"relaysum", "relaysum-m"}
    assert methods.pop("table8") == {"momentum-tracking", "abm", "gtadam"}
    assert set(map(frozenset, methods.values())) == {frozenset(SIX)}


def test_dirichlet_nodes_hold_at_least_a_batch():
    partitions = column(experiments_of("table5"), "partition")
    assert partitions == {"dirichlet:alpha=10,min_size=100", "dirichlet:alpha=0.1,min_size=100"}


def test_relaysum_has_the_chain_and_the_others_the_ring():
    for scale in recipes.SCALES:
        for e in experiments_of("table7", scale):
            assert e.topology == ("chain" if e.method.startswith("relaysum") else "ring")


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scale", recipes.SCALES)
def test_every_experiment_of_a_table_has_a_published_accuracy(name, scale):
    table = recipes.about(name).table
    assert name == f"table{table}"
    found = {published(table, e) for e in experiments_of(name, scale)}
    assert None not in found
    if scale != "smoke":
        assert len(found) == len(cells(table=table))


@pytest.mark.parametrize("name", GRIDS)
def test_panels_tell_published_accuracies_of_one_method_apart(name):
    recipe = recipes.about(name)
    places = Counter()
    for e in {e.cell: e for e in experiments_of(name, "quick")}.values():
        places[e.method, *(e.model_name if key == "model" else getattr(e, key) for key in recipe.panels)] += 1
    assert set(places.values()) == {1}
    assert not recipe.average or recipe.average in recipe.panels


@pytest.mark.parametrize(
    ("figure", "table"),
    [("figure1", "table2"), ("figure2", "table3"), *((f"figure{n}", "table2") for n in (3, 4, 5)),
     ("figure6", "table3"), ("figure7", "table3")],
)  # fmt: skip
@pytest.mark.parametrize("scale", ["full", "quick"])
def test_figures_are_made_of_the_runs_of_tables(figure, table, scale):
    ids = {e.id for e in experiments_of(table, scale)}
    assert {e.id for e in experiments_of(figure, scale)} <= ids


@pytest.mark.parametrize("lr", [0.005, 0.001])
@pytest.mark.parametrize("dataset", ["fashion-mnist", "cifar-10"])
def test_quick_runs_of_lenet_are_those_of_the_defaults(lr, dataset):
    setting = {"dataset": dataset, "partition": "k-class:k=4,draw=paper", "epochs": 20, "evaluations": 10}
    wanted = Experiment(**setting, method="momentum-tracking", lr=lr, seed=0)
    assert wanted.id in {e.id for e in recipes.read("table2", "quick", lrs=[0.005, 0.001]).experiments}
    assert (wanted.id in {e.id for e in experiments_of("table2", "quick")}) == (lr == 0.005)


@pytest.mark.parametrize("name", GRIDS)
def test_quick_has_one_step_size_one_seed_and_decays_at_the_same_fractions(name):
    experiments = experiments_of(name, "quick")
    assert len(column(experiments, "lr")) == len(column(experiments, "seed")) == 1
    assert column(experiments, "epochs") == {20.0}
    schedules = column(experiments, "schedule")
    deep = column(experiments, "model_name") != {"lenet"}
    assert schedules == ({"step:at_epochs=10/15,factor=0.1"} if deep else {"constant"})


def test_step_sizes_and_seeds_can_be_replaced():
    grid = recipes.read("table8", "quick", lrs=[0.01, 0.02], seeds=[3, 4, 5])
    assert column(grid.experiments, "lr") == {0.01, 0.02}
    assert column(grid.experiments, "seed") == {3, 4, 5}
    assert len(grid.experiments) == 36


def test_the_synthetic_recipe_is_the_papers_and_smaller_scales_are_shorter():
    full = recipes.settings("synthetic")
    assert {k: v for k, v in full.items() if k not in ("title", "description")} == {
        "nodes": 25, "dim": 50, "lr": 1e-4, "beta": 0.9, "sigma2": 1.0, "zeta2": [0, 25, 50], "topology": "ring",
        "rounds": 20_000, "seed": 0,
    }  # fmt: skip
    assert recipes.settings("synthetic", "quick") == {**full, "rounds": 2_000}
    assert recipes.settings("synthetic", "smoke") == {**full, "rounds": 200}


@pytest.mark.parametrize(
    ("name", "scale", "words"),
    [("tabel2", "full", "did you mean 'table2'"), ("table2", "fast", "There is no scale 'fast'")],
)
def test_unknown_names_get_a_sentence(name, scale, words):
    with pytest.raises(GossamerError) as caught:
        recipes.read(name, scale)
    assert words in str(caught.value)


def test_the_count_knows_overrides(monkeypatch):
    values = {"method": ["dsgd", "dsgdm"], "override": [{"when": {"method": "dsgd"}, "set": {"lr": [0.1, 0.2, 0.3]}}]}
    monkeypatch.setattr(recipes, "_values", lambda name: values)
    assert recipes.count("table8") == len(recipes.read("table8").experiments) == 4


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine without datasets."""
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    if CATALOG["fashion-mnist"].system_folder and CATALOG["fashion-mnist"].system_folder.exists():
        pytest.skip("the system has a package with Fashion-MNIST")


@pytest.mark.usefixtures("no_data")
class TestMissingData:
    def test_it_is_refused_with_the_remedies(self):
        with pytest.raises(GossamerError) as caught:
            recipes.plan(recipes.read("table2", "quick"), "quick")
        text = str(caught.value)
        assert text.startswith(
            "Not on this machine: fashion-mnist, svhn, cifar-10. Run gossamer data get fashion-mnist"
        )
        assert "--only" in text
        assert "--scale smoke" in text

    def test_it_does_not_matter_when_nothing_is_trained(self):
        made = recipes.plan(recipes.read("table2", "quick"), "quick", need_data=False)
        assert made.experiments == recipes.read("table2", "quick").experiments
        assert made.notes == []
        assert made.stand_ins == ""

    def test_digits_stand_in_and_a_note_says_so(self):
        made = recipes.plan(recipes.read("table2", "smoke"), "smoke")
        assert {(e.dataset, e.model_name, e.batch_size, e.lr) for e in made.experiments} == {
            ("digits", "small-cnn", 32, 0.02)
        }
        assert len(made.planned) == 18
        assert len(made.experiments) == 6
        assert [p.asked for p in made.planned] == recipes.read("table2", "smoke").experiments
        assert made.stand_ins.startswith("digits in place of fashion-mnist, svhn, cifar-10")
        assert len(made.notes) == 1
        assert made.notes[0].startswith("Not on this machine: fashion-mnist, svhn, cifar-10 ")
        assert "digits" in made.notes[0]

    def test_step_sizes_that_were_asked_for_are_kept(self):
        made = recipes.plan(recipes.read("table8", "smoke", lrs=[0.1, 0.2]), "smoke", keep_lr=True)
        assert {e.lr for e in made.experiments} == {0.1, 0.2}

    @pytest.mark.parametrize("name", GRIDS)
    def test_every_stand_in_can_be_divided_among_its_nodes(self, name):
        made = recipes.plan(recipes.read(name, "smoke"), "smoke")
        for experiment in {e.partition: e for e in made.experiments}.values():
            experiment.check()
            nodes, graph = prepare(experiment)
            assert nodes.nodes == graph.n == experiment.nodes


class TestDeepModels:
    def test_lenet_stands_in_where_the_data_is_here(self, monkeypatch):
        monkeypatch.setattr("gossamer.experiments.paper.recipes.missing_datasets", lambda *_: [])
        made = recipes.plan(recipes.read("table3", "smoke"), "smoke")
        assert {(e.dataset, e.model_name) for e in made.experiments} == {("cifar-10", "lenet")}
        assert made.stand_ins == "lenet in place of vgg-11, resnet-34"
        assert made.notes[0].startswith("resnet-34 and vgg-11 would take minutes")

    def test_nothing_stands_in_for_lenet_or_at_other_scales(self, monkeypatch):
        monkeypatch.setattr("gossamer.experiments.paper.recipes.missing_datasets", lambda *_: [])
        for name, scale in (("table8", "smoke"), ("table3", "quick")):
            made = recipes.plan(recipes.read(name, scale), scale)
            assert made.experiments == recipes.read(name, scale).experiments
            assert made.notes == []
