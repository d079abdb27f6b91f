// The small parts of every page: states, meters, plans, code, what is empty, what was done.

import { address } from "./api.js";
import { action, append, fill, h } from "./dom.js";
import { bounded, plain } from "./format.js";
import { icon } from "./icons.js";

const LINES = 12; // of a code block, before "Show all"

// status -> shape, colour, word
const STATES = {
  submitted: ["later", "idle", "Not started"],
  working: ["runs", "live", "Running"],
  input_required: ["waits", "wait", "Waiting for you"],
  completed: ["done", "good", "Done"],
  failed: ["failed", "bad", "Failed"],
  cancelled: ["cancelled", "idle", "Cancelled"],
};

export function pill(status, word) {
  const [shape, kind, known] = STATES[status] ?? ["later", "idle", status.replaceAll("_", " ")];
  return h("span", { class: `pill ${kind} status`, "data-status": status }, icon(shape), word ?? known);
}

// In rows only the shape; the word is for readers.
export function shape(status) {
  const [name, kind, word] = STATES[status] ?? ["later", "idle", status];
  return h("span", { class: `shape ${kind} status`, "data-status": status, title: word }, icon(name), h("span", { class: "sr" }, word));
}

export function meter(used, limit, label) {
  const share = limit ? Math.min(1, used / limit) : 0;
  const kind = share >= 1 ? "over" : share >= 0.8 ? "high" : "";
  return h("span", { class: `meter ${kind}`, role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": Math.round(share * 100) }, h("i", { css: { width: `${share * 100}%` } }));
}

export function planStrip(plan, status) {
  if (!plan?.steps.length) return h("span", { class: "steps" });
  const done = plan.steps.filter((one) => ["done", "skipped"].includes(one.status)).length;
  const total = plan.steps.length;
  const now = { input_required: "w", failed: "f", cancelled: "f" }[status] ?? "c";
  const kinds = { done: "d", skipped: "s", in_progress: now, pending: "" };
  return h(
    "span",
    { class: "steps" },
    h("span", { "aria-hidden": "true" }, plan.steps.slice(0, 12).map((one) => h("i", { class: kinds[one.status] }))),
    h("small", {}, now === "f" && done < total ? `stopped at ${Math.min(total, done + 1)}` : `${Math.min(total, done + (done < total && status !== "completed" ? 1 : 0))} of ${total}`),
  );
}

// One of a few: [value, label] each.
export function choice(label, options, value, pick) {
  return h("div", { class: "seg", role: "group", "aria-label": label }, options.map(([one, name, more]) => h("button", { type: "button", key: one, "data-value": one, "aria-pressed": String(one === value), onclick: () => pick(one) }, name, more === undefined ? null : h("small", {}, more))));
}

export function square(name, label, run, more = {}) {
  return h("button", { type: "button", class: "quiet square", "aria-label": label, title: label, onclick: run, ...more }, icon(name));
}

// Code with a head: the first lines, the rest on demand.
export function code(head, text, { kind = "", id = "", lines = LINES } = {}) {
  const whole = bounded(String(text ?? ""));
  const box = h("div", { class: `code ${kind}`, own: true, stamp: `${id}\u0000${head.map((one) => one?.textContent ?? one).join(" ")}\u0000${whole}` });
  if (head.length) append(box, [h("header", {}, head, square("copy", "Copy", () => navigator.clipboard?.writeText(whole).then(() => toast("Copied."))))]);
  if (whole) appendText(box, whole, lines);
  return box;
}

export function appendText(box, whole, most = LINES) {
  const lines = whole.split("\n");
  const long = lines.length > most + 3 || whole.length > 250 * most;
  const pre = h("pre", { tabindex: "0" }, long ? `${lines.slice(0, most).join("\n").slice(0, 250 * most)}\n…` : whole);
  box.append(pre);
  if (!long) return;
  const more = h("button", { type: "button", class: "more", onclick: () => { pre.textContent = plain(whole); more.remove(); } }, lines.length > most + 3 ? `Show all ${lines.length.toLocaleString()} lines` : "Show all");
  box.append(more);
}

// Files that a model was shown or has made: a picture as it is, another one by its name.
export const shownFiles = (all) => (all ?? []).map(({ file_id, url = `/files/${file_id}`, name, media_type }) => h("a", { class: "to", href: address(url), download: name }, /^image\/(png|jpeg|webp|gif)$/.test(media_type) ? h("img", { class: "picture", src: address(url), alt: name, loading: "lazy" }) : [icon("file"), name]));

export function empty(name, title, text, act = null) {
  return h("div", { class: "empty" }, icon(name), h("b", {}, title), text ? h("p", {}, text) : null, act);
}

// Of a part that could not be read: the rest of the page is current.
export function broken(error, again) {
  return h("div", { class: "empty", role: "alert" }, icon("failed", "bad-c"), h("b", {}, error.status ? `${error.status}` : "Not read"), h("p", {}, error.message), action([icon("again"), "Again"], again));
}

export const bones = (number = 6) => h("div", { class: "bones", "aria-hidden": "true" }, Array.from({ length: number }, () => h("div", {}, h("i"), h("i"), h("i"))));

export const kbd = (...keys) => keys.map((one) => h("kbd", { "aria-hidden": "true" }, one));

// The outcome of what this person has done, for some seconds; `onward` leads to where it happened.
export function toast(text, onward = null) {
  let place = document.querySelector(".toasts");
  if (!place) document.body.append((place = h("div", { class: "toasts", role: "status" })));
  const box = h("div", { class: "toast" }, h("span", {}, text), onward);
  fill(place, [...place.children].slice(-2), box);
  setTimeout(() => box.remove(), 6000);
}

export function crumbs(...parts) {
  fill(document.querySelector(".crumbs"), parts.map((one, at) => [at ? icon("right") : null, at === parts.length - 1 ? h("b", { class: "cut" }, one) : one]));
}
