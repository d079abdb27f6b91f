// Two tasks side by side: what they cost, from which step they differ, and both in full where they do.

import { get } from "./api.js";
import { action, fill, h, link } from "./dom.js";
import { amount, brief, cost, short, time, tokens } from "./format.js";
import { icon } from "./icons.js";
import { insist } from "./live.js";
import { bones, crumbs, kbd, pill } from "./parts.js";
import { onlyText } from "./step_view.js";
import { compareDialog } from "./task_dialogs.js";
import { difference, markdown } from "./texts.js";
import { titleOf } from "./timeline.js";

const CHARS = 20_000;

export function compare(main, { parameters: [a, b] }) {
  const place = h("div", { class: "page" }, bones(6)); // not `main`, which another view may have by then
  fill(main, place);
  crumbs(link("#/", "Tasks"), "Compare");
  let pairs = [];
  let opened = new Set();
  let sides = [];

  async function load() {
    const read = (id) => Promise.all([get(`/tasks/${id}/trace`, { chars: CHARS }), get(`/tasks/${id}/result`).catch(() => null), get(`/tasks/${id}/effects`).catch(() => ({ items: [] })), get(`/tasks/${id}/workspace`).catch(() => ({ items: [] })), get(`/tasks/${id}`)]);
    sides = (await Promise.all([a, b].map(read))).map(([trace, result, effects, files, record]) => ({ trace, result, effects: effects.items, files: files.items.filter((one) => one.change && one.kind !== "folder"), record }));
    pairs = inPairs(sides[0].trace, sides[1].trace);
    const first = pairs.findIndex((one) => one.what);
    opened = new Set(first < 0 ? [] : [first]);
    draw();
    if (first > 3) place.querySelector(".pair.first")?.scrollIntoView({ block: "center" });
  }

  function draw() {
    const [one, other] = sides;
    const first = pairs.find((pair) => pair.what);
    const ending = first ? null : endings(one, other);
    const found = first ? `First difference: ${first.what} in step ${(first.a ?? first.b).step}` : ending ? "First difference: the ending" : "Both did the same.";
    const equal = pairs.findIndex((pair) => pair.what);
    const alike = equal < 0 ? pairs.length : equal;
    const folded = alike > 2 && !opened.has("equal") ? alike - 1 : 0;
    const from = other.trace.rerun_of?.session_id === a ? `, a rerun from step ${other.trace.rerun_of.from_step}` : "";
    fill(
      place,
      h("div", { class: "line" }, h("h1", {}, "Compare"), h("span", { class: `pill banner ${first || ending ? "wait" : "good"}`, role: "status" }, found), h("span", { class: "grow" }), h("span", { class: "soft desk" }, kbd("N"), " next ", kbd("P"), " previous"), link(`#/compare/${b}/${a}`, h("span", { class: "button" }, icon("compare"), "Swap")), action("Other task…", () => compareDialog(a, one.trace.agent))),
      h("dl", { class: "stats" }, delta("Cost", one.trace.usage.cost_usd, other.trace.usage.cost_usd, cost), delta("Time", span(one.trace), span(other.trace), brief), delta("Steps", one.trace.steps.length, other.trace.steps.length, String), delta("Tokens", tokens(one.trace.usage), tokens(other.trace.usage), amount), delta("Criteria met", met(one), met(other), (value) => (value === null ? "none" : String(value)), true)),
      h("div", { class: "cmp scroll", tabindex: "0", role: "region", "aria-label": "Both tasks, step by step" },
        h("div", { class: "pair heads" }, side("A", one), h("span", { class: "m" }), side("B", other, from)),
        folded ? h("button", { type: "button", class: "pair fold", onclick: () => { opened.add("equal"); draw(); } }, h("span", { class: "c" }, icon("right"), `${folded} equal steps`), h("span", { class: "m" }, "="), h("span", { class: "c" }, icon("right"), `${folded} equal steps${from ? ", taken over" : ""}`)) : null,
        pairs.map((pair, at) => (at < folded ? null : pairView(pair, at))),
        rowOf("Result", one.trace.output ?? one.trace.error, other.trace.output ?? other.trace.error),
        rowOf("Files", one.files.map((file) => `${file.path} ${file.change}`).join("\n"), other.files.map((file) => `${file.path} ${file.change}`).join("\n")),
        rowOf("Effects", one.effects.map((effect) => `${effect.kind} ${effect.description}`).join("\n"), other.effects.map((effect) => `${effect.kind} ${effect.description}`).join("\n")),
      ),
    );
  }

  const side = (letter, { trace, record }, more = "") => h("div", { class: "c" }, h("span", { class: "chip" }, letter), h("div", { class: "grow" }, h("a", { class: "cut title", href: `#/tasks/${trace.session_id}` }, trace.title || trace.session_id), h("small", { class: "faint" }, `${trace.agent} v${trace.agent_version} · ${record.models[0]} · ${time(trace.created_at)}${more}`)), pill(trace.status));

  function pairView(pair, at) {
    const open = opened.has(at);
    const head = (trace, step) => h("span", { class: `c ${pair.what ? "" : "same"}` }, h("span", { class: "n num" }, (step ?? pair.a ?? pair.b).step), h("span", { class: "cut grow" }, step ? titleOf(trace, step) : trace.ended_at ? "ended before this step" : "—"), step ? h("small", { class: "faint num" }, `${brief(work(step))} · ${cost(step.models.reduce((sum, one) => sum + (one.usage.cost_usd ?? 0), 0))}`) : null);
    const first = pairs.findIndex((one) => one.what) === at;
    return h(
      "div",
      { class: `pair-box ${first ? "first" : ""}`, key: `pair ${at}` },
      h("button", { type: "button", class: `pair ${first ? "first" : ""}`, "aria-expanded": String(open), "data-pair": at, onclick: () => { if (!opened.delete(at)) opened.add(at); draw(); } }, head(sides[0].trace, pair.a), h("span", { class: `m ${pair.what ? "ne" : ""}` }, pair.what ? "≠" : "=", h("span", { class: "sr" }, pair.what ? "different" : "equal")), head(sides[1].trace, pair.b)),
      open ? bodyOf(pair) : null,
    );
  }

  // Both in full: the texts side by side, and what differs in each call and result.
  function bodyOf({ a: one, b: other }) {
    const parts = [];
    const [left, right] = [said(one), said(other)];
    if (left !== right) parts.push(part("Text", left, right));
    for (let index = 0; index < Math.max(one?.tools.length ?? 0, other?.tools.length ?? 0); index++) {
      const [ours, theirs] = [one?.tools[index], other?.tools[index]];
      const name = (ours ?? theirs).tool;
      if (call(ours) !== call(theirs)) parts.push(part(`${name}, arguments`, shownCall(ours), shownCall(theirs)));
      if (result(ours) !== result(theirs)) parts.push(part(`${name}, result`, result(ours), result(theirs)));
    }
    const whole = (step) => h("div", { class: "c full" }, step ? [step.models.map((model) => markdown(model.text)), step.tools.map((tool) => h("div", {}, h("code", {}, `${tool.tool} ${short(tool.arguments, 200)}`), h("pre", {}, short(tool.result, 2000))))] : h("span", { class: "faint" }, "no such step"));
    return h("div", { class: "both" }, parts, h("details", { class: "fold" }, h("summary", {}, icon("right"), "Both in full"), h("div", { class: "pair" }, whole(one), h("span", { class: "m" }), whole(other))));
  }

  const part = (name, left, right) => h("div", { class: "difference" }, h("h2", { class: "label" }, name), difference([left, right]));

  function rowOf(name, left, right) {
    const [one, other] = [left || "none", right || "none"];
    return h("div", { class: "pair-box", key: name }, h("div", { class: "pair" }, h("span", { class: "c" }, h("b", {}, name), h("span", { class: "cut grow soft" }, short(one, 160))), h("span", { class: `m ${one === other ? "" : "ne"}` }, one === other ? "=" : "≠"), h("span", { class: "c" }, h("b", {}, name), h("span", { class: "cut grow soft" }, short(other, 160)))), one === other ? null : h("details", { class: "fold" }, h("summary", {}, icon("right"), "What differs"), part(name, one, other)));
  }

  function step(by) {
    const places = pairs.map((one, at) => (one.what ? at : -1)).filter((at) => at >= 0);
    const now = Math.max(-1, ...[...opened].filter((one) => Number.isInteger(one)));
    const next = by > 0 ? places.find((at) => at > now) : places.findLast((at) => at < now);
    if (next === undefined) return;
    opened = new Set([...opened].filter((one) => one === "equal")).add(next);
    draw();
    place.querySelector(`[data-pair="${next}"]`).scrollIntoView({ block: "center" });
  }

  return {
    key: (event) => (event.key === "n" ? (step(1), true) : event.key === "p" ? (step(-1), true) : false),
    leave: insist(load, (error) => fill(place, h("p", { class: "notice", role: "alert" }, error.message))),
  };
}

