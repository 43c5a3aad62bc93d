"""Exports of files that are no models, for tests of how they are published."""

from ars.export.draft import Draft
from ars.manifest import Manifest, NoiseSettings, Parity
from ars.noise import NoiseKind

PARITY = Parity("torch", "onnxruntime 1", 16, 1024, 1e-7, 1.0, None)
EMPTY = Manifest((4,), ("a", "b"), NoiseSettings("gaussian", NoiseKind.ISOTROPIC, 0.5), ())


def export(folder, files, precision="fp32", manifest=EMPTY):
    """Publish files by name and content."""
    with Draft(folder, "m.json") as draft:
        for name, (role, content) in files.items():
            draft.path(name).write_bytes(content)
            draft.add(role, draft.path(name), precision, PARITY if role == "classifier" else None)
        return draft.publish(manifest)


FIRST = {"m.onnx": ("classifier", b"one"), "m.int8.onnx": ("classifier", b"one in 8"), "m.noise.onnx": ("noise", b"n")}
SECOND = {"m.onnx": ("classifier", b"two"), "m.noise.onnx": ("noise", b"n2")}
