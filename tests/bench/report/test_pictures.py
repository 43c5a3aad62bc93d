"""Pictures of inputs."""

import numpy as np

from ars.bench.report.pictures import photograph


def test_a_vector_is_drawn_as_bars_from_0():
    picture = photograph(np.array([1.0, 0.0, -1.0, 0.5], np.float32))
    dark = picture[..., 0] < 100
    width = picture.shape[1] // 4
    shares = [dark[:, number * width : (number + 1) * width].mean() for number in range(4)]
    np.testing.assert_allclose(shares, [0.5, 0, 0.5, 0.25], atol=0.02)
    assert dark[0, 0], "up"
    assert dark[-1, 2 * width], "down"


def test_a_long_signal_is_drawn_as_its_outline():
    picture = photograph(np.sin(np.linspace(0, 4000, 16_000, dtype=np.float32)))
    assert picture.shape[1] <= 240
    assert (picture[..., 0] < 100).mean() > 0.9


def test_a_signal_of_several_channels_has_a_row_for_each():
    """It was a picture of a few pixels' height."""
    x = np.zeros((3, 100), np.float32)
    x[0], x[2, 50:] = 1.0, 1.0
    dark = photograph(x)[..., 0] < 100
    assert dark.shape[0] > 100
    assert dark.shape[1] >= 200
    upper, middle, lower = np.array_split(dark, 3)
    assert upper.mean() > 0.9
    assert middle.mean() < 0.1
    assert lower[:, : dark.shape[1] // 2].mean() < 0.1 < 0.9 < lower[:, dark.shape[1] // 2 + 2 :].mean()
    assert photograph(np.zeros((28, 28), np.float32)).shape == (28, 28, 3), "a picture stays one"


def test_noisy_copies_have_the_scale_of_their_input():
    x = np.full((1, 2, 2), -2.0, np.float32)
    x[0, 0, 0] = 2.0
    assert photograph(x)[..., 0].tolist() == [[255, 0], [0, 0]]
    assert photograph(np.zeros_like(x), x)[0, 0, 0] == 128
    assert photograph(np.full_like(x, 0.2))[0, 0, 0] == 51, "an image in pixels is shown as it is"
