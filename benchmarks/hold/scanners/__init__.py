"""Independent scanners of Kubernetes objects, run on the rendered chart and on the objects of README's model (row 1.2)."""