function delta(name, one, other, text, more = false) {
  const known = typeof one === "number" && typeof other === "number" && one !== other;
  const better = known && (more ? other > one : other < one);
  const share = known && one ? percent(one, other) : "";
  return h("div", {}, h("dt", {}, name), h("dd", {}, `${text(one)} → ${text(other)}`, share ? h("span", { class: `delta ${better ? "down" : "up"}` }, share) : null));
}

function percent(one, other) {
  const share = Math.round((100 * (other - one)) / one);
  return share ? `${share > 0 ? "+" : "−"}${Math.abs(share)} %` : "";
}

const span = (trace) => new Date(trace.ended_at ?? Date.now()) - new Date(trace.started_at ?? trace.created_at);
const work = (step) => Math.max(...[...step.models, ...step.tools].map((one) => new Date(one.ended_at ?? one.started_at)), new Date(step.started_at)) - new Date(step.started_at);
const met = ({ result }) => (result?.acceptance ? result.acceptance.filter((one) => one.passed).length : null);
const endings = (one, other) => ending(one.trace) !== ending(other.trace);

// A rerun begins at a step of its original: both are compared from there.
function steps(trace, other) {
  const origin = other.rerun_of;
  return origin?.session_id === trace.session_id ? trace.steps.filter((one) => one.step >= origin.from_step) : trace.steps;
}

