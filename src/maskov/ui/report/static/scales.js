// Numbers, ticks and elements used by all parts of the page.
"use strict";

// Taken from the browser, so that the file contains no address.
const svgSpace = document.createRange().createContextualFragment("<svg></svg>").firstChild
  .namespaceURI;

const svg = (name, attributes = {}, parent = null) => {
  const made = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
};

// Text is set as text: nothing of a run is parsed as HTML.
const html = (name, attributes = {}, ...content) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...content.filter((part) => part !== null && part !== ""));
  return made;
};

// A chain of a population is a particle, and its epochs are points of the path, of which the last is
// the target.
const unitOf = (run) => (run.particles ? "particle" : "chain");
const clockOf = (run) => (run.particles ? "point of the path" : "epoch");
const shadeOf = (run) => (run.burn_in > 0 ? { from: 0, to: run.burn_in + 0.5, label: run.particles ? "before the target" : "burn-in" } : null);

// The chains and the median of an energy, as series of a chart.
const energySeries = (run, { spread, chains }, tone) => {
  const unit = unitOf(run);
  const all = run.chains.toLocaleString("en");
  const lines = { name: `${chains.length < run.chains ? `${chains.length} of ${all}` : all} ${unit}s`, tone, x: run.epochs, many: chains, names: run.shown_chains.map((chain) => `${unit} ${chain}`) };
  const median = { name: "median, 10–90 %", tone, x: run.epochs, y: spread.middle, low: spread.low, high: spread.high, strong: true };
  const series = chains.length === 1 ? [{ ...median, name: `${unit} ${run.shown_chains[0]}`, low: null, high: null }] : [lines, median];
  if (run.temperature) series.push({ name: "temperature", tone: 1, dash: 1, x: run.epochs, y: run.temperature, right: true });
  return series;
};

const known = (value) => value !== null && value !== undefined;

const shortNumber = (value, digits = 4) => {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-4 || size >= 1e7)
    ? value.toExponential(2)
    : size >= 1000 ? String(Math.round(value * 10) / 10) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
};

// Round numbers within a range, about `count` of them.
const ticks = (low, high, count, whole) => {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const share = rough / power;
  let step = power * (share >= 7.5 ? 10 : share >= 3.5 ? 5 : share >= 1.5 ? 2 : 1);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) {
    found.push(Number(at.toPrecision(12)));
  }
  return { at: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
};

const tickText = (value, digits) => {
  if (Math.abs(value) >= 1e7) return shortNumber(value);
  return value.toFixed(Math.min(digits, 8)).replace("-", "−");
};

// The index of the entry of an ascending list that is nearest to a value.
const nearest = (list, value) => {
  let low = 0;
  let high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(list[low] - value) <= Math.abs(list[high] - value) ? low : high;
};

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
