"""A contestant that computes nothing: python stub.py SECONDS_OF_A_STEP [fail_at_start|fail_on_turn] SETTING"""

import sys

from distxcept.prove.race.serve import UPDATES_AT_START, Step, serve
from distxcept.prove.race.setting import Setting

seconds, *how, setting = sys.argv[1:]
done = 0


def run(steps: int) -> float:
    global done
    done += steps
    print("chatter of a library")
    if how == ["fail_on_turn"] and done > UPDATES_AT_START:
        sys.exit("no more memory")
    return steps * float(seconds)


def build() -> Step:
    if how == ["fail_at_start"]:
        raise ImportError("no such library")
    return Step(run, images=Setting.from_json(setting).batch, facts=lambda: {"done": done})


serve(build)
