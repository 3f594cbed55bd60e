"""Authorities (CAs) of clusters and sites in TLS contexts (decision 0102). It imports nothing but `ssl`, for small processes."""

from __future__ import annotations

import ssl


def accept_as_they_are(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let a TLS context accept authorities that lack extensions which Python 3.13 requires, and return it.

    Those of EKS, microk8s and many sites do. Signatures, names and dates are verified as before.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
