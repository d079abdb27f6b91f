// Inbox: everything that waits for a person, the nearest deadline first; answered by mouse, by form or by j k a d e.

import { get, post } from "./api.js";
import { action, empty, fill, h, link } from "./dom.js";
import { clock, duration, short } from "./format.js";
import { insist, listen, soon } from "./live.js";
import { denyDialog, editDialog } from "./request_dialogs.js";
import { details } from "./request_details.js";
import { schemaForm } from "./schema_form.js";

const PAGE = 50;
const MOST_LOOKS = 20; // at a time
const APPROVALS = new Set(["tool_approval", "plan_approval"]);

export function inbox(main) {
  const list = h("ol", { class: "requests", "aria-label": "Open requests" });
  const nothing = empty("Nothing waits for you.");
  const done = h("ul", { class: "plain rows" });
  const said = h("p", { role: "status", class: "said" });
  const further = h("p", { class: "more", hidden: true }, action("Show further requests", nextPage));
  const open = new Map(); // id -> { request, card }
  const gone = new Set(); // a request that was settled never opens again, whatever an answer that was late says
  const answering = new Set();
  const asking = new Map(); // session -> the task that asks
  let cursor = null;
  let reading = null;
  let chosen; // undefined: not yet, null: somebody else has settled it
  let chosenAt = 0;
  let moved = Promise.resolve();

  async function load() {
    take(await get("/input-requests", { status: "open", order: "deadline", limit: PAGE }));
    await decided();
  }

  // Pages are read as one scrolls or moves to their end: people look at the nearest deadlines.
  function nextPage() {
    reading ??= (cursor ? get("/input-requests", { status: "open", order: "deadline", limit: PAGE, cursor }).then(take) : Promise.resolve()).finally(() => {
      reading = null;
    });
    return reading;
  }

  function take(page) {
    cursor = page.next_cursor;
    page.items.forEach(put);
    draw();
    introduce().catch(() => {}); // the requests can be answered without it
  }

  // Which agent asks, and in which task: of many requests at once, by one list.
  async function introduce() {
    const unknown = [...new Set([...open.values()].map((one) => one.request.session_id))].filter((id) => !asking.has(id));
    const found = unknown.length > 3
      ? (await get("/tasks", { status: "input_required", limit: 200 })).items
      : await Promise.all(unknown.map((id) => get(`/tasks/${id}`)));
    for (const one of found) asking.set(one.task_id, one);
    for (const { request, card } of open.values()) {
      const task = asking.get(request.session_id);
      if (!task) continue;
      fill(card.querySelector(".kind"), `${request.kind.replaceAll("_", " ")} · ${task.agent}`);
      fill(card.querySelector(".whose"), short(task.title, 60) || "the task");
    }
  }

  // What is open in a conversation after something happened in it.
  async function look(conversation) {
    const found = [];
    let next = null;
    do {
      const page = await get("/input-requests", { status: "open", conversation_id: conversation, limit: 200, cursor: next });
      found.push(...page.items.filter((one) => one.kind !== "external_event"));
      next = page.next_cursor;
    } while (next);
    const still = new Set(found.map((one) => one.id));
    for (const [id, { request }] of open) {
      if (request.conversation_id !== conversation || still.has(id) || answering.has(id)) continue;
      if (id === chosen) {
        chosen = null; // and not the next one: a key that is being pressed was meant for this one
        fill(said, `Settled elsewhere: ${request.question}`);
      }
      drop(id);
    }
    found.forEach(put);
  }

  function drop(id) {
    if (open.get(id)?.card.contains(document.activeElement)) list.focus(); // not on the same button of another request
    open.delete(id);
    gone.add(id);
  }

  async function decided() {
    const page = await get("/input-requests", { status: "answered", order: "answered", limit: 20 });
    if (!page.items.length) return fill(done, h("li", {}, empty("Nothing was decided yet.")));
    fill(
      done,
      ...page.items.map((one) =>
        h("li", { class: "row" }, h("span", { class: "grow" }, link(`#/tasks/${one.session_id}`, one.question || one.kind.replaceAll("_", " "))), h("small", {}, `${verdict(one)} by ${one.answered_by ?? "nobody"}, ${clock(one.answered_at)}`)),
      ),
    );
  }

  // A card stays as it is while its request is open: nobody loses a form, or a focus, to what others do.
  function put(request) {
    if (gone.has(request.id)) return;
    const known = open.get(request.id);
    if (!known) return open.set(request.id, { request, card: item(request) });
    known.request = request;
    known.card.querySelector("[data-deadline]").dataset.deadline = request.deadline;
  }

  function draw() {
    const cards = inOrder().map((one) => one.card);
    const wanted = new Set(cards);
    for (const card of [...list.children]) if (!wanted.has(card)) card.remove();
    cards.forEach((card, at) => list.children[at] === card || list.insertBefore(card, list.children[at] ?? null));
    nothing.hidden = Boolean(open.size || cursor);
    further.hidden = !cursor;
    if (open.has(chosen)) chosenAt = cards.indexOf(open.get(chosen).card);
    else if (chosen !== null) choose(inOrder()[Math.min(chosenAt, open.size - 1)]?.request.id, { reveal: Boolean(chosen) });
    atEnd.unobserve(further); // observing it again reports whether the end is still visible
    if (cursor) atEnd.observe(further);
  }

  const inOrder = () =>
    [...open.values()].sort(({ request: a }, { request: b }) => new Date(a.deadline) - new Date(b.deadline) || (a.id < b.id ? -1 : 1));

  function item(request) {
    const approval = APPROVALS.has(request.kind);
    const form = approval ? null : schemaForm(request.answer_schema ?? { type: "string" }, request.default_answer ?? undefined);
    return h(
      "li",
      { class: "request", "data-id": request.id, onclick: () => choose(request.id) },
      h(
        "div",
        { class: "row" },
        h("span", { class: "kind" }, request.kind.replaceAll("_", " ")),
        h("strong", { class: "grow question" }, request.question),
        h("span", { class: "countdown", "data-deadline": request.deadline }, left(request.deadline)),
      ),
      h("blockquote", { class: "before", hidden: true }),
      details(request),
      form?.element,
      h(
        "div",
        { class: "row" },
        approval
          ? [
              action("Approve", () => answer(request, { approved: true }), { class: "primary", "data-do": "a" }),
              action("Deny", () => denyDialog(request, answer), { class: "danger", "data-do": "d" }),
              action("Edit", () => editDialog(request, answer), { "data-do": "e" }),
            ]
          : action("Answer", () => answer(request, form.value()), { class: "primary" }),
        h("a", { class: "whose", href: `#/tasks/${request.session_id}` }, "the task"),
        link(`#/conversations/${request.conversation_id}`, "conversation"),
      ),
    );
  }

  // What the agent said before it asked, read for the request that is looked at: many must not cost a request each.
  async function readBefore({ request, card }) {
    const place = card.querySelector(".before");
    if (place.dataset.read) return;
    place.dataset.read = "yes";
    const trace = await get(`/tasks/${request.session_id}/trace`, { chars: 1500 }).catch(() => null);
    const text = trace?.steps.flatMap((step) => step.models.map((call) => call.text)).filter(Boolean).at(-1);
    if (!text) return;
    fill(place, text);
    place.hidden = false;
  }

  async function answer(request, input) {
    answering.add(request.id);
    try {
      await post(`/tasks/${request.session_id}/input`, { response_to: request.id, input });
      fill(said, `Answered: ${request.question}`);
    } catch (error) {
      if (error.status !== 409) throw error;
      const found = (await get(`/tasks/${request.session_id}/input-requests`)).items.find((one) => one.id === request.id);
      fill(said, found?.answered_by ? `${found.answered_by} was first: ${verdict(found)} at ${clock(found.answered_at)}.` : error.message);
    } finally {
      answering.delete(request.id);
    }
    drop(request.id);
    draw();
    changed.add(request.conversation_id); // it may ask for more
    refresh();
  }

  function choose(id, { reveal = false } = {}) {
    open.get(chosen)?.card.removeAttribute("aria-current");
    chosen = id;
    const now = open.get(id);
    if (!now) return;
    chosenAt = inOrder().indexOf(now);
    now.card.setAttribute("aria-current", "true");
    if (reveal) now.card.scrollIntoView({ block: "nearest" });
    readBefore(now);
  }

  // One after the other: a key that is pressed while a page is read counts, too.
  function move(by) {
    moved = moved.then(async () => {
      const at = open.has(chosen) ? inOrder().indexOf(open.get(chosen)) + by : chosenAt - (by < 0 ? 1 : 0);
      if (at >= open.size) await nextPage().catch(() => {});
      const wanted = inOrder()[at]?.request.id;
      if (wanted) choose(wanted, { reveal: true });
    });
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.repeat) return; // a key that is held down decides about one request, not about those after it
    else if ("ade".includes(event.key)) list.querySelector(`[data-id="${chosen}"] [data-do="${event.key}"]`)?.click();
    else return;
    event.preventDefault();
  }

  const changed = new Set();
  const refresh = soon(async () => {
    let found = [...changed];
    changed.clear();
    try {
      // notices are missing, or there are many: the first page again, and of the others only what is shown
      const missing = found.includes("*");
      if (missing || found.length > MOST_LOOKS) {
        await load();
        const shown = new Set([...open.values()].map((one) => one.request.conversation_id));
        found = missing ? [...shown] : found.filter((one) => shown.has(one));
      }
      for (const conversation of found) await look(conversation);
      draw();
      introduce().catch(() => {});
      await decided();
    } catch (error) {
      found.forEach((one) => changed.add(one)); // the server is unavailable for a moment: the timer tries again
      throw error;
    }
  });
  const stop = listen((notice) => {
    const asked = /^(input_|lost)/.test(notice.type); // anything else matters where somebody is asked already
    if (!asked && ![...open.values()].some((one) => one.request.conversation_id === notice.conversation_id)) return;
    changed.add(notice.type === "lost" ? "*" : notice.conversation_id);
    refresh();
  });
  const clockwork = setInterval(() => {
    for (const { request, card } of open.values()) {
      fill(card.querySelector("[data-deadline]"), left(request.deadline));
      if (new Date(request.deadline) < Date.now()) changed.add(request.conversation_id); // it has expired, or has more time
    }
    if (changed.size) refresh();
  }, 1000);
  const atEnd = new IntersectionObserver(([seen]) => seen.isIntersecting && nextPage().catch(() => {}));
  document.addEventListener("keydown", keys);
  list.tabIndex = -1;
  nothing.hidden = true;
  fill(
    main,
    h("h1", {}, "Inbox"),
    h("p", { class: "hint" }, "Keys: j and k move, a approves, d denies, e edits."),
    said,
    list,
    nothing,
    further,
    h("h2", {}, "Decided lately"),
    done,
  );
  const first = insist(() => load().then(() => fill(said)), (error) => fill(said, error.message));
  return () => {
    stop();
    first();
    clearInterval(clockwork);
    atEnd.disconnect();
    document.removeEventListener("keydown", keys);
  };
}
function left(deadline) {
  const rest = new Date(deadline) - Date.now();
  return rest > 0 ? `${duration(rest)} left` : "expired";
}

function verdict(request) {
  if (request.answer && typeof request.answer === "object" && "approved" in request.answer) {
    return request.answer.approved ? "approved" : "denied";
  }
  return "answered";
}
