"""As distxcept.prove.runs, but the case `micro_steps` has another learning rate: changed_learning_rate.py JOB.json FOLDER"""

import os
import sys
from pathlib import Path

from distxcept.prove import runs

real = runs.run_case


def run_case(config, engine, folder):
    if folder.name == "micro_steps":
        rate = config.optimizer.learning_rate * (1 + 1e-6)
        optimizer = config.optimizer.model_copy(update={"learning_rate": rate})
        config = config.model_copy(update={"optimizer": optimizer})
    return real(config, engine, folder)


runs.run_case = run_case
code = runs.main(Path(sys.argv[1]), Path(sys.argv[2]))
sys.stdout.flush()
os._exit(code)
