// The threads of a conversation as a tree, each with its sessions and what may be done to those that have not ended.

import { post } from "./api.js";
import { action, confirmed, empty, h, link, status } from "./dom.js";
import { ago, clock, count, short } from "./format.js";

const MOST = 20; // sessions of a thread that are listed

export function sessionTree() {
  const opened = new Map(); // thread -> whether a person opened or closed it

  function draw(record) {
    const sessions = new Map(record.threads.map((one) => [one.thread_id, []]));
    const visit = (one) => {
      if (!sessions.has(one.thread_id)) sessions.set(one.thread_id, []);
      sessions.get(one.thread_id).push(one);
      one.children.forEach(visit);
    };
    record.sessions.forEach(visit);
    const below = (id) => record.threads.filter((one) => one.parent_thread_id === id);
    const known = new Set(record.threads.map((one) => one.thread_id));
    const top = record.threads.filter((one) => !known.has(one.parent_thread_id));
    if (!top.length) return [h("li", {}, empty("No session yet."))];

    function branch(thread) {
      const own = sessions.get(thread.thread_id).sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
      const children = below(thread.thread_id);
      const main = thread.thread_id === record.conversation_id;
      const state = `${thread.state}, ${count(own.length, "session")}${thread.pending ? `, ${thread.pending} waiting` : ""}`;
      const fold = h(
        "details",
        { open: opened.get(thread.thread_id) ?? (main || own.some(unfinished)) },
        h("summary", { id: `thread-${thread.thread_id}` }, h("b", {}, main ? "main thread" : thread.name || thread.agent), ` ${thread.name === thread.agent ? "" : thread.agent} `, h("small", {}, state)),
        h("ul", {}, ...own.slice(0, MOST).map(sessionView), own.length > MOST ? h("li", {}, h("small", {}, `and ${count(own.length - MOST, "earlier session")}`)) : null),
      );
      fold.firstChild.addEventListener("click", () => opened.set(thread.thread_id, !fold.open));
      return h("li", {}, fold, children.length ? h("ul", {}, ...children.map(branch)) : null);
    }

    return top.map(branch);
  }

  return draw;
}

const unfinished = (session) => ["submitted", "working", "input_required"].includes(session.status);

function sessionView(session) {
  const id = session.session_id;
  const controls = unfinished(session)
    ? [
        session.live && session.kind === "sync_subagent" ? action("Promote", () => post(`/tasks/${id}/promote`), { "data-key": `promote ${id}` }) : null,
        action("Cancel", async () => confirmed("Cancel this session?", "It ends and keeps what it has.", "Cancel it", () => post(`/tasks/${id}/cancel`, { scope: "tree" })), { "data-key": `cancel ${id}` }),
      ]
    : null;
  return h(
    "li",
    { class: "row" },
    status(session.status),
    link(`#/tasks/${id}`, session.agent),
    h("span", { class: "grow" }, short(session.title, 80), session.handed_to ? ` → ${session.handed_to}` : ""),
    h("small", { title: clock(session.created_at) }, ago(session.created_at)),
    controls,
  );
}
