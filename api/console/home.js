// Home: tasks and conversations as they change, what waits, what failed and what today costs.

import { get } from "./api.js";
import { action, empty, fill, h, link, status } from "./dom.js";
import { ago, clock, cost, count, duration, short, tokens } from "./format.js";
import { insist, listen, soon } from "./live.js";
import { virtualList } from "./virtual_list.js";

const PAGE = 100;
const CONVERSATIONS = 12;

export function home(main) {
  const state = { tasks: new Map(), read: new Map(), asked: null, cursor: null, conversations: CONVERSATIONS }; // a cursor is valid for the filters it was asked with
  const filters = {
    text: h("input", { type: "search", id: "text", placeholder: "part of the title" }),
    agent: h("select", { id: "agent" }, h("option", { value: "" }, "all agents")),
    status: h(
      "select",
      { id: "status" },
      h("option", { value: "" }, "any status"),
      ...["submitted", "working", "input_required", "completed", "failed", "cancelled"].map((name) =>
        h("option", { value: name }, name.replaceAll("_", " ")),
      ),
    ),
    mine: h("input", { type: "checkbox", id: "mine" }),
    subagents: h("input", { type: "checkbox", id: "subagents" }),
  };
  const figures = h("dl", { class: "figures" });
  const conversations = h("ul", { class: "plain rows" });
  const more = h("p", { hidden: true }, action("More conversations", () => {
    state.conversations = Math.min(200, state.conversations + 4 * CONVERSATIONS);
    return talks();
  }));
  const note = h("p", { class: "empty", role: "status" });
  const list = virtualList({ label: "Tasks", height: 56, row: taskRow, more: nextPage, key: (item) => item.task_id });

  // The first page again; the pages after it stay, unless the filters have changed.
  async function load({ anew = false } = {}) {
    const asked = query();
    const at = performance.now();
    const page = await get("/tasks", asked);
    if (outdated(asked)) return;
    if (anew || !state.tasks.size) {
      for (const id of state.tasks.keys()) put(id, null, at);
      state.asked = asked;
      state.cursor = page.next_cursor;
      list.element.scrollTop = 0;
    }
    for (const item of page.items) put(item.task_id, item, at);
    draw();
  }

  // Other filters are set by now than those that were asked with.
  function outdated(asked) {
    return JSON.stringify(asked) !== JSON.stringify(query());
  }

  // An answer may be late: what was asked for after it is newer.
  function put(id, item, at) {
    if (state.read.get(id) > at) return;
    state.read.set(id, at);
    if (item) state.tasks.set(id, item);
    else state.tasks.delete(id);
  }

  function query() {
    return {
      agent: filters.agent.value,
      status: filters.status.value,
      text: filters.text.value.trim(),
      own: filters.mine.checked || null,
      top_level: filters.subagents.checked ? null : true,
      limit: PAGE,
    };
  }

  // A task that has changed, if it still fits the filters: the server decides that.
  async function look(id) {
    const asked = query();
    const at = performance.now();
    const [found] = (await get("/tasks", { ...asked, id_prefix: id, limit: 1 })).items;
    if (!outdated(asked)) put(id, found, at);
  }

  async function nextPage() {
    const { asked, cursor } = state;
    if (!cursor) return;
    const at = performance.now();
    const page = await get("/tasks", { ...asked, cursor });
    if (asked !== state.asked) return; // answered too late: the list has other filters now
    state.cursor = page.next_cursor;
    for (const item of page.items) put(item.task_id, item, at);
    draw();
  }

  function draw() {
    const shown = [...state.tasks.values()].sort((a, b) => (a.task_id < b.task_id ? 1 : -1));
    list.set(shown);
    fill(note, shown.length ? "" : "No task fits. Start one, or change the filters.");
  }

  async function summary() {
    const found = await get("/summary");
    const line = (name, value, hash) => h("div", {}, h("dt", {}, name), h("dd", {}, hash ? link(hash, value) : value));
    fill(
      figures,
      line("running", String(found.running)),
      line("not started", String(found.queued)),
      line("waiting for people", String(found.open_requests), "#/inbox"),
      line("failed today", String(found.failed_today)),
      line("spent today", `${cost(found.cost_usd_today)}, ${count(found.tokens_today, "token")}`),
    );
    await talks();
  }

  // The last used, or of those the ones in which all words of the filter occur, or one's own.
  async function talks() {
    const page = await get("/conversations", { q: filters.text.value.trim(), own: filters.mine.checked || null, order: "updated", limit: state.conversations });
    more.hidden = !page.next_cursor || state.conversations >= 200;
    fill(
      conversations,
      ...page.items.map((one) =>
        h(
          "li",
          { class: "row" },
          h("span", { class: "grow" }, link(`#/conversations/${one.conversation_id}`, short(one.title, 120) || one.conversation_id)),
          one.pending_count ? h("span", { class: "badge" }, `${one.pending_count} in the mailbox`) : null,
          h("time", { datetime: one.updated_at, title: clock(one.updated_at) }, ago(one.updated_at)),
        ),
      ),
    );
    if (!page.items.length) fill(conversations, h("li", {}, empty("No conversation fits.")));
  }

  const changed = new Set();
  const refresh = soon(async () => {
    const ids = [...changed];
    changed.clear();
    if (ids.length > 20 || ids.includes("*")) await load();
    else {
      await Promise.all(ids.map(look));
      draw();
    }
  });
  const figuresSoon = soon(summary, 500); // apart: the rows must not wait for them
  const stop = listen((notice) => {
    if (notice.type === "lost") changed.add("*");
    else if (notice.session_id) changed.add(notice.session_id);
    else return;
    refresh();
    figuresSoon();
  });
  const filter = soon(() => Promise.all([load({ anew: true }), talks()]).catch((error) => fill(note, error.message)));
  const clockwork = setInterval(() => {
    load().catch(() => {}); // tasks that no worker has begun give no notice
    figuresSoon();
  }, 15_000);
  for (const [name, input] of Object.entries(filters)) {
    input.addEventListener(name === "text" ? "input" : "change", filter);
  }

  fill(
    main,
    h("div", { class: "row" }, h("h1", { class: "grow" }, "Tasks"), h("a", { class: "button primary", href: "#/start" }, "Start a task")),
    figures,
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      field("Text", filters.text),
      field("Agent", filters.agent),
      field("Status", filters.status),
      field("Mine", filters.mine),
      field("Subagents and reruns", filters.subagents),
    ),
    note,
    list.element,
    h("h2", {}, "Conversations"),
    conversations,
    more,
  );
  const reads = [
    insist(() => load({ anew: true }), (error) => fill(note, error.message)),
    insist(summary, () => {}),
    insist(async () => filters.agent.append(...(await get("/agents")).items.map((one) => h("option", { value: one.name }, one.name))), () => {}),
  ];
  return () => {
    stop();
    reads.forEach((end) => end());
    clearInterval(clockwork);
    list.close();
  };
}

function field(label, input) {
  return h("span", { class: "field inline" }, h("label", { for: input.id }, label), input);
}

function taskRow(one) {
  const why = one.status === "failed" ? short(one.error?.message || one.reason, 120) : short(one.progress?.message, 120);
  return h(
    "div",
    { class: "task-row" },
    status(one.status),
    h(
      "div",
      { class: "grow" },
      link(`#/tasks/${one.task_id}`, short(one.title, 120) || one.task_id),
      h("div", { class: "why" }, why),
    ),
    h("span", { class: "agent", title: one.agent }, one.agent),
    h("span", { class: "figure" }, `${cost(one.usage.cost_usd)} · ${tokens(one.usage).toLocaleString()} tok`),
    h(
      "div",
      { class: "when" },
      h("time", { datetime: one.created_at, title: clock(one.created_at) }, ago(one.created_at)),
      h("small", {}, one.ended_at ? `took ${duration(new Date(one.ended_at) - new Date(one.created_at))}` : ""),
    ),
    link(`#/conversations/${one.conversation_id}`, "conversation"),
  );
}
