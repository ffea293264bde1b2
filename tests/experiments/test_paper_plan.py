"""What is carried out for a recipe: filters, and stand-ins that say so."""

import pytest

from gossamer import GossamerError
from gossamer.data.catalog import CATALOG
from gossamer.experiments.paper import recipes
from gossamer.experiments.paper.recipes import plan


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine without datasets."""
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    if CATALOG["fashion-mnist"].system_folder and CATALOG["fashion-mnist"].system_folder.exists():
        pytest.skip("the system has a package with Fashion-MNIST")


def grid(name="table8", scale="quick"):
    return recipes.read(name, scale)


@pytest.mark.usefixtures("no_data")
class TestMissingData:
    def test_it_is_refused_with_the_remedies(self):
        with pytest.raises(GossamerError) as caught:
            plan(grid("table2"), "quick")
        text = str(caught.value)
        assert text.startswith(
            "Not on this machine: fashion-mnist, svhn, cifar-10. Run gossamer data get fashion-mnist"
        )
        assert "--only" in text
        assert "--scale smoke" in text

    def test_it_does_not_matter_when_nothing_is_trained(self):
        made = plan(grid("table2"), "quick", need_data=False)
        assert made.experiments == grid("table2").experiments
        assert made.notes == []
        assert made.stand_ins == ""

    def test_digits_stand_in_and_a_note_says_so(self):
        made = plan(grid("table2", "smoke"), "smoke")
        assert {(e.dataset, e.model_name, e.batch_size, e.lr) for e in made.experiments} == {
            ("digits", "small-cnn", 32, 0.02)
        }
        assert len(made.planned) == 18
        assert len(made.experiments) == 6
        assert [p.asked for p in made.planned] == grid("table2", "smoke").experiments
        assert made.stand_ins.startswith("digits in place of fashion-mnist, svhn, cifar-10")
        assert len(made.notes) == 1
        assert made.notes[0].startswith("Not on this machine: fashion-mnist, svhn, cifar-10 ")
        assert "digits" in made.notes[0]

    def test_step_sizes_that_were_asked_for_are_kept(self):
        made = plan(recipes.read("table8", "smoke", lrs=[0.1, 0.2]), "smoke", keep_lr=True)
        assert {e.lr for e in made.experiments} == {0.1, 0.2}

    @pytest.mark.parametrize("name", [n for n in recipes.names() if n != recipes.SYNTHETIC])
    def test_every_stand_in_can_be_divided_among_its_nodes(self, name):
        from gossamer.experiments.training import prepare

        made = plan(grid(name, "smoke"), "smoke")
        for experiment in {e.partition: e for e in made.experiments}.values():
            experiment.check()
            nodes, graph = prepare(experiment)
            assert nodes.nodes == graph.n == experiment.nodes


class TestDeepModels:
    def test_lenet_stands_in_where_the_data_is_here(self, monkeypatch):
        monkeypatch.setattr("gossamer.experiments.paper.recipes.missing_datasets", lambda *_: [])
        made = plan(grid("table3", "smoke"), "smoke")
        assert {(e.dataset, e.model_name) for e in made.experiments} == {("cifar-10", "lenet")}
        assert made.stand_ins == "lenet in place of vgg-11, resnet-34"
        assert made.notes[0].startswith("resnet-34 and vgg-11 would take minutes")

    def test_nothing_stands_in_for_lenet_or_at_other_scales(self, monkeypatch):
        monkeypatch.setattr("gossamer.experiments.paper.recipes.missing_datasets", lambda *_: [])
        for name, scale in (("table8", "smoke"), ("table3", "quick")):
            made = plan(grid(name, scale), scale)
            assert made.experiments == grid(name, scale).experiments
            assert made.notes == []
