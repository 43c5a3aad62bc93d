"""Zip and tar archives of images, with a folder for each class. Nothing is written to disk."""

import bz2
import functools
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ars.data import PIXELS, Example, ImageSize
from ars.data.decode import IMAGE_SUFFIXES, read_image
from ars.data.labels import order_classes
from ars.data.memory import check_memory
from ars.data.pixels import file_sha256
from ars.errors import DataError

__all__ = ["ARCHIVE_SUFFIXES", "ImageArchive"]

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
LARGEST_IMAGE = 2**28
"""The most bytes of an image file."""
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
    """The files of a tar. The images of a compressed one are read into memory, because it cannot be read at random."""
    name = path.name.lower()
    if not name.endswith(".tar"):
        unpack: Any = gzip.open if name.endswith("gz") else bz2.open if name.endswith("bz2") else lzma.open
        with (
            unpack(path) as content,
            tarfile.open(fileobj=_Limited(path, content), mode="r|", bufsize=2**20) as archive,
        ):
            for info, member in _list_files(archive):
                read = archive.extractfile(info) if _has_image_name(member) and info.size <= LARGEST_IMAGE else None
                yield _Member(member, info.size, functools.partial(bytes, b"" if read is None else read.read()))
        return
    with tarfile.open(path, "r:") as archive:
        for info, member in _list_files(archive):
            yield _Member(member, info.size, functools.partial(_read_at, path, info.offset_data, info.size))


def _list_files(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """The regular files of a tar. Links are not followed."""
    for info in archive:
        if info.isreg() and not info.issparse():
            yield info, PurePosixPath(info.name)


class _Limited(io.RawIOBase):
    """What a compressed file unpacks to, up to a limit. All of it counts, also what is only read past."""

    def __init__(self, path: Path, content: io.BufferedIOBase) -> None:
        self._path, self._content, self._read = path, content, 0
        self._packed = path.stat().st_size

    def read(self, size: int = -1) -> bytes:
        content = self._content.read(size)
        self._read += len(content)
        check_memory(self._path, self._read, packed=self._packed)
        return content


def _read_at(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _is_image(path: Path, member: _Member) -> bool:
    """Whether a member is an image; one that no honest archive has is an error."""
    if member.path.is_absolute() or ".." in member.path.parts:
        raise DataError(path, f"its member {member.path} lies outside of the archive", "do not use this archive")
    if not _has_image_name(member.path):
        return False
    if member.size > LARGEST_IMAGE:
        problem = f"its member {member.path} has {member.size} bytes"
        raise DataError(path, problem, "an image may have at most 256 MiB")
    return True


def _has_image_name(path: PurePosixPath) -> bool:
    hidden = any(name.startswith((".", "__MACOSX")) for name in path.parts)
    return not hidden and path.suffix.lower() in IMAGE_SUFFIXES


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
