// Why a step was accepted or rejected: the energies, the proposal's probabilities, u.

const outcome = (step) => {
  if (step.repeated) return { word: "unchanged", sign: "=", tone: "open" };
  return step.accepted
    ? { word: "accepted", sign: "✓", tone: "good" } : { word: "rejected", sign: "✗", tone: "bad" };
};

// The filled part of the bar is the acceptance probability; u lies inside or outside it.
const chance = (test) => {
  const share = Math.min(1, Math.exp(asNumber(test.log_threshold)));
  const bar = html("div", { class: `chance ${test.passed ? "good" : "bad"}`, "aria-hidden": "true" }, html("i"), html("b"));
  bar.style.setProperty("--share", share);
  bar.style.setProperty("--u", test.uniform);
  return bar;
};

const testTitle = (test, index, count) => {
  if (index === count - 1 && test.nearest === null) return count > 1 ? "The last test, by all of it" : "The test";
  const where = test.nearest === null ? "all positions" : test.nearest === 1 ? "the nearest position" : `the nearest ${test.nearest} positions`;
  const by = [...test.experts, ...(test.nearest === 0 ? [] : [where])];
  return `${index ? "A further" : "An early"} test, by ${by.join(" and ") || "the proposal alone"}`;
};

const drawTest = (test, index, tests) => {
  const log = Math.log(test.uniform);
  const relation = test.passed ? "<" : "≥";
  const compared = index ? `log R − log R before = ${fixed(test.log_threshold)}` : `log R = ${fixed(test.log_ratio)}`;
  const share = Math.min(1, Math.exp(asNumber(test.log_threshold)));
  return html(
    "div", { class: "test", "data-passed": String(test.passed) },
    html("p", {}, html("strong", {}, testTitle(test, index, tests.length)), `: passes with probability ${share.toFixed(4)}`),
    chance(test),
    html("p", { class: "sum" },
      "u = ", html("span", { "data-part": "u" }, test.uniform.toFixed(4)),
      ", log u = ", html("span", { "data-part": "log-u" }, fixed(log)),
      ` ${relation} `, html("span", { "data-part": "threshold", "data-value": String(test.log_threshold) }, compared),
      html("b", { class: test.passed ? "good" : "bad" }, test.passed ? " passed" : " rejected")),
  );
};

const amount = (name, value, part, note = "") => html(
  "div", {}, html("dt", {}, name, note ? html("small", {}, ` ${note}`) : ""),
  html("dd", { "data-part": part }, value),
);

const drawSum = (replay, step) => {
  const T = replay.temperature;
  const fall = known(step.energy_new) ? (step.energy_old - step.energy_new) / T : null;
  const formula = T === 1 ? "E(x) − E(x′)" : "(E(x) − E(x′)) / T";
  const later = step.computed_later ? "(computed for this page: the run did not need it)" : "";
  return html(
    "dl", { class: "sums" },
    amount("E(x), as it stands", fixed(step.energy_old), "energy-old"),
    amount("E(x′), as proposed", fixed(step.energy_new), "energy-new", later),
    amount(T === 1 ? formula : `${formula}, T = ${shortNumber(T)}`, fixed(fall), "fall"),
    amount("log q(x′|x), to propose it", fixed(step.log_q_forward), "q-forward"),
    amount("log q(x|x′), to come back", fixed(step.log_q_reverse), "q-reverse"),
    amount(`log R = ${formula} + log q(x|x′) − log q(x′|x)`, fixed(step.log_ratio), "log-ratio", later),
  );
};

// What each part of the energy adds to E(x) − E(x′).
const drawShares = (step) => html(
  "dl", { class: "sums shares" },
  ...step.shares.map((share) => amount(
    html("code", {}, share.weight === 1 ? share.name : `${shortNumber(share.weight)} · ${share.name}`),
    fixed(share.fall), "share", share.tested ? "" : "(computed for this page: no test needed it)",
  )),
);

const drawDecision = (holder, replay, step, parts) => {
  if (!step) {
    holder.className = "decision";
    holder.replaceChildren(html("p", {}, html("strong", {}, `Epoch ${replay.epoch + 1}`), ` begins with this sequence and takes ${replay.steps.length} step${replay.steps.length === 1 ? "" : "s"}. Play it, or continue step by step.`));
    return;
  }
  const { word, sign, tone } = outcome(step);
  const places = step.positions.map((place) => place + 1);
  const where = places.length === 1 ? `position ${places[0]}` : `positions ${places.join(", ")}`;
  holder.className = `decision ${tone}`;
  const head = html("p", { class: "outcome" }, html("span", { class: `pill ${tone}`, "data-part": "outcome" }, `${sign} ${word}`), html("span", { "data-part": "where" }, `Masked ${where}.`));
  const proposal = html(
    "p", { class: "proposal" },
    ...parts.flatMap(({ from, to }, index) => [index ? ", " : "", html("code", {}, from || "nothing"), " → ", html("code", {}, to || "nothing")]),
  );
  const content = [head, proposal];
  if (step.repeated) {
    content.push(html("p", {}, "The model proposed the token that is already there, so there is nothing to decide."));
    content.push(html("dl", { class: "sums" }, amount("log q(x′|x), to propose it", fixed(step.log_q_forward), "q-forward")));
  } else if (!known(replay.energy)) {
    content.push(html("p", {}, "This step accepts everything: no energy is computed, and the samples have no target."));
    content.push(html(
      "dl", { class: "sums" },
      amount("log q(x′|x), to propose it", fixed(step.log_q_forward), "q-forward"),
      amount("log q(x|x′), to come back", fixed(step.log_q_reverse), "q-reverse"),
    ));
  } else {
    content.push(drawSum(replay, step));
    if (step.shares.length) content.push(html("p", {}, html("strong", {}, "Shares of E(x) − E(x′)"), ": a part that falls speaks for the proposal."), drawShares(step));
    content.push(...step.tests.map(drawTest));
  }
  holder.replaceChildren(...content);
};

const inWords = (replay, step, parts) => {
  if (!step) return `Epoch ${replay.epoch + 1}, before its first step`;
  const { word } = outcome(step);
  const places = step.positions.map((place) => place + 1).join(", ");
  const last = step.tests[step.tests.length - 1];
  const why = last ? `, log u ${fixed(Math.log(last.uniform), 2)}, needed below ${fixed(last.log_threshold, 2)}` : "";
  return `Step ${step.number + 1} of ${replay.steps.length}: position ${places}, ${parts.map(({ from, to }) => `${from} to ${to}`).join(", ")}, ${word}${why}`;
};
