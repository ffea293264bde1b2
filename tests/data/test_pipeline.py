import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from gossamer.data import Augmentation, Erasing, Normalization, Pipeline
from gossamer.errors import GossamerError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count, channels=2, height=5, width=7, seed=0):
    shape = (count, channels, height, width)
    return torch.randint(1, 256, shape, dtype=torch.uint8, generator=generator(seed))


def crop_and_flip(image, padding, top, left, flip):
    """The plain form: one image at a time."""
    padded = functional.pad(image, (padding,) * 4)
    window = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
    return window.flip(2) if flip else window


@settings(deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 6)] * 3), padding=st.integers(0, 4), flip=st.booleans(), seed=st.integers(0, 999)
)
def test_crop_and_flip_equal_the_plain_form(shape, padding, flip, seed):
    batch = images(9, *shape, seed=seed)
    augmentation = Augmentation(padding, flip)
    draws = augmentation.draw(9, generator(seed))
    moved = augmentation.move(batch, draws)
    for image, draw, result in zip(batch, draws.tolist(), moved, strict=True):
        top, left = (int(u * (2 * padding + 1)) for u in draw[:2])
        assert torch.equal(result, crop_and_flip(image, padding, top, left, flip and draw[2] < 0.5))


def test_offsets_are_uniform_and_independent():
    white = torch.full((9000, 1, 4, 4), 255, dtype=torch.uint8)
    augmentation = Augmentation(padding=1)
    moved = augmentation.move(white, augmentation.draw(9000, generator()))
    # Offset 0 brings the padding into the first row, offset 2 into the last.
    vertical = (moved[:, 0, 3, 1:3].sum(1) == 0).long() - (moved[:, 0, 0, 1:3].sum(1) == 0).long()
    horizontal = (moved[:, 0, 1:3, 3].sum(1) == 0).long() - (moved[:, 0, 1:3, 0].sum(1) == 0).long()
    counts = torch.bincount((vertical + 1) * 3 + horizontal + 1, minlength=9)
    assert (counts - 1000).abs().max() < 150


def test_largest_draw_stays_inside():
    largest = torch.full((1, 26), 1 - 2**-24)
    batch = images(1)
    for padding in range(70):
        moved = Augmentation(padding).move(batch, largest)
        assert torch.equal(moved[0], crop_and_flip(batch[0], padding, 2 * padding, 2 * padding, False))
    top, left, height, width = Erasing(p=1.0).rectangles(largest[:, 3:], 32, 32)
    assert float(top + height) == 32
    assert float(left + width) == 32


def test_half_are_flipped():
    batch = images(2000, 1, 2, 2)
    augmentation = Augmentation(flip=True)
    moved = augmentation.move(batch, augmentation.draw(2000, generator()))
    assert 900 < int((moved == batch.flip(3)).flatten(1).all(1).sum()) < 1100


def plain_rectangle(draw, erasing, rows, columns):
    """Torchvision's loop, driven by the same uniform numbers."""
    if draw[0] >= erasing.p:
        return None
    for share, ratio in zip(draw[3:13], draw[13:23], strict=True):
        area = rows * columns * (erasing.scale[0] + (erasing.scale[1] - erasing.scale[0]) * share)
        low, high = torch.tensor(erasing.ratio).log()
        aspect = torch.exp(low + (high - low) * ratio)
        height, width = int((area * aspect).sqrt().round()), int((area / aspect).sqrt().round())
        if height < rows and width < columns:
            return int(draw[1] * (rows - height + 1)), int(draw[2] * (columns - width + 1)), height, width
    return None


@pytest.mark.parametrize("erasing", [Erasing(), Erasing(p=1.0, scale=(0.3, 1.0), ratio=(0.1, 8.0)), Erasing(p=0.0)])
def test_erasing_equals_the_plain_loop(erasing):
    batch = torch.rand(200, 3, 9, 12, generator=generator()) + 1
    draws = torch.rand(200, Erasing.draws, generator=generator(1))
    expected = batch.clone()
    for image, draw in zip(expected, draws, strict=True):
        if rectangle := plain_rectangle(draw, erasing, 9, 12):
            top, left, height, width = rectangle
            image[:, top : top + height, left : left + width] = 0
    result = erasing(batch, draws)
    assert torch.equal(result, expected)
    assert result is batch


def test_erasing_frequency_and_area():
    batch = torch.ones(4000, 1, 32, 32)
    erased = (Erasing()(batch, torch.rand(4000, Erasing.draws, generator=generator())) == 0).float().mean((1, 2, 3))
    hit = erased[erased > 0]
    assert 0.46 < len(hit) / 4000 < 0.54
    assert float(hit.min()) > 0.015
    assert float(hit.max()) < 0.35
    assert float(hit.mean()) == pytest.approx(0.175, abs=0.01)


def test_a_rectangle_that_never_fits_leaves_the_image_alone():
    batch = torch.ones(20, 1, 4, 4)
    Erasing(p=1.0, scale=(1.0, 1.0), ratio=(1.0, 1.0))(batch, torch.rand(20, Erasing.draws, generator=generator()))
    assert torch.equal(batch, torch.ones(20, 1, 4, 4))


