// Which way models translate.

const base = (code) => (code ?? "").toLowerCase().split(/[-_]/)[0];

/** Whether two codes are of one language, whatever the country. */
export const sameLanguage = (one, other) => base(one) !== "" && base(one) === base(other);

/** A model that translates back from `language` into what `model` reads, if one is served. */
export const wayBack = (models, model, language) => models.find(({ task, languages }) =>
  task === "translate" && sameLanguage(languages.source, language) && languages.target.some((code) => sameLanguage(code, model.languages.source)));
