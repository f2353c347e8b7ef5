// Translate: two panes, live as one types; a click on a word of the translation offers others in its place.

import { curl, curlFile, isStopped, post, postForm, Problem } from "./api.js";
import { hasTags, sameLanguage, wayBack } from "./directions.js";
import { clamp, debounce, make, neighbour, quoted, rove, save } from "./dom.js";
import { bars, button, copyButton, counter, details, examples, oddities, picker, ranked, select, slider, status, textField } from "./parts.js";
import { tries } from "./tries.js";
import { languageName, number, percent, t, whole } from "./words.js";

export const view = { id: "translate", suits: (model) => model.task === "translate", open: (root, app) => new Translate(root, app) };

const ACCEPTED = ".txt,.srt,.html,.htm,.docx,.tmx";
const nothing = () => ({ asked: "", answer: null, chosen: 0, rewritten: [] });
const SURE = 80; // percent, from which on a text is taken for one of another language
const UNSPACED = new Set(["zh", "ja", "th", "lo", "km", "my"]);

/** A text cut where a reader would: words to click on, and what stands between them. */
function cut(text, language) {
  if (UNSPACED.has(language?.slice(0, 2)) && "Segmenter" in Intl) {
    return [...new Intl.Segmenter(language, { granularity: "word" }).segment(text)].map(({ segment, index }) => ({ text: segment, start: index, word: segment.trim() !== "" }));
  }
  return [...text.matchAll(/\s+|\S+/gu)].map((found) => ({ text: found[0], start: found.index, word: found[0].trim() !== "" }));
}

/** Where in a translation each sentence of the source is: other words are sought within one sentence. */
function sentences(text, segments) {
  let end = 0;
  return segments.map(({ source, text: part }, index) => {
    const start = text.indexOf(part, end);
    if (start >= 0) end = start + part.length;
    return { source, index, start, end };
  }).filter(({ start }) => start >= 0);
}

class Translate {
  constructor(root, app) {
    this.app = app;
    this.common = app.notesOf("common");
    this.common.language ??= app.model.languages?.target?.[0] ?? null;
    this.common.text ??= "";
    this.notes = app.notesOf("translate", { beam: Math.min(4, app.limits.beam), alpha: 0.6, nbest: Math.min(4, app.limits.nbest), html: false, ...nothing() });
    // The text may have come from another model since.
    if (this.notes.asked !== this.common.text) Object.assign(this.notes, nothing());
    this.later = debounce(() => (this.translate(), this.guess()), 280);
    this.build(root);
    this.drawAnswer();
    this.drawHints();
    if (this.common.text && !this.notes.answer) this.translate();
    this.guess();
  }

  close() {
    this.later.cancel();
    this.status.stop();
    this.filing?.abort();
    this.asking?.abort();
    this.guessing?.abort();
    document.removeEventListener("pointerdown", this.outside);
  }

  build(root) {
    this.output = make("div.output", { dir: "auto", role: "group", "aria-label": t("translate.output"), onscroll: () => this.closeMenu(false) });
    rove(this.output, ".word", neighbour);
    this.announcer = make("div.unseen", { "aria-live": "polite" });
    this.facts = make("div.facts");
    this.others = make("div.others");
    this.status = status(this.output, this.facts, this.others);
    this.call = make("pre", { tabindex: "0", "aria-label": t("call") });
    this.files = make("div.files");
    this.menu = make("div.alternatives", { role: "dialog", "aria-label": t("translate.alternatives"), hidden: true });
    this.outside = (event) => !this.menu.contains(event.target) && !event.target.closest?.(".word") && this.closeMenu(false);
    document.addEventListener("pointerdown", this.outside);
    root.append(
      make("div.panes", this.buildSource(), make("section.pane.target", { "aria-label": t("translate.target") }, this.buildTargetHead(), this.output, this.menu, this.status.box, make("div.pane-foot", this.facts, this.undoButton(), copyButton(() => this.shown()?.text ?? "")))),
      this.files, this.others, make("div.more", this.buildSettings(), details(t("call"), [this.call, copyButton(() => this.call.textContent)])),
      this.announcer,
    );
    root.addEventListener("keydown", (event) => event.key === "Escape" && !this.menu.hidden && this.closeMenu(true));
    this.acceptDrops(root);
  }

