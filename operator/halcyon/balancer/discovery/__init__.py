"""Which pods are behind the model's Services: EndpointSlices by a small watch, and the operator's notices that are ahead of them."""
