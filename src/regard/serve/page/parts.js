// Parts that several views are put together from.

import { line, post, postForFile } from "./api.js";
import { clamp, copyText, make, neighbour, rove, save, uniqueId, visible } from "./dom.js";
import { has, number, t, whole } from "./words.js";

/** A line of text under a heading that says what is going on; also heard by screen readers. Meanwhile the areas are grey. */
export function status(...areas) {
  const mark = (busy) => areas.forEach((area) => area.setAttribute("aria-busy", String(busy)));
  const box = make("div.status", { role: "status" });
  let late = 0;
  function report({ state, seconds, problem, again }) {
    clearTimeout(late);
    mark(state === "working" || state === "busy");
    areas.forEach((area) => area.classList.toggle("stale", state === "failed")); // what is seen is of another question
    box.className = `status ${state}`;
    box.replaceChildren();
    if (state === "busy") box.append(t("busy", { seconds }));
    // Quick answers need no word about waiting for them.
    if (state === "working") late = setTimeout(() => box.replaceChildren(t("working")), 600);
    if (state === "failed") {
      box.append(make("span", problem.message), button(t("again"), again, "quiet"));
    }
  }
  const desk = line(report);
  return { box, mark, ...desk, post: (path, body, use) => desk.ask((signal) => post(path, body, signal), use) };
}

/** A button, with its class or with several properties. */
export const button = (label, act, more = {}) => make("button", { type: "button", onclick: act, ...(more.at ? { class: more } : more) }, label);

export function copyButton(text) {
  const self = button(t("copy"), async () => {
    await copyText(text());
    self.textContent = t("copied");
    setTimeout(() => (self.textContent = t("copy")), 1500);
  }, "quiet");
  return self;
}

/** A field for sentences that grows with them. */
export function textField({ label, value = "", rows = 1, placeholder = "", limit, input, properties = {} }) {
  const id = uniqueId("text");
  const area = make("textarea", {
    id, rows, dir: "auto", placeholder, maxlength: limit, spellcheck: "false", autocapitalize: "off", value,
    oninput: () => input(area.value), ...properties,
  });
  return { area, box: make("div.field", make("label", { for: id }, label), area) };
}

export function slider({ label, min, max, step, value, shown = String, input, hint = null }) {
  const id = uniqueId("slider");
  const output = make("output", { for: id }, shown(value));
  const range = make("input", { type: "range", id, min, max, step, value, "aria-valuetext": shown(value) });
  range.addEventListener("input", () => {
    output.textContent = shown(Number(range.value));
    range.setAttribute("aria-valuetext", shown(Number(range.value)));
    input(Number(range.value));
  });
  const set = (next) => {
    range.value = next;
    output.textContent = shown(next);
  };
  const title = hint ? { title: hint } : {};
  return { range, set, box: make("div.slider", { ...title }, make("label", { for: id }, label), output, range) };
}

/** A whole number. Out of bounds, it becomes the nearest that is not: what is shown is used. */
function numberField(notes, name, min, max) {
  const id = uniqueId("number"), field = make("input", { type: "number", id, min, max, value: notes[name], onchange: () => {
    if (field.value) notes[name] = clamp(Math.round(Number(field.value)), min, max);
    field.value = notes[name];
  } });
  return make("div.number", make("label", { for: id }, t(`explore.${name}`)), field);
}
export const lengthAndSeed = (notes, limits) => [numberField(notes, "tokens", 1, limits.tokens), numberField(notes, "seed", 0, 2 ** 31 - 1)];

/** One of a few, side by side: radio buttons in other clothes. */
export function segments({ label, options, value, change }) {
  const name = uniqueId("segments");
  const set = make("fieldset.segments", make("legend.unseen", label));
  for (const [key, text] of options) {
    const input = make("input", { type: "radio", name, value: key, onchange: () => change(key) });
    input.checked = key === value;
    set.append(make("label", input, make("span", text)));
  }
  return set;
}

export function select({ label, options, value, change, hideLabel = false }) {
  const id = uniqueId("select");
  const box = make("select", { id, onchange: () => change(box.value) }, options.map(([key, text]) => make("option", { value: key }, text)));
  box.value = value;
  return { select: box, box: make("div.choice", make("label", { for: id, class: hideLabel ? "unseen" : null }, label), box) };
}

/** Ready-made texts to begin with. */
export function examples(texts, use) {
  return make("div.examples", make("span", t("try")),
    texts.map(([text, label]) => button(label ?? text, () => use(text), { class: "chip", dir: "auto" })));
}

/** What was found, the best first. */
export const ranked = (found, choose) => found.map(({ text, score }, i) => make("li", button([
  make("span.rank", { "aria-hidden": "true" }, String(i + 1)), make("span.text", { dir: "auto" }, text || "∅"), make("span.figure", number(score)),
], () => choose(i))));

/** Words with shares; `act` hears which was chosen, if they are there to be chosen. */
export const bars = (entries, act = null) => entries.map(({ text, share, figure, title }, i) => {
  const parts = [make("span.bar", { style: { "--share": Math.max(0, share).toFixed(4) } }), make("bdi", text), make("span.figure", figure)];
  return make("li", act ? button(parts, () => act(i), { title, tabindex: i ? "-1" : "0" }) : make("div", parts));
});

/** A button that asks for files, under words of its own: browsers have theirs in one language only. */
export function picker({ label, accept, use }) {
  const field = make("input", { type: "file", accept, class: "unseen", tabindex: "-1", "aria-hidden": "true", "aria-label": label, onchange: () => (use(field.files), (field.value = "")) });
  return [button(label, () => field.click(), "quiet"), field];
}

/** Words in a row, one of which is followed. */
export function wordRow({ label, words, chosen, choose, mark = () => null }) {
  const row = make("div.words-row", { role: "group", "aria-label": label, dir: "auto" });
  row.append(...words.map((word, i) => button(visible(word), () => choose(i), {
    class: `word-chip ${mark(i) ?? ""}`, "aria-pressed": String(i === chosen), tabindex: i === chosen ? "0" : "-1",
  })));
  rove(row, ".word-chip", neighbour);
  return row;
}

export function details(summary, children, properties = {}) {
  return make("details", properties, make("summary", summary), children);
}

/** Buttons that save a picture the server draws. */
export function exports({ app, desk, body, what }) {
  const one = (format) => button(t("save.as", { format: format.toUpperCase() }), () =>
    desk.ask((signal) => postForFile("api/picture", { ...body(), what: what(format), format }, signal),
      (blob) => save(blob, `${app.model.id}-${what(format)}.${format}`)), "quiet");
  return make("div.exports", ["svg", "html"].map(one));
}

/** How much is written; where there is no more room, what is beyond has been left out. */
export const counter = (length, limit) => `${whole(length)} / ${whole(limit)}${length < limit ? "" : ` · ${t("full")}`}`;

/** What a kind of attention is called. */
export const kindName = (name) => (has(`attention.kind.${name}`) ? t(`attention.kind.${name}`) : name[0].toUpperCase() + name.slice(1));

/** The sentence that was read, where it is not all of the text, or is the `first` of what was translated. */
export const readOf = (source, text, first) => (source === null || (source === text && text !== first?.source) ? [] : [make("span.muted", t("first")), " ", make("bdi", source)]);

/** What looks odd. */
export const oddities = (flags = []) => flags.map((flag) => make("span.flag", has(`flag.${flag}`) ? t(`flag.${flag}`) : flag));

/** Nothing to see yet, and what to do about it. */
export const empty = (...children) => make("p.empty", ...children);
