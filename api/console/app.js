// The frame of the console: who is signed in, the rail, the bar above, the keys, and the view that the address names.

import { get, remove, signIn } from "./api.js";
import { action, dialog, fill, h } from "./dom.js";
import { short, time } from "./format.js";
import { icon } from "./icons.js";
import * as live from "./live.js";
import { agents } from "./agents.js";
import { compare } from "./compare.js";
import { conversation, conversations } from "./conversation.js";
import { home } from "./home.js";
import { inbox } from "./inbox.js";
import { overview } from "./overview.js";
import { crumbs, kbd, shape } from "./parts.js";
import { startTask } from "./start_task.js";
import { task } from "./task.js";

const ROUTES = [
  [/^#\/?$/, home],
  [/^#\/inbox(?:\/([0-9a-z]{1,60}))?$/, inbox],
  [/^#\/start(?:\/([a-z0-9_-]+))?$/, startTask],
  [/^#\/conversations$/, conversations],
  [/^#\/conversations\/([0-9a-z]{26})$/, conversation],
  [/^#\/tasks\/([0-9a-z]{26})(?:\/([0-9a-z]{26}))?(?:\/(\d{1,9}))?$/, task],
  [/^#\/compare\/([0-9a-z]{26})\/([0-9a-z]{26})$/, compare],
  [/^#\/overview$/, overview],
  [/^#\/agents(?:\/([a-z0-9_-]+))?$/, agents],
];
const PLACES = [["#/", "Tasks", "tasks", "T"], ["#/inbox", "Inbox", "inbox", "I"], ["#/conversations", "Chats", "chats", "C"], ["#/overview", "Overview", "overview", "O"], ["#/agents", "Agents", "agents", "A"]];
const KEYS = [["⌘K", "search"], ["N", "new task"], ["G, then T I C O A", "pages"], ["J K", "next, previous"], ["Enter", "open"], ["← →", "close, open"], ["A D E", "approve, deny, edit"], ["⇧A", "approve, and allow such calls from now on"], ["O", "the task of a request"], ["/", "filter"], ["Z", "fold waiting time"], ["+ − 0", "zoom"], ["[ ]", "width of the panes"], ["⌘Enter", "send"], ["Esc", "back"], ["?", "these keys"]];

const main = h("main", { id: "main", tabindex: "-1" });
const connection = h("span", { class: "connection", role: "status" });
const band = h("div", { class: "band notice", role: "alert", hidden: true });
let view = null;
let session = null;
let current = Date.now(); // when the stream was last connected
let going = false; // G was pressed

function frame(after) {
  const who = session.key_id ? `${session.name} · ${session.tenant}` : `${session.name}, this machine`;
  document.body.replaceChildren(
    h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the content"),
    h("nav", { class: "rail", "aria-label": "Main" },
      h("a", { class: "brand", href: "#/", "aria-label": "Errand", title: "Errand" }, icon("brand")),
      PLACES.map(([hash, name, shape]) => h("a", { href: hash, "data-nav": hash }, icon(shape), name, hash === "#/inbox" ? h("span", { class: "count", "data-waiting": "" }) : null)),
    ),
    h("header", { class: "top" },
      h("div", { class: "crumbs" }),
      h("span", { class: "grow" }),
      h("button", { type: "button", class: "jump", "aria-label": "Search or run a command", onclick: palette }, icon("search"), h("span", { class: "grow" }, "Search or run a command"), kbd("⌘K")),
      h("a", { class: "button primary", href: "#/start" }, icon("plus"), "New task", kbd("N")),
      connection,
      h("details", { class: "menu" }, h("summary", { class: "avatar", "aria-label": "Account" }, session.name.slice(0, 2)), h("div", { class: "float" }, h("span", { class: "who" }, who), session.key_id ? action("Sign out", signOut) : null)),
    ),
    band,
    main,
  );
  live.start(after, (connected, error) => {
    if (connected) current = Date.now();
    fill(connection, connected ? "live" : (error?.message ?? "reconnecting…")); // an error: it is refused, and not tried again
    connection.classList.toggle("lost", !connected);
    band.hidden = connected || Boolean(error);
    fill(band, icon("again"), h("b", {}, "Connection lost."), ` What you see is from ${new Date(current).toLocaleTimeString()}. The page keeps trying.`);
  });
}

function show(moved = false) {
  if (!session) return;
  view?.leave?.();
  view = null;
  const hash = location.hash || "#/";
  const root = hash.replace(/^(#\/\w*).*/, "$1").replace("#/compare", "#/").replace("#/start", "#/").replace(/^#\/tasks$/, "#/");
  for (const item of document.querySelectorAll("[data-nav]")) {
    if (item.dataset.nav === root) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  main.replaceChildren(); // nothing of one view is laid over another
  main.className = root.slice(2) || "tasks";
  for (const [pattern, draw] of ROUTES) {
    const match = pattern.exec(hash);
    if (match) {
      view = draw(main, { session, parameters: match.slice(1) });
      if (moved) main.focus(); // keyboard and screen reader continue in the new view
      return;
    }
  }
  crumbs("No such page");
  fill(main, h("div", { class: "page" }, h("h1", {}, "There is no such page"), h("p", {}, h("a", { class: "to", href: "#/" }, "Back to the tasks"))));
}

// Tasks, conversations, agents and commands by a part of their names.
function palette() {
  if (document.querySelector("dialog[open]")) return;
  const text = h("input", { type: "search", id: "palette", "aria-label": "Search or run a command", placeholder: "Search or run a command", autofocus: true, autocomplete: "off", role: "combobox", "aria-expanded": "true", "aria-controls": "found" });
  const list = h("ul", { id: "found", role: "listbox", "aria-label": "Found" });
  let items = [];
  let at = 0;

  function draw() {
    at = Math.max(0, Math.min(items.length - 1, at));
    fill(list, items.map((one, index) => h("li", { key: one.hash, role: "option", id: `found-${index}`, "aria-selected": String(index === at), onclick: () => go(one) }, one.face, h("span", { class: "cut grow" }, one.name), h("small", { class: "faint" }, one.kind))));
    text.setAttribute("aria-activedescendant", items.length ? `found-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  function go(one) {
    box.close();
    if (one) location.hash = one.hash;
  }

  const commands = [...PLACES.map(([hash, name, shape]) => ({ hash, name, kind: "page", face: icon(shape) })), { hash: "#/start", name: "New task", kind: "command", face: icon("plus") }];
  const find = live.soon(async () => {
    const wanted = text.value.trim();
    const fits = (one) => one.name.toLowerCase().includes(wanted.toLowerCase());
    items = commands.filter(fits);
    draw();
    const [tasks, talks, known, asked] = await Promise.all([get("/tasks", { text: wanted, limit: 8 }), get("/conversations", { q: wanted, order: "updated", limit: 5 }), get("/agents"), get("/input-requests", { status: "open", order: "deadline", limit: 50 })]);
    if (wanted !== text.value.trim()) return;
    items = [
      ...asked.items.filter((one) => one.question.toLowerCase().includes(wanted.toLowerCase())).slice(0, 3).map((one) => ({ hash: `#/inbox/${one.id}`, name: short(one.question, 90), kind: "opens the request", face: icon("waits", "wait-c") })),
      ...tasks.items.map((one) => ({ hash: `#/tasks/${one.task_id}`, name: short(one.title, 90) || one.task_id, kind: `task, ${time(one.created_at)}`, face: shape(one.status) })),
      ...(wanted ? talks.items.map((one) => ({ hash: `#/conversations/${one.conversation_id}`, name: short(one.title, 90) || one.conversation_id, kind: "chat", face: icon("chats") })) : []),
      ...commands.filter(fits),
      ...known.items.filter((one) => one.mode !== "subagent" && fits(one)).slice(0, 5).map((one) => ({ hash: `#/start/${one.name}`, name: `New task with ${one.name}…`, kind: "agent", face: icon("plus") })),
    ];
    draw();
  }, 60);
  text.addEventListener("input", () => { at = 0; find(); });
  text.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") at += 1;
    else if (event.key === "ArrowUp") at -= 1;
    else if (event.key === "Enter") go(items[at]);
    else return;
    event.preventDefault();
    draw();
  });
  const box = dialog("Search", () => [text, list]);
  box.classList.add("palette");
  find();
}

const help = () => dialog("Keys", (close) => [h("dl", { class: "keys" }, KEYS.map(([key, what]) => h("div", {}, h("dt", {}, kbd(key)), h("dd", {}, what)))), h("footer", {}, h("button", { type: "button", onclick: close, autofocus: true }, "Close"))]);

// No single key acts while a field has the focus, or in a dialog; a key that is held down only moves.
window.addEventListener("keydown", (event) => {
  if (!session) return;
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return palette();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && !/^(checkbox|radio)$/.test(event.target.type)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const place = going && PLACES.find(([, , , key]) => key.toLowerCase() === event.key.toLowerCase());
  going = false;
  if (place) location.hash = place[0];
  else if (event.key === "g" && !event.repeat) going = true;
  else if (event.key === "?" && !event.repeat) help();
  else if (view?.key?.(event)) event.preventDefault();
  else if (event.key === "n" && !event.repeat) location.hash = "#/start";
  else return;
  event.preventDefault();
});

// A menu closes by a press elsewhere.
window.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target) || event.target.closest(".float a")) menu.open = false;
});

function signInForm() {
  view?.leave?.();
  view = null;
  session = null;
  live.end();
  const problem = h("p", { class: "problem", role: "alert" });
  const key = h("input", { type: "password", id: "key", autocomplete: "current-password", required: true });
  const form = h(
    "form",
    {
      class: "card form sign-in",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await signIn(key.value.trim());
          await begin();
        } catch (error) {
          fill(problem, error.status === 401 ? "There is no such key, or it is not valid any more." : error.message);
        }
      },
    },
    h("h1", {}, "Errand"),
    h("div", { class: "field" }, h("label", { for: "key" }, "Key"), key),
    h("p", { class: "soft" }, "A key made with ", h("code", {}, "errand keys create"), ", or on this machine what the file ", h("code", {}, "token"), " in its data directory holds."),
    problem,
    h("button", { type: "submit", class: "primary" }, "Sign in"),
  );
  document.body.replaceChildren(h("main", { class: "alone" }, form));
  key.focus();
}

async function signOut() {
  await remove("/console/session");
  signInForm();
}

async function begin() {
  let after;
  try {
    [session, after] = await Promise.all([get("/console/session"), live.position()]);
  } catch (error) {
    if (error.status === 401) return signInForm();
    document.body.replaceChildren(h("main", { class: "alone" }, h("h1", {}, "Errand"), h("p", { role: "alert" }, error.message)));
    setTimeout(begin, 2000);
    return;
  }
  frame(after);
  show();
}

window.addEventListener("hashchange", () => {
  document.querySelectorAll("dialog[open]").forEach((box) => box.close());
  show(true);
});
window.addEventListener("signed-out", () => session && signInForm());
begin();
