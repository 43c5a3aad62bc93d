"""The files of an export in progress. All of them are written to a temporary folder inside the output folder, and put
into the output folder at the end, in one switch (`ars/switch.py`).

An export that fails, is stopped or is killed therefore leaves the earlier files untouched, or the new ones complete.
"""

import dataclasses
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from ars.data.pixels import file_sha256
from ars.errors import ArsError, ModelError, RunError
from ars.external_data import hash_model
from ars.manifest import EngineBuild, Manifest, ModelFile, Parity
from ars.output import refuse_inputs
from ars.switch import finish_switch, switch
from ars.temporaries import temporary_folder

__all__ = ["Draft"]


class Draft:
    """The files that an export writes to a folder, among them the manifest called `name`. Entering the context checks
    that the folder can be written to. None of the `inputs` is overwritten, and no file that is not of an earlier
    export, unless `overwrite` is set."""

    def __init__(self, folder: Path, name: str, inputs: Sequence[Path | str] = (), *, overwrite: bool = False) -> None:
        self.folder = folder
        self.files: list[ModelFile] = []
        self._name, self._inputs, self._overwrite = name, inputs, overwrite
        self._stack = ExitStack()

    def __enter__(self) -> "Draft":
        try:
            finish_switch(self.folder / self._name)
            self._earlier = _read_earlier(self.folder / self._name)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._temporary = self._stack.enter_context(temporary_folder(self.folder, ".export-"))
        except OSError as error:
            fix = "choose another --output"
            raise ModelError(self.folder, f"it cannot be written to ({error.strerror})", fix) from error
        self._before = None
        if threading.current_thread() is threading.main_thread():
            # SIGTERM then ends the process as Ctrl-C does, and nothing is left behind.
            self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        self._stack.close()
        own = f"{self._temporary}{os.sep}"
        if isinstance(error, ArsError):  # by the time the user reads it, the folder is gone
            error.args = tuple(str(part).replace(own, "") for part in error.args)
        elif isinstance(error, OSError) and (error.filename is None or str(error.filename).startswith(own)):
            problem = f"its files cannot be written ({error.strerror or error})"
            raise RunError(f"{self.folder}: {problem}; free some space, or choose another --output") from error

    def path(self, name: str) -> Path:
        """Where to write the file of this name."""
        return self._temporary / name

    def bring(self, path: Path) -> Path:
        """Include an existing model file: it is copied to the others, with its external files, unless it is in the
        output folder already."""
        if self.is_home_of(path):
            return path
        for external in hash_model(path).external:
            self.path(external.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path.parent / external.path, self.path(external.path))
        return Path(shutil.copyfile(path, self.path(path.name)))

    def is_home_of(self, path: Path) -> bool:
        return path.parent.resolve() == self.folder.resolve()

    def add(
        self,
        role: str,
        path: Path,
        precision: str = "fp32",
        parity: Parity | None = None,
        build: EngineBuild | None = None,
    ) -> None:
        """List a file in the manifest. One that is in the output folder already, and was not made by an earlier export,
        is the user's own."""
        before = None if self._earlier is None else self._earlier.entry(path.name)
        given = path.parent != self._temporary and (before is None or _is_users(before))
        found = hash_model(path)
        self.files.append(ModelFile(role, path.name, found.sha256, precision, parity, build, found.external, given))

    def publish(self, manifest: Manifest) -> tuple[list[Path], list[Path]]:
        """Put the files and the manifest, which lists them, into the output folder. Returns the paths that were written
        and those that were removed.

        Files of an earlier export of the same classifier with the same noise stay, and stay listed. Other files of the
        earlier export are removed: the new manifest would not list them, so the engine would reject them. Files that
        the user gave stay, and so do external files, because other models may use them.
        """
        name, listed = self._name, () if self._earlier is None else self._earlier.files
        earlier = listed if self._earlier is not None and self._earlier.noise == manifest.noise else ()
        files = [_with_parity(file, earlier) for file in self.files]
        kept = _still_valid(earlier, files, self.folder)
        manifest = dataclasses.replace(manifest, files=(*files, *kept))
        manifest.write(self.path(name))
        self._check_external(manifest)
        new = [each for file in self.files for each in (*(one.path for one in file.external), file.path)]
        names = [each for each in (*new, name) if self.path(each).exists()]
        for each in names:
            self._check_place(each)
        stale = [file for file in listed if manifest.entry(file.path) is None and not _is_users(file)]
        removed = {file.path: file.sha256 for file in stale if _is_unchanged(self.folder, file)}
        try:
            switch(self._temporary, self.folder / name, names, removed)
        except OSError as error:
            problem = f"it cannot be written to ({error.strerror})"
            raise ModelError(self.folder, problem, "choose another --output") from error
        return [self.folder / each for each in names], [self.folder / each for each in removed]

    def _check_place(self, name: str) -> None:
        """Refuse to overwrite what is not a file, an input, or a file that is not of an earlier export."""
        place = self.folder / name
        fix = "move it away, or choose another --output"
        if place.is_dir() or (os.path.lexists(place) and not place.is_file()):
            problem = "Is a directory" if place.is_dir() else "it is not a regular file"
            raise ModelError(place, f"it cannot be written ({problem})", fix)
        refuse_inputs(place, self._inputs)
        earlier = () if self._earlier is None else self._earlier.files
        ours = any(_is_unchanged(self.folder, file) for file in earlier if file.path == name and not file.given)
        external = any(one.path == name for file in earlier for one in file.external)
        same = place.exists() and _has_content(place, file_sha256(self.path(name)))
        if place.exists() and not (same or ours or external or name == self._name or self._overwrite):
            problem = "it exists, and is not of an earlier export"
            raise ModelError(place, problem, "move it away, choose another --output, or use --overwrite")

    def _check_external(self, manifest: Manifest) -> None:
        """Reject external files that would overwrite another file, or be overwritten by one."""
        fix = "save the model again with another name for its external data, or choose another --output"
        own = {self._name, *(file.path for file in manifest.files)}
        before = {one.path for file in (self._earlier.files if self._earlier else ()) for one in file.external}
        for external in (one for file in manifest.files for one in file.external):
            if external.path in own:
                raise ModelError(self.folder / external.path, "external data and another file have this name", fix)
            there = self.folder / external.path
            if external.path not in before and there.exists() and not _has_content(there, external.sha256):
                raise ModelError(there, "it exists, and the export would overwrite it with external data", fix)


