"""A broker that is killed, cut from its power, given a bad disk and sent nonsense: it keeps its promises.

Everything random comes from SEED. FANLOG_FAULTS_SEED=N in the environment tries another course of events.
"""

import os

SEED = int(os.environ.get("FANLOG_FAULTS_SEED", "1"))
