"""The context that tools run in, as for the built-in ones."""

from tests.unit.activities.tools.conftest import make_context as make_context
from tests.unit.activities.tools.conftest import workspace as workspace
