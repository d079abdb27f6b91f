// Home: tasks and conversations as they change, what waits, what failed and what today costs.

import { get } from "./api.js";
import { empty, fill, h, link, status } from "./dom.js";
import { ago, clock, cost, count, duration, short, tokens } from "./format.js";
import { listen, soon } from "./live.js";
import { virtualList } from "./virtual_list.js";

const PAGE = 100;

export function home(main, { session }) {
  const state = { tasks: new Map(), cursor: null, closed: false };
  const filters = {
    text: h("input", { type: "search", id: "text", placeholder: "in title or reason" }),
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
  const conversations = h("ul", { class: "plain" });
  const note = h("p", { class: "empty", role: "status" });
  const list = virtualList({ label: "Tasks", height: 56, row: taskRow, more: nextPage, key: (item) => item.task_id });

  async function load() {
    const page = await get("/tasks", query());
    state.tasks = new Map(page.items.map((item) => [item.task_id, item]));
    state.cursor = page.next_cursor;
    draw();
  }

  function query(extra = {}) {
    return { agent: filters.agent.value, status: filters.status.value, limit: PAGE, ...extra };
  }

  async function nextPage() {
    if (!state.cursor) return;
    const page = await get("/tasks", query({ cursor: state.cursor }));
    state.cursor = page.next_cursor;
    for (const item of page.items) state.tasks.set(item.task_id, item);
    draw();
  }

  function draw() {
    const text = filters.text.value.toLowerCase();
    const shown = [...state.tasks.values()]
      .filter((one) => !text || `${one.title} ${one.agent} ${one.reason ?? ""} ${one.error?.message ?? ""}`.toLowerCase().includes(text))
      .filter((one) => !filters.agent.value || one.agent === filters.agent.value)
      .filter((one) => !filters.status.value || one.status === filters.status.value)
      .filter((one) => filters.subagents.checked || !one.spawned_by)
      .filter((one) => !filters.mine.checked || !("created_by" in one) || one.created_by === (session.key_id ?? session.name))
      .sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
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
    const page = await get("/conversations", { limit: 12 });
    fill(
      conversations,
      ...page.items.map((one) =>
        h(
          "li",
          {},
          link(`#/conversations/${one.conversation_id}`, short(one.title, 60) || one.conversation_id),
          one.pending_count ? h("span", { class: "badge" }, `${one.pending_count} in the mailbox`) : null,
          h("small", {}, ` ${ago(one.updated_at)}`),
        ),
      ),
    );
    if (!page.items.length) fill(conversations, h("li", {}, empty("No conversation yet.")));
  }

  const changed = new Set();
  const refresh = soon(async () => {
    const ids = [...changed];
    changed.clear();
    if (ids.length > 20 || ids.includes("*")) await load();
    else {
      const found = await Promise.all(ids.map((id) => get(`/tasks/${id}`).catch(() => null)));
      for (const one of found) if (one) state.tasks.set(one.task_id, one);
      draw();
    }
    await summary();
  });
  const stop = listen((notice) => {
    if (notice.type === "lost") changed.add("*");
    else if (notice.session_id) changed.add(notice.session_id);
    else return;
    refresh();
  });
  const clockwork = setInterval(() => load().catch(() => {}), 15_000); // tasks that no worker has begun give no notice
  for (const [name, input] of Object.entries(filters)) {
    input.addEventListener(name === "text" ? "input" : "change", () => (name === "text" ? draw() : load()));
  }

  fill(
    main,
    h("h1", {}, "Tasks"),
    figures,
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      field("Text", filters.text),
      field("Agent", filters.agent),
      field("Status", filters.status),
      field("Mine", filters.mine),
      field("Subagents", filters.subagents),
      h("a", { class: "button primary", href: "#/start" }, "Start a task"),
    ),
    note,
    list.element,
    h("h2", {}, "Conversations"),
    conversations,
  );
  get("/agents").then((page) => filters.agent.append(...page.items.map((one) => h("option", { value: one.name }, one.name)))).catch(() => {});
  load().catch((error) => fill(note, error.message));
  summary().catch(() => {});
  return () => {
    stop();
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
    h("span", { class: "agent" }, one.agent),
    h("span", { class: "figure" }, `${cost(one.usage.cost_usd)} · ${tokens(one.usage).toLocaleString()} tok`),
    h("time", { datetime: one.created_at, title: clock(one.created_at) }, one.ended_at ? duration(new Date(one.ended_at) - new Date(one.created_at)) : ago(one.created_at)),
    link(`#/conversations/${one.conversation_id}`, "conversation"),
  );
}
