// What belongs together: source lines, trace lines, fusions, kernels.

const PLAIN = 0, HEAD = 1, HEADING = 2;
const RELATED = 1, CHOSEN = 2;

class Pane {
  constructor(name, data) {
    this.name = name;
    this.lines = data.text === "" && !data.kinds.length ? [] : data.text.split("\n");
    this.runs = data.runs.split("\n");
    this.numbers = Int32Array.from(data.numbers);
    this.sources = Int32Array.from(data.sources);
    this.fusions = Int32Array.from(data.fusions);
    this.kernels = Int32Array.from(data.kernels);
    this.kinds = Uint8Array.from(data.kinds);
    this.sets = data.sets;
    this.marks = new Uint8Array(this.lines.length);
    this.headings = [];
    this.kinds.forEach((kind, row) => kind === HEADING && this.headings.push(row));
    this.hits = new Map();
  }

  setsWith(kernels) {
    return Uint8Array.from(this.sets, (set) => set.some((kernel) => kernels.has(kernel)));
  }
}

class Links {
  constructor(panes) {
    this.panes = panes;
  }

  // Everything that a line of a pane has to do with.
  ofLine(pane, row) {
    const { source, trace } = this.panes;
    const kernels = new Set(pane.sets[pane.kernels[row]]);
    const fusion = pane.fusions[row];
    if (pane === source) return this.ofSources(new Set([pane.sources[row]]));
    if (pane.kinds[row] !== PLAIN || (pane.name === "code" && !kernels.size)) return this.ofFusion(fusion);
    if (pane.name === "code") return this.ofKernels(kernels, fusion);
    const found = { sources: new Set([pane.sources[row]]), fusions: new Set([fusion]), kernels };
    if (trace.sources[row] < 0) found.sources.clear();
    return found;
  }

  ofSources(sources) {
    const fusions = new Set(), kernels = new Set(), { trace } = this.panes;
    sources.delete(-1);
    for (let row = 0; row < trace.lines.length; row++) {
      if (!sources.has(trace.sources[row])) continue;
      fusions.add(trace.fusions[row]);
      for (const kernel of trace.sets[trace.kernels[row]]) kernels.add(kernel);
    }
    return { sources, fusions, kernels };
  }

  ofFusion(fusion) {
    const sources = new Set(), kernels = new Set(), { trace, code } = this.panes;
    if (fusion < 0) return { sources, kernels, fusions: new Set() };
    for (let row = 0; row < trace.lines.length; row++) {
      if (trace.fusions[row] === fusion && trace.sources[row] >= 0) sources.add(trace.sources[row]);
    }
    for (let row = 0; row < code.lines.length; row++) {
      if (code.fusions[row] !== fusion) continue;
      for (const kernel of code.sets[code.kernels[row]]) kernels.add(kernel);
    }
    return { sources, kernels, fusions: new Set([fusion]), whole: true };
  }

  ofKernels(kernels, fusion) {
    const sources = new Set(), { trace } = this.panes;
    const hit = trace.setsWith(kernels);
    for (let row = 0; row < trace.lines.length; row++) {
      if (hit[trace.kernels[row]] && trace.sources[row] >= 0) sources.add(trace.sources[row]);
    }
    return { sources, kernels, fusions: new Set([fusion]), exact: true };
  }

  // Marks the lines of all panes that belong to what was found. A kernel's lines are those that
  // it computes; a source line's are all that come from it, in every trace.
  mark(found) {
    const { source, trace, code } = this.panes;
    const fusions = found.fusions, inKernel = trace.setsWith(found.kernels), inCode = code.setsWith(found.kernels);
    fusions.delete(-1);
    for (let row = 0; row < source.lines.length; row++) {
      source.marks[row] = source.kinds[row] === PLAIN && found.sources.has(source.sources[row]) ? RELATED : 0;
    }
    for (let row = 0; row < trace.lines.length; row++) {
      const inFusion = fusions.has(trace.fusions[row]);
      let isOf = found.sources.has(trace.sources[row]);
      if (found.exact) isOf = inKernel[trace.kernels[row]];
      if (found.whole) isOf = inFusion;
      trace.marks[row] = isOf || (inFusion && trace.kinds[row] === HEAD) ? RELATED : 0;
    }
    for (let row = 0; row < code.lines.length; row++) {
      const isHeading = code.kinds[row] === HEADING && fusions.has(code.fusions[row]);
      code.marks[row] = inCode[code.kernels[row]] || isHeading ? RELATED : 0;
    }
  }

  clear() {
    for (const pane of Object.values(this.panes)) pane.marks.fill(0);
  }
}
