// Walk through: one sentence through one layer of the model, step by step, with its real numbers.

import { clamp, debounce, make, neighbour, quoted, rove } from "./dom.js";
import { Matrix, scale } from "./heat.js";
import { button, empty, readOf, segments, select, status, textField, wordRow } from "./parts.js";
import { firstTry } from "./tries.js";
import { currentLanguage, short, t, whole } from "./words.js";

export const view = { id: "walk", suits: (model) => Boolean(model.walk), open: (root, app) => new Walk(root, app) };

const FIRST_WORDS = "To be, or not to be";
// These tables hold shares, which are never below zero.
const SHARES = new Set(["w", "probabilities"]);
const FIRST_NUMBERS = 8;

/** Which token is followed first: an encoder's first; a decoder's last, after which something new is written. */
const first = (stack) => (stack === "encoder" ? 0 : null);

/** A formula as plain text has it, with its indices set low. */
function formula(text) {
  const parts = text.split(/(?<=[A-Za-z\d])_([A-Za-z\d]+)/);
  return make("p.formula", parts.map((part, i) => (i % 2 ? make("sub", part) : part)));
}

class Walk {
  constructor(root, app) {
    this.app = app;
    this.common = app.notesOf("common");
    const stacks = this.stacks();
    this.notes = app.notesOf("walk", { stack: stacks[0], layer: 0, head: 0, position: first(stacks[0]), step: 0 });
    this.text = (this.common.first?.source ?? this.common.text) || app.firstText(app.model.task === "translate" ? firstTry(app.model) : FIRST_WORDS);
    this.later = debounce(() => this.walk(), 400);
    this.build(root);
    this.keys = (event) => this.pressed(event);
    document.addEventListener("keydown", this.keys);
    this.redraw = debounce(() => this.answer && this.drawTensors(), 60);
    document.addEventListener("colours", this.redraw);
    this.observer = new ResizeObserver(this.redraw);
    this.observer.observe(this.tensors);
    this.walk();
  }

  close() {
    this.later.cancel();
    this.redraw.cancel();
    this.observer.disconnect();
    this.status.stop();
    document.removeEventListener("keydown", this.keys);
    document.removeEventListener("colours", this.redraw);
  }

  stacks() {
    const names = this.app.model.attention.map((one) => one.name);
    return ["encoder", "decoder"].filter((stack) => names.includes(stack));
  }

  shape() {
    return this.app.model.attention.find((one) => one.name === this.notes.stack) ?? { layers: 1, heads: 1 };
  }

  build(root) {
    const { app, notes } = this;
    const { box } = textField({ label: t("walk.text"), value: this.text, limit: app.limits.text, input: (text) => {
      this.text = text;
      notes.position = first(notes.stack);
      this.later();
    } });
    this.choices = make("div.row.choices");
    this.words = make("div.walk-words");
    this.sentence = make("p.written");
    this.steps = make("ol.steps");
    rove(this.steps, "button", neighbour);
    this.panel = make("section.panel.step", { "aria-live": "polite", "aria-label": t("walk.step") });
    this.tensors = make("div.tensors");
    this.readout = make("p.readout", { role: "status" });
    this.body = make("div.walk-body", { hidden: true }, make("nav", { "aria-label": t("walk.steps") }, this.steps), this.panel);
    this.status = status(this.body);
    root.append(make("div.ask", box, this.choices, this.status.box), this.sentence, this.words, this.body);
    this.drawChoices();
  }

  drawChoices() {
    const { notes } = this, stacks = this.stacks(), { layers, heads } = this.shape();
    const numbers = (count) => Array.from({ length: count }, (_, i) => [String(i), whole(i + 1)]);
    const set = (key) => (value) => {
      notes[key] = Number(value);
      this.walk();
    };
    this.choices.replaceChildren(
      ...(stacks.length > 1 ? [segments({ label: t("walk.stack"), options: stacks.map((name) => [name, t(`attention.kind.${name}`)]), value: notes.stack, change: (stack) => {
        Object.assign(notes, { stack, layer: 0, head: 0, position: first(stack), step: 0 });
        this.drawChoices();
        this.walk();
      } })] : []),
      select({ label: t("walk.layer"), options: numbers(layers), value: String(notes.layer), change: set("layer") }).box,
      select({ label: t("walk.head"), options: numbers(heads), value: String(notes.head), change: set("head") }).box);
  }

  walk() {
    this.later.cancel();
    if (!this.text.trim()) {
      this.status.stop();
      this.body.hidden = true;
      this.sentence.replaceChildren();
      this.words.replaceChildren(empty(t("walk.empty")));
      return;
    }
    const { text } = this, { stack, layer, head, position } = this.notes;
    const body = { ...this.app.body(), text, tongue: currentLanguage(), stack, layer, head, ...(position === null ? {} : { position }) };
    this.status.post("api/walk", body, (answer) => {
      this.answer = answer;
      this.sentence.replaceChildren(...readOf(answer.source, text, this.common.first));
      this.body.hidden = false;
      this.notes.step = clamp(this.notes.step, 0, answer.steps.length - 1);
      this.drawWords();
      this.drawSteps();
      this.drawStep();
    });
  }

  labels() {
    const { tokens, target_tokens: written } = this.answer;
    return this.notes.stack === "decoder" && written ? written : tokens;
  }

  drawWords() {
    const had = this.words.contains(document.activeElement);
    this.words.replaceChildren(make("span.muted", t("walk.follow")), wordRow({
      label: t("walk.follow"), words: this.labels(), chosen: this.answer.position, choose: (position) => {
        this.notes.position = position;
        this.walk();
      },
    }));
    if (had) this.words.querySelector("[aria-pressed=true]")?.focus();
  }