def _read_earlier(path: Path) -> Manifest | None:
    """The manifest of an earlier export. If another file has its name, the export fails and leaves it untouched."""
    if not path.exists():
        return None
    try:
        return Manifest.read(path)
    except ArsError as error:
        problem = "it is not a manifest that this version reads, and an export would overwrite it"
        raise ModelError(path, problem, "move it away, or choose another --output") from error


def _with_parity(file: ModelFile, earlier: tuple[ModelFile, ...]) -> ModelFile:
    """A file that was not compared now keeps the parity of an earlier export, if the file is unchanged."""
    known = (old.parity for old in earlier if (old.path, old.sha256) == (file.path, file.sha256))
    return dataclasses.replace(file, parity=file.parity or next(known, None))


def _still_valid(earlier: tuple[ModelFile, ...], files: list[ModelFile], folder: Path) -> list[ModelFile]:
    """The files of an earlier export of the same classifier that were not written again."""
    new, paths = {file.sha256 for file in files}, {file.path for file in files}
    if not any(file.role == "classifier" and file.sha256 in new for file in earlier):
        return []
    kept = [file for file in earlier if file.path not in paths and _is_unchanged(folder, file)]
    known = new | {file.sha256 for file in kept}
    return [file for file in kept if file.build is None or file.build.source_sha256 in known]


def _is_users(file: ModelFile) -> bool:
    """Whether the user gave this file. Older manifests do not say so, but have a parity for each classifier that was
    made."""
    made = file.role in ("noise", "engine") or file.parity is not None
    return file.given or not made


def _is_unchanged(folder: Path, file: ModelFile) -> bool:
    path = folder / file.path
    try:
        return path.is_file() and hash_model(path).sha256 == file.sha256
    except ModelError:  # its external data is missing, or is not what it was
        return False


def _has_content(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256
