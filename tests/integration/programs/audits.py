"""Audits of the update, one for each case on stdin, in one process: JSON in, JSON out.

python audits.py < [{"devices": 2, "overrides": {…}, "padded": false, "keras": false}, …]
mpirun -np 2 python audits.py CASES      the same with Horovod, one device a rank; rank 0 answers
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from distxcept.doctor.audit import audit_config, audit_engine, audit_update

in_ranks = len(sys.argv) > 1
if in_ranks:
    from distxcept.engines.devices import prepare_devices
    from distxcept.engines.horovod import HorovodEngine, start_horovod

    start_horovod()
    prepare_devices(["CPU:0", "CPU:1"], threads=None)
    engine = HorovodEngine("CPU:1")

answers = []
for case in json.loads(Path(sys.argv[1]).read_text()) if in_ranks else json.load(sys.stdin):
    if in_ranks:
        config = audit_config(engine.replicas, case["overrides"])
        found = audit_engine(engine, config, padded=case["padded"], keras=case["keras"], early=case["early"])
    else:
        found = audit_update(
            case["devices"],
            case["overrides"],
            padded=case["padded"],
            keras=case["keras"],
            early=case["early"],
        )
    answers.append({"problems": found.problems, "rows": found.rows(), "early": found.early})
if not in_ranks or engine.is_chief:
    print(json.dumps(answers))
