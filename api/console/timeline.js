// The timeline of a task: its plan as the outline, every step with its bars, subagents below the call that began them.
// Work is drawn to scale; a stretch in which everybody waits is a narrow band that says how long it was.

import { fill, h } from "./dom.js";
import { amount, brief, cost, count, duration, short, tokens } from "./format.js";
import { icon } from "./icons.js";
import { choice, kbd, square } from "./parts.js";
import { virtualList } from "./virtual_list.js";

const HEIGHT = 28;
const BAND = 0.05; // of the width
const MOST_BARS = 60; // of a row
const BOOKKEEPING = new Set(["update_plan", "report_progress"]);
const FEW = 24; // rows; with more, subagents that have ended are closed
const KINDS = [["model", "model"], ["tool", "tool"], ["sub", "subagent"], ["bad", "failed"], ["retry", "retry pause"], ["wait", "waits for a person"]];
const ITEM = { done: ["done", "good-c"], in_progress: ["runs", "live-c"], skipped: ["skipped", "faint"], pending: ["later", "faint"] };

const at = (moment) => new Date(moment).getTime();
const costOf = (step) => step.models.reduce((sum, one) => sum + (one.usage.cost_usd ?? 0), 0);
const tokensOf = (step) => step.models.reduce((sum, one) => sum + tokens(one.usage), 0);
const stepId = (trace, step) => `${trace.session_id}:${step.step}`;

