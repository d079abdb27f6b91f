// A task in two panes: left what happened, by its plan and over time; right the chosen step, what waits for a person and,
// once it has ended, its result. The address names the step.

import { address, get, getText, post } from "./api.js";
import { action, append, ask, confirmed, dialog, fill, h, link } from "./dom.js";
import { amount, bounded, bytes, clock, cost, count, duration, json, short, tokens, took } from "./format.js";
import { icon } from "./icons.js";
import { decisions } from "./decision.js";
import { ends, every, keepCurrent, soon } from "./live.js";
import { bones, broken, crumbs, empty, meter, pill, shownFiles, square, toast } from "./parts.js";
import { stepView } from "./step_view.js";
import { compareDialog, raiseDialog, rerunDialog } from "./task_dialogs.js";
import { difference, drawRows, markdown, textsReady } from "./texts.js";
import { everySession, timeline, titleOf } from "./timeline.js";

const CHARS = 240; // of each text in the outline
const WHOLE = 100_000; // of each text in the chosen step, and in a file that is shared
const MOST_ROWS = 200;
const MOST_CHANGED = 8; // files beside the step
const MOST_FILES = 50; // of the changes in a repository

export function task(main, { session, parameters: [id, child, number] }) {
  const place = Object.fromEntries(["head", "asks", "result", "changes", "step", "files", "tab"].map((name) => [name, h("div", { class: name })]));
  const tabs = h("div", { class: "tabs" });
  const problem = h("p", { class: "problem notice", role: "alert" });
  const lanes = timeline({ pick: (row, byHand) => pick(row, byHand), narrow: () => innerWidth < 640 });
  const panes = h("div", { class: "panes" });
  const known = { record: null, trace: null, budget: null, requests: [], result: null, files: null, effects: null, audit: null, chain: null, detail: null };
  const asks = decisions(() => { fill(place.asks, asks.elements()); return load(); });
  let chosen = number ? `${child ?? id}:${number}` : null;
  let followed = !number;
  let tab = "timeline";
  let patch = null; // the address of the one that is drawn

  async function load() {
    const traced = get(`/tasks/${id}/trace`, { chars: CHARS }).catch((error) => (error.status === 410 ? null : Promise.reject(error)));
    traced.catch(() => {}); // if the record cannot be read either, that says why
    known.record = await get(`/tasks/${id}`);
    head();
    const { record } = known;
    const ended = Boolean(record.ended_at);
    const [trace, budget, own, open, result] = await Promise.all([
      traced,
      get(`/tasks/${id}/budget`),
      get(`/tasks/${id}/input-requests`),
      ended ? { items: [] } : get("/input-requests", { status: "open", conversation_id: record.conversation_id, limit: 200 }),
      ended && !known.result ? get(`/tasks/${id}/result`).catch(() => null) : known.result,
    ]);
    const sessions = new Set(trace ? everySession(trace).map((one) => one.session_id) : [id]);
    const waiting = [...own.items.filter((one) => one.status === "open"), ...open.items.filter((one) => one.session_id !== id && sessions.has(one.session_id))];
    Object.assign(known, { trace, budget, requests: own.items, result });
    head();
    asksView(waiting.filter((one) => one.kind !== "external_event"));
    resultView();
    if (trace) {
      lanes.set(trace, record.plan);
      const steps = lanes.steps();
      const asking = steps.find((one) => one.asks);
      const own = steps.filter((one) => one.session === trace);
      const last = ended ? own.find((one) => one.bars.some(([kind]) => kind === "bad")) ?? own.findLast((one) => one.step.tools.length) : null; // what came out is above it
      if (followed || !chosen) pick((asking ?? last ?? own.at(-1))?.id ?? null, false);
      else lanes.choose(chosen, !known.detail);
      await showStep();
    } else fill(place.step, empty("cancelled", "Its content was removed", "The content of this task was removed when it had been kept long enough."));
    tabsView();
    beside();
  }

  // What the other tabs show, apart: the step must not wait for it.
  const beside = soon(async () => {
    const tried = known.trace && everySession(known.trace).some((one) => /^attempt \d$/.test(one.name ?? ""));
    const [attempts, files, effects, audit, chain] = await Promise.all([
      tried ? get(`/tasks/${id}/attempts`) : null,
      get(`/tasks/${id}/workspace`).catch((error) => ({ items: [], error })),
      get(`/tasks/${id}/effects`),
      get(`/tasks/${id}/audit`, { limit: 50 }),
      get(`/tasks/${id}/audit/verify`),
    ]);
    Object.assign(known, { attempts, files: files.items.filter((one) => one.kind !== "folder"), unread: files.error, effects, audit, chain });
    tabsView();
    changedSoFar();
  }, 400);

  function head() {
    const { record, trace } = known;
    const ended = Boolean(record.ended_at);
    const waited = trace ? trace.marks.filter((one) => one.type === "input_required").reduce((sum, one) => sum + (new Date(one.until ?? record.ended_at ?? Date.now()) - new Date(one.at)), 0) : 0;
    const lines = new Map((known.budget?.budgets ?? []).map((one) => [one.budget, one]));
    const use = (name, label, value, more) => {
      const line = lines.get(name);
      return h("div", { "data-budget": name }, h("dt", {}, label), h("dd", {}, value, h("span", { class: "soft" }, line ? `of ${quantity(name, line.limit)}` : more), line ? meter(line.used, line.limit, label) : null));
    };
    const fact = (name, ...value) => h("div", { class: "desk" }, h("dt", {}, name), h("dd", {}, value));
    const cached = tokens(record.usage) ? Math.round((100 * record.usage.cache_read_tokens) / tokens(record.usage)) : 0;
    if (place.head.isConnected) crumbs(link("#/", "Tasks"), h("a", { class: "cut", href: `#/conversations/${record.conversation_id}` }, "Conversation"), short(record.title, 60) || id); // else another view is shown by now
    fill(
      place.head,
      h("div", { class: "line" },
        h("h1", { class: "cut", title: record.title }, record.title || id),
        pill(record.status),
        record.reason && record.reason !== "goal_reached" ? h("span", { class: "soft cut" }, record.reason.replaceAll("_", " ")) : null,
        h("span", { class: "grow" }),
        ended ? action([icon("again"), "Rerun…"], () => rerun(1)) : action([icon("chats"), "Message…"], message),
        action([icon("compare"), "Compare…"], () => compareDialog(id, record.agent)),
        ended ? action([icon("undo"), "Replay on today's code"], replay, { class: "desk" }) : action("Cancel…", () => confirmed("Cancel this task?", "It ends and keeps what it has.", "Cancel it", () => post(`/tasks/${id}/cancel`, { scope: "tree" })), { class: "danger" }),
        h("details", { class: "menu", key: "menu" },
          h("summary", { "aria-label": "More", title: "More" }, icon("more")),
          h("div", { class: "float" },
            action([icon("save"), "Share as one file"], share),
            action([icon("money"), "Raise the budget…"], () => raiseDialog(id, known.budget, load), { disabled: ended, "data-raise": "" }),
            record.rerun_of ? h("a", { href: `#/compare/${record.rerun_of.session_id}/${id}` }, icon("compare"), "Compare with the original") : null,
            h("a", { href: `#/conversations/${record.conversation_id}` }, icon("chats"), "Conversation"),
            session.temporal_ui ? h("a", { href: `${session.temporal_ui}/session%2F${id}`, target: "_blank", rel: "noopener" }, icon("web"), "Temporal Web UI") : null,
          ),
        ),
      ),
      record.error ? h("p", { class: "notice" }, icon("failed"), record.error.message) : null,
      h("dl", { class: "facts" },
        fact("Agent", `${record.agent} `, h("span", { class: "soft" }, `v${record.agent_version}`)),
        fact("Model", record.models[0]),
        fact(ended ? "Took" : "Running for", duration(took(record)), waited > 1000 ? h("span", { class: "soft" }, `${duration(waited)} waiting`) : null),
        use("cost_usd", "Cost", cost(record.usage.cost_usd)),
        use("steps", "Steps", String(lines.get("steps")?.used ?? trace?.steps.length ?? 0)),
        use("tokens", "Tokens", amount(tokens(record.usage)), cached ? `${cached} % cached` : ""),
        use("ttl", "Time", duration(lines.get("ttl")?.used ?? took(record))),
      ),
    );
  }

  function tabsView() {
    const { trace, result, files, effects, chain } = known;
    const changed = files?.filter((one) => one.change).length ?? 0;
    const all = [
      ["timeline", "Timeline"],
      result ? ["result", "Result"] : null,
      known.attempts ? ["attempts", "Attempts", known.attempts.items.length] : null,
      ["files", "Files", changed || files?.length],
      ["effects", "Effects", effects?.items.length],
      ["events", "Events", trace?.marks.length],
      ["audit", ["Audit", chain ? icon("shield", chain.intact ? "good-c" : "bad-c") : null]],
    ].filter(Boolean);
    fill(
      tabs,
      h("div", { class: "tablist", role: "tablist", "aria-label": "Parts of the task" }, all.map(([name, label, number]) => h("button", { type: "button", role: "tab", key: name, class: "tab", id: `tab-${name}`, "aria-selected": String(tab === name), onclick: () => { tab = name; tabsView(); } }, label, number ? h("small", {}, number) : null))),
      h("span", { class: "grow" }),
      tab === "timeline" ? lanes.tools : null,
    );
    lanes.element.hidden = tab !== "timeline";
    place.tab.hidden = tab === "timeline";
    const view = { result: outcome, attempts: attemptsView, files: filesView, effects: effectsView, events: eventsView, audit: auditView }[tab];
    fill(place.tab, view ? view() : null);
  }

  // What waits for a person, wherever it was asked.
  function asksView(open) {
    if (asks.set(open)) panes.classList.add("asked"); // the pane comes over the timeline, where there is no room for both
    fill(place.asks, asks.elements());
  }

  function pick(row, byHand) {
    if (byHand) {
      followed = row === lanes.steps().at(-1)?.id && !known.record.ended_at;
      panes.classList.add("opened");
    }
    if (row === chosen && !byHand) return lanes.choose(row);
    chosen = row;
    lanes.choose(row, true);
    if (!row) return;
    const [owner, step] = row.split(":");
    if (byHand) {
      history.replaceState(null, "", `#/tasks/${id}${owner === id ? "" : `/${owner}`}/${step}`);
      showStep().catch(() => {});
    }
  }

  let asked = 0;

  async function showStep() {
    const row = lanes.steps().find((one) => one.id === chosen);
    if (!row) return stepPane(null, null);
    const mine = ++asked;
    const stamp = JSON.stringify([row.step, row.session.session_id]);
    if (known.detail?.id !== row.id) stepPane(row, row.step); // at once, with what is there
    else if (known.detail.stamp === stamp) return stepPane(row, known.detail.step);
    const found = await get(`/tasks/${row.session.session_id}/trace`, { chars: WHOLE, step: row.step.step });
    if (mine !== asked) return;
    known.detail = { id: row.id, stamp, step: found.steps.find((one) => one.step === row.step.step) ?? row.step };
    stepPane(row, known.detail.step);
  }

  function stepPane(row, step) {
    if (!row) return fill(place.step, empty("later", "No step yet", known.record?.ended_at ? "It ended before its first step." : "A worker takes it soon."));
    const own = row.session.session_id === id;
    fill(
      place.step,
      h("header", { class: "line" },
        square("back", "Back to the timeline", () => panes.classList.remove("opened", "asked"), { class: "quiet square narrow" }),
        h("span", { class: "chip" }, `Step ${row.step.step}`, step.speaker ? ` (${step.speaker})` : "", own ? "" : ` of ${row.session.name || row.session.agent}`),
        h("h2", { class: "cut grow" }, row.title),
        own && known.record.ended_at ? action([icon("again"), "Rerun from here…"], () => rerun(row.step.step), { "data-rerun": "" }) : null,
        !known.record.ended_at && !followed ? h("button", { type: "button", onclick: () => { followed = true; load(); } }, "Follow") : null,
        square("up", "Previous step", () => lanes.move(-1)),
        square("down", "Next step", () => lanes.move(1)),
      ),
      h("div", { class: "step-body", key: `body ${row.id}` }, stepView(step, { requests: known.requests, marks: row.session.marks })),
    );
  }

  // The end of it: what came out, whether it is good, and its files.
  function resultView() {
    const { result } = known;
    if (!result) return fill(place.result);
    drawChanges(result.artifacts.findLast((one) => one.name === "changes.patch")); // of all repositories
    const met = result.acceptance?.filter((one) => one.passed).length;
    fill(
      place.result,
      h("header", { class: "line" },
        h("h2", {}, "Result"),
        result.acceptance ? h("span", { class: `pill ${met === result.acceptance.length ? "good" : "bad"}` }, icon(met === result.acceptance.length ? "tick" : "cross"), `${met} of ${result.acceptance.length} criteria`) : null,
        h("span", { class: "grow" }),
        h("a", { class: "button quiet", href: address(`/tasks/${id}/result`), download: `result-${id}.json`, title: "The whole result as JSON" }, icon("save"), "JSON"),
      ),
      h("div", { class: "say output", tabindex: "0", role: "region", "aria-label": "Result" }, outputView(result.output)),
      result.artifacts.length ? h("ul", { class: "chips" }, result.artifacts.map((one) => h("li", {}, icon("file"), artifact(one), one.size ? h("small", { class: "faint" }, ` ${bytes(one.size)}`) : null))) : null,
      shownFiles(result.artifacts.filter((one) => /^image\/(png|jpeg|webp|gif)$/.test(one.media_type) && /^\/files\//.test(one.url))),
    );
  }

  // What it changed in a repository, file by file.
  async function drawChanges(one) {
    if (!one || one.url === patch) return;
    patch = one.url;
    const text = await getText(one.url).catch(() => "");
    const files = text.split(/^(?=diff --git )/m).filter((part) => part.startsWith("diff --git "));
    const rest = files.length - MOST_FILES;
    fill(place.changes, h("h2", {}, "Changes"), files.slice(0, MOST_FILES).map(changedFile), rest > 0 ? h("p", { class: "faint" }, `… ${rest} more files`) : null);
  }

  function changedFile(part) {
    const name = / b\/(.*)/.exec(part)?.[1] ?? "";
    const head = h("header", {}, icon("edit"), h("code", { class: "grow" }, name), h("span", { class: "num", "data-sums": "" }));
    const lines = part.search(/^@@/m);
    return lines < 0 ? h("div", { class: "code" }, head, h("p", { class: "faint" }, "It is no text, or only its mode has changed.")) : difference([part.slice(lines)], { head });
  }

  function outputView(output) {
    return output === null ? h("p", { class: "faint" }, "It ended without one.") : typeof output === "string" ? markdown(output) : h("pre", {}, bounded(json(output)));
  }

  function outcome() {
    const { result } = known;
    if (!result) return null;
    return h(
      "div",
      { class: "text" },
      outputView(result.output),
      result.acceptance ? [h("h2", { class: "label" }, "Criteria"), h("ul", { class: "lines" }, result.acceptance.map((one) => h("li", {}, icon(one.passed ? "tick" : "cross", one.passed ? "good-c" : "bad-c"), h("span", {}, `${one.criterion}: ${one.why}`))))] : null,
      h("h2", { class: "label" }, "Based on"),
      h("ul", { class: "lines" }, result.based_on.sources.slice(0, MOST_ROWS).map((one) => h("li", {}, h("small", { class: "faint" }, clock(one.at)), h("span", {}, `${one.kind} ${one.name}`)))),
    );
  }

  // The sessions that tried it, each compared with the one that was chosen.
  function attemptsView() {
    const { items, chosen_by: by, why } = known.attempts;
    const best = items.find((one) => one.chosen) ?? items[0];
    return [
      by ? h("p", { class: "notice good" }, icon("tick"), `Attempt ${best.number} was chosen by ${by}: ${short(why, 300)}`) : null,
      items.map((one) =>
        h("p", { class: "file", key: one.task_id },
          icon(one.chosen ? "tick" : "file", one.chosen ? "good-c" : ""),
          h("a", { class: "to", href: `#/tasks/${one.task_id}` }, `Attempt ${one.number}`),
          pill(one.status),
          one.passed === null ? null : h("span", { class: "chip" }, `${one.verdicts.filter((verdict) => verdict.passed).length} of ${one.verdicts.length} criteria`),
          h("span", { class: "grow soft cut" }, one.changes ?? "no change"),
          h("small", { class: "faint" }, cost(one.usage.cost_usd)),
          one === best ? null : link(`#/compare/${best.task_id}/${one.task_id}`, h("span", { class: "button quiet" }, icon("compare"), "Compare")),
        ),
      ),
    ];
  }

  function filesView() {
    const { files } = known;
    if (!files) return bones(4);
    if (known.unread) return broken(known.unread, beside);
    if (!files.length) return empty("file", "No files", "The workspace of this task is empty.");
    const shown = [...files].sort((a, b) => Number(!a.change) - Number(!b.change));
    return [
      shown.slice(0, MOST_ROWS).map(fileView),
      shown.length > MOST_ROWS ? h("p", { class: "faint" }, `and ${count(shown.length - MOST_ROWS, "more file", "more files")}: errand pull ${id}`) : null,
    ];
  }

  // A file of the workspace; what has changed in it since the beginning is read when it is opened.
  function fileView(one) {
    const url = address(`/tasks/${id}/workspace/file?path=${encodeURIComponent(one.path)}`);
    const name = one.kind === "file" && one.change !== "removed"
      ? h("a", { class: "to cut", href: url, download: one.path.split("/").pop(), rel: "noopener" }, one.path)
      : h("span", { class: "cut" }, one.path, one.target ? ` → ${one.target}` : "");
    const size = h("small", { class: "faint" }, bytes(one.size));
    const line = [icon("file"), name, h("span", { class: "grow" }), size, one.change ? h("span", { class: `chip ${one.change}` }, one.change) : null];
    if (!one.change || one.kind !== "file") return h("p", { class: "file", key: one.path }, line);
    const ontoggle = (event) => event.currentTarget.open && changeOf(one.path, event.currentTarget);
    return h("details", { class: "file", key: one.path, ontoggle }, h("summary", {}, line), h("div", { class: "diff", own: true }));
  }

  // Beside the step of a task that runs; later its result and its files say it.
  function changedSoFar() {
    const changed = known.record.ended_at ? [] : known.files.filter((one) => one.change);
    const more = changed.length - MOST_CHANGED;
    fill(
      place.files,
      changed.length ? h("h2", { class: "label" }, "Changed in the workspace so far", h("span", {}, changed.length)) : null,
      changed.slice(0, MOST_CHANGED).map(fileView),
      more > 0 ? h("p", { class: "faint" }, `${count(more, "more file")} under Files`) : null,
    );
  }

  async function changeOf(path, box) {
    const found = await get(`/tasks/${id}/workspace/difference`, { path }).catch((error) => ({ rows: [], note: error.message }));
    drawRows(box.querySelector(".diff"), found.rows, found.note ?? "Only its mode has changed.");
  }

  function effectsView() {
    const { effects } = known;
    if (!effects) return bones(4);
    if (!effects.items.length) return empty("bolt", "No effects", "It changed nothing.");
    return [
      h("ul", { class: "lines" }, effects.items.slice(-MOST_ROWS).map((one) => h("li", {}, h("span", { class: "chip" }, one.kind), h("code", {}, one.tool), h("span", { class: "grow" }, short(one.description, 200)), h("small", { class: one.state === "ok" ? "faint" : "bad-c" }, one.state)))),
      effects.items.length > MOST_ROWS ? h("p", { class: "faint" }, `The latest ${MOST_ROWS} of ${effects.items.length}.`) : null,
    ];
  }

  // What happened beside the calls: plans, retries, waits, messages, budgets.
  function eventsView() {
    const marks = known.trace?.marks ?? [];
    const shown = marks.slice(-MOST_ROWS);
    return [
      shown.length ? h("ul", { class: "lines" }, shown.map((one) => h("li", {}, h("small", { class: "faint num" }, clock(one.at)), h("span", {}, `${one.type.replaceAll("_", " ")}: ${short(one.text, 200)}`)))) : empty("bolt", "No events", "None beside the calls."),
      marks.length > shown.length ? h("p", { class: "faint" }, `The latest ${shown.length} of ${marks.length}.`) : null,
    ];
  }

  function auditView() {
    const { audit, chain } = known;
    if (!chain) return bones(4);
    return [
      h("p", { class: `notice ${chain.intact ? "good" : ""}`, "data-chain": "" }, icon("shield"), chain.intact ? `The chain is intact: ${count(chain.entries, "entry", "entries")} of the conversation.` : `The chain is broken at entry ${chain.broken.seq}: ${chain.broken.problem}`),
      h("ul", { class: "lines" }, audit.items.map((one) => h("li", {}, h("small", { class: "faint num" }, clock(one.at)), h("span", {}, `${one.action} by ${one.actor}${one.subject ? `: ${short(one.subject, 120)}` : ""}`)))),
    ];
  }

  // This task as a file that needs nothing else: every step with its whole texts, no scripts, nothing to press.
  async function share() {
    const whole = await get(`/tasks/${id}/trace`, { chars: WHOLE });
    const { record } = known;
    const page = h("main", { class: "shared" },
      h("h1", {}, record.title || id),
      h("p", { class: "soft" }, `${record.status.replaceAll("_", " ")} · ${record.agent} v${record.agent_version} · ${record.models[0]} · ${cost(record.usage.cost_usd)} · ${count(tokens(record.usage), "token")} · ${duration(took(record))} · ${clock(record.created_at)}`),
      record.error ? h("p", { class: "notice" }, record.error.message) : null,
      record.plan ? h("ol", { class: "plan" }, record.plan.steps.map((one) => h("li", {}, `${one.title} (${one.status.replaceAll("_", " ")})`))) : null,
      known.result ? [h("h2", {}, "Result"), outputView(known.result.output)] : null,
      everySession(whole).map((one) => [h("h2", {}, one === whole ? "Steps" : `Subagent ${one.name || one.agent}`), one.steps.map((step) => [h("h3", {}, `Step ${step.step}: ${titleOf(one, step)}`), stepView(step, { whole: true, requests: known.requests })])]),
      h("h2", {}, "Events"),
      h("ul", { class: "lines" }, whole.marks.map((one) => h("li", {}, h("small", {}, clock(one.at)), h("span", {}, `${one.type.replaceAll("_", " ")}: ${one.text}`)))),
    );
    await textsReady();
    for (const picture of page.querySelectorAll("img")) picture.src = await inline(picture.src);
    for (const control of page.querySelectorAll("button, select, svg")) control.remove();
    for (const anchor of page.querySelectorAll("a")) anchor.replaceWith(...anchor.childNodes);
    const style = await (await fetch(address("/console/console.css"))).text();
    const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
    const head = [h("meta", { charset: "utf-8" }), h("meta", { "http-equiv": "Content-Security-Policy", content: policy }), h("title", {}, record.title || id), h("style", {})];
    head[3].textContent = style;
    const text = `<!doctype html>\n<html lang="en" class="file"><head>${head.map((one) => one.outerHTML).join("")}</head><body>${page.outerHTML}</body></html>`;
    const file = URL.createObjectURL(new Blob([text], { type: "text/html" }));
    h("a", { href: file, download: `trace-${id}.html` }).click();
    URL.revokeObjectURL(file);
  }

  async function replay() {
    const found = await post(`/tasks/${id}/replay`);
    const different = found.verdicts.filter((one) => !one.same);
    dialog("Replay", (close) => [
      h("p", {}, different.length ? `Today's code decides otherwise at event ${different[0].event_id} (${different[0].event_type}): ${short(different[0].reason, 300)}` : `The same decisions: ${count(found.verdicts.length, "history", "histories")} replayed.`),
      h("footer", {}, h("button", { type: "button", onclick: close }, "Close")),
    ]);
  }

  function message() {
    ask("Message to the running task", "It reads this before its next step", "Send", async (text) => {
      if (!text.trim()) throw new Error("Write a message first.");
      await post(`/conversations/${known.record.conversation_id}/messages`, { input: text, if_busy: "steer" }, { once: true });
      toast("Sent.");
    });
  }

  const rerun = (from) => rerunDialog(id, known.record, from);

  const stop = keepCurrent(`/tasks/${id}/events`, load, { main, problem, matters: (event) => !event.type.endsWith("_delta"), ms: 250 });
  const clockwork = every(1000, () => {
    asks.tick();
    if (known.record && !known.record.ended_at) head();
  });
  const divider = h("div", { class: "divider", role: "separator", "aria-orientation": "vertical", "aria-label": "Width of the panes", tabindex: "0", "aria-valuenow": "57", onpointerdown: drag, onkeydown: (event) => widen({ ArrowLeft: -3, ArrowRight: 3 }[event.key] ?? 0) });
  let width = Number(localStorage.getItem("divider") ?? 57);
  widen(0);

  function widen(by) {
    width = Math.max(35, Math.min(75, width + by));
    panes.style.setProperty("--left", `${width}fr`);
    panes.style.setProperty("--right", `${100 - width}fr`);
    divider.setAttribute("aria-valuenow", String(Math.round(width)));
    localStorage.setItem("divider", String(width));
  }

  function drag(event) {
    divider.setPointerCapture(event.pointerId);
    divider.onpointermove = (move) => { const box = panes.getBoundingClientRect(); widen((100 * (move.clientX - box.left)) / box.width - width); };
    divider.onpointerup = () => { divider.onpointermove = null; };
  }

  append(panes, [h("section", { class: "pane", "aria-label": "What happened" }, tabs, lanes.element, place.tab), divider, h("aside", { class: "pane side", "aria-label": "The chosen step" }, place.asks, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Result and step" }, place.result, place.changes, place.step, place.files))]);
  fill(main, problem, place.head, panes);
  tabsView();
  const waits = setTimeout(() => known.record || fill(place.step, bones(5)), 300);

  function key(event) {
    if (asks.press(event)) return true;
    if (event.key === "[" || event.key === "]") widen(event.key === "[" ? -5 : 5);
    else if (event.key === "Escape") panes.classList.remove("opened", "asked");
    else return known.trace ? lanes.key(event) : false;
    return true;
  }

  return { key, leave: ends(stop, clockwork, lanes.close, () => clearTimeout(waits)) };
}

// A file of ours as an address that has it in itself.
async function inline(url) {
  const reader = new FileReader();
  reader.readAsDataURL(await (await fetch(url)).blob());
  return new Promise((ready) => { reader.onload = () => ready(reader.result); });
}

// A file of ours, or an address on the web; anything else that a result may name is only shown.
function artifact(one) {
  const href = /^https?:\/\//i.test(one.url) ? one.url : /^\/[^/\\]/.test(one.url) ? address(one.url) : null;
  const name = one.name ?? one.url;
  return href ? h("a", { class: "to", href, download: one.name, rel: "noopener noreferrer" }, name) : h("span", {}, name);
}

function quantity(name, number) {
  if (name === "ttl") return duration(number).replace(/ 0 min$| 0 s$/, "");
  return name === "cost_usd" ? cost(number) : amount(number);
}
