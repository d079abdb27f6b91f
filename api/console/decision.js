// What a person decides: a call, a plan or a question, with all that is known about it. One component, wherever a
// request is shown: approve, deny with a reason, edit in place, allow such calls from now on.

import { get, post } from "./api.js";
import { action, ask, fill, h, link } from "./dom.js";
import { bounded, cost, count, json, left, short, time } from "./format.js";
import { icon } from "./icons.js";
import { code, kbd, toast } from "./parts.js";
import { schemaForm } from "./schema_form.js";
import { difference, markdown } from "./texts.js";

const sending = new Map(); // request -> whether its answer, which is on its way, waits for the server; whatever page is shown
const APPROVALS = new Set(["tool_approval", "plan_approval"]);
const MOST = 20_000; // characters of each part
const KEPT = "Your answer is kept, and sent when the server is back.";
const SEEN_MS = 400; // before a key approves
const EXPIRY = { cancel: "the task is cancelled", deny: "it is denied", default: "its default is taken" };
const KNOWN = new Set(["tool", "arguments", "diff", "files", "more_files", "plan", "note", "options", "rule", "so_far", "always", "external", "effect", "hosts", "network"]);
const EFFECTS = { read: "It changes nothing", idempotent: "It may run again after a crash", once: "It runs at most once, even after a crash" };

export const isApproval = (request) => APPROVALS.has(request.kind);

export function verdict(request) {
  if (request.status === "expired") return "expired";
  if (request.status === "withdrawn") return "withdrawn";
  const answer = request.answer;
  if (!answer || typeof answer !== "object" || !("approved" in answer)) return "answered";
  return answer.approved ? (answer.arguments || answer.plan ? "edited" : "approved") : "denied";
}

export const kindIcon = (request) => (request.kind === "plan_approval" ? "tasks" : !isApproval(request) ? "chats" : /edit|write|patch/.test(request.details?.tool ?? "") ? "edit" : "shell");

// `answered(request, text)` comes when it is settled, by this person or by somebody else.
// `after` is shown below what is known of it.
export function decision(request, { answered, heading = true, after = null }) {
  const element = h("section", { live: true, class: "ask", "aria-label": isApproval(request) ? "Approval" : "Question", "data-request": request.id });
  const properties = request.answer_schema?.properties ?? {};
  const { approved: _, notes: noted, always, ...changes } = isApproval(request) ? properties : {};
  const patterns = (request.details?.always ?? []).join("\n");
  const form = isApproval(request) ? null : schemaForm(request.answer_schema ?? { type: "string" }, request.default_answer ?? undefined);
  const clock = h("span", { class: "num", "data-deadline": request.deadline }, left(request.deadline));
  const always_ = h("input", { type: "checkbox", id: `always-${request.id}`, class: "box" });
  const editable = Boolean(always || Object.keys(changes).length);
  let seenAt = Infinity; // since when its end is in view
  const eyes = new IntersectionObserver((all) => { seenAt = all.at(-1).isIntersecting ? performance.now() : Infinity; });
  let editing = null;

  async function send(input, kept = () => {}) {
    if (sending.has(request.id)) throw new Error("Your answer is on its way.");
    sending.set(request.id, false);
    let text;
    try {
      text = await answer(request, input, () => { sending.set(request.id, true); draw(); kept(); });
    } finally {
      sending.delete(request.id);
      draw();
    }
    await answered(request, text);
  }

  const note = () => (sending.get(request.id) ? h("span", { class: "wait-c", role: "status" }, KEPT) : null);

  const approve = () => send(always_.checked && patterns ? { approved: true, always: patterns.split("\n") } : { approved: true });

  function edit() {
    if (!editable) throw new Error("This cannot be changed, only approved or denied.");
    editing = editor(request, { changes, noted, always, patterns }, send, () => { editing = null; draw(); });
    draw();
    element.querySelector("textarea, input[type=text]")?.focus();
  }

  function draw() {
    const head = heading ? h("header", {}, icon(editing ? "edit" : "waits"), h("span", { class: "grow question" }, editing ? "Approve with other arguments" : request.question), clock) : null;
    if (editing) return fill(element, head, h("div", { class: "body", key: "edit" }, editing.body), h("footer", { key: "edit" }, editing.buttons, note()));
    fill(
      element,
      head,
      h("div", { class: "body", key: "look" }, known(request), form?.element, after),
      h("footer", { key: "look" },
        isApproval(request)
          ? [
              action(["Approve", kbd("A")], approve, { class: "primary", "data-do": "a" }),
              action(["Deny…", kbd("D")], () => deny(send), { class: "danger", "data-do": "d" }),
              editable ? action(["Edit…", kbd("E")], edit, { "data-do": "e" }) : null,
              always && patterns ? h("label", { class: "always", for: always_.id, title: "From now on run such calls of this conversation without asking" }, always_, "Always ", h("code", { class: "cut" }, short(patterns, 60)), kbd("⇧A")) : null,
            ]
          : action("Answer", () => send(form.value()), { class: "primary" }),
        note(),
      ),
    );
    eyes.disconnect();
    eyes.observe(element.querySelector(".facts-list"));
  }

  draw();
  return {
    element,
    request,
    tick: () => fill(clock, left(request.deadline)),
    // A key approves only what has been in view for a moment, as a whole.
    press(key) {
      const button = element.querySelector(`[data-do="${key.toLowerCase()}"]`);
      if (editing || !button) return;
      const hidden = seenAt === Infinity || [...element.querySelectorAll(".more, .diff .quiet")].some((one) => one.checkVisibility());
      if (/a/i.test(key) && hidden) return toast("There is more of it: scroll to its end and show all, or press Approve.");
      if (/a/i.test(key) && performance.now() - seenAt < SEEN_MS) return;
      if (key === "A") always_.checked = Boolean(always && patterns);
      button.click();
    },
  };
}

