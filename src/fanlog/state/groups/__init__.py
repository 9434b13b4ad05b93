"""Consumer groups: who reads which partitions, and how far they have come.

`machine` decides, `coordinator` does: it performs what the machine asks for, keeps groups and offsets in the
internal topic (`encoding`), and watches the time (`deadlines`).
"""

from fanlog.state.groups.coordinator import Description, Groups
from fanlog.state.groups.encoding import Committed
from fanlog.state.groups.offsets import Place

__all__ = ["Committed", "Description", "Groups", "Place"]
