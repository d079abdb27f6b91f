// A conversation: its threads as a tree, the timeline, what was said, the mailbox, and what may be done with it.

import { get, post } from "./api.js";
import { action, append, confirmed, fill, h, link, status } from "./dom.js";
import { ago, cost, count, short } from "./format.js";
import { keepCurrent } from "./live.js";
import { markdown } from "./markdown.js";
import { messageView } from "./messages_view.js";
import { sessionTree } from "./session_tree.js";
import { timeline } from "./timeline.js";

const PAGE = 10; // turns
const MOST_MESSAGES = 200; // of a turn

export function conversation(main, { parameters: [id] }) {
  const place = {
    head: h("div"),
    tree: h("ul", { class: "tree" }),
    earlier: h("p", { class: "more", hidden: true }, action("Earlier turns", earlier)),
    turns: h("div"),
    said: h("div", { class: "said", role: "log", "aria-label": "What was said", tabindex: "0" }),
    writing: h("div", { class: "message assistant writing", hidden: true }),
    mailbox: h("section", { class: "mailbox" }),
    note: h("p", { role: "status" }),
    problem: h("p", { class: "problem", role: "alert" }),
  };
  const text = h("textarea", { id: "message", rows: 3 });
  const mode = h(
    "select",
    { id: "mode" },
    h("option", { value: "queue" }, "as the next turn"),
    h("option", { value: "steer" }, "to the running session"),
  );
  const tree = sessionTree();
  const lanes = timeline(earlier);
  const state = { turns: new Map(), cursor: null };
  const blocks = new Map(); // session -> its turn as it is drawn
  let record = null;
  let reading = null;
  let pieces = "";

  async function load() {
    const [found, page, mail] = await Promise.all([get(`/conversations/${id}`), newest(), get(`/conversations/${id}/mailbox`)]);
    record = found;
    head();
    fill(place.tree, ...tree(record));
    if (!page.items.some((one) => state.turns.has(one.session_id))) {
      state.turns.clear(); // the first page, or none of those that were shown: turns between them are missing
      state.cursor = page.next_cursor;
    }
    take(page);
    mailbox(mail);
  }

  // The newest turns, and as many more as may still change.
  function newest() {
    const unfinished = inOrder().findLastIndex((one) => !one.ended_at);
    return get(`/conversations/${id}/turns`, { full: true, newest: true, limit: Math.min(200, Math.max(PAGE, unfinished + 1)) });
  }

  function take(page) {
    for (const turn of page.items) state.turns.set(turn.session_id, turn);
    turnsView();
    lanes.set(inOrder(), Boolean(state.cursor));
  }

  function earlier() {
    const { cursor } = state;
    reading ??= (cursor ? get(`/conversations/${id}/turns`, { full: true, newest: true, limit: PAGE, cursor }) : Promise.resolve(null))
      .then((page) => {
        if (!page || cursor !== state.cursor) return; // answered too late
        state.cursor = page.next_cursor;
        take(page);
      })
      .finally(() => {
        reading = null;
      });
    return reading;
  }

  const inOrder = () => [...state.turns.values()].sort((a, b) => b.created_at.localeCompare(a.created_at) || b.session_id.localeCompare(a.session_id));

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
          confirmed("Terminate this conversation?", "It accepts nothing new, and what is running or waiting is stopped. It can still be read.", "Terminate", () => post(`/conversations/${id}/terminate`).then(load)),  // it may emit no event
        { class: "danger", disabled: record.status !== "open" }),
      ),
    );
  }

  // Who reads the end of what was said sees what is added; who reads further above stays there.
  const readsEnd = () => place.said.scrollHeight - place.said.scrollTop - place.said.clientHeight < 60;

  // One block for each turn, drawn again only when the turn has changed.
  function turnsView() {
    const end = readsEnd();
    const first = place.turns.firstElementChild;
    const top = first?.offsetTop;
    const drawn = inOrder().reverse().map((turn) => {
      const text = JSON.stringify(turn.display_messages);
      const known = blocks.get(turn.session_id);
      if (known?.text === text) return known.element;
      const element = h("div", { class: "turn", "data-said": turn.session_id }, ...messages(turn));
      if (known) known.element.replaceWith(element);
      blocks.set(turn.session_id, { text, element });
      return element;
    });
    const wanted = new Set(drawn);
    for (const one of [...place.turns.children]) if (!wanted.has(one)) one.remove();
    drawn.forEach((one, at) => place.turns.children[at] === one || place.turns.insertBefore(one, place.turns.children[at] ?? null));
    place.earlier.hidden = !state.cursor;
    place.writing.hidden = !pieces;
    if (end) place.said.scrollTop = place.said.scrollHeight;
    else if (first?.isConnected) place.said.scrollTop += first.offsetTop - top; // earlier turns are above it now
  }

  function messages(turn) {
    const all = turn.display_messages ?? [];
    const hidden = all.length - MOST_MESSAGES;
    return [hidden > 0 ? h("p", { class: "empty" }, `${count(hidden, "earlier message")} in `, link(`#/tasks/${turn.session_id}`, "the task")) : null, ...all.slice(-MOST_MESSAGES).map(messageView)];
  }

  function mailbox(mail) {
    const busy = Boolean(record.active_session);
    const why = busy ? "A session is running: fire when it has ended." : mail.pending_count ? "" : "The mailbox is empty.";
    fill(
      place.mailbox,
      h("h2", {}, "Mailbox ", h("span", { class: mail.pending_count ? "badge" : "badge none" }, String(mail.pending_count))),
      h("ul", { class: "plain" }, ...mail.items.map((one) => h("li", {}, link(`#/tasks/${one.source_session_id}`, one.subagent_name), ` ${one.source_type.replaceAll("_", " ")} ${ago(one.created_at)}`))),
      h(
        "div",
        { class: "row" },
        action("Fire", () => fire("reject"), { class: "primary", disabled: Boolean(why), title: why, "data-fire": "" }),
        busy && mail.pending_count ? action("Fire when idle", () => fire("queue"), { "data-key": "when idle" }) : null,
        h("span", { class: "why" }, why),
      ),
    );
  }

  // A queued fire is kept by the server: it happens whether or not this page is open.
  async function fire(ifBusy) {
    const fired = await post(`/conversations/${id}/fire`, { transport: "stream", if_busy: ifBusy }, { once: true });
    fill(place.note, fired.queued ? "The outcomes are the next turn, as soon as the running one has ended. To take it back, cancel that session." : "Fired: the outcomes are one turn now.");
    await load();
  }

  async function send() {
    if (!text.value.trim()) throw new Error("Write a message first.");
    await post(`/conversations/${id}/messages`, { input: text.value, if_busy: mode.value }, { once: true });
    text.value = "";
    await load();
  }

  function matters(event) {
    if (event.type === "message_delta") {
      pieces += event.text;
      const end = readsEnd();
      place.writing.hidden = false;
      fill(place.writing, h("b", {}, "writing"), markdown(pieces.slice(-4000)));
      if (end) place.said.scrollTop = place.said.scrollHeight;
    }
    if (["message", "attempt_reset", "step_completed"].includes(event.type)) pieces = "";
    return !event.type.endsWith("_delta");
  }

  const stop = keepCurrent(`/conversations/${id}/events`, load, { main, problem: place.problem, matters, ms: 200 });

  append(place.said, [place.earlier, place.turns, place.writing]);
  fill(
    main,
    place.head,
    place.note,
    place.problem,
    h("div", { class: "beside" }, h("section", {}, h("h2", {}, "Threads and sessions"), place.tree), place.mailbox),
    h("h2", {}, "Timeline, the latest turn first"),
    lanes.element,
    h("h2", {}, "What was said"),
    place.said,
    h(
      "form",
      { class: "send", onsubmit: (event) => event.preventDefault() },
      h("label", { for: "message" }, "Message"),
      text,
      h("div", { class: "row" }, h("label", { for: "mode" }, "Deliver it"), mode, action("Send", send, { class: "primary" })),
    ),
  );
  return () => {
    stop();
    lanes.close();
  };
}
