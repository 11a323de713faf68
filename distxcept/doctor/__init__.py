"""Is this machine ready, and if not, why. Each file checks one area and returns findings; nothing is changed.

The checks are pure functions of facts; thin readers beside them get the facts. TensorFlow, Horovod and mpi4py are
loaded in a child process only, so that a crash or a hang of theirs is one more finding.
"""

from distxcept.doctor.examination import examine
from distxcept.doctor.finding import Finding, worst_status

__all__ = ["Finding", "examine", "worst_status"]
