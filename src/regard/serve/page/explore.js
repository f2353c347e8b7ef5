// Explore: what a language model would write next, and what temperature and top-k do to it.

import { isStopped, Problem, stream } from "./api.js";
import { debounce, make, neighbour, piece, rove, visible } from "./dom.js";
import { button, counter, lengthAndSeed, oddities, slider, status, textField } from "./parts.js";
import { number, percent, t, whole } from "./words.js";

export const view = { id: "explore", suits: (model) => model.task === "generate", open: (root, app) => new Explore(root, app) };

const FIRST_TEXT = "The meaning of life is";
const MOST_TOP_K = 100;
const SHOWN = 10;

class Explore {
  constructor(root, app) {
    this.app = app;
    this.common = app.notesOf("common");
    this.notes = app.notesOf("explore", { temperature: 1, topK: 0, seed: 1, tokens: Math.min(60, app.limits.tokens), history: [], surprise: false });
    this.common.text ??= app.firstText(FIRST_TEXT);
    this.later = debounce(() => this.look(), 250);
    this.frame = null;
    this.build(root);
    this.look();
  }

  close() {
    this.idle();
    this.generating?.abort();
  }

  /** Asks no more what it would show: an answer to an older text must not come in between. */
  idle() {
    this.later.cancel();
    this.status.stop();
    this.surpriseStatus.stop();
  }

  build(root) {
    const { app, notes, common } = this;
    const { area, box } = textField({ label: t("explore.text"), value: common.text, rows: 4, limit: app.limits.text, input: (text) => this.typed(text) });
    this.area = area;
    this.count = make("span.count");
    this.odd = make("span.facts", { role: "status" });
    this.bars = make("ol.bars.next");
    rove(this.bars, "button:enabled", neighbour);
    this.status = status(this.bars);
    this.summary = make("p.muted.summary");
    this.strip = make("p.strip", { dir: "auto", role: "group", "aria-label": t("explore.surprise"), hidden: true });
    rove(this.strip, ".token", neighbour);
    this.tokenNote = make("p.readout", { role: "status", hidden: true });
    this.cutNote = make("p.hint", { hidden: true });
    this.surpriseStatus = status(this.strip);
    root.append(make("div.explore-body",
      make("section.panel.so-far", box, this.buildEditing(), this.buildGenerating(), this.buildSurprise()),
      make("section.panel", { "aria-label": t("explore.next") }, make("h2", t("explore.next")), this.summary, this.buildSettings(), this.bars, this.status.box)));
  }

  buildEditing() {
    this.back = button(t("explore.back"), () => this.undo(), { disabled: true });
    this.clear = button(t("clear"), () => this.become("", true), "quiet");
    return make("div.row", this.back, this.clear, make("span.spring"), this.odd, this.count);
  }

  buildGenerating() {
    const { notes, app } = this;
    // Each stands where the other stood: a second click in a row was meant for that.
    const first = (act) => ({ detail }) => detail > 1 || act();
    this.write = button(t("explore.generate"), first(() => this.generate()), "primary");
    this.stop = button(t("explore.stop"), first(() => this.generating?.abort()), { class: "danger", hidden: true });
    this.ending = make("span.muted", { role: "status" });
    return make("div.row.generating", this.write, this.stop,
      lengthAndSeed(notes, app.limits), this.ending);
  }

  buildSurprise() {
    const { notes } = this, box = make("input", { type: "checkbox", onchange: () => {
      notes.surprise = box.checked;
      this.lookBack();
    } });
    box.checked = notes.surprise;
    return make("div.surprise", make("label.check", box, t("explore.surprise")), this.cutNote, this.strip, this.tokenNote, this.surpriseStatus.box);
  }

  buildSettings() {
    const { notes } = this, change = (key) => (value) => {
      notes[key] = value;
      this.later();
    };
    return make("div.sliders",
      slider({ label: t("explore.temperature"), min: 0.1, max: 2, step: 0.1, value: notes.temperature, shown: (value) => number(value, 1), input: change("temperature"), hint: t("explore.temperature.hint") }).box,
      slider({ label: t("explore.top_k"), min: 0, max: MOST_TOP_K, step: 1, value: notes.topK, shown: (value) => (value ? String(value) : t("explore.all")), input: change("topK"), hint: t("explore.top_k.hint") }).box);
  }

  // ---- The text so far

  typed(text) {
    this.common.text = text;
    this.later();
  }

  /** Puts another text in place, and remembers the one before. */
  become(text, now = false) {
    this.notes.history.push(this.common.text);
    this.common.text = text;
    this.show();
    if (now) this.look();
  }

  undo() {
    const before = this.notes.history.pop();
    if (before === undefined) return;
    this.common.text = this.area.value = before;
    this.look();
  }

  look() {
    this.later.cancel();
    if (this.write.hidden) return; // once it is written
    const { notes, common, app } = this;
    this.back.disabled = notes.history.length === 0;
    this.tally();
    const body = { model: app.model.id, text: common.text, temperature: notes.temperature, count: SHOWN, ...(notes.topK ? { top_k: notes.topK } : {}) };
    this.status.post("api/next", body, (answer) => this.drawBars(answer));
    this.lookBack();
  }

