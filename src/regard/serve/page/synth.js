// Plays notes with what every browser has: two waves a note, and a hammer's quick beginning and slow end.

const AHEAD = 0.25; // seconds that notes are handed to the sound card before they are heard
const BEAT = 60; // milliseconds between two looks at the clock
const LEVEL = 0.22;
const HIGHEST = 16_000; // hertz that anybody hears

/** A player of notes [start, duration, pitch, velocity]; `moved(seconds)` hears of its place, `ended()` of its end. */
export class Player {
  constructor(moved, ended) {
    Object.assign(this, { moved, ended, notes: [], length: 0, place: 0, playing: false, voices: new Set() });
  }

  load(notes) {
    this.stop();
    this.notes = notes;
    this.length = Math.max(0, ...notes.map(([start, duration]) => start + duration));
    this.seek(0);
  }

  /** The sound of a page may begin only after the reader has touched it. */
  async play() {
    if (this.playing || this.notes.length === 0) return;
    this.context ??= new AudioContext();
    await this.context.resume();
    this.out ??= this.open();
    if (this.place >= this.length - 0.01) this.place = 0;
    this.playing = true;
    this.began = this.context.currentTime + 0.05 - this.place;
    this.next = this.notes.findIndex(([start, duration]) => start + duration > this.place);
    this.timer = setInterval(() => this.turn(), BEAT);
    this.turn();
  }

  pause() {
    if (!this.playing) return;
    this.place = this.now();
    this.stop();
    this.moved(this.place);
  }

  seek(seconds) {
    const again = this.playing;
    this.stop();
    this.place = Math.max(0, Math.min(seconds, this.length));
    this.moved(this.place);
    if (again) this.play();
  }

  stop() {
    this.playing = false;
    clearInterval(this.timer);
    for (const voice of this.voices) voice.stop();
    this.voices.clear();
  }

  close() {
    this.stop();
    this.context?.close();
  }

  now() {
    return this.playing ? Math.max(0, this.context.currentTime - this.began) : this.place;
  }

  // Many notes at once must not become louder than one may be.
  open() {
    const press = this.context.createDynamicsCompressor();
    press.connect(this.context.destination);
    return press;
  }

  turn() {
    const now = this.now();
    for (; this.next < this.notes.length && this.notes[this.next][0] < now + AHEAD; this.next += 1) this.sound(this.notes[this.next], now);
    if (now >= this.length) {
      this.stop();
      this.place = this.length;
      this.ended();
    }
    this.moved(Math.min(now, this.length));
  }

  sound([start, duration, pitch, velocity], now) {
    const { context } = this, from = this.began + Math.max(start, now), until = this.began + start + duration;
    if (until <= from) return;
    const gain = context.createGain(), loud = LEVEL * (velocity / 127) ** 1.5;
    gain.gain.setValueAtTime(0, from);
    gain.gain.linearRampToValueAtTime(loud, from + 0.008);
    gain.gain.setTargetAtTime(loud * 0.25, from + 0.008, 0.7);
    gain.gain.setTargetAtTime(0, until, 0.06);
    gain.connect(this.out);
    const tones = [["triangle", 440 * 2 ** ((pitch - 69) / 12), 1], ["sine", 880 * 2 ** ((pitch - 69) / 12), 0.3]];
    for (const [type, pace, share] of tones.filter((tone) => tone[1] < HIGHEST)) {
      const wave = context.createOscillator(), part = context.createGain();
      wave.type = type;
      wave.frequency.value = pace;
      part.gain.value = share;
      wave.connect(part).connect(gain);
      wave.start(from);
      wave.stop(until + 0.4);
      this.voices.add(wave);
      wave.onended = () => this.voices.delete(wave);
    }
  }
}
