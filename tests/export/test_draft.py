"""The files under way: all or nothing, and never a mix of two models."""

import pytest

from ars.errors import ModelError
from ars.export.draft import Draft
from ars.manifest import EngineBuild, Manifest, NoiseSettings, Profile, manifest_beside
from ars.noise import NoiseKind

EMPTY = Manifest((4,), ("a", "b"), NoiseSettings("gaussian", NoiseKind.ISOTROPIC, 0.5), ())


def export(folder, files, precision="fp32"):
    """Publish files by name and content."""
    with Draft(folder) as draft:
        for name, (role, content) in files.items():
            draft.path(name).write_bytes(content)
            draft.add(role, draft.path(name), precision)
        return draft.publish("m.json", EMPTY)


FIRST = {"m.onnx": ("classifier", b"one"), "m.int8.onnx": ("classifier", b"one in 8"), "m.noise.onnx": ("noise", b"n")}


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
        with Draft(tmp_path) as draft:
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
    with Draft(tmp_path) as draft:
        draft.add("trained", tmp_path / "m.pt")
        draft.path("m.onnx").write_bytes(b"one")
        draft.add("classifier", draft.path("m.onnx"))
        draft.path("m.int8.onnx").write_bytes(b"one in 8")
        draft.add("classifier", draft.path("m.int8.onnx"), "int8")
        draft.publish("m.json", EMPTY)
    (tmp_path / "m.int8.onnx").write_bytes(b"made elsewhere")
    _, removed = export(tmp_path, {"m.onnx": ("classifier", b"two")})
    assert removed == []
    assert names(tmp_path) == ["m.int8.onnx", "m.json", "m.onnx", "m.pt"]


def test_an_engine_of_a_file_that_was_made_anew_is_removed(tmp_path):
    def export_engine():
        with Draft(tmp_path) as draft:
            for name, content in (("m.onnx", b"one"), ("m.int8.onnx", b"8"), ("m.trt", b"plan")):
                draft.path(name).write_bytes(content)
            draft.add("classifier", draft.path("m.onnx"))
            draft.add("classifier", draft.path("m.int8.onnx"), "int8")
            source = draft.files[-1].sha256
            build = EngineBuild("tensorrt", "11", ("8.6",), Profile(1, 2, 4), "m.int8.onnx", source)
            draft.add("engine", draft.path("m.trt"), "int8", build=build)
            draft.publish("m.json", EMPTY)

    export_engine()
    assert export(tmp_path, {"m.onnx": ("classifier", b"one")})[1] == []
    assert manifest_beside(tmp_path / "m.trt").entry("m.trt").build.source == "m.int8.onnx"
    _, removed = export(tmp_path, {"m.onnx": ("classifier", b"one"), "m.int8.onnx": ("classifier", b"new 8")})
    assert [path.name for path in removed] == ["m.trt"]


def test_a_file_that_stays_where_it_is_is_not_copied(tmp_path):
    (tmp_path / "mine.onnx").write_bytes(b"mine")
    with Draft(tmp_path) as here, Draft(tmp_path / "out") as there:
        assert here.bring(tmp_path / "mine.onnx") == tmp_path / "mine.onnx"
        assert there.bring(tmp_path / "mine.onnx") == there.path("mine.onnx")


def test_a_manifest_that_makes_no_sense_is_written_over(tmp_path):
    (tmp_path / "m.json").write_text("{")
    export(tmp_path, FIRST)
    assert manifest_beside(tmp_path / "m.onnx")


def test_a_folder_that_cannot_be_written_is_found_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ModelError, match=r"file/out: it cannot be written \(Not a directory\); choose another --output"
    ):
        Draft(tmp_path / "file" / "out").__enter__()


def test_a_folder_in_the_way_of_a_file_is_named(tmp_path):
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(ModelError, match=r"m.onnx: it cannot be written \(Is a directory\); move it away"):
        export(tmp_path, FIRST)
    assert names(tmp_path) == ["m.onnx"]
