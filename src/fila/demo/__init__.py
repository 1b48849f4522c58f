"""The demo: a real broker, two tenants, two queues, and what their messages waited.

What is shown is decided by pure functions (`live`, `result`); `session` makes it happen and `screen` draws it.
"""
