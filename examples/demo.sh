#!/usr/bin/env bash
# From nothing to certificates in a few minutes: train, export, certify, measure, report. `make demo` runs this script.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
out=build/demo
data=examples/fashion-mnist

step() { printf '\n\033[1m%s\033[0m\n' "[$((SECONDS / 60)) min $((SECONDS % 60)) s] $1"; }
run() { printf '$ %s\n' "$*"; "$@"; }

rm -rf "$out"
mkdir -p "$out"

step "Train a small CNN on 5,000 images of Fashion-MNIST, twice: with noise made for each input, and with isotropic noise"
run ars-train --dataset "$data" --noise input --sigma 0.5 --epochs 4 --draws 1 -o "$out/input.pt"
run ars-train --dataset "$data" --noise isotropic --sigma 0.5 --epochs 4 --draws 1 -o "$out/isotropic.pt"

if python -c 'import sys, importlib.util as u; sys.exit(not (u.find_spec("tensorrt") or u.find_spec("tensorrt_rtx")))'; then
  tensorrt=on also=" and as a TensorRT engine"
else
  tensorrt=off also=""
fi
step "Export both to ONNX, in FP32 and INT8$also, and compare the files with the trained models"
run ars-export "$out/input.pt" --precision fp32,int8 --tensorrt "$tensorrt"
run ars-export "$out/isotropic.pt" --precision fp32,int8 --tensorrt off

step "Certify 200 test images; each stops as soon as its place in the table of radii is settled"
for noise in input isotropic; do
  run ars-engine certify --engine "$out/$noise.int8.onnx" --data "$data/images.npz" --n 10000 --stopping adaptive \
    --out "$out/$noise.sqlite"
done

step "Compare the speed with the PyTorch loop that the field uses"
run ars-bench run --engine "$out/input.json" --data "$data/images.npz" --inputs 4 --rounds 3 \
  --backend loop --backend openvino --export-json "$out/bench.json"

step "Write a report"
run ars-bench report "$out/input.sqlite" "$out/isotropic.sqlite" --bench "$out/bench.json" -o "$out/report.html"

step "Done"
cat <<END
Two classifiers were trained, exported in two precisions$also, and certified on 200 images: within the certified
radius of an image, no perturbation changes the answer. Everything is in $out:

  report.html                        curves, noise maps, every certificate, and what is guaranteed
  input.sqlite, isotropic.sqlite     the run stores
  input.json and files beside it     the model: ONNX in each precision, its noise generator, its manifest
  bench.json                         all measured times

Open $out/report.html in a browser. Then try:

  ars-engine audit $out/input.sqlite                              # redraw a sample of the noise, and check
  ars-engine results $out/input.sqlite | head                     # the certificates as a table
  ars-engine certify --engine YOUR.onnx --sigma 0.25 --data YOUR-IMAGES/   # any classifier of your own
END
if [ -d .venv ]; then printf '\nThe commands are in .venv/bin: source .venv/bin/activate\n'; fi
