"""Pods behind the model's Services: EndpointSlices from a small watch, and the operator's notices, which arrive earlier."""
