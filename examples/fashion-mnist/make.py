"""Makes the files beside it, from Debian's package dataset-fashion-mnist:

    python examples/fashion-mnist/make.py data          train.npz and images.npz
    python examples/fashion-mnist/make.py classifier    classifier.onnx, in some minutes on two cores

train.npz has the first 5,000 training images and images.npz the first 200 test images: `ars-train --dataset
examples/fashion-mnist` trains on the one and validates on the other. The classifier is a CNN trained on all training
images under Gaussian noise of sigma 0.5 (Cohen et al., 2019), a tenth of the size of ars-train's, with the
normalisation inside; it needs torch, onnx and onnxscript (`pip install 'ars-certify[train]'`).
"""

import sys
import zipfile
from pathlib import Path

import numpy as np

from ars.data import open_data

HERE = Path(__file__).parent
SIGMA, EPOCHS, BATCH = 0.5, 6, 256


def write_data() -> None:
    for name, split, number in (("train", "train", 5000), ("images", "test", 200)):
        data = open_data(f"fashion-mnist:{split}")
        examples = [data[index] for index in range(number)]
        x = np.stack([np.rint(example.x * 255).astype(np.uint8) for example in examples])
        # numpy reads any .npz that zipfile reads; with LZMA it is a seventh smaller than as numpy writes it.
        with zipfile.ZipFile(HERE / f"{name}.npz", "w", zipfile.ZIP_LZMA) as archive:
            for array, values in (("x", x), ("y", np.array([example.label for example in examples]))):
                entry = zipfile.ZipInfo(f"{array}.npy")  # without the time, so that the file is always the same
                entry.compress_type = zipfile.ZIP_LZMA
                with archive.open(entry, "w") as file:
                    np.lib.format.write_array(file, values, allow_pickle=False)


def write_classifier() -> None:
    import onnx
    import torch
    from torch import nn

    from ars.train.batches import read_images

    class Normalize(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x - 0.286) / 0.353

    torch.manual_seed(0)
    layers: list[nn.Module] = [Normalize()]
    for channels_in, channels in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(channels_in, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 16, 10))
    images = read_images(open_data("fashion-mnist:train"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=EPOCHS * steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(images))[: steps * BATCH].split(BATCH):
            noisy = images.x[rows] + SIGMA * torch.randn_like(images.x[rows])
            loss = nn.functional.cross_entropy(model(noisy), images.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) / steps
        print(f"epoch {epoch + 1}: loss {total:.3f}")

    model.eval()
    test = read_images(open_data("fashion-mnist:test"))
    with torch.no_grad():
        right = (model(test.x + SIGMA * torch.randn_like(test.x)).argmax(1) == test.labels).float().mean()
    print(f"accuracy under noise on the test images: {right:.1%}")
    program = torch.onnx.export(
        model,
        (test.x[:2],),
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("n")},),
        dynamo=True,
    )
    assert program is not None
    proto = program.model_proto
    # The exporter writes source lines and paths of this machine beside each node.
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.initializer, *proto.graph.value_info):
        del part.metadata_props[:]
    onnx.save(proto, HERE / "classifier.onnx")


if __name__ == "__main__":
    {"data": write_data, "classifier": write_classifier}[sys.argv[1] if len(sys.argv) > 1 else "data"]()
