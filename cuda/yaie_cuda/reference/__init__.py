"""What the ops mean, in torch. Used on the CPU and wherever no kernel is built."""

from .attention import attend, attend_plainly, attend_ragged, gather
from .cache import copy_blocks, write_cache

__all__ = ["attend", "attend_plainly", "attend_ragged", "copy_blocks", "gather", "write_cache"]
