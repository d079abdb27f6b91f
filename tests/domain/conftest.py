"""Property tests judge rules, not the speed of a busy machine."""

from hypothesis import settings

settings.register_profile("errand", deadline=None)
settings.load_profile("errand")
