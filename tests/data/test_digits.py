import torch

from gossamer.data.catalog import DIGITS
from gossamer.data.loading import load


def test_digits_have_the_sizes_and_values_of_the_uci_file() -> None:
    data = load("digits")
    assert data.train_inputs.shape == (1442, 1, 8, 8)
    assert data.test_inputs.shape == (355, 1, 8, 8)
    assert data.train_inputs.dtype == torch.uint8
    assert (data.train_targets.dtype, data.test_targets.dtype) == (torch.int64, torch.int64)
    together = torch.cat([data.train_inputs, data.test_inputs])
    assert (together.min(), together.max()) == (0, 16)
    # The class sizes that the makers state for this file.
    classes = torch.cat([data.train_targets, data.test_targets]).bincount()
    assert classes.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert data.classes == tuple("0123456789")


def test_digits_begin_with_the_first_image_of_the_uci_file() -> None:
    data = load("digits")
    assert data.train_targets[:10].tolist() == list(range(10))
    assert data.train_inputs[0, 0].tolist() == [
        [0, 0, 5, 13, 9, 1, 0, 0],
        [0, 0, 13, 15, 10, 15, 5, 0],
        [0, 3, 15, 2, 0, 11, 8, 0],
        [0, 4, 12, 0, 0, 8, 8, 0],
        [0, 5, 8, 0, 0, 9, 8, 0],
        [0, 4, 11, 0, 1, 12, 7, 0],
        [0, 2, 14, 5, 10, 12, 0, 0],
        [0, 0, 6, 13, 10, 0, 0, 0],
    ]


def test_each_fifth_image_of_every_class_is_for_testing() -> None:
    data = load("digits")
    train, test = data.train_targets.bincount(), data.test_targets.bincount()
    assert torch.equal(test, (train + test) // 5)


def test_digits_are_normalized_to_zero_one() -> None:
    data = load("digits")
    normalized = data.normalization(data.train_inputs)
    torch.testing.assert_close(normalized, data.train_inputs / 16)


def test_digits_tell_the_classes_apart() -> None:
    """The nearest class mean reads about nine in ten: labels belong to their images, in both parts."""
    data = load("digits")
    means = torch.stack([data.train_inputs[data.train_targets == c].float().mean(0).flatten() for c in range(10)])
    guesses = torch.cdist(data.test_inputs.float().flatten(1), means).argmin(1)
    assert (guesses == data.test_targets).float().mean() > 0.85


def test_digits_are_small_and_need_no_download() -> None:
    assert sum(path.stat().st_size for path in DIGITS.packaged.iterdir()) < 50_000
    assert DIGITS.download_size == 0
