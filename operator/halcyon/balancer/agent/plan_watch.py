"""Watch of the balancer plan in its ConfigMap.

After a restart, the agent starts with the copy of the plan that its previous run stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from halcyon.api.documents.balancer_plan import PLAN_KEY, BalancerPlan, PlanError
from halcyon.balancer.config.writer import ConfigError
from halcyon.balancer.discovery.kube_watch import ApiServerAccess, Watch
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import aiohttp

    from halcyon.balancer.agent.settings import AgentSettings


class PlanWatch:
    """Watch of the balancer plan in its ConfigMap. If a new plan is invalid, the last accepted plan stays in effect."""

    def __init__(self, settings: AgentSettings, accept: Callable[[BalancerPlan], None]) -> None:
        """Create the watch without starting it.

        Args:
            settings: settings of the agent, with the name of the ConfigMap.
            accept: applies a plan, or raises ConfigError.
        """
        self._settings, self._accept = settings, accept
        self._copy = settings.run_dir / "plan.json"
        self.plan: BalancerPlan | None = None
        """Last accepted plan; None before any plan has been accepted."""
        self.errors = 0
        """Number of invalid plans that the watch has received."""
        self.changed = asyncio.Event()
        """Event that is set whenever a plan is accepted."""

    def read_copy(self) -> None:
        """Apply the stored copy of the plan, if there is one.

        So a restarted container has a plan even if the API server is unavailable.
        """
        if self._copy.exists():
            self._take(self._copy.read_text(errors="replace"), keep=False)

    async def run(self, session: aiohttp.ClientSession, access: ApiServerAccess, denied: Callable[[str], None]) -> None:
        """Watch the ConfigMap until cancelled. Call `denied` with the reason if the API server denies the watch."""

        def take(texts: Mapping[str, str | None]) -> None:
            text = texts.get(self._settings.plan)
            # If the ConfigMap is deleted, the last accepted plan stays in force.
            if text is not None:
                self._take(text, keep=True)

        await Watch(
            session,
            access,
            f"/api/v1/namespaces/{self._settings.namespace}/configmaps",
            params={"fieldSelector": f"metadata.name={self._settings.plan}"},
            project=lambda item: (item.get("data") or {}).get(PLAN_KEY),
            on_change=take,
            on_denied=denied,
        ).run()

    def _take(self, text: str, *, keep: bool) -> None:
        try:
            plan = BalancerPlan.from_json(text)
            if plan == self.plan:
                return
            self._accept(plan)
        except (PlanError, ConfigError) as error:
            self.errors += 1
            log("error", "the plan is invalid; the last valid one stays in force", error=str(error))
            return
        self.plan = plan
        self.changed.set()
        if keep:
            self._store(text)

    def _store(self, text: str) -> None:
        """Replace the copy of the plan in one step. If that fails, log it; the plan itself is in use."""
        new_copy = self._copy.with_suffix(".new")
        try:
            new_copy.write_text(text)
            new_copy.replace(self._copy)
        except OSError as error:
            log(
                "warning",
                "the copy of the plan can't be stored; a restarted agent needs the API server",
                error=str(error),
            )
