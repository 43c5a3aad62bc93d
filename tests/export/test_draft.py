"""The files under way: all or nothing, and never a mix of two models."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.drafts import EMPTY, FIRST, PARITY, SECOND, export

from ars.errors import ModelError, RunError
from ars.export.draft import Draft
from ars.manifest import EngineBuild, NoiseSettings, Profile, manifest_beside
from ars.noise import NoiseKind


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_published_is_there_and_nothing_else(tmp_path):
    written, removed = export(tmp_path / "deep" / "out", FIRST)
    assert [path.name for path in written] == ["m.onnx", "m.int8.onnx", "m.noise.onnx", "m.json"]
    assert (removed, names(tmp_path / "deep" / "out")) == ([], sorted(path.name for path in written))
    for name in FIRST:
        assert len(manifest_beside(tmp_path / "deep" / "out" / name).files) == 3


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_export_that_fails_leaves_what_was_there(tmp_path, error):
    export(tmp_path, FIRST)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail():
        with Draft(tmp_path, "m.json") as draft:
            draft.path("m.onnx").write_bytes(b"half of an")
            raise error

    with pytest.raises(error):
        fail()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_of_the_same_classifier_stay_listed(tmp_path):
    export(tmp_path, FIRST)
    export(tmp_path, {"m.onnx": ("classifier", b"one"), "m.fp16.onnx": ("classifier", b"one in 16")})
    listed = manifest_beside(tmp_path / "m.int8.onnx")
    assert {file.path for file in listed.files} == {"m.onnx", "m.fp16.onnx", "m.int8.onnx", "m.noise.onnx"}


def test_files_of_another_model_are_removed(tmp_path):
    export(tmp_path, FIRST)
    _, removed = export(tmp_path, {"m.onnx": ("classifier", b"two")})
    assert sorted(path.name for path in removed) == ["m.int8.onnx", "m.noise.onnx"]
    assert names(tmp_path) == ["m.json", "m.onnx"]


def test_what_the_user_put_there_is_never_removed(tmp_path):
    (tmp_path / "m.pt").write_bytes(b"trained")
    with Draft(tmp_path, "m.json") as draft:
        draft.add("trained", tmp_path / "m.pt")
        draft.path("m.onnx").write_bytes(b"one")
        draft.add("classifier", draft.path("m.onnx"))
        draft.path("m.int8.onnx").write_bytes(b"one in 8")
        draft.add("classifier", draft.path("m.int8.onnx"), "int8")
        draft.publish(EMPTY)
    (tmp_path / "m.int8.onnx").write_bytes(b"made elsewhere")
    _, removed = export(tmp_path, {"m.onnx": ("classifier", b"two")})
    assert removed == []
    assert names(tmp_path) == ["m.int8.onnx", "m.json", "m.onnx", "m.pt"]


def test_an_engine_of_a_file_that_was_made_anew_is_removed(tmp_path):
    def export_engine():
        with Draft(tmp_path, "m.json") as draft:
            for name, content in (("m.onnx", b"one"), ("m.int8.onnx", b"8"), ("m.trt", b"plan")):
                draft.path(name).write_bytes(content)
            draft.add("classifier", draft.path("m.onnx"))
            draft.add("classifier", draft.path("m.int8.onnx"), "int8")
            source = draft.files[-1].sha256
            build = EngineBuild("tensorrt", "11", ("8.6",), Profile(1, 2, 4), "m.int8.onnx", source)
            draft.add("engine", draft.path("m.trt"), "int8", build=build)
            draft.publish(EMPTY)

    export_engine()
    assert export(tmp_path, {"m.onnx": ("classifier", b"one")})[1] == []
    assert manifest_beside(tmp_path / "m.trt").entry("m.trt").build.source == "m.int8.onnx"
    _, removed = export(tmp_path, {"m.onnx": ("classifier", b"one"), "m.int8.onnx": ("classifier", b"new 8")})
    assert [path.name for path in removed] == ["m.trt"]


def test_a_file_that_stays_where_it_is_is_not_copied(tmp_path):
    (tmp_path / "mine.onnx").write_bytes(b"mine")
    with Draft(tmp_path, "m.json") as here, Draft(tmp_path / "out", "m.json") as there:
        assert here.bring(tmp_path / "mine.onnx") == tmp_path / "mine.onnx"
        assert there.bring(tmp_path / "mine.onnx") == there.path("mine.onnx")


@pytest.mark.parametrize("content", ["{", "[1, 2]", '{"name": "mine"}', '{"format": 99}'])
def test_a_file_in_the_place_of_the_manifest_that_is_none_is_not_overwritten(tmp_path, content):
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(ModelError, match=r"m.json: it is not a manifest .*; move it away, or choose another --output"):
        Draft(tmp_path, "m.json").__enter__()
    assert names(tmp_path) == ["m.json"]
    assert (tmp_path / "m.json").read_text() == content


def test_files_that_were_made_for_other_noise_are_removed(tmp_path):
    export(tmp_path, FIRST)
    other = dataclasses.replace(EMPTY, noise=NoiseSettings("gaussian", NoiseKind.ISOTROPIC, 1.0))
    _, removed = export(tmp_path, {"m.onnx": ("classifier", b"one")}, manifest=other)
    assert sorted(path.name for path in removed) == ["m.int8.onnx", "m.noise.onnx"]
    assert [file.path for file in manifest_beside(tmp_path / "m.onnx").files] == ["m.onnx"]


def test_a_file_that_is_not_compared_again_keeps_its_parity_while_it_and_the_noise_are_the_same(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"one")
    other = dataclasses.replace(EMPTY, noise=NoiseSettings("gaussian", NoiseKind.ISOTROPIC, 1.0))
    for manifest, given, expected in ((EMPTY, PARITY, PARITY), (EMPTY, None, PARITY), (other, None, None)):
        with Draft(tmp_path, "m.json") as draft:
            draft.add("classifier", tmp_path / "m.onnx", parity=given)
            draft.publish(manifest)
        assert manifest_beside(tmp_path / "m.onnx").entry("m.onnx").parity == expected


def test_an_error_names_no_file_of_the_folder_that_is_gone(tmp_path):
    with pytest.raises(ModelError, match=r"^m\.onnx: it is wrong; mend it$"), Draft(tmp_path, "m.json") as draft:
        raise ModelError(draft.path("m.onnx"), "it is wrong", "mend it")


@pytest.mark.parametrize("named", [False, True])
def test_a_full_disk_is_said_of_the_folder(tmp_path, named):
    message = (
        rf"^{tmp_path}: its files cannot be written \(No space left on device\); free some space, or choose another"
    )
    with pytest.raises(RunError, match=message), Draft(tmp_path, "m.json") as draft:
        raise OSError(28, "No space left on device", *([str(draft.path("m.onnx"))] if named else []))
    assert names(tmp_path) == []


def test_a_termination_ends_an_export_as_an_interrupt_does(tmp_path):
    """In a process of its own: what it must not do would end the tests."""
    program = f"""
