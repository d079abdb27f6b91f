// Texts that the API makes ready: Markdown as HTML that is safe, differences as numbered rows with the changed words.
// What is asked for at the same time goes in one request, and what was ready once is kept.

import { post } from "./api.js";
import { fill, h } from "./dom.js";
import { bounded, plain } from "./format.js";

const MOST_KEPT = 400;
const MOST_AT_ONCE = 20;
const MOST = 20_000; // characters of a text: the API renders no more
const MOST_COMPARED = 100_000;
const FOLDED = 30; // rows of a difference, before "Show all"

// Asks for many at once: `ask(inputs)` answers the results in order.
function batched(ask) {
  const kept = new Map();
  const queue = [];
  let asking = null;

  async function work() {
    await null; // everything that is drawn in one go
    while (queue.length) {
      const now = queue.splice(0, MOST_AT_ONCE);
      try {
        const found = await ask(now.map((one) => one.input));
        now.forEach((one, at) => one.ready(found[at]));
      } catch {
        now.forEach((one) => one.ready(null)); // the plain text stays
      }
    }
    asking = null;
  }

  return {
    get(key, input) {
      if (!kept.has(key)) {
        const promise = new Promise((ready) => queue.push({ input, ready }));
        kept.set(key, { promise, value: undefined });
        promise.then((value) => (value === null ? kept.delete(key) : (kept.get(key) ?? {}).value = value));
        if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
        asking ??= work();
      }
      return kept.get(key);
    },
    idle: () => asking ?? Promise.resolve(),
  };
}

const rendered = batched(async (texts) => (await post("/texts/markdown", { texts })).html);
const compared = batched(async (asked) => {
  const body = { pairs: [], diffs: [] };
  const places = asked.map((one) => (one.length === 2 ? ["pairs", body.pairs.push(one) - 1] : ["diffs", body.diffs.push(one[0]) - 1]));
  const found = await post("/texts/differences", body);
  return places.map(([name, at]) => found[name][at]);
});

export const textsReady = async () => {
  await rendered.idle();
  await compared.idle();
};

// Markdown of an agent. Until it is ready, and if it cannot be, the text as it is.
export function markdown(text) {
  const source = String(text ?? "");
  const box = h("div", { class: "markdown", own: true, stamp: source });
  drawMarkdown(box, source);
  return box;
}

// `raw`: what has no HTML yet is shown as it is.
export async function drawMarkdown(box, source, raw = true) {
  if (!source.trim()) return void box.replaceChildren();
  const asked = source.slice(0, MOST);
  const rest = source.length - asked.length;
  const known = rendered.get(asked, asked);
  const put = (html) => {
    const page = new DOMParser().parseFromString(html, "text/html"); // it was cleaned by the API; scripts of it would not run
    const walker = document.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) walker.currentNode.data = plain(walker.currentNode.data);
    box.replaceChildren(...page.body.childNodes);
    if (rest > 0) box.append(h("p", { class: "faint" }, `… ${rest.toLocaleString()} more characters`));
  };
  if (known.value) return put(known.value);
  if (raw && !box.childNodes.length) box.append(h("p", { class: "raw" }, bounded(source, 2000)));
  const html = await known.promise;
  if (html !== null) put(html);
}

// The difference of two texts, or a unified diff as it is. `head` is above it.
export function difference(texts, { head = null, empty = "They are the same." } = {}) {
  const box = h("div", { class: "code", own: true, stamp: texts.join("\u0000") });
  const place = h("div", { class: "diff" });
  box.append(...(head ? [head] : []), place);
  const known = compared.get(texts.join("\u0000"), texts.map((one) => one.slice(0, MOST_COMPARED)));
  const put = (rows) => {
    if (rows === null) return fill(place, h("p", { class: "faint" }, "The difference could not be read."));
    drawRows(place, rows, empty);
    head?.querySelector("[data-sums]")?.replaceChildren(...sums(rows));
  };
  if (known.value) put(known.value);
  else known.promise.then(put);
  return box;
}

export function drawRows(place, rows, empty = "They are the same.", most = FOLDED) {
  const shown = rows.slice(0, most);
  fill(
    place,
    rows.length ? null : h("p", { class: "faint" }, empty),
    shown.map((row) => h("span", { class: `line ${row.kind}` }, h("i", {}, row.before ?? ""), h("i", {}, row.after ?? ""), h("span", {}, row.parts.map((part, at) => (at % 2 ? (part ? h("mark", {}, part) : null) : part)), "\n"))),
    rows.length > most ? h("button", { type: "button", class: "quiet", onclick: () => drawRows(place, rows, empty, Infinity) }, `Show all ${rows.length} lines`) : null,
  );
}

export function sums(rows) {
  const count = (kind) => rows.filter((row) => row.kind === kind).length;
  const [added, removed] = [count("added"), count("removed")];
  return [added ? h("b", { class: "good-c" }, `+${added} `) : "", removed ? h("b", { class: "bad-c" }, `−${removed}`) : ""];
}
