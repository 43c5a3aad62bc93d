"""Training data: in memory or from disk, the same order and the same pictures for the same seed."""

from random import Random

import numpy as np
import pytest
import torch
from PIL import Image
from support.train_runs import refused, same, train, weights

from ars.data import ImageSize
from ars.data.images import ImageFolder
from ars.errors import DataError
from ars.train.batches import Augmentation, CroppedImages, Images, random_box, read_images

WHOLE = slice(None)


@pytest.fixture
def folder(tmp_path):
    """Two classes of images of many sizes and kinds: red on the left, or blue on the left."""
    rng = np.random.default_rng(0)
    for split, number in (("train", 30), ("val", 10)):
        for label, name in enumerate(("blue", "red")):
            (tmp_path / split / name).mkdir(parents=True)
            for index in range(number):
                height, width = rng.integers(20, 40, 2)
                pixels = rng.integers(0, 100, (height, width, 3), dtype=np.uint8)
                pixels[:, : width // 2, 2 - 2 * label] += 150
                image = Image.fromarray(pixels)
                image = image.convert("L") if index == 3 else image
                image.save(tmp_path / split / name / f"{index}.{'jpeg' if index % 2 else 'png'}")
    return tmp_path


def epoch(images, seed, size=8, part=WHOLE, flip=False):
    generator = torch.Generator().manual_seed(seed)
    batches = list(images.batches(size, Augmentation(flip=flip), generator, part))
    return torch.stack([x for x, _ in batches]), torch.stack([labels for _, labels in batches])


def opened(folder, most=None):
    return CroppedImages(ImageFolder(folder / "train", ImageSize(18, 16, 3)), 16, most)


def test_parts_of_images_come_from_disk_and_are_the_same_for_the_same_seed(folder, monkeypatch):
    images = opened(folder)
    assert (len(images), images.shape, images.labels.tolist()) == (60, (3, 16, 16), [0] * 30 + [1] * 30)
    x, labels = epoch(images, 1)
    assert x.shape == (7, 8, 3, 16, 16)
    assert 0 <= x.min() < x.max() <= 1
    monkeypatch.setattr("ars.train.batches.READERS", 1)
    again, labels_again = epoch(images, 1)
    assert torch.equal(x, again)
    assert torch.equal(labels, labels_again)
    other, _ = epoch(images, 2)
    assert not torch.equal(x, other)


def test_a_picture_keeps_its_label(folder):
    x, labels = epoch(opened(folder), 1)
    blue, red = x[..., 2, :, :].mean((-2, -1)), x[..., 0, :, :].mean((-2, -1))
    coloured = (blue - red).abs() > 0.1  # a gray picture, or a part without the coloured half, says nothing
    assert coloured.float().mean() > 0.6
    assert torch.equal((red > blue)[coloured], (labels == 1)[coloured])


def test_a_process_reads_its_part_of_the_batch_of_one_process(folder):
    images = opened(folder)
    x, labels = epoch(images, 1)
    part, labels_of_part = epoch(images, 1, part=slice(3, 8))
    assert torch.equal(part, x[:, 3:])
    assert torch.equal(labels_of_part, labels[:, 3:])


def test_half_of_the_pictures_are_flipped_when_asked(folder):
    images = opened(folder)
    plain, flipped = (epoch(images, 1, flip=flip)[0].flatten(0, 1) for flip in (False, True))
    turned = torch.tensor([torch.equal(a.flip(-1), b) for a, b in zip(plain, flipped, strict=True)])
    kept = torch.tensor([torch.equal(a, b) for a, b in zip(plain, flipped, strict=True)])
    assert (turned | kept).all()
    assert 10 < turned.sum() < 46


def test_at_most_so_many_are_spread_over_the_classes(folder):
    assert opened(folder, most=10).labels.tolist() == [0] * 5 + [1] * 5


def test_an_epoch_that_is_left_reads_no_further(folder):
    batches = opened(folder).batches(8, Augmentation(), torch.Generator(), WHOLE)
    next(batches)
    batches.close()
    assert next(batches, None) is None


def test_a_broken_image_is_named(folder):
    (folder / "train" / "blue" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.png: it is neither a PNG nor a JPEG image"):
        epoch(opened(folder), 1, size=10)


def test_random_parts_lie_inside_and_have_the_usual_sizes():
    random = Random(0)
    for width, height in ((40, 30), (30, 40), (500, 20), (1, 1), (3, 200)):
        for _ in range(300):
            left, top, right, bottom = random_box(width, height, random)
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
    boxes = [random_box(1000, 1000, random) for _ in range(3000)]
    areas = np.array([(right - left) * (bottom - top) / 1e6 for left, top, right, bottom in boxes])
    ratios = np.array([(right - left) / (bottom - top) for left, top, right, bottom in boxes])
    assert 0.075 < areas.min() < 0.1
    assert areas.max() > 0.95
    assert 0.74 < ratios.min() < 0.78
    assert 1.29 < ratios.max() < 1.35
    assert abs(np.log(ratios).mean()) < 0.02


def test_a_folder_trains_from_disk_and_the_seed_repeats_it(folder, monkeypatch):
    monkeypatch.chdir(folder)
    given = ["--dataset", ".", "--random-crop", "16", "--flip", "--batch", "10"]
    for name in ("a.pt", "b.pt"):
        result = train(*given, epochs=1, kind="isotropic", out=name)
        assert result.exit_code == 0, result.output
    assert same(weights("a.pt"), weights("b.pt"))
    (folder / "train" / "red" / "new.png").write_bytes((folder / "train" / "red" / "0.png").read_bytes())
    refused(train(*given, "--resume", epochs=1, kind="isotropic", out="a.pt"), "it was started with other data")


def test_images_in_memory_are_augmented_and_shared_out():
    x, labels = torch.rand(20, 1, 6, 6), torch.arange(20) % 2
    images = Images(x, labels)
    whole = list(images.batches(5, Augmentation(2, True), torch.Generator().manual_seed(0), WHOLE))
    part = list(images.batches(5, Augmentation(2, True), torch.Generator().manual_seed(0), slice(2, 5)))
    assert len(whole) == 4
    for (a, labels_a), (b, labels_b) in zip(whole, part, strict=True):
        assert torch.equal(a[2:], b)
        assert torch.equal(labels_a[2:], labels_b)


def test_pixel_statistics_are_those_of_the_images(folder):
    images = read_images(ImageFolder(folder / "train", ImageSize(18, 16, 3)))
    mean, deviation = images.pixel_statistics()
    torch.testing.assert_close(torch.tensor(mean), images.x.mean((0, 2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(deviation), images.x.std((0, 2, 3)), atol=1e-3, rtol=0)
    assert opened(folder).pixel_statistics() == (mean, deviation)
