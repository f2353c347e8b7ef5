// Everything the page asks of its server: JSON, files and streams; errors as one kind of exception.

import { remember, t } from "./words.js";

const PLACE = "regard.key";
const session = () => sessionStorage;
const MOST_TRIES = 6;

/** What the server refused, in its own words, or that it could not be reached. */
export class Problem extends Error {
  constructor(message, { status = 0, type = "internal", field = null, wait = null } = {}) {
    super(message);
    Object.assign(this, { status, type, field, wait });
  }
}

const gone = () => new Problem(t("problem.offline"), { type: "offline" });
export const isStopped = (error) => error instanceof DOMException && error.name === "AbortError";
const address = (path) => new URL(path, document.baseURI).href;
const hasKey = () => Boolean(remember(session, PLACE));

let askForKey = async () => null;
let asking = null;

export function onKeyNeeded(ask) {
  askForKey = ask;
}

async function newKey(refused) {
  // Several requests may be refused at once; the reader is asked once.
  asking ??= askForKey(refused).finally(() => (asking = null));
  const key = await asking;
  if (key !== null) remember(session, PLACE, key);
  return key;
}

async function problemOf(response) {
  const wait = Number(response.headers.get("Retry-After")) || null;
  try {
    const { error } = await response.json();
    return new Problem(error.message, { status: response.status, type: error.type, field: error.field, wait });
  } catch {
    return new Problem(t("problem.status", { status: response.status }), { status: response.status, wait });
  }
}

/** What comes from the server, if it does: a connection may break before an answer, or within it. */
async function arrival(coming) {
  try {
    return await coming;
  } catch (error) {
    throw isStopped(error) ? error : gone();
  }
}

async function request(path, options) {
  const key = remember(session, PLACE);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await arrival(fetch(address(path), { ...options, headers }));
  if (response.status === 401 && (await newKey(Boolean(key))) !== null) return request(path, options);
  if (!response.ok) throw await problemOf(response);
  return response;
}

const asJson = (body, signal) => ({
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
});

export const get = async (path, signal) => arrival((await request(path, { signal })).json());
export const post = async (path, body, signal) => arrival((await request(path, asJson(body, signal))).json());
export const postForFile = async (path, body, signal) => arrival((await request(path, asJson(body, signal))).blob());

/** Sends a form with a file; gives the file that comes back, the name the server has for it, and what looks odd in it. */
export async function postForm(path, form, signal) {
  const response = await request(path, { method: "POST", body: form, signal });
  const header = response.headers.get("Content-Disposition") ?? "";
  const coded = /filename\*=(?:UTF-8|utf-8)''([^;]+)/.exec(header);
  const name = coded ? decodeURIComponent(coded[1]) : (/filename="([^"]*)"/.exec(header)?.[1] ?? null);
  return { blob: await arrival(response.blob()), name, flags: response.headers.get("Regard-Flags")?.split(" ") };
}

/** The events of a stream, each as the object it carries, as they come; the last says that it is done. */
export async function* stream(path, body, signal) {
  const response = await request(path, asJson(body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await arrival(reader.read());
    if (done) throw gone();
    const events = (waiting + value.replaceAll("\r\n", "\n")).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
      if (!data || data === "[DONE]") continue;
      const found = JSON.parse(data);
      if (found.error) throw new Problem(found.error.message, found.error);
      yield found;
      if (found.done) return;
    }
  }
}

const command = (path, ...options) => [`curl ${address(path)}`, ...(hasKey() ? ['-H "Authorization: Bearer $REGARD_API_KEY"'] : []), ...options].join(" \\\n  ");
const between = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The same request as a command for a terminal. */
export const curl = (path, body) => command(path, "-H 'Content-Type: application/json'", `-d ${between(JSON.stringify(body))}`);

/** The same, for a file that is sent as a form. */
export const curlFile = (path, file, body) => command(path, `-F file=@${file}`, ...Object.entries(body).map(([name, value]) => `-F ${between(`${name}=${value}`)}`));

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(new DOMException("stopped", "AbortError"))));
  });

/**
 * One question at a time: a newer one ends the older. While the server is busy it waits as long as it was told and asks
 * again. `use` gets the answer, unless it has been overtaken. `report` hears what is going on:
 * {state: "quiet" | "working" | "busy" | "failed", …}.
 */
export function line(report) {
  let current = null;
  async function ask(work, use) {
    current?.abort();
    const mine = (current = new AbortController());
    const say = (what) => mine === current && report(what);
    say({ state: "working" });
    try {
      for (let turn = 1; ; turn += 1) {
        try {
          const answer = await work(mine.signal);
          if (mine !== current) return;
          report({ state: "quiet" });
          use(answer);
          return;
        } catch (error) {
          if (error.status !== 429 || turn === MOST_TRIES) throw error;
          const seconds = error.wait ?? 2;
          say({ state: "busy", seconds });
          await pause(seconds, mine.signal);
        }
      }
    } catch (error) {
      if (isStopped(error)) return;
      if (!(error instanceof Problem)) throw error;
      say({ state: "failed", problem: error, again: () => ask(work, use) });
    }
  }
  const stop = () => {
    current?.abort();
    current = null;
    report({ state: "quiet" });
  };
  return { ask, stop };
}
