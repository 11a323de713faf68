"""Replaces itself by a command that ends when the process PID ends: python -m distxcept.prove.tethered PID COMMAND…"""

import os
import sys

from distxcept.cluster.tether import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
