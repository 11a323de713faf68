"use strict";
// Curves of the page: hover tells the values, dragging zooms in, a double click or "whole" zooms out.
// The numbers come from the element #data; nothing is fetched.

const HEIGHT = 240, LEFT = 58, RIGHT = 10, TOP = 10, BOTTOM = 30;
const SVG = "http://www.w3.org/2000/svg";

function draw(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function make(name, className, parent, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

// Steps of 1, 2 or 5 times a power of ten, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough) || rough;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++)
    for (const f of high - low > 3 ? [1] : [1, 2, 5]) {
      const value = Math.log10(f) + power;
      if (value >= low && value <= high) found.push(value);
    }
  return found;
}

function shown(value, percent) {
  if (value === null || value === undefined) return "–";
  if (percent) return (value * 100).toFixed(2).replace(/\.?0+$/, "") + " %";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3);
  return String(Number(value.toPrecision(6)));
}

// Several times as fast as toFixed(1), and there are tens of thousands.
function tenth(value) { return Math.round(value * 10) / 10; }

// The last position in the ascending `xs` whose value is at most `x`; -1 before the first.
function position(xs, x) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function nearest(xs, x) {
  const before = position(xs, x);
  if (before < 0) return 0;
  if (before + 1 >= xs.length) return before;
  return x - xs[before] <= xs[before + 1] - x ? before : before + 1;
}

class Chart {
  constructor(holder, spec) {
    this.holder = holder;
    this.spec = spec;
    this.hidden = new Set();
    this.log = false;
    const xs = spec.series.flatMap(s => s.x.length ? [s.x[0], s.x[s.x.length - 1]] : []);
    this.whole = [Math.min(...xs), Math.max(...xs)];
    if (this.whole[0] === this.whole[1]) this.whole = [this.whole[0] - 1, this.whole[1] + 1];
    this.view = this.whole;
    const header = make("header", "", holder);
    make("h3", "", header, spec.title);
    const positive = spec.series.every(s => s.y.every(y => y === null || y > 0));
    if (positive && !spec.percent) this.logButton = this.button(header, "log", () => { this.log = !this.log; });
    this.wholeButton = this.button(header, "whole", () => { this.view = this.whole; });
    this.svg = draw("svg", { height: HEIGHT, role: "img", "aria-label": spec.title }, holder);
    this.tip = make("div", "tip", holder);
    this.tip.hidden = true;
    const legend = make("div", "legend", holder);
    spec.series.forEach((series, k) => {
      const button = this.button(legend, "", () => {
        if (!this.hidden.delete(k)) this.hidden.add(k);
        button.setAttribute("aria-pressed", String(!this.hidden.has(k)));
      });
      make("i", "", button).style.background = this.colour(k);
      button.append(series.name);
      button.setAttribute("aria-pressed", "true");
    });
    this.listen();
  }

  button(parent, text, act) {
    const button = make("button", "", parent, text);
    button.type = "button";
    button.addEventListener("click", () => { act(); this.draw(); });
    return button;
  }

  colour(k) { return `var(--c${k % 8})`; }

  visible() { return this.spec.series.map((series, k) => ({ series, k })).filter(({ k }) => !this.hidden.has(k)); }

  yOf(value) { return this.log ? Math.log10(value) : value; }

