"""Predict on many examples, as the field's predict.py does: one line of output for each.

    python predict.py images.npz model.pt 0.5 predicted.tsv --skip 20 --max 200

Only the import of Smooth differs from a script for locuslab/smoothing, which has `from core import Smooth`.
"""

import argparse
import datetime
import time
from pathlib import Path

import torch

from ars import Smooth
from ars.data import open_data
from ars.train.model_file import load_model


def main() -> None:
    parser = argparse.ArgumentParser(description="Predict on many examples")
    parser.add_argument("dataset", help="the data to predict")
    parser.add_argument("base_classifier", type=Path, help="the trained base classifier")
    parser.add_argument("sigma", type=float, help="the noise level")
    parser.add_argument("outfile", type=Path, help="where the predictions go")
    parser.add_argument("--batch", type=int, default=1000, help="the batch size")
    parser.add_argument("--skip", type=int, default=1, help="take every so many examples")
    parser.add_argument("--max", type=int, default=-1, help="stop before this example")
    parser.add_argument("--split", choices=["train", "test"], help="a part of the data, if it has parts")
    parser.add_argument("--N", type=int, default=100_000, help="the number of draws")
    parser.add_argument("--alpha", type=float, default=0.001, help="the failure probability")
    args = parser.parse_args()

    settings, model, _ = load_model(args.base_classifier)
    smoothed = Smooth(model.classifier, len(settings.classes), args.sigma)
    dataset = open_data(f"{args.dataset}:{args.split}" if args.split else args.dataset)

    with args.outfile.open("w") as out:
        print("idx\tlabel\tpredict\tcorrect\ttime", file=out, flush=True)
        for i in range(0, len(dataset), args.skip):
            if i == args.max:
                break
            x, label = torch.from_numpy(dataset[i].x), dataset[i].label
            start = time.time()
            prediction = smoothed.predict(x, args.N, args.alpha, args.batch)
            elapsed = datetime.timedelta(seconds=time.time() - start)
            correct = int(prediction == label)
            print(f"{i}\t{label}\t{prediction}\t{correct}\t{elapsed}", file=out, flush=True)


if __name__ == "__main__":
    main()
