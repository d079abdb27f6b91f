// A form made of a JSON schema: fields for what people can fill in, a text of JSON for everything else.

import { h } from "./dom.js";

let numbers = 0;

export function schemaForm(schema, value, label = "") {
  const field = make(schema ?? {}, value, label);
  return {
    element: field.element,
    value() {
      const found = field.value();
      if (found === undefined) throw new Error("Fill in the form first.");
      return found;
    },
  };
}

// `value()` of a field answers undefined if nobody has filled it in: what is optional is then left out.
function make(schema, value, label, optional = false) {
  const kind = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (schema.const !== undefined) return { element: h("span"), value: () => (optional ? value : schema.const) };
  if (schema.enum) return choice(schema, value, label, optional);
  if (kind === "object" && schema.properties) return group(schema, value, label, optional);
  if (kind === "boolean") return checkbox(schema, value, label, optional);
  if (kind === "integer" || kind === "number") return number(schema, value, label, kind);
  if (kind === "string") return text(schema, value, label);
  if (kind === "array" && schema.items?.type === "string") return lines(schema, value, label);
  return jsonText(schema, value, label);
}

// What was not touched stays as it was: a form may not hold line ends, spaces or empty texts as they came.
function read(input, value, filled) {
  const before = input.value;
  return () => (value !== undefined && input.value === before ? value : input.value.trim() === "" ? undefined : filled(input.value));
}

function labelled(input, label, schema) {
  input.id = `field-${++numbers}`;
  const hint = schema.description ? h("small", { id: `${input.id}-hint` }, schema.description) : null;
  if (hint) input.setAttribute("aria-describedby", hint.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label || schema.title || "Answer"), input, hint);
}

function group(schema, value, label, optional) {
  const required = new Set(schema.required ?? []);
  const given = value ?? {};
  const fields = Object.entries(schema.properties).map(([name, inner]) => {
    const needed = required.has(name);
    const known = value === undefined ? (inner.default ?? undefined) : given[name]; // a default is for a new form
    return [name, needed, make(inner, known, name + (needed ? "" : " (optional)"), !needed)];
  });
  return {
    element: h("fieldset", {}, label ? h("legend", {}, label) : null, ...fields.map(([, , field]) => field.element)),
    value() {
      const unlisted = Object.entries(given).filter(([name]) => !Object.hasOwn(schema.properties, name));
      const filled = fields.map(([name, , field]) => [name, field.value()]).filter(([, one]) => one !== undefined);
      const found = Object.fromEntries([...unlisted, ...filled]);
      if (optional && value === undefined && !filled.length) return undefined;
      for (const [name, needed] of fields) if (needed && !Object.hasOwn(found, name)) throw new Error(`${name} is required.`);
      return found;
    },
  };
}

function text(schema, value, label) {
  const long = !(schema.maxLength <= 200);
  const input = long ? h("textarea", { rows: 3, value: value ?? "" }) : h("input", { type: "text", value: value ?? "" });
  return { element: labelled(input, label, schema), value: read(input, value, (found) => found) };
}

function number(schema, value, label, kind) {
  const step = kind === "integer" ? 1 : "any";
  const input = h("input", { type: "number", step, min: schema.minimum, max: schema.maximum, value: value ?? "" });
  return { element: labelled(input, label, schema), value: read(input, value, Number) };
}

function checkbox(schema, value, label, optional) {
  let touched = false;
  const input = h("input", { type: "checkbox", checked: Boolean(value), onchange: () => { touched = true; } });
  return { element: labelled(input, label, schema), value: () => (optional && !touched ? value : input.checked) };
}

// Without a value nothing is chosen yet, and not the first one.
function choice(schema, value, label, optional) {
  const known = schema.enum.includes(value);
  const none = optional || !known ? h("option", { value: "", selected: !known }, "—") : null;
  const input = h("select", {}, none, ...schema.enum.map((one, index) => h("option", { value: index, selected: one === value }, String(one))));
  return { element: labelled(input, label, schema), value: read(input, known ? value : undefined, (index) => schema.enum[Number(index)]) };
}

function lines(schema, value, label) {
  const input = h("textarea", { rows: 6, value: (value ?? []).join("\n") });
  const split = (found) => found.split("\n").map((line) => line.trim()).filter(Boolean);
  return { element: labelled(input, `${label || "Lines"}, one a line`, schema), value: read(input, value, split) };
}

function jsonText(schema, value, label) {
  const input = h("textarea", { rows: 6, spellcheck: "false", value: value === undefined ? "" : JSON.stringify(value, null, 2) });
  const parse = (found) => {
    try {
      return JSON.parse(found);
    } catch (error) {
      throw new Error(`${label || "The value"} is not JSON: ${error.message}`);
    }
  };
  return { element: labelled(input, `${label || "Value"}, as JSON`, schema), value: read(input, value, parse) };
}
