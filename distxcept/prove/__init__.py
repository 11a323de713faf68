"""`distxcept prove`: do the documented guarantees hold on this machine, and how fast is it.

rows.py         a result, the verdict, prove.json
machine.py      the devices to prove, and whether they are free and large enough
children.py     child processes: started, limited in number and time, ended together
cases.py        which trainings are compared, and the bound of each comparison
runs.py         child: several trainings in one process, one run folder each
quiet.py        child: links and the parts of an update, measured alone on the machine
environment.py, audit.py, equality.py, recovery.py, memory.py, speed.py, links.py      one section each
proof.py        runs the sections
page.py         the table of the terminal and prove.html
race/           programs that take turns, for the speed section and for benchmarks/
"""
