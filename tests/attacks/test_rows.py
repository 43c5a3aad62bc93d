"""Models that look at the other rows of a batch.

The mean of many noisy copies of an input is nearly the input. A model that computes it can give all copies the same
vote, even if the input is close to another class. Each model here passes the check that was made until rows of the
run's own batches were checked: rows of fixed random values, before a run, in batches of up to four. With that check
alone, two inputs at a distance of 0.4 get different classes with radii above 0.6.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper
from support import models
from support.engine_runs import refused

import ars
from ars.engine.cli import main
from ars.engine.row_check import RowCheck
from ars.errors import DependentRows, RunError, StoreError

SHAPE, SIGMA, BATCH = (3, 16, 16), 0.5, 64
D = int(np.prod(SHAPE))
MARGIN = 0.2
RNG = np.random.default_rng(15)
NORMAL = (lambda w: w / np.linalg.norm(w))(RNG.normal(size=D)).astype(np.float32)
CENTER = RNG.integers(0, 2, D).astype(np.float32)
PAIR = [(CENTER + side * MARGIN * NORMAL).reshape(SHAPE).astype(np.float32) for side in (1, -1)]
PLAN = ars.Plan(n0=100, n=10_000, alpha=0.001)
pytestmark = pytest.mark.filterwarnings("ignore:.* has values from")  # inputs far apart, which are not images


class Graph:
    """The nodes of an ONNX graph. Each call adds one, with constants where an argument is not a name."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def __call__(self, kind, *inputs, **attributes):
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        self.nodes.append(helper.make_node(kind, names, [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def constant(self, values):
        values = np.asarray(values)
        self.weights.append((f"w{len(self.weights)}", values.astype(np.float32) if values.dtype == float else values))
        return self.weights[-1][0]

    def mean(self, x, axes, keep=1):
        return self("ReduceMean", x, axes=axes, keepdims=keep)

    def yes(self, condition):
        return self("Cast", condition, to=TensorProto.FLOAT)

    def rows(self):
        return self("Cast", self("Gather", self("Shape", "x"), np.int64(0)), to=TensorProto.FLOAT)

    def pull(self, flat, target, gate):
        """flat where the gate is 0, the target where it is 1."""
        return self("Add", flat, self("Mul", gate, self("Sub", target, flat)))


def in_batches_above(size):
    return lambda g, flat: g.pull(flat, g.mean(flat, [0]), g.yes(g("Greater", g.rows(), float(size))))


def in_batches_of(size):
    return lambda g, flat: g.pull(flat, g.mean(flat, [0]), g.yes(g("Equal", g.rows(), float(size))))


def less_noise(g, flat):
    """Subtracts nearly all of the noise, which is the difference from the batch's mean, in batches above 4."""
    gate = g("Mul", g.yes(g("Greater", g.rows(), 4.0)), 0.97)
    return g.pull(flat, g.mean(flat, [0]), gate)


def leader(g, flat):
    """All rows are the mean of the first half, in batches above 8."""
    first = g("Slice", flat, np.array([0]), np.array([BATCH // 2]), np.array([0]))
    return g.pull(flat, g.mean(first, [0]), g.yes(g("Greater", g.rows(), 8.0)))


def where_the_spread_is_that_of_the_noise(g, flat):
    """Mixes only batches whose rows look like noisy copies of one input. Rows of uniform values do not."""
    apart = g("Sub", flat, g.mean(flat, [0]))
    variance = g("ReduceMean", g("Mul", apart, apart), axes=[0, 1], keepdims=0)
    close = g("Less", g("Abs", g("Sub", variance, SIGMA**2)), 0.1)
    return g.pull(flat, g.mean(flat, [0]), g.yes(close))


def near(target):
    """Replaces the rows that look like noisy copies of this input, or of one close to it, by their mean, whatever else
    the batch has."""

    def mix(g, flat):
        apart = g("Sub", flat, target.reshape(1, D))
        mask = g.yes(g("Less", g.mean(g("Mul", apart, apart), [1]), 1.15 * SIGMA**2))
        number = g("Max", g("ReduceSum", mask, np.array([0]), keepdims=1), 1.0)
        mean = g("Div", g("ReduceSum", g("Mul", flat, mask), np.array([0]), keepdims=1), number)
        return g.pull(flat, mean, mask)

    return mix


def classifier(path, mix=lambda g, flat: flat, *, scale=1.0, offset=0.0, center=CENTER):
    """Two classes, divided by the plane through the center with that normal, for rows that were mixed first."""
    g = Graph()
    mixed = mix(g, g("Flatten", "x"))
    score = g("Mul", g("MatMul", g("Sub", mixed, center.reshape(1, D)), NORMAL.reshape(D, 1)), scale)
    g.nodes.append(helper.make_node("Concat", [g("Add", score, offset), g("Sub", offset, score)], ["logits"], axis=1))
    return models.save(path, g.nodes, [models.value("x", "n", *SHAPE)], [models.value("logits", "n", 2)], g.weights)


ATTACKS = {
    "mixes in batches above 4": {"mix": in_batches_above(4)},
    "mixes in batches of the run's size": {"mix": in_batches_of(BATCH)},
    "subtracts the noise": {"mix": less_noise},
    "follows the first half of its batch": {"mix": leader},
    "behaves in pairs, and hides the rest": {"mix": in_batches_above(2), "scale": 1e3, "offset": 1e7},
    "mixes copies of one input": {"mix": where_the_spread_is_that_of_the_noise},
    "hides behind a large constant": {"mix": in_batches_above(1), "scale": 1e3, "offset": 1e7},
    "mixes copies of inputs that it knows": {"mix": near(CENTER)},
}


def former_check(self, run, shape):
    """What was checked before a run, and nothing was during one."""
    rows = np.random.default_rng(0).random((4, *shape), dtype=np.float32)
    together, turned, alone = run(rows)[0], run(rows[::-1].copy())[-1], run(rows[:1])[0]
    apart = max(np.abs(together - turned).max(), np.abs(together - alone).max())
    if apart > 0.01 * max(1.0, np.abs(together).max()):
        raise RunError("the model's logits for an input depend on the other inputs of its batch")


@pytest.fixture
def no_check_in_runs(monkeypatch):
    monkeypatch.setattr(RowCheck, "choose", lambda self, draws: np.empty(0, np.intp))


def certify(path, plan=PLAN, **options):
    with ars.load(path, sigma=SIGMA, **{"batch": BATCH, "seed": 0} | options) as opened:
        return [opened.certify(x, plan, input_id=number) for number, x in enumerate(PAIR)]


def contradict(one, other):
    distance = np.linalg.norm(PAIR[0].astype(float) - PAIR[1])
    return one.predicted != other.predicted and min(one.radius, other.radius) > 1.5 * distance


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_former_check_lets_it_certify_a_contradiction(tmp_path, monkeypatch, no_check_in_runs, attack):
    monkeypatch.setattr(RowCheck, "check_before_run", former_check)
    assert contradict(*certify(classifier(tmp_path / "model.onnx", **attack)))


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_it_is_refused(tmp_path, attack):
    path = classifier(tmp_path / "model.onnx", **attack)
    with pytest.raises(DependentRows, match="votes for a row depend on the other rows of its batch"):
        certify(path)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_rows_of_a_run_are_enough_to_refuse_it(tmp_path, monkeypatch, attack):
    """Without the check before a run. 44 rows are expected to be run again, and a third of them votes
    differently when run alone: one run in 10^8 passes."""
    monkeypatch.setattr(RowCheck, "check_before_run", lambda self, run, shape: None)
    path = classifier(tmp_path / "model.onnx", **attack)
    with pytest.raises(DependentRows, match=r"\d+ of \d+ rows .*voted differently when they were run again"):
        certify(path)


def test_the_same_classifier_without_mixing_is_certified_rightly(tmp_path):
    for certificate in certify(classifier(tmp_path / "model.onnx")):
        assert certificate.radius <= MARGIN


def test_hiding_the_logits_does_not_change_an_honest_certificate(tmp_path):
    hidden = certify(classifier(tmp_path / "hidden.onnx", scale=1e3, offset=1e5), ars.Plan(n0=100, n=2000))
    for certificate in hidden:
        assert certificate.radius <= MARGIN


@pytest.mark.parametrize("attack", ["mixes in batches above 4", "mixes copies of one input"])
def test_a_fixed_batch_does_not_help(tmp_path, attack):
    path = classifier(tmp_path / "model.onnx", **ATTACKS[attack])
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 16
    onnx.save(model, path)
    with pytest.raises(DependentRows):
        certify(path, ars.Plan(n0=100, n=100_000), batch=64)


@pytest.mark.parametrize("fixed", [64, 256])
def test_a_fixed_batch_does_not_hide_an_attack_on_two_inputs_of_many(tmp_path, fixed):
    """At n = 10,000, ten rows of each input are expected to be run again alone, and a third of them votes otherwise."""
    path = classifier(tmp_path / "model.onnx", near(CENTER))
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = fixed
    onnx.save(model, path)
    others = [(CENTER.reshape(SHAPE) + 3 * (number + 1)).astype(np.float32) for number in range(6)]
    with ars.load(path, sigma=SIGMA, batch=fixed) as opened, pytest.raises(DependentRows):
        list(opened.certify_many(enumerate([*others, *PAIR, *others, *PAIR]), n=10_000))


@pytest.fixture
def targeted(tmp_path, monkeypatch):
    """Four inputs, of which a model knows the last."""
    monkeypatch.chdir(tmp_path)
    inputs = [CENTER + shift for shift in (3, 6, 9, 0)] + MARGIN * NORMAL
    np.savez("data.npz", x=inputs.astype(np.float32).reshape(4, *SHAPE), y=np.zeros(4, int))
    return classifier(Path("model.onnx"), near(inputs[3].astype(np.float32)))


def run_targeted(path):
    with ars.load(path, sigma=SIGMA, batch=BATCH, threads=1, seed=1) as opened:
        return ars.certify_run(opened, "data.npz", ars.Plan(n0=100, n=50_000), store="run.sqlite")


def test_an_attack_on_one_input_is_found_and_takes_the_certificates_before_it_out_of_use(targeted):
    with pytest.raises(DependentRows, match=r"rows (of input 3 )?voted differently"):
        run_targeted(targeted)
    with pytest.raises(StoreError, match=r"run.sqlite: its certificates are refused, because the model's votes"):
        list(ars.read_records("run.sqlite"))
    with pytest.raises(StoreError, match="its certificates are refused"):
        run_targeted(targeted)


def test_without_the_check_it_is_certified(targeted, no_check_in_runs):
    run_targeted(targeted)
    *_, last = ars.read_records("run.sqlite")
    assert last.idx == 3
    assert last.certificate.radius > 1.5 * MARGIN


def test_a_run_that_is_refused_before_anything_is_certified_leaves_a_store_that_can_be_used(targeted):
    classifier(targeted, in_batches_of(BATCH))
    with pytest.raises(DependentRows):
        run_targeted(targeted)
    classifier(targeted)
    assert run_targeted(targeted).summary.inputs == 4


def test_the_command_says_so_in_one_sentence(targeted):
    arguments = ["--sigma", str(SIGMA), "--batch", "64", "--n", "50000", "--n0", "100", "--out", "run.sqlite"]
    result = CliRunner().invoke(main, ["certify", "--engine", str(targeted), "--data", "data.npz", *arguments])
    fix = "; export it for inference (model.eval()), and trust no certificate of this one"
    refused(result, "the model's votes for a row depend on the other rows of its batch, or on chance (", fix, status=1)


def test_a_model_that_draws_lots_is_refused(tmp_path, monkeypatch):
    """A model that is not a function of its row at all, if it had not been refused for its random node already."""
    monkeypatch.setattr("ars.external_data.refuse_random_nodes", lambda path, content: None)

    def shake(g, flat):
        return g("Add", flat, g("RandomNormalLike", flat, scale=float(SIGMA)))

    with pytest.raises(DependentRows):
        certify(classifier(tmp_path / "model.onnx", shake))


@pytest.mark.parametrize("attack", ["mixes copies of one input", "mixes copies of inputs that it knows"])
def test_on_a_gpu_it_is_refused_too(tmp_path, machine, monkeypatch, attack):
    """There a row that is alone has zeros for company. About 27 batches are run again: one run in 10^5 passes."""
    path = classifier(tmp_path / "model.onnx", **ATTACKS[attack])
    plan = ars.Plan(n0=100, n=100_000)
    with pytest.raises(DependentRows, match="voted differently when they were run again"):
        certify(path, plan, device="cuda:0")
    monkeypatch.setattr(RowCheck, "choose", lambda self, draws: np.empty(0, np.intp))
    assert contradict(*certify(path, PLAN, device="cuda:0"))
