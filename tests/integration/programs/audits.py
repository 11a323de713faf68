"""Audits of the update, one for each case on stdin, in one process: JSON in, JSON out.

python audits.py < [{"devices": 2, "overrides": {…}, "padded": false, "keras": false}, …]
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from distxcept.doctor.audit import audit_update

answers = []
for case in json.load(sys.stdin):
    found = audit_update(case["devices"], case["overrides"], padded=case["padded"], keras=case["keras"])
    answers.append({"problems": found.problems, "rows": found.rows(), "on_host": found.on_host})
print(json.dumps(answers))
