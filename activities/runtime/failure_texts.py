"""The texts of failed activities in Temporal's history: only those that we wrote.

The SDK writes an exception with its causes there. Their texts are of libraries: a database quotes the row, a validation
the value, a model's endpoint the request. The worker's log has them, without secrets.
"""

from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor


class OwnFailureTexts(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _OwnTexts(next)


class _OwnTexts(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except FailureError as error:
            if error.__cause__ is not None:
                activity.logger.warning("an activity failed", exc_info=error)
            raise error from None
        except Exception as error:
            activity.logger.warning("an activity failed unexpectedly", exc_info=error)
            raise ApplicationError(_text(error), type=type(error).__name__) from None


def _text(error: Exception) -> str:
    reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    return f"{type(error).__name__}{reason}; the worker's log has the details."
