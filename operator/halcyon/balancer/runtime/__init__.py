"""Control of the running HAProxy: Runtime API, assignment of pods to servers, variables, service rate and retries."""
