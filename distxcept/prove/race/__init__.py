"""Programs that take turns on the same machine, one at a time, and the ratios of their speeds.

turns.py    starts the contestants and lets them take turns
serve.py    a contestant's side of that: build, warm up, then so many steps whenever asked
ours.py     the update as `distxcept train` runs it
peers.py    keras.Model.fit and a hand-written loop
"""
