"""`ars-train` as a user meets it: a model.pt, and a resume to the same weights."""

import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.train_runs import TRAIN, arguments, interrupt, refused, run, same, train, weights

from ars.train import classifiers
from ars.train.model_file import load_model, read_model_file

pytestmark = pytest.mark.usefixtures("data")


make_cnn = classifiers._cnn


def with_dropout(body):
    return torch.nn.Sequential(*body[:-1], torch.nn.Dropout(), body[-1])


def metrics(path="model.metrics.jsonl"):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("isotropic", "gaussian"),
        ("isotropic", "laplace"),
        ("dataset", "gaussian"),
        ("dataset", "uniform"),
        ("input", "gaussian"),
        ("input", "laplace"),
    ],
)
def test_a_model_is_trained_and_its_file_holds_all_that_export_needs(kind, family):
    result = train("--family", family, epochs=4, kind=kind)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("model.pt: ")
    settings, _, content = load_model(Path("model.pt"))
    assert (settings.arch, settings.shape, settings.classes) == ("cnn", (1, 12, 12), ("0", "1"))
    assert (settings.kind, settings.family, content["state"]) == (kind, family, None)
    assert content["examples"]["x"].shape == (40, 1, 12, 12)
    lines = metrics()
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert content["training"]["metrics"] == lines[-1]
    assert lines[-1]["smoothing"] < lines[0]["smoothing"]
    assert lines[-1]["accuracy"] > 0.9
    assert lines[-1]["sigma_min"] == pytest.approx(0.5, rel=0.2)


def test_the_seed_repeats_a_run_and_another_seed_does_not():
    train(out="a.pt")
    train(out="b.pt")
    train("--seed", "1", out="c.pt")
    assert same(weights("a.pt"), weights("b.pt"))
    assert not same(weights("a.pt"), weights("c.pt"))


def test_augmentation_and_the_other_optimizer_and_schedules_train():
    assert train("--shift", "2", "--flip", "--optimizer", "sgd", "--schedule", "step", "--lr", "0.01").exit_code == 0
    assert train("--schedule", "constant", out="c.pt").exit_code == 0


