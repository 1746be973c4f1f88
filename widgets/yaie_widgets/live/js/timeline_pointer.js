// Pointer, wheel and pinch on the step axis. Other scrolling stays the page's.
import { LEFT, RIGHT } from "./core_axis.js";

const ZOOM = 1.25;

// `on`: {width(), step(x), go(step), hover(step or null, y), zoom(factor, step)}; x and y count from the area's corner.
export function wirePointer(area, on) {
  const fingers = new Map();
  let spread = 0;

  const place = event => {
    const box = area.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const inside = ({ x }) => x >= LEFT && x <= on.width() - RIGHT;
  const distance = () => {
    const [a, b] = [...fingers.values()];
    return Math.abs(a.x - b.x);
  };
  const lift = event => fingers.delete(event.pointerId);

  area.addEventListener("pointerdown", event => {
    const at = place(event);
    if (!inside(at) || event.button) return;
    area.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at);
    if (fingers.size === 2) spread = distance();
    else on.go(on.step(at.x));
  });
  area.addEventListener("pointermove", event => {
    const at = place(event);
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, at);
    if (fingers.size === 2) pinch();
    else if (fingers.size === 1) on.go(on.step(at.x));
    on.hover(inside(at) ? on.step(at.x) : null, at.y);
  });
  area.addEventListener("pointerleave", () => on.hover(null, 0));
  area.addEventListener("pointerup", lift);
  area.addEventListener("pointercancel", lift);
  area.addEventListener("wheel", event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    on.zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, on.step(place(event).x));
  }, { passive: false });

  // Two fingers zoom by leaps, so that the steps under them do not swim.
  function pinch() {
    const now = distance();
    if (spread < 1 || (now < spread * ZOOM && now > spread / ZOOM)) return;
    const [a, b] = [...fingers.values()];
    on.zoom(now > spread ? ZOOM : 1 / ZOOM, on.step((a.x + b.x) / 2));
    spread = now;
  }
}
