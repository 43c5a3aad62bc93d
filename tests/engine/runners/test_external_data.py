"""Models with weights in files of their own: they load from the bytes that were hashed, from any working directory, or
they are refused with the name of the file."""

import hashlib
import importlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import models

from ars.data.pixels import file_sha256
from ars.engine.backends import load_generator, load_runner
from ars.engine.runners.onnxruntime import OnnxGenerator, OnnxRuntime
from ars.engine.runners.openvino import OpenVino, OpenVinoGenerator
from ars.errors import MissingPackage, ModelError
from ars.external_data import HashedModel, hash_model

every_runner = pytest.mark.parametrize("runner_of", [OnnxRuntime, OpenVino])
every_generator = pytest.mark.parametrize("generator_of", [OnnxGenerator, OpenVinoGenerator])
every_place = pytest.mark.parametrize("place", ["initializer", "constant", "subgraph", "function"])
X = np.random.default_rng(0).normal(0, 1, (10, 1, 4, 4)).astype(np.float32)
ROUNDED = 1e-5


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, in which nothing may be left when the test is over."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model in a folder of its own, and as working directory another folder, with other weights of the same name."""
    for name, seed in (("model", 0), ("decoy", 1)):
        (tmp_path / name).mkdir()
        models.external(tmp_path / name / "m.onnx", seed=seed)
    monkeypatch.chdir(tmp_path / "decoy")
    return tmp_path / "model" / "m.onnx"


def exact(seed=0):
    return X.reshape(10, 16) @ np.random.default_rng(seed).normal(0, 1, (16, 3)).astype(np.float32)


@every_runner
@every_place
def test_weights_beside_the_model_are_loaded_from_any_working_directory(model, monkeypatch, runner_of, place):
    models.external(model, place=place)
    if (runner_of, place) == (OpenVino, "function"):
        with pytest.raises(ModelError, match="No conversion rule found for operations: own"):
            runner_of(model)
        return
    for folder in (model.parent, model.parent.parent, Path("/"), model.parent.parent / "decoy"):
        monkeypatch.chdir(folder)
        for path in (model, Path(os.path.relpath(model))):
            runner = runner_of(path)
            np.testing.assert_allclose(runner.run(X), exact(), atol=ROUNDED)
            assert runner.sha256 == hash_model(model).sha256


@every_runner
@pytest.mark.parametrize("location", ["deep/er/weights.data", "./weights.data", "a b.é", "model.onnx", "m.onnx.data"])
@pytest.mark.parametrize(("offset", "length"), [(None, None), (4096, 192), (8, None)])
def test_plain_paths_and_offsets(model, runner_of, location, offset, length):
    models.external(model, location, offset=offset, length=length)
    np.testing.assert_allclose(runner_of(model).run(X), exact(), atol=ROUNDED)


@every_generator
def test_a_noise_generator_may_have_external_data(model, generator_of):
    path = models.generator(model.with_name("g.onnx"))
    mean, scale = generator_of(path)(X[0])
    before = hash_model(path)
    generator = generator_of(models.move_weights(path, "g.data"))
    assert [array.tolist() for array in generator(X[0])] == [mean.tolist(), scale.tolist()]
    assert generator.sha256 == hash_model(path).sha256 != before.sha256
    assert load_generator(path).sha256 == generator.sha256


def test_the_hash_is_the_one_that_is_documented(model):
    plain = models.linear(model.with_name("plain.onnx"))
    assert hash_model(plain).sha256 == file_sha256(plain) == load_runner(plain).sha256
    (listed,) = hash_model(model).external
    assert (listed.path, listed.sha256) == ("weights.data", file_sha256(model.with_name("weights.data")))
    text = f'\0ARS: a model with external data\n{file_sha256(model)}\n{listed.sha256} "weights.data"\n'
    assert hash_model(model).sha256 == hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(Exception, match="Error parsing"):
        onnx.ModelProto.FromString(text.encode())


def test_the_hash_covers_every_byte_and_every_name(model):
    hashes = {hash_model(model).sha256}
    data = model.with_name("weights.data")
    content = bytearray(data.read_bytes())
    for position in (0, len(content) - 1):
        content[position] ^= 1
        data.write_bytes(content)
        hashes.add(hash_model(model).sha256)
    data.write_bytes(content + b"more")
    hashes.add(hash_model(model).sha256)
    models.external(model, "other.data")
    hashes.add(hash_model(model).sha256)
    assert len(hashes) == 5


