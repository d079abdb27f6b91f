"""The sample chat agent: it answers immediately, and again when its background agent has reported."""

from tests.behaviour.channels.people import Service
from tests.support.stack import eventually


async def test_a_chat_agent_sends_a_scout_and_passes_on_its_report(service: Service) -> None:
    await service.put(service.name, agent="concierge", target=f"{service.receiver.url}/in")
    file_id = (await service.stack.http.post("/files?name=menu.txt", content=b"soup")).json()["file_id"]
    body = {"channel_id": "room", "user_id": "ann", "text": "What is on the menu?", "message_id": "m1"}
    accepted = await service.signed({**body, "files": [file_id]})
    assert accepted.status_code == 202, accepted.text
    news = "News from my scout: What is on the menu? I found 1 file in the workspace: menu.txt."

    async def reported() -> bool:
        return bool(service.receiver.at("/in")) and service.receiver.at("/in")[-1].json["data"]["text"] == news

    await eventually(reported, what="the scout's report reaches the person")
    replies = [reply.json["data"] for reply in service.receiver.at("/in")]
    # if the scout is faster than the first answer, that answer contains its report
    assert [one["text"] for one in replies[:-1]] in ([], ["I have sent a scout to look into it and will write again."])
    assert {(one["channel_id"], one["user_id"]) for one in replies} == {("room", "ann")}
    rows = await service.rows(replies[0]["conversation_id"])
    assert [row.agent for row in rows if row.spawned_by] == ["scout"]
    assert all(row.status == "completed" for row in [await service.ended(row.id) for row in rows])