  // Lowest and highest value in view, with a little room.
  range() {
    let low = Infinity, high = -Infinity;
    for (const { series } of this.visible()) {
      const first = Math.max(0, position(series.x, this.view[0])), last = position(series.x, this.view[1]);
      for (let i = first; i <= last; i++) {
        if (series.y[i] === null) continue;
        const value = this.yOf(series.y[i]);
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (low > high) return [0, 1];
    if (this.spec.zero && !this.log) low = Math.min(low, 0);
    const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
    return [this.spec.zero && !this.log && low === 0 ? 0 : low - room, high + room];
  }

  // Drawn when it comes near the view; until then only its room is kept.
  resize(width) {
    this.width = Math.max(width, 160);
    if (this.near) this.draw(); else this.stale = true;
  }

  approach(near) {
    this.near = near;
    if (near && this.stale) this.draw();
  }

  draw() {
    this.stale = false;
    const inner = this.width - LEFT - RIGHT, tall = HEIGHT - TOP - BOTTOM;
    const [x0, x1] = this.view, [y0, y1] = this.range();
    this.toX = x => LEFT + (x - x0) / (x1 - x0) * inner;
    this.toY = y => TOP + (1 - (this.yOf(y) - y0) / (y1 - y0)) * tall;
    this.fromX = pixel => x0 + (pixel - LEFT) / inner * (x1 - x0);
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.axes(x0, x1, y0, y1, inner, tall);
    const clip = `clip-${this.spec.id}`;
    draw("rect", { x: LEFT, y: 0, width: inner, height: HEIGHT }, draw("clipPath", { id: clip }, this.svg));
    const curves = draw("g", { "clip-path": `url(#${clip})` }, this.svg);
    for (const marker of this.spec.markers || []) {
      const x = this.toX(marker.x);
      draw("title", {}, draw("line", { class: "marker", x1: x, x2: x, y1: TOP, y2: TOP + tall }, curves), marker.text);
    }
    for (const { series, k } of this.visible()) this.curve(curves, series, k);
    this.overlay = draw("g", {}, this.svg);
    this.wholeButton.hidden = this.view === this.whole;
    if (this.logButton) this.logButton.textContent = this.log ? "linear" : "log";
  }

  axes(x0, x1, y0, y1, inner, tall) {
    const yTicks = this.log ? logTicks(y0, y1) : ticks(y0, y1, 5);
    for (const tick of yTicks) {
      const y = TOP + (1 - (tick - y0) / (y1 - y0)) * tall;
      draw("line", { class: "grid", x1: LEFT, x2: LEFT + inner, y1: y, y2: y }, this.svg);
      const value = this.log ? 10 ** tick : tick;
      draw("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.svg, shown(Number(value.toPrecision(6)), this.spec.percent));
    }
    for (const tick of ticks(x0, x1, Math.max(2, inner / 90)))
      draw("text", { x: this.toX(tick), y: TOP + tall + 16, "text-anchor": "middle" }, this.svg, shown(Number(tick.toPrecision(6))));
    draw("text", { x: LEFT + inner, y: HEIGHT - 2, "text-anchor": "end" }, this.svg, this.spec.xlabel);
  }

  curve(parent, series, k) {
    const first = Math.max(0, position(series.x, this.view[0]));
    const last = Math.min(series.x.length - 1, position(series.x, this.view[1]) + 1);
    const parts = [];
    let pen = "M";
    for (let i = first; i <= last; i++) {
      if (series.y[i] === null) { pen = "M"; continue; }
      parts.push(pen + tenth(this.toX(series.x[i])) + " " + tenth(this.toY(series.y[i])));
      pen = "L";
    }
    draw("path", { class: "curve", d: parts.join(""), stroke: this.colour(k) }, parent);
    if (last - first < 60)
      for (let i = first; i <= last; i++)
        if (series.y[i] !== null)
          draw("circle", { cx: this.toX(series.x[i]), cy: this.toY(series.y[i]), r: 2, fill: this.colour(k) }, parent);
  }

  pixel(event) {
    const box = this.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * this.width;
    return Math.min(Math.max(x, LEFT), this.width - RIGHT);
  }

  listen() {
    this.svg.addEventListener("pointerdown", event => {
      if (event.button === 0) this.from = this.pixel(event);
    });
    this.svg.addEventListener("pointermove", event => this.hover(this.pixel(event)));
    this.svg.addEventListener("pointerup", event => this.zoom(this.pixel(event)));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("pointercancel", () => this.leave());
    this.svg.addEventListener("dblclick", () => { this.view = this.whole; this.draw(); });
  }

  leave() {
    this.from = undefined;
    this.tip.hidden = true;
    this.overlay.replaceChildren();
  }

  zoom(to) {
    const from = this.from;
    this.from = undefined;
    if (from === undefined || Math.abs(to - from) < 6) return;
    this.view = [from, to].map(this.fromX).sort((a, b) => a - b);
    this.draw();
  }

  hover(pixel) {
    this.overlay.replaceChildren();
    if (this.from !== undefined && Math.abs(pixel - this.from) >= 6)
      draw("rect", { class: "span", x: Math.min(pixel, this.from), y: TOP, width: Math.abs(pixel - this.from), height: HEIGHT - TOP - BOTTOM }, this.overlay);
    const x = this.fromX(pixel);
    const near = this.visible().filter(({ series }) => series.x.length)
      .map(({ series, k }) => ({ series, k, i: nearest(series.x, x) }));
    if (!near.length) return;
    const at = near.map(n => n.series.x[n.i]).reduce((a, b) => Math.abs(a - x) <= Math.abs(b - x) ? a : b);
    draw("line", { class: "cross", x1: this.toX(at), x2: this.toX(at), y1: TOP, y2: HEIGHT - BOTTOM }, this.overlay);
    this.tip.replaceChildren();
    make("div", "soft", this.tip, `${this.spec.xlabel} ${shown(at)}`);
    for (const { series, k, i } of near) {
      // A series without a value right here, such as a validation once an epoch, tells its nearest one and where that is.
      const elsewhere = series.x[i] === at ? "" : ` (at ${shown(series.x[i])})`;
      const row = make("div", "", this.tip);
      row.style.color = this.colour(k);
      row.textContent = `${series.name} ${shown(series.y[i], this.spec.percent)}${elsewhere}`;
      if (series.y[i] !== null && series.x[i] >= this.view[0] && series.x[i] <= this.view[1])
        draw("circle", { cx: this.toX(series.x[i]), cy: this.toY(series.y[i]), r: 4, fill: this.colour(k) }, this.overlay);
    }
    this.tip.hidden = false;
    const side = this.toX(at) > this.width / 2 ? this.toX(at) - this.tip.offsetWidth - 6 : this.toX(at) + 22;
    this.tip.style.left = `${Math.max(0, side)}px`;
    this.tip.style.top = "2.4rem";
  }
}

window.charts = {};
const specs = JSON.parse(document.getElementById("data").textContent);
const ready = () => { document.documentElement.dataset.ready = "yes"; };
// Both tell for the first time when the page has been laid out: to ask each chart for its width would lay it out again each time.
const sizes = new ResizeObserver(entries => {
  for (const { target, contentRect } of entries) window.charts[target.id].resize(contentRect.width);
});
const views = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) window.charts[target.id].approach(isIntersecting);
  ready();
}, { rootMargin: "300px" });
for (const spec of specs) {
  const holder = document.getElementById(spec.id);
  window.charts[spec.id] = new Chart(holder, spec);
  sizes.observe(holder);
  views.observe(holder);
}
addEventListener("beforeprint", () => Object.values(window.charts).forEach(chart => chart.approach(true)));
if (!specs.length) ready();
