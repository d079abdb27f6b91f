"""Redaction of a result, including its addresses and the questions of a call that continues at a server."""

from activities.tools.tool import ArtifactFile, ToolResult
from domain.redaction import Redactor
from domain.sessions.session import RemoteCall, RemoteForm


def test_links_and_forms_of_a_result_are_redacted_and_what_is_sent_back_is_not() -> None:
    address = "https://x.example/?key=secret-1"
    link = ArtifactFile("page", f"{address}\n".encode(), "text/uri-list", "link", "", address)
    form = RemoteForm(key="secret-1", message="Is it secret-1?", answer_schema={"properties": {"secret-1": {}}})
    remote = RemoteCall(task_id="secret-1", state="secret-1", forms=[form])
    found = ToolResult("", artifacts=[link], remote=remote).redact(Redactor(["secret-1"]))
    assert "secret-1" not in str(found.artifacts) and found.remote is not None
    assert found.remote.model_copy(update={"forms": []}) == remote.model_copy(update={"forms": []})
    [shown] = found.remote.forms
    assert shown.key == "secret-1" and "secret-1" not in shown.message + str(shown.answer_schema)
