"""The settling frames of one Subscribe stream: numbered, each made of commands, confirmed in order when durable."""

import asyncio
from collections import deque

from fila import limits
from fila.broker.loop import Broker
from fila.core.commands import SettleRuns
from fila.core.model import NO_RUNS, Action, Runs
from fila.errors import FilaError, InvalidArgumentError
from fila.server.call import checked_timeout_ms, shortened
from fila.wire.leases import read_runs, write_runs
from fila.wire.v1.service_pb2 import RefusedRuns, Settled, SubscribeRequest, SubscribeResponse

ENDED = "the lease had ended"


class _Frame:
    """A frame of which some commands are not yet answered."""

    __slots__ = ("messages", "open_commands", "refused", "sequence", "settling")

    def __init__(self, sequence: int, settling: "Settling") -> None:
        self.sequence = sequence
        self.settling = settling
        self.open_commands = 0
        self.messages = 0
        self.refused: list[Runs] = []

    def answer(self, reply: object) -> None:
        """Take the core's reply to one command: the runs that had ended, or an error."""
        if isinstance(reply, FilaError):
            # The command stays open: neither this frame nor one after it can be confirmed.
            self.settling.failure = reply
            self.settling.wake.set()
            return
        if not isinstance(reply, Runs):
            raise TypeError(f"SettleRuns was answered with {reply!r}")
        if reply.epochs:
            self.refused.append(reply)
        self.open_commands -= 1
        if not self.open_commands:
            self.settling.wake.set()


class Settling:
    """Turns frames into commands and their replies into Settled.

    `owed` is how many messages are settled and not yet confirmed, at least one for each frame. `failure` is an error
    after which nothing more can be confirmed.
    """

    def __init__(self, broker: Broker, consumer: int, wake: asyncio.Event) -> None:
        self._broker = broker
        self._consumer = consumer
        self._sequence = 0
        self._frames: deque[_Frame] = deque()
        self.wake = wake
        self.owed = 0
        self.failure: FilaError | None = None

    def take(self, request: SubscribeRequest) -> None:
        """Submit what a frame settles. Raises InvalidArgumentError, before anything is submitted, for a frame that is wrong."""
        _check_size(request)
        commands = _read_actions(request)
        messages = _check_span([runs for _, runs, _, _ in commands])
        if not request.sequence:
            if commands:
                raise InvalidArgumentError("a frame that settles something has no sequence")
            return
        if request.sequence != self._sequence + 1:
            raise InvalidArgumentError(f"the frame has sequence {request.sequence}, not {self._sequence + 1}")
        self._sequence += 1
        frame = _Frame(self._sequence, self)
        frame.open_commands = len(commands)
        frame.messages = messages
        self.owed += messages
        self._frames.append(frame)
        for action, runs, error, timeout_ms in commands:
            number = self._broker.expect(frame.answer)
            self._broker.submit(SettleRuns(number, self._consumer, action, runs, error, timeout_ms))
        if not commands:
            self.wake.set()

    def is_ready(self) -> bool:
        """Say whether there is something to confirm."""
        return bool(self._frames) and not self._frames[0].open_commands

    def confirm(self) -> bytes:
        """Return a SubscribeResponse that confirms all leading frames that are durable."""
        settled = Settled(sequence=self._frames[0].sequence - 1 if self._frames else self._sequence)
        while self.is_ready():
            frame = self._frames.popleft()
            self.owed -= frame.messages
            settled.sequence = frame.sequence
            for runs in frame.refused:
                settled.refused.append(
                    RefusedRuns(sequence=frame.sequence, runs=write_runs(runs), reason=ENDED)
                )
        return SubscribeResponse(settled=settled).SerializeToString()


def _read_actions(request: SubscribeRequest) -> list[tuple[Action, Runs, str, int]]:
    """Return what a frame asks for, in the order of its fields."""
    actions = []
    if request.HasField("ack"):
        actions.append((Action.ACK, read_runs(request.ack), "", 0))
    actions += [(Action.NACK, read_runs(nack.runs), shortened(nack.error), 0) for nack in request.nack]
    actions += [
        (Action.EXTEND, read_runs(extend.runs), "", checked_timeout_ms(extend.timeout_ms))
        for extend in request.extend
    ]
    if request.HasField("release"):
        actions.append((Action.RELEASE, read_runs(request.release), "", 0))
    return [action for action in actions if action[1] is not NO_RUNS]


def _check_size(request: SubscribeRequest) -> None:
    """Refuse a frame that is long work, before any of it is looked at. To parse the largest takes but 40 ms."""
    actions = len(request.nack) + len(request.extend)
    if actions > limits.SETTLE_ACTIONS_MAX:
        raise InvalidArgumentError(
            f"the frame has {actions:,} nacks and extensions, more than {limits.SETTLE_ACTIONS_MAX:,}: "
            "put leases with the same error or timeout into one"
        )
    columns = [request.ack, request.release, *[nack.runs for nack in request.nack]]
    columns += [extend.runs for extend in request.extend]
    runs = sum(max(len(column.epochs), len(column.positions)) for column in columns)
    if runs > limits.CREDIT_MESSAGES_MAX:
        raise InvalidArgumentError(
            f"the frame settles {runs:,} runs, more than the {limits.CREDIT_MESSAGES_MAX:,} leases of a stream"
        )


def _check_span(runs_of_actions: list[Runs]) -> int:
    """Return how many messages a frame may settle, at least 1. Raises InvalidArgumentError where they overlap beyond reason.

    Every message of every run may have to be listed as refused, and a small frame must not ask for a long list.
    """
    counted = 0
    whole: list[int] = []
    for runs in runs_of_actions:
        if runs.counts[0]:
            counted += sum(runs.counts)
        else:
            whole += runs.epochs
    # A whole delivery is at least one message.
    if counted + len(whole) > limits.CREDIT_MESSAGES_MAX:
        raise InvalidArgumentError(
            f"the frame settles {counted + len(whole):,} messages, more than the {limits.CREDIT_MESSAGES_MAX:,} leases of a stream"
        )
    if len(whole) > 1 and len(set(whole)) != len(whole):
        raise InvalidArgumentError("the frame settles a whole delivery twice")
    return max(1, counted + len(whole) * limits.DELIVERY_MESSAGES_MAX)