import signal
from pathlib import Path
from ars.export.draft import Draft

before = signal.getsignal(signal.SIGTERM)
try:
    with Draft(Path({str(tmp_path)!r}), "m.json") as draft:
        draft.path("m.onnx").write_text("half")
        signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGTERM) == before
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, names(tmp_path)) == ("interrupted\n", []), done.stderr


def test_a_folder_that_cannot_be_written_is_found_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ModelError, match=r"file/out: it cannot be written to \(Not a directory\); choose another --output"
    ):
        Draft(tmp_path / "file" / "out", "m.json").__enter__()


def test_a_folder_in_the_way_of_a_file_is_named(tmp_path):
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(ModelError, match=r"m.onnx: it cannot be written \(Is a directory\); move it away"):
        export(tmp_path, FIRST)
    assert names(tmp_path) == ["m.onnx"]


def test_a_folder_in_the_way_of_one_file_leaves_the_others_as_they_were(tmp_path):
    export(tmp_path, FIRST)
    (tmp_path / "m.noise.onnx").unlink()
    (tmp_path / "m.noise.onnx").mkdir()
    before = {path.name: path.is_dir() or path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ModelError, match=r"m.noise.onnx: it cannot be written \(Is a directory\); move it away"):
        export(tmp_path, {"m.onnx": ("classifier", b"two"), "m.noise.onnx": ("noise", b"n2")})
    assert {path.name: path.is_dir() or path.read_bytes() for path in tmp_path.iterdir()} == before


