"""Commands in `console` blocks that `test_commands` doesn't run.

They are identified by their prefix. Each has the place where it is run, or the reason why it isn't.
"""

RUN_BY = {
    "make": "e2e/readme/test_readme.py",
    "KUBECONFIG=~/.kube/config make demo": "e2e/readme/test_readme.py",
    "python -m images push": "e2e/readme/test_readme.py",
    "docker build -t": "images/test_docker.py",
    "helm": "e2e/guides/test_install_page.py",
    "kubectl delete modeldeployments --all": "e2e/guides/test_install_page.py",
    "kubectl delete crd": "e2e/guides/test_install_page.py",
    "kubectl kustomize": "e2e/guides/test_install_page.py",
    "kubectl -n halcyon-system port-forward": "e2e/guides/test_dashboard_page.py",
    "kubectl -n NAMESPACE create token": "e2e/guides/test_dashboard_page.py",
    "oauth2-proxy": "tests/integration/dashboard/test_single_sign_on.py",
    "kubectl logs POD -c fetch": "e2e/scenarios/test_download.py",
    "pip install './cli[bench]'": "tests/integration/cli/test_wheel.py",
}
"""`make` targets are run by continuous integration or manually. Another test checks that they exist."""

NOBODY = {
    "kind create cluster": "its node image is in a registry that our machines don't reach",
    "kubectl patch node kind-control-plane": "the same; the embedded cluster's node is patched the same way",
    "python -m images build --fresh": "new bases each time: what a machine without a cache does by itself",
    "docker build --tag": "a model of the reader's; e2e/model_image.py makes such an image without docker",
    "docker push": "the same",
    "git ls-remote": "the hub is in a network that our machines don't reach",
    "cosign": "no image is published or signed yet",
    "gh attestation": "the same",
}


def reason(command: str) -> str | None:
    """Return the reason why `test_commands` doesn't run this command; None if it does."""
    return next((said for start, said in (RUN_BY | NOBODY).items() if command.startswith(start)), None)
