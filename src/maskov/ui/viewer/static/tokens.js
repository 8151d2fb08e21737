// Tokens as people read them. `detokenise.py` follows the same rules for samples.

const NO_SPACE_BEFORE = new Set(".,;:!?%)]}…»”’");
const NO_SPACE_AFTER = new Set("([{$£€«“¿¡");
const SHORT_FORMS = new Set(["s", "t", "d", "m", "re", "ve", "ll"]);

const isWordy = (sign) => /^[\p{L}\p{N}]$/u.test(sign ?? "");
const isNumber = (text) => /^\p{Nd}+$/u.test(text);

// Before which words a space stands, given where the tokenizer puts one.
const respaced = (words, spaces) => {
  if (words.every((word) => /^\p{Lu}$/u.test(word))) return words.map(() => false); // a protein
  const kept = spaces.map((space, place) => space && place > 0);
  const quoted = { '"': false, "'": false };
  words.forEach((word, place) => {
    const before = words[place - 1] ?? "";
    const after = words[place + 1] ?? "";
    const apart = Boolean(spaces[place + 1]);
    const wordyBefore = isWordy([...before].pop());
    if (NO_SPACE_BEFORE.has(word)) {
      kept[place] = false;
      const decimal = word === "." || (word === "," && after.length === 3);
      if (apart && decimal && isNumber(before) && isNumber(after)) kept[place + 1] = false;
    } else if (NO_SPACE_AFTER.has(word)) {
      if (apart) kept[place + 1] = false;
    } else if ((word === "-" || word === "/") && apart && wordyBefore && isWordy([...after][0])) {
      kept[place] = kept[place + 1] = false;
    } else if (word === "'" && wordyBefore && SHORT_FORMS.has(after)) {
      kept[place] = kept[place + 1] = false;
    } else if (Object.hasOwn(quoted, word)) {
      if (quoted[word]) kept[place] = false;
      else if (apart) kept[place + 1] = false;
      quoted[word] = !quoted[word];
    }
  });
  return kept;
};

// Vocabularies mark subwords differently: what to show, whether it continues a word (`glued`), and
// whether a space stands before it.
const spelled = (words) => {
  const marked = words.some((word) => /^[Ġ▁]/.test(word));
  const ended = words.some((word) => word.endsWith("</w>"));
  let open = false;
  const found = words.map((word, index) => {
    let glued = open;
    open = false;
    let text = word;
    if (text.startsWith("##") && text.length > 2) { text = text.slice(2); glued = true; }
    else if (/^[Ġ▁]/.test(text)) text = text.slice(1);
    else if (marked && !/^[[<].+[\]>]$/.test(text)) glued = true; // not a special token
    if (text.endsWith("@@") && text.length > 2) { text = text.slice(0, -2); open = true; }
    if (ended) { open = !text.endsWith("</w>"); text = text.replace(/<\/w>$/, ""); }
    return { text: text === "" ? "␣" : text, glued: glued && index > 0 };
  });
  const apart = found.map(({ glued }) => !glued);
  const spaces = marked ? apart.map((space, place) => space && place > 0) : respaced(found.map(({ text }) => text), apart);
  // A sign that is written close to a word is not a part of it.
  return found.map(({ text, glued }, place) => ({ text, space: spaces[place], glued: glued && isWordy([...text][0]) }));
};

const joined = (shown) => shown.map(({ text, space }, place) => (space && place ? ` ${text}` : text)).join("");

// The parts of a sequence that a step changes, widened to whole words: each starts somewhere and has
// so many tokens before the step and, in place of them, after it.
const changedParts = (before, after, step) => {
  const resized = step.start !== null;
  const places = resized
    ? [{ start: step.start, old: step.old.length, new: step.new.length }]
    : [...step.positions].sort((one, other) => one - other).map((start) => ({ start, old: 1, new: 1 }));
  const [shownBefore, shownAfter] = [spelled(before), spelled(after)];
  const parts = [];
  let shift = 0; // how much longer the sequence has become so far
  for (const { start, old, new: fresh } of places) {
    let [first, last] = [start, start + old];
    while (first > 0 && (shownBefore[first]?.glued || shownAfter[first + shift]?.glued)) first -= 1;
    shift += fresh - old;
    while (last < before.length && (shownBefore[last].glued || shownAfter[last + shift]?.glued)) last += 1;
    const previous = parts[parts.length - 1];
    if (previous && first <= previous.last) previous.last = Math.max(previous.last, last);
    else parts.push({ first, last });
  }
  return parts.map(({ first, last }) => ({
    first, last,
    from: joined(shownBefore.slice(first, last)).trim(),
    to: joined(shownAfter.slice(first, last + shift)).trim(),
    space: first > 0 && (shownBefore[first]?.space ?? true),
  }));
};
