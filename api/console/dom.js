// Elements without HTML strings: every text becomes a text node, so nothing that an agent wrote can run.

import { plain } from "./format.js";

const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "hidden", "open", "readOnly"]);
const SHOWN = new Set(["title", "aria-label", "placeholder"]); // attributes that people read

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? plain(String(value)) : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(String(child)));
  }
}

export function fill(element, ...children) {
  const restore = holdFocus(element);
  element.replaceChildren();
  append(element, children);
  restore();
  return element;
}

// What is drawn again keeps the focus of a person who moves by keyboard: on the same link, or on the one control alike.
export function holdFocus(element) {
  const held = document.activeElement;
  if (!held || held === element || !element.contains(held)) return () => {};
  const name = (one) => one.id || one.dataset.key || `${one.getAttribute("href") ?? ""} ${one.textContent}`;
  return (drawn = element) => {
    if (document.contains(held)) return held.focus({ preventScroll: true }); // put back as it was
    const alike = [...drawn.querySelectorAll(held.tagName)].filter((one) => name(one) === name(held));
    if (alike.length === 1) alike[0].focus({ preventScroll: true });
  };
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, plain(String(value)));
  append(element, children);
  return element;
}

export function link(hash, ...children) {
  return h("a", { href: hash }, ...children);
}

// A button that says what went wrong beside itself, and cannot be pressed twice while its request runs.
export function action(label, run, attributes = {}) {
  const problem = h("span", { class: "problem", role: "alert" });
  let running = false; // and not `disabled`, which would take the focus from it
  const button = h(
    "button",
    {
      type: "button",
      ...attributes,
      onclick: async (event) => {
        event.stopPropagation();
        if (running) return;
        running = true;
        button.setAttribute("aria-busy", "true");
        fill(problem);
        try {
          await run();
        } catch (error) {
          fill(problem, error.message);
        } finally {
          running = false;
          button.removeAttribute("aria-busy");
        }
      },
    },
    label,
  );
  return h("span", { class: "action" }, button, problem);
}

export function status(name) {
  return h("span", { class: `status ${/^[a-z_]+$/.test(name) ? name : ""}` }, name.replaceAll("_", " "));
}

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

// A dialog over the page; `build` gets the function that closes it.
export function dialog(title, build) {
  const box = h("dialog", { "aria-label": title });
  const close = () => box.close();
  box.addEventListener("close", () => box.remove());
  // Escape closes it at once, `close` comes later: until then a field of it would swallow the keys of the page.
  box.addEventListener("cancel", (event) => event.target === box && document.activeElement?.blur());
  box.append(h("h2", {}, title), ...[build(close)].flat());
  document.body.append(box);
  box.showModal();
  return box;
}

export function confirmed(title, explanation, label, run) {
  dialog(title, (close) => [
    h("p", {}, explanation),
    h(
      "div",
      { class: "row" },
      action(label, async () => {
        await run();
        close();
      }, { class: "danger" }),
      h("button", { type: "button", onclick: close, autofocus: true }, "Keep it"),
    ),
  ]);
}
