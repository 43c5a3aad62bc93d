"""ARS from Python: certify one image, certify many, predict without a certificate, and summarize run stores.

Run it with `python examples/certify.py`, with run stores as optional arguments, in an environment with ARS.
"""

import sys
from pathlib import Path

import numpy as np

import ars

FILES = Path(__file__).parent / "fashion-mnist"


def main() -> None:
    with np.load(FILES / "images.npz") as arrays:
        images, labels = arrays["x"], arrays["y"]  # integers in 0..255; floats are used as they are

    with ars.load(FILES / "classifier.onnx", sigma=0.5) as classifier:
        # One image: 100 draws select a class, and 10,000 bound its probability.
        certificate = classifier.certify(images[0], n=10_000)
        if certificate.abstained:
            print(f"image 0 (class {labels[0]}): no certificate")
        else:
            radius = ars.format_radius(certificate.radius)  # rounded down
            print(f"image 0 (class {labels[0]}): class {certificate.predicted} within {radius} in l2")
        p_a = ars.format_radius(certificate.p_a, 4)  # a lower bound, so rounded down too
        print(f"  pA >= {p_a}, alpha {certificate.alpha}, scope {certificate.scope}")

        # The guarantee covers a region; one can ask whether a perturbation lies in it.
        delta = np.full(images[0].shape, 0.001, np.float32)
        print(f"  covers a perturbation of 0.001 in every pixel: {certificate.covers(delta, 0.5)}")

        # Many images: their draws are packed into full batches, and each stops when its question is settled.
        plan = ars.Plan(n=10_000, question=ars.Grid((0.0, 0.25, 0.5)))
        for finished in classifier.certify_many(enumerate(images[:5]), plan):
            found, radius = finished.result, ars.format_radius(finished.result.radius)
            print(f"image {finished.input_id}: {found.predicted}, {radius}, {finished.draws} draws")

        # Only the answer, without a radius.
        print(f"the smoothed classifier predicts class {classifier.predict(images[0]).predicted} for image 0")

    for path in sys.argv[1:]:
        summary = ars.summarize(ars.read_records(path))
        acr = ars.format_radius(summary.average_certified_radius)
        print(f"{path}: {summary.inputs} certificates, average certified radius {acr}, {summary.draws:,} draws")


if __name__ == "__main__":
    main()
