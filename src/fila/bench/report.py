"""What a run of the bench says: one JSON object, or a table for people."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from fila.bench.parameters import Parameters
from fila.bench.session import Figures

SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Report:
    """One workload's parameters and figures."""

    workload: str
    parameters: Parameters
    results: Figures
    baseline: Figures
    fsync_ms: float

    def as_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps(
            {
                "workload": self.workload,
                "parameters": asdict(self.parameters),
                "results": _rounded(self.results),
                "baseline": _rounded(self.baseline),
                "fsync_ms": _rounded(self.fsync_ms),
            }
        )

    def as_table(self) -> str:
        """Return the report for a terminal."""
        rows = [*_flat(self.results), *_flat(self.baseline, "baseline "), ("fsync_ms", self.fsync_ms)]
        width = max(len(name) for name, _ in rows)
        lines = [f"{self.workload}", *(f"  {name:<{width}}  {_shown(value)}" for name, value in rows)]
        return "\n".join(lines)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return value


def _flat(figures: Figures, prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name} ")
        else:
            rows.append((f"{prefix}{name}", value))
    return rows


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.{SIGNIFICANT_DIGITS}g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return " ".join(_shown(part) for part in value)
    return str(value)
