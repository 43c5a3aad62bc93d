#!/usr/bin/env bash
# nvcc.sh FOLDER: install nvcc from PyPI, as FOLDER/bin/nvcc. It needs no GPU, no driver and no installation of CUDA.
set -euo pipefail
python=$(for each in python3.12 python3; do "$each" -c "" 2> /dev/null && echo "$each" && break; done)  # pyenv has a shim for each version
"$python" -m venv "$1/packages"
"$1/packages/bin/pip" install --quiet 'nvidia-cuda-nvcc>=13,<14' 'nvidia-cuda-crt>=13,<14' 'nvidia-nvvm>=13,<14' \
  'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-cccl>=13,<14'
found=$(echo "$1"/packages/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)
mkdir -p "$1/bin"
printf '#!/bin/sh\nexec %s "$@"\n' "$found" > "$1/bin/nvcc"
chmod +x "$1/bin/nvcc" "$found"
"$1/bin/nvcc" --version
