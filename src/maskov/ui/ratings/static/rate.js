// The rating page. Texts and comments are inserted as text, never as markup.
"use strict";

const byId = (id) => document.getElementById(id);
const LETTERS = "qwer";
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 5000;
const PATIENCE = 10000;

let items = []; // in this rater's order
let scales = []; // names
let place = 0; // which item is shown; items.length is the end
let active = 0; // which scale the digits answer
let moving = false;
const saved = new Map(); // item -> the answer that the server has
const unsaved = new Map(); // item -> the answer that it has not acknowledged yet
let sending = null;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function say(text, warning = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("warning", warning);
}

// --- display

function buildScale({ name, question, points }) {
  const scale = element("fieldset");
  scale.id = name;
  const legend = element("legend");
  legend.append(element("b", "", name), element("span", "", question));
  const choices = element("div", "points");
  points.forEach(([title, gloss], number) => {
    const point = element("label", "point");
    const radio = element("input");
    radio.type = "radio";
    radio.name = name;
    radio.value = String(number + 1);
    point.append(
      radio,
      element("span", "number", String(number + 1)),
      element("span", "title", title),
      element("span", "gloss", gloss),
    );
    choices.append(point);
  });
  scale.append(legend, choices);
  return scale;
}

function radios(name) {
  return [...document.querySelectorAll(`input[name="${name}"]`)];
}

function activate(number) {
  active = number;
  scales.forEach((name, i) => byId(name).classList.toggle("active", i === number));
}

function given() {
  const answer = { item: items[place].id, comment: byId("comment").value.trim() };
  for (const name of scales) {
    const chosen = radios(name).find((radio) => radio.checked);
    if (!chosen) return null;
    answer[name] = Number(chosen.value);
  }
  return answer;
}

function showProgress() {
  const rated = items.filter(({ id }) => saved.has(id)).length;
  byId("count").textContent = `${rated} of ${items.length} rated`;
  byId("progress").max = items.length;
  byId("progress").value = rated;
}

function show(number) {
  place = number;
  const over = place >= items.length;
  byId("item").hidden = over;
  byId("done").hidden = !over;
  showProgress();
  if (over) {
    byId("heading").textContent = "Done";
    byId("thanks").focus();
    return;
  }
  const item = items[place];
  const answer = unsaved.get(item.id) || saved.get(item.id);
  byId("heading").textContent = `Sentence ${place + 1} of ${items.length}`;
  byId("sentence").textContent = item.text;
  for (const name of scales) {
    for (const radio of radios(name)) {
      radio.checked = Boolean(answer) && answer[name] === Number(radio.value);
    }
  }
  byId("comment").value = answer ? answer.comment : "";
  byId("remark").open = Boolean(answer && answer.comment);
  byId("back").disabled = place === 0;
  activate(0);
  say(answer ? "Saved" : "");
  window.scrollTo(0, 0);
  byId("sentence").focus({ preventScroll: true });
}

// --- saving: answers are kept here until the server confirms that they are on disk

function same(a, b) {
  return a && b && a.comment === b.comment && scales.every((name) => a[name] === b[name]);
}

function keep(answer) {
  const last = unsaved.get(answer.item) || saved.get(answer.item);
  if (!same(last, answer)) unsaved.set(answer.item, answer);
  if (unsaved.size && !sending) sending = send().finally(() => { sending = null; });
  return sending;
}

async function send() {
  let pause = FIRST_PAUSE;
  while (unsaved.size) {
    const [item, answer] = unsaved.entries().next().value;
    try {
      const response = await fetch("answers", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(answer),
        signal: AbortSignal.timeout(PATIENCE),
      });
      if (response.ok) {
        saved.set(item, answer);
        // If it changed meanwhile, it is sent again.
        if (unsaved.get(item) === answer) unsaved.delete(item);
        showProgress();
        say("Saved");
        pause = FIRST_PAUSE;
        continue;
      }
      if (response.status < 500) {
        unsaved.delete(item);
        say(`Not saved: the server refused this answer (${response.status}).`, true);
        return;
      }
    } catch {
      // No server or no network: handled like a server error.
    }
    say("Not saved yet: the server does not answer. Trying again …", true);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }
}

