// Inbox: everything that waits for a person, the nearest deadline first; answered by mouse, by form or by j k a d e.

import { get, post } from "./api.js";
import { action, dialog, empty, fill, h, link } from "./dom.js";
import { bounded, clock, cost, count, duration, json } from "./format.js";
import { listen, soon } from "./live.js";
import { diffView } from "./diff_view.js";
import { schemaForm } from "./schema_form.js";

const MOST = 20_000; // characters of each part of a request
const APPROVALS = new Set(["tool_approval", "plan_approval"]);

export function inbox(main) {
  const list = h("ol", { class: "requests", "aria-label": "Open requests" });
  const done = h("ul", { class: "plain" });
  const said = h("p", { role: "status", class: "said" });
  let open = [];
  let chosen = null;
  const before = new Map(); // request -> what the agent said before it asked

  async function load() {
    const [waiting, answered] = await Promise.all([
      get("/input-requests", { status: "open", limit: 200 }),
      get("/input-requests", { status: "answered", limit: 20 }),
    ]);
    open = waiting.items.sort((a, b) => (a.deadline < b.deadline ? -1 : 1));
    if (!open.some((one) => one.id === chosen)) chosen = open[0]?.id ?? null;
    draw();
    if (chosen) readBefore(chosen);
    fill(
      done,
      ...answered.items.map((one) =>
        h("li", {}, link(`#/tasks/${one.session_id}`, one.question), h("small", {}, ` ${verdict(one)} by ${one.answered_by ?? "nobody"}, ${clock(one.answered_at)}`)),
      ),
    );
  }

  // Read for the request that is looked at, once: a list of many must not cost a request each.
  async function readBefore(id) {
    const request = open.find((one) => one.id === id);
    if (!request || before.has(id)) return;
    before.set(id, "");
    const trace = await get(`/tasks/${request.session_id}/trace`, { chars: 1500 }).catch(() => null);
    const said = trace?.steps.flatMap((step) => step.models.map((call) => call.text)).filter(Boolean).at(-1);
    if (!said) return;
    before.set(id, said);
    draw();
  }

  function draw() {
    const typing = list.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (typing) return; // never take a form from under somebody's hands; the next change draws it
    const held = document.activeElement?.closest?.("[data-id]")?.dataset.id;
    const button = document.activeElement?.dataset?.do;
    if (button) document.activeElement.blur(); // else it could reach the same button of another request
    fill(list, ...open.map((one) => item(one)));
    if (held && button) list.querySelector(`[data-id="${held}"] [data-do="${button}"]`)?.focus();
    if (!open.length) fill(list, h("li", {}, empty("Nothing waits for you.")));
  }

  function item(request) {
    const approval = APPROVALS.has(request.kind);
    const form = approval ? null : schemaForm(request.answer_schema ?? { type: "string" }, request.default_answer ?? undefined);
    return h(
      "li",
      { class: "request", "data-id": request.id, "aria-current": request.id === chosen ? "true" : null, onclick: () => choose(request.id) },
      h(
        "div",
        { class: "row" },
        h("span", { class: "kind" }, request.kind.replaceAll("_", " ")),
        h("strong", { class: "grow question" }, request.question),
        h("span", { class: "countdown", "data-deadline": request.deadline }, left(request.deadline)),
      ),
      before.get(request.id) ? h("blockquote", { class: "before" }, before.get(request.id)) : null,
      details(request),
      form?.element,
      h(
        "div",
        { class: "row" },
        approval
          ? [
              action("Approve", () => answer(request, { approved: true }), { class: "primary", "data-do": "a" }),
              action("Deny", () => deny(request), { class: "danger", "data-do": "d" }),
              action("Edit", () => edit(request), { "data-do": "e" }),
            ]
          : action("Answer", () => answer(request, form.value()), { class: "primary" }),
        link(`#/tasks/${request.session_id}`, "the task"),
        link(`#/conversations/${request.conversation_id}`, "the conversation"),
      ),
    );
  }

  async function answer(request, input) {
    try {
      await post(`/tasks/${request.session_id}/input`, { response_to: request.id, input });
      fill(said, `Answered: ${request.question}`);
    } catch (error) {
      if (error.status !== 409) throw error;
      const found = (await get(`/tasks/${request.session_id}/input-requests`)).items.find((one) => one.id === request.id);
      fill(said, found?.answered_by ? `${found.answered_by} was first: ${verdict(found)} at ${clock(found.answered_at)}.` : error.message);
    }
    document.activeElement?.blur();
    await load();
  }

  function deny(request) {
    dialog("Deny", (close) => {
      const notes = h("textarea", { rows: 3, id: "notes", autofocus: true });
      return [
        h("div", { class: "field" }, h("label", { for: "notes" }, "Why? The agent reads it (optional)"), notes),
        h(
          "div",
          { class: "row" },
          action("Deny", async () => {
            await answer(request, notes.value ? { approved: false, notes: notes.value } : { approved: false });
            close();
          }, { class: "danger" }),
          h("button", { type: "button", onclick: close }, "Back"),
        ),
      ];
    });
  }

  function edit(request) {
    const properties = request.answer_schema?.properties ?? {};
    const changes = Object.entries(properties).filter(([name]) => name !== "approved" && name !== "notes");
    if (!changes.length) return fill(said, "This cannot be changed, only approved or denied.");
    dialog("Approve with changes", (close) => {
      const fields = changes.map(([name, schema]) => [name, schemaForm(schema, request.details[name], name)]);
      return [
        ...fields.map(([, form]) => form.element),
        h(
          "div",
          { class: "row" },
          action("Approve as changed", async () => {
            await answer(request, { approved: true, ...Object.fromEntries(fields.map(([name, form]) => [name, form.value()])) });
            close();
          }, { class: "primary" }),
          h("button", { type: "button", onclick: close }, "Back"),
        ),
      ];
    });
  }

  function choose(id) {
    chosen = id;
    readBefore(id);
    for (const element of list.children) {
      if (element.dataset.id === id) {
        element.setAttribute("aria-current", "true");
        element.scrollIntoView({ block: "nearest" });
      } else element.removeAttribute("aria-current");
    }
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const at = open.findIndex((one) => one.id === chosen);
    if (event.key === "j" && at < open.length - 1) choose(open[at + 1].id);
    else if (event.key === "k" && at > 0) choose(open[at - 1].id);
    else if ("ade".includes(event.key)) list.querySelector(`[data-id="${chosen}"] [data-do="${event.key}"]`)?.click();
    else return;
    event.preventDefault();
  }

  const refresh = soon(load); // while the server is away, the frame says so
  const stop = listen((notice) => /^(input_|lost|session_)/.test(notice.type) && refresh());
  const clockwork = setInterval(() => {
    for (const one of list.querySelectorAll("[data-deadline]")) fill(one, left(one.dataset.deadline));
  }, 1000);
  document.addEventListener("keydown", keys);
  fill(
    main,
    h("h1", {}, "Inbox"),
    h("p", { class: "hint" }, "Keys: j and k move, a approves, d denies, e edits."),
    said,
    list,
    h("h2", {}, "Decided lately"),
    done,
  );
  load().catch((error) => fill(said, error.message));
  return () => {
    stop();
    clearInterval(clockwork);
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

function rule(found) {
  return `${found.action} ${found.permission} ${found.pattern ?? "*"}`;
}

// What a person needs in order to decide: the call, its diff, the files it runs, the rule that asked, the words before.
export function details(request) {
  const known = request.details ?? {};
  const shown = [];
  const add = (name, content) => content && shown.push(h("div", { class: "detail" }, h("b", {}, name), content));
  add("call", known.tool && h("pre", {}, bounded(`${known.tool} ${json(known.arguments ?? {})}`, MOST)));
  add("changes", known.diff && diffView(known.diff));
  for (const file of known.files ?? []) add(`runs ${file.path}`, h("pre", {}, bounded(file.text ?? `${file.size} bytes, not text`, MOST)));
  add("plan", Array.isArray(known.plan) && h("ol", {}, ...known.plan.map((step) => h("li", {}, step))));
  add("why there is no diff", known.note && h("span", {}, known.note));
  add("options", known.options?.length && h("ul", {}, ...known.options.map((one) => h("li", {}, one))));
  add("the rule that asked", known.rule && h("code", {}, rule(known.rule)));
  const spent = known.so_far;
  add("so far", spent && h("span", {}, `${cost(spent.cost_usd)}, ${count(spent.tokens, "token")}, ${count(spent.steps, "step")}`));
  const used = new Set(["tool", "arguments", "diff", "files", "plan", "note", "options", "rule", "so_far"]);
  const rest = Object.fromEntries(Object.entries(known).filter(([name]) => !used.has(name)));
  if (Object.keys(rest).length) add("more", h("pre", {}, bounded(json(rest), MOST)));
  return h("div", { class: "details" }, ...shown);
}
