"""The hash of a model, and models with weights in files of their own, which ONNX calls external data.

The external files of a model are part of it. A model without external files is identified by the SHA-256 of its file. A
model with them is identified by the SHA-256 of a text, in which each of these is a line:

    \\0ARS: a model with external data
    the SHA-256 of the model file
    for each external file, in the order of their paths: its SHA-256, and its path in quotes, as JSON

No ONNX file begins with a zero byte, so no file by itself has the hash of a model with external data.

ONNX Runtime, OpenVINO and TensorRT look for the external files of a model that they get as bytes in the working
directory, wherever the model came from. Therefore they get bytes only if the bytes cannot name a file: the key
"location", which every external tensor has, must not occur in them. Otherwise they load copies, which were made while
the files were hashed, from a folder that holds nothing else.
"""

import hashlib
import json
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from ars.data.pixels import file_sha256
from ars.errors import ModelError, one_line
from ars.onnx_proto import parse_onnx
from ars.random_nodes import refuse_random_nodes
from ars.regular import check_regular
from ars.trial import try_model

__all__ = ["ENGINE_SUFFIXES", "TORCH_SUFFIXES", "ExternalFile", "HashedModel", "ModelHash", "hash_model"]

TORCH_SUFFIXES = (".pt", ".pth")
ENGINE_SUFFIXES = (".trt", ".engine", ".plan")

_WITHOUT_EXTERNAL_DATA = (*TORCH_SUFFIXES, *ENGINE_SUFFIXES)
_KEYS = {"location", "offset", "length", "checksum", "basepath"}
_CHUNK = 2**20


@dataclass(frozen=True)
class ExternalFile:
    """A file that holds weights of a model."""

    path: str
    """Its path from the model's folder, with slashes."""
    sha256: str

    def __post_init__(self) -> None:
        if not _is_inside(self.path):
            raise ValueError(f"the path {self.path!r}, which is not inside its folder")


@dataclass(frozen=True)
class ModelHash:
    sha256: str
    """Identifies the model, external files included."""
    external: tuple[ExternalFile, ...] = ()


def hash_model(path: Path) -> ModelHash:
    """The hash of a model file of any kind, and its external files.

    Raises a ModelError that names the file if an external file is missing, too short, or outside the model's folder.
    """
    check_regular(path, ModelError)
    if path.suffix in _WITHOUT_EXTERNAL_DATA:
        return ModelHash(file_sha256(path))
    content = path.read_bytes()
    return _hash(path, content, _find_external(path, content) or {})


