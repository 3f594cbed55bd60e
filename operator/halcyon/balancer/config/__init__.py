"""haproxy.cfg: the text that HAProxy runs, made from the accepted plan. Pure."""