// --- navigation

async function move(step) {
  if (moving || place + step < 0) return;
  const answer = given();
  if (step > 0 && !answer) {
    const missing = scales.findIndex((name) => !radios(name).some((radio) => radio.checked));
    activate(missing);
    say(`Choose one for ${scales[missing]} first.`, true);
    return;
  }
  moving = true;
  try {
    if (answer) {
      await keep(answer);
      if (!same(saved.get(answer.item), answer)) return; // refused; the message stays
    }
    show(place + step);
  } finally {
    moving = false;
  }
}

function choose(number, value) {
  const radio = radios(scales[number])[value];
  radio.checked = true;
  radio.focus();
  activate(Math.min(number + 1, scales.length - 1));
  chosen();
}

function chosen() {
  const answer = given();
  if (answer) keep(answer);
  else say("");
}

function openComment() {
  byId("remark").open = true;
  byId("comment").focus();
}

function onKey(event) {
  if (event.altKey || event.metaKey || event.isComposing || !byId("keys").checked) return;
  const { key, target } = event;
  if (!byId("done").hidden) {
    if (key === "ArrowLeft") show(items.length - 1);
    return;
  }
  if (byId("item").hidden) return;
  if (target === byId("comment")) {
    if (key === "Escape") byId("sentence").focus();
    else if (key === "Enter" && event.ctrlKey) move(1);
    else return;
  } else if (event.ctrlKey) {
    return;
  } else if (key >= "1" && key <= "4") {
    choose(active, Number(key) - 1);
  } else if (key.length === 1 && LETTERS.includes(key.toLowerCase())) {
    choose(1, LETTERS.indexOf(key.toLowerCase()));
  } else if (key === "Backspace") {
    activate(0);
  } else if (key === "ArrowRight") {
    move(1);
  } else if (key === "ArrowLeft") {
    move(-1);
  } else if (key.toLowerCase() === "c") {
    openComment();
  } else if (key === "Enter" && !target.closest("button, summary")) {
    if (!event.repeat) move(1);
  } else {
    return;
  }
  event.preventDefault();
}

function listen() {
  document.addEventListener("keydown", onKey);
  byId("item").addEventListener("submit", (event) => {
    event.preventDefault();
    move(1);
  });
  byId("back").addEventListener("click", () => move(-1));
  byId("again").addEventListener("click", () => show(items.length - 1));
  byId("comment").addEventListener("change", chosen);
  byId("scales").addEventListener("change", (event) => {
    activate(Math.min(scales.indexOf(event.target.name) + 1, scales.length - 1));
    chosen();
  });
  byId("scales").addEventListener("focusin", (event) => {
    const number = scales.indexOf(event.target.name);
    if (number >= 0) activate(number);
  });
  window.addEventListener("beforeunload", (event) => {
    if (unsaved.size) event.preventDefault();
  });
}

async function start() {
  let study;
  try {
    const response = await fetch("study", { signal: AbortSignal.timeout(PATIENCE) });
    if (!response.ok) throw new Error(String(response.status));
    study = await response.json();
  } catch {
    byId("heading").textContent = "The sentences could not be loaded. Reload the page to try again.";
    return;
  }
  items = study.items;
  scales = study.scales.map(({ name }) => name);
  for (const answer of study.answers) saved.set(answer.item, answer);
  byId("rater").textContent = study.rater;
  byId("comment").maxLength = study.longest_comment;
  byId("help").open = window.matchMedia("(hover: hover) and (min-width: 40rem)").matches;
  byId("scales").append(...study.scales.map(buildScale));
  listen();
  const next = items.findIndex(({ id }) => !saved.has(id));
  show(next < 0 ? items.length : next);
}

start();
