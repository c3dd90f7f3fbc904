"""What every test shares: Hypothesis is derandomised, so that a red run is red for everyone."""

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("ci")
