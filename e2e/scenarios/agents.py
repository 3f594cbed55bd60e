"""States of pods in the metrics of a model's agents, because balancers may lag behind the API server."""

from demo.kube import Kube
from halcyon.render.names import AGENT_PORT


def states(kube: Kube, name: str) -> list[dict[str, str]]:
    """Return the state of each pod by balancer; empty for a balancer that doesn't respond."""
    return [
        {
            sample.labels["server_pod"]: sample.labels["state"]
            for sample in kube.metrics(balancer, AGENT_PORT) or ()
            if sample.name == "halcyon_agent_pod_state"
        }
        for balancer in kube.pods(name, "balancer")
    ]


def drains(kube: Kube, name: str, pod: str) -> bool:
    """Return True if no balancer sends new requests to this pod."""
    return all(pod_states.get(pod) == "draining" for pod_states in states(kube, name))
