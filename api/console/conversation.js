// A conversation: its sessions as a tree, the timeline, what was said, the mailbox, and what may be done with it.

import { follow, get, post } from "./api.js";
import { action, confirmed, empty, fill, h, link, status } from "./dom.js";
import { ago, clock, cost, count, short } from "./format.js";
import { soon } from "./live.js";
import { markdown } from "./markdown.js";
import { messageView } from "./messages_view.js";
import { waterfall } from "./waterfall.js";

const MOST_MESSAGES = 400;

export function conversation(main, { parameters: [id] }) {
  const place = {
    head: h("div"),
    tree: h("ul", { class: "tree" }),
    timeline: h("div"),
    said: h("div", { class: "said", role: "log", "aria-label": "What was said", tabindex: "0" }),
    writing: h("div", { class: "message assistant writing", hidden: true }),
    mailbox: h("div", { class: "mailbox" }),
    note: h("p", { role: "status" }),
  };
  const text = h("textarea", { id: "message", rows: 3 });
  const mode = h(
    "select",
    { id: "mode" },
    h("option", { value: "queue" }, "as the next turn"),
    h("option", { value: "steer" }, "to the running session"),
  );
  let record = null;
  let pieces = "";
  let fireWhenIdle = false;

  async function load() {
    const [found, turns, mail] = await Promise.all([
      get(`/conversations/${id}`),
      get(`/conversations/${id}/turns`, { full: true, limit: 200 }),
      get(`/conversations/${id}/mailbox`),
    ]);
    record = found;
    head();
    fill(place.tree, ...record.sessions.map(branch));
    if (!record.sessions.length) fill(place.tree, h("li", {}, empty("No session yet.")));
    turnsView(turns.items);
    mailbox(mail);
    if (fireWhenIdle && !record.active_session) {
      fireWhenIdle = false;
      if (mail.pending_count) return fireUnlessBusy();
    }
    if (record.latest_session) {
      const trace = await get(`/tasks/${record.latest_session}/trace`, { chars: 200 }).catch(() => null);
      fill(place.timeline, trace ? waterfall(trace) : empty("Its content was removed."));
    }
  }

  function head() {
    const spent = Object.values(record.usage).reduce((sum, one) => sum + (one.cost_usd ?? 0), 0);
    fill(
      place.head,
      h("h1", {}, record.title || id),
      h(
        "p",
        { class: "meta" },
        status(record.status),
        ` ${count(record.sessions.length, "session")} · ${record.live_sessions.length} running · ${cost(spent)} · changed ${ago(record.updated_at)} `,
        h("code", {}, id),
      ),
      record.input_requests.length
        ? h("p", { class: "banner" }, link("#/inbox", `${count(record.input_requests.length, "request")} waiting for people: ${short(record.input_requests[0].question, 100)}`))
        : null,
      h(
        "div",
        { class: "row" },
        action("Interrupt", async () => {
          const stopped = await post(`/conversations/${id}/interrupt`);
          fill(place.note, `${count(stopped.interrupted, "session")} asked to stop.`);
        }, { disabled: !record.live_sessions.length }),
        action("Terminate", async () =>
          confirmed("Terminate this conversation?", "It accepts nothing new, and what is running or waiting is stopped. It can still be read.", "Terminate", () => post(`/conversations/${id}/terminate`).then(refresh)),  // it may emit no event
        { class: "danger", disabled: record.status !== "open" }),
      ),
    );
  }

  function branch(session) {
    const controls = session.live
      ? h(
          "span",
          { class: "row" },
          session.kind === "sync_subagent" ? action("Promote", () => post(`/tasks/${session.session_id}/promote`), { "data-key": `promote ${session.session_id}` }) : null,
          action("Cancel", async () => confirmed("Cancel this session?", "It ends and keeps what it has.", "Cancel it", () => post(`/tasks/${session.session_id}/cancel`, { scope: "tree" })), { "data-key": `cancel ${session.session_id}` }),
        )
      : null;
    return h(
      "li",
      {},
      h("div", { class: "row" }, status(session.status), link(`#/tasks/${session.session_id}`, session.name || session.agent), h("span", { class: "grow" }, short(session.title, 80), session.handed_to ? ` → ${session.handed_to}` : ""), h("small", { title: clock(session.created_at) }, ago(session.created_at)), controls),
      session.children.length ? h("ul", {}, ...session.children.map(branch)) : null,
    );
  }

  function turnsView(turns) {
    const atEnd = place.said.scrollHeight - place.said.scrollTop - place.said.clientHeight < 60;
    const messages = turns.flatMap((turn) => turn.display_messages ?? []);
    const hidden = Math.max(0, messages.length - MOST_MESSAGES);
    fill(place.said, hidden ? empty(`${count(hidden, "earlier message")} in the tasks above.`) : null, ...messages.slice(-MOST_MESSAGES).map(messageView), place.writing);
    place.writing.hidden = !pieces;
    if (atEnd) place.said.scrollTop = place.said.scrollHeight;
  }

  function mailbox(mail) {
    const busy = Boolean(record.active_session);
    const why = busy ? fireWhenIdle ? "It fires when the session has ended, while this page is open." : "A session is running: fire when it has ended." : mail.pending_count ? "" : "The mailbox is empty.";
    fill(
      place.mailbox,
      h("h2", {}, "Mailbox ", h("span", { class: "badge" }, String(mail.pending_count))),
      h("ul", { class: "plain" }, ...mail.items.map((one) => h("li", {}, link(`#/tasks/${one.source_session_id}`, one.subagent_name), ` ${one.source_type.replaceAll("_", " ")} ${ago(one.created_at)}`))),
      h(
        "div",
        { class: "row" },
        action("Fire", fire, { class: "primary", disabled: Boolean(why), title: why, "data-fire": "" }),
        busy && mail.pending_count
          ? action(fireWhenIdle ? "Will fire when idle" : "Fire when idle", async () => {
              fireWhenIdle = !fireWhenIdle;
              mailbox(mail);
            }, { "data-key": "when idle" })
          : null,
        h("span", { class: "why" }, why),
      ),
    );
  }

  async function fire() {
    await post(`/conversations/${id}/fire`, { transport: "stream" }, { once: true });
    fill(place.note, "Fired: the outcomes are one turn now.");
    await load();
  }

  // Another turn may begin between the look and the fire: then it waits for the next idle moment.
  async function fireUnlessBusy() {
    try {
      await fire();
    } catch (error) {
      if (error.type !== "conversation-busy") throw error;
      fireWhenIdle = true;
      refresh();
    }
  }

  async function send() {
    if (!text.value.trim()) throw new Error("Write a message first.");
    await post(`/conversations/${id}/messages`, { input: text.value, if_busy: mode.value }, { once: true });
    text.value = "";
    await load();
  }

  const refresh = soon(() => load().catch((error) => fill(place.note, error.message)), 200);
  const stop = follow(
    `/conversations/${id}/events`,
    (event) => {
      if (event.type === "message_delta") {
        pieces += event.text;
        place.writing.hidden = false;
        fill(place.writing, h("b", {}, "writing"), markdown(pieces.slice(-4000)));
      } else if (event.type === "thinking_delta") {
        return;
      } else {
        if (["message", "attempt_reset", "step_completed"].includes(event.type)) pieces = "";
        refresh();
      }
    },
    { lost: refresh },
  );

  fill(
    main,
    place.head,
    place.note,
    h("h2", {}, "Sessions"),
    place.tree,
    h("h2", {}, "Timeline of the latest turn"),
    place.timeline,
    h("h2", {}, "What was said"),
    place.said,
    h(
      "form",
      { class: "send", onsubmit: (event) => event.preventDefault() },
      h("label", { for: "message" }, "Message"),
      text,
      h("div", { class: "row" }, h("label", { for: "mode" }, "Deliver it"), mode, action("Send", send, { class: "primary" })),
    ),
    place.mailbox,
  );
  load().catch((error) => fill(main, h("h1", {}, "Not found"), h("p", { role: "alert" }, error.message)));
  return stop;
}
