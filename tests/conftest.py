"""What all tests share: hypothesis measures no time here, since these machines are noisy and a slow minute is no defect."""

from hypothesis import HealthCheck, settings

settings.register_profile("halcyon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("halcyon")
