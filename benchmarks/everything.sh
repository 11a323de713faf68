#!/bin/bash
# All measurements of speed, one after the other: OUT/bench.json, bench.md and pictures. Takes some hours on a small machine.
#
#   benchmarks/everything.sh [OUT]               OUT is build/bench unless given
#   QUICK=1 benchmarks/everything.sh             tiny sizes, to see that everything runs; the figures mean nothing
#   PYTHON=… TORCH_PYTHON=… benchmarks/everything.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../build/bench}
python=${PYTHON:-$here/../.venv/bin/python}
torch_python=${TORCH_PYTHON:-$python}
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$out/parts"
rm -f "$out"/parts/*

part() { # name, program, arguments…
    local name=$1 program=$2
    shift 2
    echo "== $name" >&2
    if ! "$python" "$here/$program" --json "$out/parts/$name.json" "$@" > "$out/parts/$name.md"; then
        echo "$name failed; the others go on" >&2
        echo "($program failed)" >> "$out/parts/$name.md"
    fi
}

if [ -n "${QUICK:-}" ]; then
    small=(--width 0.125 --rounds 1 --seconds 0.2)
    part 1-step step.py --sizes 71x4 --torch-python "$torch_python" "${small[@]}"
    part 2-accumulate accumulate.py --image-size 71 --batch 2 --steps 1,2,4 --watched 16 "${small[@]}"
    part 3-scale scale.py --image-size 71 --batches 2,4 --ranks 1,2 "${small[@]}"
    part 4-startup startup.py --image-size 71 --batch 4 --width 0.125 --images 40 --starts 1
    part 5-profile profile_update.py --image-size 71 --batch 4 --width 0.125
    part 6-watching watching.py --image-size 71 --width 0.125 --epochs 1 --updates 4
    part 7-saving saving.py --image-size 71 --pairs 2
    part 8-kernels kernels.py --image-size 71 --batch 2 --width 0.125 --seconds 0.01
    part 9-first-update first_update.py --devices 1,2 --starts 1
else
    part 1-step step.py --torch-python "$torch_python"
    part 2-accumulate accumulate.py
    part 3-scale scale.py
    part 4-startup startup.py
    part 5-profile profile_update.py
    part 6-watching watching.py
    part 7-saving saving.py
    part 8-kernels kernels.py
    part 9-first-update first_update.py
fi

cat "$out"/parts/*.md > "$out/bench.md"
"$python" - "$out" <<'PYTHON'
import json, pathlib, sys

out = pathlib.Path(sys.argv[1])
found = {}
for part in sorted((out / "parts").glob("*.json")):
    found |= json.loads(part.read_text())
(out / "bench.json").write_text(json.dumps(found, indent=1) + "\n")
PYTHON
"$python" "$here/plots.py" "$out/bench.json" "$out" >&2
echo "$out/bench.md"
