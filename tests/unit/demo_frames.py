"""Frames of the demo for its tests: the middle of a run, and its end."""

from fila.demo.plan import FAIR, FIFO
from fila.demo.tally import Frame, Run, Tenant

MIDDLE = Frame(
    elapsed_seconds=6.6,
    planned_seconds=12.0,
    rate_per_s=200,
    runs=(
        Run(
            FIFO,
            (
                Tenant("acme", 2400, 2400, 1320, 3300.0, 6595.0, 6605.0),
                Tenant("bolt", 10, 6, 0, 0.0, 0.0, 5600.0),
            ),
        ),
        Run(
            FAIR,
            (
                Tenant("acme", 2400, 2400, 1314, 3300.0, 6595.0, 6605.0),
                Tenant("bolt", 10, 6, 6, 2.0, 4.0, None),
            ),
        ),
    ),
)
END = Frame(
    elapsed_seconds=12.1,
    planned_seconds=12.0,
    rate_per_s=200,
    runs=(
        Run(
            FIFO,
            (
                Tenant("acme", 2400, 2400, 2400, 5998.0, 11995.0, None),
                Tenant("bolt", 10, 10, 10, 6522.0, 11003.5, None),
            ),
        ),
        Run(
            FAIR,
            (
                Tenant("acme", 2400, 2400, 2400, 6021.0, 12045.0, None),
                Tenant("bolt", 10, 10, 10, 2.0, 5.0, None),
            ),
        ),
    ),
)
