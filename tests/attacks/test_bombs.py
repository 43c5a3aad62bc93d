"""Small files that ask for gigabytes, or for hours. Each is refused before anything of that size is allocated."""

import gzip
import io
import json
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from ars.bench.run.result_file import read_result
from ars.data import ImageSize, memory, open_data, parse_ranges, select
from ars.data.pixels import to_pixels
from ars.errors import ArgumentError, DataError, FileError, ModelError
from ars.manifest import Manifest
from ars.train.weights import read_torch_file

MB = 2**20


@pytest.fixture(autouse=True)
def _within_64_mb():
    """Fails a test that allocates more than that."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * MB


@pytest.fixture
def _little_is_allowed(monkeypatch):
    """Content of a megabyte counts as a gigabyte does for users."""
    monkeypatch.setattr(memory, "ALWAYS_ALLOWED", MB)


def refuse(path, message, size=None):
    tracemalloc.reset_peak()  # writing the file does not count
    with pytest.raises(DataError, match=message) as caught:
        _ = open_data(str(path), size)[0]
    assert "\n" not in str(caught.value)


def header(shape, descr="|u1"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


# ---- arrays


@pytest.mark.usefixtures("_little_is_allowed")
def test_an_npz_that_unpacks_to_far_more_than_images_do(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((20, 1000, 1000), np.uint8), y=np.zeros(20, np.int64))
    refuse(tmp_path / "a.npz", r"its array x unpacks from 19.* kB to 20 MB, far more than images do; do not use")


@pytest.mark.usefixtures("_little_is_allowed")
def test_arrays_that_were_not_asked_for_are_not_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.ones((2, 1, 4, 4)), y=np.arange(2), z=np.zeros(20 * MB, np.uint8))
    assert open_data(str(tmp_path / "a.npz"))[1].label == 1


@pytest.mark.parametrize("shape", [(10**10, 3), (2**32, 2**32, 2), (-4, -4), (2**63, 0), ("1, " * 2000 + "1",)])
def test_headers_that_declare_more_than_there_is(tmp_path, shape):
    text = f"({shape[0]})" if isinstance(shape[0], str) else str(shape)
    array = header(text) + bytes(16)
    (tmp_path / "a.npy").write_bytes(array)
    refuse(tmp_path / "a.npy", "it cannot be read|has the shape")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", array)
    refuse(tmp_path / "a.npz", "it cannot be read|has the shape")


@pytest.mark.parametrize(
    "text", ["(" * 500, "{'descr': [[[", "{" * 3000, "\0", "{'descr': 'O', 'fortran_order': 0, 'shape': ()}"]
)
def test_headers_that_are_none(tmp_path, text):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
    refuse(tmp_path / "a.npy", "it cannot be read")


def test_an_input_of_too_many_values():
    one = np.broadcast_to(np.uint8(0), (3, 20_000, 20_000))
    with pytest.raises(DataError, match=r"has 1,200,000,000 values; an input may have at most 134,217,728"):
        to_pixels(one, "a.npz")


def test_a_file_with_a_hole_that_is_larger_than_the_memory(tmp_path, monkeypatch):
    shape = (2**36, 16)
    with (tmp_path / "a.npy").open("wb") as file:
        file.write(header(shape))
        file.truncate(file.tell() + 2**40)
    refuse(tmp_path / "a.npy", r"it has 1,099,511,\d+,\d+ bytes, nearly all of them holes; give a whole file")
    monkeypatch.setattr("ars.regular._is_hollow", lambda *_: False)  # a file system that does not tell
    refuse(tmp_path / "a.npy", r"it has 1.1 TB, and this machine has .* GB of memory")


# ---- idx and archives


def test_sizes_in_an_idx_header_whose_product_wraps_around(tmp_path):
    """2^32 - 1 images of 2^32 - 1 rows have a product that is small modulo 2^64."""
    content = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**16, 2**24, 2**24)
    for name, data in (("a-idx3-ubyte", content), ("a-idx3-ubyte.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(data)
        refuse(tmp_path / name, "does not match the shape|far more than images do")


@pytest.mark.usefixtures("_little_is_allowed")
def test_a_gz_or_a_compressed_tar_that_unpacks_to_far_more(tmp_path):
    zeros = bytes(4 * MB)
    (tmp_path / "a-idx3-ubyte.gz").write_bytes(
        gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">3I", 4, 1024, 1024) + zeros)
    )
    refuse(tmp_path / "a-idx3-ubyte.gz", "it unpacks from .* to 4.19 MB")
    for kind in ("gz", "bz2", "xz"):
        with tarfile.open(tmp_path / f"a.tar.{kind}", f"w:{kind}") as archive:
            for name in ("cat/readme.txt", "cat/0.png"):
                info = tarfile.TarInfo(name)
                info.size = len(zeros)
                archive.addfile(info, io.BytesIO(zeros))
        refuse(tmp_path / f"a.tar.{kind}", "it unpacks from .*far more than images do")


@pytest.mark.usefixtures("_little_is_allowed")
def test_rows_of_a_parquet_that_take_no_space(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    image = io.BytesIO()
    Image.effect_noise((60, 60), 90).save(image, "PNG")
    for rows, message in ((10_000, None), (50_000, "its list of rows unpacks from")):
        images = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int32)), [image.getvalue()])
        table = arrow.table({"image": images, "label": arrow.array(np.zeros(rows, np.int8))})
        parquet.write_table(table, tmp_path / "a.parquet", store_schema=False)
        before = arrow.total_allocated_bytes()
        if message:
            refuse(tmp_path / "a.parquet", message)
            continue
        data = open_data(str(tmp_path / "a.parquet"))
        assert data[rows - 1].x.shape == (1, 60, 60)
        assert arrow.total_allocated_bytes() - before < 16 * MB


# ---- pickles


def test_pickles_that_ask_for_memory(tmp_path):
    (tmp_path / "meta").write_bytes(pickle.dumps({}))
    numbered = b"\x80\x02}r" + struct.pack("<I", 2**31 - 1) + b"."  # the empty dictionary is object 2^31 - 1
    counted = b"\x80\x02]" + b"]a" * 1_500_000 + b"."
    array = b"\x80\x02}U\x04datacnumpy\nndarray\n)R(K\x01K\x00cnumpy\ndtype\nU\x02u1\x85RNJ\xff\xff\xff\x7ftbs."
    for content in (numbered, counted, array):
        (tmp_path / "test").write_bytes(content)
        refuse(tmp_path / "test", "it has more objects than a batch|not made of bytes")


# ---- images


def tiny_png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    start = chunk(b"IHDR", struct.pack(">2I5B", width, height, 1, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(bytes(height * (1 + (width + 7) // 8)), 9)) if height < 10 else b""
    return b"\x89PNG\r\n\x1a\n" + start + rows + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("sides", "size", "message"),
    [
        ((10_000, 10_000), ImageSize(), "it has 10000 x 10000 pixels, more than 67,108,864"),
        ((50_000, 1), ImageSize(resize=224), "its 50000 x 1 pixels would become 11200000 x 224, more than"),
    ],
)
def test_images_of_too_many_pixels(tmp_path, sides, size, message):
    (tmp_path / "a.png").write_bytes(tiny_png(*sides))
    refuse(tmp_path / "a.png", message, size)


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(touched) (w) file closefile showpage\n"


@pytest.mark.parametrize("name", ["eps", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "PPM", "ICO", "TGA", "PCX"])
def test_another_format_with_the_name_of_a_png(tmp_path, name, monkeypatch):
    """Pillow starts Ghostscript for an EPS file, whatever its name."""
    monkeypatch.setattr(subprocess, "check_call", lambda *_, **__: pytest.fail("a program was started"))
    if name == "eps":
        (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    else:
        Image.new("RGB", (32, 32)).save(tmp_path / "a.png", name)
    refuse(tmp_path / "a.png", "a.png: it is neither a PNG nor a JPEG image; replace it")


# ---- torch


def test_tensors_and_lists_that_are_far_larger_than_the_file(tmp_path):
    torch.save({"x": torch.zeros(1).expand(10**9)}, tmp_path / "strides.pt")
    shared: object = 1
    for _ in range(60):
        shared = [shared] * 2
    torch.save({"training": shared}, tmp_path / "lists.pt")
    own: list[object] = []
    own.append(own)
    torch.save(own, tmp_path / "itself.pt")
    with zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps({}))
        archive.writestr("a/data/0", bytes(MB))
    for name, message in (
        ("strides.pt", r"it has a tensor of \(1000000000,\) that repeats its values"),
        ("lists.pt", "it has more than 10,000,000 values beside its tensors"),
        ("itself.pt", "it has more than 10,000,000 values"),
        ("packed.pt", "it unpacks to more than its .* bytes"),
    ):
        with pytest.raises(ModelError, match=message):
            read_torch_file(tmp_path / name)


# ---- numbers of inputs, and JSON


def test_ranges_of_inputs_are_not_written_out():
    assert parse_ranges("0-4294967295", 2**32) == [range(2**32)]
    assert select(2**32, only="0-4294967295/1", end=3) == [0, 1, 2]
    assert select(2**40, limit=2) == [0, 1]
    for more in ({}, {"only": "0-1099511627775"}, {"shard": "1/3"}):
        with pytest.raises(ArgumentError, match="a run has at most 16,777,216 inputs"):
            select(2**40, **more)


MANIFEST = {
    "format": 1,
    "shape": [1, 4, 4],
    "classes": ["a", "b"],
    "noise": {"family": "gaussian", "kind": "isotropic", "sigma0": 0.5},
    "files": [{"role": "classifier", "path": "a.onnx", "sha256": "00"}],
}
PARITY = dict.fromkeys(("inputs", "draws", "largest_difference", "agreement", "certified_accuracy_difference"), 1)


def with_parity(**values):
    file = MANIFEST["files"][0] | {"parity": {"reference": "torch", "runner": "o", **PARITY, **values}}
    return json.dumps(MANIFEST | {"files": [file]})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format": 1, "format": 2}',
        json.dumps(MANIFEST).replace("[1, 4, 4]", "[1e309]"),
        json.dumps(MANIFEST).replace("[1, 4, 4]", "[1.5, 4]"),
        json.dumps(MANIFEST).replace("[1, 4, 4]", "[true]"),
        json.dumps(MANIFEST).replace("[1, 4, 4]", "[0, 4]"),
        json.dumps(MANIFEST).replace("[1, 4, 4]", "[1000000, 1000000]"),
        json.dumps(MANIFEST).replace("[1, 4, 4]", '"144"'),
        json.dumps(MANIFEST).replace("0.5", "1" + "0" * 400),
        json.dumps(MANIFEST).replace("0.5", "1" + "0" * 5000),
        json.dumps(MANIFEST).replace("0.5", "NaN"),
        json.dumps(MANIFEST).replace("0.5", "-5"),
        json.dumps(MANIFEST).replace("0.5", "true"),
        json.dumps(MANIFEST).replace('"b"', r'"\ud800"'),
        json.dumps(MANIFEST).replace('"b"', "2"),
        json.dumps(MANIFEST).replace('"a.onnx"', "null"),
        json.dumps(MANIFEST | {"range": [0, "x"]}),
        json.dumps(MANIFEST | {"files": 3}),
        with_parity(agreement="x"),
        with_parity(reference=None),
        with_parity(draws=1.5),
        json.dumps(MANIFEST | {"files": [MANIFEST["files"][0] | {"parity": "x"}]}),
    ],
)
def test_manifests_that_are_none(tmp_path, text):
    (tmp_path / "m.json").write_text(json.dumps(MANIFEST))
    assert Manifest.read(tmp_path / "m.json").noise.sigma0 == 0.5
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(ModelError, match="it is not a manifest") as caught:
        Manifest.read(tmp_path / "m.json")
    assert len(str(caught.value)) < 500


def test_what_a_file_says_does_not_break_the_line_of_a_message(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(MANIFEST | {"format": "a\nb\x1b[2J"}))
    with pytest.raises(ModelError, match=r"m.json: its format is a\\nb\\x1b\[2J, but this version reads 1"):
        Manifest.read(tmp_path / "m.json")


def test_a_group_of_rows_that_is_shorter_than_it_declares(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"image": [b"a", b"b"], "label": [0, 1]}), tmp_path / "a.parquet")
    data = open_data(str(tmp_path / "a.parquet"))
    data._groups = [(path, file, group, 3) for path, file, group, _ in data._groups]
    with pytest.raises(DataError, match=r"a.parquet: it cannot be read \(index out of bounds\); download it again"):
        _ = data[2]


# ---- names


@pytest.mark.skipif(sys.platform == "darwin", reason="file systems of macOS refuse such names themselves")
def test_folders_and_images_whose_names_are_not_utf8(tmp_path):
    for name in (b"data\xff/cat", b"data/c\xffat"):
        (tmp_path / name.decode("utf-8", "surrogateescape")).mkdir(parents=True)
        folder = (tmp_path / name.decode("utf-8", "surrogateescape")).parent
        Image.new("L", (4, 4)).save(folder / next(folder.iterdir()).name / "0.png")
        with pytest.raises(DataError, match=r"\\xff.*: its name is not UTF-8; rename it") as caught:
            open_data(str(folder))
        str(caught.value).encode()


@pytest.mark.parametrize("read", [Manifest.read, read_result])
def test_a_text_of_gigabytes_is_refused_before_it_is_read(tmp_path, monkeypatch, read):
    """Such a file takes no room on the disk, and not every file system tells."""
    monkeypatch.setattr("ars.regular._is_hollow", lambda *_: False)
    with (tmp_path / "m.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(FileError, match="it has 1,099,511,627,776 bytes, more than any file of its kind"):
        read(tmp_path / "m.json")
