"""TLS contexts that accept the CA certificates of clusters and sites (decision 0102). Only `ssl` is imported."""

from __future__ import annotations

import ssl


def accept_as_they_are(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let a TLS context accept CA certificates without the extensions that Python 3.13 requires; return it.

    The CA certificates of EKS, microk8s and many sites lack them. Signatures, names and dates are still verified.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
