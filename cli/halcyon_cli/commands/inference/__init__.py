"""Commands that send inference requests for results."""
