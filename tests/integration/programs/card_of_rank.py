"""A rank compares its card with those of the others. Its device is a CPU; of the card the stand-in for CUDA tells.

mpirun -np 2 python card_of_rank.py LIBCUDA VISIBLE_TO_RANK_0 VISIBLE_TO_RANK_1      "none": the rank has no card
"""

import os
import sys

from distxcept.cluster import detect
from distxcept.config.schema import EngineSection
from distxcept.engines import create_engine
from distxcept.engines.horovod import HorovodEngine
from distxcept.errors import ConfigError
from distxcept.memory import cuda_cards
from distxcept.training import own_cards


class OnCard(HorovodEngine):
    on_cpu = False


engine = create_engine(EngineSection(name="horovod"), detect(os.environ))
library, *visible = sys.argv[1:]
own = visible[engine.rank]
if own != "none":
    os.environ["CUDA_VISIBLE_DEVICES"], cuda_cards.LIBRARY = own, library
    own_cards.cuda_ordinals = lambda devices: [engine.rank % len(own.split(","))]
    engine.__class__ = OnCard
try:
    own_cards.check_one_rank_per_card(engine)
except ConfigError as error:
    print(f"rank {engine.rank}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
print(f"rank {engine.rank} has a card of its own")