  buildSource() {
    const { app, common } = this, { area, box } = textField({
      label: t("translate.input"), value: common.text, rows: 5, limit: app.limits.text, placeholder: t("translate.placeholder"),
      input: (text) => this.typed(text),
    });
    this.area = area;
    area.lang = app.model.languages?.source ?? "";
    box.querySelector("label").className = "unseen";
    this.count = make("span.count", counter(common.text.length, app.limits.text));
    const source = app.model.languages?.source;
    const known = tries(app.model);
    this.tries = examples(known.map((text) => [text]), (text) => this.use(text));
    this.tries.hidden = Boolean(common.text) || !known.length;
    this.hints = make("div.hints.row", { role: "status" });
    this.turn = button("⇄", () => this.turnRound(common.target || common.text), "turn");
    this.drawTurn();
    return make("section.pane.source", { "aria-label": t("translate.source") },
      make("div.pane-head", make("h2", source ? languageName(source) : t("translate.source")), this.turn),
      box, this.tries, this.hints,
      make("div.pane-foot", this.count, make("span.spring"),
        picker({ label: t("translate.file"), accept: ACCEPTED, use: (files) => this.translateFiles(files) }),
        button(t("clear"), () => this.use(""), "quiet")));
  }

  buildTargetHead() {
    const targets = this.app.model.languages?.target ?? [], head = make("div.pane-head");
    if (targets.length > 1) {
      head.append(select({ label: t("translate.target"), hideLabel: true, options: targets.map((code) => [code, languageName(code)]), value: this.common.language, change: (code) => {
        this.common.language = code;
        this.drawTurn();
        this.translate();
        this.guess();
      } }).box);
    } else head.append(make("h2", targets.length ? languageName(targets[0]) : t("translate.target")));
    return head;
  }

  buildSettings() {
    const { notes, app } = this, change = (key) => (value) => this.change({ [key]: value });
    return details(t("translate.search"), make("div.sliders",
      slider({ label: t("beam.width"), min: 1, max: app.limits.beam, step: 1, value: notes.beam, input: change("beam") }).box,
      slider({ label: t("beam.alpha"), min: 0, max: 2, step: 0.1, value: notes.alpha, shown: (value) => number(value, 1), input: change("alpha") }).box,
      slider({ label: t("translate.nbest"), min: 1, max: app.limits.nbest, step: 1, value: notes.nbest, input: change("nbest") }).box));
  }

  undoButton() {
    this.undo = button(t("undo"), () => {
      this.notes.rewritten.pop();
      this.drawAnswer();
    }, { class: "quiet", hidden: true });
    return this.undo;
  }

  // ---- The other direction

  drawTurn() {
    const { app: { models, model }, common: { language } } = this;
    this.back = wayBack(models, model, language);
    this.turn.hidden = !this.back;
    if (!this.back) return;
    this.turn.title = t("translate.turn", { source: languageName(language), target: languageName(model.languages.source) });
    this.turn.setAttribute("aria-label", this.turn.title);
  }

  /** To the model for the other direction, with a text for it. */
  turnRound(text) {
    const { app, back } = this, { source } = app.model.languages;
    app.bring(text.slice(0, app.limits.text), back);
    app.notesOf("common", {}, back).language = back.languages.target.find((code) => sameLanguage(code, source));
    app.choose(back.id);
    // The view was drawn anew; whoever came here by keyboard stays where they were.
    document.querySelector(".turn").focus();
  }

  /** Whether the text is in the language to write: then the other direction is meant. */
  async guess() {
    this.guessing?.abort();
    const { back, common: { text, language } } = this, mine = (this.guessing = new AbortController());
    let found = [];
    try {
      if (back && text.trim()) found = await post("detect", { q: text }, mine.signal);
    } catch (error) {
      if (isStopped(error)) return;
      if (!(error instanceof Problem)) throw error; // what is not known is not told
    }
    this.foreign = found[0]?.confidence >= SURE && sameLanguage(found[0].language, language);
    this.drawHints();
  }

  /** What the text may be instead of what it is taken for; a click on it takes it so. */
  drawHints() {
    const { common: { text, language }, back, notes } = this, hints = [];
    if (this.foreign && text) hints.push(button(t("translate.foreign", { language: languageName(language), model: back.name }), () => this.turnRound(text), "chip"));
    if (hasTags(text)) {
      const html = button(t("translate.html"), () => {
        html.setAttribute("aria-pressed", String((notes.html = !notes.html)));
        this.translate();
      }, { class: "chip", "aria-pressed": String(notes.html) });
      hints.push(html);
    }
    this.hints.replaceChildren(...hints);
  }

  // ---- Asking

