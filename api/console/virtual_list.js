// A list of any length of which only the visible rows are in the page. All rows have one height.

import { h } from "./dom.js";
import { overlay } from "./keyed.js";
import { single } from "./live.js";

const MARGIN = 8; // rows above and below what is visible

export function virtualList({ label, height, row, more = null, key = (item) => item.id, role = "list" }) {
  const spacer = h("div", { class: "spacer", role: "presentation" });
  const box = h("div", { live: true, class: "virtual", role, tabindex: "0", "aria-label": label }, spacer);
  const shown = new Map(); // key -> { item, element }
  let items = [];
  const next = single(async () => more?.());

  function draw() {
    spacer.style.height = `${items.length * height}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / height) - MARGIN);
    const last = Math.min(items.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + MARGIN);
    const wanted = new Set();
    for (let index = first; index < last; index++) {
      const item = items[index];
      const id = key(item);
      wanted.add(id);
      let known = shown.get(id);
      if (!known || known.item !== item) {
        const element = row(item, index);
        if (!element.hasAttribute("role")) element.setAttribute("role", "listitem");
        element.classList.add("virtual-row");
        element.style.height = `${height}px`;
        if (known) {
          overlay(known.element, element);
          known.item = item;
        } else {
          spacer.append(element);
          known = { item, element };
          shown.set(id, known);
        }
      }
      known.element.style.top = `${index * height}px`;
    }
    for (const [id, known] of shown) {
      if (wanted.has(id)) continue;
      known.element.remove();
      shown.delete(id);
    }
    if (last >= items.length - MARGIN) next().catch(() => {}); // the server is unavailable for a moment: scrolling tries again
  }

  box.addEventListener("scroll", draw, { passive: true });
  const observer = new ResizeObserver(draw);
  observer.observe(box);
  return {
    element: box,
    spacer,
    redraw() {
      for (const known of shown.values()) known.item = null;
      draw();
    },
    set(next) {
      const top = items[Math.floor(box.scrollTop / height)];
      items = next;
      const now = box.scrollTop && top ? items.findIndex((one) => key(one) === key(top)) : -1;
      spacer.style.height = `${items.length * height}px`;
      if (now >= 0) box.scrollTop = now * height + (box.scrollTop % height); // rows above it came or went
      draw();
    },
    reveal(index) {
      const top = index * height;
      if (top < box.scrollTop) box.scrollTop = top;
      else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
    },
    close: () => observer.disconnect(),
  };
}
