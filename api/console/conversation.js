// Conversations. One reads like a conversation: its turns in the middle, its threads at the left, and at the right the
// mailbox and the subagent that is looked at. Outcomes that became a turn are shown as outcomes.

import { get, post } from "./api.js";
import { action, append, confirmed, fill, h, link } from "./dom.js";
import { ago, amount, brief, clock, cost, count, duration, left, short, time } from "./format.js";
import { icon } from "./icons.js";
import { decisions } from "./decision.js";
import { ends, every, insist, keepCurrent, listen, single, soon } from "./live.js";
import { bones, choice, crumbs, empty, meter, pill, shape, shownFiles, square, toast } from "./parts.js";
import { callView } from "./step_view.js";
import { raiseDialog } from "./task_dialogs.js";
import { drawMarkdown, markdown } from "./texts.js";
import { gist, timeline } from "./timeline.js";

const PAGE = 10; // turns
const MOST_MESSAGES = 200; // of a turn
const MOST_LISTED = 40; // of a list at the left
const MOST_SUBAGENTS = 200;
const FIRED = new Set(["fire", "async_subagent_result"]);
const unfinished = (session) => ["submitted", "working", "input_required"].includes(session.status);

export function conversation(main, { parameters: [id] }) {
  const place = {
    head: h("div", { class: "head" }),
    tree: h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Turns and threads" }),
    spent: h("footer", { class: "spent" }),
    earlier: h("p", { class: "more", hidden: true }, action("Earlier turns", () => earlier())),
    turns: h("div"),
    asks: h("div", { class: "asks" }),
    said: h("div", { class: "chat", role: "log", "aria-label": "What was said", tabindex: "0" }),
    writing: h("div", { class: "turn writing", hidden: true }),
    mailbox: h("section", { class: "mailbox", "aria-label": "Mailbox" }),
    thread: h("section", { class: "thread scroll", "aria-label": "Subagent", tabindex: "0" }),
    problem: h("p", { class: "problem notice", role: "alert" }),
  };
  const text = h("textarea", { id: "message", rows: 2, "aria-label": "Message", placeholder: "Write a message…" });
  const lanes = timeline({ pick: (row) => { const [owner, step] = row.split(":"); location.hash = `#/tasks/${owner}/${step}`; }, narrow: () => false });
  const sending = h("div", { class: "line" });
  const state = { turns: new Map(), cursor: null, mode: "queue", view: "read", thread: null, trace: null, turn: null };
  const blocks = new Map(); // session -> its turn as it is drawn
  const asks = decisions(load);
  let record = null;
  let budget = null;
  let mail = { items: [], pending_count: 0 };
  let pieces = ""; // of the message that is being written
  let drawn = ""; // the part of it that is shown as Markdown
  let framed = 0;
  let view = { end: true }; // of what was said

  async function load() {
    const [found, page, box] = await Promise.all([get(`/conversations/${id}`), newest(), get(`/conversations/${id}/mailbox`, { all: true, limit: 1000 })]);
    record = found;
    mail = box;
    budget ??= await get(`/tasks/${id}/budget`).catch(() => null); // once: what is used of it is in the record
    if (!page.items.some((one) => state.turns.has(one.session_id))) {
      state.turns.clear(); // the first page, or none of those that were shown: turns between them are missing
      state.cursor = page.next_cursor;
    }
    head();
    take(page);
    mailbox();
    composer();
    asksView();
    await Promise.all([threadView(), state.view === "timeline" ? chart() : null]);
  }

  // The newest turns, and as many more as may still change.
  function newest() {
    const open = inOrder().findLastIndex((one) => !one.ended_at);
    return get(`/conversations/${id}/turns`, { full: true, newest: true, limit: Math.min(200, Math.max(PAGE, open + 1)) });
  }

  function take(page) {
    for (const turn of page.items) state.turns.set(turn.session_id, turn);
    turnsView();
    tree();
  }

  const earlier = single(async () => {
    const { cursor } = state;
    if (!cursor) return;
    const page = await get(`/conversations/${id}/turns`, { full: true, newest: true, limit: PAGE, cursor });
    if (cursor !== state.cursor) return; // answered too late
    state.cursor = page.next_cursor;
    take(page);
  });

  const inOrder = () => [...state.turns.values()].sort((a, b) => b.created_at.localeCompare(a.created_at) || b.session_id.localeCompare(a.session_id));
  const branches = () => record.sessions.flatMap(function below(one) { return [one, ...one.children.flatMap(below)]; });
  const subagents = () => branches().filter((one) => one.thread_id !== id);
  const titleOfTurn = (turn) => (FIRED.has(turn.trigger) ? "Outcomes of the mailbox" : short(asked(turn), 80) || turn.trigger.replaceAll("_", " "));

  function head() {
    const running = record.live_sessions.length;
    if (place.head.isConnected) crumbs(link("#/conversations", "Chats"), short(record.title, 60) || id);
    fill(
      place.head,
      h("div", { class: "line" },
        h("h1", { class: "cut", title: record.title }, record.title || id),
        running ? pill("working", `${running} running`) : record.status === "open" ? pill("completed", "Idle") : pill("cancelled", "Terminated"),
        h("span", { class: "soft desk cut" }, `${count(branches().length, "session")} · ${count(subagents().length, "subagent session")} · changed ${ago(record.updated_at)}`),
        h("span", { class: "grow" }),
        choice("View", [["read", "Read"], ["timeline", "Timeline"]], state.view, (value) => { state.view = value; head(); shown(); }),
        action([icon("pause"), "Interrupt"], async () => {
          const stopped = await post(`/conversations/${id}/interrupt`);
          toast(`${count(stopped.interrupted, "session")} asked to stop.`);
        }, { disabled: !running }),
        action("Terminate…", () =>
          confirmed("Terminate this conversation?", "It accepts nothing new, and what is running or waiting is stopped. It can still be read.", "Terminate", () => post(`/conversations/${id}/terminate`).then(load)),  // it may emit no event
        { class: "danger", disabled: record.status !== "open" }),
      ),
    );
    const spent = Object.values(record.usage);
    const sum = spent.some((one) => one.cost_usd === null) ? null : spent.reduce((all, one) => all + one.cost_usd, 0);
    const limit = budget?.tree?.budgets.find((one) => one.budget === "cost_usd")?.limit;
    const active = record.live_sessions[0];
    fill(
      place.spent,
      h("div", { class: "line" }, h("span", { class: "soft grow" }, "Cost of the conversation"), h("b", { class: "num" }, cost(sum))),
      limit ? [meter(sum ?? 0, limit, "Cost of the conversation"), h("div", { class: "line" }, h("span", { class: "soft grow" }, `limit ${cost(limit)}`), active ? action("Raise…", async () => raiseDialog(active, await get(`/tasks/${active}/budget`), () => { budget = null; return load(); }), { class: "small" }) : null)] : null,
    );
  }

  function tree() {
    const turns = inOrder().reverse();
    const names = new Map(record.threads.map((one) => [one.thread_id, one]));
    const others = subagents().sort((a, b) => Number(unfinished(b)) - Number(unfinished(a)) || b.created_at.localeCompare(a.created_at));
    const controls = (one) => [
      one.live && one.kind === "sync_subagent" ? action("Promote", () => post(`/tasks/${one.session_id}/promote`), { class: "small", "data-key": `promote ${one.session_id}` }) : null,
      unfinished(one) ? action(icon("cross"), () => confirmed("Cancel this session?", "It ends and keeps what it has.", "Cancel it", () => post(`/tasks/${one.session_id}/cancel`, { scope: "tree" })), { class: "quiet square", "aria-label": "Cancel", title: "Cancel", "data-key": `cancel ${one.session_id}` }) : null,
    ];
    fill(
      place.tree,
      h("h2", { class: "label" }, "Main thread", h("span", { class: "faint" }, count(turns.length, "turn"), state.cursor ? " and earlier" : "")),
      h("ul", { class: "threads" }, turns.slice(-MOST_LISTED).map((turn) => h("li", { key: turn.session_id, "aria-current": state.view === "timeline" && state.turn === turn.session_id ? "true" : null, "data-turn": turn.session_id }, shape(turn.status), h("button", { type: "button", class: "plain cut", onclick: () => goTo(turn) }, titleOfTurn(turn)), unfinished(turn) ? controls({ ...turn, live: false }) : h("small", { class: "faint num" }, time(turn.created_at))))),
      others.length ? h("h2", { class: "label sub-c" }, "Subagents", h("span", { class: "faint" }, others.length)) : null,
      others.length
        ? h("ul", { class: "threads" }, others.slice(0, MOST_SUBAGENTS).map((one) => {
          const thread = names.get(one.thread_id);
          return h("li", { key: one.session_id, class: thread?.depth > 1 ? "deep" : "", "aria-current": state.thread === one.session_id ? "true" : null, "data-session": one.session_id }, shape(one.status), h("button", { type: "button", class: "plain cut", onclick: () => lookAt(one.session_id) }, h("span", {}, one.name || thread?.name || one.agent, " "), h("span", { class: "faint" }, one.handed_to ? `→ ${one.handed_to}` : one.agent === (one.name || thread?.name) ? "" : one.agent)), controls(one));
        }))
        : null,
    );
  }

  function goTo(turn) {
    state.turn = turn.session_id;
    if (state.view === "timeline") { tree(); chart(); } else place.turns.querySelector(`[data-said="${turn.session_id}"]`)?.scrollIntoView({ block: "start" });
  }

  // Who reads the end of what was said sees what is added; who reads further above stays there, whatever grows above it.
  function remember() {
    const { scrollTop, scrollHeight, clientHeight } = place.said;
    const element = [...place.turns.children].find((one) => one.offsetTop + one.offsetHeight > scrollTop);
    view = { end: scrollHeight - scrollTop - clientHeight < 60, element, top: element ? element.offsetTop - scrollTop : 0 };
  }

  const grows = new ResizeObserver(() => {
    if (view.end) place.said.scrollTop = place.said.scrollHeight;
    else if (view.element?.isConnected) place.said.scrollTop = view.element.offsetTop - view.top;
  });

  // One block for each turn, drawn again only when the turn has changed.
  function turnsView() {
    const turns = inOrder().reverse();
    fill(
      place.turns,
      turns.map((turn) => {
        const fired = mail.items.filter((one) => one.delivered_to === turn.session_id);
        const stamp = JSON.stringify([turn.display_messages, turn.status, turn.error, fired]);
        const known = blocks.get(turn.session_id);
        if (known?.stamp === stamp) return known.element;
        const block = known?.element ?? h("div", { live: true, class: "exchange", "data-said": turn.session_id });
        fill(block, exchange(turn, fired));
        blocks.set(turn.session_id, { stamp, element: block });
        return block;
      }),
    );
    place.earlier.hidden = !state.cursor;
    place.writing.hidden = !pieces;
  }

  // A turn: what was asked or delivered, and what the agent said and did.
  function exchange(turn, fired) {
    const all = turn.display_messages ?? [];
    const shownOnes = all.slice(-MOST_MESSAGES);
    const opened = shownOnes.findIndex((one) => one.type !== "user");
    const asked_ = opened < 0 ? shownOnes : shownOnes.slice(0, opened);
    const replied = opened < 0 ? [] : shownOnes.slice(opened);
    const spans = [];
    for (const one of replied) {
      const tool = ["tool_call", "tool_result"].includes(one.type);
      if (tool && spans.at(-1)?.tools) spans.at(-1).tools.push(one);
      else spans.push(tool ? { tools: [one] } : { one });
    }
    return [
      FIRED.has(turn.trigger)
        ? entry("sub", "inbox", h("b", {}, fired.length ? `Fired: ${count(fired.length, "outcome")} became a turn` : "Outcomes became a turn"), time(turn.created_at), [
          h("ul", { class: "chips" }, fired.map((one) => h("li", {}, icon(one.source_type === "subagent_failed" ? "failed" : "done", one.source_type === "subagent_failed" ? "bad-c" : "good-c"), h("button", { type: "button", class: "plain", onclick: () => lookAt(one.source_session_id) }, one.subagent_name)))),
          asked_.map((one, at) => (at === 0 ? h("details", { class: "fold" }, h("summary", {}, icon("right"), "What they reported"), markdown(one.text)) : markdown(one.text))),
        ])
        : asked_.map((one) => entry("", "you", h("b", {}, one.silent ? "the platform" : turn.trigger === "api" ? "you" : turn.trigger), time(turn.created_at), [markdown(one.text), shownFiles(one.files)])),
      all.length > MOST_MESSAGES ? h("p", { class: "faint" }, `${count(all.length - MOST_MESSAGES, "earlier message")} in `, link(`#/tasks/${turn.session_id}`, "the task")) : null,
      spans.length || turn.error || !unfinished(turn)
        ? entry("agent", (turn.agent[0] ?? "a").toUpperCase(), h("b", {}, turn.agent), null, [
          spans.map((span) => (span.tools ? work(span.tools) : span.one.type === "assistant" ? h("div", { class: "message assistant" }, span.one.author && span.one.author !== turn.agent ? h("b", {}, span.one.author) : null, markdown(span.one.text)) : h("div", { class: `message ${span.one.type}` }, markdown(span.one.text)))),
          turn.error ? h("p", { class: "notice" }, icon("failed"), short(turn.error, 400)) : null,
        ], [h("a", { class: "faint", href: `#/tasks/${turn.session_id}` }, `${time(turn.created_at)}${turn.ended_at ? ` · ${duration(new Date(turn.ended_at) - new Date(turn.created_at))}` : ""}`), turn.status === "completed" ? null : pill(turn.status)])
        : entry("agent", (turn.agent[0] ?? "a").toUpperCase(), h("b", {}, turn.agent), null, null, [pill(turn.status, turn.status === "submitted" ? "Queued" : undefined)]),
    ];
  }

  function entry(kind, face, name, at, body, more = null) {
    return h("div", { class: "turn" }, h("span", { class: `face ${kind}`, "aria-hidden": "true" }, face.length > 1 && face !== "you" ? icon(face) : face === "you" ? "Y" : face), h("div", { class: "who" }, name, at ? h("small", { class: "faint" }, at) : null, more), h("div", { class: "text" }, body));
  }

  // Calls in one box, a line each; a line opens to what went in and came out.
  function work(messages) {
    const calls = [];
    for (const one of messages) {
      if (one.type === "tool_call") calls.push({ call: one });
      else (calls.find((known) => !known.result && known.call.tool === one.tool) ?? calls[calls.push({}) - 1]).result = one;
    }
    return h("div", { class: "work" }, calls.map(({ call, result }) => h("details", { class: `message tool ${result?.failed ? "failed" : ""}` }, h("summary", {}, icon(result?.failed ? "failed" : "shell", result?.failed ? "bad-c" : ""), h("code", {}, (call ?? result).tool), h("span", { class: "cut grow faint" }, short(call ? gist(call.input) : result.text, 120)), result ? null : icon("runs", "live-c")), callView({ index: 0, tool: (call ?? result).tool, arguments: call?.input ?? "{}", state: result ? (result.failed ? "failed" : "ok") : "started", result: result?.text ?? "", files: result?.files }))));
  }

  function asksView() {
    asks.set(record.input_requests.filter((one) => one.kind !== "external_event"));
    const all = asks.elements();
    fill(place.asks, all.slice(0, 3), all.length > 3 ? link("#/inbox", `and ${all.length - 3} more in the inbox`) : null);
  }

  function mailbox() {
    const busy = Boolean(record.active_session);
    const pending = mail.items.filter((one) => !one.delivered_to);
    const why = busy ? "A session is running: fire when it has ended." : mail.pending_count ? "" : "The mailbox is empty.";
    fill(
      place.mailbox,
      h("header", { class: "line" },
        h("h2", {}, "Mailbox"),
        h("span", { class: `count badge ${mail.pending_count ? "" : "none"}` }, String(mail.pending_count)),
        h("span", { class: "grow" }),
        action([icon("bolt"), "Fire"], () => fire("reject"), { class: "primary", disabled: Boolean(why), title: why, "data-fire": "" }),
        busy && mail.pending_count ? action("Fire when idle", () => fire("queue"), { "data-key": "when idle" }) : null,
      ),
      h("ul", {}, pending.map((one) => h("li", { key: one.message_id, class: "outcome" }, icon(one.source_type === "subagent_failed" ? "failed" : "done", one.source_type === "subagent_failed" ? "bad-c" : "good-c"), h("button", { type: "button", class: "plain grow cut", onclick: () => lookAt(one.source_session_id) }, h("b", {}, one.subagent_name), h("small", { class: one.source_type === "subagent_failed" ? "bad-c" : "faint" }, one.source_type === "subagent_failed" ? " failed" : " has reported")), h("small", { class: "faint num" }, ago(one.created_at))))),
      h("p", { class: "faint why" }, why || `${count(pending.length, "outcome")} wait${pending.length === 1 ? "s" : ""}. Firing makes ${pending.length === 1 ? "it" : "them"} the next turn.`),
    );
  }

  // A queued fire is kept by the server: it happens whether or not this page is open.
  async function fire(ifBusy) {
    const fired = await post(`/conversations/${id}/fire`, { transport: "stream", if_busy: ifBusy }, { once: true });
    toast(fired.queued ? "The outcomes are the next turn, as soon as the running one has ended. To take it back, cancel that session." : "Fired: the outcomes are one turn now.");
    await load();
  }

  async function lookAt(session) {
    state.thread = session;
    state.trace = null;
    tree();
    main.classList.add("beside");
    await threadView().catch((error) => fill(place.thread, h("p", { role: "alert" }, error.message)));
  }

  // The subagent that is looked at: what it was asked, what it does.
  async function threadView() {
    const session = state.thread ?? subagents().find(unfinished)?.session_id ?? subagents()[0]?.session_id;
    if (!session) return fill(place.thread, empty("branch", "No subagents", "Those that this agent asks appear here."));
    if (state.trace?.session_id !== session) state.prompt = (await get(`/sessions/${session}`)).display_messages.find((one) => one.type === "user")?.text;
    if (state.trace?.session_id !== session || !state.trace.ended_at) state.trace = await get(`/tasks/${session}/trace`, { chars: 800 });
    const { trace } = state;
    if (trace.session_id !== (state.thread ?? session)) return;
    const open = record.input_requests.find((one) => one.session_id === session);
    fill(
      place.thread,
      h("header", { class: "line" }, h("span", { class: "face sub", "aria-hidden": "true" }, (trace.name || trace.agent)[0]), h("div", { class: "grow" }, h("b", {}, trace.name || trace.agent), h("small", { class: "faint" }, ` ${trace.name && trace.name !== trace.agent ? `${trace.agent}, ` : ""}${time(trace.created_at)}, ${cost(trace.usage.cost_usd)}`)), pill(trace.status), h("a", { class: "button quiet square", href: `#/tasks/${session}`, "aria-label": "Open the task", title: "Open the task" }, icon("web")), square("cross", "Close", () => main.classList.remove("beside"), { class: "quiet square narrow" })),
      h("div", { class: "bubble" }, short(state.prompt ?? trace.title, 600)),
      open ? h("p", { class: "notice wait" }, icon("waits"), short(open.question, 200), " · ", left(open.deadline)) : null,
      trace.steps.map((step) => [
        step.models.filter((one) => one.text).map((one) => h("div", { class: "say" }, markdown(one.text))),
        step.tools.length ? h("div", { class: "work" }, step.tools.map((call) => h("a", { class: "line", href: `#/tasks/${session}/${step.step}` }, icon(["ok", "started"].includes(call.state) ? "shell" : "failed", ["ok", "started"].includes(call.state) ? "" : "bad-c"), h("code", {}, call.tool), h("span", { class: "cut grow faint" }, short(gist(call.arguments), 100)), h("small", { class: "faint num" }, call.ended_at ? brief(new Date(call.ended_at) - new Date(call.started_at)) : "now")))) : null,
      ]),
      trace.error ? h("p", { class: "notice" }, icon("failed"), short(trace.error, 300)) : null,
    );
  }

  async function chart() {
    const turn = state.turns.get(state.turn) ?? inOrder()[0];
    if (!turn) return;
    state.turn = turn.session_id;
    const trace = await get(`/tasks/${turn.session_id}/trace`, { chars: 200 });
    lanes.set(trace, null);
    tree();
  }

  function shown() {
    main.classList.toggle("charted", state.view === "timeline");
    if (state.view === "timeline") chart().catch((error) => fill(place.problem, error.message));
  }

  function composer() {
    fill(
      sending,
      choice("Deliver it", [["queue", "Next turn"], ["steer", "Steer the running one"]], state.mode, (value) => { state.mode = value; composer(); }),
      h("span", { class: "grow" }),
      action("Send", send, { class: "primary", disabled: record?.status !== "open" }),
    );
  }

  async function send() {
    if (!text.value.trim()) throw new Error("Write a message first.");
    await post(`/conversations/${id}/messages`, { input: text.value, if_busy: state.mode }, { once: true });
    text.value = "";
    await load();
  }

  // What is being written: at once as it comes, at most once a frame, and soon as Markdown.
  function write() {
    framed ||= requestAnimationFrame(() => {
      framed = 0;
      place.writing.hidden = !pieces;
      if (!pieces.startsWith(drawn)) {
        drawn = "";
        writes.replaceChildren();
      }
      fill(rest, pieces.slice(drawn.length));
      if (pieces !== drawn) asMarkdown();
    });
  }

  const asMarkdown = soon(async () => {
    const now = pieces;
    await drawMarkdown(writes, now, false);
    if (!pieces.startsWith(now)) return write(); // another message by now
    drawn = now;
    write();
  }, 300);

  function matters(event) {
    if (event.type === "message_delta") {
      pieces += event.text;
      write();
    }
    if (["message", "attempt_reset", "step_completed"].includes(event.type) && pieces) {
      pieces = "";
      write();
    }
    return !event.type.endsWith("_delta");
  }

  const writes = h("div", { class: "markdown" });
  const rest = h("p", { class: "markdown raw" });
  const stop = keepCurrent(`/conversations/${id}/events`, load, { main, problem: place.problem, matters, ms: 200 });
  const clockwork = every(1000, asks.tick);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) sending.querySelector(".primary").click();
  });
  append(place.writing, [h("span", { class: "face agent", "aria-hidden": "true" }, icon("spark")), h("div", { class: "who" }, h("span", { class: "pill live" }, icon("runs"), "writing")), h("div", { class: "text" }, writes, rest)]);
  append(place.said, [place.earlier, place.turns, place.writing]);
  fill(
    main,
    place.problem,
    place.head,
    h("div", { class: "three" },
      h("nav", { class: "pane", "aria-label": "Turns and threads" }, place.tree, place.spent),
      h("section", { class: "pane" }, place.said, h("div", { class: "lanes" }, lanes.tools, lanes.element), place.asks, h("div", { class: "composer" }, text, sending)),
      h("aside", { class: "pane side", "aria-label": "Mailbox and subagent" }, place.mailbox, place.thread),
    ),
  );
  place.said.addEventListener("scroll", remember, { passive: true });
  for (const one of [place.turns, place.writing, place.said]) grows.observe(one);
  const waits = setTimeout(() => record || fill(place.turns, bones(4)), 300);

  return {
    key(event) {
      if (asks.press(event)) return true;
      if (event.key === "Escape") main.classList.remove("beside");
      else return false;
      return true;
    },
    leave: ends(stop, clockwork, lanes.close, () => grows.disconnect(), () => clearTimeout(waits)),
  };
}

