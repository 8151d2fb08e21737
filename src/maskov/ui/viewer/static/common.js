// Shared by all pages: requests to the server, number formats, cards.

const byId = (id) => document.getElementById(id);

// Paths are relative, so that they include the token of the page's address.
const ask = async (path, body) => {
  const request = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(`api/${path}`, request);
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.detail ?? `The server refused (${response.status}).`);
  return answer;
};

const minus = (text) => text.replace("-", "−");
const fixed = (value, digits = 4) => {
  if (!known(value)) return "–";
  if (value === "inf") return "∞";
  if (value === "-inf") return "−∞";
  return minus(Number(value).toFixed(digits));
};
const asNumber = (value) => (value === "inf" ? Infinity : value === "-inf" ? -Infinity : value);
const percent = (share) => (known(share) ? `${(100 * share).toFixed(1)} %` : "–");

const duration = (seconds) => {
  if (!known(seconds)) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
};

const card = (name, value, beside = "") => html(
  "div", {}, html("dt", {}, name),
  html("dd", {}, value, beside ? " " : "", beside ? html("span", { class: "error" }, beside) : ""),
);

const pill = (text, tone) => html("span", { class: `pill ${tone}` }, text);
