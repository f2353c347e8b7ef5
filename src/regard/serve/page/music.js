// Music: the model writes a piece, the page plays it, and lines show which notes it looked at.

import { clamp, make, makeSvg, save } from "./dom.js";
import { button, lengthAndSeed, picker, select, slider, status } from "./parts.js";
import { Player } from "./synth.js";
import { number, percent, t, whole } from "./words.js";

export const view = { id: "music", suits: (model) => model.music === true, open: (root, app) => new Music(root, app) };

const SECOND = 56, ROW = 7, HIGHEST = 400, LEAST = 4, AROUND = 3; // pixels of a second, a semitone, the whole roll, a short note, and from a note to its frame
const LARGEST = 180_000; // bytes of a primer: what a request has room for
const NAMES = ["C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B"];
const name = (pitch) => `${NAMES[pitch % 12]}${Math.floor(pitch / 12) - 1}`;

class Music {
  constructor(root, app) {
    this.app = app;
    this.notes = app.notesOf("music", { seed: 1, tokens: app.limits.tokens, temperature: 1, layer: "", primer: null, hidden: [] });
    this.player = new Player((seconds) => this.moved(seconds), () => this.dress());
    this.build(root);
    if (this.notes.answer) this.draw(this.notes.answer);
  }

  close() {
    this.status.stop();
    this.player.close();
  }

  build(root) {
    this.roll = make("div.roll", { role: "group", tabindex: "0", "aria-label": t("music.roll"), onkeydown: (event) => this.key(event), onclick: (event) => this.clicked(event), onpointermove: (event) => this.pointed(event) });
    this.status = status(this.roll);
    this.readout = make("p.readout", { role: "status" });
    this.facts = make("span.muted");
    this.heads = make("div.heads", { role: "group", "aria-label": t("music.heads") });
    root.append(this.buildSettings(), this.status.box, make("section.panel", { "aria-label": t("music.roll") }, this.buildPlaying(), this.heads, this.readout, this.roll));
    this.dress();
  }

  buildSettings() {
    const { notes, app } = this, layers = app.model.attention.find((stack) => stack.name === "decoder")?.layers ?? 0;
    const which = [["", t("music.last")], ...Array.from({ length: layers }, (_, layer) => [String(layer), String(layer + 1)])];
    this.primed = make("span.muted", { role: "status" }, notes.primer?.name ?? "");
    this.forget = button(t("music.forget"), () => this.prime(null), { class: "quiet", hidden: notes.primer === null });
    return make("section.panel", { "aria-label": t("music.settings") }, make("div.row",
      button(t("music.write"), () => this.write(), "primary"),
      lengthAndSeed(notes, app.limits),
      slider({ label: t("explore.temperature"), min: 0.1, max: 2, step: 0.05, value: notes.temperature, shown: (value) => number(value, 2), input: (value) => (notes.temperature = value) }).box,
      layers ? select({ label: t("music.layer"), options: which, value: notes.layer, change: (value) => (notes.layer = value) }).box : null,
      picker({ label: t("music.primer"), accept: ".mid,.midi,audio/midi", use: ([file]) => this.prime(file) }), this.primed, this.forget));
  }

  buildPlaying() {
    this.plays = button(t("music.play"), () => this.toggle(), "primary");
    this.place = slider({ label: t("music.place"), min: 0, max: 0, step: 0.1, value: 0, shown: (value) => `${number(value, 1)} s`, input: (value) => this.player.seek(value) });
    this.midi = button(t("music.save"), () => this.save(), "quiet");
    return make("div.row", this.plays, this.place.box, this.midi, make("span.spring"), this.facts);
  }

  // ---- Asking

  async prime(file) {
    if (file?.size > LARGEST) {
      this.primed.textContent = t("music.large", { most: whole(LARGEST), size: whole(file.size) });
      return;
    }
    const { notes } = this;
    notes.primer = file ? { name: file.name, data: encode(await file.arrayBuffer()) } : null;
    this.primed.textContent = notes.primer?.name ?? "";
    this.forget.hidden = notes.primer === null;
  }

