"""Models of this process: torch modules, exported behind the scenes or run as they are, and functions."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.modules import (
    CLASSES,
    SHAPE,
    AlwaysDropout,
    BatchStatistics,
    Bessel,
    Branches,
    Counts,
    KeepsFeatures,
    Linear,
    Net,
    ReturnsOutput,
    ReturnsTuple,
    TrainsItself,
)
from torch import nn

import ars
from ars.errors import ArgumentError, DataError, DependentRows, InputError, ModelError, NotExportable, RunError

X = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1))
PLAN = ars.Plan(n0=50, n=2000)


def load(model, **options):
    return ars.load(model, **{"sigma": 0.25, "batch": 64, "seed": 0} | options)


def certify(model, **options):
    with load(model, **options) as classifier:
        return classifier.certify(X, PLAN, input_id=0)


@pytest.fixture(scope="module")
def exported():
    """A module in training mode, and the smoothed classifier of it."""
    module = Net().train()
    with load(module) as classifier:
        classifier.certify(X, PLAN)
        yield module, classifier


def test_a_module_is_exported_and_votes_as_torch_does_in_evaluation_mode(exported):
    module, classifier = exported
    assert classifier.runner.name == "onnxruntime"
    counts = classifier.certify(X, PLAN, input_id=0).counts
    as_it_is = certify(module, backend="torch").counts
    in_evaluation_mode = certify(lambda rows: Net().eval()(torch.from_numpy(rows))).counts
    assert sum(counts) == PLAN.n
    # Rounding may move the vote of a draw whose largest logits nearly tie.
    for others in (as_it_is, in_evaluation_mode):
        assert np.abs(np.subtract(counts, others)).sum() <= 4


def test_a_module_itself_is_left_as_it_is(exported):
    module, _ = exported
    assert module.training
    assert module.dropout.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    for name, tensor in Net().state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor), name


def test_nothing_is_left_on_disk(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with load(Linear()) as classifier:
        classifier.certify(X, PLAN)
        assert not list(tmp_path.iterdir())
        assert classifier.runner.path == Path("Linear")


def test_a_changed_module_is_refused_and_not_certified_by_its_old_copy(exported):
    module, classifier = exported
    changes = [
        (lambda: module.head.bias.data.add_(1), lambda: module.head.bias.data.sub_(1)),
        (lambda: module.norm.running_var.mul_(2), lambda: module.norm.running_var.div_(2)),
        (lambda: module.means.add_(1), lambda: module.means.copy_(Net().means)),
        (lambda: setattr(module.norm, "eps", 0.5), lambda: setattr(module.norm, "eps", 1e-5)),
    ]
    bias = module.head.bias.detach().clone()
    for change, undo in changes:
        change()
        with pytest.raises(InputError, match=r"the module has changed since it was opened, .*; load it again"):
            classifier.certify(X, PLAN)
        with pytest.raises(InputError, match="has changed"):
            classifier.predict(X)
        undo()
        with torch.no_grad():
            module.head.bias.copy_(bias)
        classifier.predict(X)


def test_the_same_module_has_the_same_hash_and_its_run_is_resumed(exported, tmp_path):
    _, classifier = exported
    np.savez(tmp_path / "data.npz", x=np.stack([X, X]), y=np.zeros(2, int))
    store, data = tmp_path / "run.sqlite", str(tmp_path / "data.npz")
    ars.certify_run(classifier, ars.Inputs(data, limit=1), PLAN, store=store)
    with load(Net(), shape=SHAPE) as again:
        assert again.runner.sha256 == classifier.runner.sha256
        assert ars.certify_run(again, data, PLAN, store=store).summary.inputs == 2
    with load(lambda rows: rows.reshape(len(rows), -1)[:, :CLASSES], shape=SHAPE) as function:
        with pytest.raises(InputError, match="another model"):
            ars.certify_run(function, data, PLAN, store=store)
        ars.certify_run(function, data, PLAN, store=tmp_path / "function.sqlite")
    with (
        load(lambda rows: rows.reshape(len(rows), -1)[:, :CLASSES], shape=SHAPE) as another,
        pytest.raises(InputError, match="another model"),
    ):
        ars.certify_run(another, data, PLAN, store=tmp_path / "function.sqlite")


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda module: torch.compile(module, backend="eager")])
def test_what_is_about_where_a_module_runs_is_unwrapped(wrap):
    assert certify(wrap(Linear()), backend="torch") == certify(Linear(), backend="torch")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_module_computes_in_its_own_precision(dtype):
    found = certify(Linear().to(dtype), backend="torch")
    expected = certify(lambda rows: Linear().to(dtype)(torch.from_numpy(rows).to(dtype)))
    assert found.counts == expected.counts


def test_logits_of_an_output_object_are_found():
    assert certify(ReturnsOutput(), backend="torch") == certify(Linear(), backend="torch")


def test_a_module_that_is_random_in_evaluation_mode_is_refused():
    fix = "its forward must neither draw random numbers nor train in evaluation mode"
    with pytest.raises(ModelError, match=rf"^TrainsItself: its node .*training mode.*; {fix}"):
        certify(TrainsItself())
    for module in (TrainsItself(), AlwaysDropout()):
        with pytest.raises(DependentRows, match="or on chance"):
            certify(module, backend="torch")


def test_a_module_that_normalises_by_the_batch_is_refused():
    with pytest.raises(DependentRows):
        certify(BatchStatistics(), backend="torch")


def test_a_module_whose_state_changes_when_it_is_called_is_refused():
    with pytest.raises(ModelError, match="Counts: its forward changes its own parameters, buffers or attributes"):
        certify(Counts(), backend="torch")


def test_a_module_may_keep_its_last_features():
    assert certify(KeepsFeatures(), backend="torch") == certify(Linear(), backend="torch")


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (Bessel, r"its operator prims.bessel_j0.* has no counterpart in ONNX"),
        (Branches, r"its control flow depends on the values of its input \(modules.py:\d+: if x.sum\(\) > 0:\)"),
    ],
)
def test_a_module_that_cannot_be_exported_names_why_and_runs_as_it_is(module, problem):
    with pytest.raises(
        ModelError, match=rf"^{module.__name__}: {problem}.*, or run it as it is, with backend=\"torch\""
    ):
        certify(module())
    assert sum(certify(module(), backend="torch").counts) == PLAN.n


def test_a_module_that_the_backend_cannot_run_says_what_can():
    with pytest.raises(
        ModelError, match=r'^Linear: as ONNX, .*; change the module, or run it as it is, with backend="torch"'
    ):
        certify(Linear().bfloat16())


@pytest.mark.parametrize(
    ("function", "error", "problem"),
    [
        (lambda rows: rows[0], ModelError, r"it returns the shape \(3, 8, 8\) for 2 inputs"),
        (lambda rows: rows.reshape(len(rows), -1)[1:], ModelError, r"it returns the shape \(1, 192\) for 2 inputs"),
        (
            lambda rows: rows.reshape(len(rows), -1)[:, :1],
            ModelError,
            r"a single logit for each input; .* torch.cat\(\[-z, z\], 1\)",
        ),
        (
            lambda rows: rows.reshape(len(rows), -1)[: 2 if len(rows) == 2 else -1],
            ModelError,
            r"the shape \(63, 192\) for 64 inputs",
        ),
        (lambda rows: rows.reshape(len(rows), -1) * np.nan, RunError, "none of the first 50 draws has finite logits"),
        (lambda rows: None, ModelError, "it returns nothing"),
        (lambda rows: (rows, rows), ModelError, "it returns a tuple"),
        (lambda rows: np.full((len(rows), 2), "cat"), ModelError, "it returns values of type <U3"),
        (
            lambda rows: 1 / 0,
            RunError,
            r"failed on a batch of 2 x 3 x 8 x 8 \(division by zero\); it is called with a float32 array",
        ),
        (ReturnsTuple(), ModelError, "ReturnsTuple: it returns a tuple; it must return only the logits"),
    ],
)
def test_a_model_with_a_wrong_answer_is_refused(function, error, problem):
    with pytest.raises(error, match=problem):
        certify(function)


def test_what_is_not_a_model_is_refused():
    for wrong in (3, None, [1]):
        with pytest.raises(ArgumentError, match="it must be the path of a model, a torch module, or a function"):
            ars.load(wrong, sigma=0.25)
    with pytest.raises(
        ArgumentError, match=r"model = Net is not valid; it is a class; make a module of it, like Net\(\)"
    ):
        ars.load(Net, sigma=0.25)
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(ArgumentError, match=r"model = LogisticRegression is not valid; .* like model.predict_proba"):
        ars.load(LogisticRegression(), sigma=0.25)
    for empty, tensor in ((nn.Sequential(nn.LazyLinear(4)), "0.bias"), (nn.Linear(8, 4, device="meta"), "bias")):
        with pytest.raises(ModelError, match=f"its tensor '{tensor}' has no values yet; load its weights, or call it"):
            certify(empty)
    with pytest.raises(ArgumentError, match="a function is run as it is"):
        ars.load(Linear().forward, sigma=0.25, backend="openvino")
    with pytest.raises(ArgumentError, match=r"device = cuda:0 .*runs where it is"):
        ars.load(Linear(), sigma=0.25, backend="torch", device="cuda:0")


def test_what_is_wrong_is_said_at_once_and_not_at_the_first_input():
    for options in ({}, {"sigma": -1.0}, {"sigma": 0.25, "family": "gausian"}, {"sigma": 0.25, "shape": ()}):
        with pytest.raises(InputError):
            ars.load(Linear(), **options)
    with pytest.raises(ArgumentError, match="a file says its shape itself"):
        ars.load("model.onnx", shape=(3, 8, 8))


def test_what_needs_the_shape_says_how_to_give_it():
    classifier = load(Linear())
    with pytest.raises(InputError, match=r"the shape of the model's inputs is not known yet; give it to ars.load"):
        ars.certify_run(classifier, "data.npz")


def test_a_batch_where_one_input_was_expected_is_named_so(exported):
    for classifier in (exported[1], load(Linear()), load(lambda rows: Linear()(torch.from_numpy(rows)))):
        with pytest.raises(
            DataError, match=r"its shape \(2, 3, 8, 8\) is that of a batch of 2.*; give one input, like x"
        ):
            classifier.certify(torch.stack([X, X]))


def test_arrays_and_tensors_of_any_type_are_inputs(exported):
    _, classifier = exported
    expected = classifier.certify(X.numpy(), PLAN, input_id=5)
    for x in (X, X.double(), X.clone().requires_grad_(), X.numpy().astype(np.float64)):
        assert classifier.certify(x, PLAN, input_id=5) == expected
    for x in (X.half(), X.bfloat16()):
        assert classifier.certify(x, PLAN, input_id=5) == classifier.certify(x.float(), PLAN, input_id=5)


def test_inputs_that_are_not_pixels_give_a_warning_of_their_units():
    classifier = load(Linear(), backend="torch")
    with pytest.warns(
        UserWarning, match=r"values from .* sigma and every radius are in these units, and not in those of p"
    ):
        classifier.certify(4 * X - 2, PLAN)
    classifier.certify(4 * X - 2, PLAN)  # once is enough


def test_import_ars_does_not_import_torch_or_onnx():
    code = "import sys, ars; print(sorted({'torch', 'onnx', 'onnxruntime'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_without_the_exporter_the_error_has_the_install_line(monkeypatch):
    monkeypatch.delitem(sys.modules, "ars.export.modules", raising=False)
    monkeypatch.delitem(sys.modules, "ars.export.onnx_files", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"onnx is not installed; run `pip install 'ars-certify\[train\]'`"):
        certify(Linear())


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("script", [torch.jit.script, lambda module: torch.jit.trace(module, torch.zeros(2, *SHAPE))])
def test_torchscript_is_exported_or_run_as_it_is(script):
    module = script(Net().eval())
    expected = certify(Net()).counts
    for backend in ("auto", "torch"):
        with load(module, backend=backend) as classifier:
            assert np.abs(np.subtract(classifier.certify(X, PLAN, input_id=0).counts, expected)).sum() <= 4
            assert classifier.runner.path == Path("Net")
            module.train()
            classifier.certify(X, PLAN)  # its mode is no change
            with torch.no_grad():
                module.head.bias[0] += 1
            with pytest.raises(InputError, match="the module has changed since it was opened"):
                classifier.certify(X, PLAN)
            module.eval()
            with torch.no_grad():
                module.head.bias[0] -= 1


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchscript_that_torch_cannot_convert_says_that_torch_runs_it():
    module = torch.jit.script(Bessel())
    with pytest.raises(NotExportable, match=r'^Bessel: .*; .*run it as it is, with backend="torch"'):
        certify(module)
    assert sum(certify(module, backend="torch").counts) == PLAN.n


def test_sigma_and_noise_exclude_each_other_before_anything_is_opened():
    with pytest.raises(ArgumentError, match="give either sigma or noise"):
        load(Linear(), noise="maps.npz")
