"""Who am I: which launcher started this process, as which rank of how many.

The only place that reads the environment of mpirun, horovodrun and SLURM, and (control.py) that speaks mpi4py.
Imports no TensorFlow.
"""

from distxcept.cluster.detection import detect
from distxcept.cluster.placement import Placement

__all__ = ["Placement", "detect"]