class HashedModel:
    """A model file and its external files, each read once, so that what is loaded is what was hashed.

    If the content may name external files, there are copies of all files in a temporary folder that only the user can
    enter. They are removed with this object, or before by `close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_regular(path, ModelError)
        self.content = path.read_bytes()
        """The content of the model file itself."""
        self.close: Callable[[], object] = lambda: None
        self._copy: Path | None = None
        self._names_files = path.suffix not in _WITHOUT_EXTERNAL_DATA and _may_name_files(self.content)
        external = _find_external(path, self.content) if self._names_files else None
        if external is None:
            self.hash = _hash(path, self.content, {})
            return
        try:
            self._copy_files(external)
        except OSError as error:
            self.close()
            problem = f"its external data cannot be copied to {tempfile.gettempdir()} ({error.strerror})"
            raise ModelError(path, problem, "free some space there, or set TMPDIR to another folder") from error
        except BaseException:
            self.close()
            raise

    def _copy_files(self, external: dict[str, int]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ars-")).resolve()
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.hash = _hash(self.path, self.content, external, folder)
        name = "model.onnx"
        while name in external:
            name = f"_{name}"
        self._copy = folder / name
        with self._copy.open("xb") as file:
            file.write(self.content)

    def onnx_source(self, library: str | None = None) -> bytes | Path:
        """What a library that reads ONNX may load: the content, if it cannot name other files, or the copy of the model
        file, which lies beside the copies of its external files.

        A model that draws random numbers is refused, and so is one that fails its trial (`ars.trial`): with the library
        of this name, onnxruntime or openvino, on the CPU; without a name, only its structure is checked.
        """
        if self._names_files and self._copy is None:
            raise ModelError(self.path, "it is not an ONNX model", "export it again")
        source, size = self._copy or self.content, len(self.content)
        if self._copy is not None:
            size += sum((self._copy.parent / file.path).stat().st_size for file in self.hash.external)
        refuse_random_nodes(self.path, self.content)  # first: it says more than a library that cannot load the node
        try_model(self.path, self.hash.sha256, source, size, library)
        return source


def _may_name_files(content: bytes) -> bool:
    """Whether an ONNX file may have external data. Every external tensor has the key "location", which protobuf writes
    as it is."""
    return b"location" in content


def _find_external(path: Path, content: bytes) -> dict[str, int] | None:
    """The paths of the external files of an ONNX model, each with the number of bytes that it must have at least. None
    if the content is not an ONNX model."""
    if not _may_name_files(content):
        return {}
    model = parse_onnx(content)
    if model is None:
        return None
    import onnx

    found: dict[str, int] = {}
    for tensor in _find_tensors(model, onnx.TensorProto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            location, end = _read_entries(path, tensor)
            found[location] = max(end, found.get(location, 0))
    return found


def _find_tensors(message: Any, kind: Any) -> Iterator[Any]:
    """Every tensor in a message, wherever it is: in graphs, the attributes of nodes, subgraphs, functions, sparse
    tensors and training information."""
    if isinstance(message, kind):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _find_tensors(part, kind)


def _read_entries(path: Path, tensor: Any) -> tuple[str, int]:
    """The path of a tensor's external file, and where in the file the tensor ends at the earliest."""
    # Where a string is not UTF-8, protobuf gives bytes, and str() of them has a backslash, which is refused.
    entries = [(str(entry.key), str(entry.value)) for entry in tensor.external_data]
    values = dict(entries)
    location, offset, length = values.get("location", ""), values.get("offset", "0"), values.get("length", "0")
    again = "export the model again"
    if not _is_inside(location):
        problem = f"its tensor {tensor.name!r} is in {location!r}, which is not a plain path inside the model's folder"
        raise ModelError(path, problem, again)
    clear = len(values) == len(entries) and values.keys() <= _KEYS
    if not (clear and _is_number(offset) and _is_number(length)):
        problem = f"its tensor {tensor.name!r} does not say clearly which part of {location!r} it is"
        raise ModelError(path, problem, again)
    return PurePosixPath(location).as_posix(), int(offset) + int(length)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _is_inside(location: str) -> bool:
    """Whether a location is a relative path that does not leave its folder.

    The characters * : and \\ are not allowed, because libraries give them a meaning: to ONNX Runtime and OpenVINO,
    */_ORT_MEM_ADDR_/* is an address in the memory of the process.
    """
    path = PurePosixPath(location)
    plain = location.isprintable() and not set(location) & set("*:\\")
    return plain and path.parts != () and not path.is_absolute() and ".." not in path.parts


def _hash(path: Path, content: bytes, external: dict[str, int], copies: Path | None = None) -> ModelHash:
    """The hash of a model and its external files, which are copied to a folder if one is given."""
    own = hashlib.sha256(content).hexdigest()
    if not external:
        return ModelHash(own)
    files = tuple(ExternalFile(name, _hash_external(path, name, external[name], copies)) for name in sorted(external))
    lines = ["\0ARS: a model with external data", own, *(f"{file.sha256} {json.dumps(file.path)}" for file in files)]
    return ModelHash(hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(), files)


def _hash_external(path: Path, name: str, least: int, copies: Path | None) -> str:
    """The hash of an external file of at least this many bytes, which is copied if a folder is given."""
    digest, size = hashlib.sha256(), 0
    with _open_external(path, name) as file, _open_copy(name, copies) as copy:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
            size += len(chunk)
    if size < least:
        problem = f"it has {size} bytes, but {path.name} has weights up to byte {least} of it"
        raise ModelError(path.parent / name, problem, "keep the files of a model together, or export the model again")
    return digest.hexdigest()


def _open_external(path: Path, name: str) -> BinaryIO:
    """An external file, open for reading. It must be a regular file inside the model's folder."""
    file = path.parent / name
    try:
        real = file.resolve(strict=True)
        if not real.is_relative_to(path.parent.resolve()):
            problem = f"it should hold weights of {path.name}, but is a link to {real}, outside the model's folder"
            raise ModelError(file, problem, "put the file itself there")
        # A pipe that is opened without O_NONBLOCK waits for someone to write to it.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ModelError(
                file, f"it should hold weights of {path.name}, but is not a regular file", "put a file there"
            )
        return os.fdopen(descriptor, "rb")
    except FileNotFoundError as error:
        problem = f"it should hold weights of {path.name}, but there is no such file"
        raise ModelError(file, problem, "keep the files of a model together") from error
    except (OSError, RuntimeError) as error:  # pathlib raises RuntimeError for links that lead back to themselves
        problem = f"it should hold weights of {path.name}, but cannot be read ({one_line(error)})"
        raise ModelError(file, problem, "make it readable") from error


def _open_copy(name: str, folder: Path | None) -> BinaryIO:
    if folder is None:
        return open(os.devnull, "wb")
    copy = folder / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    return copy.open("xb")
