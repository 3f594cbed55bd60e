"""Facts about single Kubernetes objects (pods, Deployment status, ResourceQuotas), and the names of child objects. Pure."""
