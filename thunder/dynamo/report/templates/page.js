// Puts the page together: draws rows, follows the mouse and the keys.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const NAMES = ["source", "trace", "code"];
const panes = Object.fromEntries(NAMES.map((name) => [name, new Pane(name, data.panes[name])]));
const links = new Links(panes);
const tree = data.rows;
const search = new Search([
  { place: "tree", lines: tree.map((row) => `${row.title === row.kind ? "" : row.title}\t${row.words}`) },
  ...NAMES.map((name) => ({ place: name, lines: panes[name].lines })),
]);
let pinned = false;
let treeMarks = new Uint8Array(tree.length);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// ---- text with runs of colour and matches ----------------------------------------------------

function addText(parent, text, runs, place, row) {
  let column = 0;
  const add = (kind, length) => {
    const part = text.slice(column, column + length);
    addMatches(kind === "p" ? parent : parent.appendChild(make("span", kind)), part, column, place, row);
    column += length;
  };
  for (const [, kind, length] of (runs || "").matchAll(/([a-z])(\d+)/g)) add(kind, Number(length));
  if (column < text.length) add("p", text.length - column);
}

function addMatches(parent, text, offset, place, row) {
  const query = search.query;
  if (!query) return parent.append(text);
  const lower = text.toLowerCase(), here = search.here;
  let from = 0;
  for (let found = lower.indexOf(query); found >= 0; found = lower.indexOf(query, from)) {
    parent.append(text.slice(from, found));
    const mark = make("mark", "", text.slice(found, found + query.length));
    if (here && here.place === place && here.row === row && here.column === offset + found) mark.className = "here";
    parent.append(mark);
    from = found + query.length;
  }
  parent.append(text.slice(from));
}

// ---- panes -----------------------------------------------------------------------------------

const lists = {};

function drawLine(pane, element, row) {
  element.setAttribute("role", "option");
  const mark = pane.marks[row];
  element.setAttribute("aria-selected", mark === CHOSEN);
  if (mark) element.classList.add(mark === CHOSEN ? "chosen" : "related");
  if (pane.kinds[row] === HEADING) element.classList.add("heading");
  else element.append(make("span", "number", pane.numbers[row]));
  if (pane.kinds[row] === HEAD) element.classList.add("head");
  // A match that spans two runs of colour would not be seen: such a line is drawn plain.
  const runs = search.query && pane.lines[row].toLowerCase().includes(search.query) ? "" : pane.runs[row];
  addText(element, pane.lines[row], runs, pane.name, row);
}

function refresh() {
  for (const name of NAMES) {
    lists[name].refresh();
    drawRuler(name);
    const count = panes[name].marks.reduce((sum, mark, row) => sum + (mark > 0 && panes[name].kinds[row] !== HEADING), 0);
    at(`related-${name}`).textContent = pinned && count ? `${count.toLocaleString("en")} related` : "";
  }
  lists.tree.refresh();
}

function drawRuler(name) {
  const canvas = at(`ruler-${name}`), pane = panes[name];
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  const total = Math.max(pane.lines.length, 1);
  const tick = (row) => context.fillRect(0, Math.floor((row / total) * height), width, 2);
  context.fillStyle = colourOf("--bar");
  pane.marks.forEach((mark, row) => mark && tick(row));
  context.fillStyle = colourOf("--here");
  for (const row of pane.hits.keys()) tick(row);
}

// Canvas knows no light-dark(), so the colour is read off an element that has it.
function colourOf(name) {
  const probe = at("theme");
  probe.style.outlineColor = `var(${name})`;
  const found = getComputedStyle(probe).outlineColor;
  probe.style.outlineColor = "";
  return found;
}