# An epoch has nine steps: the run dies in the middle of its second.
KILLED = """
import os, signal, sys
from ars.train.cli import main
from ars.train.progress import TrainingProgress
TrainingProgress.step = lambda self, done, total, loss: done == 14 and os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def test_a_run_killed_in_the_middle_of_an_epoch_ends_with_the_same_weights():
    whole = run(TRAIN, *arguments(epochs=4, out="whole.pt"))
    assert whole.returncode == 0, whole.stderr
    assert run(sys.executable, "-c", KILLED, *arguments(epochs=4)).returncode == -signal.SIGKILL
    assert read_model_file(Path("model.pt"))[1]["state"]["epoch"] == 1
    resumed = run(TRAIN, *arguments("--resume", epochs=4))
    assert resumed.returncode == 0, resumed.stderr
    assert same(weights(), weights("whole.pt"))


def test_an_interrupted_run_keeps_its_checkpoint_and_says_how_to_go_on(monkeypatch):
    train(epochs=3, out="whole.pt")
    with monkeypatch.context() as patch:
        interrupt(patch, step=20)
        result = train(epochs=3)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.endswith("Stopped: model.pt holds epoch 2; use --resume to continue from there.\n")
    # What was written after the checkpoint is done again, and a resume has the threads that the run was begun with.
    with Path("model.metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3}\n{"epo')
    torch.set_num_threads(2)
    assert train("--resume", epochs=3).exit_code == 0
    assert torch.get_num_threads() == 2
    assert read_model_file(Path("model.pt"))[1]["training"]["threads"] == 1
    assert same(weights(), weights("whole.pt"))
    assert [line | {"seconds": 0} for line in metrics()] == [
        line | {"seconds": 0} for line in metrics("whole.metrics.jsonl")
    ]


def test_a_network_that_draws_numbers_itself_goes_on_with_the_same_ones(monkeypatch):
    monkeypatch.setattr(classifiers, "_cnn", lambda channels, classes: with_dropout(make_cnn(channels, classes)))
    train(epochs=3, out="whole.pt")
    with monkeypatch.context() as patch:
        interrupt(patch, step=20)
        assert train(epochs=3).exit_code == 130
    torch.rand(7)
    assert train("--resume", epochs=3).exit_code == 0
    assert same(weights(), weights("whole.pt"))


@pytest.mark.parametrize("kind", ["isotropic", "input"])
def test_a_run_in_bf16_with_consistency_resumes_to_the_same_weights(kind, monkeypatch):
    options = ("--precision", "bf16", "--consistency", "5", "--draws", "2", "--arch", "resnet8")
    train(*options, epochs=3, kind=kind, out="whole.pt")
    with monkeypatch.context() as patch:
        interrupt(patch, step=20)
        assert train(*options, epochs=3, kind=kind).exit_code == 130
    assert train(*options, "--resume", epochs=3, kind=kind).exit_code == 0
    assert same(weights(), weights("whole.pt"))
    plan = read_model_file(Path("model.pt"))[1]["training"]["plan"]
    assert (plan["precision"], plan["consistency"]) == ("bf16", 5)
    assert all(tensor.dtype != torch.bfloat16 for tensor in weights().values())
    train(*options[2:], "--precision", "fp32", epochs=3, kind=kind, out="precise.pt")
    assert not same(weights("precise.pt"), weights()), "bf16 changes the sums, or it was not used"
    assert metrics()[-1]["accuracy"] > 0.9


def test_a_run_keeps_its_precision(monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, step=20)
        train("--precision", "bf16", epochs=3)
    result = train("--precision", "fp32", "--resume", epochs=3)
    assert "it was started with precision = bf16, but this run has fp32" in result.stderr


def test_an_existing_model_is_overwritten_only_with_a_word(monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, step=20)
        assert train(epochs=3).exit_code == 130
    before = Path("model.pt").read_bytes()
    word = "it holds an unfinished run, stopped after epoch 2; continue it with --resume, choose another --output, or"
    refused(train(epochs=1), word)
    assert Path("model.pt").read_bytes() == before
    assert train("--overwrite", epochs=1).exit_code == 0
    refused(train(epochs=1), "model.pt: it exists; choose another --output, or replace it with --overwrite")


@pytest.mark.parametrize("name", ["data.npz", "link.npz", "./data.npz"])
def test_the_data_is_not_overwritten(name):
    Path("link.npz").symlink_to("data.npz")
    Path("hard.npz").hardlink_to("data.npz")
    before = Path("data.npz").read_bytes()
    for out in (name, "hard.npz"):
        refused(train("--overwrite", out=out), "it belongs to the input data.npz; choose another one")
    assert Path("data.npz").read_bytes() == before


def test_models_that_differ_in_their_endings_do_not_share_a_file_of_metrics():
    for out in ("i.v1", "i.v2", "i.pt", "i.pth"):
        assert train(epochs=1, kind="isotropic", out=out).exit_code == 0
    names = ("i.v1.metrics.jsonl", "i.v2.metrics.jsonl", "i.metrics.jsonl", "i.pth.metrics.jsonl")
    assert [len(metrics(name)) for name in names] == [1, 1, 1, 1]


def test_an_interrupt_before_the_first_checkpoint_leaves_what_was_there(monkeypatch):
    train(epochs=1)
    before = Path("model.pt").read_bytes()
    interrupt(monkeypatch, step=3)
    result = train("--overwrite", epochs=1)
    assert (result.exit_code, result.stderr) == (130, "Stopped: nothing was written.\n")
    assert Path("model.pt").read_bytes() == before


def test_init_starts_from_the_weights_of_a_model_or_a_state_dict():
    train(kind="isotropic", out="first.pt")
    first = {k.removeprefix("classifier."): v for k, v in weights("first.pt").items() if k.startswith("classifier.")}
    torch.save(first, "state.pt")
    torch.save({k.removeprefix("1."): v for k, v in first.items() if k.startswith("1.")}, "network.pt")
    for name in ("first.pt", "state.pt", "network.pt"):
        result = train("--init", name, "--lr", "1e-9", "--overwrite", epochs=1, out="second.pt")
        assert result.exit_code == 0, result.output
        for tensor in ("1.0.weight", "1.9.bias"):
            torch.testing.assert_close(weights("second.pt")[f"classifier.{tensor}"], first[tensor], atol=1e-6, rtol=0)


def test_a_folder_with_train_npz_and_another_one_is_training_and_test_data():
    arrays = dict(np.load("data.npz"))
    Path("folder").mkdir()
    np.savez("folder/train.npz", x=arrays["x"][:300], y=arrays["y"][:300])
    np.savez("folder/images.npz", x=arrays["x"][300:], y=arrays["y"][300:])
    assert train("--dataset", "folder", epochs=1).exit_code == 0
    examples = read_model_file(Path("model.pt"))[1]["examples"]
    assert torch.equal(examples["x"], torch.from_numpy(arrays["x"][300:]))


def test_the_shipped_part_of_fashion_mnist_trains():
    folder = Path(__file__).parents[2] / "examples" / "fashion-mnist"
    result = train("--dataset", str(folder), "--limit", "80", epochs=1, kind="isotropic")
    assert result.exit_code == 0, result.output
    assert read_model_file(Path("model.pt"))[0].shape == (1, 28, 28)


def test_a_rewarded_volume_grows_the_scale_where_pixels_do_not_matter():
    """The classes of the data differ only in their left halves."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    x = np.zeros((400, 1, 12, 12), np.float32)
    x[:, :, :, :6] = labels[:, None, None, None] * 0.8 + 0.1 * rng.random((400, 1, 12, 6))
    np.savez("data.npz", x=x, y=labels)
    more = ("--lr", "5e-3")
    assert train(*more, epochs=12, kind="dataset", out="without.pt").exit_code == 0
    result = train(*more, "--volume-weight", "0.5", epochs=12, kind="dataset")
    assert result.exit_code == 0, result.output
    settings, model, content = load_model(Path("model.pt"))
    assert settings.attenuated
    assert content["training"]["plan"]["volume_weight"] == 0.5
    last, without = metrics()[-1], metrics("without.metrics.jsonl")[-1]
    assert last["sigma_geomean"] > 1.3 * without["sigma_geomean"]
    assert last["sigma_min"] == pytest.approx(0.5, rel=0.2)
    assert last["accuracy"] > 0.9
    with torch.no_grad():
        _, scale = model.noise(torch.zeros(1, *settings.shape))
    assert float(scale[..., 7:].mean()) > 1.1 * float(scale[..., :5].mean())
    assert "geometric mean" in result.stderr