  write() {
    const { notes, app } = this;
    this.player.pause();
    const body = { model: app.model.id, seed: notes.seed, max_tokens: notes.tokens, temperature: notes.temperature, ...(notes.layer === "" ? {} : { layer: Number(notes.layer) }), ...(notes.primer ? { primer: notes.primer.data } : {}) };
    this.status.post("api/music", body, (answer) => {
      notes.answer = answer;
      this.draw(answer);
    });
  }

  save() {
    const bytes = Uint8Array.from(atob(this.notes.answer.midi), (character) => character.charCodeAt(0));
    save(new Blob([bytes], { type: "audio/midi" }), `${this.app.model.id}-${this.notes.answer.seed}.mid`);
  }

  // ---- The piano roll

  draw(answer) {
    const primed = new Set(answer.primed), pitches = answer.notes.map((note) => note[2]);
    this.answer = answer;
    this.high = Math.max(...pitches, 60) + 2;
    const low = Math.min(...pitches, 60) - 2;
    this.player.load(answer.notes);
    const count = this.high - low + 1;
    this.row = Math.min(ROW, HIGHEST / count);
    this.roll.hidden = false;
    const width = Math.max(this.player.length * SECOND + 24, this.roll.clientWidth), height = count * this.row;
    const dark = Array.from({ length: count }, (_, i) => low + i).filter((pitch) => [1, 3, 6, 8, 10].includes(pitch % 12));
    this.boxes = answer.notes.map(([start, duration, pitch, velocity], i) => makeSvg("rect", {
      class: primed.has(i) ? "note primed" : "note", x: start * SECOND, y: this.y(pitch), width: Math.max(duration * SECOND - 1, LEAST), height: this.row - 1, rx: 1.5, "data-note": i, style: { "--loud": (0.4 + (0.6 * velocity) / 127).toFixed(2) },
    }));
    this.frame = makeSvg("rect", { class: "frame", rx: 3.5 });
    this.lines = makeSvg("g", { class: "looks" });
    this.head = makeSvg("line", { class: "playhead", x1: 0, x2: 0, y1: 0, y2: height });
    this.roll.replaceChildren(makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      dark.map((pitch) => makeSvg("rect", { class: "black", x: 0, y: this.y(pitch) - 0.5, width, height: this.row })), this.boxes, this.lines, this.head));
    this.byNote = grouped(answer.attention?.lines ?? []);
    this.place.range.max = this.player.length.toFixed(1);
    this.facts.textContent = t("music.facts", { notes: whole(answer.notes.length), seconds: number(this.player.length, 0), seed: answer.seed });
    this.drawHeads();
    this.choose(null);
    this.dress();
  }

  y(pitch) {
    return (this.high - pitch) * this.row + 0.5;
  }

  drawHeads() {
    const { hidden } = this.notes, count = this.answer.attention?.heads ?? 0;
    this.heads.replaceChildren(...Array.from({ length: count }, (_, head) => button(t("music.head", { head: head + 1 }), (event) => {
      if (hidden.includes(head)) hidden.splice(hidden.indexOf(head), 1);
      else hidden.push(head);
      event.currentTarget.setAttribute("aria-pressed", String(!hidden.includes(head)));
      this.choose(this.chosen);
    }, { class: `chip head-${head % 8}`, "aria-pressed": String(!hidden.includes(head)) })));
  }

  /** Shows what was looked at when a note was written; colour by head, width by weight. */
  choose(note) {
    this.boxes?.[this.chosen]?.classList.remove("chosen");
    this.frame?.remove();
    this.chosen = note;
    const box = this.boxes?.[note], seen = (this.byNote?.get(note) ?? []).filter(([, , head]) => !this.notes.hidden.includes(head));
    this.lines?.replaceChildren(...seen.filter(([one, other]) => one !== other).map((line) => this.line(line)));
    if (!box) {
      this.readout.textContent = this.answer ? t("music.point") : t("music.empty");
      return;
    }
    box.classList.add("chosen");
    for (const [side, more] of [["x", -AROUND], ["y", -AROUND], ["width", 2 * AROUND], ["height", 2 * AROUND]]) this.frame.setAttribute(side, Number(box.getAttribute(side)) + more);
    this.lines.before(this.frame, box); // above the neighbours
    const [start, , pitch] = this.answer.notes[note];
    const best = [...seen].sort((one, other) => other[3] - one[3]).slice(0, 4);
    const looked = best.map(([, other, head, weight]) => t("music.looked", { note: name(this.answer.notes[other][2]), seconds: number(this.answer.notes[other][0], 1), head: head + 1, share: percent(weight) }));
    this.readout.textContent = `${name(pitch)}, ${number(start, 1)} s · ${looked.join(" · ") || t("music.nothing")}`;
  }

  line([one, other, head, weight]) {
    const [from, to] = [one, other].map((i) => this.answer.notes[i]), x = from[0] * SECOND, toX = to[0] * SECOND + 2;
    const y = this.y(from[2]) + this.row / 2, toY = this.y(to[2]) + this.row / 2, high = Math.max(4, Math.min(y, toY) - 20 - Math.abs(x - toX) / 8);
    // For each head another arc: several may look at the same note.
    const aside = (head * Math.min(10, 120 / this.answer.attention.heads)) / Math.max(Math.hypot(toX - x, toY - y), 1);
    return makeSvg("path", { class: `look head-${head % 8}`, "stroke-width": (0.75 + 5 * weight).toFixed(2), d: `M${x} ${y}Q${(x + toX) / 2 + (toY - y) * aside} ${high + Math.abs(toX - x) * aside} ${toX} ${toY}` });
  }

  // ---- Playing

  async toggle() {
    if (this.player.playing) this.player.pause();
    else await this.player.play();
    this.dress();
  }

  dress() {
    const any = Boolean(this.answer?.notes.length);
    this.plays.textContent = t(this.player.playing ? "music.pause" : "music.play");
    this.plays.disabled = this.midi.disabled = this.place.range.disabled = !any;
    this.roll.hidden = !any;
    if (!this.answer) this.readout.textContent = t("music.empty");
    else if (!any) this.readout.textContent = t("music.silence");
  }

  moved(seconds) {
    if (!this.head) return;
    const x = seconds * SECOND;
    this.place.set(seconds.toFixed(1));
    this.place.range.setAttribute("aria-valuetext", `${number(seconds, 1)} s`);
    this.head.setAttribute("x1", x);
    this.head.setAttribute("x2", x);
    if (!this.player.playing) return;
    const { scrollLeft, clientWidth } = this.roll;
    if (x < scrollLeft || x > scrollLeft + clientWidth * 0.8) this.roll.scrollLeft = x - clientWidth * 0.2;
    const last = this.answer.notes.findLastIndex(([start]) => start <= seconds);
    if (last >= 0 && last !== this.chosen) this.choose(last);
  }

  pointed(event) {
    const note = event.target.dataset?.note;
    if (note !== undefined && !this.player.playing && Number(note) !== this.chosen) this.choose(Number(note));
  }

  clicked(event) {
    const note = event.target.dataset?.note;
    if (note === undefined) return;
    this.player.seek(this.answer.notes[note][0]);
    this.choose(Number(note));
  }

  key(event) {
    if (!this.boxes?.length || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], end = { Home: 0, End: this.boxes.length - 1 }[event.key];
    if (step === undefined && end === undefined) return;
    event.preventDefault();
    this.choose(end ?? clamp((this.chosen ?? (step > 0 ? -1 : 1)) + step, 0, this.boxes.length - 1));
    this.boxes[this.chosen].scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function grouped(lines) {
  const found = new Map();
  for (const line of lines) found.set(line[0], [...(found.get(line[0]) ?? []), line]);
  return found;
}

function encode(buffer) {
  let text = "";
  for (const byte of new Uint8Array(buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}
