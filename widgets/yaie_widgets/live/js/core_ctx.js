// What step views share: the run, a cursor, a selection. Whoever owns it has one update for all its views.

export function createContext(link, root) {
  const views = new Set();
  let asked = 0;
  let playing = 0;
  const ctx = {
    root,
    run: link.run,
    cursor: link.run ? link.run.last : 0,
    live: true,
    lost: link.lost,
    selection: { request: null, block: null, node: null },
    playing: false,
    // The same value again clears it.
    select(kind, value) {
      ctx.selection = { ...ctx.selection, [kind]: ctx.selection[kind] === value ? null : value };
      ctx.changed();
    },
    // The cursor follows the newest step when it is put there.
    setCursor(step) {
      if (!ctx.run) return;
      ctx.cursor = ctx.run.near(step);
      ctx.live = ctx.cursor === ctx.run.last;
      ctx.changed();
    },
    play(on = !ctx.playing) {
      clearInterval(playing);
      ctx.playing = on;
      if (on && ctx.cursor >= ctx.run.last) ctx.setCursor(ctx.run.first);
      if (on) playing = setInterval(ahead, 120);
      ctx.changed();
    },
    send: message => link.send(message),
    add(view) {
      views.add(view);
      return view;
    },
    // Views are updated with the next frame, once for any number of changes.
    changed() {
      if (!asked) asked = requestAnimationFrame(ctx.flush);
    },
    flush() {
      if (asked) cancelAnimationFrame(asked);
      asked = 0;
      if (ctx.run) for (const view of views) view.update();
    },
    destroy() {
      off();
      clearInterval(playing);
      if (asked) cancelAnimationFrame(asked);
      for (const view of views) view.destroy?.();
    },
  };

  function ahead() {
    if (ctx.cursor >= ctx.run.last) ctx.play(false);
    else ctx.setCursor(ctx.run.beside(ctx.cursor, 1));
  }

  function take() {
    const other = ctx.run !== null && link.run !== null && ctx.run.id !== link.run.id;
    ctx.run = link.run;
    ctx.lost = link.lost;
    if (other) ctx.selection = { request: null, block: null, node: null };
    if (ctx.run) ctx.cursor = ctx.live || other ? ctx.run.last : ctx.run.near(ctx.cursor);
    ctx.changed();
  }

  const off = link.on(take);
  return ctx;
}
