import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { attach } from "../../../widgets/yaie_widgets/live/js/core_link.js";

const hiding = new Set();
globalThis.window ??= {
  addEventListener: (_, listen) => hiding.add(listen),
  removeEventListener: (_, listen) => hiding.delete(listen),
};

class Model {
  constructor(state) {
    this.state = state;
    this.heard = {};
    this.sent = [];
  }
  get(name) { return this.state[name]; }
  on(name, listen) { (this.heard[name] ??= []).push(listen); }
  send(message) { this.sent.push({ ...message, page: undefined }); }
  tell(name, what) { for (const listen of this.heard[name] ?? []) listen(what); }
  get kinds() { return this.sent.map(one => one.kind + (one.seq ?? "")); }
}

// A log of words: the whole replaces it.
const words = (state, message) => (message.kind === "whole" ? [...message.words] : [...state, message.word]);
const made = (seq, list) => {
  const model = new Model({ key: "k", snapshot: seq === null ? {} : { kind: "whole", seq, words: list } });
  return [model, attach(model, words)];
};
const says = (model, message) => model.tell("msg:custom", message);

test("the trait gives the start, messages go on from it", () => {
  const [model, link] = made(3, ["a"]);
  says(model, { kind: "word", seq: 4, word: "b" });
  assert.deepEqual(link.state, ["a", "b"]);
  assert.deepEqual(model.kinds, ["ready3"]);
});

test("a gap asks once for the whole, and takes nothing before it", () => {
  const [model, link] = made(1, ["a"]);
  says(model, { kind: "word", seq: 3, word: "c" });
  says(model, { kind: "word", seq: 4, word: "d" });
  assert.deepEqual(link.state, ["a"]);
  assert.deepEqual(model.kinds, ["ready1"]);
  says(model, { kind: "whole", seq: 5, words: ["a", "b", "c", "d"] });
  says(model, { kind: "word", seq: 6, word: "e" });
  assert.deepEqual(link.state, ["a", "b", "c", "d", "e"]);
});

test("a question that stays without an answer is put again after a second", t => {
  t.mock.timers.enable({ apis: ["Date"] });
  const [model] = made(1, ["a"]);
  says(model, { kind: "word", seq: 3, word: "c" });
  t.mock.timers.tick(1001);
  says(model, { kind: "word", seq: 4, word: "d" });
  assert.deepEqual(model.kinds, ["ready1", "ready1"]);
});

test("a gap after an answered one asks again", () => {
  const [model] = made(1, ["a"]);
  says(model, { kind: "word", seq: 2, word: "b" });
  says(model, { kind: "word", seq: 4, word: "d" });
  says(model, { kind: "word", seq: 5, word: "e" });
  assert.deepEqual(model.kinds, ["ready1", "ready2"]);
});

test("old messages are passed over", () => {
  const [model, link] = made(5, ["a"]);
  says(model, { kind: "word", seq: 5, word: "again" });
  says(model, { kind: "word", seq: 2, word: "again" });
  assert.deepEqual(link.state, ["a"]);
  assert.deepEqual(model.kinds, ["ready5"]);
});

test("several in one are taken in turn, with one change", () => {
  const [model, link] = made(1, []);
  let changes = 0;
  link.on(() => changes++);
  says(model, { kind: "several", seq: 2, messages: [{ kind: "word", word: "a" }, { kind: "word", word: "b" }] });
  assert.deepEqual(link.state, ["a", "b"]);
  assert.equal(changes, 1);
});

test("a newer trait replaces, an older one does not", () => {
  const [model, link] = made(4, ["a"]);
  model.state.snapshot = { kind: "whole", seq: 9, words: ["a", "b", "c"] };
  model.tell("change:snapshot");
  model.state.snapshot = { kind: "whole", seq: 2, words: [] };
  model.tell("change:snapshot");
  assert.deepEqual(link.state, ["a", "b", "c"]);
  says(model, { kind: "word", seq: 10, word: "d" });
  assert.equal(link.state.length, 4);
});

test("without a state nothing but a whole is taken", () => {
  const [model, link] = made(null);
  says(model, { kind: "word", seq: 1, word: "a" });
  assert.equal(link.state, null);
  says(model, { kind: "whole", seq: 7, words: ["a"] });
  assert.deepEqual(link.state, ["a"]);
});

test("the kernel hears once when the last view is hidden or the first is seen", () => {
  const [model, link] = made(1, []);
  link.see("one", true);
  link.see("two", true);
  link.see("one", false);
  link.see("two", false);
  assert.deepEqual(model.sent.slice(1).map(one => one.visible), [true, false]);
});

test("one link per model", () => {
  const [model, link] = made(1, []);
  assert.equal(attach(model), link);
});

test("a lost kernel is told, and a message takes it back", async () => {
  const whole = { comm_live: false };
  const model = new Model({ key: "k", snapshot: { kind: "whole", seq: 1, words: [] } });
  model.widget_manager = { get_model: async () => whole };
  const link = attach(model, words);
  model.tell("comm_live_update");
  await new Promise(done => setTimeout(done));
  assert.equal(link.lost, true);
  whole.comm_live = true;
  model.tell("comm_live_update");
  await new Promise(done => setTimeout(done));
  assert.equal(link.lost, false);
});

