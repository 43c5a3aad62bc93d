#!/usr/bin/env bash
# What a user does first, with the installed commands and nothing else of the repository than an example:
#   use.sh EXAMPLE, a folder with classifier.onnx and images.npz
set -euo pipefail
example=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$example/classifier.onnx" "$example/images.npz" .
ars-engine --version
ars-engine selftest
ars-engine certify --engine classifier.onnx --data images.npz --sigma 0.25 --n 1000 --limit 20 \
  --seed 1 --out run.sqlite --quiet
ars-engine results run.sqlite > results.tsv
test "$(wc -l < results.tsv)" -eq 21
ars-engine audit run.sqlite --sample 3 --quiet
ars-bench report run.sqlite -o run.html
test -s run.html
