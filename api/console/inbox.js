// Inbox: what waits for people at the left, the nearest deadline first; at the right the one that is chosen, and its
// decision. Answered by mouse, by form, or by j k a d e.

import { get } from "./api.js";
import { action, fill, h } from "./dom.js";
import { ago, cost, left, short } from "./format.js";
import { icon } from "./icons.js";
import { decision, isApproval, kindIcon, said, verdict } from "./decision.js";
import { ends, every, insist, listen, single, soon } from "./live.js";
import { bones, crumbs, empty, kbd, square } from "./parts.js";
import { titleOf } from "./timeline.js";

const PAGE = 50;
const MOST_LOOKS = 20; // at a time
const MOST_BEFORE = 4; // steps

export function inbox(main, { parameters: [wanted] }) {
  const mine = h("input", { type: "checkbox", class: "box", id: "mine", onchange: whose });
  const list = h("ol", { class: "requests", "aria-label": "Open requests" });
  const done = h("ul", { class: "decided" });
  const note = h("p", { role: "status", class: "said" });
  const place = h("section", { class: "pane detail-pane", "aria-label": "The chosen request" });
  const way = h("section", { live: true, class: "way", "aria-label": "How it got here" });
  const further = h("p", { class: "more" }, action("Show further requests", () => nextPage()));
  const open = new Map(); // id -> request
  const gone = new Set(); // a request that was settled never opens again, whatever an answer that was late says
  const asking = new Map(); // session -> its task
  const before = new Map(); // session -> what it said and did before it asked
  let own = null; // true: only of this person's tasks
  let cursor = null;
  let read = false;
  let chosen = wanted; // undefined: not yet, null: somebody else has settled it
  let chosenAt = 0;
  let shown = null; // the decision of the chosen one
  let moved = Promise.resolve();

  async function load() {
    await page(null);
    await decided();
  }

  const failed = (error) => fill(note, error.message);

  function whose() {
    own = mine.checked || null;
    open.clear();
    load().catch(failed);
  }

  async function page(from) {
    const asked = own;
    const found = await get("/input-requests", { status: "open", order: "deadline", own, limit: PAGE, cursor: from });
    if (asked === own) take(found); // else it is too late
  }

  // Pages are read as one scrolls or moves to their end: people look at the nearest deadlines.
  const nextPage = single(async () => cursor && page(cursor));

  function take(found) {
    cursor = found.next_cursor;
    read = true;
    found.items.forEach(put);
    draw();
    introduce().catch(() => {}); // the requests can be answered without it
  }

  // Which agent asks, and in which task: of many requests at once, by one list.
  async function introduce() {
    const unknown = [...new Set([...open.values()].map((one) => one.session_id))].filter((id) => !asking.has(id));
    if (!unknown.length) return;
    const found = unknown.length > 3
      ? (await get("/tasks", { status: "input_required", limit: 200 })).items
      : await Promise.all(unknown.map((id) => get(`/tasks/${id}`)));
    for (const one of found) asking.set(one.task_id, one);
    draw();
  }

  // What is open in a conversation after something happened in it.
  async function look(conversation) {
    const found = [];
    const asked = own;
    let next = null;
    do {
      const page = await get("/input-requests", { status: "open", own, conversation_id: conversation, limit: 200, cursor: next });
      found.push(...page.items.filter((one) => one.kind !== "external_event"));
      next = page.next_cursor;
    } while (next);
    if (asked !== own) return;
    const still = new Set(found.map((one) => one.id));
    for (const [id, request] of open) {
      if (request.conversation_id !== conversation || still.has(id)) continue;
      if (id === chosen) {
        chosen = null; // and not the next one: a key that is being pressed was meant for this one
        fill(note, `Settled elsewhere: ${request.question}`);
      }
      drop(id);
    }
    found.forEach(put);
  }

  function drop(id) {
    if (shown?.request.id === id && place.contains(document.activeElement)) list.focus(); // not on the same button of another request
    open.delete(id);
    gone.add(id);
  }

  async function decided() {
    const page = await get("/input-requests", { status: "answered", order: "answered", own, limit: 12 });
    fill(
      done,
      page.items.map((one) =>
        h("li", { key: one.id }, icon({ approved: "tick", denied: "cross", edited: "edit" }[verdict(one)] ?? "chats"), h("a", { class: "cut grow", href: `#/tasks/${one.session_id}` }, one.question || one.kind.replaceAll("_", " ")), h("small", { class: "faint" }, `${verdict(one)} by ${one.answered_by ?? "nobody"}, ${ago(one.answered_at)}`)),
      ),
      page.items.length ? null : h("li", { class: "faint" }, "Nothing was decided yet."),
    );
  }

  function put(request) {
    if (!gone.has(request.id)) open.set(request.id, request);
  }

  const inOrder = () => [...open.values()].sort((a, b) => new Date(a.deadline) - new Date(b.deadline) || (a.id < b.id ? -1 : 1));

  function draw() {
    const all = inOrder();
    if (open.has(chosen)) chosenAt = all.findIndex((one) => one.id === chosen);
    else if (chosen !== null && read) choose(all[Math.min(chosenAt, all.length - 1)]?.id);
    fill(list, all.map(row));
    fill(count, String(open.size) + (cursor ? "+" : ""));
    further.hidden = !cursor;
    bare.hidden = Boolean(open.size || cursor || !read);
    detail();
    atEnd.unobserve(further); // observing it again reports whether the end is still visible
    if (cursor) atEnd.observe(further);
  }

  function row(request) {
    const task = asking.get(request.session_id);
    return h(
      "li",
      { key: request.id, class: "request", "data-id": request.id, "aria-current": request.id === chosen ? "true" : null, onclick: () => choose(request.id, { by: "hand" }) },
      h("button", { type: "button", class: "plain" }, icon(kindIcon(request), "wait-c"), h("strong", { class: "question cut grow" }, request.question), h("span", { class: "countdown num", "data-deadline": request.deadline }, left(request.deadline).replace(" left", ""))),
      h("span", { class: "whose cut soft" }, short(task?.title, 80) || "a task"),
      h("span", { class: "kind faint cut" }, [task ? `${task.agent} v${task.agent_version}` : null, request.kind.replaceAll("_", " "), request.details?.tool].filter(Boolean).join(" · ")),
    );
  }

  function detail() {
    const request = open.get(chosen);
    if (!request) {
      shown = null;
      return fill(place, read ? empty("inbox", chosen === null ? "It was settled elsewhere" : "Nothing is chosen", open.size ? "Choose a request at the left, or press J." : "Requests of agents appear here as they ask.") : bones(3));
    }
    if (shown?.request.id !== request.id) {
      shown = decision(request, { answered: settled, heading: false, after: way });
      readBefore(request);
    }
    const task = asking.get(request.session_id);
    const { text, steps = [] } = before.get(request.session_id) ?? {};
    way.hidden = !steps.length;
    fill(way, h("header", {}, h("h2", { class: "label grow" }, "How it got here"), h("a", { class: "to", href: `#/tasks/${request.session_id}` }, "Open the task"), kbd("O")), h("ol", {}, steps.map((one) => h("li", { key: one.step }, h("a", { class: "cut grow", href: `#/tasks/${request.session_id}/${one.step}` }, h("span", { class: "faint" }, `Step ${one.step} `), one.title), icon(one.failed ? "failed" : "tick", one.failed ? "bad-c" : "good-c")))));
    fill(
      place,
      h("div", { class: "intro", key: `intro ${request.id}`, "data-shown": request.id },
        h("div", { class: "line" },
          square("back", "Back to the list", () => main.firstChild.classList.remove("opened"), { class: "quiet square phone" }),
          h("span", { class: "pill wait" }, icon("waits"), isApproval(request) ? "Approval" : "Question"),
          h("a", { class: "to cut", href: `#/tasks/${request.session_id}` }, short(task?.title, 60) || "the task"),
          h("span", { class: "soft" }, task ? `${task.agent} v${task.agent_version} · ${cost(task.usage.cost_usd)} so far` : ""),
          h("a", { class: "to", href: `#/conversations/${request.conversation_id}` }, "Conversation"),
          h("span", { class: "grow" }),
          h("span", { class: "num soft", "data-deadline": request.deadline }, left(request.deadline))),
        h("h1", {}, request.question),
        text ? h("div", { class: "before" }, said(text)) : null,
      ),
      shown.element,
    );
  }

  // What the agent said before it asked, read for the request that is looked at: many must not cost a request each.
  async function readBefore(request) {
    if (before.has(request.session_id)) return;
    before.set(request.session_id, {});
    const trace = await get(`/tasks/${request.session_id}/trace`, { chars: 1500 }).catch(() => null);
    const steps = trace?.steps.slice(-1 - MOST_BEFORE, -1) ?? [];
    before.set(request.session_id, {
      text: trace?.steps.flatMap((step) => step.models.map((call) => call.text)).filter(Boolean).at(-1),
      steps: steps.map((one) => ({ step: one.step, title: titleOf(trace, one), failed: one.tools.some((call) => call.state === "failed") })),
    });
    draw();
  }

  async function settled(request, text) {
    fill(note, text);
    drop(request.id);
    draw();
    changed.add(request.conversation_id); // it may ask for more
    refresh();
  }

  function choose(id, { by = "" } = {}) {
    chosen = id;
    const at = inOrder().findIndex((one) => one.id === id);
    if (at < 0) return;
    chosenAt = at;
    if (by) {
      draw();
      main.firstChild.classList.toggle("opened", by === "hand");
      list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
    }
  }

  // One after the other: a key that is pressed while a page is read counts, too.
  function move(by) {
    moved = moved.then(async () => {
      const at = open.has(chosen) ? inOrder().findIndex((one) => one.id === chosen) + by : chosenAt - (by < 0 ? 1 : 0);
      if (at >= open.size) await nextPage().catch(() => {});
      const next = inOrder()[at]?.id;
      if (next) choose(next, { by: "key" });
    });
  }

  function key(event) {
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.repeat) return false; // a key that is held down decides about one request, not about those after it
    else if (/^[adeA]$/.test(event.key)) shown?.press(event.key);
    else if (event.key === "o" && shown) location.hash = `#/tasks/${shown.request.session_id}`;
    else return false;
    return true;
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
        const there = new Set([...open.values()].map((one) => one.conversation_id));
        found = missing ? [...there] : found.filter((one) => there.has(one));
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
    if (!asked && ![...open.values()].some((one) => one.conversation_id === notice.conversation_id)) return;
    changed.add(notice.type === "lost" ? "*" : notice.conversation_id);
    refresh();
  });
  const clockwork = every(1000, () => {
    for (const one of main.querySelectorAll("[data-deadline]")) {
      const text = left(one.dataset.deadline);
      fill(one, one.classList.contains("countdown") ? text.replace(" left", "") : text);
    }
    for (const request of open.values()) if (new Date(request.deadline) < Date.now()) changed.add(request.conversation_id); // it has expired, or has more time
    if (changed.size) refresh();
  });
  const count = h("span", { class: "count" });
  const bare = empty("inbox", "Nothing waits for you", "Requests of agents appear here as they ask.");
  bare.hidden = true;
  const atEnd = new IntersectionObserver(([seen]) => seen.isIntersecting && nextPage().catch(() => {}));
  list.tabIndex = -1;
  crumbs("Inbox");
  fill(
    main,
    h("div", { class: `two ${wanted ? "opened" : ""}` },
      h("section", { class: "pane", "aria-label": "Requests" },
        h("header", { class: "sec" }, h("h1", { class: "grow" }, "Waiting for people"), count, h("span", { class: "check" }, mine, h("label", { for: "mine" }, "Mine"))),
        note,
        h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Requests and decisions" }, list, bare, further, h("h2", { class: "sub" }, "Decided lately"), done),
        h("footer", { class: "mini desk" }, h("span", {}, kbd("J"), kbd("K"), " move"), h("span", {}, kbd("A"), " approve"), h("span", {}, kbd("D"), " deny"), h("span", {}, kbd("E"), " edit")),
      ),
      place,
    ),
  );
  fill(place, bones(3));
  const first = insist(() => load().then(() => fill(note)), failed);
  return { key, leave: ends(stop, first, clockwork, () => atEnd.disconnect()) };
}
