"""The data that people have: each kind is written by the library that usually writes it, and read back."""

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from ars.data import ImageSize, archives, open_data
from ars.data.splits import open_splits
from ars.errors import DataError, UnknownName

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)


def png(values):
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


def last(x):
    return x.transpose(0, 2, 3, 1)


def assert_reads(spec, x=X, labels=(0, 1, 2, 0, 1, 2), size=None, **facts):
    """That these images come back, with their labels."""
    data = open_data(str(spec), size or ImageSize(channels=3))
    read = [data[index] for index in range(len(data))]
    np.testing.assert_allclose(np.stack([one.x for one in read]), x / 255, rtol=1e-6)
    assert [one.label for one in read] == list(labels)
    for name, value in facts.items():
        assert getattr(data, name) == value
    assert data.span == (0, 1)
    assert data.fingerprint() == open_data(str(spec), size or ImageSize(channels=3)).fingerprint()
    return read


# ---- CIFAR


def save_cifar(folder, protocol, **content):
    folder.mkdir(exist_ok=True)
    for name, values in content.items():
        (folder / name.replace("__", ".")).write_bytes(pickle.dumps(values, protocol))


def cifar(x, key="labels", text=str.encode):
    names = [text(f"cat_{number}.png") for number in range(len(x))]
    return {text("data"): x.reshape(len(x), -1), text(key): [0, 1, 2] * (len(x) // 3), text("filenames"): names}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("text", [str, str.encode])
def test_python_batches_of_cifar_10_are_read_from_their_folder_or_a_file(tmp_path, protocol, text):
    folder = tmp_path / "cifar-10-batches-py"
    meta = {text("label_names"): [text(name) for name in ("airplane", "automobile", "bird")]}
    save_cifar(
        folder, protocol, test_batch=cifar(X, text=text), data_batch_1=cifar(X[:3], text=text), batches__meta=meta
    )
    save_cifar(folder, protocol, data_batch_2=cifar(X[3:], text=text))
    for spec in (folder, folder / "test_batch", f"{folder}:train", f"{folder}:test"):
        read = assert_reads(spec, classes=["airplane", "automobile", "bird"])
    assert read[1].name == "cat_1.png"
    assert [len(part) for part in open_splits(str(folder), ImageSize())] == [6, 6]
    with pytest.raises(UnknownName, match="did you mean 'train'"):
        open_data(f"{folder}:trian")


def test_python_batches_of_cifar_100_have_their_fine_labels(tmp_path):
    folder, meta = tmp_path / "cifar-100-python", {b"fine_label_names": [b"apple", b"fish", b"baby"]}
    save_cifar(folder, 2, test=cifar(X, "fine_labels") | {b"coarse_labels": [9] * 6}, train=cifar(X[:3]), meta=meta)
    assert_reads(folder, classes=["apple", "fish", "baby"])


def test_a_batch_as_python_2_wrote_it_is_read(tmp_path):
    """The opcodes of the original files: byte strings of Python 2, and an array that is built from its bytes."""
    content = X[0].tobytes()
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01(K\x01M\x00\x0ct" + dtype
    array += b"\x89T" + struct.pack("<I", len(content)) + content + b"tb"
    (tmp_path / "test_batch").write_bytes(b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x02eu.")
    assert_reads(tmp_path / "test_batch", X[:1], [2])


class Attack:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("hidden", ["labels", "data", "extra"])
def test_a_pickle_with_code_is_refused_and_nothing_is_executed(tmp_path, protocol, hidden):
    mark = tmp_path / "executed"
    content = cifar(X, text=str) | {hidden: Attack(os.mkdir, (str(mark),))}
    (tmp_path / "test_batch").write_bytes(b"\x80\x02" * (protocol < 2) + pickle.dumps(content, protocol))
    with pytest.raises(DataError, match=r"test_batch: it cannot be used \(it would run posix.mkdir, and nothing in it"):
        open_data(str(tmp_path / "test_batch"))
    assert not mark.exists()
    pickle.loads((tmp_path / "test_batch").read_bytes())
    assert mark.exists(), "the pickle does what it says"


@pytest.mark.parametrize("call", [(eval, ("1",)), (np.zeros, (3,)), (np.load, ("x",)), (np.frombuffer, (b"1",))])
def test_no_function_is_looked_up_whatever_its_module(tmp_path, call):
    save_cifar(tmp_path, 4, test_batch={"data": Attack(*call)})
    with pytest.raises(DataError, match="it would run"):
        open_data(str(tmp_path / "test_batch"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": X.reshape(6, -1)}, "it does not have a label for each of its 6 images"),
        ({"data": X.reshape(6, -1), "labels": [0.5] * 6}, "it does not have a label for each of its 6 images"),
        ({"data": X.reshape(12, -1), "labels": [0] * 12}, "it has no images of 3072 bytes"),
        ({"data": np.zeros((6, 3072)), "labels": [0] * 6}, "an array of 'f8' is not one of integers"),
        ([1, 2], "it holds a list"),
    ],
)
def test_pickles_that_are_no_batches_are_refused(tmp_path, content, message):
    save_cifar(tmp_path, 2, test_batch=content)
    with pytest.raises(DataError, match=message):
        open_data(str(tmp_path / "test_batch"))


def test_a_broken_pickle_is_refused(tmp_path):
    save_cifar(tmp_path, 2, test_batch=cifar(X))
    whole = (tmp_path / "test_batch").read_bytes()
    for broken in (whole[:100], whole[:-1], b"\x80\x02(((", b"\x80\x02\x00"):
        (tmp_path / "test_batch").write_bytes(broken)
        with pytest.raises(DataError, match="test_batch: it"):
            open_data(str(tmp_path / "test_batch"))


# ---- arrays


@pytest.mark.parametrize(
    ("names", "spec"),
    [
        (("images", "labels"), ""),
        (("arr_0", "arr_1"), ""),
        (("x_test", "y_test"), ""),
        (("test_images", "test_labels"), ""),
        (("x_train", "y_train"), ":x_train"),
    ],
)
def test_an_npz_may_have_any_names(tmp_path, names, spec):
    other = {"x_train": X[:2], "y_train": np.zeros(2, int)} if "test" in names[0] else {}
    other = {"x_test": X[:2], "y_test": np.zeros(2, int)} if spec else other
    labels = np.array([0, 1, 2] * 2).reshape(-1, 1 if "images" in names[0] else 6).squeeze()
    np.savez(tmp_path / "a.npz", **{names[0]: last(X), names[1]: labels}, **other)
    assert_reads(f"{tmp_path / 'a.npz'}{spec}")


def test_an_npy_has_its_labels_beside_it(tmp_path):
    np.save(tmp_path / "fog.npy", last(X))
    assert_reads(tmp_path / "fog.npy", labels=[None] * 6)
    np.save(tmp_path / "labels.npy", np.array([0, 1, 2] * 2))
    assert_reads(tmp_path / "fog.npy")
    np.save(tmp_path / "x_test.npy", X)
    np.save(tmp_path / "y_test.npy", np.array([2, 1, 0] * 2))
    assert_reads(tmp_path / "x_test.npy", labels=[2, 1, 0, 2, 1, 0])


def test_images_without_an_axis_of_channels_have_one(tmp_path):
    np.savez(tmp_path / "mnist.npz", x=X[:, 0], y=np.arange(6))
    assert_reads(tmp_path / "mnist.npz", X[:, :1], range(6), ImageSize(channels=1))


def test_how_an_array_was_turned_is_part_of_its_fingerprint(tmp_path):
    np.savez(tmp_path / "a.npz", x=last(X))
    as_it_is, turned = (open_data(str(tmp_path / "a.npz"), ImageSize(channels=channels)) for channels in (None, 3))
    assert (as_it_is[0].x.shape, turned[0].x.shape) == ((32, 32, 3), (3, 32, 32))
    assert as_it_is.fingerprint() != turned.fingerprint()


def test_floats_span_what_they_span(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[-2.5, 0], [1, 4]]))
    assert open_data(str(tmp_path / "a.npy")).span == (-2.5, 4)
    np.save(tmp_path / "b.npy", np.array([[0.25, np.nan], [1, 0.5]]))
    assert open_data(str(tmp_path / "b.npy")).span == (0.25, 1)


# ---- idx


@pytest.mark.parametrize("name", ["t10k-images-idx3-ubyte.gz", "t10k-images.idx3-ubyte"])
def test_the_folder_of_mnist_is_read(tmp_path, name):
    for file, values in ((name, X[:, 0]), (name.replace("images", "labels").replace("idx3", "idx1"), np.arange(6))):
        content = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
        content += values.astype(np.uint8).tobytes()
        (tmp_path / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    for spec in (tmp_path, tmp_path / name, f"{tmp_path}:test"):
        assert_reads(spec, X[:, :1], range(6))
    with pytest.raises(DataError, match="it has no idx file of train images"):
        open_data(f"{tmp_path}:train")


# ---- parquet, as the Hugging Face hub writes it


def hub_table(images="img", label="label", labels=(0, 1, 2) * 2, names=("cat", "dog", "frog"), x=X):
    arrow = pytest.importorskip("pyarrow")
    cells = [{"bytes": png(image), "path": f"{number}.png"} for number, image in enumerate(last(x))]
    kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    features = {label: {"names": list(names), "_type": "ClassLabel"}, images: {"_type": "Image"}}
    columns = {images: arrow.array(cells, kind), label: arrow.array(labels)}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return arrow.table(columns).replace_schema_metadata(metadata)


def save_table(table, path, **how):
    from pyarrow import parquet

    path.parent.mkdir(exist_ok=True)
    parquet.write_table(table, path, **how)
    return path


@pytest.mark.parametrize(("images", "label"), [("img", "label"), ("image", "fine_label"), ("image", "digit")])
def test_a_parquet_of_the_hub_has_images_labels_and_names(tmp_path, images, label):
    path = save_table(hub_table(images, label), tmp_path / "test-00000-of-00001.parquet", row_group_size=4)
    read = assert_reads(path, classes=["cat", "dog", "frog"])
    assert read[5].name == "5.png"


def test_a_folder_of_shards_gives_one_split(tmp_path):
    for number in (0, 1):
        part = hub_table(x=X[3 * number :][:3], labels=[0, 1, 2])
        save_table(part, tmp_path / "data" / f"test-{number:05}-of-00002.parquet")
    save_table(hub_table(x=X[:3], labels=[0, 1, 2]), tmp_path / "data" / "train-00000-of-00001.parquet")
    assert_reads(tmp_path)
    assert_reads(f"{tmp_path}:train", X[:3], [0, 1, 2])
    training, test = open_splits(str(tmp_path), ImageSize(channels=3))
    assert (len(training), len(test)) == (3, 6)
    with pytest.raises(DataError, match="it has the splits test, train; choose one"):
        open_data(f"{tmp_path}:validation")


def test_labels_of_a_parquet_may_be_names(tmp_path):
    path = save_table(hub_table(labels=["dog", "cat", "frog"] * 2), tmp_path / "a.parquet")
    assert_reads(path, labels=[1, 0, 2] * 2, classes=["cat", "dog", "frog"])


def test_a_parquet_without_images_or_with_an_empty_one_is_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    path = save_table(arrow.table({"text": ["a"], "label": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: it has no column of images, only text, label"):
        open_data(str(path))
    table = hub_table().set_column(0, "img", arrow.array([{"bytes": None, "path": "far.png"}] * 6))
    with pytest.raises(DataError, match="input 0: its row has no image inside"):
        open_data(str(save_table(table, path)))[0]
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match=r"a.parquet: it cannot be read"):
        open_data(str(path))


# ---- archives


def save_archive(path, members):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, f"w:{path.suffix[1:].replace('tar', '')}") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


FILES = {f"{'cat' if i < 3 else 'dog'}/{i}.png": png(image) for i, image in enumerate(last(X))}


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.xz"])
@pytest.mark.parametrize("root", ["", "images/", "set/test/"])
def test_an_archive_of_class_folders_is_read_without_extracting_it(tmp_path, name, root):
    members = {f"{root}{file}": content for file, content in reversed(FILES.items())}
    members |= {"__MACOSX/cat/._0.png": b"?", f"{root}cat/.hidden.png": b"?", "README": b"?"}
    path = save_archive(tmp_path / name, members)
    read = assert_reads(path, labels=[0, 0, 0, 1, 1, 1], classes=["cat", "dog"])
    assert read[4].name == f"{root}dog/4.png"
    assert list(tmp_path.iterdir()) == [path], "nothing was extracted"


def test_an_archive_of_several_splits_has_parts(tmp_path):
    path = save_archive(
        tmp_path / "a.zip", {f"{split}/{name}": FILES[name] for split in ("train", "val") for name in FILES}
    )
    with pytest.raises(DataError, match=r"it has folders of images in train, val; choose one, like a.zip:train"):
        open_data(str(path))
    assert_reads(f"{path}:val", labels=[0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("name", ["a.zip", "a.tar"])
@pytest.mark.parametrize("member", ["../../cat/1.png", "/cat/1.png"])
def test_an_archive_that_reaches_outside_is_refused(tmp_path, name, member):
    with pytest.raises(DataError, match="lies outside of the archive"):
        open_data(str(save_archive(tmp_path / name, {member: b"?"})))


def test_links_in_a_tar_are_not_followed(tmp_path):
    (tmp_path / "secret.png").write_bytes(png(last(X)[0]))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("cat/1.png")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret.png")
        archive.addfile(link)
    with pytest.raises(DataError, match="it has no folders of PNG or JPEG images"):
        open_data(str(tmp_path / "a.tar"))


def test_archives_with_members_that_are_too_large_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_IMAGE", 100)
    for name in ("a.zip", "a.tar", "a.tar.gz"):
        with pytest.raises(DataError, match=r"its member cat/0.png has \d+ bytes; an image may have at most"):
            open_data(str(save_archive(tmp_path / name, FILES)))


def test_broken_archives_are_refused(tmp_path):
    for name in ("a.zip", "a.tar", "a.tar.gz", "a.tar.xz"):
        save_archive(tmp_path / name, FILES)
        for part in ((tmp_path / name).read_bytes()[:200], b"nothing of the kind"):
            (tmp_path / name).write_bytes(part)
            with pytest.raises(DataError, match=f"{name}: it"):
                open_data(str(tmp_path / name))
    whole = bytearray(save_archive(tmp_path / "a.zip", FILES).read_bytes())
    whole[100] ^= 255
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(DataError, match=r"cat/0.png: it cannot be read"):
        open_data(str(tmp_path / "a.zip"))[0]


# ---- a list of files


@pytest.mark.parametrize(
    ("lines", "labels", "classes"),
    [
        (["filename,label", *(f"{i}.png,{i % 3}" for i in range(6))], [0, 1, 2] * 2, None),
        (
            ["id,label", *(f"{i},{['frog', 'dog', 'cat'][i % 3]}" for i in range(6))],
            [2, 1, 0] * 2,
            ["cat", "dog", "frog"],
        ),
        ([f"{i}.png,{i % 3}" for i in range(6)], [0, 1, 2] * 2, None),
        (["split,class,file", *(f"test,{i % 3},{i}.png" for i in range(6))], [0, 1, 2] * 2, None),
    ],
)
def test_a_flat_folder_has_a_csv_of_labels(tmp_path, lines, labels, classes):
    for number, image in enumerate(last(X)):
        (tmp_path / f"{number}.png").write_bytes(png(image))
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    for spec in (tmp_path, tmp_path / "labels.csv"):
        assert_reads(spec, labels=labels, classes=classes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it does not list images and labels"),
        ("file,label\nnone.png,1\n", "it does not list images and labels"),
        ("file,label\n../0.png,1\n", "it does not list images and labels"),
        ("file,label\nnone.png,1\n0.png,2\n", "it lists 'none.png', and there is no such image"),
        ("file,a,b\n0.png,1,2\n", "it has 3 columns, and none or several are called label"),
    ],
)
def test_a_csv_that_does_not_list_images_is_refused(tmp_path, text, message):
    (tmp_path / "0.png").write_bytes(png(last(X)[0]))
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        open_data(str(tmp_path))
    (tmp_path / "more.csv").write_text("")
    with pytest.raises(DataError, match="it has 2 CSV files"):
        open_data(str(tmp_path))


@pytest.mark.parametrize("spec", ["a.npy:x", "images:train", "none.zip:x"])
def test_what_has_no_parts_says_so(tmp_path, spec):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "images" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"it has no part|there is no such file"):
        open_data(str(tmp_path / spec))
