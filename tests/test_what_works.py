"""Every row of docs/what-works.md, run as it stands there, on files that the libraries themselves make."""

import csv
import io
import json
import pickle
import shlex
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from onnx import TensorProto, helper
from PIL import Image
from support import models
from support.field_networks import cifar_resnet
from support.modules import Bessel
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ars
from ars.engine.cli import main as engine
from ars.export.cli import main as export

PAGE = Path(__file__).parents[1] / "docs" / "what-works.md"
BEHIND = {
    "ars-export": "--sigma 0.25 --calibration images.npz --tensorrt off",
    "ars-engine": "--engine mine.onnx --sigma 0.25 --n 200 --batch 32",
}
SHAPE = (3, 32, 32)
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]


def rows():
    """What is typed, and what comes out, of every row of the page."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[-1].startswith("`") and cells[-2].startswith("`"):
            yield cells[-2].strip("`"), cells[-1].strip("`")


class Logits(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(3072, 3)

    def forward(self, x):
        return self.head(x.flatten(1))


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_torch_models(folder):
    torch.manual_seed(0)
    field = nn.Sequential(nn.Identity(), cifar_resnet(20, classes=3))
    torch.save({"arch": "cifar_resnet20", "state_dict": field.state_dict()}, folder / "checkpoint.pth.tar")
    from safetensors.torch import save_file

    from ars.train.classifiers import Normalize, make_classifier

    ours = make_classifier("resnet20", SHAPE, 3, Normalize((0.0,) * 3, (1.0,) * 3))
    save_file(ours.state_dict(), folder / "weights.safetensors")
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.trace(Logits(), torch.zeros(2, *SHAPE)), folder / "script.pt")
    batch = ({0: torch.export.Dim("n")},)
    torch.export.save(
        torch.export.export(Logits(), (torch.zeros(2, *SHAPE),), dynamic_shapes=batch), folder / "program.pt2"
    )


def write_onnx_models(folder):
    import skl2onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.svm import LinearSVC

    features, species = RNG.normal(0, 1, (80, 6)).astype(np.float32), np.arange(80) % 3
    features[:, 0] += 3 * species
    forest = RandomForestClassifier(5, random_state=0).fit(features, species)
    onnx.save(skl2onnx.to_onnx(forest, features[:1]), folder / "forest.onnx")
    onnx.save(skl2onnx.to_onnx(LinearSVC().fit(features, species), features[:1]), folder / "svm.onnx")
    np.savez(folder / "features.npz", features=features, species=species)
    models.linear(folder / "mine.onnx", SHAPE)
    models.linear(folder / "grey.onnx", (1, 32, 32))

    flat, dense = helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "W"], ["z"])
    image, z = models.value("x", "n", *SHAPE), models.value("z", "n", 3)
    weights = [("W", RNG.normal(0, 1, (3072, 3)).astype(np.float32))]
    label = helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0)
    first = models.value("label", "n", kind=TensorProto.INT64)
    models.save(folder / "label.onnx", [flat, dense, label], [image], [first, z], weights)
    softmax, p = helper.make_node("Softmax", ["z"], ["p"]), models.value("p", "n", 3)
    maps = helper.make_node("Reshape", ["flat", "S"], ["maps"])
    several = [models.value("maps", "n", 3, 1024), z, p]
    size = ("S", np.array([-1, 3, 1024]))
    models.save(folder / "several.onnx", [flat, maps, dense, softmax], [image], several, [*weights, size])
    single = [("W", RNG.normal(0, 1, (3072, 1)).astype(np.float32))]
    models.save(folder / "binary.onnx", [flat, dense], [image], [models.value("z", "n", 1)], single)
    cast = helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT)
    flat_bytes = helper.make_node("Flatten", ["f"], ["flat"])
    image_bytes = models.value("x", "n", 32, 32, 3, kind=TensorProto.UINT8)
    scaled = [("W", weights[0][1] / 255)]
    models.save(folder / "bytes.onnx", [cast, flat_bytes, dense], [image_bytes], [z], scaled)
    pool = helper.make_node("GlobalAveragePool", ["x"], ["pooled"])
    convolution = helper.make_node("Conv", ["pooled", "K"], ["z"])
    kernel = [("K", RNG.normal(0, 1, (3, 3, 1, 1)).astype(np.float32))]
    any_size, out = models.value("x", "n", 3, "h", "w"), models.value("z", "n", 3, 1, 1)
    models.save(folder / "anysize.onnx", [pool, convolution], [any_size], [out], kernel)


def write_data(folder):
    x = PIXELS.transpose(0, 3, 1, 2)
    np.savez(folder / "images.npz", x=RNG.random((40, *SHAPE), dtype=np.float32), y=np.arange(40) % 3)
    np.savez(folder / "two.npz", x=RNG.random((40, *SHAPE), dtype=np.float32), y=np.arange(40) % 2)
    np.savez(folder / "keras.npz", x_train=PIXELS[:2], y_train=LABELS[:2], x_test=PIXELS, y_test=LABELS)
    np.savez(folder / "normalised.npz", x=(x / 255 - 0.5) / 0.25, y=LABELS)
    np.savez(folder / "wrong.npz", x=x, y=[7] * 6)
    np.save(folder / "x_test.npy", PIXELS)
    np.save(folder / "y_test.npy", LABELS)
    for name, batch, meta, key in (
        ("cifar-10-batches-py", "test_batch", "batches.meta", "label"),
        ("cifar-100-python", "test", "meta", "fine_label"),
    ):
        (folder / name).mkdir()
        (folder / name / batch).write_bytes(pickle.dumps({"data": x.reshape(6, -1), f"{key}s": LABELS}))
        (folder / name / meta).write_bytes(pickle.dumps({f"{key}_names": ["cat", "dog", "frog"]}))
    (folder / "evil").mkdir()
    (folder / "evil" / "test_batch").write_bytes(b"\x80\x02cposix\nsystem\n(S'touch executed'\ntR.")
    write_folders(folder)
    write_parquet(folder)
    (folder / "MNIST" / "raw").mkdir(parents=True)
    for name, values in (("images-idx3", PIXELS[:, :, :, 0]), ("labels-idx1", np.array(LABELS, np.uint8))):
        head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
        (folder / "MNIST" / "raw" / f"t10k-{name}-ubyte").write_bytes(head + values.tobytes())


def write_folders(folder):
    (folder / "flat").mkdir()
    with (folder / "flat" / "labels.csv").open("w") as file:
        csv.writer(file).writerows([["file", "label"], *([f"{number}.png", LABELS[number]] for number in range(6))])
    with (
        zipfile.ZipFile(folder / "folders.zip", "w") as archive,
        tarfile.open(folder / "folders.tar.gz", "w:gz") as tar,
    ):
        for number, pixels in enumerate(PIXELS):
            (folder / "flat" / f"{number}.png").write_bytes(png(pixels))
            name, content = f"class{LABELS[number]}/{number}.png", png(pixels)
            archive.writestr(name, content)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    for number, name in enumerate(("cat", "dog")):
        (folder / "two" / name).mkdir(parents=True)
        (folder / "two" / name / "0.png").write_bytes(png(PIXELS[number]))


def write_parquet(folder):
    import pyarrow
    from pyarrow import parquet

    cells = [{"bytes": png(pixels), "path": f"{number}.png"} for number, pixels in enumerate(PIXELS)]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    table = pyarrow.table({"img": pyarrow.array(cells, kind), "label": pyarrow.array(LABELS)})
    features = {"label": {"names": ["cat", "dog", "frog"], "_type": "ClassLabel"}, "img": {"_type": "Image"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    (folder / "hub").mkdir()
    parquet.write_table(table.replace_schema_metadata(metadata), folder / "hub" / "test-00000-of-00001.parquet")
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": [0, 1]}), folder / "text.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("works")
    write_torch_models(made)
    write_onnx_models(made)
    write_data(made)
    return made


@pytest.fixture(scope="module")
def names():
    """What the rows in Python speak of."""
    inputs, labels = torch.rand(40, *SHAPE, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3
    weights = RNG.normal(0, 1, (3072, 3)).astype(np.float32)
    bessel = Bessel()
    bessel.head = nn.Linear(3072, 3)
    with warnings.catch_warnings(action="ignore"):
        traced = torch.jit.trace(Logits(), inputs[:2])
    return {
        "ars": ars,
        "x": inputs[0],
        "X": inputs,
        "Y": labels,
        "loader": DataLoader(TensorDataset(inputs, labels), batch_size=8),
        "module": Logits(),
        "traced": traced,
        "bessel": bessel,
        "function": lambda rows: rows.reshape(len(rows), -1) @ weights,
        "short": lambda rows: (rows.reshape(len(rows), -1) @ weights)[:1],
        "nan": lambda rows: np.full((len(rows), 3), np.nan),
    }


def run(command, names):
    """What a command prints, or what a line of Python returns or raises."""
    program, *given = shlex.split(command)
    if program not in BEHIND:
        try:
            return str(eval(command, names))  # the page is ours
        except ars.ArsError as error:
            return str(error)
    # An option of the row comes last, and so before that of all rows.
    first = given[:1] if program == "ars-engine" else []
    main = engine if program == "ars-engine" else export
    result = CliRunner().invoke(main, [*first, *shlex.split(BEHIND[program]), *given[len(first) :]])
    assert result.exit_code in (0, 2), result.output
    return result.output


def test_the_page_says_what_comes_behind_each_command():
    for options in BEHIND.values():
        assert f"comes `{options}`" in PAGE.read_text()
    assert len(list(rows())) > 35


@pytest.mark.parametrize(("command", "expected"), list(rows()))
def test_each_row_gives_what_the_page_says(command, expected, folder, names, monkeypatch):
    monkeypatch.chdir(folder)
    assert expected in run(command, names)
    assert not Path("executed").exists()
