// Which way models translate, and what a text looks like before one of them reads it.

const base = (code) => (code ?? "").toLowerCase().split(/[-_]/)[0];
const TAG = /<\/?[a-z][\w-]*(\s[^<>]*)?\/?>/i;

/** Whether two codes are of one language, whatever the country. */
export const sameLanguage = (one, other) => base(one) !== "" && base(one) === base(other);

/** A model that translates back from `language` into what `model` reads, if one is served. */
export const wayBack = (models, model, language) => models.find(({ task, languages }) =>
  task === "translate" && sameLanguage(languages.source, language) && languages.target.some((code) => sameLanguage(code, model.languages.source)));

export const hasTags = (text) => TAG.test(text);
