// One step in full: its thinking, what it said, each call with arguments and result, who allowed it, and its cost.

import { append, h, link } from "./dom.js";
import { brief, clock, cost, json, short, time, tokens } from "./format.js";
import { icon } from "./icons.js";
import { verdict } from "./decision.js";
import { appendText, code, shownFiles } from "./parts.js";
import { difference, markdown } from "./texts.js";
import { gist } from "./timeline.js";

const UNIFIED = /^@@ -\d+(,\d+)? \+\d+(,\d+)? @@/m;
const span = (one) => (one.ended_at ? brief(new Date(one.ended_at) - new Date(one.started_at)) : "running");

// `requests`: of the session, settled ones too. `whole`: for a file, in which nothing can be pressed.
export function stepView(step, { requests = [], whole = false, marks = [] } = {}) {
  const thought = step.models.map((one) => one.thinking).filter(Boolean).join("\n\n");
  const last = Math.max(...step.models.map((one) => new Date(one.ended_at)), new Date(step.started_at));
  const retries = marks.filter((one) => one.type === "model_retry" && one.at >= step.started_at && new Date(one.at) <= last);
  return [
    thought ? h("details", { class: "fold", key: "thinking", open: whole || undefined }, h("summary", {}, icon("spark"), h("b", {}, "Thinking"), h("span", { class: "cut faint grow" }, short(thought, 140))), h("blockquote", {}, thought)) : null,
    step.models.filter((one) => one.text).map((one) => h("div", { class: "say" }, markdown(one.text))),
    retries.length ? codeOf([icon("again"), h("b", { class: "grow" }, `The model answered at attempt ${retries.length + 1}`)], retries.map((one) => `${clock(one.at)}  ${one.text}`).join("\n"), { whole }) : null,
    step.tools.map((call) => callView(call, requests.find((one) => one.details?.tool === call.tool && sameCall(one, call) && one.created_at >= step.started_at), whole)),
    h("p", { class: "usage faint" },
      step.models.map((one) => [
        h("span", {}, one.model),
        h("span", { class: "num" }, span(one)),
        h("span", { class: "num" }, cost(one.usage.cost_usd)),
        h("span", { class: "num" }, `${(tokens(one.usage) - one.usage.output_tokens).toLocaleString()} in${one.usage.cache_read_tokens ? ` (${one.usage.cache_read_tokens.toLocaleString()} cached)` : ""}`),
        h("span", { class: "num" }, `${one.usage.output_tokens.toLocaleString()} out`),
        one.attempts > 1 ? h("span", {}, `${one.attempts} attempts`) : null,
      ]),
    ),
  ];
}

function sameCall(request, call) {
  const given = JSON.stringify(request.details.arguments ?? null);
  try {
    return given === JSON.stringify(JSON.parse(call.arguments)) || request.answer?.arguments;
  } catch {
    return true; // its arguments are cut here
  }
}

function codeOf(head, text, { whole, kind = "", id = "" }) {
  return whole ? h("div", { class: `code ${kind}` }, h("header", {}, head), h("pre", {}, text)) : code(head, text, { kind, id });
}

export function callView(call, request = null, whole = false) {
  const failed = !["ok", "started"].includes(call.state);
  const asks = request?.status === "open" && call.state === "started";
  const state = asks ? h("span", { class: "pill wait" }, icon("waits"), "waits for a person") : call.state === "ok" ? icon("tick", "good-c") : h("span", { class: `pill ${failed ? "bad" : "live"}` }, icon(failed ? "failed" : "runs"), call.state.replaceAll("_", " "));
  const edits = editOf(call);
  const given = onlyText(call.arguments);
  const head = [icon(/edit|write|patch/.test(call.tool) ? "edit" : "shell"), h("code", {}, call.tool), state, h("span", { class: "grow" }), call.usage ? h("span", { class: "num" }, cost(call.usage.cost_usd)) : null, call.started_at && !asks ? h("span", { class: "num" }, span(call)) : null];
  const settled = request && request.status !== "open" ? h("p", { class: "decided-by soft" }, icon("shield"), `${verdict(request)} by ${request.answered_by ?? "nobody"}${request.answered_at ? `, ${time(request.answered_at)}` : ""}${request.answer?.notes ? `: ${request.answer.notes}` : ""}`) : null;
  const box = h("article", { class: `call ${failed ? "bad" : ""}`, key: `call ${call.index}`, "data-tool": call.tool });
  append(box, [
    edits && !whole ? difference(edits.texts, { head: h("header", {}, head, h("code", { class: "faint cut" }, edits.path), h("span", { class: "num", "data-sums": "" })), empty: "It changes nothing." }) : codeOf(head, given, { whole, id: call.index }),
    settled,
    call.result ? resultView(call, whole, failed) : null,
    shownFiles(call.files),
    (call.sessions ?? []).map((child) => h("p", { class: "line" }, icon("branch", "sub-c"), link(`#/tasks/${child.session_id}`, `subagent ${child.name || child.agent}`))),
  ]);
  return box;
}

function resultView(call, whole, failed) {
  if (!whole && UNIFIED.test(call.result)) return difference([call.result]);
  if (whole) return h("pre", { class: "result" }, call.result);
  const box = h("div", { class: `code result ${failed ? "bad" : ""}`, own: true, stamp: call.result });
  appendText(box, call.result);
  return box;
}

// The only text that a call was given, or all of its arguments.
export function onlyText(text) {
  try {
    const values = Object.values(JSON.parse(text));
    if (values.length === 1 && typeof values[0] === "string") return gist(text);
  } catch {
    return text;
  }
  return json(text);
}

function editOf(call) {
  if (call.tool !== "edit_file") return null;
  try {
    const { path, edits } = JSON.parse(call.arguments);
    return { path, texts: [edits.map((one) => one.old).join("\n"), edits.map((one) => one.new).join("\n")] };
  } catch {
    return null;
  }
}

