"""What the broker tells about itself: a port, OpenTelemetry behind it, and structured logs."""
