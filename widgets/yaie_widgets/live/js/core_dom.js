// Making and changing elements. Text goes in as text nodes only.

const SVG = "http://www.w3.org/2000/svg";

// el("button", { class: "y-button", on: { click } }, "Stop"): strings become text, null and false are left out.
export function el(tag, attrs, ...children) {
  return filled(document.createElement(tag), attrs, children);
}

export function svg(tag, attrs, ...children) {
  return filled(document.createElementNS(SVG, tag), attrs, children);
}

function filled(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listen] of Object.entries(value)) node.addEventListener(event, listen);
    else if (name === "style" && typeof value === "object") setStyle(node, value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter(one => one !== null && one !== undefined && one !== false));
  return node;
}

// Custom properties (--y-x) need setProperty; it serves all others, too.
export function setStyle(node, style) {
  for (const [name, value] of Object.entries(style)) {
    if (name.startsWith("--") || name.includes("-")) node.style.setProperty(name, value);
    else node.style[name] = value;
  }
}

export function clear(node) {
  node.replaceChildren();
  return node;
}

// Written only when it changes, so that a still view costs no layout.
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
  return node;
}

export function setAttr(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// One tab stop for many things: arrows, Home and End move it. `columns` makes it a grid. Gives back `focus(node)`.
export function roving(container, selector, options = {}) {
  const all = () => [...container.querySelectorAll(selector)];
  const move = node => {
    for (const each of all()) each.tabIndex = each === node ? 0 : -1;
    return node;
  };
  const settle = () => {
    const items = all();
    if (items.length && !items.some(each => each.tabIndex === 0)) move(items[0]);
  };
  const focus = node => {
    if (node) move(node).focus();
  };
  container.addEventListener("focusin", event => {
    const found = event.target.closest(selector);
    if (found && container.contains(found)) move(found);
  });
  container.addEventListener("keydown", event => {
    const items = all();
    const at = items.indexOf(event.target.closest(selector));
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const columns = typeof options.columns === "function" ? options.columns() : options.columns ?? 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    let to = null;
    if (event.key in steps) to = at + steps[event.key];
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = items.length - 1;
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    focus(items[Math.max(0, Math.min(items.length - 1, to))]);
  });
  settle();
  return { focus, settle };
}

// Calls tell(true or false) whenever the node comes into sight or leaves it, in a page that is shown.
export function watchVisible(node, tell) {
  let seen = null;
  let inside = false;
  const look = () => {
    const now = inside && document.visibilityState !== "hidden";
    if (now !== seen) tell((seen = now));
  };
  const observer = new IntersectionObserver(entries => {
    inside = entries[entries.length - 1].isIntersecting;
    look();
  });
  observer.observe(node);
  document.addEventListener("visibilitychange", look);
  return () => {
    observer.disconnect();
    document.removeEventListener("visibilitychange", look);
  };
}

// The root of a view. Where the host names no theme, the ground behind it decides between light and dark.
export function viewRoot(host, { label } = {}) {
  const root = el("section", { class: "yaie y-view", "aria-label": label });
  host.append(root);
  const named = "[data-jp-theme-light], body[class*=vscode-], html[theme]";
  if (!host.closest(named)) root.dataset.theme = darkBehind(host) ? "dark" : "light";
  // The keys of a view are its own: the notebook has shortcuts on the same ones.
  root.addEventListener("keydown", event => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey && event.key !== "Tab") event.stopPropagation();
  });
  return root;
}

function darkBehind(node) {
  for (let at = node; at; at = at.parentElement) {
    const parts = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (parts && (parts.length < 4 || parts[3] > 0.5)) return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128;
  }
  return false;
}