STOPPED = """
import os, shutil, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
from support.drafts import SECOND, export

calls = 0
def stop(function):
    def stopping(*given, **options):
        global calls
        calls += 1
        if calls == {at}:
            os.kill(os.getpid(), signal.{signal})
        return function(*given, **options)
    return stopping

for module, name in ((os, "replace"), (os, "rename"), (shutil, "rmtree"), (Path, "unlink")):
    setattr(module, name, stop(getattr(module, name)))
export(Path({folder!r}), SECOND)
"""


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_wherever_an_export_is_stopped_the_model_is_the_old_or_the_new_one(tmp_path, signal):
    """In processes of their own. Files are moved or removed in a handful of calls, and each is tried."""
    whole = {"old": FIRST, "new": SECOND}
    seen = set()
    for at in range(1, 9) if signal == "SIGKILL" else (1, 3):
        folder = tmp_path / str(at)
        export(folder, FIRST)
        program = STOPPED.format(path=[str(Path(__file__).parents[1])], at=at, signal=signal, folder=str(folder))
        subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False)
        manifest = manifest_beside(folder / "m.onnx")
        (state,) = [name for name, files in whole.items() if {file.path for file in manifest.files} == {*files}]
        seen.add(state)
        for name, (_, content) in whole[state].items():
            assert (folder / name).read_bytes() == content
            assert manifest_beside(folder / name) == manifest
        export(folder, SECOND)
        assert names(folder) == ["m.json", "m.noise.onnx", "m.onnx"]
    assert seen == ({"old", "new"} if signal == "SIGKILL" else {"new"})  # the others wait until it is done


def test_a_file_that_is_not_of_an_earlier_export_is_not_overwritten(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"mine")
    with pytest.raises(ModelError, match=r"m.onnx: it exists, and is not of an earlier export; .* or use --overwrite"):
        export(tmp_path, FIRST)
    assert names(tmp_path) == ["m.onnx"]
    with Draft(tmp_path, "m.json", overwrite=True) as draft:
        draft.path("m.onnx").write_bytes(b"two")
        draft.add("classifier", draft.path("m.onnx"))
        draft.publish(EMPTY)
    assert (tmp_path / "m.onnx").read_bytes() == b"two"


def test_an_onnx_file_of_the_user_is_never_removed(tmp_path):
    (tmp_path / "mine.onnx").write_bytes(b"mine")
    for listed in ("mine.onnx", "m.onnx"):
        with Draft(tmp_path, "m.json") as draft:
            if listed == "m.onnx":
                draft.path(listed).write_bytes(b"another")
            draft.add("classifier", tmp_path / listed if listed == "mine.onnx" else draft.path(listed))
            _, removed = draft.publish(EMPTY)
    assert removed == []
    assert (tmp_path / "mine.onnx").read_bytes() == b"mine"


def test_an_interrupted_export_in_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    export(tmp_path, FIRST)
    (tmp_path / ".m.json.journal").mkdir()
    (tmp_path / ".m.json.journal" / "journal.json").write_text('{"move": ["../m.onnx"], "remove": {}}')
    with pytest.raises(ModelError, match=r"an export of m.json was interrupted, and cannot be completed"):
        manifest_beside(tmp_path / "m.onnx")


@pytest.mark.parametrize("link", [".m.json.journal/out", "out"])
def test_an_interrupted_export_of_somebody_else_moves_nothing_out_of_its_folder_or_into_it(tmp_path, link):
    """Who reads the manifest completes the export, so a folder from elsewhere could say what is moved."""
    folder, journal = tmp_path / "folder", tmp_path / "folder" / ".m.json.journal"
    export(folder, FIRST)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "kept").write_text("mine")
    (journal / "out").mkdir(parents=True)
    (journal / "out" / "kept").write_text("theirs")
    if link == "out":
        (folder / link).symlink_to(tmp_path / "home")
    else:
        (journal / "out" / "kept").unlink()
        (journal / "out").rmdir()
        (folder / link).symlink_to(tmp_path / "home")
    (journal / "journal.json").write_text('{"move": ["out/kept"], "remove": {}}')
    with pytest.raises(ModelError, match=r"cannot be completed \('out/kept' is not inside its folder\)"):
        manifest_beside(folder / "m.onnx")
    assert (tmp_path / "home" / "kept").read_text() == "mine"


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"move": [3], "remove": {}}', "[]", '{"move": []}', "{", '{"a": NaN}']
)
def test_a_damaged_journal_is_one_sentence(tmp_path, content):
    export(tmp_path, FIRST)
    (tmp_path / ".m.json.journal").mkdir()
    (tmp_path / ".m.json.journal" / "journal.json").write_text(content)
    with pytest.raises(ModelError, match=r"an export of m.json was interrupted, and cannot be completed"):
        manifest_beside(tmp_path / "m.onnx")


def test_a_journal_that_is_a_pipe_does_not_hang(tmp_path):
    export(tmp_path, FIRST)
    (tmp_path / ".m.json.journal").mkdir()
    os.mkfifo(tmp_path / ".m.json.journal" / "journal.json")
    with pytest.raises(ModelError, match="it is not a regular file"):
        manifest_beside(tmp_path / "m.onnx")
