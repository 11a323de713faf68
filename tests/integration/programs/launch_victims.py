"""`launch_victims.py RUN_FOLDER RESTARTS RANKS VIA STEP…`: rank_victim.py, started as `distxcept launch` would."""

import os
import sys
from pathlib import Path

from distxcept.launch.choose import Wishes, choose_ranks
from distxcept.launch.ranks import Program
from distxcept.launch.supervisor import Policy, Supervisor, make_folders


class Victims(Program):
    def arguments(self, *, resume_auto):
        return [
            sys.executable,
            str(Path(__file__).with_name("rank_victim.py")),
            str(self.run_folder),
            *self.overrides,
        ]


folder, restarts, ranks, via, *steps = sys.argv[1:]
make_folders(Path(folder))
program = Victims(run_folder=Path(folder), config="", overrides=tuple(steps))
where = {"hosts": ranks} if ":" in ranks else {"ranks": int(ranks)}
chosen = choose_ranks(Wishes(via=via, **where), program, os.environ)
policy = Policy(max_restarts=int(restarts), first_pause_seconds=0.01)


def say(message: str) -> None:
    print(f"supervisor: {message}", file=sys.stderr, flush=True)


sys.exit(Supervisor(Path(folder), chosen, policy, say).run())
