"""How both ends of a connection are set up: the sizes of frames, and how each learns of a peer that vanished."""

from fila import limits

_FRAMES = (
    ("grpc.max_receive_message_length", limits.FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", limits.FRAME_BYTES_MAX),
)
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
)

# A consumer that waits has a call open: it pings without being told to.
CLIENT_OPTIONS = (
    *_FRAMES,
    *_KEEPALIVE,
    # gRPC's own are made for fleets of servers: up to two minutes between attempts, where a restart takes a second.
    ("grpc.initial_reconnect_backoff_ms", limits.RECONNECT_MS_FIRST),
    ("grpc.min_reconnect_backoff_ms", limits.CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", limits.RECONNECT_MS_MAX),
)

SERVER_OPTIONS = (
    *_FRAMES,
    # Else a second server on the same port would start, and take half of the calls.
    ("grpc.so_reuseport", 0),
    # Idle consumers are the rule: they may ping, and are pinged.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", limits.PING_INTERVAL_MS_MIN),
    *_KEEPALIVE,
)
