"""Every bound of fila, with its unit in its name and its reason beside it.

What happens at a limit is a clear error to the one who caused it, never a crash, a silent drop or
unbounded memory. What the storage engine is told of buffers and files stands with the engine, in `storage/rocksdb.py`.
"""

KIB = 1024
MIB = 1024 * KIB
SECOND_NS = 1_000_000_000
MS_NS = 1_000_000

# --- messages ---------------------------------------------------------------------------------------

# A client with gRPC's default receive limit (4 MiB) must be able to receive any message, with its metadata.
BODY_BYTES_MAX = 4 * MIB - 64 * KIB
# One batch is one command and one reply; larger batches gain nothing and delay everyone else's commit.
BATCH_MESSAGES_MAX = 10_000
BATCH_BYTES_MAX = 16 * MIB
# What gRPC accepts as one frame: a full batch with its columns.
FRAME_BYTES_MAX = BATCH_BYTES_MAX + 2 * MIB
# Names travel with messages and stay in memory while their key is active.
FAIRNESS_KEY_BYTES_MAX = 256
# The key of messages that name none.
FAIRNESS_KEY_DEFAULT = "default"
QUEUE_NAME_BYTES_MAX = 255
ERROR_BYTES_MAX = 1 * KIB
# A turn of the heaviest key must end: at cost 1 it is at most this many deliveries.
WEIGHT_MAX = 1_000_000
COST_MAX = 1_000_000_000

# --- addresses --------------------------------------------------------------------------------------

# A message id has 74 free bits: they hold the address.
QUEUE_NUMBER_BITS = 30
OFFSET_BITS = 44

# --- queues and the core ------------------------------------------------------------------------------

QUEUES_MAX = 100_000
# Offsets are kept in segments: a progress record is one bitmap of this many bits.
SEGMENT_BITS = 10
SEGMENT_MESSAGES = 1 << SEGMENT_BITS
# Larger pages are cheaper per message in order and dearer at random, and one slow message must not pin a megabyte.
PAGE_BYTES = 32 * KIB
# When a segment is full and has more index rows than this, they are written again as one: else a queue filled one by
# one would take a disk record per message at every start. Batches of 100 stay as they are.
SEGMENT_ROWS_MAX = 12
# One unit of cost in the scheduler's integers.
COST_UNITS = 1_000
QUANTUM_DEFAULT = 1_000
QUANTUM_MAX = 1_000_000_000
# What things take in memory, with their share of the structures around them; columns stay until their segment is finished.
MESSAGE_MEMORY_BYTES = 44
SEGMENT_MEMORY_BYTES = 24 * KIB
# What a message takes besides while it is leased, and from its first failure on.
LEASE_MEMORY_BYTES = 220
ATTEMPT_MEMORY_BYTES = 250
KEY_MEMORY_BYTES = 1 * KIB
QUEUE_MEMORY_BYTES = 10 * KIB
# What the broker may take for all of that; beyond it producers are refused.
MEMORY_BYTES_MAX = 4 * 1024 * MIB

# --- gates and the runtime configuration ---------------------------------------------------------------

# Names of gates travel with messages, and stand in memory while anything waits there, as fairness keys do.
GATE_KEY_BYTES_MAX = FAIRNESS_KEY_BYTES_MAX
# Of one kind, rates or limits of what is in flight. All gates of a message are looked at for each delivery.
GATES_PER_MESSAGE_MAX = 16
# Tokens, per second and at once: more is no limit.
THROTTLE_MAX = 1_000_000_000_000
CONCURRENCY_MAX = 1_000_000_000
CONFIG_KEY_BYTES_MAX = 256
CONFIG_VALUE_BYTES_MAX = 1_024
# All of it is in memory, and a change of a pattern looks at every gate.
CONFIG_ENTRIES_MAX = 100_000
# When a rate gate with more than a token for each of these opens, it lets them collect for so long: each opening is a step of
# the core and a delivery, and a bucket that is full again in less is opened in time.
GATE_WAIT_NS = MS_NS
# A lane that waits at a gate of its own (measured; at one that others share it takes a third of it).
LANE_MEMORY_BYTES = 4 * KIB + 512

# --- leases -------------------------------------------------------------------------------------------

VISIBILITY_TIMEOUT_MS_DEFAULT = 30_000
VISIBILITY_TIMEOUT_MS_MIN = 1_000
VISIBILITY_TIMEOUT_MS_MAX = 12 * 3600 * 1000
# A delivery is one lease record, one frame, and with a consumer that keeps up one sync for its acks: large enough to amortise them
# (of 500 instead of 1,000, each message costs 0.4 us more), small enough to share among consumers.
DELIVERY_MESSAGES_MAX = 1_000
DELIVERY_BYTES_MAX = 2 * MIB
# What one stream may have granted and not yet received. What it holds unsettled counts towards the broker's memory.
CREDIT_MESSAGES_MAX = 100_000
CREDIT_BYTES_MAX = 256 * MIB
# The classic Consume has no credit in its protocol.
CONSUMER_WINDOW_DEFAULT = 100
CONSUMER_WINDOW_MAX = 10_000
# What one Consume stream may hold unacked in bytes, whatever its window.
CONSUMER_WINDOW_BYTES = 16 * MIB
# The answer to Lease is one delivery, which clients with gRPC's default receive limit can take.
LEASE_MESSAGES_MAX = DELIVERY_MESSAGES_MAX
LEASE_BYTES_MAX = DELIVERY_BYTES_MAX
LEASE_WAIT_MS_MAX = 60_000
# A consumer takes a few hundred bytes, and an idle stream some ten KiB in gRPC.
CONSUMERS_MAX = 20_000