function asked(turn) {
  return typeof turn.input === "string" ? turn.input : turn.input ? JSON.stringify(turn.input) : "";
}

// All conversations, the last used first.
export function conversations(main) {
  const text = h("input", { type: "search", id: "text", placeholder: "Words of a title, question or answer", "aria-label": "Text" });
  const mine = h("input", { type: "checkbox", class: "box", id: "mine" });
  const list = h("ul", { class: "talks" });
  const note = h("div", { role: "status" });
  const more = h("p", { class: "more", hidden: true }, action("More conversations", () => { most = Math.min(200, most * 2); return load(); }));
  let most = 50;

  async function load() {
    const page = await get("/conversations", { q: text.value.trim(), own: mine.checked || null, order: "updated", limit: most });
    more.hidden = !page.next_cursor || most >= 200;
    fill(
      list,
      page.items.map((one) => h("li", { key: one.conversation_id }, icon("chats", "faint"), h("a", { class: "cut grow", href: `#/conversations/${one.conversation_id}` }, short(one.title, 160) || one.conversation_id), one.pending_count ? h("span", { class: "count" }, `${amount(one.pending_count)} in the mailbox`) : null, one.status === "open" ? null : h("span", { class: "chip" }, one.status), h("time", { class: "faint num", datetime: one.updated_at, title: clock(one.updated_at) }, ago(one.updated_at)))),
    );
    list.hidden = !page.items.length;
    fill(note, page.items.length ? null : empty("chats", "No conversation fits", text.value || mine.checked ? "Others do not fit this search." : "Each task begins one; more turns can follow.", h("a", { class: "button", href: "#/start" }, "Start a task")));
  }

  const refresh = soon(load, 500);
  for (const [input, type] of [[text, "input"], [mine, "change"]]) input.addEventListener(type, refresh);
  const stop = listen(refresh);
  crumbs("Chats");
  list.hidden = true;
  fill(main, h("div", { class: "page" }, h("h1", { class: "sr" }, "Chats"), h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, h("span", { class: "search" }, icon("search"), text), h("span", { class: "grow" }), h("span", { class: "check" }, mine, h("label", { for: "mine" }, "Mine"))), h("div", { class: "table scroll", tabindex: "0", role: "region", "aria-label": "Conversations" }, list, note, more)));
  const first = insist(load, (error) => fill(note, error.message));
  return { key: (event) => event.key === "/" && (text.focus(), true), leave: ends(stop, first) };
}