def everywhere():
    """A model that names a file in every part of ONNX that can hold a tensor."""

    def tensor(name):
        made = TensorProto(data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
        made.external_data.add(key="location", value=name)
        return made

    def fill(graph, name):
        graph.initializer.append(tensor(f"{name}-initializer"))
        sparse = graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor(f"{name}-values"))
        sparse.indices.CopyFrom(tensor(f"{name}-indices"))
        node = graph.node.add(op_type="Constant")
        attributes = [node.attribute.add(name=str(number)) for number in range(4)]
        attributes[0].t.CopyFrom(tensor(f"{name}-t"))
        attributes[1].tensors.append(tensor(f"{name}-tensors"))
        attributes[2].sparse_tensor.values.CopyFrom(tensor(f"{name}-sparse-t"))
        attributes[3].sparse_tensors.add().values.CopyFrom(tensor(f"{name}-sparse-tensors"))
        return node

    model = onnx.ModelProto()
    node = fill(model.graph, "graph")
    fill(node.attribute.add(name="then_branch").g, "then")
    loop = fill(node.attribute.add(name="branches").graphs.add(), "branches")
    fill(loop.attribute.add(name="body").g, "deep")
    function = model.functions.add(name="f")
    fill(function.node.add(op_type="If").attribute.add(name="then_branch").g, "function")
    function.attribute_proto.add(name="default").t.CopyFrom(tensor("function-default"))
    training = model.training_info.add()
    fill(training.initialization, "training")
    fill(training.algorithm, "algorithm")
    return model


def test_every_tensor_of_a_model_is_found(tmp_path):
    model = everywhere()
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="there is no such file"):
        hash_model(tmp_path / "m.onnx")
    graphs = ("graph", "then", "branches", "deep", "function", "training", "algorithm")
    kinds = ("initializer", "values", "indices", "t", "tensors", "sparse-t", "sparse-tensors")
    names = {f"{graph}-{kind}" for graph in graphs for kind in kinds} | {"function-default"}
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    assert {file.path for file in hash_model(tmp_path / "m.onnx").external} == names
    assert model.SerializeToString().count(b"location") == len(names)


@every_runner
def test_a_file_that_is_swapped_after_it_was_hashed_changes_nothing(model, monkeypatch, runner_of, temporary):
    library_opens = runner_of.open

    def swap(self, hashed):
        copies = [path for path in temporary.rglob("*") if path.is_file()]
        assert sorted(path.name for path in copies) == ["model.onnx", "weights.data"]
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in temporary.iterdir()} == {0o700}
        models.external(model, seed=2)
        return library_opens(self, hashed)

    monkeypatch.setattr(runner_of, "open", swap)
    before = hash_model(model)
    runner = runner_of(model)
    assert runner.sha256 == before.sha256 != hash_model(model).sha256
    assert list(temporary.iterdir()) == []
    np.testing.assert_allclose(runner.run(X), exact(), atol=ROUNDED)


@every_runner
def test_a_model_runs_when_its_files_are_gone(tmp_path, runner_of):
    """Libraries map large files into memory, and must not read them again by name."""
    path = models.resnet(tmp_path / "m.onnx", shape=(1, 4, 4))
    expected = runner_of(path).run(X)
    runner = runner_of(models.move_weights(path, "m.data"))
    path.unlink()
    (tmp_path / "m.data").unlink()
    assert np.array_equal(runner.run(X), expected)


BAD_LOCATIONS = [
    "",
    ".",
    "..",
    "../decoy/weights.data",
    "deep/../../decoy/weights.data",
    "/etc/hostname",
    "//etc/hostname",
    "weights.data\0",
    "weights\n.data",
    "..\\decoy\\weights.data",
    "file:weights.data",
    "*/_ORT_MEM_ADDR_/*",
    "*/_ORT_LITTLE_ENDIAN_MEM_ADDR_/*",
]


@every_runner
@pytest.mark.parametrize("location", BAD_LOCATIONS)
def test_a_location_that_is_not_a_plain_path_in_the_folder_is_refused(model, runner_of, location):
    model.write_bytes(models.external_model(location).SerializeToString())
    (model.parent / "deep").mkdir()
    expected = f"m.onnx: its tensor 'W' is in {location!r}, which is not a plain path inside the model's folder; export"
    with pytest.raises(ModelError) as refused:
        runner_of(model)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_address_in_memory_is_refused_even_if_there_is_a_file_of_that_name(model):
    """OpenVINO takes the offset for an address in memory, and would read what no hash covers."""
    memory = np.full((16, 3), 7, np.float32)
    location = "*/_ORT_MEM_ADDR_/*"
    made = models.external_model(location, offset=memory.ctypes.data, length=memory.nbytes)
    model.write_bytes(made.SerializeToString())
    data = model.parent / location
    data.parent.mkdir(parents=True)
    data.write_bytes(bytes(memory.nbytes))
    import openvino

    compiled = openvino.Core().compile_model(openvino.Core().read_model(model.read_bytes()), "CPU")
    assert compiled([np.ones((1, 1, 4, 4), np.float32)])[0].tolist() == [[112, 112, 112]]
    with pytest.raises(ModelError, match="which is not a plain path"):
        OpenVino(model)


