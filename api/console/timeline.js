// The timeline of a conversation: every turn in lanes, the latest first. A turn is read when it becomes visible.

import { get } from "./api.js";
import { action, empty, fill, h, link, status } from "./dom.js";
import { clock, duration, short } from "./format.js";
import { final, waterfall } from "./waterfall.js";

export function timeline(earlier) {
  const list = h("ol", { class: "plain" });
  const more = h("p", { class: "more", hidden: true }, action("Earlier turns", earlier));
  const box = h("div", { class: "timeline", role: "region", "aria-label": "Timeline", tabindex: "0" }, list, more);
  const shown = new Map(); // session -> { element, head, chart, visible, final, text }
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.target === more) {
          if (entry.isIntersecting && !more.hidden) earlier().catch(() => {});
          continue;
        }
        const turn = shown.get(entry.target.dataset.turn);
        if (!turn) continue;
        turn.visible = entry.isIntersecting;
        read(entry.target.dataset.turn);
      }
    },
    { root: box, rootMargin: "200px" },
  );

  async function read(id) {
    const turn = shown.get(id);
    if (!turn?.visible || turn.final || turn.reading) return;
    turn.reading = true;
    try {
      const trace = await get(`/tasks/${id}/trace`, { chars: 200 });
      turn.final = final(trace);
      fill(turn.chart, waterfall(trace));
    } catch (error) {
      turn.final = error.status === 410;
      if (turn.final) fill(turn.chart, empty("Its content was removed."));
    } finally {
      turn.reading = false;
    }
  }

  function row(turn) {
    const chart = h("div", { class: "chart" });
    const head = h("div", { class: "row" });
    const element = h("li", { class: "turn", "data-turn": turn.session_id }, head, chart);
    seen.observe(element);
    return { element, head, chart, visible: false, final: false };
  }

  return {
    element: box,
    // The turns that are known, the latest first, and whether there are earlier ones.
    set(turns, hasEarlier) {
      const wanted = new Set(turns.map((one) => one.session_id));
      for (const [id, known] of shown) {
        if (wanted.has(id)) continue;
        seen.unobserve(known.element);
        known.element.remove();
        shown.delete(id);
      }
      turns.forEach((turn, at) => {
        if (!shown.has(turn.session_id)) shown.set(turn.session_id, row(turn));
        const known = shown.get(turn.session_id);
        const took = turn.ended_at ? duration(new Date(turn.ended_at) - new Date(turn.created_at)) : "";
        fill(known.head, status(turn.status), link(`#/tasks/${turn.session_id}`, short(asked(turn), 100)), h("small", { title: clock(turn.created_at) }, `${clock(turn.created_at)} ${took}`));
        if (list.children[at] !== known.element) list.insertBefore(known.element, list.children[at] ?? null);
        read(turn.session_id);
      });
      more.hidden = !hasEarlier;
      seen.unobserve(more); // observing it again reports whether it is still visible
      if (hasEarlier) seen.observe(more);
    },
    close: () => seen.disconnect(),
  };
}

function asked(turn) {
  const given = typeof turn.input === "string" ? turn.input : turn.input ? JSON.stringify(turn.input) : "";
  return given || turn.trigger.replaceAll("_", " ");
}
