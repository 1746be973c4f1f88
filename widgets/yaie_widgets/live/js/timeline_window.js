// Which steps the timeline shows. A window is {span, to}: how many steps (null: all of them), and the last of them
// (null: the newest).

export const USUAL_STEPS = 60;
export const FEWEST_STEPS = 8;

// The steps in sight as {from, to}. The cursor is always among them.
export function stepsInSight(window, run, cursor) {
  const all = run.last - run.first + 1;
  const span = Math.min(window.span ?? all, all);
  const newest = window.to ?? run.last;
  let to = Math.max(run.first + span - 1, Math.min(newest, run.last));
  if (cursor > to) to = cursor;
  if (cursor < to - span + 1) to = cursor + span - 1;
  return { from: to - span + 1, to };
}

// The same number of steps, up to step `to`.
export function panned(sight, run, to) {
  const span = sight.to - sight.from + 1;
  const last = Math.max(run.first + span - 1, Math.min(to, run.last));
  return { span, to: last === run.last ? null : last };
}

// Show 1/`factor` as many steps, with `step` staying where it is.
export function zoomed(sight, run, step, factor) {
  const all = run.last - run.first + 1;
  const before = sight.to - sight.from + 1;
  const span = Math.max(Math.min(FEWEST_STEPS, all), Math.min(all, Math.round(before / factor)));
  if (span === all) return { span: null, to: null };
  const share = (step - sight.from + 0.5) / before;
  const from = Math.max(run.first, Math.min(run.last - span + 1, Math.round(step + 0.5 - share * span)));
  const to = from + span - 1;
  return { span, to: to === run.last ? null : to };
}
