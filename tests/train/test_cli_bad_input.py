"""What `ars-train` is given that it cannot use: one sentence, and what was there before stays."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from support.train_runs import interrupt, refused, train

from ars.train.cli import main

pytestmark = pytest.mark.usefixtures("data")


def test_names_that_are_not_known():
    refused(train("--arch", "renset20"), "unknown architecture 'renset20'; did you mean 'resnet20'?")
    refused(train(kind="inputs"), "unknown noise kind 'inputs'; did you mean 'input'?")
    refused(train("--family", "gauss"), "unknown noise family 'gauss'")
    refused(train("--dataset", "fashion-mist"), "fashion-mist: there is no such file or folder; did you mean fashion-")
    refused(train("--dataset", "dat.npz"), "dat.npz: there is no such file or folder; did you mean data.npz?")
    refused(train("--dataset", "nowhere/at/all"), "there is no such file or folder; give a path, or fashion-mnist")
    refused(train("--optimizer", "adam"), "unknown optimizer 'adam'; did you mean 'adamw'?")
    refused(train("--device", "gpu"), "unknown device 'gpu'")
    refused(CliRunner().invoke(main, []), "say what to train on")


def test_numbers_that_make_no_sense():
    refused(train("--sigma", "0"), "sigma = 0.0 is not valid")
    refused(train("--sigma", "-1"), "sigma = -1.0 is not valid")
    refused(train("--sigma", "1e39"), "sigma = 1e+39 is not valid; it must be positive and finite, as a float32")
    refused(train("--scale-floor", "1.5"), "scale-floor = 1.5 is not valid; it must be at most 1")
    refused(train("--scale-ceiling", "1"), "scale-ceiling = 1.0 is not valid; it must exceed 1")
    refused(train("--sigma", "1e38"), "scale-ceiling = 4.0 is not valid; it must exceed 1, and times sigma be a finite")
    refused(train("--batch", "5000"), "batch = 5000 is not valid; there are only 360 training images")
    refused(train("--lr", "0"), "lr = 0.0 is not valid")
    refused(train("--weights", "1", "-1", "0"), "weights = (1.0, -1.0, 0.0) is not valid")
    refused(train(epochs=0), "epochs = 0 is not valid")
    refused(train("--volume-weight", "-1"), "volume-weight = -1.0 is not valid; it must be finite and not negative")
    refused(train("--volume-weight", "1", kind="isotropic"), "isotropic noise has one scale; use --noise dataset")
    refused(train("--generator-layers", "0"), "generator-layers = 0 is not valid; it must be from 1 to 64")
    refused(train("--generator-stride", "5"), "generator-stride = 5 is not valid; it must divide the sides")
    refused(train("--generator-growth", "8", kind="dataset"), "noise = dataset", "only input noise has a generator")
    refused(train("--consistency", "-1"), "consistency = -1.0 is not valid; it must be finite and not negative")
    refused(train("--consistency", "10", "--draws", "1"), "it compares draws of an image; use --draws 2 or more")
    refused(train("--precision", "int8"), "unknown precision 'int8'; choose one of fp32, bf16, fp16")
    refused(train("--precision", "fp16", "--device", "cpu"), "fp16 is for GPUs; use bf16 or fp32")


def save(name, labels, x=None):
    np.savez(name, x=np.zeros((len(labels), 1, 12, 12)) if x is None else x, y=np.array(labels))


def test_labels_that_cannot_train():
    save("one.npz", [0] * 20)
    refused(train("--dataset", "one.npz"), "one.npz: all of its images belong to one class")
    np.savez("none.npz", x=np.zeros((20, 1, 12, 12)))
    refused(train("--dataset", "none.npz"), "none.npz: it has no labels")
    save("negative.npz", [0, 1, -1, 1] * 5)
    refused(train("--dataset", "negative.npz"), "negative.npz: it has the label -1", "number the classes from 0")
    save("large.npz", [0, 1, 10**12, 1] * 5)
    refused(train("--dataset", "large.npz"), "large.npz: it has the label 1000000000000, but only 18 images")
    Path("folder").mkdir()
    save("folder/train.npz", [0, 1] * 20)
    refused(train("--dataset", "folder"), "folder: it has 0 .npz files besides train.npz")
    save("folder/test.npz", [0, 1, 2] * 5)
    refused(train("--dataset", "folder"), "test.npz: it has the label 2, but the training classes")
    save("folder/test.npz", [0, 1] * 5, np.zeros((10, 1, 8, 8)))
    refused(
        train("--dataset", "folder"),
        "test.npz: its images have the shape (1, 8, 8), but the training images have (1, 12, 12)",
    )
    save("few.npz", [0, 1, 0])
    refused(train("--dataset", "few.npz"), "few.npz: its 3 examples")


def folder(path, side=12, mode="L"):
    path.mkdir(parents=True)
    for number in range(20):
        Image.new(mode, (side, side)).save(path / f"{number}.png")


def test_image_folders_that_cannot_train():
    folder(Path("images", "a"))
    refused(train("--dataset", "images"), "images: all of its images belong to one class")
    folder(Path("images", "b"), side=13)
    refused(train("--dataset", "images"), "images: it has images of (1, 12, 12) and of (1, 13, 13)", "--resize")
    assert train("--dataset", "images", "--resize", "12", "--batch", "10", epochs=1, out="other.pt").exit_code == 0
    folder(Path("mixed", "a"))
    folder(Path("mixed", "b"), mode="RGB")
    refused(train("--dataset", "mixed"), "mixed: it has images of (1, 12, 12) and of (3, 12, 12): some are gray")
    for split, name in (("train", "a"), ("train", "b"), ("test", "a"), ("test", "c")):
        folder(Path("splits", split, name))
    refused(train("--dataset", "splits"), "test: only one of test and train has the class 'b'")
    refused(train("--dataset", "images", "--random-crop", "8"), "random-crop = 8 is not valid; it needs image files")
    refused(train("--random-crop", "8"), "random-crop = 8 is not valid; it needs image files")
    refused(train("--random-crop", "8", "--shift", "1"), "shift = 1 is not valid")
    refused(train("--random-crop", "8", "--crop", "9"), "crop = 9 is not valid")
    refused(train("--random-crop", "8", "--resize", "7"), "resize = 7 is not valid")


def test_inputs_that_are_no_images():
    save("flat.npz", [0, 1] * 20, np.zeros((40, 16)))
    refused(
        train("--dataset", "flat.npz"),
        "flat.npz: its inputs have the shape (16,); images must have the shape channels x height",
    )


class Harmful:
    def __reduce__(self):
        return (os.mkdir, ("it-ran",))


def test_a_pickle_with_code_in_it_is_refused_and_nothing_runs():
    Path("bad.pt").write_bytes(pickle.dumps(Harmful()))
    torch.save(Harmful(), "worse.pt")
    for name in ("bad.pt", "worse.pt"):
        refused(train("--init", name), f"{name}: it is not a whole PyTorch file of tensors and plain data")
        refused(train("--resume", out=name), f"{name}: it is not a whole PyTorch file of tensors and plain data")
    assert not Path("it-ran").exists()


def test_files_that_are_no_models():
    Path("text.pt").write_text("hello")
    refused(train("--init", "text.pt"), "text.pt: ")
    torch.save([1, 2], "list.pt")
    refused(train("--init", "list.pt"), "list.pt: it is neither a model.pt nor a state_dict")
    refused(train("--init", "none.pt"), "none.pt: there is no such file")
    refused(train("--resume", out="none.pt"), "none.pt: there is no such file to resume; omit --resume")
    refused(train(out="nowhere/model.pt"), str(Path("nowhere", "model.pt")), "its folder does not exist")


def test_a_checkpoint_of_another_architecture_names_the_first_tensor_that_does_not_fit():
    train(epochs=1, out="cnn.pt")
    message = "cnn.pt: its tensor '1.0.0.weight' is missing, but the architecture has (16, 1, 3, 3)"
    refused(train("--arch", "resnet20", "--init", "cnn.pt"), message)


def test_a_resume_with_other_settings_or_other_data_or_of_a_finished_run_is_refused():
    train(epochs=1)
    before = Path("model.pt").read_bytes()
    refused(train("--resume", epochs=1), "model.pt: its training has finished")
    refused(
        train("--resume", "--lr", "0.5", epochs=1), "it was started with learning_rate = 0.001, but this run has 0.5"
    )
    refused(train("--resume", epochs=1, kind="dataset"), "it was started with kind = input, but this run has dataset")
    refused(train("--resume", "--limit", "300", epochs=1), "model.pt: it was started with other data")
    arrays = dict(np.load("data.npz"))
    np.savez("data.npz", x=arrays["x"], y=1 - arrays["y"])
    refused(train("--resume", epochs=1), "model.pt: it was started with other data; use the same data")
    assert Path("model.pt").read_bytes() == before


def test_a_checkpoint_whose_state_is_not_whole_is_refused(monkeypatch):
    interrupt(monkeypatch, step=12)
    train()
    content = torch.load("model.pt", weights_only=True)
    whole = content["state"]
    for part in ("epoch", "optimizer", "schedule", "scaler", "metrics"):
        torch.save(content | {"state": {key: value for key, value in whole.items() if key != part}}, "model.pt")
        refused(train("--resume"), f"model.pt: its training state has no '{part}'")
    schedules = [whole["schedule"] | {"last_epoch": wrong} for wrong in ("x", -5, 10**400, float("nan"), 3)]
    schedules += [5, whole["schedule"] | {"optimizer": None}, whole["schedule"] | {"base_lrs": [1.0]}]
    broken_states = [{"optimizer": {"state": {}}}, {"metrics": [{"epoch": 1}]}, {"epoch": 10**9}]
    for broken in (*broken_states, *({"schedule": schedule} for schedule in schedules)):
        torch.save(content | {"state": whole | broken}, "model.pt")
        refused(train("--resume"), "model.pt: its training state cannot be resumed")
    torch.save(content | {"state": [1]}, "model.pt")
    refused(train("--resume"), "model.pt: its training state has no 'epoch'")
    torch.save(content | {"training": content["training"] | {"threads": 0}}, "model.pt")
    refused(train("--resume"), "threads = 0 is not valid; model.pt was not written by ars-train")
    torch.save(content | {"training": {"plan": {}}}, "model.pt")
    refused(train("--resume"), "model.pt: another version of ars-train started it")


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint():
    result = train("--optimizer", "sgd", "--schedule", "constant", "--lr", "1e12", epochs=3)
    refused(result, "the loss is not finite in epoch 1; nothing was written; try a smaller --lr", status=1)
    assert not Path("model.pt").exists()


def test_weights_that_are_not_finite_after_the_last_step_keep_the_last_good_checkpoint():
    train(epochs=1)
    before = Path("model.pt").read_bytes()
    one_step = ["--batch", "360", "--optimizer", "sgd", "--lr", "3e38", "--weights", "1000", "1", "1"]
    refused(
        train(*one_step, "--overwrite", epochs=1),
        "the weights are not finite in epoch 1; nothing was written",
        status=1,
    )
    assert Path("model.pt").read_bytes() == before


def test_an_output_that_cannot_be_written_is_found_at_once():
    before = Path("/dev/full").lstat()
    refused(train(out="/dev/full"), "/dev/full: it is not a regular file; choose another --output")
    assert Path("/dev/full").lstat().st_rdev == before.st_rdev
    refused(train(out="/proc/x.pt"), "/proc/x.pt: it cannot be written (", "; choose another --output")


def test_a_full_disk_keeps_the_earlier_checkpoint(monkeypatch):
    train(epochs=2)
    before = Path("model.pt").read_bytes()

    def full(content, path):
        Path(path).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    refused(train("--overwrite", epochs=3), "No space left on device", "the earlier checkpoint is intact", status=1)
    assert Path("model.pt").read_bytes() == before
    assert not list(Path().glob("*.partial")) + list(Path().glob(".*.partial"))


def test_without_torch_the_install_line_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(CliRunner().invoke(main, []), "torch is not installed; run `pip install 'ars-certify[train]'`")


def test_without_cuda_the_device_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(train("--device", "cuda"), "device = cuda is not valid; torch finds no CUDA GPU here; use --device cpu")
