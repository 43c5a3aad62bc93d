"""Several processes of torchrun train the model that one process trains."""

from contextlib import suppress

import pytest
import torch
from support.train_runs import TORCHRUN, TRAIN, arguments, run, weights

from ars.errors import ArgumentError, UnknownName
from ars.train.processes import Place, choose_device, choose_precision, fixed_threads

GRADIENTS = """
import sys, torch
from ars.noise import GAUSSIAN, NoiseKind
from ars.train.model_file import ModelSettings, build
from ars.train.noise_models import NoiseShape
from ars.train.processes import joined
from ars.train.smoothing import standard_noise
settings = ModelSettings("cnn", (1, 12, 12), ("a", "b"), (0.5,), (0.25,), "gaussian", NoiseKind.INPUT, NoiseShape(0.5))
torch.manual_seed(0)
model = build(settings)
generator = torch.Generator().manual_seed(1)
x, labels = torch.rand(15, 1, 12, 12, generator=generator), torch.randint(0, 2, (15,), generator=generator)
z = standard_noise(GAUSSIAN, x, 3, generator)
with joined(torch.device("cpu")) as place:
    part = place.part(15)
    wrapped = place.wrap(model, torch.device("cpu"))
    losses = wrapped(x[part], labels[part], z[:, part])
    (losses.total((1, 1, 0.01)) * place.weight(len(x[part]), 15)).backward()
    average = place.average(losses.smoothing.detach() * place.weight(len(x[part]), 15))
    if place.rank == 0:
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        torch.save(gradients | {"processes": torch.tensor(place.world), "loss": average}, sys.argv[1])
    del wrapped, losses
"""

TRAINING = """
from ars.train.cli import main
main(standalone_mode=False)
"""

THREADS = """
import pathlib
threads = [(task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()]
print("threads:", *threads)
"""


def test_two_processes_average_to_the_gradients_of_one_on_a_batch_that_they_cannot_share_equally(tmp_path):
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS + THREADS)
    for command, name in (([*TORCHRUN[:1], script], "one.pt"), ([*TORCHRUN, script], "two.pt")):
        result = run(*command, tmp_path / name)
        assert result.returncode == 0, result.stderr
        assert "Warning" not in result.stderr
        assert "gloo" not in result.stdout
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("one.pt", "two.pt"))
    assert (int(one.pop("processes")), int(two.pop("processes"))) == (1, 2)
    for name, gradient in one.items():
        torch.testing.assert_close(two[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.usefixtures("data")
def test_torchrun_trains_one_model_and_speaks_once(tmp_path):
    # SGD, because AdamW makes much of gradients that differ by rounding only.
    sgd = ["--optimizer", "sgd", "--lr", "0.01", "--batch", "45", "--flip", "--precision", "fp32"]
    script = tmp_path / "training.py"
    script.write_text(TRAINING + THREADS)
    two = run(*TORCHRUN, script, *arguments(*sgd, out="two.pt"))
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("threads:") == 2
    assert "gloo" not in two.stdout, "a process that ends while these run may abort"
    assert two.stderr.count("epoch 1/2") == 1
    assert two.stdout.count("accuracy under noise") == 1
    assert "Warning" not in two.stderr
    one = run(TRAIN, *arguments(*sgd, out="one.pt"))
    assert one.returncode == 0, one.stderr
    ours, theirs = weights("one.pt"), weights("two.pt")
    for name in ours:
        torch.testing.assert_close(theirs[name], ours[name], atol=1e-4, rtol=1e-3)


def test_the_parts_of_a_batch_are_all_of_it():
    for batch, world in ((128, 4), (45, 2), (7, 3)):
        parts = [Place(rank, world).part(batch) for rank in range(world)]
        assert [row for part in parts for row in range(batch)[part]] == list(range(batch))
        sizes = [len(range(batch)[part]) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert sum(Place(0, world).weight(size, batch) for size in sizes) == pytest.approx(world)


def test_threads_are_put_back_also_after_an_error():
    with suppress(KeyError), fixed_threads(2):
        assert torch.get_num_threads() == 2
        raise KeyError
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("device", "capabilities", "precision"),
    [
        ("cuda", {}, "fp16"),
        ("cpu", {"avx512_f": True, "avx512_bf16": True}, "bf16"),
        ("cpu", {"neon": True, "bf16": True}, "bf16"),
        ("cpu", {"avx512_f": True, "avx512_bf16": False}, "fp32"),
    ],
)
def test_the_precision_is_what_the_device_is_fast_in(device, capabilities, precision, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_precision("auto", torch.device(device)) == precision
    assert choose_precision("fp32", torch.device(device)) == "fp32"


def test_half_precision_is_refused_on_processors():
    with pytest.raises(ArgumentError, match="fp16 is for GPUs; use bf16 or fp32"):
        choose_precision("fp16", torch.device("cpu"))


def test_devices_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ArgumentError, match="device = cuda is not valid; torch finds no CUDA GPU here"):
        choose_device("cuda")
    with pytest.raises(UnknownName, match=r"unknown device 'cud'; did you mean 'cuda'\?"):
        choose_device("cud")
