import pytest
import torch

from gossamer.data import Normalization
from gossamer.errors import GossamerError

PIXELS = torch.arange(48, dtype=torch.uint8).mul(5).view(2, 3, 2, 4)


@pytest.mark.parametrize("mean", [0.0, 0.5, (0.1, 0.2, 0.3)])
@pytest.mark.parametrize("std", [1.0, 0.5, (0.4, 0.5, 0.6)])
def test_formula(mean, std):
    column = lambda value: torch.tensor(value, dtype=torch.float64).view(-1, 1, 1)  # noqa: E731
    expected = (PIXELS.double() / 255 - column(mean)) / column(std)
    result = Normalization(mean, std)(PIXELS)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-6)
    floats = PIXELS.double()
    torch.testing.assert_close(Normalization(mean, std)(floats), (floats - column(mean)) / column(std))
    assert torch.equal(floats, PIXELS.double())


def test_range_of_the_usual_settings():
    ends = torch.tensor([0, 255], dtype=torch.uint8)
    assert Normalization()(ends).tolist() == [0.0, 1.0]
    assert Normalization(0.5, 0.5)(ends).tolist() == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int32, torch.bool])
def test_the_default_leaves_all_but_bytes_untouched(dtype):
    features = torch.arange(35).view(5, 7).to(dtype)
    assert Normalization()(features) is features


@pytest.mark.parametrize(
    ("make", "words"),
    [
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
