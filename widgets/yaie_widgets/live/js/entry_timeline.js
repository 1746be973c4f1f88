// SchedulerTimeline.
import { solo } from "./core_solo.js";
import { createTimeline } from "./timeline.js";

function render({ model, el: host }) {
  return solo({ model, el: host, title: "Scheduler timeline", view: createTimeline, withBar: true });
}

export default { render };