# Without a policy: the first retry at once, then this, doubling.
RETRY_BACKOFF_MS_FIRST = 100
RETRY_BACKOFF_MS_MAX = 30_000

# --- hooks --------------------------------------------------------------------------------------------

# A policy, not a program: it is compiled anew after each failure.
HOOK_SOURCE_BYTES_MAX = 64 * KIB
# What one call into a script takes: enough to amortise the call, little enough that the script's memory is the script's.
HOOK_CALL_MESSAGES_MAX = 250
HOOK_CALL_BYTES_MAX = 256 * KIB
# What a script is given of one message's headers: reading them must stay far below a script's time.
HOOK_HEADER_BYTES_MAX = 64 * KIB
HOOK_HEADERS_MAX = 256
# All that hooks may read of the runtime configuration, with this much for what each entry takes besides its text.
HOOK_CONFIG_BYTES_MAX = 1 * MIB
HOOK_CONFIG_ENTRY_BYTES = 64
# A batch holds everybody up: this many times a message's time, and for each of its messages so much.
HOOK_BATCH_TIMEOUTS_MAX = 10
HOOK_BATCH_US_PER_MESSAGE = 100
# Thirty days: longer is a mistaken unit.
DELAY_MS_MAX = 30 * 24 * 3600 * 1000

# --- calls --------------------------------------------------------------------------------------------

# Calls that are open at once, streams included; a stream costs some 30 KB.
CALLS_MAX = 20_000
# Requests other than Enqueue and batches: 10,000 message ids with their epochs are 0.5 MB.
REQUEST_BYTES_MAX = 1 * MIB
# A status travels in trailers, which gRPC bounds at 8 KiB and percent-encodes: a longer text would lose the status.
STATUS_CHARACTERS_MAX = 500
# A frame of a Subscribe stream: as many runs as it may hold leases.
SETTLE_FRAME_BYTES_MAX = 2 * MIB
# Its nacks and extensions in all: each is a command of its own, some ten microseconds in which nobody else is served.
SETTLE_ACTIONS_MAX = 1_000
# A client begins another frame when the errors of one are so long: at four bytes a character, and with what the other fields
# take, it is far from the bound.
SETTLE_ERRORS_CHARACTERS = SETTLE_FRAME_BYTES_MAX // 16
# Settled messages that a Subscribe stream was not yet answered for, whole deliveries at their largest: each may have to be
# listed as refused. Beyond it the stream is not read.
SETTLE_MESSAGES_OWED_MAX = 100 * DELIVERY_MESSAGES_MAX
# What may wait in memory for one Subscribe stream to take it, however much credit it has granted.
STREAM_BYTES_MAX = 16 * MIB

# --- connections --------------------------------------------------------------------------------------

# Each side pings a silent peer so often, and gives it up when nothing has come back for so long: a machine that vanished
# costs its consumers' leases less than a minute, and an idle connection two small packets.
KEEPALIVE_INTERVAL_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000
# A client that pings more often than this without having anything to say is sent away: no sound one does.
PING_INTERVAL_MS_MIN = 5_000

# --- clients ------------------------------------------------------------------------------------------

