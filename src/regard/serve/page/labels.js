// Labels: what a model says of a text, or of each of its words, and how sure it is.

import { curl } from "./api.js";
import { debounce, make, neighbour, quoted, rove, visible } from "./dom.js";
import { bars, button, copyButton, details, empty, status, textField } from "./parts.js";
import { percent, t, whole } from "./words.js";

export const view = { id: "labels", suits: (model) => model.labels.length > 0, open: (root, app) => new Labels(root, app) };

const FIRST_TEXT = "Where is the next station?";
const SHOWN = 12; // labels that get a bar
const COLOURS = 8;

class Labels {
  constructor(root, app) {
    this.app = app;
    this.common = app.notesOf("common");
    this.common.text ??= FIRST_TEXT;
    this.place = `api/${app.model.task}`;
    this.later = debounce(() => this.ask(), 300);
    this.build(root);
    this.ask();
  }

  close() {
    this.later.cancel();
    this.status.stop();
  }

  build(root) {
    const { app, common } = this;
    const { box } = textField({ label: t("labels.text"), value: common.text, rows: 2, limit: app.limits.text, input: (text) => {
      common.text = text;
      this.later();
    } });
    this.panel = make("section.panel", { "aria-label": t("labels.menu") });
    this.status = status(this.panel);
    this.call = make("pre", { tabindex: "0", "aria-label": t("call") });
    this.announcer = make("div.unseen", { "aria-live": "polite" });
    root.append(make("div.ask", box, this.status.box), this.panel, this.announcer,
      make("div.more", details(t("call"), [this.call, copyButton(() => this.call.textContent)])));
  }

  ask() {
    this.later.cancel();
    const { common, app } = this, body = { model: app.model.id, text: common.text };
    this.call.textContent = curl(this.place, body);
    if (!common.text.trim()) {
      this.status.stop();
      this.panel.replaceChildren(empty(t("labels.empty")));
      return;
    }
    this.status.post(this.place, body, (answer) => {
      if (answer.words) this.drawWords(answer);
      else this.panel.replaceChildren(...this.drawChances(answer));
      this.announcer.textContent = answer.restored ?? answer.label ?? answer.words.map(({ label }) => label).join(" ");
    });
  }

  /** A bar for each label, the likeliest first: those whose names are numbers do not come in the order they were sent in. */
  drawChances({ probabilities }) {
    const all = Object.entries(probabilities).sort((one, other) => other[1] - one[1]), most = all.slice(0, SHOWN);
    const left = this.app.model.labels.length - most.length;
    return [
      make("ol.bars", { "aria-label": t("labels.chances") }, bars(most.map(([text, share]) => ({ text, share, figure: percent(share) })))),
      left ? make("p.hint", t("labels.left", { count: whole(left), share: percent(Math.max(0, 1 - most.reduce((sum, [, share]) => sum + share, 0))) })) : "",
    ];
  }

  drawWords({ words, restored }) {
    if (!words.length) return this.panel.replaceChildren(empty(t("labels.none")));
    const times = new Map();
    for (const { label } of words) times.set(label, (times.get(label) ?? 0) + 1);
    // In the order in which labels appear: only a text with more labels than there are colours has one twice.
    const order = [...times.keys()], colour = (label) => `head-${order.indexOf(label) % COLOURS}`;
    // No bdi around the words: the row takes the direction of the first of them.
    const row = make("div.tagged", { role: "group", "aria-label": t("labels.words"), dir: "auto" }), chances = make("div.chances");
    const choose = (i) => {
      [...row.children].forEach((each, at) => each.setAttribute("aria-pressed", String(at === i)));
      chances.replaceChildren(quoted(words[i].word), ...this.drawChances(words[i]));
    };
    row.append(...words.map(({ word, label }, i) => button([make("span", visible(word)), make("small", label)], () => choose(i), {
      class: colour(label), tabindex: i ? "-1" : "0",
    })));
    rove(row, "button", neighbour);
    const legend = [...times].sort((one, other) => other[1] - one[1]).map(([label, count]) => make("span", { class: `chip ${colour(label)}` }, `${label} · ${whole(count)}`));
    this.panel.replaceChildren(
      restored === null ? "" : make("div.restored", make("p.hint", t("labels.restored")), make("p", { dir: "auto" }, restored), copyButton(() => restored)),
      row, make("div.heads", { role: "group", "aria-label": t("labels.legend") }, legend), chances);
    return choose(0);
  }
}