def test_bytes_that_are_not_text_are_refused(model):
    model.write_bytes(model.read_bytes().replace(b"weights.data", b"weight\xff.data"))
    with pytest.raises(ModelError, match="which is not a plain path"):
        hash_model(model)


def test_entries_that_two_readers_may_read_differently_are_refused(model):
    for key, entry in (("location", "other.data"), ("offset", "0"), ("length", "192"), ("prepacked_0", "W|0;192")):
        made = models.external_model("weights.data", offset=0, length=192)
        made.graph.initializer[0].external_data.add(key=key, value=entry)
        model.write_bytes(made.SerializeToString())
        with pytest.raises(
            ModelError, match=r"m.onnx: its tensor 'W' does not say clearly which part of '.*data' it is"
        ):
            hash_model(model)
    for offset in ("-1", "0x10", "1e3", " 1", "9" * 30, "١"):
        model.write_bytes(models.external_model("weights.data", offset=offset).SerializeToString())
        with pytest.raises(ModelError, match="does not say clearly which part"):
            hash_model(model)


def missing(data):
    data.unlink()
    return "there is no such file; keep the files of a model together"


def too_short(data):
    data.write_bytes(data.read_bytes()[:-1])
    return "it has 191 bytes, but m.onnx has weights up to byte 192 of it; keep the files of a model together"


def folder(data):
    data.unlink()
    data.mkdir()
    return "it should hold weights of m.onnx, but is not a regular file; put a file there"


def pipe(data):
    data.unlink()
    os.mkfifo(data)
    return "it should hold weights of m.onnx, but is not a regular file; put a file there"


def link_outside(data):
    data.unlink()
    data.symlink_to("../decoy/weights.data")
    return "it should hold weights of m.onnx, but is a link to /"


def device(data):
    data.unlink()
    data.symlink_to("/dev/zero")
    return "is a link to /dev/zero, outside the model's folder; put the file itself there"


def loop(data):
    data.unlink()
    data.symlink_to(data.name)
    return "it should hold weights of m.onnx, but cannot be read ("


def inside_a_file(data):
    data.unlink()
    data.symlink_to("m.onnx/weights.data")
    return "it should hold weights of m.onnx, but cannot be read ("


@every_runner
@pytest.mark.parametrize("spoil", [missing, too_short, folder, pipe, link_outside, device, loop, inside_a_file])
def test_a_file_that_cannot_be_a_models_is_refused_with_its_name(model, runner_of, spoil):
    models.external(model, length=192)
    data = model.with_name("weights.data")
    expected = spoil(data)
    for use in (runner_of, hash_model):
        with pytest.raises(ModelError) as refused:
            use(model)
        assert str(refused.value).startswith(f"{data}: ")
        assert expected in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_link_within_the_folder_is_followed(model):
    data = model.with_name("weights.data")
    data.rename(model.with_name("blob"))
    data.symlink_to("blob")
    np.testing.assert_allclose(OnnxRuntime(model).run(X), exact(), atol=ROUNDED)