# How long a unary call may take unless its caller says otherwise: a commit takes milliseconds, a broker that opens its store
# again some seconds.
CALL_TIMEOUT_SECONDS = 30.0
# What may be written for any of these times: longer is a mistaken unit, and no timer takes infinity.
WAIT_SECONDS_MAX = 366 * 24 * 3600.0
# How long the broker may take to confirm what was sent last, before the stream is cut: longer than it takes to drain.
STREAM_CLOSE_TIMEOUT_SECONDS = 10.0
# What is left when the connection has been closed has so long to say why it failed; it waits for nobody.
CLOSE_GRACE_SECONDS = 0.5
# So often a worker's main thread looks for signals that another thread was given.
SIGNAL_CHECK_SECONDS = 0.5
# Between attempts to reach a broker that was there: a restart takes a second or two, and thousands may wait for it.
RECONNECT_MS_FIRST = 50
RECONNECT_MS_MAX = 5_000
# How long a connection may take to come about before the attempt is given up and another is made.
CONNECT_TIMEOUT_MS = 5_000
# How long a message may wait in a producer for its receipt, reconnects included, before it fails.
PRODUCER_DELIVERY_TIMEOUT_SECONDS = 120.0
# Acks that a consumer has sent and the broker has not confirmed; beyond it, the next waits. A few commits' worth: so the
# loop does not wait for the disk, and a lost connection leaves little in doubt.
ACKS_UNCONFIRMED_MAX = 4_000
# With so many in one frame it is time to let it go. The credit that it frees comes back as one delivery, and both cost the broker
# a commit: with frames of 200, a message costs client and broker together 10 us, of 500 7.5 us, of 750 or 1,000 7.1 us.
ACKS_FRAME_MESSAGES = 750
# So long a thread waits at most for a frame of that size to leave: the loop's thread needs some tenths of a millisecond for it.
ACKS_FRAME_SECONDS = 0.01
# Beyond this a larger batch saves nothing measurable and delays everyone else's commit.
PRODUCER_BATCH_MESSAGES = 500
PRODUCER_BATCH_BYTES = 512 * KIB
# Enough to keep the broker's commit busy while receipts travel.
PRODUCER_BATCHES_IN_FLIGHT = 8
# What a producer holds in memory: its batches in flight, and more than as much again in the making.
PRODUCER_MESSAGES_HELD_MAX = 10_000
PRODUCER_BYTES_HELD_MAX = 16 * MIB
# Acks that came too late are logged together when they come within so long.
LATE_ACKS_LOG_SECONDS = 10.0
# What a consumer leases ahead follows the pace of its loop: so much work. A round trip takes about a millisecond, and with a tenth of
# a second of work ahead a message that may overtake is hardly held up.
WINDOW_SECONDS = 0.1
# What waits for longer goes back: the loop has become slower than it was.
WINDOW_STALE_SECONDS = 1.0
# The most that a consumer leases ahead of its loop: two frames of acks, so that one delivery travels while the other is worked on. More gains
# nothing; with frames and all half as large, the loop is a quarter slower.
PREFETCH_MESSAGES = 2 * ACKS_FRAME_MESSAGES
PREFETCH_BYTES = 8 * MIB
# How many handlers of a worker run at once unless it says otherwise, and how long they may take to end when it is told to stop.
WORKER_CONCURRENCY = 10
WORKER_CONCURRENCY_MAX = 10_000
WORKER_DRAIN_SECONDS = 30.0
# The same for `fila consume`. Printing is what takes time: more ahead would only keep messages from other consumers.
PRINT_PREFETCH_MESSAGES = 100
# What `fila consume` without --ack holds back from others until it ends; each lease is kept alive by an extension of its own.
LOOK_MESSAGES_MAX = 10_000
# What `fila enqueue` reads at once, and the longest line: a body in base64, with keys and headers beside it.
READ_BYTES = 256 * KIB
LINE_BYTES_MAX = 2 * BODY_BYTES_MAX

# --- commit -------------------------------------------------------------------------------------------

# When so much has collected, it is stepped and written although the sync before it still runs.
COMMIT_WINDOW_BYTES = 1 * MIB
# What one commit may hold.
COMMIT_BYTES_MAX = 4 * MIB
# What may wait for a commit in all; beyond it streams are not read and unary calls are refused.
PENDING_BYTES_MAX = 64 * MIB
PENDING_COMMANDS_MAX = 100_000
# Batches of one Produce stream that are taken and not yet answered.
PRODUCE_BATCHES_IN_FLIGHT_MAX = 64
PRODUCE_BYTES_IN_FLIGHT_MAX = 16 * MIB
# How long a stopping broker waits for producers to end their side, so that their last receipts arrive.
PRODUCE_STOP_GRACE_MS = 500
# How long it waits for consumers to end theirs: they have to send what their workers have just finished, and a loaded machine is
# slow. What comes later is settled after the restart.
SUBSCRIBE_STOP_GRACE_MS = 1_000
# Pages just written or partly delivered. Small enough to stay in the processor's cache: with four times as much, draining a
# backlog costs 0.2 us more per message.
PAGE_CACHE_BYTES = 4 * MIB
# Below this the broker takes no more messages, so that there is room for acks, a clean stop, and for the engine to rewrite its
# files: it needs the place of the new ones before it gives back that of the old (measured: up to 300 MiB at once).
DISK_FREE_BYTES_MIN = 512 * MIB
# While it is below, the engine is told so often to rewrite what holds finished messages.
RECLAIM_INTERVAL_MS = 1_000
# After a failed write the store is opened again this often until it works.
REOPEN_INTERVAL_MS = 1_000
# How long a stop waits for clients to finish before it cuts their streams.
DRAIN_TIMEOUT_MS = 5_000

# --- answers ------------------------------------------------------------------------------------------

STATS_KEYS_MAX = 1_000
STATS_GATES_MAX = 1_000

# --- the demo -----------------------------------------------------------------------------------------

# Long enough that a wait is felt, short enough to be watched to its end.
DEMO_SECONDS_DEFAULT = 12.0
DEMO_SECONDS_MAX = 30.0
# It promises to take less than a minute, whatever the machine, the clean-up (two bounds above: 15 s) included.
DEMO_TIMEOUT_SECONDS = 40.0
