// Icons: lines on a grid of 16, drawn in the colour of the text.

import { svg } from "./dom.js";

const RING = "M8 2.3a5.7 5.7 0 1 1 0 11.4a5.7 5.7 0 0 1 0-11.4z";
const PATHS = {
  tasks: "M6.5 4h7M6.5 8h7M6.5 12h7M2.5 4h.6M2.5 8h.6M2.5 12h.6",
  inbox: "M2.5 9.5 4.5 3.5h7l2 6v3h-11zM2.5 9.5h3l1 1.5h3l1-1.5h3",
  chats: "M2.5 3.5h11v7.5H7l-3 2.5V11H2.5z",
  overview: "M2.5 13.5h11M4.5 11V8M8 11V3.5M11.5 11V6",
  agents: "M3.5 6.5h9v6.5h-9zM8 6.5V4M6.3 9.5h.1M9.6 9.5h.1M7.2 3.2h1.6",
  search: "M7 2.8a4.2 4.2 0 1 1 0 8.4a4.2 4.2 0 0 1 0-8.4zM10.2 10.2l3.2 3.2",
  plus: "M8 3v10M3 8h10",
  done: `${RING}M5.4 8.2l1.8 1.8 3.4-3.9`,
  failed: `${RING}M6 6l4 4M10 6l-4 4`,
  waits: `${RING}M6.5 6v4M9.5 6v4`,
  cancelled: `${RING}M5.5 8h5`,
  later: RING,
  runs: "M8 2.3a5.7 5.7 0 1 1-5.2 3.3",
  skipped: "M2.5 8a5 5 0 0 1 9-3M11.8 2.5v2.7H9M6.5 11.5h7",
  right: "M6.3 4.3 10 8l-3.7 3.7",
  down: "M4.3 6.3 8 10l3.7-3.7",
  up: "M4.3 9.7 8 6l3.7 3.7",
  back: "M9.7 4.3 6 8l3.7 3.7",
  shell: "M3 4.5 6 7.5l-3 3M8 11.5h5",
  edit: "M3 13l.8-3L10.5 3.3l2.2 2.2L6 12.2z",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  web: `${RING}M2.5 8h11M8 2.3c2.2 2.4 2.2 9 0 11.4M8 2.3c-2.2 2.4-2.2 9 0 11.4`,
  branch: "M4.5 5.5v5M4.5 5.5a1.5 1.5 0 1 0 0-3a1.5 1.5 0 0 0 0 3zM4.5 13.5a1.5 1.5 0 1 0 0-3a1.5 1.5 0 0 0 0 3zM11.5 7.5a1.5 1.5 0 1 0 0-3a1.5 1.5 0 0 0 0 3zM11.5 7.5c0 2.5-4 2-6 3.5",
  shield: "M8 2.2 13 4v4c0 3-2 5-5 6-3-1-5-3-5-6V4z",
  undo: "M5.5 3 2.5 6l3 3M2.5 6h7a3.5 3.5 0 0 1 0 7H6",
  clock: `${RING}M8 4.8V8l2.2 1.4`,
  spark: "M8 2.5 9.3 6.7 13.5 8 9.3 9.3 8 13.5 6.7 9.3 2.5 8l4.2-1.3z",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13.2 2.3v3h-3",
  compare: "M5 12.5v-9M2.8 5.7 5 3.5l2.2 2.2M11 3.5v9M8.8 10.3l2.2 2.2 2.2-2.2",
  more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  save: "M8 2.5v7M5 7l3 3 3-3M3 13.5h10",
  pause: "M6 4v8M10 4v8",
  bolt: "M9 2 4 9h3.5L7 14l5-7H8.5z",
  fold: "M8 1.8v4M6 4l2 2 2-2M8 14.2v-4M6 12l2-2 2 2M3 8h10",
  zoomin: "M7 2.8a4.2 4.2 0 1 1 0 8.4a4.2 4.2 0 0 1 0-8.4zM10.2 10.2l3.2 3.2M5.2 7h3.6M7 5.2v3.6",
  zoomout: "M7 2.8a4.2 4.2 0 1 1 0 8.4a4.2 4.2 0 0 1 0-8.4zM10.2 10.2l3.2 3.2M5.2 7h3.6",
  tick: "M3.5 8.5 6.5 11.5 12.5 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  server: "M3 3h10v4H3zM3 9h10v4H3zM5.2 5h.1M5.2 11h.1",
  money: `${RING}M9.8 6.2c-.5-.7-3.4-1-3.4.6s3.4.8 3.4 2.5-3 1.4-3.7.3M8 4.3v7.4`,
  brand: "M3 4.5h7a2 2 0 0 1 0 4H6.5a1.5 1.5 0 0 0 0 3H9M11 11.5h2",
};

export function icon(name, kind = "") {
  return svg("svg", { class: `i ${kind} ${name === "runs" ? "spin" : ""}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: PATHS[name] ?? PATHS.later }));
}
