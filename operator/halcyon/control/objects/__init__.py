"""Functions on single Kubernetes objects (pods, Deployments, ResourceQuotas), and the names of child objects. Pure."""
