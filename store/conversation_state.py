"""The state of its tree that a reopened Conversation workflow loads."""

from domain.conversations.requests import ConversationState, Live, Thread, WaitingMessage
from domain.sessions.session import DeliveryMode, preview
from store import channels, missions
from store.database import Pool
from store.mailbox import preview_held


async def load_state(pool: Pool, tenant: str, conversation_id: str) -> ConversationState:
    """The state that a reopened Conversation needs. Unnamed threads are loaded only if they have a running session, so
    that the state does not grow with every delegation ever made."""
    # Before the state is read: a session that ends from now on posts its end, because its ending locks the same row,
    # and every earlier end is in the rows.
    sql = "UPDATE conversations SET has_workflow = true WHERE tenant = $1 AND id = $2 AND NOT has_workflow"
    await pool.execute(sql, tenant, conversation_id)
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        threads = await connection.fetch(
            """SELECT id, parent_thread_id, name, depth,
                      (SELECT s.id FROM sessions s WHERE s.tenant = $1 AND s.thread_id = t.id AND s.ended_at IS NOT NULL
                        ORDER BY s.ended_at DESC LIMIT 1) AS last
                 FROM threads t WHERE tenant = $1 AND conversation_id = $2
                  AND (parent_thread_id IS NULL OR name <> id
                       OR EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = $1 AND i.conversation_id = $2
                                     AND i.thread_id = t.id AND i.taken_by IS NULL AND i.wake)
                       OR id IN (SELECT unnest(ARRAY[s.thread_id, p.thread_id])
                                   FROM sessions s LEFT JOIN sessions p ON p.tenant = s.tenant AND p.id = s.spawned_by
                                  WHERE s.tenant = $1 AND s.conversation_id = $2
                                    AND s.status IN ('submitted', 'working', 'input_required')))""",
            tenant,
            conversation_id,
        )
        sessions = await connection.fetch(
            """SELECT s.id, s.thread_id, s.live, s.status, s.spawned_by, s.blocking, s.delivery, p.thread_id AS spawner
                 FROM sessions s LEFT JOIN sessions p ON p.tenant = s.tenant AND p.id = s.spawned_by
                 LEFT JOIN inbox opening ON opening.tenant = s.tenant AND opening.id = s.inbox[1]
                WHERE s.tenant = $1 AND s.conversation_id = $2
                  AND s.status IN ('submitted', 'working', 'input_required') ORDER BY opening.number, s.id""",
            tenant,
            conversation_id,
        )
        sql = """SELECT id, thread_id, number, source FROM inbox
                  WHERE tenant = $1 AND conversation_id = $2 AND taken_by IS NULL AND wake ORDER BY number"""
        inbox = await connection.fetch(sql, tenant, conversation_id)
        sql = """SELECT s.id, p.thread_id FROM sessions s JOIN sessions p ON p.tenant = s.tenant AND p.id = s.spawned_by
                  WHERE s.tenant = $1 AND s.conversation_id = $2 AND s.ended_at IS NOT NULL AND p.live ORDER BY s.id"""
        ended = await connection.fetch(sql, tenant, conversation_id)
        apart = await channels.find_apart(connection, tenant, [row["id"] for row in inbox]) if inbox else set()
        mission = await missions.of_conversation(connection, tenant, conversation_id)
        sql = "SELECT title FROM conversations WHERE tenant = $1 AND id = $2"
        title = await connection.fetchval(sql, tenant, conversation_id)
    pending = await preview_held(pool, tenant, conversation_id)
    state = ConversationState(title=preview(title or "", 100), pending=pending)
    for row in threads:
        state.threads[row["id"]] = Thread(
            parent=row["parent_thread_id"], name=row["name"], depth=row["depth"], last=row["last"]
        )
    held = mission is not None and mission.paused_by_risk  # its queued runs wait until it is resumed
    for row in sessions:
        if not row["live"]:
            if held and row["thread_id"] == conversation_id:
                continue
            state.threads[row["thread_id"]].queue.append(row["id"])
            continue
        state.threads[row["thread_id"]].live = row["id"]
        state.live[row["id"]] = Live(
            thread=row["thread_id"],
            spawned_by=row["spawned_by"],
            spawner=row["spawner"],
            blocking=row["blocking"],
            delivery=row["delivery"] or DeliveryMode.HOLD,
        )
    for row in ended:
        state.threads[row["thread_id"]].ended.append(row["id"])
    for row in inbox:
        waiting = WaitingMessage(id=row["id"], outcome=row["source"] is not None, apart=row["id"] in apart)
        state.threads[row["thread_id"]].inbox.append(waiting)
    return state


async def find_stranded(pool: Pool, older_than_s: float, limit: int = 200) -> list[tuple[str, str]]:
    """Conversations of all tenants in which something waits longer than it would if their workflow were running: a
    message that no session took, or a session without activity since one of its subagents ended. In random order, so
    that one that cannot be helped does not hide the others."""
    sql = """SELECT * FROM (
                 SELECT i.tenant, i.conversation_id FROM inbox i
                   JOIN conversations c ON c.tenant = i.tenant AND c.id = i.conversation_id AND c.status = 'open'
                   JOIN threads t ON t.tenant = i.tenant AND t.id = i.thread_id AND t.terminated_at IS NULL
                  WHERE i.taken_by IS NULL AND i.wake AND i.created_at < now() - make_interval(secs => $1)
                 UNION
                 SELECT s.tenant, s.conversation_id FROM sessions s
                   JOIN sessions p ON p.tenant = s.tenant AND p.id = s.spawned_by AND p.live
                  WHERE s.ended_at > p.updated_at AND s.ended_at < now() - make_interval(secs => $1)) found
              ORDER BY random() LIMIT $2"""
    return [(row["tenant"], row["conversation_id"]) for row in await pool.fetch(sql, older_than_s, limit)]
