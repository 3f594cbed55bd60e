"""haproxy.cfg, the configuration that HAProxy runs, made from the accepted plan. Pure."""
