"""Rendering of haproxy.cfg, the configuration of HAProxy, from the accepted plan. Pure."""
