// Starts the page: which models there are, which view is open, and what holds for all of them.

import { get, onKeyNeeded } from "./api.js";
import { make } from "./dom.js";
import { readColours } from "./heat.js";
import { button, select } from "./parts.js";
import { VIEWS } from "./views.js";
import { chooseLanguage, currentLanguage, has, LANGUAGES, languageName, remember, startLanguage, t, whole } from "./words.js";

const $ = (id) => document.getElementById(id);
const local = () => localStorage, session = () => sessionStorage;
const THEMES = ["auto", "light", "dark"];

/** What views share: the model that was chosen, the server's limits, and what was typed where. */
const app = { models: [], model: null, limits: {}, version: "", notes: new Map(), go, choose, bring, notesOf, body, firstText };

let leave = () => {};
let theme = "auto";

/** What a view keeps about the chosen model while the reader looks elsewhere. `text` and `target` are common to all views. */
function notesOf(view, first = {}, model = app.model) {
  const place = `${view} ${model.id}`;
  if (!app.notes.has(place)) app.notes.set(place, { ...first });
  return app.notes.get(place);
}

/** What to begin with where nothing was typed: nothing for a model of music, which knows no words. */
function firstText(text) {
  return app.model.music ? "" : text;
}

/** What every request about a text says: the model and, where it knows several, the language to write. */
function body() {
  const targets = app.model.languages?.target ?? [];
  return { model: app.model.id, ...(targets.length > 1 ? { language: notesOf("common").language ?? targets[0] } : {}) };
}

const wanted = () => VIEWS.find((view) => `#${view.id}` === location.hash);
const firstFor = (model) => VIEWS.find((view) => view.suits(model)) ?? VIEWS[VIEWS.length - 1];

function go(id) {
  location.hash = id;
}

function choose(id) {
  app.model = app.models.find((model) => model.id === id) ?? app.models[0];
  remember(session, "regard.model", app.model.id);
  drawTop();
  open();
}

/** A text goes along to another model. */
function bring(text, model) {
  const common = notesOf("common", {}, model);
  if (text && text !== common.text) Object.assign(common, { text, target: "", first: null });
}

/** From the menu: a view that has nothing to show for this model gives way to one that has. */
function exchange(id) {
  const view = wanted(), model = app.models.find((each) => each.id === id);
  // What was typed for one job is no text for another.
  if (model.task === app.model.task && model.music === app.model.music) bring(notesOf("common").text, model);
  if (view && !view.suits(model)) history.replaceState(null, "", `#${firstFor(model).id}`);
  choose(id);
}

/** Models of one recipe have one name; then their ids tell them apart. */
const toldApart = (models) => models.map((model) => ({
  ...model, name: models.filter(({ name }) => name === model.name).length > 1 ? `${model.name} (${model.id})` : model.name,
}));

// ---- The frame

function drawTop() {
  $("skip").textContent = t("skip");
  const nav = $("nav");
  nav.setAttribute("aria-label", t("menu"));
  const current = wanted() ?? firstFor(app.model);
  nav.replaceChildren(...VIEWS.filter((view) => view === current || view.suits(app.model)).map((view) => make("a", {
    href: `#${view.id}`, "aria-current": view === current ? "page" : null,
  }, t(`${view.id}.menu`))));
  const models = app.models.map((model) => [model.id, model.name]);
  $("settings").replaceChildren(
    select({ label: t("model"), options: models, value: app.model.id, change: exchange, hideLabel: true }).box,
    select({ label: t("language"), options: Object.entries(LANGUAGES), value: currentLanguage(), change: speak, hideLabel: true }).box,
    themeButton(),
  );
  $("footer").replaceChildren(
    make("span", describe(app.model)),
    make("span", make("a", { href: "openapi.json" }, "OpenAPI"), ` · Regard ${app.version}`),
  );
}

function describe(model) {
  const { source, target } = model.languages ?? {};
  const sides = source && target?.length ? ` · ${languageName(source)} → ${target.map(languageName).join(", ")}` : "";
  const size = model.parameters == null ? "" : ` · ${t("parameters", { count: whole(model.parameters) })}`;
  return `${model.name} · ${model.kind}${sides}${size}`;
}

function speak(language) {
  chooseLanguage(language);
  drawTop();
  open();
  // The menu was drawn anew; whoever came here by keyboard stays where they were.
  $("settings").querySelectorAll("select")[1].focus();
}

function themeButton() {
  const self = button("", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    remember(local, "regard.theme", theme);
    applyTheme();
    dress();
    refresh();
  }, { class: "theme" });
  const dress = () => {
    const words = t("theme", { theme: t(`theme.${theme}`) });
    self.textContent = { auto: "◐", light: "○", dark: "●" }[theme];
    self.setAttribute("aria-label", words);
    self.title = words;
  };
  dress();
  return self;
}

function applyTheme() {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** Canvases do not follow the style sheet by themselves. */
function refresh() {
  readColours();
  document.dispatchEvent(new CustomEvent("colours"));
}

// ---- One view

function open() {
  leave();
  leave = () => {};
  const view = wanted() ?? firstFor(app.model);
  document.title = `${t(`${view.id}.menu`)} · ${app.model.name} · Regard`;
  const root = make("div", { class: `view ${view.id}` });
  $("main").replaceChildren(make("div.heading", make("h1", t(`${view.id}.${has(`${view.id}.title`) ? "title" : "menu"}`)), make("p.lead", t(`${view.id}.lead`))), root);
  if (view.suits(app.model)) {
    const page = view.open(root, app);
    leave = () => page.close();
  } else root.append(unsuited(view));
}

function unsuited(view) {
  const fitting = app.models.filter(view.suits), others = VIEWS.filter((other) => other.suits(app.model));
  return make("div.unsuited-note",
    make("p", t(`${view.id}.needs`, { model: app.model.name })),
    make("div.row",
      fitting.map((model) => button(t("use.model", { model: model.name }), () => choose(model.id), "primary")),
      others.map((other) => button(t(`${other.id}.menu`), () => go(other.id)))));
}

function turn() {
  drawTop();
  open();
  $("main").focus({ preventScroll: true });
  scrollTo(0, 0);
}

// ---- The key

function askForKey(refused) {
  const dialog = $("key-dialog");
  $("key-title").textContent = t("key.title");
  $("key-reason").textContent = `${refused ? `${t("key.wrong")} ` : ""}${t("key.reason")}`;
  $("key-label").textContent = t("key.label");
  $("key-send").textContent = t("key.send");
  $("key").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve($("key").value || null), { once: true });
  });
}

async function start() {
  startLanguage();
  theme = THEMES.find((name) => name === remember(local, "regard.theme")) ?? "auto";
  applyTheme();
  readColours();
  onKeyNeeded(askForKey);
  $("main").replaceChildren(make("p.notice", t("working")));
  try {
    const { models, default: first, limits, version } = await get("api/models");
    Object.assign(app, { models: toldApart(models), limits, version });
    addEventListener("hashchange", turn);
    // The address names the view, so the link to the content must not change it.
    $("skip").addEventListener("click", (event) => (event.preventDefault(), $("main").focus()));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
    choose(remember(session, "regard.model") ?? first);
  } catch (problem) {
    $("main").replaceChildren(make("div.notice", { role: "alert" },
      make("p", problem.message), button(t("again"), start, "primary")));
  }
}

start();
