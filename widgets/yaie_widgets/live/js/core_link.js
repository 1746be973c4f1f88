// The connection of a page to one widget: messages in order, gaps noticed, one for all views of a model.

import { createRun } from "./core_run.js";

const LINKS = new WeakMap();
const PAGE = Math.random().toString(36).slice(2);

// `reduce(state, message)` gives the next state; it must take the whole state, too. Without it the link keeps a run.
export function attach(model, reduce) {
  let link = LINKS.get(model);
  if (!link) LINKS.set(model, (link = connect(model, reduce ?? follow)));
  return link;
}

// The reducer of views that follow steps.
function follow(run, message) {
  if (message.kind === "recording") return createRun(message.recording);
  if (message.kind === "steps" && run) run.append(message.delta);
  return run;
}

function connect(model, reduce) {
  const listeners = new Set();
  const shown = new Set();
  const there = new Set();
  let seq = 0;
  let unpacking = false;
  const queue = [];
  let asked = { seq: -1, at: 0 };
  const link = {
    run: null,
    state: null,
    options: {},
    lost: false,
    // listen() is called after every change; the result ends that.
    on(listen) {
      listeners.add(listen);
      return () => listeners.delete(listen);
    },
    send(message) {
      model.send({ ...message, page: PAGE });
    },
    // A view of this model came into sight or left it; the kernel hears only what that means for the page.
    see(view, visible) {
      if (!there.size) listening(true);
      there.add(view);
      const before = shown.size > 0;
      if (visible) shown.add(view);
      else shown.delete(view);
      if (shown.size > 0 !== before) link.send({ kind: "visible", visible: shown.size > 0 });
    },
    // A view of this model is no more; without any, the kernel need not serve this page.
    leave(view) {
      shown.delete(view);
      there.delete(view);
      if (!there.size) listening(false);
      if (!there.size) link.send({ kind: "gone" });
      else if (!shown.size) link.send({ kind: "visible", visible: false });
    },
  };

  function changed() {
    link.run = link.state;
    for (const listen of [...listeners]) listen();
  }

  function take(message) {
    if (message.options) link.options = message.options;
    link.state = reduce(link.state, message);
  }

  const isWhole = message => message.kind === "recording" || message.kind === "whole";

  // An answer may take a while, or the question be lost: it is put again after a second, not before.
  function ready(known = seq) {
    if (asked.seq === seq && Date.now() - asked.at < 1000) return;
    asked = { seq, at: Date.now() };
    link.send({ kind: "ready", seq: known });
  }

  // The kernel is gone, or what it sent for this view has stopped; or it is back.
  function lose(lost) {
    if (lost === link.lost) return;
    link.lost = lost;
    if (!lost) ready();
    changed();
  }

  function hear(message) {
    if (message?.kind === "stopped") return lose(true);
    if (!message || typeof message.seq !== "number") return;
    if (!isWhole(message)) {
      if (message.seq <= seq && link.state) return;
      if (!link.state || message.seq !== seq + 1) return ready();
    }
    if (link.lost) link.lost = false;
    seq = message.seq;
    asked.seq = -1;
    for (const one of message.kind === "several" ? message.messages : [message]) take(one);
    changed();
  }

  // Messages stay in order while a packed one is unpacked.
  function receive(message, use) {
    if (!unpacking && !message?.packed) return use(message);
    queue.push([message, use]);
    if (!unpacking) drain();
  }

  async function drain() {
    unpacking = true;
    while (queue.length) {
      const [message, use] = queue.shift();
      try {
        use(message?.packed ? await unpack(message) : message);
      } catch (error) {
        console.error(error);
        ready(-1); // only the whole can mend it
      }
    }
    unpacking = false;
  }

  // The trait holds the whole state as of its own seq; an older one than what is known says nothing.
  function readTrait(snapshot) {
    if (!snapshot || !snapshot.kind || (link.state && snapshot.seq <= seq)) return;
    seq = snapshot.seq;
    take(snapshot);
    changed();
  }

  const lookAtTrait = () => receive(model.get("snapshot"), readTrait);
  model.on("msg:custom", message => receive(message, hear));
  model.on("change:snapshot", lookAtTrait);
  const watchKernel = kernelWatch(model, lose);
  const hide = () => link.send({ kind: "gone" });

  // What would hold the link after its last view listens only while there is one.
  function listening(on) {
    if (on) window.addEventListener("pagehide", hide);
    else window.removeEventListener("pagehide", hide);
    watchKernel(on);
  }

  lookAtTrait();
  receive(null, () => ready());
  return link;
}

async function unpack({ seq, packed }) {
  const bytes = Uint8Array.from(atob(packed), char => char.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return { ...(await new Response(plain).json()), seq };
}

const GONE = ["restarting", "autorestarting", "terminating", "dead"];
// A kernel that begins while a view of it is shown is another one: it was restarted from elsewhere.
const ANEW = [...GONE, "starting"];

// Whether the kernel behind a model is gone. The model itself explains the event that says so; some hosts tell a crash
// by the state of the kernel alone, and a restart from elsewhere by what the new one sends: all its messages name another
// session. Both are followed from watch(true) to watch(false).
function kernelWatch(model, tell) {
  const found = Promise.resolve(model.widget_manager?.get_model?.(model.get("key"))).catch(() => null);
  model.on("comm_live_update", async () => tell((await found)?.comm_live !== true));
  const look = (_, status) => ANEW.includes(status) && tell(true);
  let session = null;
  const hear = (_, message) => {
    const now = message?.header?.session ?? session;
    if (session && now !== session) tell(true);
    session = now;
  };
  return async on => {
    const kernel = (await found)?.widget_manager?.kernel;
    if (on && GONE.includes(kernel?.status)) tell(true);
    kernel?.statusChanged?.[on ? "connect" : "disconnect"]?.(look);
    kernel?.iopubMessage?.[on ? "connect" : "disconnect"]?.(hear);
  };
}

// The static drawing of this view stands in the page for those who have no kernel: hidden while the view lives.
export function hideTwin(model, root, make) {
  const key = model.get("key");
  if (!/^[0-9a-f]{32}$/.test(key ?? "")) return;
  const twin = '[data-yaie-twin="' + key + '"]';
  root.append(make("style", {}, ".jp-OutputArea-child:has(" + twin + ")," + twin + "{display:none}"));
}
