"""Certificates, certificate authorities and API keys, from Secrets that are mounted in the balancer pod."""
