"""`ars-engine` and bad input: one sentence, the fix, exit 2 (1 for a failure in mid-run), nothing lost."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper
from PIL import Image
from support import models
from support.engine_runs import ENGINE, certify, records, refused

import ars
from ars.engine.cli import main

pytestmark = pytest.mark.usefixtures("files")


def test_a_file_that_is_not_onnx():
    Path("bad.onnx").write_bytes(b"no")
    refused(certify(engine="bad.onnx"), "bad.onnx: it is not an ONNX model")


def test_no_such_engine_or_data():
    refused(certify(engine="none.onnx"), "none.onnx: there is no such file")
    refused(certify(data="none.npz"), "none.npz: there is no such file or folder")


def test_no_noise_and_twice_noise():
    given = ["certify", "--engine", "model.onnx", "--data", "data.npz"]
    refused(CliRunner().invoke(main, given), "give sigma or noise")
    refused(certify("--noise", "maps.npz"), "give either sigma or noise")


def test_a_model_with_a_fixed_batch_of_one_works_with_advice():
    models.linear(Path("one.onnx"), batch=1)
    result = certify("--limit", "2", engine="one.onnx")
    assert result.exit_code == 0
    assert "one.onnx takes only batches of 1; export it with a dynamic batch axis to make it faster" in result.stderr
    certify("--limit", "2", "--out", "free.sqlite")
    assert [row[2].counts for row in records()] == [row[2].counts for row in records("free.sqlite")]


def test_two_inputs_wrong_shapes_and_wrong_labels():
    models.two_inputs(Path("two.onnx"))
    refused(certify(engine="two.onnx"), "two.onnx: it has 2 inputs (x, y)")
    np.savez("wide.npz", x=np.zeros((3, 1, 4, 5), np.float32), y=np.zeros(3, int))
    refused(certify(data="wide.npz"), "it takes inputs of 1 x 4 x 4, and the data has 1 x 4 x 5")
    np.savez("labels.npz", x=np.zeros((3, 1, 4, 4), np.float32), y=np.array([0, 3, 1]))
    refused(certify(data="labels.npz"), "input 1 has the label 3, and the model has 3 classes")
    np.savez("large.npz", x=np.full((3, 1, 4, 4), 300), y=np.zeros(3, int))
    refused(certify(data="large.npz"), "large.npz, input 0: it has integer pixels from 300 to 300")


def test_images_of_different_sizes():
    for number, side in enumerate((4, 5)):
        (Path("sizes") / "a").mkdir(parents=True, exist_ok=True)
        Image.new("L", (side, side)).save(Path("sizes") / "a" / f"{number}.png")
    message = (
        "sizes: input 1 has the shape (1, 5, 5), and an earlier one has (1, 4, 4); bring them to one size (--resize"
    )
    refused(certify(data="sizes"), message)
    assert certify("--on-error", "skip", data="sizes").exit_code == 0


def test_overlapping_uses_of_one_classifier_do_not_disturb_each_other():
    x = np.load("data.npz")["x"]
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        plan = ars.Plan(10, 500)
        expected = {one.input_id: one.result for one in classifier.certify_many(enumerate(x[:12]), plan)}
        for one in classifier.certify_many(enumerate(x[:12]), plan):
            classifier.predict(x[30], n=300)
            assert one.result == expected[one.input_id]
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier, ThreadPoolExecutor(4) as pool:
        tasks = {idx: pool.submit(classifier.certify, x[idx], n0=10, n=500, input_id=idx) for idx in range(12)}
        assert {idx: task.result() for idx, task in tasks.items()} == expected


def test_integer_images_mean_the_same_in_python_and_on_the_command_line():
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 4, 4), dtype=np.uint8)
    np.savez("integers.npz", x=images, y=np.zeros(3, int))
    certify(data="integers.npz")
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        assert classifier.certify(images[1], n0=10, n=200, input_id=1) == records()[1][2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 1.5}, "batch = 1.5"),
        ({"batch": "auto"}, "batch = 'auto'"),
        ({"threads": 0}, "threads = 0"),
        ({"threads": -1}, "threads = -1"),
        ({"seed": 0.5}, "seed = 0.5"),
        ({"sigma": "0.5"}, "sigma = 0.5"),
        ({"sigma": 1e39}, r"sigma = 1e\+39"),
        ({"family": "gaus"}, "unknown noise family"),
    ],
)
def test_bad_arguments_from_python_are_named(arguments, message):
    with pytest.raises(ars.ArsError, match=message):
        ars.load("model.onnx", **{"sigma": 0.1} | arguments)


def test_predictions_of_no_draws_and_inputs_of_two_shapes_are_refused():
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        with pytest.raises(ars.ArsError, match="n = 0 is not valid"):
            classifier.predict(np.zeros((1, 4, 4)), n=0)
        with pytest.raises(ars.ArsError, match="input 1: its shape is"):
            list(classifier.certify_many([(0, np.zeros((1, 4, 4))), (1, np.zeros((4, 4)))], ars.Plan(n=100)))


def test_a_model_whose_logits_depend_on_the_batch_is_refused():
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["flat", "mean"], ["logits"]),
    ]
    models.save(Path("bn.onnx"), nodes, [models.value("x", "n", 1, 4, 4)], [models.value("logits", "n", 16)])
    np.savez("few.npz", x=np.zeros((3, 1, 4, 4)), y=np.zeros(3, int))
    result = certify(engine="bn.onnx", data="few.npz")
    refused(result, "votes for a row depend on the other rows of its batch", "model.eval()", status=1)


def test_maps_that_make_no_sense_are_named_with_their_file():
    shape = (1, 4, 4)
    np.savez("zero.npz", mean=np.zeros(shape), scale=np.zeros(shape))
    np.savez("other.npz", mean=np.zeros(shape), scale=np.ones((4, 4)))
    np.savez("none.npz", x=np.zeros(shape))
    for name, message in [("zero", "its scale has the value 0.0"), ("other", "same shape"), ("none", "mean and scale")]:
        given = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--noise", f"{name}.npz"]
        refused(CliRunner().invoke(main, given), f"{name}.npz: ", message)


def test_an_input_that_changed_after_it_was_certified_is_noticed():
    make_folder(broken=False)
    certify(data="images")
    path = Path("images") / "b" / "1.png"
    pixels = np.asarray(Image.open(path)).copy()
    path.write_bytes((Path("images") / "a" / "0.png").read_bytes())
    same_size = path.stat().st_size
    refused(certify(data="images"), "run.sqlite: ")
    assert pixels.shape == (4, 4)
    assert same_size


def test_what_was_under_way_when_a_bad_input_came_is_kept():
    x, y = np.load("data.npz")["x"], np.load("data.npz")["y"].copy()
    y[30] = 99
    np.savez("bad.npz", x=x, y=y)
    refused(certify("--batch", "1024", data="bad.npz"), "input 30 has the label 99")
    assert [row[0] for row in records()] == list(range(30))


def test_no_inputs_and_no_readable_inputs_are_refused_before_anything_is_written():
    refused(certify("--start", "1000"), "none of the 40 inputs are left")
    make_folder()
    refused(certify("--only", "4", "--on-error", "skip", data="images"), "none of the chosen inputs can be read")
    assert not Path("run.sqlite").exists()


def test_results_go_to_a_device_without_replacing_it():
    certify("--limit", "2")
    assert CliRunner().invoke(main, ["results", "run.sqlite", "-o", "/dev/null"]).exit_code == 0
    assert Path("/dev/null").is_char_device()
    with open("/dev/full", "w") as full:
        run = subprocess.run([ENGINE, "results", "run.sqlite"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr


def test_an_interrupt_while_the_batch_is_measured_ends_with_130():
    given = ["--engine", "model.onnx", "--data", "data.npz", "--sigma", "0.1", "--out", "run.sqlite"]
    process = subprocess.Popen([ENGINE, "certify", *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline().startswith("backend onnxruntime: ")  # printed before the batch is measured
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr


def test_a_tensorrt_engine_needs_a_gpu(monkeypatch):
    Path("model.trt").write_bytes(b"engine")
    for name in ("cuda", "cuda.bindings", "pycuda"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("ars.engine.gpu", "ars.engine.bindings.cuda_python", "ars.engine.bindings.pycuda"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    refused(certify(engine="model.trt"), "cuda-bindings is not installed; run `pip install 'ars-certify[gpu]'`")
    refused(certify("--device", "cpu", engine="model.trt"), "model.trt: it does not run on cpu; use --device cuda:0")


def make_folder(broken=True):
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        (Path("images") / name).mkdir(parents=True)
        for number in range(3):
            image = Image.fromarray(rng.integers(0, 256, (4, 4), dtype=np.uint8))
            image.save(Path("images") / name / f"{number}.png")
    if broken:
        (Path("images") / "b" / "1.png").write_bytes(b"broken")


def test_an_unreadable_image_ends_the_run_and_keeps_what_was_done_or_is_skipped():
    make_folder()
    refused(certify("--threads", "1", data="images"), str(Path("images") / "b" / "1.png"), "use --on-error skip")
    kept = len(records())
    result = certify("--on-error", "skip", data="images")
    assert result.exit_code == 0, result.output
    assert "Skipped: images/b/1.png" in result.stderr
    assert [row[0] for row in records()] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert kept == 4, "the inputs before it"


def test_a_folder_without_images():
    Path("empty").mkdir()
    refused(certify(data="empty"), "empty: it has no folders of PNG or JPEG images")


def test_a_store_of_another_model_other_data_or_other_settings():
    certify("--limit", "2")
    before = records()
    models.linear(Path("other.onnx"), seed=5)
    refused(certify(engine="other.onnx"), "run.sqlite: it holds certificates of another model (SHA-256 ")
    with np.load("data.npz") as arrays:
        np.savez("other.npz", x=1 - arrays["x"], y=arrays["y"])
    refused(certify(data="other.npz"), "run.sqlite: it holds certificates of other data; choose another store")
    refused(certify("--seed", "1"), "seed = 0, and this one has 1")
    refused(certify("--alpha", "0.01"), "alpha = 0.001, and this one has 0.01")
    refused(certify("--batch", "32"), "batch = 64, and this one has 32")
    refused(certify("--bounds", "binary"), "run.sqlite: it holds a run with --bounds two-sided; choose another store")
    assert records() == before


def test_a_model_that_returns_nan_fails_in_one_sentence():
    models.linear(Path("nan.onnx"), nan=True)
    refused(certify(engine="nan.onnx"), ": none of the first 10 draws has finite logits", status=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "0"], "alpha = 0.0 is not valid"),
        (["--alpha", "1.5"], "alpha = 1.5 is not valid"),
        (["--sigma", "-1"], "sigma = -1.0 is not valid"),
        (["--sigma", "nan"], "sigma = nan is not valid"),
        (["--family", "gausian"], "did you mean 'gaussian'?"),
        (["--only", "50"], "only = 50 is not valid; the data has the inputs 0 to 39"),
        (["--n", str(2**57)], "n = 144115188075855872 is not valid; certificates are for 1 to 1000000000 draws"),
        (["--out", "no/such/folder.sqlite"], "no/such/folder.sqlite: it cannot be written"),
    ],
)
def test_values_that_make_no_sense(arguments, message):
    refused(certify(*arguments), message)


@pytest.mark.parametrize("arguments", ["--n 0", "--batch 0", "--batch many", "--seed -1", "--threads 0"])
def test_values_that_click_refuses(arguments):
    result = certify(*arguments.split())
    assert result.exit_code == 2
    assert "Invalid value" in result.stderr


def test_a_store_that_is_no_store():
    Path("run.sqlite").write_bytes(b"something else" * 1000)
    refused(certify(), "run.sqlite: it is not a run store")
    refused(CliRunner().invoke(main, ["results", "run.sqlite"]), "run.sqlite: it is not a run store")
    refused(CliRunner().invoke(main, ["results", "none.sqlite"]), "none.sqlite: there is no such file")
    refused(CliRunner().invoke(main, ["inspect", "none.onnx"]), "none.onnx: there is no such file")