// What a step said or did, as a line.
export function titleOf(trace, step) {
  const said = step.models.map((one) => one.text).find(Boolean);
  if (said) return short(said.replace(/[*`#>]/g, "").split(/(?<=[.!?])\s|\n/)[0], 120);
  const call = step.tools.find((one) => !BOOKKEEPING.has(one.tool)) ?? step.tools[0];
  if (call) return call.tool === "update_plan" ? "Updates the plan" : `${call.tool} ${short(gist(call.arguments), 80)}`;
  const thought = step.models.map((one) => one.thinking).find(Boolean);
  return thought ? short(thought, 100) : step.models.length ? "an empty answer" : trace.ended_at ? "no answer of the model" : "waits for the model";
}

// The first of the arguments of a call, for a line.
export function gist(text) {
  try {
    const value = Object.values(JSON.parse(text))[0];
    if (Array.isArray(value)) return value.map((one) => one?.title ?? (typeof one === "string" ? one : "…")).join(", ");
    return typeof value === "string" ? value : JSON.stringify(value ?? "");
  } catch {
    return text;
  }
}

const waitsOf = (trace, now) => trace.marks.filter((one) => one.type === "input_required").map((one) => [at(one.at), one.until ? at(one.until) : trace.ended_at ? at(trace.ended_at) : now, one.text]);

// The parts of a stretch that none of the others covers.
function without([from, to], others) {
  let parts = [[from, to]];
  for (const [start, end] of others) parts = parts.flatMap(([a, b]) => (end <= a || start >= b ? [[a, b]] : [[a, start], [end, b]].filter(([x, y]) => y - x > 1)));
  return parts;
}

// The bars of a step: [kind, from, to, label] each, and how long it worked.
function barsOf(trace, step, next, now) {
  const until = trace.ended_at ? at(trace.ended_at) : now;
  const [begin, end] = [at(step.started_at), next ? at(next.started_at) : until];
  const inside = (mark) => at(mark.at) >= begin && at(mark.at) < end;
  const waits = waitsOf(trace, now).filter(([from]) => from >= begin && from < end);
  const retries = trace.marks.filter((one) => one.type === "model_retry" && inside(one)).map((one) => [at(one.at), Math.min(until, one.until ? at(one.until) : at(one.at)), one.text]);
  const bars = [];
  const add = (kind, span, label, minus = []) => { for (const [from, to] of without(span, minus)) bars.push([kind, from, to, label]); };
  for (const call of step.models) add("model", [at(call.started_at), at(call.ended_at)], call.model, retries);
  if (!step.models.length) add(trace.status === "failed" ? "bad" : "model", [begin, Math.max(begin, until)], "the model", [...retries, ...waits]);
  for (const call of step.tools) {
    const failed = !["ok", "started"].includes(call.state);
    add(failed ? "bad" : "tool", [at(call.started_at), call.ended_at ? at(call.ended_at) : until], `${call.tool} ${call.state}`, waits);
  }
  for (const [from, to, why] of retries) bars.push(["retry", from, to, `tried again: ${why}`]);
  for (const [from, to, question] of waits) bars.push(["wait", from, to, `asked: ${question}`]);
  const work = merge(bars.filter(([kind]) => kind !== "wait").map(([, from, to]) => [from, to])).reduce((sum, [from, to]) => sum + to - from, 0);
  return { bars, work, retries: retries.length, asks: waits.some(([, to]) => to === until) && !trace.ended_at };
}

function merge(spans) {
  const merged = [];
  for (const [from, to] of spans.sort((a, b) => a[0] - b[0])) {
    const last = merged.at(-1);
    if (last && from <= last[1] + 50) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

const childrenOf = (trace) => [...trace.steps.flatMap(function inside(step) { return step.tools.flatMap((call) => [...(call.sessions ?? []), ...(call.steps ?? []).flatMap(inside)]); }), ...(trace.sessions ?? [])];
export const everySession = (trace) => [trace, ...childrenOf(trace).flatMap(everySession)];

// From time to a place between 0 and 1. What nobody worked in is folded.
function scaleOf(trace, folded, now) {
  const all = everySession(trace);
  const begin = at(trace.created_at);
  const end = Math.max(begin + 1, ...all.map((one) => (one.ended_at ? at(one.ended_at) : now)));
  const busy = merge(
    all.flatMap((one) => {
      const waits = waitsOf(one, now);
      const steps = (list) => list.flatMap((step) => [
        ...step.models.map((call) => [at(call.started_at), at(call.ended_at)]),
        ...(step.models.length ? [] : [[at(step.started_at), one.ended_at ? at(one.ended_at) : now]]),
        ...step.tools.flatMap((call) => (call.sessions?.length || call.steps?.length ? steps(call.steps ?? []) : without([at(call.started_at), call.ended_at ? at(call.ended_at) : one.ended_at ? at(one.ended_at) : now], waits))),
      ]);
      return steps(one.steps).filter(([from, to]) => to >= from).map((span) => [...span]);
    }),
  );
  const worked = busy.reduce((sum, [from, to]) => sum + to - from, 0) || end - begin;
  const gaps = [[begin, begin], ...busy, [end, end]]
    .map(([from], index, list) => [index ? list[index - 1][1] : begin, from])
    .filter(([from, to]) => to - from > Math.max(2000, worked * 0.06) && folded(from));
  const waits = all.flatMap((one) => waitsOf(one, now));
  const share = gaps.length ? Math.min(BAND, 0.35 / gaps.length) : 0;
  const active = end - begin - gaps.reduce((sum, [from, to]) => sum + to - from, 0) || 1;
  const room = 1 - share * gaps.length;
  const marks = [];
  let [place, last] = [0, begin];
  for (const [from, to] of gaps) {
    marks.push([last, from, place, (place += ((from - last) / active) * room)]);
    marks.push([from, to, place, (place += share), waits.some(([a, b]) => a < to && b > from) ? "wait" : "idle"]);
    last = to;
  }
  marks.push([last, end, place, 1]);
  const toPlace = (moment) => {
    const [from, to, a, b] = marks.find(([, until]) => moment <= until) ?? marks.at(-1);
    return Math.max(0, Math.min(1, to > from ? a + ((moment - from) / (to - from)) * (b - a) : a));
  };
  return { toPlace, marks, begin, end, bands: marks.filter((one) => one[4]) };
}

function ticksOf(scale, [low, high], narrow) {
  const found = [];
  const room = (narrow ? 0.4 : 0.16) * (high - low);
  const full = scale.bands.map(([, , a, b]) => (a + b) / 2);
  for (const [from, to, a, b, band] of scale.marks) {
    if (band || b - a < room) continue;
    const raw = ((to - from) / (b - a)) * room;
    const nice = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].map((one) => one * 1000).find((one) => one >= raw) ?? 604_800_000;
    for (let moment = scale.begin + Math.ceil((from - scale.begin + 1) / nice) * nice; moment < to && found.length < 40; moment += nice) {
      const place = scale.toPlace(moment);
      if ([...found.map(([one]) => one), ...full].every((one) => Math.abs(one - place) > room * 0.8)) found.push([place, brief(moment - scale.begin).replace(".0 s", " s")]);
    }
  }
  return found;
}

// Which item of its plan each step served: that which was current when the step began.
function groupsOf(trace, plan) {
  const plans = trace.marks.filter((one) => one.plan);
  const titles = (plan?.steps ?? plans.at(-1)?.plan ?? []).map((one) => one.title);
  const groups = new Map(titles.map((title) => [title, []]));
  const before = [];
  let current = null;
  for (const step of trace.steps) {
    const planned = step.tools.findIndex((one) => one.tool === "update_plan");
    const acts = planned >= 0 && step.tools.slice(planned + 1).some((one) => !BOOKKEEPING.has(one.tool)); // and already for the item that it begins
    const until = acts ? trace.steps[trace.steps.indexOf(step) + 1]?.started_at ?? "9" : step.started_at;
    const known = plans.findLast((one) => one.at <= until)?.plan;
    current = known?.find((one) => one.status === "in_progress")?.title ?? known?.find((one) => one.status === "pending")?.title ?? current;
    if (current && !groups.has(current)) groups.set(current, []);
    (current ? groups.get(current) : before).push(step);
  }
  return { before, groups, status: new Map((plan?.steps ?? plans.at(-1)?.plan ?? []).map((one) => [one.title, one.status])) };
}

export function timeline({ pick, narrow }) {
  const state = { trace: null, plan: null, measure: "time", fold: true, unfolded: new Set(), zoom: [0, 1], chosen: null, opened: new Map(), rows: [] };
  const head = h("div", { class: "axis" });
  const tools = h("div", { class: "tools" });
  const bands = h("div", { class: "bands", "aria-hidden": "true" });
  const list = virtualList({ label: "Steps", height: HEIGHT, row: rowView, key: (row) => row.id, role: "tree" });
  list.element.classList.add("wf-list");
  list.spacer.prepend(bands);
  const element = h("div", { live: true, class: "wf" }, head, list.element, h("footer", { class: "mini" }, KINDS.map(([kind, name]) => h("span", { class: "key" }, h("i", { class: `bar ${kind}` }), name)), h("span", { class: "grow" }), h("span", { class: "desk" }, kbd("J", "K"), " step ", kbd("←", "→"), " fold")));
  let scale = null;
  let most = 1;

  function build() {
    const { trace } = state;
    if (!trace) return;
    const now = Date.now();
    scale = scaleOf(trace, (from) => state.fold && state.measure === "time" && !state.unfolded.has(from), now);
    const rows = [];
    const total = everySession(trace).reduce((sum, one) => sum + one.steps.length, 0);
    const isOpen = (id, usually) => state.opened.get(id) ?? usually;

    function stepsOf(session, steps, depth, key) {
      steps.forEach((step) => {
        const index = session.steps.indexOf(step);
        const { bars, work, retries, asks } = barsOf(session, step, index >= 0 ? session.steps[index + 1] : null, now);
        rows.push({ id: stepId(session, step), kind: "step", session, step, depth, bars, work, retries, asks, title: titleOf(session, step), cost: costOf(step), tokens: tokensOf(step), key });
        for (const call of step.tools) {
          if (call.steps?.length) nested(`${stepId(session, step)}.${call.index}`, session, call.steps, call.tool, depth, call.ended_at);
          for (const child of call.sessions ?? []) below(child, depth);
        }
      });
    }

    function nested(id, session, steps, name, depth, ended) {
      const open = isOpen(id, !ended || total <= FEW);
      rows.push({ id, kind: "session", session, name, steps: steps.length, depth, open, folds: true, bars: [["sub", at(steps[0].started_at), ended ? at(ended) : now, name]], cost: steps.reduce((sum, one) => sum + costOf(one), 0), tokens: steps.reduce((sum, one) => sum + tokensOf(one), 0) });
      if (open) stepsOf(session, steps, depth + 1);
    }

    function below(child, depth) {
      const open = isOpen(child.session_id, !child.ended_at || total <= FEW);
      const span = [at(child.started_at ?? child.created_at), child.ended_at ? at(child.ended_at) : now];
      rows.push({ id: child.session_id, kind: "session", session: child, name: child.name || child.agent, steps: child.steps.length, depth, open, folds: true, bars: without(span, waitsOf(child, now)).map(([from, to]) => ["sub", from, to, `subagent ${child.name || child.agent} ${child.status}`]), work: span[1] - span[0], cost: child.usage.cost_usd, tokens: tokens(child.usage), status: child.status });
      if (!open) return;
      stepsOf(child, child.steps, depth + 1);
      for (const one of child.sessions ?? []) below(one, depth + 1);
    }

    const { before, groups, status } = groupsOf(trace, state.plan);
    stepsOf(trace, before, 0);
    for (const [title, steps] of groups) {
      const id = `plan ${title}`;
      const known = status.get(title) ?? "skipped";
      const what = known === "pending" && steps.length ? "in_progress" : known;
      const open = isOpen(id, !(narrow() && what === "done"));
      const row = { id, kind: "plan", title, what, open, folds: steps.length > 0, depth: 0, bars: [], cost: null };
      const place = rows.push(row) - 1;
      if (steps.length) {
        stepsOf(trace, steps, 0);
        const inside = rows.slice(place + 1);
        const spans = inside.flatMap((one) => one.bars.filter(([kind]) => kind !== "wait")).map(([, from, to]) => [from, to]);
        const merged = merge(spans.map((one) => [...one]));
        row.bars = merged.map(([from, to]) => ["", from, to, title]);
        row.work = merged.reduce((sum, [from, to]) => sum + to - from, 0);
        row.cost = steps.reduce((sum, one) => sum + costOf(one), 0);
        row.tokens = steps.reduce((sum, one) => sum + tokensOf(one), 0);
        row.asks = inside.some((one) => one.asks);
        if (!open) rows.length = place + 1;
      }
    }
    for (const child of trace.sessions ?? []) below(child, 0);
    state.rows = rows;
    most = Math.max(1e-9, ...rows.filter((one) => one.kind === "step").map((one) => one[state.measure] ?? 0));
  }

  function draw() {
    build();
    drawHead();
    list.set(state.rows);
    list.element.setAttribute("aria-activedescendant", state.chosen ? rowId(state.chosen) : "");
  }

  const inView = (place) => (place - state.zoom[0]) / (state.zoom[1] - state.zoom[0]);
  const rowId = (id) => `row-${id.replace(/[^\w]/g, "-")}`;

  function drawHead() {
    if (!scale) return;
    const timed = state.measure === "time";
    const visible = (place) => inView(place) >= 0.02 && inView(place) <= 0.98;
    const middle = ([, , a, b]) => (a + b) / 2;
    const marks = !timed ? [] : [
      ...ticksOf(scale, state.zoom, narrow()).filter(([place]) => visible(place)).map(([place, text]) => h("span", { key: `tick ${text}`, css: { left: `${inView(place) * 100}%` } }, text)),
      ...scale.bands.filter((one) => visible(middle(one))).map((one) => bandView(one, inView(middle(one)))),
    ];
    fill(head, h("span", { class: "lab" }, "Plan and steps"), h("div", { class: "track", key: "track", onpointerdown: drag }, marks), h("span", { class: "tail" }, h("span", {}, timed ? "time" : state.measure), timed ? h("b", {}, "cost") : null));
    const edges = timed ? scale.bands : [];
    fill(bands, edges.map(([, , a, b, kind]) => h("i", { class: kind, css: { "--from": Math.max(0, inView(a)), "--to": Math.min(1, Math.max(0, inView(b))) } })));
    fill(
      tools,
      choice("By", [["time", "Time"], ["tokens", "Tokens"], ["cost", "Cost"]], state.measure, (value) => { state.measure = value; draw(); }),
      square("zoomin", "Zoom in", () => zoom(0.5)),
      square("zoomout", "Zoom out", () => zoom(2)),
      square("fold", "Fold waiting time", () => toggleFold(), { "aria-pressed": String(state.fold && !state.unfolded.size) }),
    );
  }

  function bandView([from, to, , , kind], place) {
    const why = kind === "wait" ? "everybody waited for a person" : "nothing ran";
    const attributes = { title: `${why}; open it to scale`, css: { left: `${place * 100}%` }, onclick: () => toggleFold(from) };
    return h("button", { type: "button", key: `band ${from}`, class: `band-label ${kind}`, ...attributes }, brief(to - from).replace(/:\d\d$/, " min"));
  }

  // One band, or without it all of them.
  function toggleFold(from) {
    if (from) state.unfolded.add(from);
    else state.fold = !state.fold || state.unfolded.size > 0;
    if (!from) state.unfolded.clear();
    state.zoom = [0, 1];
    draw();
  }

  function zoom(by) {
    const [low, high] = state.zoom;
    const chosen = state.rows.find((one) => one.id === state.chosen);
    const middle = chosen?.bars.length && by < 1 ? scale.toPlace(chosen.bars[0][1]) : (low + high) / 2;
    const half = Math.min(0.5, Math.max(0.002, ((high - low) * by) / 2));
    const from = Math.max(0, Math.min(1 - 2 * half, middle - half));
    state.zoom = [from, from + 2 * half];
    list.redraw();
    drawHead();
  }

  // A stretch of the axis becomes the whole.
  function drag(event) {
    if (event.button || event.target.closest("button")) return;
    const track = event.currentTarget;
    const box = track.getBoundingClientRect();
    const place = (x) => state.zoom[0] + Math.max(0, Math.min(1, (x - box.left) / box.width)) * (state.zoom[1] - state.zoom[0]);
    const from = place(event.clientX);
    track.setPointerCapture(event.pointerId);
    track.addEventListener("pointerup", (end) => {
      const to = place(end.clientX);
      if (Math.abs(to - from) < 0.01 * (state.zoom[1] - state.zoom[0])) return;
      state.zoom = [Math.min(from, to), Math.max(from, to)];
      list.redraw();
      drawHead();
    }, { once: true });
  }

  function rowView(row) {
    const chosen = row.id === state.chosen;
    const timed = state.measure === "time";
    const bars = timed ? row.bars.slice(0, MOST_BARS).map((bar) => barView(bar, chosen)) : row.kind === "step" ? h("i", { class: "bar model size", css: { width: `max(3px, ${(100 * (row[state.measure] ?? 0)) / most}%)` } }) : null;
    return h(
      "div",
      {
        class: `r ${row.kind} ${row.kind === "plan" ? row.what : ""} ${row.asks ? "asking" : ""} ${row.kind === "step" ? "step-row" : ""}`,
        id: rowId(row.id), role: "treeitem", "aria-level": row.depth + 1, "aria-selected": String(chosen), "data-row": row.id,
        "aria-expanded": row.folds ? String(row.open) : null, css: { "--depth": row.depth },
        onclick: () => (row.kind === "step" ? pick(row.id, true) : toggle(row)),
      },
      h("span", { class: "lab" }, labelOf(row)),
      h("span", { class: "track" }, bars),
      h("span", { class: "tail num" }, timed ? h("span", {}, row.work === undefined ? "" : brief(row.work)) : null, h("b", {}, state.measure === "tokens" ? amount(row.tokens ?? 0) : row.cost === null || row.cost === undefined ? "" : cost(row.cost))),
    );
  }

  function barView([kind, from, to, label], chosen) {
    const [a, b] = [inView(scale.toPlace(from)), inView(scale.toPlace(to))];
    if (b < 0 || a > 1) return null;
    const start = Math.max(0, a);
    return h("i", { class: `bar ${kind} ${chosen && kind !== "" ? "on" : ""}`, title: `${label}, ${duration(to - from)}`, css: { left: `min(calc(100% - 3px), ${start * 100}%)`, width: `max(3px, ${(Math.min(1, b) - start) * 100}%)` } });
  }

  function labelOf(row) {
    if (row.kind === "plan") {
      const [name, kind] = row.asks ? ["waits", "wait-c"] : ITEM[row.what] ?? ITEM.pending;
      return [icon(state.trace.ended_at && name === "runs" ? "cancelled" : name, kind), h("span", { class: "name cut" }, row.title), h("span", { class: "sr" }, row.asks ? "waits" : row.what.replaceAll("_", " ")), row.folds && !row.open ? icon("right", "faint") : null];
    }
    if (row.kind === "session") return [icon(row.open ? "down" : "right", "sub-c"), h("span", { class: "cut" }, h("b", { class: "sub-c" }, row.name), " ", h("small", { class: "faint" }, count(row.steps, "step"), row.status && row.status !== "completed" ? `, ${row.status.replaceAll("_", " ")}` : ""))];
    const bad = row.bars.some(([kind]) => kind === "bad");
    const acting = row.step.tools.filter((one) => !BOOKKEEPING.has(one.tool));
    const names = [...new Set(acting.map((one) => one.tool))].map((name) => { const many = row.step.tools.filter((one) => one.tool === name).length; return many > 1 ? `${name} ×${many}` : name; });
    return [row.depth ? null : h("span", { class: "n" }, row.step.step), h("span", { class: "cut title" }, row.title), row.retries ? h("span", { class: "tag desk" }, count(row.retries, "retry", "retries")) : null, names.length && !row.title.startsWith(`${names[0]} `) ? h("code", { class: `desk ${bad ? "bad-c" : row.asks ? "wait-c" : "faint"}` }, short(names.join(" "), 24)) : null];
  }

  function toggle(row, open = !row.open) {
    if (!row.folds || row.open === open) return;
    state.opened.set(row.kind === "session" && row.session.session_id === row.id ? row.session.session_id : row.id, open);
    draw();
  }

  function move(by) {
    const steps = state.rows.filter((one) => one.kind === "step");
    const index = steps.findIndex((one) => one.id === state.chosen);
    const next = steps[Math.max(0, Math.min(steps.length - 1, index < 0 ? 0 : index + by))];
    if (next) pick(next.id, true);
  }

  function key(event) {
    const row = state.rows.find((one) => one.id === state.chosen);
    const index = state.rows.indexOf(row);
    if (["j", "ArrowDown"].includes(event.key)) move(1);
    else if (["k", "ArrowUp"].includes(event.key)) move(-1);
    else if (event.key === "ArrowRight") for (const one of state.rows.slice(index + 1, index + 2)) toggle(one, true);
    else if (event.key === "ArrowLeft") { const above = state.rows.slice(0, index).findLast((one) => one.folds); if (above) toggle(above, false); }
    else if (event.key === "z") toggleFold();
    else if (event.key === "+") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") { state.zoom = [0, 1]; list.redraw(); drawHead(); }
    else return false;
    return true;
  }

  return {
    element,
    tools,
    key,
    move,
    set(trace, plan) {
      Object.assign(state, { trace, plan });
      draw();
    },
    choose(id, reveal) {
      state.chosen = id;
      if (!state.rows.some((one) => one.id === id)) { // it is in something that is closed
        for (const one of state.rows.filter((row) => row.folds && !row.open && !state.opened.has(row.id))) state.opened.set(one.id, true);
        draw();
      }
      list.redraw();
      const index = state.rows.findIndex((one) => one.id === id);
      if (reveal && index >= 0) list.reveal(index);
      list.element.setAttribute("aria-activedescendant", index >= 0 ? rowId(id) : "");
    },
    steps: () => state.rows.filter((one) => one.kind === "step"),
    close: () => list.close(),
  };
}
