"""Side by side with others on the same machine: programs that take turns, one at a time, and what comes of it.

turns.py    starts the contestants and lets them take turns
serve.py    a contestant's side of that: build, warm up, then so many steps whenever asked
ours.py     the update as `distxcept train` runs it
peers.py    keras.Model.fit and a hand-written loop
"""