test("a kernel that begins anew is told at once, one that a page finds beginning is not", async () => {
  const listeners = [];
  const kernel = { status: "starting", statusChanged: { connect: listen => listeners.push(listen), disconnect() {} } };
  const model = new Model({ key: "k", snapshot: { kind: "whole", seq: 1, words: [] } });
  model.widget_manager = { get_model: async () => ({ comm_live: true, widget_manager: { kernel } }) };
  const link = attach(model, words);
  link.see("one", true);
  await new Promise(done => setTimeout(done));
  assert.equal(link.lost, false);
  for (const status of ["idle", "starting"]) listeners[0](kernel, status);
  assert.equal(link.lost, true);
});

test("messages of another kernel in the place of this one tell that it is gone", async () => {
  const listeners = [];
  const kernel = { status: "idle", iopubMessage: { connect: listen => listeners.push(listen), disconnect() {} } };
  const model = new Model({ key: "k", snapshot: { kind: "whole", seq: 1, words: [] } });
  model.widget_manager = { get_model: async () => ({ comm_live: true, widget_manager: { kernel } }) };
  const link = attach(model, words);
  link.see("one", true);
  await new Promise(done => setTimeout(done));
  for (const session of ["a", "a", undefined]) listeners[0](kernel, { header: { session } });
  assert.equal(link.lost, false);
  listeners[0](kernel, { header: { session: "b" } });
  assert.equal(link.lost, true);
});

test("a kernel that crashes is told by its state", async () => {
  const listeners = [];
  const disconnect = listen => listeners.splice(listeners.indexOf(listen), 1);
  const kernel = { status: "idle", statusChanged: { connect: listen => listeners.push(listen), disconnect } };
  const model = new Model({ key: "k", snapshot: { kind: "whole", seq: 1, words: [] } });
  model.widget_manager = { get_model: async () => ({ comm_live: true, widget_manager: { kernel } }) };
  const link = attach(model, words);
  link.see("one", true);
  await new Promise(done => setTimeout(done));
  for (const status of ["busy", "idle"]) listeners[0](kernel, status);
  assert.equal(link.lost, false);
  listeners[0](kernel, "autorestarting");
  assert.equal(link.lost, true);
  says(model, { kind: "word", seq: 2, word: "a" });
  assert.equal(link.lost, false);
  link.leave("one");
  await new Promise(done => setTimeout(done));
  assert.equal(listeners.length, 0);
  kernel.status = "dead";
  link.see("two", true);
  await new Promise(done => setTimeout(done));
  assert.equal(link.lost, true);
  assert.equal(listeners.length, 1);
  link.leave("two");
});

const pack = message => ({ kind: message.kind, packed: gzipSync(JSON.stringify(message)).toString("base64") });
// Until the last word is there.
const told = async (link, word) => {
  while (link.state?.at(-1) !== word) await new Promise(done => setTimeout(done, 5));
};

test("packed messages are unpacked, and those behind them wait", async () => {
  const model = new Model({ key: "k", snapshot: { ...pack({ kind: "whole", words: ["a"] }), seq: 3 } });
  const link = attach(model, words);
  says(model, { kind: "word", seq: 4, word: "b" });
  assert.equal(link.state, null);
  await told(link, "b");
  assert.deepEqual(link.state, ["a", "b"]);
  assert.deepEqual(model.kinds, ["ready3"]);
  says(model, { ...pack({ kind: "whole", words: ["x"] }), seq: 9 });
  says(model, { kind: "word", seq: 10, word: "y" });
  says(model, { kind: "word", seq: 11, word: "z" });
  await told(link, "z");
  assert.deepEqual(link.state, ["x", "y", "z"]);
  assert.deepEqual(model.kinds, ["ready3"]);
});

test("the kernel hears when the last view of a page is no more", () => {
  const [model, link] = made(1, []);
  link.see("one", true);
  link.see("two", false);
  link.leave("one");
  assert.deepEqual(model.sent.at(-1), { kind: "visible", visible: false, page: undefined });
  link.leave("two");
  assert.deepEqual(model.kinds.slice(1), ["visible", "visible", "gone"]);
  link.see("three", true);
  assert.equal(model.sent.at(-1).visible, true);
});

test("a packed message that cannot be read is asked for again, and the next ones are taken", async t => {
  t.mock.method(console, "error", () => {});
  t.mock.timers.enable({ apis: ["Date"] });
  const [model, link] = made(3, ["a"]);
  t.mock.timers.tick(2000);
  says(model, { kind: "word", seq: 4, packed: "AAAA" });
  says(model, { ...pack({ kind: "whole", words: ["x"] }), seq: 5 });
  says(model, { kind: "word", seq: 6, word: "y" });
  await told(link, "y");
  assert.deepEqual(link.state, ["x", "y"]);
  assert.deepEqual(model.kinds, ["ready3", "ready-1"]);
});

test("a page that is closed says so while it has a view, and holds nothing after the last", () => {
  const before = hiding.size;
  const [model, link] = made(1, []);
  assert.equal(hiding.size, before);
  link.see("one", true);
  link.see("two", true);
  assert.equal(hiding.size, before + 1);
  [...hiding].at(-1)();
  assert.equal(model.kinds.at(-1), "gone");
  link.leave("one");
  assert.equal(hiding.size, before + 1);
  link.leave("two");
  assert.equal(hiding.size, before);
});

test("a view that the kernel serves no more says so, until something comes", () => {
  const [model, link] = made(1, []);
  says(model, { kind: "stopped" });
  assert.equal(link.lost, true);
  says(model, { kind: "word", seq: 2, word: "a" });
  assert.equal(link.lost, false);
});
