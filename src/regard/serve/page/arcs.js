// Two columns of tokens with lines between them: the thicker, the larger the weight.

import { clamp, make, visible } from "./dom.js";
import { number, t } from "./words.js";

const FAINTEST = 0.03;

/** `point` hears which token the reader is at: (query, null), (null, key) or (null, null); `pick` which was chosen. */
export class Arcs {
  constructor({ point, pick }) {
    Object.assign(this, { point, pick });
    this.queries = make("div.words.left", { role: "listbox", "aria-label": t("attention.lookers") });
    this.keys = make("div.words.right", { role: "listbox", "aria-label": t("attention.looked") });
    this.all = make("canvas");
    this.traced = make("canvas");
    this.threads = make("div.threads", { "aria-hidden": "true" }, this.all, this.traced);
    this.element = make("div.arcs",
      make("div.arc-head.left", t("attention.token")), make("div"), make("div.arc-head.right", t("attention.looks")),
      this.queries, this.threads, this.keys);
    this.listen();
  }

  show(queries, keys, values) {
    this.values = values;
    const most = Math.max(queries.length, keys.length);
    this.pitch = most <= 32 ? 27 : 19;
    this.element.style.setProperty("--line", `${this.pitch}px`);
    this.fill(this.queries, queries, "query");
    this.fill(this.keys, keys, "key");
    this.threads.style.height = `${most * this.pitch}px`;
    this.redraw();
  }

  fill(list, labels, side) {
    list.replaceChildren(...labels.map((label, i) => make("div", {
      role: "option", tabindex: i ? "-1" : "0", "aria-selected": "false", "data-side": side, "data-place": i, title: label,
    }, make("bdi", visible(label)), make("i"))));
  }

  redraw() {
    this.draw(this.all, "--accent", 0, (each) => {
      this.values.forEach((row, q) => row.forEach((weight, k) => weight >= FAINTEST && each(q, k, weight)));
    });
  }

  draw(canvas, colour, firmness, each) {
    const width = this.threads.clientWidth, height = this.threads.clientHeight;
    // Browsers refuse canvases beyond 16384 pixels a side; a very long list is drawn a little coarser.
    const scale = Math.min(devicePixelRatio, 16000 / Math.max(1, height)), pen = canvas.getContext("2d");
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    canvas.style.color = `var(${colour})`;
    pen.strokeStyle = getComputedStyle(canvas).color;
    pen.lineCap = "round";
    const rtl = getComputedStyle(this.element).direction === "rtl";
    each((query, key, weight) => {
      const from = (query + 0.5) * this.pitch, to = (key + 0.5) * this.pitch, [a, b] = rtl ? [width - 3, 3] : [3, width - 3];
      pen.globalAlpha = clamp(0.06 + firmness + 0.84 * weight, 0, 1);
      pen.lineWidth = 0.75 + firmness + 4.25 * weight;
      pen.beginPath();
      pen.moveTo(a, from);
      pen.bezierCurveTo(a + (b - a) * 0.45, from, a + (b - a) * 0.55, to, b, to);
      pen.stroke();
    });
  }

  mark(query, key) {
    const seen = query === null ? null : this.values[query];
    const seers = query === null && key !== null ? this.values.map((row) => row[key]) : null;
    this.shade(this.keys, seen, key);
    this.shade(this.queries, seers, query);
    this.threads.classList.toggle("tracing", query !== null || key !== null);
    this.draw(this.traced, "--mark", 0.25, (each) => {
      seen?.forEach((weight, k) => weight >= 0.005 && (key === null || k === key) && each(query, k, weight));
      seers?.forEach((weight, q) => weight >= 0.005 && each(q, key, weight));
    });
  }

  shade(list, weights, chosen) {
    [...list.children].forEach((word, i) => {
      const weight = weights?.[i] ?? 0;
      word.style.setProperty("--weight", weight.toFixed(3));
      word.lastChild.textContent = weight >= 0.02 ? number(weight) : "";
      word.classList.toggle("on", i === chosen);
      word.setAttribute("aria-selected", String(i === chosen));
    });
  }

  listen() {
    const under = (event) => {
      const word = event.target.closest("[data-side]"), place = Number(word?.dataset.place);
      return word ? (word.dataset.side === "query" ? [place, null] : [null, place]) : null;
    };
    const { element } = this;
    element.addEventListener("pointerover", (event) => under(event) && this.point(...under(event)));
    element.addEventListener("click", (event) => under(event) && this.pick(...under(event)));
    element.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && under(event) && this.point(...under(event)));
    element.addEventListener("pointerleave", () => this.point(null, null));
    element.addEventListener("focusout", () => this.point(null, null));
    element.addEventListener("keydown", (event) => this.move(event, under(event)));
  }

  move(event, at) {
    if (!at) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick(...at);
    }
    const step = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: 0, ArrowRight: 0 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const list = event.key === "ArrowLeft" ? this.queries : event.key === "ArrowRight" ? this.keys : event.target.parentElement;
    const next = list.children[clamp(Number(event.target.dataset.place) + step, 0, list.children.length - 1)];
    for (const other of list.children) other.tabIndex = other === next ? 0 : -1;
    next.focus();
  }
}
