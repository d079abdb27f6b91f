// The frame of the console: who is signed in, the navigation, and the view that the address names.

import { get, remove, signIn } from "./api.js";
import { action, fill, h } from "./dom.js";
import * as live from "./live.js";
import { home } from "./home.js";
import { inbox } from "./inbox.js";
import { conversation } from "./conversation.js";
import { task } from "./task.js";
import { compare } from "./compare.js";
import { operations } from "./operations.js";
import { startTask } from "./start_task.js";

const ROUTES = [
  [/^#\/?$/, home],
  [/^#\/inbox$/, inbox],
  [/^#\/start(?:\/([a-z0-9_-]+))?$/, startTask],
  [/^#\/conversations\/([0-9a-z]{26})$/, conversation],
  [/^#\/tasks\/([0-9a-z]{26})$/, task],
  [/^#\/compare\/([0-9a-z]{26})\/([0-9a-z]{26})$/, compare],
  [/^#\/operations$/, operations],
];

const main = h("main", { id: "main", tabindex: "-1" });
const connection = h("span", { class: "connection", role: "status" });
let leave = null;
let session = null;

function frame(after) {
  const item = (hash, label, extra) =>
    h("a", { href: hash, "data-nav": hash }, label, extra);
  fill(
    document.body,
    h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the content"),
    h(
      "header",
      {},
      h("a", { class: "brand", href: "#/" }, "Errand"),
      h(
        "nav",
        { "aria-label": "Main" },
        item("#/", "Tasks"),
        item("#/inbox", "Inbox ", h("span", { class: "badge", "data-waiting": "" })),
        item("#/start", "Start"),
        item("#/operations", "Operations"),
      ),
      connection,
      h("span", { class: "who" }, session.key_id ? `${session.name} · ${session.tenant}` : "this machine"),
      session.key_id && action("Sign out", signOut),
    ),
    main,
  );
  live.start(after, (connected, error) => {
    fill(connection, connected ? "live" : (error?.message ?? "reconnecting…")); // an error: it is refused, and not tried again
    connection.classList.toggle("lost", !connected);
  });
}

function show(moved = false) {
  if (!session) return;
  leave?.();
  leave = null;
  const hash = location.hash || "#/";
  for (const item of document.querySelectorAll("[data-nav]")) {
    if (item.dataset.nav === hash) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  for (const [pattern, view] of ROUTES) {
    const match = pattern.exec(hash);
    if (match) {
      fill(main);
      leave = view(main, { session, parameters: match.slice(1) });
      if (moved) main.focus(); // keyboard and screen reader continue in the new view
      return;
    }
  }
  fill(main, h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "#/" }, "Back to the tasks")));
}

function signInForm() {
  leave?.();
  leave = null;
  session = null;
  live.end();
  const problem = h("p", { class: "problem", role: "alert" });
  const key = h("input", { type: "password", id: "key", autocomplete: "current-password", required: true });
  const form = h(
    "form",
    {
      class: "sign-in",
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
    h("p", { class: "why" }, "A key made with ", h("code", {}, "errand keys create"), ", or on this machine what ", h("code", {}, "errand token"), " prints."),
    problem,
    h("button", { type: "submit", class: "primary" }, "Sign in"),
  );
  fill(document.body, h("main", {}, form));
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
    fill(document.body, h("main", {}, h("h1", {}, "Errand"), h("p", { role: "alert" }, error.message)));
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
