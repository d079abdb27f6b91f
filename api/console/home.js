// Tasks: the figures of today, what waits for people, and every task as it changes.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { ago, amount, brief, clock, cost, count, duration, left, short, time, tokens, took } from "./format.js";
import { icon } from "./icons.js";
import { kindIcon } from "./decision.js";
import { ends, every, insist, listen, soon } from "./live.js";
import { bones, choice, crumbs, empty, kbd, meter, planStrip, shape } from "./parts.js";
import { virtualList } from "./virtual_list.js";

const PAGE = 100;
const MOST_WAITING = 3;
const LIVE = ["submitted", "working", "input_required"];
const STATES = [["", "All"], ["working", "Running"], ["input_required", "Waiting"], ["failed", "Failed"], ["completed", "Done"]];
const TEXTS = ["text", "agent", "since"]; // filters that are empty unless they are set
const PERIODS = [["", "Any time"], ["1", "Today"], ["7", "7 days"], ["30", "30 days"]]; // with today

export function home(main) {
  const state = { tasks: new Map(), read: new Map(), asked: null, cursor: null, status: "", hidden: 0 }; // a cursor is valid for the filters it was asked with
  const filters = {
    text: h("input", { type: "search", id: "text", placeholder: "Part of the title", "aria-label": "Text" }),
    agent: h("select", { id: "agent", "aria-label": "Agent" }, h("option", { value: "" }, "All agents")),
    since: h("select", { id: "since", "aria-label": "Begun" }, PERIODS.map(([value, name]) => h("option", { value }, name))),
    mine: h("input", { type: "checkbox", class: "box", id: "mine" }),
    subagents: h("input", { type: "checkbox", class: "box", id: "subagents" }),
  };
  const figures = h("dl", { class: "stats" }, ["Running", "Waiting for people", "Failed today", "Median time today", "Spent today"].map((name) => h("div", {}, h("dt", {}, name), h("dd", {}, "–"))));
  const needs = h("section", { class: "needs", "aria-label": "Waiting for people", hidden: true });
  const states = h("div", {});
  const fresh = h("button", { type: "button", class: "fresh", hidden: true, onclick: () => { list.element.scrollTop = 0; show(true); } });
  const note = h("div", { class: "note", role: "status" });
  const list = virtualList({ label: "Tasks", height: 46, row: taskRow, more: nextPage, key: (item) => item.task_id ?? item.group });
  let order = []; // of the rows
  let calm = true; // neither pointer nor focus is in the list

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
    show(anew);
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
    const [days, midnight] = [Number(filters.since.value), new Date().setHours(0, 0, 0, 0)];
    return {
      created_after: days ? new Date(midnight - (days - 1) * 86_400_000).toISOString() : null,
      agent: filters.agent.value,
      status: state.status,
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
    show();
  }

  // Rows change in place. Groups are sorted again, and new rows enter above, only while nobody is in the list.
  function show(anew = false) {
    const wanted = [...state.tasks.values()].sort((a, b) => (a.task_id < b.task_id ? 1 : -1));
    const free = anew || !order.length || (calm && list.element.scrollTop === 0);
    if (free) order = [...wanted.filter((one) => LIVE.includes(one.status)), ...wanted.filter((one) => !LIVE.includes(one.status))].map((one) => one.task_id);
    else {
      const there = new Set(order);
      const oldest = order.at(-1) && wanted.findLastIndex((one) => there.has(one.task_id));
      order = order.filter((id) => state.tasks.has(id)).concat(wanted.slice(oldest + 1).map((one) => one.task_id)); // a further page
    }
    const there = new Set(order);
    state.hidden = wanted.filter((one) => !there.has(one.task_id)).length;
    fresh.hidden = !state.hidden;
    fill(fresh, count(state.hidden, "new task"));
    const all = order.map((id) => state.tasks.get(id));
    const lively = order.findIndex((id, at) => !LIVE.includes(all[at].status) && (free || state.grouped?.get(id) !== "live"));
    const edge = lively < 0 ? all.length : lively;
    state.grouped = new Map(order.map((id, at) => [id, at < edge ? "live" : "earlier"]));
    const groups = [edge ? { group: "Live", number: edge } : null, ...all.slice(0, edge), edge < all.length ? { group: "Earlier", number: all.length - edge } : null, ...all.slice(edge)];
    list.set(groups.filter(Boolean));
    list.element.hidden = !all.length;
    if (all.length) fill(note);
    else fill(note, filtered() ? empty("search", "No task fits", "Other tasks do not fit these filters.", h("button", { type: "button", onclick: clear }, "Clear the filters")) : empty("tasks", "Nothing was asked yet", "Tasks appear here as soon as somebody starts one.", h("a", { class: "button primary", href: "#/start" }, "Start a task")));
  }

  const filtered = () => Boolean(state.status || filters.mine.checked || TEXTS.some((name) => filters[name].value));

  function clear() {
    state.status = "";
    for (const name of TEXTS) filters[name].value = "";
    filters.mine.checked = false;
    filter();
    stateView();
  }

  function stateView() {
    fill(states, choice("Status", STATES, state.status, (value) => { state.status = value; stateView(); filter(); }));
  }

  async function summary() {
    const [now, today, asked] = await Promise.all([get("/summary"), get("/figures"), get("/input-requests", { status: "open", order: "deadline", limit: MOST_WAITING })]);
    const line = (name, shape, kind, value, more, extra) => h("div", {}, h("dt", {}, icon(shape, kind), name), h("dd", {}, h("span", {}, value), more ? h("small", {}, more) : null, extra));
    const most = Math.max(...today.by_time.map((one) => one.cost_usd), 0);
    const [soonest] = asked.items;
    fill(
      figures,
      line("Running", "runs", "live-c", String(now.running), now.queued ? `${now.queued} not started` : ""),
      line("Waiting for people", "waits", "wait-c", String(now.open_requests), soonest ? `next deadline in ${left(soonest.deadline).replace(" left", "")}` : ""),
      line("Failed today", "failed", "bad-c", String(now.failed_today), today.ended ? `of ${today.ended} in 24 h` : ""),
      line("Median time", "clock", "", today.took ? duration(today.took.median) : "–", today.took ? `95 %: ${duration(today.took.most)}` : ""),
      line("Spent today", "money", "", cost(now.cost_usd_today), `${amount(now.tokens_today)} tokens`, h("span", { class: "spark", "aria-hidden": "true" }, today.by_time.map((one, at) => h("i", { class: at === today.by_time.length - 1 ? "now" : "", css: { height: `${most ? Math.max(8, (100 * one.cost_usd) / most) : 8}%` } })))),
    );
    needs.hidden = !asked.items.length;
    fill(
      needs,
      h("header", {}, icon("waits"), h("b", { class: "grow" }, `${now.open_requests} wait for you`), h("a", { href: "#/inbox" }, "Open the inbox"), kbd("G", "I")),
      h("ul", {}, asked.items.map((one) => h("li", { key: one.id }, icon(kindIcon(one), "wait-c"), h("span", { class: "cut" }, h("b", {}, short(one.question, 120)), " ", h("span", { class: "faint" }, one.details?.tool ?? one.kind.replaceAll("_", " "))), h("span", { class: "soft num desk" }, left(one.deadline)), h("a", { class: "button small", href: `#/inbox/${one.id}`, "aria-label": `Review: ${short(one.question, 60)}` }, "Review")))),
    );
  }

  const changed = new Set();
  const refresh = soon(async () => {
    const ids = [...changed];
    changed.clear();
    if (ids.length > 20 || ids.includes("*")) await load();
    else {
      await Promise.all(ids.map(look));
      show();
    }
  });
  const figuresSoon = soon(summary, 700); // apart: the rows must not wait for them
  const stop = listen((notice) => {
    if (notice.type === "lost") changed.add("*");
    else if (notice.session_id) changed.add(notice.session_id);
    else return;
    refresh();
    figuresSoon();
  });
  const filter = soon(() => load({ anew: true }).catch((error) => fill(note, error.message)));
  const clockwork = every(15_000, () => {
    load().catch(() => {}); // tasks that no worker has begun give no notice
    figuresSoon();
  });
  for (const [name, input] of Object.entries(filters)) input.addEventListener(name === "text" ? "input" : "change", filter);
  let rest = null;
  const within = () => list.element.matches(":hover") || list.element.contains(document.activeElement);
  const left_ = () => {
    clearTimeout(rest);
    calm = !within();
    if (calm) rest = setTimeout(show, 1000);
  };
  for (const type of ["pointerenter", "focusin"]) list.element.addEventListener(type, () => { calm = false; clearTimeout(rest); });
  for (const type of ["pointerleave", "focusout"]) list.element.addEventListener(type, () => setTimeout(left_));

  crumbs("Tasks");
  stateView();
  fill(
    main,
    h("div", { class: "page" },
      h("h1", { class: "sr" }, "Tasks"),
      figures,
      needs,
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        states,
        h("span", { class: "search" }, icon("search"), filters.text, kbd("/")),
        filters.agent,
        filters.since,
        h("span", { class: "grow" }),
        h("span", { class: "check" }, filters.mine, h("label", { for: "mine" }, "Mine")),
        h("span", { class: "check" }, filters.subagents, h("label", { for: "subagents" }, "Subagents and reruns")),
      ),
      h("div", { class: "table" }, h("div", { class: "task-row heads", "aria-hidden": "true" }, h("span"), h("span", {}, "Task"), h("span", {}, "Plan"), h("span", {}, "Agent"), h("span", { class: "figure" }, "Time"), h("span", {}, "Cost and limit"), h("span", { class: "when" }, "Changed")), fresh, note, list.element),
    ),
  );
  list.element.hidden = true;
  const waits = setTimeout(() => state.asked || fill(note, bones()), 300);
  const reads = [
    insist(() => load({ anew: true }), (error) => { clearTimeout(waits); fill(note, error.message); }),
    insist(summary, () => {}),
    insist(async () => filters.agent.append(...(await get("/agents")).items.map((one) => h("option", { value: one.name }, one.name))), () => {}),
  ];

  function key(event) {
    if (event.key === "/") filters.text.focus();
    else if (event.key === "j" || event.key === "k") {
      const rows = [...list.element.querySelectorAll(".task-row a")].sort((a, b) => a.closest(".virtual-row").offsetTop - b.closest(".virtual-row").offsetTop);
      const at = rows.indexOf(document.activeElement);
      rows[Math.max(0, Math.min(rows.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
    } else return false;
    return true;
  }

  return { key, leave: ends(stop, ...reads, clockwork, list.close, () => clearTimeout(rest)) };
}

function taskRow(one) {
  if (one.group) return h("div", { class: "group" }, one.group, h("span", { class: "faint num" }, one.number));
  const kind = one.status === "failed" ? "bad-c" : one.status === "input_required" ? "wait-c" : "";
  const why = one.status === "failed" ? one.error?.message || one.reason : one.retry ? `${one.retry.reason}: attempt ${one.retry.attempt + 1}` : one.queued ? "Waits for the turn before it" : one.status === "submitted" ? "Waits for a worker" : one.progress?.message;
  const limit = one.limits.cost_usd;
  return h(
    "div",
    { class: "task-row", "data-task": one.task_id },
    shape(one.status),
    h("div", { class: "grow" }, h("a", { class: "title cut", href: `#/tasks/${one.task_id}` }, short(one.title, 160) || one.task_id), h("small", { class: `why cut ${kind}` }, short(why, 160))),
    planStrip(one.plan, one.status),
    h("span", { class: "agent cut soft", title: one.agent }, one.agent),
    h("span", { class: "figure num" }, brief(took(one))),
    h("span", { class: "spent num" }, h("span", {}, cost(one.usage.cost_usd)), h("small", { class: "faint" }, limit ? `${Math.round((100 * (one.usage.cost_usd ?? 0)) / limit)} %` : `${amount(tokens(one.usage))} tok`), limit ? meter(one.usage.cost_usd ?? 0, limit, "cost") : null),
    h("time", { class: "when num faint", datetime: one.updated_at, title: clock(one.updated_at) }, LIVE.includes(one.status) ? ago(one.updated_at) : time(one.updated_at)),
  );
}
