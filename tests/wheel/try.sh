#!/usr/bin/env bash
# try.sh DISTRIBUTION [CONSTRAINTS]: install it with its extra `cpu` in an empty environment, and use it.
# With SBOM=FILE, also write which packages are there, as a CycloneDX bill of materials.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/tried"
"$work/tried/bin/pip" install --quiet ${2:+--constraint "$2"} "$(realpath "$1")[cpu]"
cd "$work" # so that nothing is imported from the repository
PATH=$work/tried/bin:$PATH "$here/use.sh" "$here/../../examples/fashion-mnist"
"$work/tried/bin/python" "$here/kernels.py"
if [ -n "${SBOM:-}" ]; then
  "$python" -m cyclonedx_py environment --pyproject "$here/../../pyproject.toml" --output-reproducible -o "$SBOM" \
    "$work/tried/bin/python"
fi
