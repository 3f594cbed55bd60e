"""Certificates, authorities and API keys from mounted Secrets."""
