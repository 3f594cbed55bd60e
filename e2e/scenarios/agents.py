"""What a model's agents say of its pods, in their own metrics: what the API server has is not yet what a balancer does."""

from demo.kube import Kube
from halcyon.render.names import AGENT_PORT


def states(kube: Kube, name: str) -> list[dict[str, str]]:
    """State by pod, of each balancer; empty for one that doesn't answer."""
    return [
        {
            sample.labels["pod"]: sample.labels["state"]
            for sample in kube.metrics(balancer, AGENT_PORT) or ()
            if sample.name == "halcyon_agent_pod_state"
        }
        for balancer in kube.pods(name, "balancer")
    ]


def drains(kube: Kube, name: str, pod: str) -> bool:
    """Whether no balancer gives this pod anything new."""
    return all(found.get(pod) == "draining" for found in states(kube, name))