  request() {
    const { beam, alpha, nbest } = this.notes;
    return { ...this.app.body(), text: this.common.text, beam: Math.max(beam, nbest), alpha, nbest };
  }

  use(text) {
    this.area.value = text;
    this.area.focus();
    this.typed(text);
  }

  typed(text) {
    Object.assign(this.common, { text, target: "", first: null });
    this.count.textContent = counter(text.length, this.app.limits.text);
    if (text.length >= this.app.limits.text) this.announcer.textContent = this.count.textContent;
    this.tries.hidden = Boolean(text) || !this.tries.querySelector("button");
    this.closeMenu(false);
    this.drawHints();
    this.status.mark(true);
    this.later();
  }

  change(settings) {
    Object.assign(this.notes, settings);
    this.later();
  }

  translate() {
    this.later.cancel();
    const { text } = this.common, body = this.request();
    if (!text.trim()) {
      this.status.stop();
      Object.assign(this.notes, nothing());
      this.drawAnswer();
      return;
    }
    this.status.ask((signal) => (this.asHtml() ? this.translateHtml(text, signal) : post("api/translate", body, signal)), (answer) => {
      Object.assign(this.notes, { asked: text, answer, chosen: 0, rewritten: [] });
      this.drawAnswer();
      this.announcer.textContent = t("translate.said", { text: this.shown()?.text ?? "" });
    });
  }

  asHtml() {
    return this.notes.html && hasTags(this.common.text);
  }

  /** As a file of HTML would be: its tags stay. Which words belong to which sentence is not told. */
  async translateHtml(text, signal) {
    const { blob, flags } = await postForm("api/documents", this.form(new File([text], "text.html", { type: "text/html" })), signal);
    return { translations: [{ text: await blob.text(), score: null, segments: [] }], flags };
  }

  /** What stands in the right pane: one of the translations, or one the reader has steered. */
  shown() {
    const { answer, chosen, rewritten } = this.notes;
    return rewritten[rewritten.length - 1] ?? answer?.translations[chosen] ?? null;
  }

  several() {
    return this.notes.answer?.segments?.length > 1;
  }

  /** The sentences of the source and their translations. Of several, only the best translation is known by sentence. */
  segments() {
    const { answer, chosen } = this.notes, shown = this.shown();
    return shown?.segments ?? (!this.several() ? [{ source: this.common.text, text: shown?.text }] : chosen ? [] : answer.segments);
  }

  // ---- Showing

  drawAnswer() {
    const { answer, rewritten } = this.notes, shown = this.shown();
    this.common.target = shown?.text ?? "";
    // Views that look at one sentence look at the first.
    this.common.first = this.several() ? this.segments()[0] ?? answer.segments[0] : null;
    this.output.lang = this.common.language ?? "";
    this.output.replaceChildren(...(shown ? this.drawWords(shown.text, rewritten.length ? shown.from : -1) : [make("span.empty", t("translate.empty"))]));
    this.undo.hidden = rewritten.length === 0;
    this.facts.replaceChildren(...(shown ? [
      ...(shown.score === null ? [] : [make("span", { title: t("score.hint") }, t("score"), " ", make("b", number(shown.score)))]),
      ...(answer?.milliseconds !== undefined ? [make("span", t("milliseconds", { count: whole(Math.round(answer.milliseconds)) }))] : []),
      ...oddities(answer?.flags),
    ] : []));
    this.call.textContent = this.asHtml() ? curlFile("api/documents", "text.html", this.app.body()) : curl("api/translate", this.request());
    this.drawOthers();
  }

  drawWords(text, from) {
    const parts = sentences(text, this.segments());
    let first = true;
    return cut(text, this.common.language).map(({ text: part, start, word }) => {
      const sentence = word && parts.find((each) => each.start <= start && start < each.end);
      if (!sentence) return part;
      const tabindex = first ? "0" : "-1";
      first = false;
      return button(part, (event) => this.offer(event.currentTarget, start, sentence), { class: start === from ? "word steered" : "word", tabindex, "aria-haspopup": "dialog" });
    });
  }

  drawOthers() {
    const { answer, chosen, rewritten } = this.notes, all = answer?.translations ?? [];
    if (all.length < 2) return this.others.replaceChildren();
    const rows = ranked(all, (i) => {
      Object.assign(this.notes, { chosen: i, rewritten: [] });
      this.drawAnswer();
    });
    rows.forEach((row, i) => row.firstChild.setAttribute("aria-pressed", String(i === chosen && rewritten.length === 0)));
    return this.others.replaceChildren(make("h2", t("translate.others")), make("ol.ranked", rows));
  }

