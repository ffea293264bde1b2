import copy

import numpy as np
import pytest
import torch
from torch import nn

from gossamer.engine.node_models import Layout, NodeModels
from gossamer.errors import GossamerError
from gossamer.models import LeNet

CPU = torch.device("cpu")


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 4, 2))


def test_models_and_gradients_are_views_into_the_buffers():
    models = NodeModels(LeNet((1, 28, 28), 10), 3, CPU)
    inputs = torch.randn(5, 1, 28, 28)
    models.modules[1](inputs).square().mean().backward()
    assert models.x.shape == models.grad.shape == (3, 44_470)
    assert models.grad[1].abs().sum() > 0
    assert models.grad[0].abs().sum() == models.grad[2].abs().sum() == 0
    before = models.modules[1](inputs)
    with torch.no_grad():
        models.x[1].zero_()
    assert not torch.equal(before, models.modules[1](inputs))
    for parameter in models.modules[2].parameters():
        assert parameter.untyped_storage().data_ptr() == models.x.untyped_storage().data_ptr()
        assert parameter.grad.untyped_storage().data_ptr() == models.grad.untyped_storage().data_ptr()


def test_gradients_equal_those_of_a_plain_module():
    plain = small()
    models = NodeModels(copy.deepcopy(plain), 2, CPU)
    inputs = torch.randn(6, 2, 4, 4)
    plain(inputs).square().mean().backward()
    models.modules[0](inputs).square().mean().backward()
    for mine, theirs in zip(models.modules[0].parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_convolution_weights_are_stored_channels_last():
    models = NodeModels(nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(1, 2, 3)), 1, CPU)
    wide, thin = models.modules[0][0].weight, models.modules[0][1].weight
    assert wide.is_contiguous(memory_format=torch.channels_last)
    assert thin.is_contiguous()


def test_no_order_in_which_images_would_be_misread():
    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 1, 1), nn.Conv2d(1, 16, (3, 9), stride=(1, 2)), nn.Flatten())

    inputs = torch.randn(16, 2, 28, 9)
    ours = NodeModels(model(), 1, CPU).modules[0]
    assert ours[0].weight.is_contiguous()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.testing.assert_close(ours(inputs), model()(inputs))
    finally:
        torch.set_num_threads(threads)


def test_slots_view_many_rows_at_once():
    layout = Layout(small())
    rows = torch.randn(3, layout.dim)
    for slot in layout:
        many = slot.view(rows)
        assert many.shape == (3, *slot.shape)
        assert torch.equal(many[1], slot.view(rows[1]))


def test_frozen_parameters_stay_out_and_keep_their_values():
    module = small()
    module[0].weight.requires_grad_(False)
    models = NodeModels(module, 2, CPU)
    assert models.layout.dim == sum(p.numel() for p in module.parameters()) - module[0].weight.numel()
    assert torch.equal(models.modules[1][0].weight, module[0].weight)
    assert models.modules[1][0].weight is not module[0].weight


def test_buffers_are_local_and_averaged_for_the_averaged_model():
    models = NodeModels(small().train(), 2, CPU)
    models.modules[0](torch.randn(6, 2, 4, 4))
    models.modules[1](5 + torch.randn(6, 2, 4, 4))
    first, second = (m[1].running_mean for m in models.modules)
    assert not torch.allclose(first, second)
    average = models.averaged()
    torch.testing.assert_close(average[1].running_mean, (first + second) / 2)
    torch.testing.assert_close(average[3].weight, models.modules[0][3].weight)
    assert average[1].num_batches_tracked == 1
    saved = {name: b.clone() for name, b in models.buffers().items()}
    models.modules[1](torch.randn(6, 2, 4, 4))
    models.load_buffers(saved)
    torch.testing.assert_close(models.modules[1][1].running_mean, saved["1.running_mean"][1])


def test_shared_parameters_are_stored_once_and_stay_shared():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    models = NodeModels(Tied(), 2, CPU)
    assert models.layout.dim == 9 + 3 + 3
    assert models.modules[1].a.weight is models.modules[1].b.weight


def test_a_model_without_parameters_or_with_several_types_is_refused():
    with pytest.raises(GossamerError, match="nothing to train"):
        Layout(nn.ReLU())
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(GossamerError, match="several types"):
        Layout(mixed)


def test_the_layout_is_made_on_any_device():
    with torch.device("meta"):
        module = small()
    models = NodeModels(module, 3, torch.device("meta"))
    assert models.x.device.type == models.grad.device.type == "meta"
    assert all(p.device.type == "meta" for p in models.modules[2].parameters())


def test_a_nodes_module_is_made_when_it_is_asked_for_and_then_stays():
    models = NodeModels(small(), 4, CPU)
    assert len(models.modules) == 4
    third = models.modules[2]
    assert models.modules[2] is models.modules[-2] is third
    assert [m is third for m in models.modules[1:]] == [False, True, False]
    assert len(set(map(id, models.modules))) == 4
    with pytest.raises(IndexError, match="there are 4 nodes, 0 to 3, but no node 4"):
        models.modules[4]


def test_a_node_is_named_by_whatever_is_a_whole_number():
    models = NodeModels(small(), 4, CPU)
    last = torch.tensor(-1)
    assert models.modules[last] is models.modules[np.int64(3)] is models.modules[3]
    assert last.item() == -1
    with pytest.raises(TypeError):
        models.modules[1.0]


def test_a_module_made_late_starts_as_the_first_one_did():
    models = NodeModels(small(), 2, CPU)
    models.modules[0](torch.randn(6, 2, 4, 4) + 5)
    early, late = (model[1].running_mean for model in models.modules)
    assert early.abs().sum() > 0
    assert torch.equal(late, torch.zeros(3))


def test_a_module_that_is_first_seen_in_inference_mode_can_be_trained():
    models = NodeModels(small(), 2, CPU)
    inputs = torch.randn(6, 2, 4, 4)
    with torch.inference_mode():
        models.modules[1].eval()(inputs)
    models.modules[1].train()(inputs).square().mean().backward()
    assert models.grad[1].abs().sum() > 0
