// The words of the interface in three languages, and numbers written the way each of them does.

import * as WORDS from "./words-table.js";

export const LANGUAGES = { en: "English", de: "Deutsch", zh: "中文" };
const COLUMNS = Object.keys(LANGUAGES);
const PLACE = "regard.language";

let language = "en";

/** Storage can be forbidden; the page then forgets, and works all the same. */
export function remember(store, place, value) {
  try {
    if (value === undefined) return store().getItem(place);
    store().setItem(place, value);
  } catch {
    // nothing to do: the choice lasts until the page is closed
  }
  return null;
}

const local = () => localStorage;

export function startLanguage() {
  const known = [remember(local, PLACE), ...navigator.languages.map((name) => name.slice(0, 2))];
  choose(known.find((name) => name in LANGUAGES) ?? "en");
}

function choose(name) {
  language = name;
  document.documentElement.lang = name === "zh" ? "zh-Hans" : name;
}

export function chooseLanguage(name) {
  choose(name);
  remember(local, PLACE, name);
}

export const currentLanguage = () => language;

/** “view.name” stands in the table under its view or, where several have it, under `page`, like anything else. */
function row(name) {
  const dot = name.indexOf("."), rest = name.slice(dot + 1);
  return WORDS[name.slice(0, Math.max(0, dot))]?.[rest] ?? WORDS.page[name] ?? WORDS.page[rest];
}

/** The sentence called `name`, with {places} filled in. */
export function t(name, places = {}) {
  const sentence = row(name)?.[COLUMNS.indexOf(language)];
  if (sentence === undefined || sentence === null) throw new Error(`no words for ${name}`);
  return sentence.replaceAll(/\{(\w+)\}/g, (whole, place) => places[place] ?? whole);
}

/** Some words depend on what the server says; there may be none for them. */
export const has = (name) => typeof row(name)?.[COLUMNS.indexOf(language)] === "string";

// A true minus sign, and none before a zero.
const signed = (text) => text.replace(/^-(?=[^1-9]*$)/, "").replace("-", "−");

export const number = (value, digits = 2) =>
  signed(value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits }));
export const whole = (value) => value.toLocaleString(language);
export function percent(share) {
  const least = 0.0001;
  if (share > 0 && share < least) return `<${percent(least)}`;
  const digits = share >= 0.1 || share === 0 ? 0 : share >= 0.001 ? 1 : 2;
  return share.toLocaleString(language, { style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits });
}
/** In whole percent, for where there is little room. */
export const roughly = (share) => (share > 0 && share < 0.005 ? "<" : "") + Math.max(share && 0.01, share).toLocaleString(language, { style: "percent" });
/** Numbers of any size in little room: four significant digits at most. */
export function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 10_000)) return signed(value.toExponential(1));
  return signed(value.toLocaleString(language, { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3, useGrouping: false }));
}

export function languageName(code) {
  try {
    return new Intl.DisplayNames([language], { type: "language" }).of(code);
  } catch {
    return code; // a model may call its sides what it likes
  }
}