function setUpPane(name) {
  const pane = panes[name], box = at(name);
  const list = (lists[name] = new Rows(box, 19, (element, row) => drawLine(pane, element, row)));
  let widest = 0;
  for (const line of pane.lines) widest = Math.max(widest, line.length);
  list.resize(pane.lines.length, `max(100%, calc(${Math.min(widest, 4000) + 2}ch + 8em))`);
  at(`pane-${name}`).hidden = !pane.lines.length;
  const jump = at(`jump-${name}`);
  jump.append(...pane.headings.map((row) => new Option(pane.lines[row], row)));
  jump.addEventListener("change", () => {
    box.scrollTop = Number(jump.value) * list.height;
    list.moveTo(Number(jump.value));
  });
  box.addEventListener("scroll", () => (jump.value = headingOf(pane, list.top)), { passive: true });
  at(`copy-${name}`).addEventListener("click", () => copyListing(name));
  box.addEventListener("mouseover", (event) => hover(pane, rowAt(event)));
  box.addEventListener("mouseleave", () => hover(pane, -1));
  box.addEventListener("click", (event) => !window.getSelection().toString() && choose(pane, rowAt(event)));
  box.addEventListener("keydown", (event) => onKey(event, list, (row) => choose(pane, row)));
}

function headingOf(pane, row) {
  let found = pane.headings[0];
  for (const heading of pane.headings) if (heading <= row) found = heading;
  return found;
}

function copyListing(name) {
  const pane = panes[name], start = headingOf(pane, Math.max(lists[name].top, 0));
  const end = pane.headings.find((row) => row > start) ?? pane.lines.length;
  const button = at(`copy-${name}`);
  navigator.clipboard?.writeText(pane.lines.slice(start + 1, end).join("\n") + "\n").then(
    () => (button.title = "Copied"),
    () => (button.title = "The browser does not allow copying here"),
  );
}

function rowAt(event) {
  const element = event.target.closest(".row");
  return element ? Number(element.dataset.row) : -1;
}

function onKey(event, list, pick) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = list.target(event.key);
  if (target >= 0) list.moveTo(target);
  else if ((event.key === "Enter" || event.key === " ") && list.cursor >= 0) pick(list.cursor);
  else return;
  event.preventDefault();
}

// ---- links -----------------------------------------------------------------------------------

let hovered = "";

function hover(pane, row) {
  if (pinned || hovered === `${pane.name}${row}`) return;
  hovered = `${pane.name}${row}`;
  if (row < 0) links.clear();
  else show(links.ofLine(pane, row), pane, row);
  markTree(null);
  refresh();
}

function show(found, pane, row) {
  links.mark(found);
  if (pane) pane.marks[row] = CHOSEN;
}

function choose(pane, row) {
  if (row < 0) return;
  const found = links.ofLine(pane, row);
  pinned = true;
  lists[pane.name].cursor = row;
  show(found, pane, row);
  markTree(found);
  reveal(pane.name);
}

function choosePart(found) {
  pinned = true;
  show(found);
  markTree(found);
  reveal("tree");
}

// Brings the nearest counterpart into view in every list but the one that was clicked.
function reveal(origin) {
  for (const name of NAMES) {
    if (name === origin) continue;
    const pane = panes[name];
    const rows = [];
    pane.marks.forEach((mark, row) => mark && rows.push(row));
    const lines = rows.filter((row) => pane.kinds[row] === PLAIN);
    const wanted = lines.length ? lines : rows;
    if (wanted.length && !wanted.some((row) => lists[name].isVisible(row))) lists[name].reveal(wanted[0]);
  }
  if (origin !== "tree") {
    const row = visibleRows.findIndex((index) => treeMarks[index]);
    if (row >= 0 && !visibleRows.some((index, place) => treeMarks[index] && lists.tree.isVisible(place))) lists.tree.reveal(row);
  }
  refresh();
}

function unpin() {
  pinned = false;
  hovered = "";
  links.clear();
  markTree(null);
  refresh();
}

// ---- tree ------------------------------------------------------------------------------------

const LABELS = new Set(["break", "split", "recompiled", "failed", "note", "script"]);
const hasParts = tree.map((row, index) => index + 1 < tree.length && tree[index + 1].depth > row.depth);
const open = tree.map((row) => (tree.length < 200 ? row.kind !== "fusion" || tree.length < 60 : row.depth < 1));
let visibleRows = [];

