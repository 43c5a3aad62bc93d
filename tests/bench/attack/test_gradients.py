"""The gradients of an attack: from the model.pt that the run's model was exported from, or from one that fits it."""

import numpy as np
import pytest
import torch
from torch import nn

from ars.bench.attack.gradients import Ascent, load_gradients
from ars.engine.noise_maps import Isotropic
from ars.errors import ModelError
from ars.noise import GAUSSIAN, NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, write_model_file
from ars.train.noise_models import IsotropicNoise, NoiseShape
from ars.train.smoothing import SmoothedModel

SHAPE = (1, 12, 12)
X = np.full(SHAPE, 0.5, np.float32)


@pytest.fixture
def trained(tmp_path, one_thread):
    """A model.pt whose noise is made by a generator, and the maps that it makes at X."""
    torch.manual_seed(0)
    settings = ModelSettings(
        "cnn", SHAPE, ("a", "b", "c"), (0.0,), (1.0,), "gaussian", NoiseKind.INPUT, NoiseShape(sigma0=0.5)
    )
    model, path = build(settings), tmp_path / "model.pt"
    write_model_file(path, settings, model, {}, Images(torch.zeros(2, *SHAPE), torch.zeros(2, dtype=torch.int64)))
    with torch.no_grad():
        mean, scale = model.eval().noise(torch.from_numpy(X[None]))
    return path, (mean[0].numpy(), scale[0].numpy())


def test_a_model_that_fits_is_loaded_in_evaluation_mode_and_without_gradients_of_its_own(trained):
    path, maps = trained
    model = load_gradients(path, X, 3, maps)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_another_shape_other_classes_and_another_generator_are_refused(trained):
    path, (mean, scale) = trained
    with pytest.raises(ModelError, match=r"3 classes, and the run's are .* and 10; say with --model"):
        load_gradients(path, X, 10, None)
    with pytest.raises(ModelError, match=r"model\.pt: it is for inputs of shape \(1, 12, 12\)"):
        load_gradients(path, np.zeros((1, 8, 8), np.float32), 3, None)
    with pytest.raises(ModelError, match="its noise generator makes other maps than that of the run"):
        load_gradients(path, X, 3, (mean, scale + 0.1))


@pytest.mark.parametrize("restarts", [1, 4])
def test_perturbations_have_the_size_that_was_asked_for(restarts, one_thread):
    torch.manual_seed(0)
    model = SmoothedModel(nn.Sequential(nn.Flatten(), nn.Linear(144, 3)), IsotropicNoise(0.25), 0.25)
    ascent = ascend(model, restarts)
    earlier = None
    for size in (1.0, 0.5, 2.0):
        found = ascent.perturb(size, earlier)
        assert len(found) == restarts
        sizes = [np.linalg.norm((one - X) / 0.25) for one in found]
        np.testing.assert_allclose(sizes, size, rtol=1e-3)
        earlier = found[0]


def ascend(model, restarts):
    noise, effort = Isotropic(0.25), {"draws": 4, "restarts": restarts, "steps": 5, "seed": 0}
    return Ascent(model, noise, GAUSSIAN, 0, X, 1, moves_maps=False, **effort)


def test_gradients_that_are_not_numbers_propose_the_input_itself(one_thread):
    class Broken(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :3] * float("nan")

    found = ascend(SmoothedModel(Broken(), IsotropicNoise(0.25), 0.25), 2).perturb(1.0, None)
    assert all(np.array_equal(one, X) for one in found)
