"""Facts of single Kubernetes objects: what a pod, a Deployment's status or a ResourceQuota says, and how children are named. Pure."""