// The decisions of a view: each card stays as it is while its request is open.
export function decisions(answered) {
  const known = new Map();
  return {
    set(open) {
      const ids = new Set(open.map((one) => one.id));
      for (const id of known.keys()) if (!ids.has(id)) known.delete(id);
      const fresh = open.filter((one) => !known.has(one.id));
      for (const one of fresh) known.set(one.id, decision(one, { answered: (request) => { known.delete(request.id); return answered(); } }));
      return fresh.length > 0;
    },
    elements: () => [...known.values()].map((one) => one.element),
    tick: () => known.forEach((one) => one.tick()),
    // A key is for the first of them.
    press(event) {
      const [first] = known.values();
      if (!first || event.repeat || !/^[adeA]$/.test(event.key)) return false;
      first.press(event.key);
      return true;
    },
  };
}

// Answers a request once. Returns what to say about it; somebody else may have been first.
async function answer(request, input, kept) {
  try {
    await post(`/tasks/${request.session_id}/input`, { response_to: request.id, input }, { once: true, kept });
    const what = input?.approved === undefined ? "Answered" : input.approved ? "Approved" : "Denied";
    toast(`${what}: ${short(request.question, 70)}`, link(`#/tasks/${request.session_id}`, "Open task"));
    return `${what}: ${request.question}`;
  } catch (error) {
    if (error.status !== 409) throw error;
    const found = (await get(`/tasks/${request.session_id}/input-requests`)).items.find((one) => one.id === request.id);
    const text = found?.answered_by ? `${found.answered_by} was first: ${verdict(found)} at ${time(found.answered_at)}.` : error.message;
    toast(text);
    return text;
  }
}

function deny(send) {
  const about = "The agent is told, and continues without it.";
  const run = (notes, close) => send(notes ? { approved: false, notes } : { approved: false }, close);
  ask("Deny", "Why? The agent reads it (optional)", ["Deny", kbd("⌘↵")], run, { about, kind: "danger" });
}

// The call as a form in the place of its text. A standing rule is a separate decision: it is sent only if its box was ticked.
function editor(request, { changes, noted, always, patterns }, send, back) {
  const fields = Object.entries(changes).map(([name, schema]) => [name, schemaForm(schema, request.details[name], name)]);
  const notes = h("textarea", { rows: 2, id: `notes-${request.id}` });
  const which = h("textarea", { rows: 2, class: "mono", id: `patterns-${request.id}`, value: patterns });
  const place = h("div", { class: "field", hidden: true }, h("label", { for: which.id }, "Calls that match, one pattern a line"), which);
  const rule = h("input", { type: "checkbox", class: "box", id: `rule-${request.id}`, onchange: () => { place.hidden = !rule.checked; } });
  const change = h("div", { class: "change" });
  let timer = null;

  function show() {
    const value = fields.map(([name, form]) => { try { return [name, form.value()]; } catch { return [name, undefined]; } });
    if (value.some(([, one]) => one === undefined)) return fill(change);
    const before = Object.fromEntries(value.map(([name]) => [name, request.details[name]]));
    const [old, now] = [before, Object.fromEntries(value)].map((one) => asText(one));
    fill(change, old === now ? null : difference([old, now], { head: h("header", {}, icon("compare"), h("b", { class: "grow" }, "Your change"), h("span", { class: "faint" }, "the agent is told that you edited it")) }));
  }

  async function approve() {
    const input = { approved: true };
    for (const [name, form] of fields) input[name] = form.value();
    if (notes.value) input.notes = notes.value;
    const wanted = rule.checked ? which.value.split("\n").filter((one) => one.trim()) : [];
    if (wanted.length) input.always = wanted;
    await send(input);
  }

  const keys = (event) => {
    if (event.key === "Escape") back();
    else if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) event.currentTarget.parentElement.querySelector("button.primary").click();
    else return;
    event.preventDefault();
  };
  return {
    body: [
      h("div", { class: "editor", onkeydown: keys, oninput: () => { clearTimeout(timer); timer = setTimeout(show, 250); } }, fields.map(([, form]) => form.element)),
      change,
      noted ? h("div", { class: "field" }, h("label", { for: notes.id }, "A note for the agent (optional)"), notes) : null,
      always ? [h("div", { class: "check" }, rule, h("label", { for: rule.id }, "From now on run such calls of this conversation without asking")), place] : null,
    ],
    buttons: [
      action(["Approve as edited", kbd("⌘↵")], approve, { class: "primary" }),
      h("button", { type: "button", onclick: back }, "Back", kbd("esc")),
    ],
  };
}