  // ---- Steps

  titleOf({ id, title }) {
    return (id.startsWith("cross-") ? t("walk.cross") : "") + title;
  }

  drawSteps() {
    const had = this.steps.contains(document.activeElement), { scrollLeft, scrollTop } = this.steps;
    this.steps.replaceChildren(...this.answer.steps.map((step, i) => make("li", button(
      [make("span.rank", { "aria-hidden": "true" }, String(i + 1)), make("span", this.titleOf(step))], () => this.goTo(i),
      { "aria-current": i === this.notes.step ? "step" : null, tabindex: i === this.notes.step ? "0" : "-1" }))));
    const current = this.steps.querySelector("[aria-current]");
    Object.assign(this.steps, { scrollLeft, scrollTop });
    // Only the list scrolls, down or, on a phone, sideways; the page itself stays where it is.
    const [list, item] = [this.steps, current.parentElement].map((each) => each.getBoundingClientRect());
    this.steps.scrollLeft += item.left + item.width / 2 - list.left - list.width / 2;
    this.steps.scrollTop += item.top + item.height / 2 - list.top - list.height / 2;
    if (had) current.focus({ preventScroll: true });
  }

  goTo(index) {
    this.notes.step = clamp(index, 0, this.answer.steps.length - 1);
    this.drawSteps();
    this.drawStep();
  }

  pressed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !this.answer || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest("input, textarea, select, [role=application], .words-row, dialog")) return;
    event.preventDefault();
    this.goTo(this.notes.step + step);
  }

  drawStep() {
    const { steps } = this.answer, step = steps[this.notes.step];
    this.readout.textContent = t("walk.point");
    this.panel.replaceChildren(
      make("div.step-head", make("p.muted", t("walk.of", { step: this.notes.step + 1, steps: steps.length })),
        make("div.row",
          button(t("walk.before"), () => this.goTo(this.notes.step - 1), { disabled: this.notes.step === 0 }),
          button(t("walk.next"), () => this.goTo(this.notes.step + 1), { class: "primary", disabled: this.notes.step === steps.length - 1 }))),
      make("h2", this.titleOf(step)), make("p.sentence", step.sentence), formula(step.formula), make("p.shapes", step.shapes),
      ...(step.kept === null ? [] : [this.cache(step)]), this.tensors, this.readout);
    this.drawTensors();
  }

  /** Which keys and values were there already, and which were made for the token that is followed. */
  cache({ id, kept, computed }) {
    const labels = id.startsWith("cross-") ? this.answer.tokens : this.labels(), [old, fresh] = [new Set(kept), new Set(computed)];
    const kind = (i) => (old.has(i) ? "kept" : fresh.has(i) ? "computed" : "later");
    return make("div.cache",
      make("div.cache-words", labels.map((word, i) => make("span", { class: kind(i) }, make("bdi", word)))),
      make("p.muted.legend", ["kept", "computed", "later"].filter((name) => labels.some((_, i) => kind(i) === name)).map((name) => make("span", { class: name }, t(`walk.${name}`)))));
  }

  drawTensors() {
    const step = this.answer.steps[this.notes.step];
    const narrow = step.tensors.length === 3 && step.tensors.every(({ columns, values }) => columns === null && values[0].length <= 32);
    this.tensors.className = `tensors ${step.tensors.length === 1 ? "" : narrow ? "three" : "two"}`;
    this.tensors.replaceChildren(...step.tensors.map((tensor) => this.tensor(tensor)));
    for (const figure of this.tensors.children) figure.lay();
  }

  /** The row of the token that is followed; keys and values across are those of the other text. */
  followed(name, rows, top) {
    const across = this.answer.steps[this.notes.step].id.startsWith("cross-") && (name === "k" || name === "v");
    return across ? null : rows.length === 1 ? 0 : this.answer.position - top;
  }

  tensor({ name, rows, columns, values, whole: sizes, first: corner = [0, 0] }) {
    const kind = SHARES.has(name) ? "weights" : "signed", [top, left] = corner, followed = this.followed(name, rows, top);
    const place = (r, c) => [quoted(rows[r]), " · ", columns ? quoted(columns[c]) : t("walk.column", { column: whole(left + c + 1) })];
    const matrix = new Matrix({
      label: t("walk.table", { name }), room: () => figure.clientWidth, kind, numbers: true,
      point: (r, c) => {
        matrix.mark(r, c);
        if (r === null || c === null) return;
        const value = values[r][c];
        this.readout.replaceChildren(make("i", name), "  ", ...place(r, c), " ", make("b", value === null ? "−∞" : short(value)));
      },
    });
    const mine = values[followed], shown = mine?.slice(0, columns ? mine.length : FIRST_NUMBERS).map((value) => (value === null ? "−∞" : short(value))).join("  ");
    const cutOff = sizes[0] > rows.length || sizes[1] > values[0].length;
    const figure = make("figure", { class: columns ? "wide" : null },
      make("figcaption", make("i", name), make("span.muted", ` ${sizes.join(" × ")}${cutOff ? ` · ${t("walk.part", { rows: values.length, columns: values[0].length })}` : ""}`), scale(kind, kind === "signed" ? "−" : "0", kind === "signed" ? "+" : "1")),
      make("div.scroller", matrix.element),
      mine ? make("p.numbers", quoted(rows[followed]), " ", shown, columns || mine.length <= FIRST_NUMBERS ? "" : " …") : null);
    // It can only be measured once it is in the page.
    figure.lay = () => {
      matrix.show(rows, columns, values);
      matrix.follow(followed);
    };
    return figure;
  }
}