function layOutTree() {
  visibleRows = [];
  let closedAt = Infinity;
  tree.forEach((row, index) => {
    if (row.depth > closedAt) return;
    closedAt = hasParts[index] && !open[index] ? row.depth : Infinity;
    visibleRows.push(index);
  });
  lists.tree.resize(visibleRows.length);
}

function markTree(found) {
  tree.forEach((row, index) => {
    const isKernel = row.kind === "kernel";
    const hit = found && (isKernel ? found.kernels.has(row.kernel) : row.kind === "fusion" ? found.fusions.has(row.fusion) : row.source >= 0 && found.sources.has(row.source));
    treeMarks[index] = hit ? RELATED : 0;
  });
}

function drawTreeRow(element, place) {
  const index = visibleRows[place], row = tree[index];
  element.setAttribute("role", "treeitem");
  element.setAttribute("aria-level", row.depth + 1);
  if (hasParts[index]) element.setAttribute("aria-expanded", open[index]);
  element.dataset.kind = row.kind;
  element.style.paddingLeft = `${10 + row.depth * 18}px`;
  if (treeMarks[index]) element.classList.add("related");
  element.append(make("span", "twist", hasParts[index] ? (open[index] ? "▼" : "▶") : ""));
  const isLabel = LABELS.has(row.kind);
  if (isLabel) {
    element.append(make("span", `tag ${row.kind}`, row.kind));
    element.classList.add("loud");
  } else if (row.title) {
    const name = element.appendChild(make("span", "name"));
    name.title = row.title;
    addText(name, row.title, "", "tree", index);
  }
  const offset = isLabel ? 1 : row.title.length + 1;
  const words = element.appendChild(make("span", "words"));
  addMatches(words, row.words, offset, "tree", index);
  words.title = row.words;
  if (row.timing) drawTiming(element, row.timing);
}

function drawTiming(element, timing) {
  if (timing.finding) element.append(make("span", timing.bad ? "finding bad" : "finding", timing.finding));
  if (timing.ratio) element.append(make("span", "ratio", timing.ratio));
  if (!timing.bars.length) return;
  const times = make("span", "times"), bars = make("span", "bars");
  for (const bar of timing.bars) {
    const line = make("i", bar.subject ? "subject" : "");
    line.style.width = `${100 * bar.share}%`;
    bars.append(line);
  }
  const subject = timing.bars.find((bar) => bar.subject);
  times.append(bars, make("span", "time", subject ? subject.time : ""));
  times.title = timing.bars.map((bar) => bar.words).join("\n");
  element.append(times);
}

function toggle(index) {
  open[index] = !open[index];
  layOutTree();
}

function openTo(index) {
  let depth = tree[index].depth, changed = false;
  for (let above = index - 1; above >= 0 && depth > 0; above--) {
    if (tree[above].depth >= depth) continue;
    depth = tree[above].depth;
    changed ||= !open[above];
    open[above] = true;
  }
  if (changed) layOutTree();
  return visibleRows.indexOf(index);
}

function pickTreeRow(place) {
  if (place < 0) return;
  const index = visibleRows[place], row = tree[index];
  lists.tree.cursor = place;
  if (row.kind === "kernel") choosePart(links.ofKernels(new Set([row.kernel]), row.fusion));
  else if (row.kind === "fusion" && row.fusion >= 0) choosePart(links.ofFusion(row.fusion));
  else if (row.source >= 0) choosePart(links.ofSources(new Set([row.source])));
  else if (row.line !== undefined) {
    lists.trace.box.scrollTop = row.line * lists.trace.height;
    lists.trace.moveTo(row.line);
    lists.tree.refresh();
  } else if (hasParts[index]) toggle(index);
}

function setUpTree() {
  const box = at("tree");
  lists.tree = new Rows(box, 22, drawTreeRow);
  layOutTree();
  at("pane-trace").parentElement.hidden = NAMES.every((name) => !panes[name].lines.length);
  box.addEventListener("click", (event) => {
    const place = rowAt(event);
    if (place >= 0 && event.target.className === "twist") toggle(visibleRows[place]);
    else pickTreeRow(place);
  });
  box.addEventListener("keydown", (event) => {
    const index = visibleRows[lists.tree.cursor];
    const wanted = { ArrowRight: true, ArrowLeft: false }[event.key];
    if (wanted !== undefined && index !== undefined) {
      if (hasParts[index] && open[index] !== wanted) toggle(index);
      event.preventDefault();
    } else onKey(event, lists.tree, pickTreeRow);
  });
}