def test_no_room_for_the_copies_is_one_sentence(model, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    expected = r"m.onnx: its external data cannot be copied to /no/such/folder \(No such file"
    with pytest.raises(ModelError, match=expected):
        OnnxRuntime(model)


@every_runner
def test_a_model_that_only_mentions_a_location_keeps_its_hash(tmp_path, runner_of):
    nodes = [
        helper.make_node("Flatten", ["x"], ["location"]),
        helper.make_node("MatMul", ["location", "W"], ["logits"]),
    ]
    inputs, outputs = [models.value("x", "n", 1, 4, 4)], [models.value("logits", "n", 3)]
    weights = [("W", np.eye(16, 3, dtype=np.float32))]
    path = models.save(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    runner = runner_of(path)
    assert (runner.sha256, runner.external) == (file_sha256(path), ())
    assert np.array_equal(runner.run(X), X.reshape(10, 16)[:, :3])
    without_suffix = path.rename(tmp_path / "m")
    assert np.array_equal(runner_of(without_suffix).run(X), X.reshape(10, 16)[:, :3])


@every_runner
def test_content_that_may_name_files_but_is_not_onnx_never_reaches_a_library(tmp_path, runner_of):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\0location")
    assert hash_model(path).sha256 == file_sha256(path)
    with pytest.raises(ModelError, match="it is not an ONNX model"):
        runner_of(path)
    with pytest.raises(ModelError, match="it is not an ONNX model"):
        HashedModel(path).onnx_source()


def test_other_kinds_of_models_are_not_searched_for_external_data(tmp_path):
    model = models.external(tmp_path / "m.onnx")
    for name in ("m.pt", "m.trt", "m.engine", "m.plan"):
        path = tmp_path / name
        path.write_bytes(model.read_bytes())
        assert hash_model(path).sha256 == HashedModel(path).hash.sha256 == file_sha256(path)


def test_onnx_is_needed_only_for_external_data(tmp_path):
    models.linear(tmp_path / "plain.onnx")
    program = "\n".join(
        [
            "import sys; sys.modules['onnx'] = None",
            "from pathlib import Path",
            "from ars.engine.backends import load_runner",
            "for backend in ('onnxruntime', 'openvino'): load_runner(Path('plain.onnx'), backend)",
        ]
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_without_onnx_a_model_with_external_data_is_refused_with_the_install_line(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackage, match=r"onnx is not installed; run `.*cpu"):
        OnnxRuntime(model)


@pytest.mark.filterwarnings("ignore:.* has values from")  # they are not images
def test_gpu_sessions_load_the_copies(model, machine, temporary):
    """Sessions on a GPU are made when the lanes are, so the copies stay until the runner goes."""
    import ars

    expected = json.dumps(ars.load(model, sigma=0.5, seed=1, batch=64).certify(X[0], n=200, n0=10, input_id=0).counts)
    assert list(temporary.iterdir()) == []
    with ars.load(model, sigma=0.5, seed=1, batch=64, device="cuda:0") as classifier:
        assert classifier.runner.name == "onnxruntime-gpu"
        models.external(model, seed=3)
        assert json.dumps(classifier.certify(X[0], n=200, n0=10, input_id=0).counts) == expected
    with pytest.raises(ModelError, match="it changed since it was first loaded; load it again"):
        classifier.certify(X[0], n=200, n0=10)
    classifier.close()
    del classifier


@pytest.mark.slow
@every_runner
def test_a_model_of_more_than_2_gb_runs(tmp_path, runner_of):
    """logits = flatten(x) U V with one column of U and one row of V that are not zero, at the ends of the tensors. The
    file is sparse, so it takes hardly any room; its copy takes 2.3 GB."""
    inner, path, data = 30_000_000, tmp_path / "m.onnx", tmp_path / "m.data"
    shapes = {"U": (16, inner), "V": (inner, 3)}
    column, row = np.arange(1, 17, dtype=np.float32), np.array([3, -1, 2], np.float32)
    tensors, offset = [], 0
    for name, shape in shapes.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        length = 4 * shape[0] * shape[1]
        for key, entry in (("location", data.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(entry))
        tensors.append(tensor)
        offset += length
    assert offset > 2**31
    with data.open("wb") as file:
        file.truncate(offset)
        for number, value in enumerate(column):
            file.seek(4 * ((number + 1) * inner - 1))
            file.write(value.tobytes())
        file.seek(offset - row.nbytes)
        file.write(row.tobytes())
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "U"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "V"], ["logits"]),
    ]
    inputs, outputs = [models.value("x", "n", 1, 4, 4)], [models.value("logits", "n", 3)]
    graph = helper.make_graph(nodes, "large", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    runner = runner_of(path)
    np.testing.assert_allclose(runner.run(X[:1]), np.outer(X[:1].reshape(1, 16) @ column, row), rtol=1e-4)
    assert runner.sha256 == hash_model(path).sha256


def test_a_model_that_changes_while_several_sessions_read_it_is_refused(model, machine, monkeypatch):
    """On two GPUs each has a runner that reads the files, and so does onnxruntime-gpu's session on the CPU."""
    import ars

    cuda = importlib.import_module("ars.engine.devices.cuda")
    onnxruntime_gpu = importlib.import_module("ars.engine.runners.onnxruntime_gpu")
    machine.reset(gpus=2)
    load, problem = cuda.load_gpu_runner, "m.onnx: it changed while it was being read; start again when it is complete"

    def load_another(path, gpu, backend):
        models.external(model, seed=gpu.number)
        return load(path, gpu, backend)

    monkeypatch.setattr(cuda, "load_gpu_runner", load_another)
    with pytest.raises(ModelError, match=problem):
        ars.load(model, sigma=0.5, device="cuda:0,cuda:1")
    monkeypatch.setattr(cuda, "load_gpu_runner", load)
    monkeypatch.setattr(onnxruntime_gpu, "OnnxRuntime", lambda path: OnnxRuntime(models.external(path, seed=5)))
    with pytest.raises(ModelError, match=problem):
        ars.load(model, sigma=0.5, device="cuda:0")
