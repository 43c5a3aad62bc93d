"""Open training and test data by one name."""

import difflib
from pathlib import Path

from ars.data import Dataset, Example, ImageSize, open_data, refuse_size
from ars.data.arrays import Arrays
from ars.data.cifar import CifarBatch, find_pickles
from ars.data.idx import fashion_mnist, find_images
from ars.data.images import ImageFolder
from ars.errors import DataError

__all__ = ["Part", "open_splits"]


class Part:
    """Some of the examples of a data set, renumbered from 0."""

    def __init__(self, whole: Dataset, ids: list[int]) -> None:
        self.name, self.classes, self.span = whole.name, whole.classes, whole.span
        self._whole, self._ids = whole, ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> Example:
        return self._whole[self._ids[index]]

    def fingerprint(self) -> str:
        return f"{self._whole.fingerprint()} {self._ids}"


def open_splits(spec: str, size: ImageSize) -> tuple[Dataset, Dataset]:
    """The training and the test data of one of:

    - fashion-mnist;
    - CIFAR-10's folder of binary batches, a folder of CIFAR's python batches, or one of MNIST's idx files;
    - a folder with the folders train and test (or val), each of which has a folder of images for each class;
    - a folder with train.npz and one other .npz file, the test data (for example examples/fashion-mnist);
    - anything else that open_data reads: every tenth example becomes test data.
    """
    path = Path(spec)
    if spec != "fashion-mnist" and not path.exists():
        beside = map(str, path.parent.iterdir()) if path.parent.is_dir() else ()
        near = difflib.get_close_matches(spec, ["fashion-mnist", *beside], n=1)
        fix = f"did you mean {near[0]}?" if near else "give a path, or fashion-mnist"
        raise DataError(path, "there is no such file or folder", fix)
    if spec == "fashion-mnist":
        refuse_size(spec, size)
        return fashion_mnist("train"), fashion_mnist("test")
    if (path / "data_batch_1.bin").exists():
        refuse_size(spec, size)
        return CifarBatch(*sorted(path.glob("data_batch_*.bin"))), CifarBatch(path / "test_batch.bin")
    if find_pickles(path, None) or find_images(path, None):
        return open_data(f"{spec}:train", size), open_data(f"{spec}:test", size)
    for test in ("test", "val"):
        if (path / "train").is_dir() and (path / test).is_dir():
            return ImageFolder(path / "train", size), ImageFolder(path / test, size)
    if (path / "train.npz").exists():
        refuse_size(spec, size)
        return Arrays(path / "train.npz"), _test_arrays(path)
    whole = open_data(spec, size)
    if len(whole) < 10:
        raise DataError(
            whole.name, f"its {len(whole)} examples are too few to use every tenth as test data", "add more"
        )
    ids = range(len(whole))
    return Part(whole, [i for i in ids if i % 10 != 9]), Part(whole, [i for i in ids if i % 10 == 9])


def _test_arrays(folder: Path) -> Arrays:
    others = sorted(file for file in folder.glob("*.npz") if file.name != "train.npz")
    if len(others) != 1:
        problem = f"it has {len(others)} .npz files besides train.npz"
        raise DataError(folder, problem, "keep exactly one, the test data")
    return Arrays(others[0])