// ---- search ----------------------------------------------------------------------------------

function runSearch() {
  search.find(at("query").value);
  for (const name of NAMES) panes[name].hits = new Map(search.rowsOf(name).map((row) => [row, true]));
  stepSearch(1);
}

function stepSearch(by) {
  const here = search.step(by);
  const number = (value) => value.toLocaleString("en");
  at("count").textContent = !search.query ? "" : here ? `${number(search.current + 1)} / ${number(search.count)}` : "no match";
  if (here) lists[here.place].reveal(here.place === "tree" ? openTo(here.row) : here.row);
  refresh();
}

function setUpSearch() {
  let waiting = 0;
  at("query").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(runSearch, 100);
  });
  at("search").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    if (search.query !== at("query").value.toLowerCase()) runSearch();
    else stepSearch(1);
  });
  at("query").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.shiftKey) return;
    event.preventDefault();
    stepSearch(-1);
  });
  at("previous").addEventListener("click", () => stepSearch(-1));
  document.addEventListener("keydown", (event) => {
    const typing = event.target === at("query");
    const find = (event.key === "/" && !typing) || (event.key === "f" && (event.ctrlKey || event.metaKey) && !typing);
    if (find) {
      event.preventDefault();
      at("query").select();
    } else if (event.key === "Escape") {
      if (at("query").value) {
        at("query").value = "";
        runSearch();
      } else unpin();
    }
  });
}

// ---- theme and sizes -------------------------------------------------------------------------

const THEMES = { auto: "light dark", light: "light", dark: "dark" };
const ICONS = {
  auto: "M8 1.5a6.5 6.5 0 1 0 0 13zm0 0a6.5 6.5 0 0 1 0 13",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1M8 14v1M1 8h1M14 8h1M3 3l.7.7M12.3 12.3l.7.7M3 13l.7-.7M12.3 3.7 13 3",
  dark: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z",
};

function setTheme(theme) {
  document.documentElement.style.colorScheme = THEMES[theme];
  document.documentElement.dataset.theme = theme;
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("viewBox", "0 0 16 16");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[theme]);
  icon.append(path);
  at("theme").replaceChildren(icon);
  at("theme").title = `Theme: ${theme}`;
  at("theme").setAttribute("aria-label", `Theme: ${theme}`);
  NAMES.forEach(drawRuler);
}

function remember(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null; // a page from a file may not be allowed to remember
  }
}

function setUpTheme() {
  const names = Object.keys(THEMES), remembered = remember("thunder-theme");
  setTheme(names.includes(remembered) ? remembered : "auto");
  at("theme").addEventListener("click", () => {
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    remember("thunder-theme", next);
    setTheme(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => NAMES.forEach(drawRuler));
}

function setUpDivider() {
  const divider = at("split"), overview = divider.previousElementSibling;
  const rows = visibleRows.length * 22 + 8;
  const set = (height) => (overview.style.height = `${Math.max(66, Math.min(height, innerHeight * 0.75))}px`);
  set(Math.min(rows, innerHeight * 0.34));
  divider.addEventListener("pointerdown", (event) => {
    divider.setPointerCapture(event.pointerId);
    const offset = event.clientY - overview.clientHeight;
    const move = (moved) => set(moved.clientY - offset);
    divider.addEventListener("pointermove", move);
    divider.addEventListener("pointerup", () => divider.removeEventListener("pointermove", move), { once: true });
  });
  divider.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -22, ArrowDown: 22 }[event.key];
    if (by) set(overview.clientHeight + by);
  });
  addEventListener("resize", () => NAMES.forEach(drawRuler));
}

NAMES.forEach(setUpPane);
setUpTree();
setUpDivider();
setUpSearch();
setUpTheme();
refresh();
document.documentElement.dataset.ready = "true";
