"""All Grafana dashboards, by file name."""

from __future__ import annotations

from typing import Final

from generators.monitoring.model_dashboards import FLEET, MODEL
from generators.monitoring.operator_dashboards import OPERATOR, SCALING

DASHBOARDS: Final = {"fleet": FLEET, "model": MODEL, "scaling": SCALING, "operator": OPERATOR}
