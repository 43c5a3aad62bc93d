#!/usr/bin/env bash
# build.sh FOLDER: write the source distribution, a wheel that was built from it, and on Linux repaired, and the bill of materials of
# the packages that it was tried with. It needs the extra `wheel` in the Python that is named by PYTHON.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PIP_CONSTRAINT=$PWD/constraints.txt "$python" -m build --quiet --outdir "$work" .
cp "$work"/*.tar.gz "$out"
if [ "$(uname)" = Linux ]; then
  PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH "$python" -m auditwheel repair --wheel-dir "$out" "$work"/*.whl
else
  cp "$work"/*.whl "$out"
fi
"$python" -m twine check --strict "$out"/*.whl "$out"/*.tar.gz
