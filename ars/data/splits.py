"""Training and test data by one name."""

from pathlib import Path

from ars.data import Dataset, Example, ImageSize, open_data
from ars.data.cifar import CifarBatch
from ars.data.idx import fashion_mnist
from ars.data.images import ImageFolder

__all__ = ["Part", "open_splits"]


class Part:
    """Some of the examples of a data set, numbered anew."""

    def __init__(self, whole: Dataset, ids: list[int]) -> None:
        self.name, self.classes = whole.name, whole.classes
        self._whole, self._ids = whole, ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> Example:
        return self._whole[self._ids[index]]

    def fingerprint(self) -> str:
        return f"{self._whole.fingerprint()} {self._ids}"


def open_splits(spec: str, size: ImageSize) -> tuple[Dataset, Dataset]:
    """The training and the test data of: fashion-mnist; CIFAR-10's folder of binary batches; a folder with the folders
    train and test (or val); and of anything else that open_data reads, every tenth example for the test."""
    path = Path(spec)
    if spec == "fashion-mnist":
        return fashion_mnist("train"), fashion_mnist("test")
    if (path / "data_batch_1.bin").exists():
        return CifarBatch(*sorted(path.glob("data_batch_*.bin"))), CifarBatch(path / "test_batch.bin")
    for test in ("test", "val"):
        if (path / "train").is_dir() and (path / test).is_dir():
            return ImageFolder(path / "train", size), ImageFolder(path / test, size)
    whole = open_data(spec, size)
    ids = range(len(whole))
    return Part(whole, [i for i in ids if i % 10 != 9]), Part(whole, [i for i in ids if i % 10 == 9])