// Long texts of a call line by line, as a person edits them.
function asText(value) {
  const inner = value.arguments ?? value.plan ?? value;
  if (Array.isArray(inner)) return inner.join("\n");
  const values = Object.values(inner);
  return values.length === 1 && typeof values[0] === "string" ? values[0] : Object.entries(inner).map(([name, one]) => `${name}: ${typeof one === "string" ? one : JSON.stringify(one)}`).join("\n");
}

const ruleText = (rule) => `${rule.action} ${rule.permission} ${rule.pattern ?? "*"}`;

// What is known of a request: the call, its difference, what it runs, and the facts. Nothing that nobody knows.
function known(request) {
  const details = request.details ?? {};
  const spent = details.so_far;
  const rest = Object.fromEntries(Object.entries(details).filter(([name]) => !KNOWN.has(name)));
  const given = details.arguments ?? {};
  const only = Object.values(given).length === 1 && typeof Object.values(given)[0] === "string";
  const called = only ? Object.values(given)[0] : json(given);
  const rule = details.rule ? h("span", { class: "faint cut" }, "rule ", h("code", {}, ruleText(details.rule))) : null;
  const call = details.tool && details.arguments ? code([icon(kindIcon(request)), h("code", { class: "grow" }, details.tool), details.diff ? null : rule], bounded(called, MOST), { id: request.id }) : null;
  return [
    details.diff ? [difference([details.diff], { head: h("header", {}, icon("edit"), h("code", { class: "grow" }, details.tool), rule, h("span", { class: "num", "data-sums": "" })) }), h("details", { class: "fold" }, h("summary", {}, icon("right"), "Arguments"), call)] : call,
    (details.files ?? []).map((file) => code([icon("file"), h("span", { class: "grow" }, "runs ", h("code", {}, file.path))], bounded(file.text ?? `${file.size} bytes, not text`, MOST))),
    details.more_files ? h("p", { class: "soft" }, `It names ${count(details.more_files.count, "more file")}.`) : null,
    Array.isArray(details.plan) ? h("ol", { class: "plan" }, details.plan.map((step) => h("li", {}, step))) : null,
    details.options?.length ? h("ul", { class: "options" }, details.options.map((one) => h("li", {}, one))) : null,
    Object.keys(rest).length ? code([icon("more"), h("span", { class: "grow" }, "more about it")], bounded(json(rest), MOST)) : null,
    h("ul", { class: "facts-list" },
      details.note ? h("li", {}, icon("file"), h("span", {}, details.note)) : null,
      details.hosts?.length ? h("li", {}, icon("web"), h("span", {}, "It reaches ", h("b", {}, details.hosts.join(", ")))) : null,
      details.network === false ? h("li", {}, icon("web"), h("span", {}, "Its command has no network")) : null,
      details.diff ? h("li", {}, icon("undo"), h("span", {}, "What the file holds now is kept")) : null,
      EFFECTS[details.effect] ? h("li", {}, icon("again"), h("span", {}, EFFECTS[details.effect])) : null,
      spent ? h("li", {}, icon("money"), h("span", { class: "so-far" }, `${cost(spent.cost_usd)}, ${count(spent.tokens, "token")}, ${count(spent.steps, "step")} so far`)) : null,
      h("li", {}, icon("clock"), h("span", {}, `If nobody answers, ${EXPIRY[request.on_expiry] ?? "not known"}`)),
      isApproval(request) ? h("li", {}, icon("shield"), h("span", {}, "If you deny, it is told why and continues")) : null,
    ),
  ];
}

// The question with what the agent said before it.
export const said = (text) => (text ? h("div", { class: "bubble" }, markdown(text)) : null);
