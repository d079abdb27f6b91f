"""The context in which tools run, the same as for built-in tools."""

from tests.unit.activities.tools.conftest import make_context as make_context
from tests.unit.activities.tools.conftest import workspace as workspace
