"""Commands in blocks of `console` that `test_commands` doesn't run: by how they begin, who runs them, or why nobody does."""

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
    "kubectl logs POD -c fetch": "e2e/scenarios/test_download.py",
    "pip install . ./cli": "tests/integration/cli/test_wheel.py",
}
"""`make` runs its own targets: continuous integration, or a person; that each is there is looked at with the pages."""

NOBODY = {
    "kind create cluster": "its node image is in a registry that our machines don't reach",
    "for image in operator balancer tritonserver-cpu; do kind load": "the same",
    "cat > build/images-values.yaml": "the same; the push, which writes such a file elsewhere, is run",
    "kubectl patch node kind-control-plane": "the same; the embedded cluster's node is patched the same way",
    "python -m images build --fresh": "new bases each time: what a machine without a cache does by itself",
    "docker build --tag": "a model of the reader's; e2e/model_image.py makes such an image without docker",
    "docker push": "the same",
    "cosign": "no image is published or signed yet",
    "gh attestation": "the same",
}


def reason(command: str) -> str | None:
    """Why it isn't among those of `test_commands`; None: it is."""
    return next((said for start, said in (RUN_BY | NOBODY).items() if command.startswith(start)), None)
