"""What all tests share: hypothesis measures no time here, since these machines are noisy and a slow minute is no defect."""

from hypothesis import HealthCheck, settings

_USUAL = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Every run draws other examples, so few of them per run are many in a week; `make properties` draws a week's at once.
settings.register_profile("halcyon", _USUAL, max_examples=25)
settings.register_profile("thorough", _USUAL, max_examples=1000)
settings.load_profile("halcyon")