def test_order_crop_is_black_before_and_erasing_zero_after_normalization():
    stored = torch.full((300, 1, 8, 8), 255, dtype=torch.uint8)
    pipeline = Pipeline(Normalization(0.5, 0.5), Augmentation(padding=2, erasing=Erasing(p=1.0)))
    batch = pipeline.batch(stored, torch.arange(300), pipeline.draw(300, generator()))
    assert set(batch.round(decimals=5).add(0.0).unique().tolist()) == {-1.0, 0.0, 1.0}
    assert int(stored.min()) == 255


def test_batch_without_draws_is_fetched_and_normalized_only():
    stored, index = images(10), torch.tensor([7, 7, 0])
    pipeline = Pipeline(Normalization(0.5, 0.5), Augmentation(padding=2, flip=True))
    assert torch.equal(pipeline.batch(stored, index), Normalization(0.5, 0.5)(stored[index]))
    assert torch.equal(pipeline.batch(stored, index), Pipeline(Normalization(0.5, 0.5)).batch(stored, index))
    assert Pipeline().draw(3, generator()) is None


def test_float_inputs_of_any_shape_and_their_storage_is_safe():
    features = torch.rand(10, 4, generator=generator())
    pipeline = Pipeline(augmentation=Augmentation())
    assert torch.equal(pipeline.batch(features, torch.tensor([2]), pipeline.draw(1, generator())), features[[2]])
    pictures = torch.ones(6, 1, 8, 8)
    eraser = Pipeline(augmentation=Augmentation(erasing=Erasing(p=1.0)))
    assert float(eraser.batch(pictures, torch.arange(6), eraser.draw(6, generator())).min()) == 0
    assert float(pictures.min()) == 1


def test_stacked_nodes_equal_separate_nodes():
    stored = images(40, 3, 8, 8)
    pipeline = Pipeline(Normalization(), Augmentation(3, True, Erasing()))
    indices = [torch.arange(0, 8), torch.arange(20, 25)]
    draws = [pipeline.draw(len(index), generator(node)) for node, index in enumerate(indices)]
    separate = [pipeline.batch(stored, index, draw) for index, draw in zip(indices, draws, strict=True)]
    assert torch.equal(torch.cat(separate), pipeline.batch(stored, torch.cat(indices), torch.cat(draws)))


def test_randomness_comes_from_the_given_generator_only():
    before = torch.get_rng_state()
    augmentation = Augmentation(4, True, Erasing())
    first, again, other = (augmentation.draw(5, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (5, 26)
    assert torch.equal(before, torch.get_rng_state())


PIXELS = torch.arange(48, dtype=torch.uint8).mul(5).view(2, 3, 2, 4)


@pytest.mark.parametrize("mean", [0.0, 0.5, (0.1, 0.2, 0.3)])
@pytest.mark.parametrize("std", [1.0, 0.5, (0.4, 0.5, 0.6)])
def test_normalization_is_the_formula(mean, std):
    column = lambda value: torch.tensor(value, dtype=torch.float64).view(-1, 1, 1)  # noqa: E731
    expected = (PIXELS.double() / 255 - column(mean)) / column(std)
    result = Normalization(mean, std)(PIXELS)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-6)
    floats = PIXELS.double()
    torch.testing.assert_close(Normalization(mean, std)(floats), (floats - column(mean)) / column(std))
    assert torch.equal(floats, PIXELS.double())


def test_normalized_range_of_the_usual_settings():
    ends = torch.tensor([0, 255], dtype=torch.uint8)
    assert Normalization()(ends).tolist() == [0.0, 1.0]
    assert Normalization(0.5, 0.5)(ends).tolist() == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int32, torch.bool])
def test_the_default_normalization_leaves_all_but_bytes_untouched(dtype):
    features = torch.arange(35).view(5, 7).to(dtype)
    assert Normalization()(features) is features


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Augmentation(padding=-1), "0 or more pixels"),
        (lambda: Augmentation(padding=1.5), "padding of an augmentation must be a whole number"),
        (lambda: Erasing(p="1"), r"p in \[0, 1\], not '1'"),
        (lambda: Erasing(scale=0.1), "two numbers as scale"),
        (lambda: Erasing(ratio=(1.0,)), "two numbers as ratio"),
        (lambda: Augmentation(flip=True).move(torch.rand(2, 3), torch.rand(2, 3)), "without augmentation"),
        (lambda: Augmentation(erasing=Erasing()).erase(torch.rand(2, 3), torch.rand(2, 26)), "without erasing"),
        (lambda: Erasing(p=1.5), r"p in \[0, 1\]"),
        (lambda: Erasing(scale=(0.5, 0.1)), "scale"),
        (lambda: Erasing(ratio=(0.0, 1.0)), "ratio"),
        (lambda: Normalization(std=0.0), "divides by std"),
        (lambda: Normalization(mean=float("nan")), "mean must be finite"),
        (lambda: Normalization((0.1, 0.2), (0.1, 0.2, 0.3)), "2 means but 3 standard deviations"),
        (lambda: Normalization((0.1, 0.2), 1.0)(PIXELS), "2 channels"),
        (lambda: Normalization((0.1, 0.2), 1.0)(torch.rand(5)), "2 channels"),
        (lambda: Normalization(mean=1.0)(torch.arange(3)), "use uint8 .* or no normalization"),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(GossamerError, match=words):
        make()
