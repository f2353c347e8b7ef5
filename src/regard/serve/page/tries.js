// Texts to begin with, in the language that a model reads and of the kind it knows.

const DATES = {
  en: ["Tuesday, June 9, 1948", "The train arrives on Thursday at 6:33 PM."],
  de: ["Dienstag, 9. Juni 1948"],
  zh: ["一九四八年六月九日"],
};
// The shipped models are at home in plain sentences, and guess at dates and times.
const EVERYDAY = {
  en: ["If it rains tomorrow, we will stay at home.", "Where is the train station?", "She has been living in Berlin for three years."],
  de: ["Wenn es morgen regnet, bleiben wir zu Hause.", "Wo ist der Bahnhof?", "Ich hätte gern ein Zimmer für zwei Nächte."],
};

/** The language that a model reads; where nobody says, most likely English. */
export const readBy = (model) => (model.languages?.source ?? "en").slice(0, 2);

/** What a reader may try with a model that translates; nothing where we know no sentence of its language. */
export function tries(model) {
  return (model.name.startsWith("everyday-") ? EVERYDAY : DATES)[readBy(model)] ?? [];
}

/** What a view of such a model shows before anything is typed. */
export const firstTry = (model) => tries(model)[0] ?? DATES.en[0];