function inPairs(a, b) {
  const [ours, theirs] = [steps(a, b), steps(b, a)];
  const taken = (ours.length < a.steps.length ? a.steps : theirs.length < b.steps.length ? b.steps : []).slice(0, -Math.min(ours.length, theirs.length) || undefined).filter((one) => !ours.includes(one) && !theirs.includes(one));
  return [
    ...taken.map((one) => ({ a: one, b: one, what: null })),
    ...Array.from({ length: Math.max(ours.length, theirs.length) }, (_, at) => ({ a: ours[at], b: theirs[at], what: whatDiffers(ours[at], theirs[at]) })),
  ];
}

function whatDiffers(one, other) {
  if (!one || !other) return "length";
  if (said(one) !== said(other)) return "text";
  for (const [what, view] of [["tool call", call], ["tool result", result]]) {
    for (let index = 0; index < Math.max(one.tools.length, other.tools.length); index++) if (view(one.tools[index]) !== view(other.tools[index])) return what;
  }
  return null;
}

const said = (step) => step?.models.map((one) => one.text).join("\n\n") ?? "";
const call = (tool) => (tool ? `${tool.tool} ${tool.arguments}` : "no call");
const shownCall = (tool) => (tool ? `${tool.tool} ${onlyText(tool.arguments)}` : "no call");
const result = (tool) => (tool ? `${tool.state}: ${tool.result}` : "no call");
const ending = (trace) => `${trace.status} (${trace.reason}): ${trace.output ?? trace.error ?? ""}`;