  tally() {
    this.count.textContent = counter(this.common.text.length, this.app.limits.text);
  }

  fits(text) {
    return this.common.text.length + text.length <= this.app.limits.text;
  }

  drawBars({ tokens, kept, entropy, flags }) {
    const had = this.bars.contains(document.activeElement);
    const most = Math.max(...tokens.map((token) => Math.max(token.probability, token.chance)), 1e-9);
    // Not every token can be appended; the first that can is where Tab leads.
    const use = ({ end, text }) => (end ? "over" : this.fits(text) ? "append" : "ended.full");
    const first = tokens.findIndex((token) => use(token) === "append");
    this.bars.replaceChildren(...tokens.map((token, i) => make("li", button([
      make("bdi.token-text", piece(token.text)),
      make("span.track", make("span.bar", { style: { "--share": (token.chance / most).toFixed(4) } }), make("span.tick", { style: { "--share": (token.probability / most).toFixed(4) } })),
      make("span.figure", percent(token.chance)),
    ], () => this.become(this.common.text + token.text, true), {
      tabindex: i === first ? "0" : "-1", class: token.chance === 0 ? "out" : null, disabled: use(token) !== "append",
      title: `${t("explore.token", { token: visible(token.text), chance: percent(token.chance), probability: percent(token.probability) })} ${t(`explore.${use(token)}`)}`,
    }))));
    if (had) this.bars.querySelector("button:enabled")?.focus();
    this.odd.replaceChildren(...oddities(flags));
    this.summary.textContent = t("explore.summary", { kept: whole(kept), entropy: number(entropy) });
  }

  // ---- Writing

  async generate() {
    const { notes, app } = this, mine = (this.generating = new AbortController());
    this.become(this.common.text);
    this.idle();
    this.turn(true);
    this.ending.textContent = t("explore.writing");
    const body = { model: app.model.id, text: this.common.text, max_tokens: notes.tokens, temperature: notes.temperature, seed: notes.seed, lines: app.model.running ? notes.tokens : 1, stream: true, ...(notes.topK ? { top_k: notes.topK } : {}) };
    try {
      for await (const { text = "", finish_reason } of stream("api/generate", body, mine.signal)) {
        const ended = this.fits(text) ? finish_reason : "full";
        if (ended) this.ending.textContent = t(`explore.ended.${ended}`);
        if (ended === "full") break;
        this.append(text);
      }
    } catch (error) {
      if (!isStopped(error) && !(error instanceof Problem)) throw error;
      this.ending.textContent = isStopped(error) ? t("explore.ended.stopped") : error.message;
    } finally {
      mine.abort(); // where no more fits, it would write on
      if (this.common.text === body.text) notes.history.pop();
      this.show();
      this.turn(false);
    }
    if (this.area.isConnected) this.look();
  }

  /** Shown once a frame: tokens may come faster than the browser sets a long text anew. */
  append(text) {
    this.common.text += text;
    this.frame ??= requestAnimationFrame(() => this.show());
  }

  show() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    this.area.value = this.common.text;
    this.area.scrollTop = this.area.scrollHeight;
    this.tally();
  }

  turn(writing) {
    this.area.readOnly = writing;
    this.bars.inert = this.clear.disabled = this.back.disabled = writing;
    for (const each of [this.status, this.surpriseStatus]) each.mark(writing);
    this.write.hidden = writing;
    this.stop.hidden = !writing;
    (writing ? this.stop : this.write).focus();
  }

  // ---- Looking back

  lookBack() {
    const on = this.notes.surprise && this.common.text !== "";
    this.strip.hidden = this.tokenNote.hidden = !on;
    this.cutNote.hidden ||= !on;
    if (!on) return this.surpriseStatus.stop();
    return this.surpriseStatus.post("api/tokens", { model: this.app.model.id, text: this.common.text }, ({ tokens, skipped }) => {
      this.tokenNote.textContent = t("explore.surprise.hint");
      this.cutNote.hidden = !skipped; // it would leave a gap
      this.cutNote.textContent = skipped ? t("explore.surprise.cut", { count: whole(tokens.length) }) : "";
      this.strip.replaceChildren(...tokens.flatMap((token, i) => {
        const read = () => this.readToken(token), ends = token.text === "\n";
        const self = button(ends ? visible(token.text) : token.text, read, { class: "token", tabindex: i ? "-1" : "0", style: { "--surprise": surprise(token.probability) }, onfocus: read, onpointerenter: read });
        return ends ? [self, make("br")] : self;
      }));
    });
  }

  readToken({ text, probability, rank, top }) {
    const best = top.slice(0, 4).flatMap(([other, share], i) => [i ? ", " : "", make("bdi.quoted", piece(other)), ` ${percent(share)}`]);
    this.tokenNote.replaceChildren(make("bdi.quoted", piece(text)), " ", make("b", percent(probability)), ` · ${t("explore.rank", { rank: whole(rank) })} · ${t("explore.instead")} `, ...best);
  }
}

/** From 0 for what was expected to 1 for what nobody would have guessed: −log₂ p, up to 12 bits. */
const surprise = (probability) => Math.min(1, -Math.log2(Math.max(probability, 1e-9)) / 12).toFixed(3);