  // ---- Other words

  async offer(word, start, sentence) {
    this.closeMenu(false);
    // With the space that is before the word: without it, the model could also go on inside the last one.
    const prefix = this.shown().text.slice(sentence.start, start), mine = (this.asking = new AbortController());
    this.opener = word;
    word.classList.add("open");
    this.placeMenu(word);
    this.menu.replaceChildren(make("p.muted", t("working")));
    try {
      const body = { ...this.app.body(), text: sentence.source, prefix, count: 8 };
      const { alternatives } = await post("api/alternatives", body, mine.signal);
      this.drawMenu(alternatives, start, sentence);
    } catch (error) {
      if (isStopped(error)) return;
      if (!(error instanceof Problem)) throw error;
      this.menu.replaceChildren(make("p.failed", error.message));
    }
  }

  drawMenu(alternatives, start, sentence) {
    const list = make("ul.bars", bars(
      alternatives.map(({ text, probability, translation }) => ({ text, share: probability, figure: percent(probability), title: translation })),
      (i) => this.take(alternatives[i], start, sentence)));
    rove(list, "button", neighbour);
    this.menu.replaceChildren(make("p.muted", t("translate.instead", { word: this.opener.textContent })), alternatives.length ? list : t("translate.none"));
    this.placeMenu(this.opener);
    list.querySelector("button")?.focus();
  }

  placeMenu(word) {
    this.menu.hidden = false;
    const pane = this.menu.parentElement.getBoundingClientRect(), box = word.getBoundingClientRect(), wide = this.menu.offsetWidth;
    this.menu.style.left = `${clamp(box.left - pane.left - 12, 8, Math.max(8, pane.width - wide - 8))}px`;
    this.menu.style.top = `${box.bottom - pane.top + 6}px`;
  }

  closeMenu(giveBack) {
    this.asking?.abort();
    this.menu.hidden = true;
    this.opener?.classList.remove("open");
    if (giveBack) this.opener?.focus();
  }

  take({ translation, score }, from, { index, start, end }) {
    this.closeMenu(false);
    const segments = this.segments().map((each, i) => (i === index ? { ...each, text: translation } : each)), { text } = this.shown();
    // The score is that of one sentence; there is none for several of which one was steered.
    this.notes.rewritten.push({ text: text.slice(0, start) + translation + text.slice(end), score: segments.length > 1 ? null : score, from, segments });
    this.drawAnswer();
    this.announcer.textContent = t("translate.said", { text: translation });
    (this.output.querySelector(".steered") ?? this.output.querySelector(".word"))?.focus();
  }

  // ---- Files

  acceptDrops(root) {
    const carries = (event) => event.dataTransfer?.types.includes("Files");
    const veil = make("div.veil", { "aria-hidden": "true" }, t("translate.drop"));
    root.append(veil);
    root.addEventListener("dragover", (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      root.classList.add("dropping");
    });
    root.addEventListener("dragleave", (event) => !root.contains(event.relatedTarget) && root.classList.remove("dropping"));
    root.addEventListener("drop", (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      root.classList.remove("dropping");
      this.translateFiles(event.dataTransfer.files);
    });
  }

  form(file) {
    const form = new FormData();
    form.append("file", file);
    for (const [name, value] of Object.entries(this.app.body())) form.append(name, value);
    return form;
  }

  async translateFiles(files) {
    this.filing ??= new AbortController();
    for (const file of [...files]) await this.translateFile(file);
  }

  async translateFile(file) {
    const row = make("p.file", { role: "status" }, quoted(file.name), " ", make("span.muted", t("translate.filing")));
    this.files.append(row);
    row.scrollIntoView({ block: "nearest" });
    try {
      const { blob, name, flags } = await postForm("api/documents", this.form(file), this.filing.signal);
      const called = name ?? file.name;
      row.replaceChildren(quoted(file.name), " ", make("span.muted", t("translate.filed")), ...oddities(flags), " ", button(t("save.file", { name: called }), () => save(blob, called), "primary"));
    } catch (error) {
      if (isStopped(error)) return;
      if (!(error instanceof Problem)) throw error;
      row.classList.add("failed");
      const told = error.message.startsWith(file.name.slice(-100));
      row.replaceChildren(...(told ? [] : [quoted(file.name)]), make("span", error.message));
    }
  }
}
