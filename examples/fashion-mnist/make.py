"""Makes what `make demo` certifies: a small classifier, trained under noise, and 200 test images.

    python examples/fashion-mnist/make.py

It needs torch, onnx and onnxscript (`pip install 'ars[train]'`) and Debian's package dataset-fashion-mnist, and takes
some minutes on two cores. The classifier is a CNN trained under Gaussian noise of sigma 0.5 (Cohen et al., 2019), with
the normalisation inside.
"""

from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from ars.data import open_data

HERE = Path(__file__).parent
SIGMA, EPOCHS, BATCH, IMAGES = 0.5, 6, 256, 200


def tensors(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    data = open_data(f"fashion-mnist:{split}")
    examples = [data[i] for i in range(len(data))]
    return torch.from_numpy(np.stack([e.x for e in examples])), torch.tensor([e.label for e in examples])


class Normalize(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - 0.286) / 0.353


def network() -> nn.Sequential:
    layers: list[nn.Module] = [Normalize()]
    for channels_in, channels in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(channels_in, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 16, 10))


def without_traces(path: Path) -> None:
    """Take out the source lines and paths that the exporter writes beside each node."""
    model = onnx.load(path)
    del model.metadata_props[:], model.graph.metadata_props[:]
    for part in (*model.graph.node, *model.graph.initializer, *model.graph.value_info, *model.graph.input):
        del part.metadata_props[:]
    onnx.save(model, path)


def main() -> None:
    torch.manual_seed(0)
    x, y = tensors("train")
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = EPOCHS * (len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(x))[: len(x) // BATCH * BATCH].split(BATCH):
            noisy = x[rows] + SIGMA * torch.randn_like(x[rows])
            loss = nn.functional.cross_entropy(model(noisy), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        print(f"epoch {epoch + 1}: loss {total / len(x):.3f}")

    model.eval()
    x, y = tensors("test")
    with torch.no_grad():
        right = (model(x + SIGMA * torch.randn_like(x)).argmax(1) == y).float().mean()
    print(f"accuracy under noise on the test images: {right:.1%}")
    torch.onnx.export(
        model,
        (x[:2],),
        HERE / "classifier.onnx",
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("n")},),
        external_data=False,
        dynamo=True,
    )
    without_traces(HERE / "classifier.onnx")
    images = (x[:IMAGES] * 255).round().to(torch.uint8).numpy()
    np.savez_compressed(HERE / "images.npz", x=images, y=y[:IMAGES].numpy())


if __name__ == "__main__":
    main()
