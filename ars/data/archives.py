"""Zip and tar archives of images, with a folder for each class. Nothing is written to disk."""

import functools
import hashlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ars.data import PIXELS, Example, ImageSize
from ars.data.decode import IMAGE_SUFFIXES, read_image
from ars.data.labels import order_classes
from ars.data.pixels import file_sha256
from ars.errors import DataError

__all__ = ["ARCHIVE_SUFFIXES", "ImageArchive"]

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
# No image of a data set is larger, and a compressed tar is held in memory.
LARGEST_IMAGE = 2**28
LARGEST_IN_MEMORY = 2**32
_BROKEN = (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, tarfile.TarError, zlib.error)


class _Member(NamedTuple):
    path: PurePosixPath
    size: int
    read: Callable[[], bytes]


class ImageArchive:
    """The images of an archive. The folder of an image is its class; `part` names the folder that has these folders,
    if the archive has several, such as train and test."""

    span = PIXELS

    def __init__(self, path: Path, part: str | None, size: ImageSize, classes_file: Path | None = None) -> None:
        self.name = path.name if part is None else f"{path.name}:{part}"
        self._path, self._part, self._size = path, part, size
        try:
            members = _open_zip(path) if path.suffix.lower() == ".zip" else _open_tar(path)
            images = _choose(path, part, [member for member in members if _is_image(path, member)])
        except (*_BROKEN, lzma.LZMAError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(path, f"it cannot be read ({error})", "make the archive again") from error
        classes = order_classes([image.path.parent.name for image in images], classes_file, path)
        numbers = {name: number for number, name in enumerate(classes)}
        self.classes: list[str] | None = classes
        found = [(image, numbers[image.path.parent.name]) for image in images]
        self._images = sorted(found, key=lambda one: (one[1], one[0].path))

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Example:
        image, label = self._images[index]
        name = f"{self._path}, {image.path}"
        try:
            content = image.read()
        except (*_BROKEN, lzma.LZMAError) as error:
            raise DataError(name, f"it cannot be read ({error})", "make the archive again") from error
        return Example(read_image(io.BytesIO(content), self._size, name), label, str(image.path))

    def fingerprint(self) -> str:
        listing = f"{self._size} {self._part} {self.classes} {file_sha256(self._path)}"
        return hashlib.sha256(listing.encode()).hexdigest()


def _open_zip(path: Path) -> Iterator[_Member]:
    archive = zipfile.ZipFile(path)
    for info in archive.infolist():
        if not info.is_dir():
            yield _Member(PurePosixPath(info.filename), info.file_size, functools.partial(archive.read, info))


def _open_tar(path: Path) -> Iterator[_Member]:
    """The files of a tar. Those of a compressed one are read into memory, because it cannot be read at random."""
    compressed, held = not path.name.lower().endswith(".tar"), 0
    with tarfile.open(path) as archive:
        for info in archive:
            if not info.isreg() or info.issparse():  # a folder, or a link, which is not followed
                continue
            name = PurePosixPath(info.name)
            if not compressed:
                yield _Member(name, info.size, functools.partial(_read_at, path, info.offset_data, info.size))
                continue
            held += info.size
            if held > LARGEST_IN_MEMORY:
                fix = "extract it, or make it a zip"
                raise DataError(path, "it has more than 4 GiB of files and is compressed", fix)
            file = archive.extractfile(info)
            content = b"" if file is None or info.size > LARGEST_IMAGE else file.read()
            yield _Member(name, info.size, functools.partial(bytes, content))


def _read_at(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _is_image(path: Path, member: _Member) -> bool:
    """Whether a member is an image; one that no honest archive has is an error."""
    if member.path.is_absolute() or ".." in member.path.parts:
        raise DataError(path, f"its member {member.path} lies outside of the archive", "do not use this archive")
    hidden = any(name.startswith((".", "__MACOSX")) for name in member.path.parts)
    if hidden or member.path.suffix.lower() not in IMAGE_SUFFIXES:
        return False
    if member.size > LARGEST_IMAGE:
        problem = f"its member {member.path} has {member.size} bytes"
        raise DataError(path, problem, "an image may have at most 256 MiB")
    return True


def _choose(path: Path, part: str | None, images: list[_Member]) -> list[_Member]:
    """The images in the folders of one folder."""
    roots = sorted({image.path.parent.parent for image in images if image.path.parent.name})
    chosen = [root for root in roots if part in (None, root.name, str(root))]
    if len(chosen) == 1:
        return [image for image in images if image.path.parent.name and image.path.parent.parent == chosen[0]]
    if not roots:
        fix = "put the images of each class in a folder of their own; extract an archive of other files"
        raise DataError(path, "it has no folders of PNG or JPEG images", fix)
    names = ", ".join(map(str, roots))
    raise DataError(path, f"it has folders of images in {names}", f"choose one, like {path.name}:{roots[0].name}")
