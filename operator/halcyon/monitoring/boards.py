"""The dashboards, by the name of their file."""

from __future__ import annotations

from typing import Final

from halcyon.monitoring.inner_boards import OPERATOR, SCALING
from halcyon.monitoring.model_boards import FLEET, ONE

BOARDS: Final = {"fleet": FLEET, "model": ONE, "scaling": SCALING, "operator": OPERATOR}
