"""Whether there is room for more messages, and the error where there is not."""

from fila import limits
from fila.core.commands import Enqueue
from fila.core.log import QueueLog
from fila.core.usage import Usage
from fila.errors import FilaError, LimitError


def memory_error(usage: Usage, command: Enqueue) -> FilaError | None:
    """Refuse what would make the broker outgrow its memory."""
    keys = len(command.keys)
    # Each set of gates may mean a lane for each key, and usually means one.
    lanes = 0 if command.gates is None else max(keys, len(command.gates))
    if usage.bytes_with(len(command.sizes), keys, lanes) <= limits.MEMORY_BYTES_MAX:
        return None
    return LimitError(
        f"the broker holds as many messages as its memory allows ({limits.MEMORY_BYTES_MAX:,} bytes): "
        "consume or purge some"
    )


def offsets_error(log: QueueLog, count: int) -> FilaError | None:
    """Refuse what would run over the offsets that an id can hold."""
    if log.next_offset + count <= 1 << limits.OFFSET_BITS:
        return None
    return LimitError(f"the queue {log.spec.name!r} has used up its offsets: create another")