def test_a_run_with_a_rewarded_volume_resumes_to_the_same_weights(monkeypatch):
    more = ("--volume-weight", "0.5")
    assert train(*more, kind="dataset", out="whole.pt").exit_code == 0
    with monkeypatch.context() as patch:
        interrupt(patch, 13)
        assert train(*more, kind="dataset").exit_code == 130
    assert train(*more, "--resume", kind="dataset").exit_code == 0
    assert same(weights(), weights("whole.pt"))


def test_generators_are_trained_for_volume_too():
    for weight, out in ((0, "without.pt"), (1, "model.pt")):
        assert train("--volume-weight", str(weight), "--lr", "1e-2", epochs=3, out=out).exit_code == 0
    assert not read_model_file(Path("model.pt"))[0].attenuated
    assert metrics()[-1]["sigma_geomean"] > metrics("without.metrics.jsonl")[-1]["sigma_geomean"]


def test_init_works_between_models_with_and_without_attenuation():
    train(kind="isotropic", out="first.pt")
    volume = ("--volume-weight", "0.1", "--lr", "1e-9")
    for given, out, more in (("first.pt", "second.pt", volume), ("second.pt", "third.pt", ("--lr", "1e-9"))):
        result = train("--init", given, *more, epochs=1, kind="dataset", out=out)
        assert result.exit_code == 0, result.output
        name = "classifier.1.0.weight"
        torch.testing.assert_close(weights(out)[name], weights(given)[name], atol=1e-6, rtol=0)
